//! A responder's refusals, and the requester's reactions.

use anyhow::{Result, ensure};

use super::end::{STATE_ERROR, Status};
use super::pair::{Link, Options, Pair};

/// An RNR timer of 10.24 ms (IBTA Table 45): long enough that a receive posted from afar comes within a few of them.
const RNR_10_MS: u8 = 20;

/// The request fails with one of `statuses`; the request behind it is flushed; the queue pair is in the error state.
fn refused(pair: &mut Pair, link: Link, work: &str, statuses: &[Status]) -> Result<()> {
    let spare = pair.requester.region(8, "l")?;
    // Behind a queue pair's failure a post may be refused, so the follower goes first into the queue's tail.
    pair.requester.post(link.requester, &format!("{work} wr=1"))?;
    let follower = pair.requester.post(link.requester, &format!("op=send wr=2 sge={}:0:8", spare.id));
    pair.requester.completes(1, statuses)?;
    if follower.is_ok() {
        pair.requester.completes(2, &[Status::Flushed])?;
    }
    ensure!(
        pair.requester.state(link.requester)? == STATE_ERROR,
        "the requester's QP is not in the error state"
    );
    Ok(())
}

/// A WRITE, READ or atomic to `target`, whose local part is 64 (atomics: 8) bytes.
fn access(pair: &mut Pair, op: &str, address: u64, rkey: u32) -> Result<String> {
    let local = pair.requester.region(64, "l")?;
    let (length, operands) = match op {
        "cas" => (8, "compare=0 swap=1"),
        "fadd" => (8, "add=1"),
        _ => (64, ""),
    };
    Ok(format!("op={op} sge={}:0:{length} raddr={address} rkey={rkey} {operands}", local.id))
}

pub(super) fn bad_rkey(pair: &mut Pair) -> Result<()> {
    for op in ["write", "read", "cas", "fadd"] {
        let link = pair.rc()?;
        let target = pair.responder.region(64, "lwra")?;
        let work = access(pair, op, target.address, target.rkey ^ 0x5a5a_5a00)?;
        refused(pair, link, &work, &[Status::RemoteAccess])?;
        ensure!(pair.responder.bytes(target, 0, 64)? == [0; 64], "a refused {op} changed memory");
    }
    Ok(())
}

pub(super) fn bad_range(pair: &mut Pair) -> Result<()> {
    for (op, offset) in [("write", 1), ("read", 1), ("write", u64::MAX - 7), ("fadd", 64)] {
        let link = pair.rc()?;
        let target = pair.responder.region(64, "lwra")?;
        let work = access(pair, op, target.address.wrapping_add(offset), target.rkey)?;
        refused(pair, link, &work, &[Status::RemoteAccess])?;
        ensure!(pair.responder.bytes(target, 0, 64)? == [0; 64], "a refused {op} changed memory");
    }
    Ok(())
}

/// The region does not allow it.
pub(super) fn no_access_on_region(pair: &mut Pair) -> Result<()> {
    for (op, region) in [("write", "lra"), ("read", "lwa"), ("cas", "lwr"), ("fadd", "lwr")] {
        let link = pair.rc()?;
        let target = pair.responder.region(64, region)?;
        let work = access(pair, op, target.address, target.rkey)?;
        refused(pair, link, &work, &[Status::RemoteAccess])?;
        ensure!(pair.responder.bytes(target, 0, 64)? == [0; 64], "a refused {op} changed memory");
    }
    Ok(())
}

/// The queue pair does not allow it: an invalid request (IBTA Table 58), or a remote access error; both are in use.
pub(super) fn no_access_on_queue_pair(pair: &mut Pair) -> Result<()> {
    for (op, allowed) in [("write", "lra"), ("read", "lwa"), ("cas", "lwr"), ("fadd", "lwr")] {
        let link = pair.link("rc", Options { access: allowed, ..Options::default() })?;
        let target = pair.responder.region(64, "lwra")?;
        let work = access(pair, op, target.address, target.rkey)?;
        refused(pair, link, &work, &[Status::RemoteInvalidRequest, Status::RemoteAccess])?;
        ensure!(pair.responder.bytes(target, 0, 64)? == [0; 64], "a refused {op} changed memory");
    }
    Ok(())
}

