//! Posting work and polling completions.

use std::time::{Duration, Instant};

use highwire_host::{EMPTY_COMPLETION, WaitFor};
use highwire_verbs::{
    Completion, Datagram, Operation, RecvWr, Remote, RemoteKey, SendFlags, SendWr, Service, Sge,
};
use highwire_wire::Qpn;

use super::objects::{Objects, access};
use super::request::{Answer, EINVAL, Refusal, Request};

/// One element of `sge=`: a buffer, and a place in it.
struct Piece {
    buffer: usize,
    offset: usize,
    length: u32,
}

/// `sge=MR:OFFSET:LENGTH,…`
fn pieces(request: &Request<'_>) -> Answer<Vec<Piece>> {
    let list = request.find("sge").unwrap_or("");
    let piece = |text: &str| {
        let [buffer, offset, length] = text.split(':').collect::<Vec<_>>()[..] else { return None };
        Some(Piece {
            buffer: buffer.parse().ok()?,
            offset: offset.parse().ok()?,
            length: length.parse().ok()?,
        })
    };
    let pieces: Option<_> = list.split(',').filter(|text| !text.is_empty()).map(piece).collect();
    pieces.ok_or_else(|| Refusal::new(EINVAL, format!("sge={list}")))
}

fn sges(objects: &Objects, pieces: &[Piece]) -> Answer<Vec<Sge>> {
    let sge = |piece: &Piece| {
        let buffer = objects.buffers.get(piece.buffer)?.as_ref()?;
        Some(buffer.sge(piece.offset as u64, piece.length))
    };
    let sges: Option<_> = pieces.iter().map(sge).collect();
    sges.ok_or_else(|| Refusal::new(EINVAL, "an SGE names no MR"))
}

fn remote(request: &Request<'_>) -> Answer<Remote> {
    Ok(Remote { va: request.number("raddr")?, rkey: RemoteKey(request.number("rkey")?) })
}

fn operation(objects: &Objects, request: &Request<'_>) -> Answer<Operation> {
    Ok(match request.text("op")? {
        "send" => Operation::Send,
        "send_imm" => Operation::SendImm(request.number("imm")?),
        "send_inv" => Operation::SendInvalidate(RemoteKey(request.number("invalidate")?)),
        "write" => Operation::Write(remote(request)?),
        "write_imm" => Operation::WriteImm(remote(request)?, request.number("imm")?),
        "read" => Operation::Read(remote(request)?),
        "cas" => Operation::CompareSwap {
            remote: remote(request)?,
            compare: request.number("compare")?,
            swap: request.number("swap")?,
        },
        "fadd" => Operation::FetchAdd { remote: remote(request)?, add: request.number("add")? },
        "local_inv" => Operation::LocalInvalidate(RemoteKey(request.number("invalidate")?)),
        "bind" => bind(objects, request)?,
        other => return Err(Refusal::new(EINVAL, format!("no operation {other}"))),
    })
}

/// Binds a window under the key that `rkey` gives.
fn bind(objects: &Objects, request: &Request<'_>) -> Answer<Operation> {
    let window = request.object("mw", &objects.windows)?;
    let buffer = request.object("mr", &objects.buffers)?;
    let new_key = RemoteKey(request.number("rkey")?);
    let offset = request.number::<u64>("addr")?.wrapping_sub(buffer.addr());
    let access = access(request.text("access")?)?;
    Ok(window.bind(window.rkey(), new_key, buffer, offset, request.number("length")?, access))
}

fn datagram(objects: &Objects, request: &Request<'_>) -> Answer<Datagram> {
    Ok(Datagram {
        address: *request.object("ah", &objects.ahs)?,
        qpn: Qpn::new(request.number("qpn")?),
        qkey: request.number("qkey")?,
    })
}

pub(crate) fn send(objects: &Objects, request: &Request<'_>) -> Answer {
    let qp = request.object("qp", &objects.qps)?;
    let pieces = pieces(request)?;
    let sges = sges(objects, &pieces)?;
    let letters = request.find("flags").unwrap_or("s");
    let flags = SendFlags {
        signaled: letters.contains('s'),
        solicited: letters.contains('e'),
        fence: letters.contains('f'),
        inline: false,
    };
    let datagram = (qp.service() == Service::Ud).then(|| datagram(objects, request)).transpose()?;
    let first: u64 = request.number("wr")?;
    let operation = operation(objects, request)?;
    for wr_id in first..first + request.number_or("count", 1u64)? {
        let wr = SendWr { wr_id, operation, flags, sges: &sges, datagram };
        if letters.contains('i') {
            qp.post_inline(&wr, &gather(objects, &pieces))?;
        } else {
            qp.post_send(&[wr])?;
        }
    }
    Ok(String::new())
}

/// The bytes of inline data.
fn gather(objects: &Objects, pieces: &[Piece]) -> Vec<u8> {
    let bytes = |piece: &Piece| {
        objects.buffers[piece.buffer].as_ref().map(|b| b.to_vec(piece.offset, piece.length as usize))
    };
    pieces.iter().filter_map(bytes).flatten().collect()
}

pub(crate) fn receive(objects: &Objects, request: &Request<'_>) -> Answer {
    let sges = sges(objects, &pieces(request)?)?;
    let first: u64 = request.number("wr")?;
    for wr_id in first..first + request.number_or("count", 1u64)? {
        let wr = RecvWr { wr_id, sges: &sges };
        if request.find("srq").is_some() {
            request.object("srq", &objects.srqs)?.post_recv(&wr)?;
        } else {
            request.object("qp", &objects.qps)?.post_recv(&wr)?;
        }
    }
    Ok(String::new())
}

pub(crate) fn poll(objects: &Objects, request: &Request<'_>) -> Answer {
    let cq = request.object("cq", &objects.cqs)?;
    let wanted: usize = request.number_or("count", 1)?;
    let deadline = Instant::now() + Duration::from_millis(request.number_or("ms", 2000)?);
    let mut completions = vec![EMPTY_COMPLETION; wanted];
    let mut found = 0;
    loop {
        found += cq.poll(&mut completions[found..]);
        let left = deadline.saturating_duration_since(Instant::now());
        // Sleeping rather than polling: this machine emulates the guest's processor.
        if found == wanted || left.is_zero() || !cq.wait(WaitFor::Any, left) {
            break;
        }
    }
    let texts: String =
        completions[..found].iter().map(|completion| format!(" wc={}", text(completion))).collect();
    Ok(format!("n={found}{texts}"))
}

/// The completion as the agent prints it, with the numbers of `enum ibv_wc_*`.
fn text(completion: &Completion) -> String {
    let Completion { wr_id, status, operation, byte_len, immediate, qpn, source_qpn, flags } = completion;
    let bits =
        u32::from(flags.grh) | u32::from(flags.with_immediate) << 1 | u32::from(flags.with_invalidate) << 3;
    let (status, opcode) = (*status as u8, *operation as u8);
    format!(
        "{wr_id},{status},{opcode},{byte_len},{},{},{immediate:#x},{bits}",
        qpn.value(),
        source_qpn.value()
    )
}
