//! The unreliable services: UC and UD.

use anyhow::{Result, ensure};

use super::end::{Qp, Status};
use super::pair::{Options, Pair};

const QKEY: u32 = 0x1133_5577;
/// A UD receive begins with room for a global routing header (IBTA §11.4.1.2).
const GRH_BYTES: usize = 40;

pub(super) fn uc_send(pair: &mut Pair) -> Result<()> {
    let link = pair.link("uc", Options { access: "lw", ..Options::default() })?;
    for (wr, length) in [(1, 0), (2, 13), (3, 1024), (4, 5000)] {
        let source = pair.requester.filled(8192, "l", wr)?;
        let target = pair.responder.region(8192, "l")?;
        pair.responder.receive(link.responder, &format!("wr={wr} sge={}:0:8192", target.id))?;
        let work = format!("op=send_imm imm={} wr={wr} sge={}:0:{length}", wr + 70, source.id);
        pair.requester.post(link.requester, &work)?;
        pair.requester.succeeds(wr)?;
        let received = pair.responder.succeeds(wr)?;
        ensure!(received.length_bytes as usize == length, "the receive says {} bytes", received.length_bytes);
        ensure!(u64::from(received.immediate) == wr + 70, "immediate {} arrived", received.immediate);
        pair.responder.holds(target, 0, length, wr)?;
    }
    Ok(())
}

pub(super) fn uc_write(pair: &mut Pair) -> Result<()> {
    let link = pair.link("uc", Options { access: "lw", ..Options::default() })?;
    let target = pair.responder.region(8192, "lw")?;
    let remote = format!("raddr={} rkey={}", target.address, target.rkey);
    for (wr, length) in [(1, 32), (2, 2048), (3, 5000)] {
        let source = pair.requester.filled(8192, "l", wr)?;
        pair.requester
            .post(link.requester, &format!("op=write wr={wr} sge={}:0:{length} {remote}", source.id))?;
        pair.requester.succeeds(wr)?;
        // UC acknowledges nothing: a WRITE with immediate behind it tells when it has arrived.
        pair.responder.receive(link.responder, &format!("wr={wr}"))?;
        let notice = format!("op=write_imm wr={wr} imm={wr} {remote}");
        pair.requester.post(link.requester, &notice)?;
        pair.requester.succeeds(wr)?;
        pair.responder.succeeds(wr)?;
        pair.responder.holds(target, 0, length, wr)?;
    }
    Ok(())
}

/// A message without a receive is lost without any sign; the next one arrives.
pub(super) fn uc_without_receive(pair: &mut Pair) -> Result<()> {
    let link = pair.link("uc", Options::default())?;
    let source = pair.requester.filled(100, "l", 1)?;
    let target = pair.responder.region(200, "l")?;
    pair.requester.post(link.requester, &format!("op=send wr=1 sge={}:0:100", source.id))?;
    pair.requester.succeeds(1)?;
    pair.responder.stays_silent(20)?;
    pair.responder.receive(link.responder, &format!("wr=2 sge={}:0:200", target.id))?;
    pair.requester.post(link.requester, &format!("op=send wr=2 sge={}:0:100", source.id))?;
    pair.requester.succeeds(2)?;
    pair.responder.succeeds(2)?;
    pair.responder.holds(target, 0, 100, 1)
}

/// Two UD queue pairs, ready, and the requester's address handle.
fn datagram_pair(pair: &mut Pair) -> Result<(Qp, Qp, u32)> {
    let ready = |end: &mut super::end::End| -> Result<Qp> {
        let qp = end.queue_pair("ud", "")?;
        end.tell(&format!("init qp={} qkey={QKEY}", qp.id))?;
        end.tell(&format!("rtr qp={}", qp.id))?;
        end.tell(&format!("rts qp={} psn=77", qp.id))?;
        Ok(qp)
    };
    let (from, to) = (ready(&mut pair.requester)?, ready(&mut pair.responder)?);
    let gid = pair.responder.gid.clone();
    Ok((from, to, pair.requester.address_handle(&gid)?))
}

pub(super) fn ud_send(pair: &mut Pair) -> Result<()> {
    let (from, to, ah) = datagram_pair(pair)?;
    for (wr, length) in [(1, 0), (2, 13), (3, 1024)] {
        let source = pair.requester.filled(1024, "l", wr)?;
        let target = pair.responder.region(2048, "l")?;
        pair.responder.receive(to, &format!("wr={wr} sge={}:0:2048", target.id))?;
        let address = format!("ah={ah} qpn={} qkey={QKEY}", to.qpn);
        let work = format!("op=send_imm imm=0xbeef wr={wr} sge={}:0:{length} {address}", source.id);
        pair.requester.post(from, &work)?;
        pair.requester.succeeds(wr)?;
        let received = pair.responder.succeeds(wr)?;
        ensure!(
            received.length_bytes as usize == length + GRH_BYTES && received.immediate == 0xbeef,
            "{} bytes with immediate {:#x} arrived",
            received.length_bytes,
            received.immediate
        );
        ensure!(received.source_qpn == from.qpn, "it is said to come from QP {}", received.source_qpn);
        pair.responder.holds(target, GRH_BYTES, length, wr)?;
    }
    Ok(())
}

/// Datagrams with another Q_Key are dropped, without an answer and without taking a receive.
pub(super) fn ud_wrong_qkey(pair: &mut Pair) -> Result<()> {
    let (from, to, ah) = datagram_pair(pair)?;
    let source = pair.requester.filled(64, "l", 1)?;
    let target = pair.responder.region(2048, "l")?;
    pair.responder.receive(to, &format!("wr=1 sge={}:0:2048", target.id))?;
    let mut send = |wr: u64, qkey: u32| {
        let address = format!("ah={ah} qpn={} qkey={qkey}", to.qpn);
        pair.requester.post(from, &format!("op=send wr={wr} sge={}:0:64 {address}", source.id))?;
        pair.requester.completes(wr, &[Status::Success])
    };
    send(1, QKEY ^ 1)?;
    pair.responder.stays_silent(20)?;
    send(2, QKEY)?;
    pair.responder.succeeds(1)?;
    pair.responder.holds(target, GRH_BYTES, 64, 1)
}
