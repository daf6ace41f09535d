//! From hosts and ports to an outcome.

use highwire_fabric::{HostId, NodeId, PortCounters, PortId, Time};
use highwire_rnic::Counter;

use super::{Run, port_names};
use crate::host::Engine;
use crate::ledger::{Receive, Send};
use crate::scenario::{Flow, Stop};
use crate::stamped::Wire;
use crate::world::World;
use crate::{FlowId, FlowRecord, GroupRecord, Outcome, PortRecord, Totals};

fn happened(at: Time) -> Option<Time> {
    (at != Time::NEVER).then_some(at)
}

/// The record of flow `number`, from both its ends.
pub(crate) fn flow_record(
    world: &World,
    flows: &[Flow],
    number: u32,
    send: Send,
    receive: Receive,
) -> FlowRecord {
    let flow = &flows[number as usize];
    FlowRecord {
        id: FlowId(number),
        bytes: flow.bytes,
        class: flow.class,
        start: send.has_started().then_some(send.start),
        received: happened(receive.at),
        acknowledged: happened(send.acknowledged),
        ideal: world.flows[number as usize].ideal,
        packets: world.packets(number),
        sent: send.sent,
    }
}

impl<W: Wire> Run<'_, W> {
    pub(super) fn outcome(self) -> Outcome {
        let flows: Vec<FlowRecord> = (0..self.world.flows.len() as u32).map(|f| self.flow(f)).collect();
        let groups = self.groups(&flows);
        let totals = self.totals();
        let ports = if self.scenario.record.ports { self.ports() } else { Vec::new() };
        Outcome { flows, groups, totals, ports, samples: self.samples }
    }

    fn flow(&self, number: u32) -> FlowRecord {
        let route = &self.world.flows[number as usize];
        let send = self.net.host(HostId(route.source)).ledger.sends[route.outgoing as usize];
        let receive = self.net.host(HostId(route.destination)).ledger.receives[route.incoming as usize];
        flow_record(&self.world, &self.scenario.flows, number, send, receive)
    }

    fn groups(&self, flows: &[FlowRecord]) -> Vec<GroupRecord> {
        let count = self.scenario.flows.iter().filter_map(|f| f.group).max().map_or(0, |g| g as usize + 1);
        let empty = |group| GroupRecord { group, start: None, received: Some(Time::ZERO), bytes: 0 };
        let mut groups: Vec<GroupRecord> = (0..count as u32).map(empty).collect();
        for (flow, record) in self.scenario.flows.iter().zip(flows) {
            let Some(group) = flow.group else { continue };
            let group = &mut groups[group as usize];
            group.bytes += flow.bytes;
            group.start = [group.start, record.start].into_iter().flatten().min();
            // A flow that was not received leaves the whole group without an end.
            group.received = group.received.zip(record.received).map(|(a, b)| a.max(b));
        }
        groups
    }

    fn totals(&self) -> Totals {
        let all = self.net.totals();
        let mut totals = Totals {
            end: self.end_time(),
            dropped_packets: all.dropped.packets + all.unroutable.packets,
            dropped_data_packets: self.net.observers().map(|eyes| eyes.dropped_data).sum(),
            lost_packets: all.lost.packets,
            marked_packets: all.marked,
            trimmed_packets: all.trimmed.packets,
            pause_frames: all.pause_frames,
            xoffs: all.xoffs,
            paused: all.paused,
            packet_hops: self.net.packet_hops(),
            events: self.net.event_count(),
            fingerprint: self.net.fingerprint(),
            ..Totals::default()
        };
        for host in self.net.hosts() {
            match &host.engine {
                Engine::Rdma(rdma) => {
                    totals.data_packets += rdma.data_packets;
                    totals.control_packets += rdma.control_packets;
                    totals.retransmitted += rdma.retransmitted();
                    totals.timeouts += rdma.counter(Counter::Timeouts);
                    totals.duplicates += rdma.counter(Counter::Duplicates);
                    totals.cnps += rdma.counter(Counter::CnpsReceived);
                }
                Engine::Iwarp(iwarp) => {
                    totals.data_packets += iwarp.data_packets;
                    totals.control_packets += iwarp.control_packets;
                    totals.retransmitted += iwarp.retransmitted;
                    totals.timeouts += iwarp.timeouts;
                    totals.duplicates += iwarp.duplicates;
                }
            }
        }
        totals
    }

    /// A run to rest ends with its last flow, without timers that run afterwards. The time at which the run
    /// stops does not count either: the threads of a parallel run stop at different times.
    fn end_time(&self) -> Time {
        let over = self.net.hosts().flat_map(|h| &h.ledger.sends).map(|send| send.acknowledged);
        match self.scenario.stop {
            Stop::WhenDone => over.filter(|&at| at != Time::NEVER).max().unwrap_or(Time::ZERO),
            Stop::At(_) | Stop::WhenReceived(_) => self.net.now(),
        }
    }

    fn ports(&self) -> Vec<PortRecord> {
        let names = port_names(&self.net, self.net.topology());
        let record = |(number, name): (usize, String)| {
            let port = PortId(number as u32);
            let PortCounters { sent, dropped, marked, paused, .. } = self.net.counters(port);
            PortRecord {
                name,
                is_host: matches!(self.net.node_of(port), NodeId::Host(_)),
                sent_bytes: sent.bytes,
                dropped_packets: dropped.packets,
                marked_packets: marked,
                paused,
                queue_bytes_max: self.net.queue_bytes_max(port),
            }
        };
        names.into_iter().enumerate().map(record).collect()
    }
}
