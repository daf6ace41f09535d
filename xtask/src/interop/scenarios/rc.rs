//! The normal operation of reliable connections: SEND, WRITE, READ, atomics.

use anyhow::{Result, ensure};

use super::end::Status;
use super::pair::{Options, Pair};

/// Message lengths on both sides of every border: pad bytes, one packet, first and last, several packets.
const LENGTHS: &[usize] = &[0, 1, 13, 64, 1023, 1024, 1025, 2048, 5000];

const OPCODE_RECV: u32 = 128;
const OPCODE_RECV_WITH_IMMEDIATE: u32 = 129;
const FLAG_WITH_IMMEDIATE: u32 = 2;
/// The flag as libibverbs numbers it, or as the kernel does, whose number rxe hands through unchanged.
const FLAG_WITH_INVALIDATE: u32 = 8 | 4;

pub(super) fn send(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    for (wr, &length) in (1..).zip(LENGTHS) {
        let source = pair.requester.filled(length.max(1), "l", wr)?;
        let target = pair.responder.region(8192, "l")?;
        pair.responder.receive(link.responder, &format!("wr={wr} sge={}:0:8192", target.id))?;
        pair.requester.post(link.requester, &format!("op=send wr={wr} sge={}:0:{length}", source.id))?;
        pair.requester.succeeds(wr)?;
        let received = pair.responder.succeeds(wr)?;
        ensure!(received.opcode == OPCODE_RECV, "the receive completed with opcode {}", received.opcode);
        ensure!(
            received.length_bytes as usize == length,
            "{length} bytes were sent, the receive says {}",
            received.length_bytes
        );
        pair.responder.holds(target, 0, length, wr)?;
    }
    Ok(())
}

pub(super) fn send_with_immediate(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    for (wr, length) in [(1, 0), (2, 100), (3, 3000)] {
        let immediate = 0xa1b2_c300 + u32::try_from(wr)?;
        let source = pair.requester.filled(4096, "l", wr)?;
        let target = pair.responder.region(4096, "l")?;
        pair.responder.receive(link.responder, &format!("wr={wr} sge={}:0:4096", target.id))?;
        let work = format!("op=send_imm wr={wr} sge={}:0:{length} imm={immediate} flags=se", source.id);
        pair.requester.post(link.requester, &work)?;
        pair.requester.succeeds(wr)?;
        let received = pair.responder.succeeds(wr)?;
        ensure!(
            received.flags & FLAG_WITH_IMMEDIATE != 0 && received.immediate == immediate,
            "immediate {immediate:#x} arrived as {:#x} (flags {})",
            received.immediate,
            received.flags
        );
        pair.responder.holds(target, 0, length, wr)?;
    }
    Ok(())
}

pub(super) fn send_with_invalidate(pair: &mut Pair) -> Result<()> {
    let link = pair.link("rc", Options { access: "lwrab", ..Options::default() })?;
    let memory = pair.responder.region(4096, "lwrb")?;
    let pd = pair.responder.pd;
    let window = pair.responder.agent.ask(&format!("mw pd={pd}"))?;
    let (mw, rkey): (u32, u32) = (window.number("mw")?, window.number("rkey")?);
    // The consumer owns the rkey's last byte and changes it at every binding (IBTA §10.6.7.2.6).
    let rkey = (rkey & !0xff) | ((rkey + 1) & 0xff);
    let address = memory.address;
    let bind =
        format!("op=bind wr=1 mw={mw} rkey={rkey} mr={} addr={address} length=64 access=wr", memory.id);
    pair.responder.post(link.responder, &bind)?;
    pair.responder.succeeds(1)?;

    let source = pair.requester.filled(64, "l", 5)?;
    let write = format!("op=write sge={}:0:64 raddr={address} rkey={rkey}", source.id);
    pair.requester.post(link.requester, &format!("{write} wr=2"))?;
    pair.requester.succeeds(2)?;
    pair.responder.holds(memory, 0, 64, 5)?;

    pair.responder.receive(link.responder, "wr=3")?;
    pair.requester.post(link.requester, &format!("op=send_inv wr=3 invalidate={rkey}"))?;
    pair.requester.succeeds(3)?;
    let received = pair.responder.succeeds(3)?;
    ensure!(
        received.flags & FLAG_WITH_INVALIDATE != 0 && received.immediate == rkey,
        "the receive does not say that {rkey:#x} was invalidated"
    );
    pair.requester.post(link.requester, &format!("{write} wr=4"))?;
    pair.requester.completes(4, &[Status::RemoteAccess])?;
    Ok(())
}

