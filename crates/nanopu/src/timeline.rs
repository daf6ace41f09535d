//! A record of the cycles on which words and packets moved, for people to read.

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
}

/// A record that costs nothing until it is switched on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    stamps: Option<Vec<Stamp>>,
    core: Option<u8>,
}

impl Timeline {
    pub(crate) fn switch_on(&mut self, core: Option<u8>) {
        (self.stamps, self.core) = (Some(Vec::new()), core);
    }

    #[inline]
    pub(crate) fn mark(&mut self, cycle: u64, stage: Stage, value: u64) {
        if let Some(stamps) = &mut self.stamps {
            stamps.push(Stamp { cycle, stage, core: self.core, value });
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Stamp> {
        self.stamps.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
