//! The journal: a node's memory as a write-ahead log, so that it survives the loss of all memories.
//!
//! Every change of what a node remembers is an entry. Entries gather while the last ones are being made durable, and go together (group commit). A
//! promise leaves the node only when the entries behind it are durable; so a node that comes back from its disk remembers at least what it
//! has told other nodes, and recovery cannot tell it from one whose memory survived.
//!
//! A checkpoint is fuzzy: it states life, configuration and log slots of one moment, which is when a new file of the log begins, and then rows, page
//! by page, while they change. Rows have versions, so replaying a log entry for a row that the checkpoint has
//! already does nothing.

mod file_name;
mod frame;
mod load;

use std::collections::VecDeque;
use std::mem::take;

use crate::codec::{encode, fields, variants};
use crate::configuration::Configuration;
use crate::id::{Key, NodeId, RegionId, TableId, Version};
use crate::node::Floor;
use crate::record::Write;
use crate::table::Entry as RowEntry;

pub use file_name::{FileName, NoFileName};
#[cfg(all(test, not(loom)))]
pub(crate) use load::{Care, load_with};
pub use load::{LoadError, Loaded, load};

/// An operation that a node asks of its disk. The driver carries them out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOperation {
    /// Bytes at the end of a file. A file that this process has not written to yet is created empty, even if a file of that name
    /// existed.
    Append {
        /// Which.
        file: FileName,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The file and its name must be durable before [`crate::Node::handle_synced`] is called.
    Sync {
        /// Which.
        file: FileName,
    },
    /// The file is not needed any more. If it is there again after a crash, no harm is done.
    Remove {
        /// Which.
        file: FileName,
    },
}

/// A change of a node's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A new life, with nothing.
    Life {
        boot: u64,
    },
    Adopted {
        configuration: Configuration,
    },
    Logged {
        node: NodeId,
        worker: u16,
        record: Vec<u8>,
    },
    Wrote {
        write: Write,
    },
    /// Log slots were emptied, and tombstones up to the floors went.
    Opened {},
    /// Rows of deleted keys went.
    Reclaimed {
        region: RegionId,
        table: TableId,
        floor: Version,
        rows: Vec<(Key, Version)>,
    },
    /// Other copies may have removed rows up to these floors.
    Raised {
        floors: Vec<Floor>,
    },
}

variants!(Entry {
    1 => Life { boot },
    2 => Adopted { configuration },
    3 => Logged { node, worker, record },
    4 => Wrote { write },
    5 => Opened {},
    6 => Reclaimed { region, table, floor, rows },
    7 => Raised { floors },
});

/// A piece of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Start {
        boot: u64,
        configuration: Configuration,
        slots: Vec<Slot>,
    },
    Rows {
        region: RegionId,
        table: TableId,
        rows: Vec<RowEntry>,
    },
    /// More log slots: they did not fit into the start.
    Slots {
        slots: Vec<Slot>,
    },
    /// The floors of tables that have reclaimed rows.
    Floors {
        floors: Vec<Floor>,
    },
    /// The end: a checkpoint without it does not count.
    End {
        parts: u64,
    },
}

/// A log slot that is filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) node: NodeId,
    pub(crate) worker: u16,
    pub(crate) record: Vec<u8>,
}

fields!(Slot { node, worker, record });
variants!(Part {
    1 => Start { boot, configuration, slots },
    2 => Rows { region, table, rows },
    3 => End { parts },
    4 => Slots { slots },
    5 => Floors { floors },
});

/// A checkpoint that is being written.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    first: u64,
    /// Tables still to be written, and how far the first of them is.
    pub(crate) queue: VecDeque<(RegionId, TableId)>,
    pub(crate) cursor: u64,
    parts: u64,
}

/// The journal of a node, as far as it is in memory.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The number of the next entry.
    next: u64,
    /// Entries before this one are in operations that were handed out, or will be next.
    flushed: u64,
    /// Entries before this one are durable.
    durable: u64,
    /// The node sends no message before the entries before this one are durable: they hold its life and configuration.
    barrier: u64,
    buffer: Vec<u8>,
    /// The first entries of all log files, the current one last.
    logs: Vec<u64>,
    checkpoints: Vec<u64>,
    operations: VecDeque<DiskOperation>,
    /// A sync is under way, and makes entries before this one durable.
    syncing: Option<u64>,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// A page of the checkpoint goes between any two groups of entries.
    is_checkpoints_turn: bool,
    bytes_since_checkpoint: u64,
    checkpoint_bytes: u64,
}