pub(super) fn write(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    let target = pair.responder.region(70_000, "lw")?;
    for (wr, &length) in (1..).zip(LENGTHS.iter().chain(&[65_536])) {
        let source = pair.requester.filled(length.max(1), "l", wr)?;
        let (address, rkey) = (target.address + 3, target.rkey);
        let work = format!("op=write wr={wr} sge={}:0:{length} raddr={address} rkey={rkey}", source.id);
        pair.requester.post(link.requester, &work)?;
        pair.requester.succeeds(wr)?;
        pair.responder.holds(target, 3, length, wr)?;
    }
    ensure!(pair.responder.bytes(target, 0, 3)? == [0; 3], "bytes before the target changed");
    pair.responder.stays_silent(0)
}

pub(super) fn write_with_immediate(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    let target = pair.responder.region(8192, "lw")?;
    for (wr, length) in [(1, 0), (2, 100), (3, 5000)] {
        let source = pair.requester.filled(8192, "l", wr)?;
        pair.responder.receive(link.responder, &format!("wr={wr}"))?;
        let (address, rkey, immediate) = (target.address, target.rkey, 0xfeed_0000 + u32::try_from(wr)?);
        let work = format!("raddr={address} rkey={rkey} imm={immediate}");
        let work = format!("op=write_imm wr={wr} sge={}:0:{length} {work}", source.id);
        pair.requester.post(link.requester, &work)?;
        pair.requester.succeeds(wr)?;
        let received = pair.responder.succeeds(wr)?;
        ensure!(
            received.opcode == OPCODE_RECV_WITH_IMMEDIATE && received.immediate == immediate,
            "opcode {} and immediate {:#x} arrived",
            received.opcode,
            received.immediate
        );
        ensure!(received.length_bytes as usize == length, "the receive says {} bytes", received.length_bytes);
        pair.responder.holds(target, 0, length, wr)?;
    }
    Ok(())
}

pub(super) fn read(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    for (wr, &length) in (1..).zip(LENGTHS.iter().chain(&[65_536])) {
        let source = pair.responder.filled(length.max(1), "r", wr)?;
        let target = pair.requester.region(length.max(1), "l")?;
        let (address, rkey) = (source.address, source.rkey);
        let work = format!("op=read wr={wr} sge={}:0:{length} raddr={address} rkey={rkey}", target.id);
        pair.requester.post(link.requester, &work)?;
        pair.requester.succeeds(wr)?;
        pair.requester.holds(target, 0, length, wr)?;
    }
    pair.responder.stays_silent(0)
}

pub(super) fn reads_outstanding(pair: &mut Pair) -> Result<()> {
    const READS: usize = 16;
    let link = pair.rc()?;
    let source = pair.responder.filled(3000 * READS, "r", 9)?;
    let target = pair.requester.region(3000 * READS, "l")?;
    for read in 0..READS {
        let (offset, address) = (3000 * read, source.address + 3000 * read as u64);
        let work = format!("raddr={address} rkey={}", source.rkey);
        let work = format!("op=read wr={read} sge={}:{offset}:3000 {work}", target.id);
        pair.requester.post(link.requester, &work)?;
    }
    for (wr, completion) in (0..).zip(pair.requester.completions(READS)?) {
        pair.requester.has_status(&completion, wr, &[Status::Success])?;
    }
    pair.requester.holds(target, 0, 3000 * READS, 9)
}

pub(super) fn compare_and_swap(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    let target = pair.responder.region(64, "la")?;
    let result = pair.requester.region(64, "l")?;
    pair.responder.set_word(target, 8, 100)?;
    // Swaps, then finds another value and leaves it, then swaps again.
    for (wr, compare, swap, before, after) in [
        (1, 100, u64::MAX - 1, 100, u64::MAX - 1),
        (2, 100, 7, u64::MAX - 1, u64::MAX - 1),
        (3, u64::MAX - 1, 0, u64::MAX - 1, 0),
    ] {
        let (address, rkey) = (target.address + 8, target.rkey);
        let work = format!("raddr={address} rkey={rkey} compare={compare} swap={swap}");
        pair.requester.post(link.requester, &format!("op=cas wr={wr} sge={}:0:8 {work}", result.id))?;
        pair.requester.succeeds(wr)?;
        let found = (pair.requester.word(result, 0)?, pair.responder.word(target, 8)?);
        ensure!(found == (before, after), "swap {wr}: wanted {:x?}, got {found:x?}", (before, after));
    }
    Ok(())
}

