//! A client's record: requests, replies, and the time between them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::cpu::Clocks;
use crate::{Call, PATIENCE};

/// Bytes of a request, and of its reply.
pub const SIZE: usize = 32;
/// With many requests under way, replies between two looks at the clock.
const REPLIES_PER_LOOK: u64 = 16;

/// A request under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The bytes that are sent; no two requests of a turn are alike.
    pub bytes: [u8; SIZE],
    /// Kept only if one request is under way at a time, so that looking at the clock costs the rates nothing.
    sent: Option<Instant>,
}

impl Request {
    fn number(&self) -> u64 {
        self.bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The account of a turn.
#[derive(Debug)]
pub struct Book {
    window: u32,
    warm_up: Duration,
    length: Duration,
    clocks: Clocks,
    start: Instant,
    asked: u64,
    answered: u64,
    /// When counting began, with the processors' times then.
    began: Option<(Instant, [Duration; 2])>,
    report: Option<Report>,
    times: Histogram<u64>,
}

/// The result of a turn.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Requests that were answered while it counted.
    pub requests: u64,
    pub seconds: f64,
    /// Of the client's process.
    pub client_cpu_seconds: f64,
    /// Of the server's process, in the same time.
    pub server_cpu_seconds: f64,
    /// From request to reply: the median, 99 % and 99.9 %, if one request was under way at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<[u64; 3]>,
}

impl Book {
    pub(crate) fn new(call: &Call) -> Result<Book> {
        let length = Duration::from_millis(call.turn_ms);
        Ok(Book {
            window: call.window,
            warm_up: length / 10,
            length,
            clocks: Clocks::of(call.server_process)?,
            start: Instant::now(),
            asked: 0,
            answered: 0,
            began: None,
            report: None,
            times: Histogram::new_with_bounds(1, PATIENCE.as_nanos() as u64, 3)?,
        })
    }

    /// Requests that the client keeps under way.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// A number that changes with every reply.
    #[cfg(feature = "tokio")]
    pub(crate) fn replies(&self) -> (u64, bool) {
        (self.answered, self.began.is_some())
    }

    /// A request to be sent at once, or none: the turn is over.
    pub fn request(&mut self) -> Option<Request> {
        if self.report.is_some() {
            return None;
        }
        let mut bytes = [0x5A; SIZE];
        bytes[..8].copy_from_slice(&self.asked.to_le_bytes());
        self.asked += 1;
        Some(Request { bytes, sent: (self.window == 1).then(Instant::now) })
    }

    /// A reply is there.
    ///
    /// # Errors
    /// The reply differs from its request.
    pub fn answered(&mut self, request: &Request, reply: &[u8]) -> Result<()> {
        if reply != request.bytes {
            bail!("a wrong reply to request {}: {reply:02x?}", request.number());
        }
        self.answered += 1;
        if self.window == 1 || self.answered.is_multiple_of(REPLIES_PER_LOOK) {
            self.look(Instant::now(), request)?;
        }
        Ok(())
    }

    fn look(&mut self, now: Instant, request: &Request) -> Result<()> {
        match self.began {
            None if now - self.start >= self.warm_up => {
                self.began = Some((now, self.clocks.read()?));
                self.answered = 0;
            }
            None => {}
            Some(_) if self.report.is_some() => {}
            Some((began, before)) => {
                if let Some(sent) = request.sent {
                    self.times.saturating_record((now - sent).as_nanos() as u64);
                }
                if now - began >= self.length {
                    self.end(now - began, before)?;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, elapsed: Duration, before: [Duration; 2]) -> Result<()> {
        let after = self.clocks.read()?;
        let [client, server] = [0, 1].map(|end| after[end].saturating_sub(before[end]).as_secs_f64());
        let at = |quantile| self.times.value_at_quantile(quantile);
        self.report = Some(Report {
            requests: self.answered,
            seconds: elapsed.as_secs_f64(),
            client_cpu_seconds: client,
            server_cpu_seconds: server,
            latency_ns: (self.window == 1).then(|| [at(0.5), at(0.99), at(0.999)]),
        });
        Ok(())
    }

    /// The result of the turn.
    ///
    /// # Errors
    /// The turn is not over.
    pub fn report(self) -> Result<Report> {
        self.report.context("the client ended before its turn did")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(window: u32) -> Book {
        let call = Call {
            over: "nothing".into(),
            core: None,
            at: "nowhere".into(),
            window,
            turn_ms: 1000,
            server_process: std::process::id() as i32,
        };
        Book::new(&call).expect("we are a process")
    }

    #[test]
    fn a_reply_that_is_not_its_request_is_an_error() {
        let mut book = book(2);
        let (first, second) = (book.request().expect("begun"), book.request().expect("begun"));
        book.answered(&first, &first.bytes).expect("the same bytes");
        let error = book.answered(&second, &first.bytes).expect_err("another's reply").to_string();
        assert!(error.contains("wrong reply to request 1"), "{error}");
        assert!(book.answered(&second, &second.bytes[..SIZE - 1]).is_err(), "a shorter one");
        let mut long = second.bytes.to_vec();
        long.push(0);
        assert!(book.answered(&second, &long).is_err(), "a longer one");
    }

    #[test]
    fn a_turn_counts_what_is_answered_after_its_warm_up_and_before_its_end() {
        let mut book = book(1);
        let start = book.start;
        let after = |ms| start + Duration::from_millis(ms);
        let answer = |book: &mut Book, ms| {
            let mut request = book.request().expect("the turn goes on");
            request.sent = Some(after(ms - 3));
            book.answered += 1;
            book.look(after(ms), &request).expect("clocks");
        };
        for ms in [50, 99, 100] {
            answer(&mut book, ms);
        }
        assert_eq!(book.answered, 0, "what was answered by then does not count");
        for ms in [400, 800, 1099, 1100] {
            answer(&mut book, ms);
        }
        assert_eq!(book.request(), None, "a second has gone by since the warm-up");
        let report = book.report().expect("the turn is over");
        assert_eq!((report.requests, report.seconds), (4, 1.0));
        let [p50, p99, p999] = report.latency_ns.expect("one at a time");
        assert!([p50, p99, p999].iter().all(|ns| ns.abs_diff(3_000_000) < 3_000), "{p50} {p99} {p999}");
    }

    #[test]
    fn no_two_requests_are_alike() {
        let mut book = book(3);
        let requests: Vec<_> = (0..300).map(|_| book.request().expect("begun").bytes).collect();
        let different: std::collections::BTreeSet<_> = requests.iter().collect();
        assert_eq!(different.len(), requests.len());
        assert!(book.report().is_err(), "nothing was answered");
    }
}