impl Journal {
    /// Goes on after files that were loaded.
    pub(crate) fn new(loaded: &Loaded, checkpoint_bytes: u64) -> Journal {
        let next = loaded.next;
        let firsts = |log: bool| {
            let firsts = loaded.files.iter().filter_map(|file| match *file {
                FileName::Log(first) => log.then_some(first),
                FileName::Checkpoint(first) => (!log).then_some(first),
            });
            firsts.collect::<Vec<u64>>()
        };
        // A file of this name would hold only bytes behind the last whole entry.
        let mut logs = firsts(true);
        logs.retain(|&first| first != next);
        logs.push(next);
        Journal {
            next,
            flushed: next,
            durable: next,
            barrier: 0,
            buffer: Vec::new(),
            logs,
            checkpoints: firsts(false),
            operations: VecDeque::new(),
            syncing: None,
            checkpoint: None,
            is_checkpoints_turn: false,
            bytes_since_checkpoint: loaded.log_bytes,
            checkpoint_bytes,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    pub(crate) fn barrier(&self) -> u64 {
        self.barrier
    }

    pub(crate) fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    pub(crate) fn add(&mut self, entry: &Entry) {
        let before = self.buffer.len();
        frame::put(&mut self.buffer, self.next, self.flushed, &encode(entry));
        self.bytes_since_checkpoint += (self.buffer.len() - before) as u64;
        self.next += 1;
        if matches!(entry, Entry::Life { .. } | Entry::Adopted { .. }) {
            self.barrier = self.next;
        }
    }

    /// The next operation, unless one must be waited for.
    pub(crate) fn poll(&mut self) -> Option<DiskOperation> {
        if self.syncing.is_some() {
            return None;
        }
        let waits = self.checkpoint.is_some() && self.is_checkpoints_turn;
        if self.operations.is_empty() && !self.buffer.is_empty() && !waits {
            let file = FileName::Log(*self.logs.last().expect("a current file"));
            let bytes = take(&mut self.buffer);
            self.flushed = self.next;
            self.is_checkpoints_turn = true;
            self.operations.extend([DiskOperation::Append { file, bytes }, DiskOperation::Sync { file }]);
        }
        let operation = self.operations.pop_front();
        if let Some(DiskOperation::Sync { file }) = operation {
            // A sync of a checkpoint makes no log entries durable.
            self.syncing = Some(if matches!(file, FileName::Log(_)) { self.flushed } else { self.durable });
        }
        operation
    }

    /// The sync that was under way has ended.
    pub(crate) fn synced(&mut self) {
        if let Some(before) = self.syncing.take() {
            self.durable = self.durable.max(before);
        }
    }

    pub(crate) fn wants_checkpoint(&self) -> bool {
        // All entries so far must be in files before the one that begins.
        let is_between = self.buffer.is_empty() && self.logs.last() != Some(&self.next);
        self.checkpoint.is_none() && is_between && self.bytes_since_checkpoint >= self.checkpoint_bytes
    }

    pub(crate) fn begin_checkpoint(&mut self, start: &Part, queue: VecDeque<(RegionId, TableId)>) {
        let first = self.next;
        self.logs.push(first);
        self.bytes_since_checkpoint = 0;
        self.checkpoints.retain(|&other| other != first);
        self.checkpoints.push(first);
        self.checkpoint = Some(Checkpoint { first, queue, cursor: 0, parts: 0 });
        self.add_part(start);
    }

    pub(crate) fn add_part(&mut self, part: &Part) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        let mut bytes = Vec::new();
        frame::put(&mut bytes, checkpoint.parts, 0, &encode(part));
        checkpoint.parts += 1;
        let file = FileName::Checkpoint(checkpoint.first);
        // Each page is waited for, so that no more than one is under way.
        self.operations.extend([DiskOperation::Append { file, bytes }, DiskOperation::Sync { file }]);
        self.is_checkpoints_turn = false;
    }

    /// Ends the checkpoint; when it is durable, nothing older is needed.
    pub(crate) fn end_checkpoint(&mut self) {
        let parts = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.parts);
        self.add_part(&Part::End { parts });
        let Some(Checkpoint { first, .. }) = self.checkpoint.take() else { return };
        let older = |files: &mut Vec<u64>| files.extract_if(.., |file| *file < first).collect::<Vec<u64>>();
        let logs = older(&mut self.logs).into_iter().map(FileName::Log);
        let files = logs.chain(older(&mut self.checkpoints).into_iter().map(FileName::Checkpoint));
        self.operations.extend(files.map(|file| DiskOperation::Remove { file }));
    }
}
