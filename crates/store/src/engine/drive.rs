//! A node that runs: one turn after another.

use super::{Command, End, connect, refuse, say};
use crate::carrier::Backlog;
use crate::idle::{Idle, Rest};
use crate::session::{Local, Shared};
use highwire_host::rpc::Rpc;
use highwire_txn::{DiskOperation, ServiceCall};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// A table that is so full is worth a warning.
const NEARLY_FULL_PERCENT: u64 = 80;

/// A node that runs.
pub(super) struct Drive {
    pub(super) rpc: Rpc,
    pub(super) shared: Rc<Shared>,
    pub(super) backlog: Backlog,
    pub(super) inbox: Receiver<Command>,
    pub(super) calls: Sender<ServiceCall>,
    pub(super) operations: Sender<DiskOperation>,
    pub(super) waits_for: Arc<Mutex<Option<String>>>,
    pub(super) end: Arc<Mutex<End>>,
}

impl Drive {
    pub(super) fn run(mut self) {
        let mut idle = Idle::default();
        loop {
            let Some(mut has_worked) = self.take_commands() else { return };
            if self.has_left() {
                return;
            }
            self.shared.begin_turn();
            has_worked |= self.rpc.poll();
            has_worked |= self.shared.direct.borrow_mut().poll();
            has_worked |= self.turn();
            if has_worked {
                idle.worked();
                continue;
            }
            match idle.rest(|| self.pace()) {
                Rest::Look => {}
                Rest::Offer => {
                    let before = self.shared.clock.now_ns();
                    thread::yield_now();
                    if let Some(nap) = idle.offered(self.shared.clock.now_ns() - before) {
                        thread::sleep(nap);
                    }
                }
                Rest::Sleep => {
                    let now = self.shared.clock.now_ns();
                    let due = self.shared.node.borrow().next_timeout();
                    let due = self.backlog.next_ns().map_or(due, |again| again.min(due)).saturating_sub(now);
                    let mut direct = self.shared.direct.borrow_mut();
                    self.rpc.sleep_beside(direct.endpoint(), SLEEP_MAX.min(Duration::from_nanos(due)));
                }
            }
        }
    }

    /// The time, and the number of requests so far, to this node and from it.
    fn pace(&self) -> (u64, u64) {
        let counters = self.rpc.counters();
        (self.shared.clock.now_ns(), counters.handled + counters.requests)
    }

    /// `None`: the node is to end.
    fn take_commands(&mut self) -> Option<bool> {
        let mut any = false;
        while let Ok(command) = self.inbox.try_recv() {
            any = true;
            match command {
                Command::Run(job) => {
                    let shared = Rc::clone(&self.shared);
                    // A job for which there is no room is dropped, which tells its sender.
                    let _ = self.rpc.spawn(move |rpc| job(Local { shared, rpc }));
                }
                Command::Service(answer) => {
                    let now = self.shared.clock.now_ns();
                    self.shared.node.borrow_mut().handle_service(now, answer);
                }
                Command::Disk(Ok(())) => {
                    let now = self.shared.clock.now_ns();
                    self.shared.node.borrow_mut().handle_synced(now);
                    self.shared.wake_promises();
                }
                Command::Disk(Err(what)) => self.halt(&what),
                Command::Peer(peer) => connect(&mut self.rpc, &peer),
                Command::Refused(why) => {
                    let node = self.shared.node.borrow();
                    // A member needs no leave of any other node.
                    if node.configuration().boot(node.id()) != Some(node.boot()) {
                        refuse(&self.end, why);
                        return None;
                    }
                }
                Command::Stop => return None,
            }
        }
        Some(any)
    }

    /// The disk failed. All promises so far are on it; the node makes no more.
    fn halt(&mut self, what: &str) {
        let what = format!(
            "the node has stopped, because its journal could not be written: {what}. \
             Make room, and start the node again; nothing that was committed is lost"
        );
        say(format_args!("node {}: {what}", self.shared.node.borrow().id().0));
        self.shared.node.borrow_mut().handle_disk_failure();
        self.shared.wake_promises();
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// A wish to leave that the members have taken up outlives the process that had it; and a node that has left ends.
    fn consider_leaving(&self) {
        let mut node = self.shared.node.borrow_mut();
        let known = node.configuration();
        if known.boot(node.id()) == Some(node.boot()) && known.leaving.contains(&node.id()) {
            node.leave();
        }
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        // Its next life must not take up this one's part: the disk has to know that it is over.
        if node.has_left() && node.is_durable() && !matches!(*end, End::Left) {
            *end = End::Left;
            say(format_args!(
                "node {}: it has left the cluster, and its data is with the others",
                node.id().0
            ));
        }
    }

    /// Warns once when a table gets nearly full, and again only after it was less full for a time.
    fn watch_room(&self) {
        let node = self.shared.node.borrow();
        let (usage, percent) = node.usage();
        let was_nearly_full = self.shared.is_nearly_full.get();
        if percent >= NEARLY_FULL_PERCENT && !was_nearly_full {
            self.shared.is_nearly_full.set(true);
            say(format_args!(
                "node {}: a table of a region has {percent} % of the keys that it takes (rows_max = {}; {} keys are in the regions of which this node is \
                 primary): `highwire store configure` raises rows_max",
                node.id().0,
                node.settings().rows_max,
                usage.live
            ));
        } else if percent + 10 < NEARLY_FULL_PERCENT && was_nearly_full {
            self.shared.is_nearly_full.set(false);
        }
    }

    fn has_left(&self) -> bool {
        matches!(*self.end.lock().unwrap_or_else(PoisonError::into_inner), End::Left)
    }

    fn turn(&mut self) -> bool {
        let now = self.shared.clock.now_ns();
        let is_due = self.shared.node.borrow().next_timeout() <= now;
        if is_due {
            self.shared.node.borrow_mut().handle_timeout(now);
            self.shared.milestones.borrow_mut().look_for_suspects(&self.shared.node.borrow(), now);
        }
        let call = self.shared.node.borrow_mut().poll_service();
        if let Some(call) = call {
            // Its thread ends only after this one.
            let _ = self.calls.send(call);
        }
        loop {
            let operation = self.shared.node.borrow_mut().poll_disk();
            let Some(operation) = operation else { break };
            // After a failure the disk's thread has ended, and has reported why.
            let _ = self.operations.send(operation);
        }
        self.shared.milestones.borrow_mut().look(&self.shared.node.borrow(), self.shared.f, now);
        if is_due {
            self.watch_room();
            self.consider_leaving();
        }
        let has_received = self.backlog.receive(&mut self.rpc, &self.shared, now);
        let has_events = self.shared.deliver_events();
        if has_events {
            // Workers go on at once: their requests leave with the messages of this turn.
            let as_of = self.rpc.now();
            self.rpc.run(as_of);
            self.shared.direct.borrow_mut().poll();
        }
        let lease_ns = self.shared.node.borrow().settings().lease_ns;
        let has_sent = self.backlog.send(&mut self.rpc, &self.shared, now, lease_ns);
        self.shared.deliver_events() | has_events | has_received | has_sent | is_due
    }
}
