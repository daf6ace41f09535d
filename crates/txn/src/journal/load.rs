//! A node's memory from its files: the last whole checkpoint, and every entry after it up to the first that is not whole.

use std::collections::BTreeMap;
use std::fmt;

use super::{Entry, FileName, Part, Slot, frame};
use crate::codec::decode;
use crate::configuration::Configuration;
use crate::id::{NodeId, Txid};
use crate::node::{Floor, Memory};
use crate::settings::Settings;
use crate::store::Store;
use crate::table::Table;

/// The contents of a disk.
#[derive(Default)]
pub struct Loaded {
    /// `None`: the node was no member of a configuration, or had not told any node that it was.
    pub memory: Option<Memory>,
    /// The node's life. `None`: it had none.
    pub boot: Option<u64>,
    /// All files that are there.
    pub files: Vec<FileName>,
    /// Where the journal goes on.
    pub next: u64,
    /// Bytes of the log that were replayed.
    pub log_bytes: u64,
    /// Bytes at the end of the log that are no entry: the process ended while it wrote them.
    pub torn_bytes: u64,
}

/// Why files are no journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// Bytes that were durable are not readable.
    Damaged {
        /// Where.
        file: FileName,
        /// From this byte on.
        offset: u64,
    },
    /// The log does not begin where the last whole checkpoint ends.
    NoBeginning {
        /// The file that should begin there.
        file: FileName,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Damaged { file, offset } => {
                write!(f, "{file} is damaged from byte {offset} on, and what was there had been durable")
            }
            LoadError::NoBeginning { file } => {
                write!(f, "no checkpoint is whole, and {file}, with which the log would begin, is not there")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// How carefully files are read: fully, unless a mistake is planted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Care {
    pub(crate) checks_sums: bool,
    pub(crate) keeps_order: bool,
}

struct State<'a> {
    node: NodeId,
    settings: &'a Settings,
    care: Care,
    boot: Option<u64>,
    configuration: Option<Configuration>,
    store: Store,
}

/// Reads what a node's disk has kept. Files may hold anything.
///
/// # Errors
/// [`LoadError`]: the files lack something that had been durable.
pub fn load(
    node: NodeId,
    files: &BTreeMap<FileName, Vec<u8>>,
    settings: &Settings,
) -> Result<Loaded, LoadError> {
    load_with(node, files, settings, Care { checks_sums: true, keeps_order: true })
}

pub(crate) fn load_with(
    node: NodeId,
    files: &BTreeMap<FileName, Vec<u8>>,
    settings: &Settings,
    care: Care,
) -> Result<Loaded, LoadError> {
    let fresh = || State { node, settings, care, boot: None, configuration: None, store: Store::default() };
    let mut state = fresh();
    let mut base = 0;
    for (file, bytes) in files.iter().rev() {
        let FileName::Checkpoint(first) = *file else { continue };
        let mut candidate = fresh();
        if candidate.read_checkpoint(bytes) {
            (state, base) = (candidate, first);
            break;
        }
    }
    let logs = files.iter().filter_map(|(file, bytes)| match *file {
        FileName::Log(first) if first >= base => Some((first, &bytes[..])),
        _ => None,
    });
    if base == 0 && !files.is_empty() && !files.contains_key(&FileName::Log(0)) {
        return Err(LoadError::NoBeginning { file: FileName::Log(0) });
    }
    let (mut next, mut log_bytes) = (base, 0);
    // The bytes behind the last whole entry of each file.
    let mut tails = Vec::new();
    for (first, bytes) in logs {
        let read = if first == next { state.read_log(bytes, &mut next) } else { 0 };
        log_bytes += read as u64;
        tails.push((first, read, &bytes[read..]));
    }
    for &(first, offset, tail) in &tails {
        if frame::find_later(tail, next).is_some() {
            return Err(LoadError::Damaged { file: FileName::Log(first), offset: offset as u64 });
        }
    }
    let State { boot, configuration, store, .. } = state;
    let memory = boot.zip(configuration).map(|(boot, configuration)| Memory { boot, configuration, store });
    let torn_bytes = tails.last().map_or(0, |tail| tail.2.len() as u64);
    Ok(Loaded { memory, boot, files: files.keys().copied().collect(), next, log_bytes, torn_bytes })
}

