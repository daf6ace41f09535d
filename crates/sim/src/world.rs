//! The data that all hosts of a run share: the flows with both their ends, and the scheme in the transport's
//! own terms.
//!
//! It is made once and never changes, so hosts on all threads share it.

use highwire_fabric::{HostId, Rate, Span, Time, Topology};
use highwire_rnic::{CongestionChoice, TransportConfig};
use highwire_stdx::Duration;
use highwire_transport::irn::{IrnConfig, LossRecovery as Repair, PartialAcks as Partial};
use highwire_verbs::{MESSAGE_LENGTH_MAX, Mtu, Recovery};
use std::collections::BTreeMap;

use crate::ideal::Ideal;
use crate::scenario::{AckPriority, Acks, Cap, LossRecovery, PartialAcks, QueuePairs, Scheme, Transport};
use crate::ways::bandwidth_delay_product;
use crate::{FlowId, Scenario, ScenarioError, tcp};

/// The data that all hosts share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) scheme: Scheme,
    pub(crate) transport: TransportConfig,
    pub(crate) tcp: tcp::Config,
    pub(crate) recovery: Recovery,
    pub(crate) mtu: Mtu,
    /// No timeout is shorter than this after silence began.
    pub(crate) rto_min: Duration,
    /// Most packets of a queue pair in flight.
    pub(crate) cap: u32,
    pub(crate) flows: Vec<Route>,
    /// Which flows wait for flow `i`: `waiting[waiting_at[i]..waiting_at[i + 1]]`.
    waiting_at: Vec<u32>,
    waiting: Vec<u32>,
    /// Whether data packets may be marked.
    pub(crate) uses_ecn: bool,
    /// How long a received flow's queue pair is kept.
    pub(crate) linger: Span,
    /// Flows below this number decide when the run ends.
    pub(crate) awaited: u32,
}

/// A flow with both its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) bytes: u32,
    /// Its place among the flows that the source sends and among those that the destination receives.
    pub(crate) outgoing: u32,
    pub(crate) incoming: u32,
    /// Its connection's place among the source's.
    pub(crate) requester: u32,
    pub(crate) ideal: Span,
}

/// One host's share.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// The rate of its link, at which its flows begin.
    pub(crate) link_rate: Rate,
    /// The flows that it sends and those that it receives, by [`Route::outgoing`] and [`Route::incoming`].
    pub(crate) outgoing: Vec<u32>,
    pub(crate) incoming: Vec<u32>,
    /// When each flow that it sends may start, and for how many flows that one waits.
    pub(crate) starts: Vec<(Time, u32)>,
    /// Peer and the peer's place of each connection, as a sender by [`Route::requester`].
    pub(crate) requesters: Vec<(u32, u32)>,
    pub(crate) responders: Vec<(u32, u32)>,
}

impl Share {
    fn new(link_rate: Rate) -> Share {
        Share {
            link_rate,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            starts: Vec::new(),
            requesters: Vec::new(),
            responders: Vec::new(),
        }
    }
}

impl World {
    /// Computes the world of a scenario, and every host's share of it.
    pub(crate) fn new(
        scenario: &Scenario,
        topology: &Topology,
    ) -> Result<(World, Vec<Share>), ScenarioError> {
        let scheme = scenario.scheme.clone();
        let mtu = Mtu::from_bytes(scheme.mtu_bytes).ok_or_else(|| ScenarioError::Value {
            field: "scheme.mtu_bytes",
            problem: format!("{} is none of 256, 512, 1024, 2048 and 4096", scheme.mtu_bytes),
        })?;
        let transport = transport_config(&scheme, bandwidth_delay_product(topology))?;
        let is_irn = matches!(scheme.transport, Transport::Irn(_));
        let (rto_min, cap) = match &scheme.transport {
            Transport::Irn(_) => (transport.irn.rto_low.min(transport.irn.rto_high), transport.irn.cap),
            _ => (transport.go_back_n_timeout.unwrap_or(Duration::MAX), transport.go_back_n_window),
        };
        let share = |host| Share::new(topology.host_link(HostId(host)).rate);
        let mut shares: Vec<Share> = (0..topology.host_count()).map(share).collect();
        let flows = routes(scenario, topology, &mut shares)?;
        let (waiting_at, waiting) = dependents(scenario)?;
        let awaited = match scenario.stop {
            crate::scenario::Stop::WhenReceived(count) => count.min(flows.len() as u32),
            _ => flows.len() as u32,
        };
        let recovery = if is_irn { Recovery::Irn } else { Recovery::GoBackN };
        let seed = scenario.seed;
        let world = World {
            seed,
            tcp: tcp_config(&scheme)?,
            scheme,
            transport,
            recovery,
            mtu,
            rto_min,
            cap,
            flows,
            waiting_at,
            waiting,
            uses_ecn: transport.congestion.uses_ecn(),
            linger: linger(&transport, recovery),
            awaited,
        };
        Ok((world, shares))
    }

    /// The flows that wait for `flow`.
    pub(crate) fn dependents(&self, flow: u32) -> &[u32] {
        let at = |i: u32| self.waiting_at[i as usize] as usize;
        &self.waiting[at(flow)..at(flow + 1)]
    }

