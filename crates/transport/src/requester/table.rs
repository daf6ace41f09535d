//! What a requester of RC does with each answer, by how many packets in flight the answer covers (IBTA §9.7.5). This is go-back-N;
//! IRN's requester uses bitmaps.

use highwire_wire::{NakCode, Syndrome};
use std::fmt::Write as _;

/// How many of the packets in flight an answer covers. A positive answer covers its own PSN, a negative one the packets before
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Covers {
    /// No packet in flight.
    Nothing,
    /// Some of the packets in flight.
    Some,
    /// All packets in flight.
    All,
    /// More than was ever sent.
    Unsent,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// An acknowledgement.
    Ack,
    /// There was no receive.
    Rnr,
    /// A packet before it is missing.
    Gap,
    /// A request is refused.
    Refusal,
}

/// The requester's reaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is stale.
    Ignore,
    /// Only its credits count.
    Credit,
    /// Its credits count, and requests have ended.
    Advance,
    /// Requests before it have ended; the rest is sent again when the responder's pause is over.
    Wait,
    /// Requests before it have ended; the rest is sent again.
    GoBack,
    /// Requests before it have ended; the request fails, and the queue pair with it.
    Fail,
}

impl Covers {
    /// From the number of packets covered and the number in flight.
    #[inline]
    pub fn of(covered: u32, in_flight: u32) -> Covers {
        match covered {
            _ if covered > in_flight => Covers::Unsent,
            0 if in_flight > 0 => Covers::Nothing,
            _ if covered == in_flight => Covers::All,
            _ => Covers::Some,
        }
    }
}

impl From<Syndrome> for Reply {
    #[inline]
    fn from(syndrome: Syndrome) -> Reply {
        match syndrome {
            Syndrome::Ack { .. } => Reply::Ack,
            Syndrome::Rnr { .. } => Reply::Rnr,
            Syndrome::Nak(NakCode::PsnSequence) => Reply::Gap,
            Syndrome::Nak(_) => Reply::Refusal,
        }
    }
}

/// The requester's reaction to an answer.
#[inline]
pub fn action(covers: Covers, reply: Reply) -> Action {
    match (covers, reply) {
        (Covers::Unsent, _) => Action::Ignore,
        (Covers::Nothing, Reply::Ack) => Action::Credit,
        (Covers::Some | Covers::All, Reply::Ack) => Action::Advance,
        // The NAK refuses a packet that was never sent.
        (Covers::All, _) => Action::Ignore,
        (_, Reply::Rnr) => Action::Wait,
        (_, Reply::Gap) => Action::GoBack,
        (_, Reply::Refusal) => Action::Fail,
    }
}

/// The table as text, for the documentation.
pub fn render() -> String {
    let mut text = format!("{:<9}", "covers");
    let replies = [Reply::Ack, Reply::Rnr, Reply::Gap, Reply::Refusal];
    replies.iter().for_each(|reply| _ = write!(text, " {:<9}", format!("{reply:?}")));
    for covers in [Covers::Nothing, Covers::Some, Covers::All, Covers::Unsent] {
        text.truncate(text.trim_end().len());
        let _ = write!(text, "\n{:<9}", format!("{covers:?}"));
        for reply in replies {
            let _ = write!(text, " {:<9}", format!("{:?}", action(covers, reply)).to_lowercase());
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_the_one_that_the_documentation_shows() {
        let page = include_str!("../../../../docs/host.md");
        let table = super::render();
        assert!(
            page.contains(&format!("```text\n{table}```")),
            "docs/host.md shows another one than\n{table}"
        );
    }
}