impl State<'_> {
    /// Whether it is whole.
    fn read_checkpoint(&mut self, mut bytes: &[u8]) -> bool {
        for number in 0.. {
            let Ok(part) = frame::take(&mut bytes, number, true) else { return false };
            match decode::<Part>(part) {
                Ok(Part::Start { boot, configuration, slots }) => {
                    self.boot = Some(boot);
                    self.adopt(configuration);
                    self.store.slots.clear();
                    self.fill(slots);
                }
                Ok(Part::Slots { slots }) => self.fill(slots),
                Ok(Part::Floors { floors }) => self.raise_floors(&floors),
                Ok(Part::Rows { region, table, rows }) => {
                    let Some(known) = self.store.table(region, table) else { continue };
                    let most = self.settings.value_bytes_max(table);
                    for row in rows.iter().filter(|row| fits(row.value.as_deref(), most)) {
                        known.apply(row.key, row.version, row.value.as_deref(), self.nobody());
                    }
                }
                Ok(Part::End { parts }) => return parts == number && self.configuration.is_some(),
                Err(_) => return false,
            }
        }
        false
    }

    fn fill(&mut self, slots: Vec<Slot>) {
        let filled = |Slot { node, worker, record }| ((node, worker), record);
        self.store.slots.extend(slots.into_iter().map(filled));
    }

    /// Replays entries; returns how many bytes they are.
    fn read_log(&mut self, bytes: &[u8], next: &mut u64) -> usize {
        let mut rest = bytes;
        let mut entries = Vec::new();
        loop {
            let mut after = rest;
            let Ok(entry) = frame::take(&mut after, *next, self.care.checks_sums) else { break };
            let Ok(entry) = decode::<Entry>(entry) else { break };
            rest = after;
            *next += 1;
            match self.care.keeps_order {
                true => self.replay(entry),
                false => entries.push(entry),
            }
        }
        entries.into_iter().rev().for_each(|entry| self.replay(entry));
        bytes.len() - rest.len()
    }

    fn replay(&mut self, entry: Entry) {
        match entry {
            Entry::Life { boot } => {
                self.boot = Some(boot);
                self.configuration = None;
                self.store = Store::default();
            }
            Entry::Adopted { configuration } => self.adopt(configuration),
            Entry::Logged { node, worker, record } => {
                self.store.slots.insert((node, worker), record);
            }
            Entry::Opened {} => {
                self.store.slots.clear();
                self.store.tables.values().for_each(Table::drop_reclaimed);
            }
            Entry::Reclaimed { region, table, floor, rows } => {
                if let Some(table) = self.store.table(region, table) {
                    table.reclaim(&rows, floor);
                }
            }
            Entry::Raised { floors } => self.raise_floors(&floors),
            Entry::Wrote { write } => {
                let Some(configuration) = &self.configuration else { return };
                let most = self.settings.value_bytes_max(write.table);
                if usize::from(write.table.0) >= self.settings.tables.len()
                    || !fits(write.value.as_deref(), most)
                {
                    return;
                }
                let region = self.settings.region_of(configuration, write.table, write.key);
                if let Some(table) = self.store.table(region, write.table) {
                    table.apply(write.key, write.version(), write.value.as_deref(), self.nobody());
                }
            }
        }
    }

    fn raise_floors(&self, floors: &[Floor]) {
        for floor in floors {
            if let Some(table) = self.store.table(floor.region, floor.table) {
                table.set_reclaimed(floor.version);
            }
        }
    }

    fn adopt(&mut self, configuration: Configuration) {
        if configuration.regions.is_empty() || configuration.regions.iter().any(Vec::is_empty) {
            return;
        }
        self.store.fit(&configuration, self.node, self.settings);
        self.configuration = Some(configuration);
    }

    fn nobody(&self) -> Txid {
        Txid { node: self.node, worker: u16::MAX, sequence: 0 }
    }
}

fn fits(value: Option<&[u8]>, most: usize) -> bool {
    value.is_none_or(|value| value.len() <= most)
}