pub(super) fn fetch_and_add(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    let target = pair.responder.region(64, "la")?;
    let result = pair.requester.region(64, "l")?;
    pair.responder.set_word(target, 0, u64::MAX - 1)?;
    for (wr, add, before) in [(1, 1, u64::MAX - 1), (2, 5, u64::MAX), (3, u64::MAX, 4)] {
        let work = format!("raddr={} rkey={} add={add}", target.address, target.rkey);
        pair.requester.post(link.requester, &format!("op=fadd wr={wr} sge={}:0:8 {work}", result.id))?;
        pair.requester.succeeds(wr)?;
        let found = pair.requester.word(result, 0)?;
        ensure!(found == before, "addition {wr}: wanted {before:#x} before it, got {found:#x}");
    }
    ensure!(pair.responder.word(target, 0)? == 3, "the sum is wrong");
    Ok(())
}

/// One message gathered from three places and scattered to two.
pub(super) fn gather_and_scatter(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    let source = pair.requester.filled(4096, "l", 3)?;
    let target = pair.responder.region(4096, "l")?;
    pair.responder.receive(link.responder, &format!("wr=1 sge={0}:2000:1500,{0}:100:700", target.id))?;
    let sges = format!("{0}:0:1000,{0}:1000:7,{0}:1007:1000", source.id);
    pair.requester.post(link.requester, &format!("op=send wr=1 sge={sges}"))?;
    pair.requester.succeeds(1)?;
    pair.responder.succeeds(1)?;
    let mut received = pair.responder.bytes(target, 2000, 1500)?;
    received.extend(pair.responder.bytes(target, 100, 507)?);
    ensure!(received == crate::interop::pattern::pattern(3, 2007), "the pieces do not make up the message");
    Ok(())
}

/// Unsignaled WRITEs, a fenced SEND behind a READ, and one completion for each signaled request, in order.
pub(super) fn mixed_operations_in_order(pair: &mut Pair) -> Result<()> {
    let link = pair.rc()?;
    let source = pair.requester.filled(8192, "l", 4)?;
    let local = pair.requester.region(8192, "l")?;
    let target = pair.responder.region(8192, "lwra")?;
    pair.responder.receive(link.responder, &format!("wr=1 sge={}:4096:4096", target.id))?;
    let remote = format!("raddr={} rkey={}", target.address, target.rkey);
    let requester = &mut pair.requester;
    requester.post(link.requester, &format!("op=write wr=1 flags=- sge={}:0:3000 {remote}", source.id))?;
    requester.post(link.requester, &format!("op=read wr=2 flags=s sge={}:0:3000 {remote}", local.id))?;
    requester
        .post(link.requester, &format!("op=fadd wr=3 flags=- sge={}:4000:8 {remote} add=0", local.id))?;
    requester.post(link.requester, &format!("op=send wr=4 flags=sf sge={}:0:3000", local.id))?;
    requester.post(link.requester, &format!("op=write wr=5 flags=si sge={}:64:32 {remote}", source.id))?;
    for (wr, completion) in [2, 4, 5].into_iter().zip(pair.requester.completions(3)?) {
        pair.requester.has_status(&completion, wr, &[Status::Success])?;
    }
    pair.responder.succeeds(1)?;
    pair.responder.holds(target, 4096, 3000, 4)
}

/// PSNs run over 2^24 within a segmented message, in requests and in READ responses.
pub(super) fn psn_wrap(pair: &mut Pair) -> Result<()> {
    let link = pair.link("rc", Options { psn: 0xff_fffd, ..Options::default() })?;
    let source = pair.requester.filled(6000, "l", 6)?;
    let target = pair.responder.region(6000, "lwr")?;
    let remote = format!("raddr={} rkey={}", target.address, target.rkey);
    let work = format!("op=write wr=1 sge={}:0:6000 {remote}", source.id);
    pair.requester.post(link.requester, &work)?;
    pair.requester.succeeds(1)?;
    pair.responder.holds(target, 0, 6000, 6)?;

    let link = pair.link("rc", Options { psn: 0xff_fffe, ..Options::default() })?;
    let copy = pair.requester.region(6000, "l")?;
    pair.requester.post(link.requester, &format!("op=read wr=2 sge={}:0:6000 {remote}", copy.id))?;
    pair.requester.succeeds(2)?;
    pair.requester.holds(copy, 0, 6000, 6)?;
    pair.requester.post(link.requester, &format!("op=read wr=3 sge={}:0:8 {remote}", copy.id))?;
    pair.requester.succeeds(3)?;
    Ok(())
}