    /// Priorities that the network needs.
    pub(crate) fn priorities(&self) -> u8 {
        match self.scheme.ack_priority {
            AckPriority::AsData => 1,
            AckPriority::Above => 2,
        }
    }

    /// The longest packet on the wire.
    pub(crate) fn packet_bytes_max(&self) -> u32 {
        let headers = &self.scheme.headers;
        match self.scheme.transport {
            Transport::Tcp(_) => headers.segment_bytes(self.scheme.mtu_bytes),
            _ => headers.write_bytes(self.recovery == Recovery::Irn, true, self.scheme.mtu_bytes),
        }
    }

    /// Data packets that a flow takes.
    pub(crate) fn packets(&self, flow: u32) -> u32 {
        self.mtu.packets(self.flows[flow as usize].bytes)
    }
}

fn routes(
    scenario: &Scenario,
    topology: &Topology,
    shares: &mut [Share],
) -> Result<Vec<Route>, ScenarioError> {
    let mut ideal = Ideal::new(scenario, topology);
    let mut pairs: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut flows = Vec::with_capacity(scenario.flows.len());
    if scenario.flows.len() >= FLOWS_MAX {
        let problem = format!("a run has fewer than {FLOWS_MAX}");
        return Err(ScenarioError::Value { field: "flows", problem });
    }
    for (number, flow) in scenario.flows.iter().enumerate() {
        let number = number as u32;
        let wrong = |problem: String| ScenarioError::Flow { flow: FlowId(number), problem };
        let (source, destination) = (flow.source.0, flow.destination.0);
        let hosts = topology.host_count();
        if let Some(host) = [source, destination].into_iter().find(|&h| h >= hosts) {
            return Err(wrong(format!("there is no host {host}, only 0 to {}", hosts - 1)));
        }
        if source == destination {
            return Err(wrong(format!("host {source} sends to itself")));
        }
        let bytes = u32::try_from(flow.bytes).ok().filter(|b| (1..=MESSAGE_LENGTH_MAX).contains(b));
        let bytes = bytes.ok_or_else(|| wrong(format!("{} bytes: 1 to 2^31 make a message", flow.bytes)))?;
        let mut connect = || {
            let requester = shares[source as usize].requesters.len() as u32;
            let responder = shares[destination as usize].responders.len() as u32;
            shares[source as usize].requesters.push((destination, responder));
            shares[destination as usize].responders.push((source, requester));
            requester
        };
        let requester = match scenario.scheme.queue_pairs {
            QueuePairs::PerFlow => connect(),
            QueuePairs::PerPair => *pairs.entry((source, destination)).or_insert_with(connect),
        };
        let sender = &mut shares[source as usize];
        let outgoing = sender.outgoing.len() as u32;
        sender.outgoing.push(number);
        sender.starts.push((flow.start, flow.after.len() as u32));
        let receiver = &mut shares[destination as usize];
        let incoming = receiver.incoming.len() as u32;
        receiver.incoming.push(number);
        let ideal = ideal
            .of(HostId(source), HostId(destination), bytes)
            .ok_or_else(|| wrong(format!("there is no way from host {source} to host {destination}")))?;
        flows.push(Route { source, destination, bytes, outgoing, incoming, requester, ideal });
    }
    Ok(flows)
}

/// How long a received flow's queue pair is kept at least, and for how many of the sender's longest timeouts. A sender would
/// have to lose packets or acknowledgements at every one of them to find its receiver gone.
const LINGER_MIN: Span = Span::from_ms(20);
const LINGER_TIMEOUTS: u64 = 64;
/// The longest timeout that IRN computes from round trips.
const COMPUTED_RTO_MAX: Duration = Duration::from_secs(1);

fn linger(transport: &TransportConfig, recovery: Recovery) -> Span {
    let longest = match recovery {
        Recovery::GoBackN => transport.go_back_n_timeout.unwrap_or(Duration::ZERO),
        _ if transport.irn.computes_rto => COMPUTED_RTO_MAX,
        _ => transport.irn.rto_low.max(transport.irn.rto_high),
    };
    LINGER_MIN.max(Span::from(longest) * LINGER_TIMEOUTS)
}

/// Flow numbers are the upper half of addresses of memory.
const FLOWS_MAX: usize = 1 << 30;

fn dependents(scenario: &Scenario) -> Result<(Vec<u32>, Vec<u32>), ScenarioError> {
    let flows = &scenario.flows;
    let mut counts = vec![0u32; flows.len() + 1];
    for (number, flow) in flows.iter().enumerate() {
        for before in &flow.after {
            let wrong = |problem: String| ScenarioError::Flow { flow: FlowId(number as u32), problem };
            let earlier = flows
                .get(before.0 as usize)
                .ok_or_else(|| wrong(format!("it waits for flow {}, which does not exist", before.0)))?;
            if ![earlier.source, earlier.destination].contains(&flow.source) {
                let host = flow.source.0;
                return Err(wrong(format!(
                    "host {host} cannot know when flow {} is over: it neither sends nor receives it",
                    before.0
                )));
            }
            counts[before.0 as usize + 1] += 1;
        }
    }
    for i in 1..counts.len() {
        counts[i] += counts[i - 1];
    }
    let mut next = counts.clone();
    let mut waiting = vec![0; counts.last().map_or(0, |&n| n as usize)];
    for (number, flow) in flows.iter().enumerate() {
        for before in &flow.after {
            let place = &mut next[before.0 as usize];
            waiting[*place as usize] = number as u32;
            *place += 1;
        }
    }
    Ok((counts, waiting))
}

