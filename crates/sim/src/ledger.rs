//! A host's flows: which may start, how much of each has arrived and was acknowledged, and which flows wait
//! for which.

use highwire_fabric::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::world::{Share, World};

/// A host's account of its flows.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) host: u32,
    pub(crate) world: Arc<World>,
    /// Flows that wait for nothing but their time.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    pub(crate) sends: Vec<Send>,
    pub(crate) receives: Vec<Receive>,
    /// How many of the flows that decide when the run ends have been received here, and in all.
    pub(crate) awaited_received: u32,
    pub(crate) received: u32,
    /// Flows sent from here that are not over.
    pub(crate) unfinished: u32,
    /// The first invariant that did not hold.
    pub(crate) problem: Option<(Time, String)>,
}

/// A flow as its sender sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send {
    /// When it could start.
    pub(crate) start: Time,
    pub(crate) acknowledged: Time,
    /// Data packets sent, repetitions included.
    pub(crate) sent: u32,
    /// Flows that it waits for.
    waits: u32,
}

impl Send {
    /// Whether all that it waited for is over.
    pub(crate) fn has_started(&self) -> bool {
        self.waits == 0
    }
}

/// A flow as its receiver sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) at: Time,
    /// Bytes placed so far.
    placed: u32,
}

impl Ledger {
    pub(crate) fn new(host: u32, world: Arc<World>, share: &Share) -> Ledger {
        let sends = share.starts.iter().map(|&(start, waits)| Send {
            start,
            acknowledged: Time::NEVER,
            sent: 0,
            waits,
        });
        let free = share.starts.iter().zip(&share.outgoing).filter(|((_, waits), _)| *waits == 0);
        Ledger {
            host,
            due: free.map(|(&(start, _), &flow)| Reverse((start, flow))).collect(),
            sends: sends.collect(),
            receives: vec![Receive { at: Time::NEVER, placed: 0 }; share.incoming.len()],
            awaited_received: 0,
            received: 0,
            unfinished: share.outgoing.len() as u32,
            problem: None,
            world,
        }
    }

    /// When the next flow starts.
    #[inline]
    pub(crate) fn next_start(&self) -> Time {
        self.due.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// A flow whose time has come.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<u32> {
        if self.next_start() > now {
            return None;
        }
        self.due.pop().map(|Reverse((_, flow))| flow)
    }

    /// Part of a flow lies in this host's memory now. Returns whether all of it does.
    #[inline]
    pub(crate) fn on_placed(&mut self, now: Time, flow: u32, bytes: u32) -> bool {
        let world = &self.world;
        let Some(route) = world.flows.get(flow as usize).filter(|r| r.destination == self.host) else {
            self.fail(now, format!("memory of flow {flow} was written, which does not end here"));
            return false;
        };
        let receive = &mut self.receives[route.incoming as usize];
        receive.placed += bytes;
        if receive.placed < route.bytes {
            return false;
        }
        if receive.placed > route.bytes {
            let (placed, whole) = (receive.placed, route.bytes);
            self.fail(now, format!("flow {flow} has {whole} bytes, and {placed} were written"));
            return false;
        }
        receive.at = now;
        self.on_received(now, flow);
        true
    }

    fn on_received(&mut self, now: Time, flow: u32) {
        self.received += 1;
        self.awaited_received += u32::from(flow < self.world.awaited);
        self.release(now, flow);
    }

    /// A flow sent from here is over. Its dependents here may start.
    pub(crate) fn on_acknowledged(&mut self, now: Time, flow: u32) {
        let route = self.world.flows[flow as usize];
        let send = &mut self.sends[route.outgoing as usize];
        if send.acknowledged != Time::NEVER {
            return self.fail(now, format!("flow {flow} completed twice"));
        }
        send.acknowledged = now;
        self.unfinished -= 1;
        self.release(now, flow);
    }

    /// Lets flows start that waited for `flow` at this host.
    fn release(&mut self, now: Time, flow: u32) {
        let world = Arc::clone(&self.world);
        for &waiting in world.dependents(flow) {
            let route = &world.flows[waiting as usize];
            if route.source != self.host {
                continue;
            }
            let send = &mut self.sends[route.outgoing as usize];
            send.waits -= 1;
            send.start = send.start.max(now);
            if send.waits == 0 {
                self.due.push(Reverse((send.start, waiting)));
            }
        }
    }

    /// An invariant did not hold; the run will end.
    #[cold]
    pub(crate) fn fail(&mut self, now: Time, problem: String) {
        self.problem.get_or_insert((now, problem));
    }
}
