//! A record of the cycles on which words and packets moved, for people to read.

use std::collections::BTreeMap;

use crate::packet::AppHeader;

/// A place that a word or a packet passes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Stage {
    /// The first word of a packet is on the interface; the value is its words.
    WireIn,
    /// A packet leaves the ingress pipeline.
    Ingress,
    /// A message is whole, and leaves reassembly; the value is its payload's bytes.
    Reassembled,
    /// A word enters a core's receive queue; the value is the word.
    WordDelivered,
    /// A read of x30 begins to wait for a word; the value is the context.
    ReadWaits,
    /// An instruction reads x30.
    WordRead,
    /// An instruction that wrote x31 commits.
    WordWritten,
    /// The NIC takes a word from a core's transmit queue.
    WordAccepted,
    /// A data packet reaches the arbiter.
    Packetized,
    /// A control packet reaches the arbiter.
    Controlled,
    /// The first word of a packet leaves; the value is its words.
    WireOut,
    /// The program declares a message done.
    Done,
    /// The scheduler asks for another thread; the value is its context.
    SwitchWanted,
    /// Another context runs from this cycle on; the value is which.
    Switched,
}

impl Stage {
    /// A short name, for charts.
    pub fn name(self) -> &'static str {
        match self {
            Stage::WireIn => "wire in",
            Stage::Ingress => "ingress",
            Stage::Reassembled => "reassembled",
            Stage::WordDelivered => "word to queue",
            Stage::ReadWaits => "x30 waits",
            Stage::WordRead => "x30 read",
            Stage::WordWritten => "x31 written",
            Stage::WordAccepted => "word to NIC",
            Stage::Packetized => "packet to arbiter",
            Stage::Controlled => "control to arbiter",
            Stage::WireOut => "wire out",
            Stage::Done => "message done",
            Stage::SwitchWanted => "switch wanted",
            Stage::Switched => "thread switched",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// When.
    pub cycle: u64,
    /// Where.
    pub stage: Stage,
    /// On which core; nothing for the NIC.
    pub core: Option<u8>,
    /// What, as the stage says.
    pub value: u64,
    /// The peer's context of the message that it belongs to, by which a client knows its messages.
    pub message: Option<u16>,
}

/// A record that costs nothing until it is switched on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    stamps: Option<Vec<Stamp>>,
    core: Option<u8>,
    /// By stage, core and context, the message whose words pass there.
    passing: BTreeMap<(Stage, usize, u16), Passing>,
}

/// A message that passes word by word.
#[derive(Clone, Copy, Debug)]
struct Passing {
    peer_context: u16,
    /// Words behind the header that have not passed.
    left: u64,
}

impl Timeline {
    pub(crate) fn switch_on(&mut self, core: Option<u8>) {
        *self = Timeline { stamps: Some(Vec::new()), core, passing: BTreeMap::new() };
    }

    #[inline]
    pub(crate) fn mark(&mut self, cycle: u64, stage: Stage, value: u64) {
        self.mark_of(cycle, stage, value, None);
    }

    /// The same for what belongs to the message of this context of the peer.
    #[inline]
    pub(crate) fn mark_of(&mut self, cycle: u64, stage: Stage, value: u64, message: Option<u16>) {
        if let Some(stamps) = &mut self.stamps {
            stamps.push(Stamp { cycle, stage, core: self.core, value, message });
        }
    }

    /// The same for a word of a message between the NIC and a context of a core.
    #[inline]
    pub(crate) fn mark_word(&mut self, cycle: u64, stage: Stage, (core, context): (usize, u16), word: u64) {
        if self.stamps.is_some() {
            let message = self.pass((stage, core, context), word);
            self.mark_of(cycle, stage, word, Some(message));
        }
    }

    /// The same for what concerns the message whose words passed last at `stage`, for this context.
    #[inline]
    pub(crate) fn mark_behind(&mut self, cycle: u64, marked: Stage, stage: Stage, context: u16) {
        if self.stamps.is_some() {
            let message = self.passing.get(&(stage, 0, context)).map(|passing| passing.peer_context);
            self.mark_of(cycle, marked, context.into(), message);
        }
    }

    /// A word passes; returns the peer's context of its message, which the header names.
    fn pass(&mut self, place: (Stage, usize, u16), word: u64) -> u16 {
        if let Some(passing) = self.passing.get_mut(&place)
            && passing.left > 0
        {
            passing.left -= 1;
            return passing.peer_context;
        }
        let AppHeader { context: peer_context, bytes, .. } = AppHeader::from_word(word);
        self.passing.insert(place, Passing { peer_context, left: u64::from(bytes).div_ceil(8) });
        peer_context
    }

    pub(crate) fn take(&mut self) -> Vec<Stamp> {
        self.stamps.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
