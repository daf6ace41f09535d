//! One packet in a hundred lost, both ways; for the application nothing may be lost, repeated or reordered.
//!
//! The guest's kernel drops the packets, sent and received ones, so that both ends run unchanged.

use anyhow::{Result, ensure};

use super::end::Status;
use super::pair::{Options, Pair};
use crate::interop::agent::Agent;

/// An acknowledgement timeout of 134 ms (2^15 × 4.096 µs): seven retries outlast a second in which the emulated guest does not run.
const LOSSY: Options = Options {
    timeout: 15,
    access: "lwra",
    psn: 0xff_ff80,
    retry: 7,
    rnr_retry: 7,
    min_rnr: 12,
    rd_atomic: 4,
    responder_qp: "",
};

/// Drops one RoCE packet in a hundred in each direction of the guest; other traffic passes, including that
/// with the agent.
pub(super) fn start(guest: &mut Agent) -> Result<()> {
    let roce = "u32 match ip protocol 17 0xff match ip dport 4791 0xffff";
    for command in [
        "qdisc add dev eth0 root handle 1: prio bands 3 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1".to_owned(),
        "qdisc add dev eth0 parent 1:3 netem loss 1% limit 10000".into(),
        format!("filter add dev eth0 parent 1: protocol ip {roce} flowid 1:3"),
        "qdisc add dev eth0 ingress".into(),
        format!("filter add dev eth0 ingress protocol ip {roce} action pass random netrand drop 100"),
    ] {
        guest.shell(&format!("/usr/sbin/tc {command}"))?;
    }
    Ok(())
}

/// Ends it; returns how many packets were lost: sent by the guest, and on their way to it.
pub(super) fn stop(guest: &mut Agent) -> Result<(u64, u64)> {
    let sent = drops(&guest.shell("/usr/sbin/tc -s qdisc show dev eth0 parent 1:3")?);
    let received = drops(&guest.shell("/usr/sbin/tc -s filter show dev eth0 ingress")?);
    guest.shell("/usr/sbin/tc qdisc del dev eth0 root; /usr/sbin/tc qdisc del dev eth0 ingress")?;
    Ok((sent, received))
}

/// The sum of "dropped N" in tc's output.
fn drops(statistics: &str) -> u64 {
    let number =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    statistics.split("dropped ").skip(1).map(number).sum()
}

/// 128 SENDs of four packets each.
pub(super) fn sends(pair: &mut Pair) -> Result<()> {
    const MESSAGES: usize = 128;
    let link = pair.link("rc", LOSSY)?;
    let source = pair.requester.filled(4000, "l", 1)?;
    let target = pair.responder.region(4000 * MESSAGES, "l")?;
    for message in 0..MESSAGES {
        let sge = format!("{}:{}:4000", target.id, 4000 * message);
        pair.responder.receive(link.responder, &format!("wr={message} sge={sge}"))?;
    }
    let work = format!("op=send wr=0 count={MESSAGES} sge={}:0:4000", source.id);
    pair.requester.post(link.requester, &work)?;
    all_in_order(pair, MESSAGES)?;
    for (wr, completion) in (0..).zip(pair.responder.completions(MESSAGES)?) {
        pair.responder.has_status(&completion, wr, &[Status::Success])?;
        ensure!(completion.length_bytes == 4000, "message {wr} has {} bytes", completion.length_bytes);
    }
    for message in 0..MESSAGES {
        pair.responder.holds(target, 4000 * message, 4000, 1)?;
    }
    Ok(())
}

/// WRITEs of 64 packets, then READs of the same memory.
pub(super) fn writes_and_reads(pair: &mut Pair) -> Result<()> {
    const BYTES: usize = 65_536;
    let link = pair.link("rc", LOSSY)?;
    let source = pair.requester.filled(4 * BYTES, "l", 2)?;
    let copy = pair.requester.region(4 * BYTES, "l")?;
    let target = pair.responder.region(4 * BYTES, "lwr")?;
    for (wr, (op, local)) in (0..).zip([("write", source), ("read", copy)].into_iter().flat_map(|o| [o; 4])) {
        let offset = BYTES * (wr % 4);
        let remote = format!("raddr={} rkey={}", target.address + offset as u64, target.rkey);
        pair.requester
            .post(link.requester, &format!("op={op} wr={wr} sge={}:{offset}:{BYTES} {remote}", local.id))?;
    }
    all_in_order(pair, 8)?;
    pair.responder.holds(target, 0, 4 * BYTES, 2)?;
    pair.requester.holds(copy, 0, 4 * BYTES, 2)
}

/// 200 additions, each executed exactly once although some are asked for twice.
pub(super) fn atomics(pair: &mut Pair) -> Result<()> {
    const ADDITIONS: usize = 200;
    let link = pair.link("rc", LOSSY)?;
    let target = pair.responder.region(8, "la")?;
    let result = pair.requester.region(8, "l")?;
    let work = format!("raddr={} rkey={} add=3 sge={}:0:8", target.address, target.rkey, result.id);
    pair.requester.post(link.requester, &format!("op=fadd wr=0 count={ADDITIONS} {work}"))?;
    all_in_order(pair, ADDITIONS)?;
    let sum = pair.responder.word(target, 0)?;
    ensure!(sum == 3 * ADDITIONS as u64, "{ADDITIONS} additions of 3 came to {sum}");
    let last = pair.requester.word(result, 0)?;
    ensure!(last == sum - 3, "the last addition found {last}");
    Ok(())
}

fn all_in_order(pair: &mut Pair, count: usize) -> Result<()> {
    for (wr, completion) in (0..).zip(pair.requester.completions(count)?) {
        pair.requester.has_status(&completion, wr, &[Status::Success])?;
    }
    Ok(())
}