/// A SEND longer than the receive it meets is an invalid request (IBTA §9.9.6.3); the kernel calls it a remote
/// operational error.
pub(super) fn send_too_long(pair: &mut Pair) -> Result<()> {
    for length in [65, 3000] {
        let link = pair.rc()?;
        let source = pair.requester.filled(length, "l", 1)?;
        let target = pair.responder.region(4096, "l")?;
        pair.responder.receive(link.responder, &format!("wr=7 sge={}:0:64", target.id))?;
        let work = format!("op=send sge={}:0:{length}", source.id);
        refused(pair, link, &work, &[Status::RemoteInvalidRequest, Status::RemoteOperation])?;
        let statuses = [Status::LocalLength, Status::LocalQueuePair];
        pair.responder.completes(7, &statuses)?;
        ensure!(
            pair.responder.bytes(target, 64, 64)? == [0; 64],
            "bytes behind the receive's buffer changed"
        );
    }
    Ok(())
}

/// No receive is posted at first; the requester waits as told and then succeeds.
pub(super) fn rnr_then_success(pair: &mut Pair) -> Result<()> {
    let link = pair.link("rc", Options { min_rnr: RNR_10_MS, ..Options::default() })?;
    let source = pair.requester.filled(2500, "l", 2)?;
    let target = pair.responder.region(4096, "l")?;
    pair.requester.post(link.requester, &format!("op=send wr=1 sge={}:0:2500", source.id))?;
    pair.requester.stays_silent(30)?;
    pair.responder.receive(link.responder, &format!("wr=1 sge={}:0:4096", target.id))?;
    pair.requester.succeeds(1)?;
    pair.responder.succeeds(1)?;
    pair.responder.holds(target, 0, 2500, 2)
}

/// No receive is ever posted and the retries are counted.
pub(super) fn rnr_exhausted(pair: &mut Pair) -> Result<()> {
    let link = pair.link("rc", Options { rnr_retry: 2, ..Options::default() })?;
    let source = pair.requester.filled(100, "l", 2)?;
    refused(pair, link, &format!("op=send sge={}:0:100", source.id), &[Status::RnrRetryExceeded])?;
    let link = pair.link("rc", Options { rnr_retry: 0, ..Options::default() })?;
    let target = pair.responder.region(100, "lw")?;
    let work =
        format!("op=write_imm sge={}:0:100 raddr={} rkey={} imm=1", source.id, target.address, target.rkey);
    refused(pair, link, &work, &[Status::RnrRetryExceeded])
}

/// The responder's queue pair is gone, so it does not answer.
pub(super) fn silent_peer(pair: &mut Pair) -> Result<()> {
    // Timeout 10 is 4.2 ms, which the kernel rounds up to its own clock.
    let link = pair.link("rc", Options { timeout: 10, retry: 2, ..Options::default() })?;
    pair.responder.tell(&format!("destroy qp={}", link.responder.id))?;
    let source = pair.requester.filled(100, "l", 2)?;
    refused(pair, link, &format!("op=send sge={}:0:100", source.id), &[Status::RetryExceeded])
}

/// A refused WRITE leaves the responder's other connections alone.
pub(super) fn neighbours_survive(pair: &mut Pair) -> Result<()> {
    let (victim, neighbour) = (pair.rc()?, pair.rc()?);
    let target = pair.responder.region(64, "lw")?;
    let work = access(pair, "write", target.address, target.rkey ^ 0x0101_0100)?;
    refused(pair, victim, &work, &[Status::RemoteAccess])?;
    let source = pair.requester.filled(64, "l", 3)?;
    let remote = format!("raddr={} rkey={}", target.address, target.rkey);
    pair.requester.post(neighbour.requester, &format!("op=write wr=5 sge={}:0:64 {remote}", source.id))?;
    pair.requester.succeeds(5)?;
    pair.responder.holds(target, 0, 64, 3)
}
