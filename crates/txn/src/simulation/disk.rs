//! A disk: bytes written are durable once synced, and perhaps before. A crash of the process loses none of
//! them; a loss of power loses unsynced bytes, wholly or in part, and may bring removed files back.

use std::collections::{BTreeMap, BTreeSet};

use highwire_stdx::Rng;

use crate::id::NodeId;
use crate::journal::{DiskOperation, FileName, LoadError, Loaded};
use crate::node::Node;
use crate::settings::Settings;

use super::Plan;
use super::world::{Event, World};

/// What a disk tears off is a multiple of this.
const SECTOR_BYTES: usize = 64;

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// How many of the bytes are durable.
    synced: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<FileName, File>,
    removed: Vec<(FileName, File)>,
    /// Files that the running process has written to.
    written: BTreeSet<FileName>,
    /// Writes fail until then.
    pub(super) full_until_ns: u64,
}

impl Disk {
    /// Carries out an operation; a sync ends later, in [`World::on_synced`]. Returns whether it succeeded.
    fn operate(&mut self, operation: DiskOperation, now_ns: u64) -> bool {
        match operation {
            DiskOperation::Append { file, mut bytes } => {
                let is_full = now_ns < self.full_until_ns;
                if is_full {
                    bytes.truncate(bytes.len() / 2);
                }
                if self.written.insert(file) {
                    self.files.remove(&file);
                }
                self.files.entry(file).or_default().bytes.extend(bytes);
                !is_full
            }
            DiskOperation::Remove { file } => {
                if let Some(bytes) = self.files.remove(&file) {
                    self.removed.push((file, bytes));
                }
                true
            }
            DiskOperation::Sync { .. } => true,
        }
    }

    fn sync(&mut self, file: FileName) {
        if let Some(file) = self.files.get_mut(&file) {
            file.synced = file.bytes.len();
        }
    }

    /// A process begins. It relies on bytes that it has read and that were perhaps not durable, so opening
    /// makes them durable.
    fn open(&mut self) {
        self.written.clear();
        self.sync_all();
    }

    fn sync_all(&mut self) {
        self.files.values_mut().for_each(|file| file.synced = file.bytes.len());
    }

    /// The power goes.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        for (name, file) in self.removed.drain(..) {
            // The name may have been given again.
            if rng.chance(0.3) {
                self.files.entry(name).or_insert(file);
            }
        }
        for file in self.files.values_mut() {
            let torn = &mut file.bytes[file.synced..];
            match rng.below(4) {
                0 => file.bytes.truncate(file.synced),
                1 => {
                    let kept = file.synced + rng.below(torn.len() as u64 + 1) as usize;
                    file.bytes.truncate(kept);
                }
                2 => {
                    let kept = rng.below(torn.len() as u64 + 1) as usize;
                    torn[kept..].fill(0);
                }
                // Sectors arrive in any order.
                _ => torn
                    .chunks_mut(SECTOR_BYTES)
                    .filter(|_| rng.chance(0.3))
                    .for_each(|sector| sector.fill(0)),
            }
        }
        // The name of a file that was never synced may be lost with it.
        self.files.retain(|_, file| file.synced > 0 || !file.bytes.is_empty());
    }

    /// What a node that starts from this disk loads.
    pub(super) fn load(&self, at: NodeId, settings: &Settings, plan: &Plan) -> Result<Loaded, LoadError> {
        let files: BTreeMap<FileName, Vec<u8>> =
            self.files.iter().map(|(&name, file)| (name, file.bytes.clone())).collect();
        #[cfg(all(test, not(loom)))]
        {
            use crate::defect::Defect;
            let care = crate::journal::Care {
                checks_sums: plan.defect != Some(Defect::TornEntryAccepted),
                keeps_order: plan.defect != Some(Defect::ReplayInWrongOrder),
            };
            crate::journal::load_with(at, &files, settings, care)
        }
        #[cfg(not(all(test, not(loom))))]
        {
            let _ = plan;
            crate::journal::load(at, &files, settings)
        }
    }
}

