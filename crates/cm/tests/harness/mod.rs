//! Two or more connection managers on a network that loses, repeats and reorders, on one timeline.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::BTreeMap;

use highwire_cm::{CommId, Config, ConnectionManager, Event};
use highwire_stdx::{Duration, Instant, Rng};
use highwire_verbs::Gid;
use highwire_wire::cm::{CmMad, CmPath, Rep, Req, TransportType};
use highwire_wire::{Psn, Qpn};

pub const SERVICE: u64 = 0x0106_4853;

/// The network's faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplication: f64,
    /// Delays are drawn between 10 µs and this many microseconds.
    pub delay_max_us: u64,
}

/// One end and its address.
pub struct End {
    pub gid: Gid,
    pub manager: ConnectionManager,
    pub events: Vec<Event>,
}

pub struct Net {
    pub now: Instant,
    pub ends: Vec<End>,
    pub faults: Faults,
    rng: Rng,
    /// Datagrams under way, by arrival and a serial number: sender, receiver, bytes.
    wire: BTreeMap<(Instant, u64), (usize, usize, Vec<u8>)>,
    serial: u64,
    /// Names of the messages sent, in order, by which conversations are compared.
    pub log: Vec<String>,
}

impl Net {
    pub fn new(count: u8, seed: u64, faults: Faults) -> Net {
        let end = |n: u8| End {
            gid: gid(n),
            manager: ConnectionManager::new(
                Config::new(u64::from(n) + 1, n + 2),
                Rng::new(seed ^ u64::from(n) << 32),
            ),
            events: Vec::new(),
        };
        Net {
            now: Instant::from_nanos(1_000_000_000),
            ends: (0..count).map(end).collect(),
            faults,
            rng: Rng::new(seed),
            wire: BTreeMap::new(),
            serial: 0,
            log: Vec::new(),
        }
    }

    pub fn end(&mut self, n: usize) -> &mut ConnectionManager {
        &mut self.ends[n].manager
    }

    pub fn connect(&mut self, from: usize, to: usize, qpn: u32) -> CommId {
        let (request, to, now) =
            (request(self.ends[from].gid, self.ends[to].gid, qpn), self.ends[to].gid, self.now);
        self.end(from).connect(now, to, &request, 0)
    }

    /// Takes everything out of every manager.
    pub fn drain(&mut self) {
        for sender in 0..self.ends.len() {
            while let Some(transmit) = self.ends[sender].manager.poll_transmit() {
                let name = CmMad::parse(&transmit.mad).expect("what is sent parses").message;
                self.log.push(format!("{sender}:{}", name.attribute().as_str()));
                let receiver = self.ends.iter().position(|end| end.gid == transmit.to);
                let Some(receiver) = receiver else { continue };
                let copies = if self.rng.chance(self.faults.loss) {
                    0
                } else {
                    1 + u32::from(self.rng.chance(self.faults.duplication))
                };
                for _ in 0..copies {
                    let delay = self.rng.between(10, self.faults.delay_max_us.max(10));
                    let at = self.now + Duration::from_micros(delay);
                    self.serial += 1;
                    self.wire.insert((at, self.serial), (sender, receiver, transmit.mad.to_vec()));
                }
            }
            while let Some(event) = self.ends[sender].manager.poll_event() {
                self.ends[sender].events.push(event);
            }
        }
    }

    /// Runs the next event, no later than `until`; returns whether there was one.
    pub fn step(&mut self, until: Instant) -> bool {
        self.drain();
        let arrival = self.wire.first_key_value().map(|(&(at, _), _)| at);
        let timeout = self.ends.iter().filter_map(|end| end.manager.poll_timeout()).min();
        let Some(next) = arrival.into_iter().chain(timeout).min().filter(|&next| next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let (_, (sender, receiver, mad)) = self.wire.pop_first().expect("there is an arrival");
            let from = self.ends[sender].gid;
            self.ends[receiver].manager.handle_mad(self.now, from, &mad);
        }
        for end in &mut self.ends {
            end.manager.handle_timeout(self.now);
        }
        self.drain();
        true
    }

    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
    }

    /// Takes the events of one end.
    pub fn events(&mut self, end: usize) -> Vec<Event> {
        self.drain();
        std::mem::take(&mut self.ends[end].events)
    }

    /// Takes the log.
    pub fn spoken(&mut self) -> String {
        std::mem::take(&mut self.log).join(" ")
    }
}

pub fn gid(n: u8) -> Gid {
    Gid::from_ip(std::net::IpAddr::from([10, 0, 0, n + 1]))
}

pub fn request(from: Gid, to: Gid, qpn: u32) -> Req {
    let primary = CmPath { local_gid: from.0, remote_gid: to.0, hop_limit: 64, ..CmPath::default() };
    Req {
        local_id: 0,
        ece_vendor: 0,
        service_id: SERVICE,
        ca_guid: 0,
        qkey: 0,
        qpn: Qpn::new(qpn),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 0,
        transport: TransportType::Rc,
        has_flow_control: false,
        starting_psn: Psn::new(7),
        local_response_timeout: 0,
        retry_count: 7,
        pkey: 0xFFFF,
        path_mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 0,
        has_srq: false,
        primary,
        alternate: CmPath::default(),
        private_data: [9; Req::PRIVATE_LEN],
    }
}

pub fn reply(qpn: u32) -> Rep {
    Rep {
        local_id: 0,
        remote_id: 0,
        qkey: 0,
        qpn: Qpn::new(qpn),
        ece_vendor: 0,
        starting_psn: Psn::new(8),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 0,
        failover: 0,
        has_flow_control: false,
        rnr_retry_count: 7,
        has_srq: false,
        ca_guid: 0,
        private_data: [8; Rep::PRIVATE_LEN],
    }
}