/// Messages of two queue pairs land in the order in which a shared receive queue was filled.
pub(super) fn shared_receive_queue(pair: &mut Pair) -> Result<()> {
    let pd = pair.responder.pd;
    let srq: u32 = pair.responder.agent.ask(&format!("srq pd={pd} wr=16"))?.number("srq")?;
    ensure!(srq == 0, "a new end's first SRQ is number 0");
    let options = Options { responder_qp: "srq=0", ..Options::default() };
    let links = [pair.link("rc", options)?, pair.link("rc", options)?];
    let source = pair.requester.filled(100, "l", 8)?;
    let target = pair.responder.region(4096, "l")?;
    for slot in 0..4 {
        pair.responder.tell(&format!("recv srq=0 wr={slot} sge={}:{}:200", target.id, slot * 200))?;
    }
    for (wr, link) in (0..).zip([links[0], links[1], links[1], links[0]]) {
        pair.requester.post(link.requester, &format!("op=send wr={wr} sge={}:0:100", source.id))?;
        pair.requester.succeeds(wr)?;
        let received = pair.responder.succeeds(wr)?;
        ensure!(received.qpn == link.responder.qpn, "the message is said to be of QP {}", received.qpn);
        pair.responder.holds(target, usize::try_from(wr)? * 200, 100, 8)?;
    }
    Ok(())
}

/// Messages long enough to overrun queues on the way: packets dropped there are sent again.
pub(super) fn megabytes(pair: &mut Pair) -> Result<()> {
    const BYTES: usize = 1 << 20;
    let link = pair.rc()?;
    let source = pair.requester.filled(BYTES, "l", 10)?;
    let copy = pair.requester.region(BYTES, "l")?;
    let target = pair.responder.region(BYTES, "lwr")?;
    let remote = format!("raddr={} rkey={}", target.address, target.rkey);
    for (wr, op, local) in [(1, "write", source), (2, "read", copy)] {
        pair.requester
            .post(link.requester, &format!("op={op} wr={wr} sge={}:0:{BYTES} {remote}", local.id))?;
        pair.requester.succeeds(wr)?;
    }
    pair.responder.holds(target, 0, BYTES, 10)?;
    pair.requester.holds(copy, 0, BYTES, 10)
}

/// Both ends are requester and responder of one connection at the same time.
pub(super) fn both_ways(pair: &mut Pair) -> Result<()> {
    const MESSAGES: usize = 32;
    let link = pair.rc()?;
    let Pair { requester, responder } = pair;
    let mut ends = [(requester, link.requester, 1), (responder, link.responder, 2)];
    let mut targets = Vec::new();
    for (end, qp, _) in &mut ends {
        let target = end.region(3000 * MESSAGES, "l")?;
        for message in 0..MESSAGES {
            end.receive(*qp, &format!("wr={message} sge={}:{}:3000", target.id, 3000 * message))?;
        }
        targets.push(target);
    }
    for (end, qp, seed) in &mut ends {
        let source = end.filled(3000, "l", *seed)?;
        end.post(*qp, &format!("op=send wr=100 count={MESSAGES} sge={}:0:3000", source.id))?;
    }
    for ((end, _, seed), target) in ends.iter_mut().zip(targets) {
        let completions = end.completions(2 * MESSAGES)?;
        // Sends complete in an order of their own, and so do receives; between the two there is none.
        for first in [0, 100] {
            let mine = completions.iter().filter(|completion| (completion.wr_id >= 100) == (first == 100));
            for (wr, completion) in (first..).zip(mine) {
                end.has_status(completion, wr, &[Status::Success])?;
            }
        }
        for message in 0..MESSAGES {
            end.holds(target, 3000 * message, 3000, 3 - *seed)?;
        }
    }
    Ok(())
}