impl World {
    /// Gives a node that is about to begin its journal on the machine's disk.
    pub(super) fn begin_journal(&mut self, at: NodeId, node: &mut Node, loaded: &Loaded) {
        let checkpoint_bytes = self.plan.checkpoint_bytes;
        let Some(disk) = self.machines.get_mut(&at).and_then(|machine| machine.disk.as_mut()) else { return };
        disk.open();
        node.keep_journal(loaded, checkpoint_bytes);
    }

    /// Carries out all disk operations of a node before the run begins, as if there had been time enough.
    pub(super) fn sync_at_once(&mut self, at: NodeId, node: &mut Node) {
        let Some(disk) = self.machines.get_mut(&at).and_then(|machine| machine.disk.as_mut()) else { return };
        while let Some(operation) = node.poll_disk() {
            disk.operate(operation, 0);
            disk.sync_all();
            node.handle_synced(0);
        }
    }

    pub(super) fn operate(&mut self, at: NodeId, process: u64, operation: DiskOperation) {
        let now_ns = self.now_ns;
        if let DiskOperation::Sync { file } = operation {
            let is_slow = !self.is_healed && self.rng.chance(0.05);
            let takes_ns = self.rng.between(20_000, if is_slow { 3_000_000 } else { 200_000 });
            return self.schedule(takes_ns, Event::Synced { at, process, file });
        }
        let Some(machine) = self.machines.get_mut(&at) else { return };
        let works = machine.disk.as_mut().is_some_and(|disk| disk.operate(operation, now_ns));
        if !works && let Some(process) = &mut machine.process {
            process.node.handle_disk_failure();
            if process.node.is_halted() {
                process.held.clear();
            }
            self.report.full_disks += 1;
        }
    }

    /// A sync has ended: the replies that waited for it leave.
    pub(super) fn on_synced(&mut self, at: NodeId, local: u64, file: FileName) {
        let Some(machine) = self.machines.get_mut(&at) else { return };
        if let Some(disk) = &mut machine.disk {
            disk.sync(file);
        }
        let Some(process) = &mut machine.process else { return };
        process.node.handle_synced(local);
        loop {
            let Some(process) = self.machines.get_mut(&at).and_then(|machine| machine.process.as_mut())
            else {
                return;
            };
            let durable = process.node.durable();
            let Some(place) = process.held.iter().position(|held| held.after <= durable) else { return };
            let held = process.held.remove(place);
            process.receivers.entry((held.to, held.process)).or_default().remember(held.ticket, &held.bytes);
            self.answer(at, held.to, held.process, held.ticket, held.bytes, None);
        }
    }

    /// What a machine's disk holds after a crash, if the machine has one.
    pub(super) fn load_disk(&mut self, at: NodeId, loses_power: bool) {
        let Some(machine) = self.machines.get_mut(&at) else { return };
        let Some(disk) = &mut machine.disk else { return };
        if loses_power {
            disk.lose_power(&mut self.rng);
        }
        match disk.load(at, &self.settings, &self.plan) {
            Ok(mut loaded) => {
                machine.memory = loaded.memory.take();
                machine.loaded = Some(loaded);
            }
            Err(error) => drop(self.wrong.get_or_insert(format!("{at} after a crash: {error}"))),
        }
    }

    /// The power goes everywhere at once, and all memories with it.
    pub(super) fn lose_all_memories(&mut self) {
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        for at in all {
            self.crash(at, true);
            let down = self.rng.between(1_000_000, 6_000_000);
            self.schedule(down, Event::Start { at });
        }
    }

    /// A node whose disk failed does nothing. Its operator makes room and starts it again.
    pub(super) fn restart_if_halted(&mut self, at: NodeId) {
        let process = self.machines.get(&at).and_then(|machine| machine.process.as_ref());
        if process.is_some_and(|process| process.node.is_halted()) {
            self.crash(at, true);
            self.start(at);
        }
    }
}
