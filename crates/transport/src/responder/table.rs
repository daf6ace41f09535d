//! A responder's reaction to a request packet on RC or UC, by the packet's PSN and the message that is under
//! way (IBTA §9.7.4, §9.8.2).

use highwire_wire::{OpcodeInfo, Operation, Position};
use std::fmt::Write as _;

/// The message whose packets are arriving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// No message: the next one is about to begin.
    Between,
    /// A SEND has begun.
    InSend,
    /// A WRITE has begun.
    InWrite,
    /// UC: the rest of a message that lost a packet.
    Skipping,
}

/// Where a packet's PSN stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It has been executed.
    Again,
    /// It is the one expected.
    InOrder,
    /// A packet before it is missing.
    AfterGap,
}

/// The kind of a packet, as far as the order of packets depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The first or only packet of a SEND.
    SendBegins,
    /// A later packet of a SEND.
    SendGoesOn,
    /// The first or only packet of a WRITE.
    WriteBegins,
    /// A later packet of a WRITE.
    WriteGoesOn,
    /// A READ.
    Read,
    /// An atomic.
    Atomic,
}

/// The responder's reaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is checked further, and executed.
    Execute,
    /// It must not follow the packet before: RC refuses it with a NAK, and UC drops its message.
    Refuse,
    /// RC: all requests executed so far are acknowledged once more.
    Acknowledge,
    /// RC: its data goes back once more.
    AnswerAgain,
    /// RC: one NAK tells of the gap.
    ReportGap,
    /// UC: the message that was under way is given up, and this one begins.
    Begin,
    /// UC: it belongs to a message that lost a packet.
    Skip,
    /// UC: it is dropped.
    Drop,
}

impl Kind {
    /// The kind of a request's packet. A packet that is no request counts as an atomic: it stands alone, and
    /// is not executed in the end.
    #[inline]
    pub fn of(info: &OpcodeInfo) -> Kind {
        let begins = matches!(info.position, Position::First | Position::Only);
        match info.operation {
            Operation::Send if begins => Kind::SendBegins,
            Operation::Send => Kind::SendGoesOn,
            Operation::Write if begins => Kind::WriteBegins,
            Operation::Write => Kind::WriteGoesOn,
            Operation::Read => Kind::Read,
            _ => Kind::Atomic,
        }
    }

    #[inline]
    fn begins(self) -> bool {
        !matches!(self, Kind::SendGoesOn | Kind::WriteGoesOn)
    }
}

/// RC's reaction.
#[inline]
pub fn reliable(arrival: Arrival, progress: Progress, kind: Kind) -> Action {
    match (arrival, progress, kind) {
        (Arrival::Again, _, Kind::Read | Kind::Atomic) => Action::AnswerAgain,
        (Arrival::Again, ..) => Action::Acknowledge,
        (Arrival::AfterGap, ..) => Action::ReportGap,
        (Arrival::InOrder, Progress::Between, kind) if kind.begins() => Action::Execute,
        (Arrival::InOrder, Progress::InSend, Kind::SendGoesOn)
        | (Arrival::InOrder, Progress::InWrite, Kind::WriteGoesOn) => Action::Execute,
        (Arrival::InOrder, ..) => Action::Refuse,
    }
}

/// UC's reaction. A message that begins ends the one before, even if that one is incomplete.
#[inline]
pub fn unreliable(arrival: Arrival, progress: Progress, kind: Kind) -> Action {
    match (arrival, progress, kind) {
        (Arrival::Again, ..) => Action::Drop,
        (_, _, kind) if kind.begins() => Action::Begin,
        (Arrival::AfterGap, ..) | (_, Progress::Between | Progress::Skipping, _) => Action::Skip,
        (_, Progress::InSend, Kind::SendGoesOn) | (_, Progress::InWrite, Kind::WriteGoesOn) => {
            Action::Execute
        }
        (Arrival::InOrder, ..) => Action::Refuse,
    }
}

type Decision = fn(Arrival, Progress, Kind) -> Action;

/// Both tables as text, for the documentation.
pub fn render() -> String {
    use Kind::{Atomic, Read, SendBegins, SendGoesOn, WriteBegins, WriteGoesOn};
    let rows = [
        (Arrival::InOrder, Progress::Between),
        (Arrival::InOrder, Progress::InSend),
        (Arrival::InOrder, Progress::InWrite),
        (Arrival::InOrder, Progress::Skipping),
        (Arrival::AfterGap, Progress::Between),
        (Arrival::AfterGap, Progress::InSend),
        (Arrival::Again, Progress::Between),
        (Arrival::Again, Progress::InSend),
    ];
    let mut text = String::new();
    let reliable_kinds = [SendBegins, SendGoesOn, WriteBegins, WriteGoesOn, Read, Atomic];
    let tables: [(&str, Decision, &[Kind]); 2] =
        [("RC", reliable, &reliable_kinds), ("UC", unreliable, &reliable_kinds[..4])];
    for (service, action, kinds) in tables {
        let _ = write!(text, "{service:<9}{:<10}", "");
        kinds.iter().for_each(|kind| _ = write!(text, " {:<12}", format!("{kind:?}")));
        for (arrival, progress) in rows {
            // RC has missing packets sent again, so it never skips a message.
            if service == "RC" && progress == Progress::Skipping {
                continue;
            }
            text.truncate(text.trim_end().len());
            let _ = write!(text, "\n{:<9}{:<10}", format!("{arrival:?}"), format!("{progress:?}"));
            for &kind in kinds {
                let _ =
                    write!(text, " {:<12}", format!("{:?}", action(arrival, progress, kind)).to_lowercase());
            }
        }
        text.truncate(text.trim_end().len());
        text.push_str("\n\n");
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
