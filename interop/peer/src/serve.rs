//! Lines in, lines out.

use std::io::{BufRead, Write};

use anyhow::Result;

use super::objects::Objects;
use super::request::{Answer, ENOSYS, Refusal, Request};
use super::{memory, work};

/// Answers every line of the standard input until its end. The device serves its peers meanwhile, in a thread of its own.
pub(crate) fn serve() -> Result<()> {
    let mut objects = Objects::default();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        match answer(&mut objects, &Request::parse(&line?)) {
            Ok(answer) => writeln!(out, "ok {answer}")?,
            Err(refusal) => writeln!(out, "err {refusal}")?,
        }
        out.flush()?;
    }
    Ok(())
}

fn answer(objects: &mut Objects, request: &Request<'_>) -> Answer {
    match request.command {
        "open" => objects.open(),
        "pd" => objects.make_pd(),
        "cq" => objects.make_cq(request),
        "srq" => objects.make_srq(request),
        "mr" => objects.make_mr(request),
        "mw" => objects.make_mw(request),
        "qp" => objects.make_qp(request),
        "ah" => objects.make_ah(request),
        "destroy" => objects.destroy(request),
        "init" => objects.to_init(request),
        "rtr" => objects.to_rtr(request),
        "rts" => objects.to_rts(request),
        "error" => objects.to_error(request),
        "query" => objects.query(request),
        "counters" => objects.counters(),
        "fill" => memory::fill(objects, request),
        "check" => memory::check(objects, request),
        "poke" => memory::poke(objects, request),
        "peek" => memory::peek(objects, request),
        "send" => work::send(objects, request),
        "recv" => work::receive(objects, request),
        "poll" => work::poll(objects, request),
        other => Err(Refusal::new(ENOSYS, format!("Highwire's Rust API has no {other}"))),
    }
}