fn nanos(span: Span) -> Duration {
    Duration::from_nanos(span.as_ps().div_ceil(1_000))
}

fn transport_config(scheme: &Scheme, bdp_bytes: u64) -> Result<TransportConfig, ScenarioError> {
    let mut config = TransportConfig {
        credits: false,
        never_gives_up: true,
        congestion: scheme.congestion,
        ..TransportConfig::default()
    };
    let packet = u64::from(scheme.headers.write_bytes(true, false, scheme.mtu_bytes));
    let bdp_packets = bdp_bytes.div_ceil(packet).clamp(1, u64::from(IrnConfig::CAP_MAX)) as u32;
    config.irn = IrnConfig { cap: bdp_packets, ..IrnConfig::default() };
    match &scheme.transport {
        Transport::Irn(irn) => {
            config.irn.cap = match irn.cap {
                Cap::Bdp => bdp_packets,
                Cap::Packets(packets) if (1..=IrnConfig::CAP_MAX).contains(&packets) => packets,
                Cap::Packets(packets) => {
                    let problem = format!("{packets} packets: 1 to {} can be", IrnConfig::CAP_MAX);
                    return Err(ScenarioError::Value { field: "scheme.transport.irn.cap", problem });
                }
                Cap::Unlimited => IrnConfig::CAP_UNLIMITED,
            };
            config.irn.rto_low = nanos(irn.rto_low);
            config.irn.rto_high = nanos(irn.rto_high);
            config.irn.rto_low_in_flight_max = irn.rto_low_in_flight_max;
            config.irn.computes_rto = irn.computes_rto;
            config.irn.sack_restarts_timer = irn.sack_restarts_timer;
            config.irn.recovery = match irn.recovery {
                LossRecovery::SelectiveRepeat => Repair::SelectiveRepeat,
                LossRecovery::SelectiveWithoutSack => Repair::SelectiveWithoutSack,
                LossRecovery::GoBackN => Repair::GoBackN,
                LossRecovery::Own(choice) => Repair::Own(choice),
            };
            config.irn.partial_acks = match irn.partial_acks {
                PartialAcks::Never => Partial::Never,
                PartialAcks::Evident => Partial::Evident,
                PartialAcks::Hardware => Partial::Hardware,
            };
            config.irn.reordering_packets = irn.reordering_packets.min(IrnConfig::CAP_MAX);
            config.irn.retransmission_delay = nanos(irn.retransmission_delay);
            config.ack_delay = nanos(irn.ack_delay);
        }
        Transport::GoBackN(roce) => {
            config.go_back_n_timeout = roce.timeout.map(nanos);
            config.go_back_n_window = roce.window_packets.unwrap_or(GO_BACK_N_UNLIMITED);
            config.ack_interval = match roce.acks {
                Acks::LastOnly => u32::MAX,
                Acks::Every(packets) => packets.max(1),
            };
        }
        Transport::Tcp(_) => {}
    }
    Ok(config)
}

fn tcp_config(scheme: &Scheme) -> Result<tcp::Config, ScenarioError> {
    let Transport::Tcp(tcp) = &scheme.transport else { return Ok(tcp::Config::default()) };
    let wrong = |field, problem: &str| Err(ScenarioError::Value { field, problem: problem.into() });
    if scheme.congestion != CongestionChoice::NONE {
        return wrong("scheme.congestion", "TCP has a congestion control of its own; leave this at `none`");
    }
    if tcp.initial_window == 0 || tcp.window_max == Some(0) {
        return wrong("scheme.transport.tcp", "a window of no segments");
    }
    if tcp.min_rto > tcp.max_rto {
        return wrong("scheme.transport.tcp.min_rto", "the shortest timeout exceeds the longest");
    }
    let window = tcp.window_max.map_or(u32::MAX, |segments| segments.saturating_mul(scheme.mtu_bytes));
    Ok(tcp::Config {
        mss: scheme.mtu_bytes,
        initial_window: tcp.initial_window,
        initial_rto: nanos(tcp.initial_rto),
        min_rto: nanos(tcp.min_rto),
        max_rto: nanos(tcp.max_rto),
        sack: tcp.sack,
        ack_delay: nanos(tcp.ack_delay),
        window_bytes: window.min(tcp::Config::WINDOW_BYTES_MAX),
    })
}

/// Half of all PSNs, less two, so that comparisons are never ambiguous.
const GO_BACK_N_UNLIMITED: u32 = (1 << 23) - 2;
