//! From the parameters of a run to a [`Scenario`].

use highwire_fabric::{
    Balancing, Buffering, Ecn, Forwarding, HostId, LinkSpec, MarkWhen, NodeId, Pfc, Priorities, Rate,
    Rerouting, Service, Span, Time, Topology, Trimming,
};

use highwire_transport::irn::RecoveryChoice;

use super::error::nearest;
use super::{LinkFailure, Params, Plan, Run};
use crate::scenario::{
    AckPriority, Acks, Cap, CongestionChoice, Entropy, GoBackN, HeaderBytes, Irn, LinkEvent, LinkFault,
    LossRecovery, Network, PartialAcks, PfcChoice, QueuePairs, Record, Scheme, Shape, Stop, Tcp, Transport,
    hungriest,
};
use crate::ways::longest_delay;
use crate::workload::{
    AllReduce, AllToAll, Ground, Incast, Permutation, Poisson, SizeDistribution, TRAFFIC, Trace,
    TreeAllReduce, UNMEASURED, Workload,
};
use crate::{Flow, Scenario, ScenarioError};

/// The bytes that the paper's model adds to a packet's payload on the link.
const HEADER_BYTES: u32 = 62;
/// No packet has more headers than this, as it is encoded.
const HEADER_BYTES_MAX: u32 = 128;
/// Go-back-N's widest window: half of all PSNs, less two.
pub(super) const WINDOW_MAX: u32 = (1 << 23) - 2;
/// The default scenario's rate, for which published marking thresholds hold.
const REFERENCE: Rate = Rate::from_gbps(40);

impl Run {
    /// The scenario that this run plays.
    ///
    /// # Errors
    /// What is impossible: a parameter by its name, or a field of the scenario.
    pub fn scenario(&self, plan: &Plan) -> Result<Scenario, ScenarioError> {
        let params = &self.params;
        let (network, topology) = network(plan, params)?;
        let scheme = scheme(params, &network, &topology)?;
        let (flows, stop) = traffic(plan, params, &topology, &scheme, self.seed)?;
        let record = Record { sample_every: self.film.map(|(every, _)| every), ports: true };
        let time_limit = Time::ZERO + params.span("workload.time_limit").unwrap_or_default();
        Ok(Scenario { seed: self.seed, network, scheme, flows, stop, time_limit, record })
    }
}

fn wrong(field: &'static str, problem: impl Into<String>) -> ScenarioError {
    ScenarioError::Value { field, problem: problem.into() }
}

/// A count as the scenario has it.
fn small(params: &Params, name: &'static str) -> Result<u32, ScenarioError> {
    let count = params.count(name).unwrap_or_default();
    u32::try_from(count).map_err(|_| wrong(name, format!("{count} is too many")))
}

/// Bytes as the scenario has them.
fn bytes(params: &Params, name: &'static str) -> Result<u32, ScenarioError> {
    let bytes = params.bytes(name).unwrap_or_default();
    u32::try_from(bytes).map_err(|_| wrong(name, format!("{bytes} bytes are too many")))
}

/// Shape, rate and delay alone.
fn bare(plan: &Plan, params: &Params) -> Result<Network, ScenarioError> {
    let trunk = params.rate("network.trunk_rate");
    let shape = match params.word("network.shape").unwrap_or_default() {
        "leaf-spine" => Shape::LeafSpine {
            leaves: small(params, "network.leaves")?,
            spines: small(params, "network.spines")?,
            hosts_per_leaf: small(params, "network.hosts_per_leaf")?,
            uplink_rate: trunk,
        },
        "star" => Shape::Star { hosts: small(params, "network.hosts")? },
        "dumbbell" => Shape::Dumbbell {
            left: small(params, "network.left")?,
            right: small(params, "network.right")?,
            trunk_rate: trunk,
        },
        "graph" => {
            let name = params.word("network.graph").unwrap_or_default();
            let text = plan.source.files.get(name);
            Shape::Graph(text.ok_or_else(|| wrong("network.graph", "a graph needs a file"))?.clone())
        }
        _ => Shape::FatTree { k: small(params, "network.k")? },
    };
    // A graph's file names the rate and the delay of each link.
    let (rate, delay) = match shape {
        Shape::Graph(_) => (Network::default().rate, Network::default().delay),
        _ => (
            params.rate("network.rate").unwrap_or(REFERENCE),
            params.span("network.delay").unwrap_or_default(),
        ),
    };
    Ok(Network { shape, rate, delay, ..Network::default() })
}

/// The nodes and links of a run.
pub(super) fn topology(plan: &Plan, params: &Params) -> Result<Topology, ScenarioError> {
    bare(plan, params)?.topology()
}

pub(super) fn network(plan: &Plan, params: &Params) -> Result<(Network, Topology), ScenarioError> {
    let room = params.bytes("network.buffer").unwrap_or_default();
    let buffering = match params.word("network.switches") {
        Some("output-queued") => Buffering::OutputQueued {
            pool_bytes: room,
            alpha_log2: i8::try_from(small(params, "network.alpha_log2")?)
                .map_err(|_| wrong("network.alpha_log2", "expected 0 to 127"))?,
        },
        _ => Buffering::InputQueued { input_bytes: room },
    };
    let probability = |name| params.number(name).unwrap_or_default();
    let fault = LinkFault {
        link: None,
        bit_error_rate: probability("network.bit_error_rate"),
        packet_loss: probability("network.packet_loss"),
    };
    let is_faulty = fault.bit_error_rate > 0.0 || fault.packet_loss > 0.0;
    let mut network = Network {
        buffering,
        service: match params.word("network.service") {
            Some("fifo") if matches!(buffering, Buffering::InputQueued { .. }) => Service::Fifo,
            _ => Service::RoundRobin,
        },
        balancing: match params.word("network.balancing") {
            Some("spray") => Balancing::Spray,
            _ => Balancing::Ecmp,
        },
        faults: if is_faulty { vec![fault] } else { Vec::new() },
        trimming: trimming(params),
        forwarding: match params.word("network.switching") {
            Some("cut-through") => {
                Forwarding::CutThrough { header_bytes: bytes(params, "network.cut_through_bytes")? }
            }
            _ => Forwarding::StoreAndForward,
        },
        telemetry: match params.word("network.telemetry") {
            Some("off") => false,
            _ => params.congestion().algorithm().telemetry,
        } && params.word("transport.protocol") != Some("iwarp"),
        rerouting: match params.word("network.rerouting") {
            _ if plan.link_failures.is_empty() => Rerouting::None,
            Some("local") => Rerouting::Local,
            Some("global") => Rerouting::Global,
            _ => Rerouting::None,
        },
        ..bare(plan, params)?
    };
    let topology = network.topology()?;
    network.events = failures(plan, &topology).map_err(|(_, problem)| wrong("link_failures", problem))?;
    network.ecn = ecn(params, &topology);
    network.pfc = pfc(params, &network, &topology)?;
    Ok((network, topology))
}

/// The headers of trimmed packets have the priority above data, together with acknowledgements if these overtake data as well.
fn trimming(params: &Params) -> Option<Trimming> {
    params.flag("network.trimming").then(|| Trimming {
        data_bytes_max: params.bytes("network.trim_above").unwrap_or(u64::MAX),
        header_bytes_max: params.bytes("network.trim_headers").unwrap_or_default(),
        header_priority: 1,
    })
}

/// The links that fail and come back; or which of the plan's failures cannot be, and why.
pub(super) fn failures(plan: &Plan, topology: &Topology) -> Result<Vec<LinkEvent>, (usize, String)> {
    let mut events = Vec::new();
    for (place, failure) in plan.link_failures.iter().enumerate() {
        let node = |name: &str| {
            let hosts = (0..topology.host_count()).map(NodeId::Host);
            let mut nodes = hosts.chain((0..topology.switch_count()).map(NodeId::Switch));
            nodes.find(|&node| topology.node_name(node) == name).ok_or_else(|| {
                let hosts = (0..topology.host_count()).map(NodeId::Host);
                let nodes = hosts.chain((0..topology.switch_count()).map(NodeId::Switch));
                let names: Vec<&str> = nodes.map(|node| topology.node_name(node)).collect();
                let near = nearest(name, names.iter().copied());
                let near = near.map_or_else(
                    || format!("there are `{}` to `{}`", names[0], names[names.len() - 1]),
                    |near| format!("is it `{near}`?"),
                );
                (place, format!("no host or switch is called `{name}`; {near}"))
            })
        };
        let ends = (node(&failure.from)?, node(&failure.to)?);
        let links = topology.links().iter().enumerate().filter(|(_, link)| {
            let (a, b) = (link.ends[0].0, link.ends[1].0);
            (a, b) == ends || (b, a) == ends
        });
        let before = events.len();
        for (link, _) in links {
            let link = link as u32;
            events.push(LinkEvent { at: Time::ZERO + failure.at, link, is_up: false });
            if let Some(until) = failure.until {
                events.push(LinkEvent { at: Time::ZERO + until, link, is_up: true });
            }
        }
        if events.len() == before {
            return Err((place, format!("no link joins `{}` and `{}`", failure.from, failure.to)));
        }
    }
    // A link of which two failures overlap would come back too early.
    for (place, failure) in plan.link_failures.iter().enumerate() {
        let is_same = |other: &LinkFailure| {
            (&other.from, &other.to) == (&failure.from, &failure.to)
                || (&other.from, &other.to) == (&failure.to, &failure.from)
        };
        let overlaps = |other: &LinkFailure| {
            is_same(other) && other.until.is_none_or(|until| failure.at <= until) && other.at <= failure.at
        };
        if plan.link_failures[..place].iter().any(overlaps)
            || plan.link_failures[place + 1..].iter().any(|other| overlaps(other) && other.at < failure.at)
        {
            return Err((place, "the link is down already".into()));
        }
    }
    events.sort_by_key(|event| (event.at, event.link, event.is_up));
    Ok(events)
}

/// Thresholds that the congestion controls' papers name, in proportion to the rate of each port. Thresholds that the plan
/// names hold for all ports.
fn ecn(params: &Params, topology: &Topology) -> Option<Ecn> {
    // Marks of packets that nobody looks at are none.
    if !listens_to_marks(params) {
        return None;
    }
    let wanted = params
        .congestion()
        .algorithm()
        .marking
        .map(|m| (if m.is_step() { "step" } else { "red" }, m.min_bytes, m.max_bytes, m.probability));
    let kind = match params.word("network.ecn") {
        Some("off") => return None,
        Some("auto") | None => wanted?.0,
        Some(kind) => kind,
    };
    let (_, low, high, share) = wanted.unwrap_or((kind, 5_000, 200_000, 0.01));
    let (named_low, named_high) = match kind {
        "step" => (params.bytes("network.ecn_min"), params.bytes("network.ecn_min")),
        _ => (params.bytes("network.ecn_min"), params.bytes("network.ecn_max")),
    };
    let scaling = Ecn { per: Some(REFERENCE), ..Ecn::red(low, high, share) };
    let mut ecn = if named_low.is_none() && named_high.is_none() {
        scaling
    } else {
        // One of the two is named, so the other one is a number for all ports, too: that of the fastest.
        let fastest = topology.links().iter().map(|link| link.spec.rate).max().unwrap_or(REFERENCE);
        let whole = scaling.at(fastest);
        Ecn::red(named_low.unwrap_or(whole.min_bytes), named_high.unwrap_or(whole.max_bytes), share)
    };
    if kind == "step" {
        (ecn.max_bytes, ecn.max_probability) = (ecn.min_bytes, 1.0);
    } else {
        ecn.max_probability = params.number("network.ecn_probability").unwrap_or(share);
    }
    if params.word("network.ecn_when") == Some("leaving") {
        ecn.when = MarkWhen::Leaving;
    }
    Some(ecn)
}

/// Whether the congestion control reacts to marks. A TCP has its own, which does not.
pub(super) fn listens_to_marks(params: &Params) -> bool {
    params.word("transport.protocol") != Some("iwarp") && params.congestion().uses_ecn()
}

fn pfc(params: &Params, network: &Network, topology: &Topology) -> Result<PfcChoice, ScenarioError> {
    if !params.flag("network.pfc") {
        return Ok(PfcChoice::Off);
    }
    let hysteresis = params.bytes("network.pfc_hysteresis").unwrap_or_default();
    let headroom = params.bytes("network.pfc_headroom");
    let room = match network.buffering {
        Buffering::InputQueued { .. } if headroom.is_none() && hysteresis == 0 => {
            return Ok(PfcChoice::Computed);
        }
        Buffering::InputQueued { input_bytes } => input_bytes,
        // An input's share of the pool, if the pool were divided.
        Buffering::OutputQueued { pool_bytes, .. } => pool_bytes / ports_max(topology),
    };
    // Priorities have equal shares, for any of them may fill up.
    let room = room / priorities(params);
    let added = bytes(params, "transport.extra_header")? + bytes(params, "transport.gap")?;
    let packet_bytes = bytes(params, "transport.mtu")? + HEADER_BYTES_MAX + added;
    let LinkSpec { rate, delay } = hungriest(topology, packet_bytes);
    let needed = Pfc::headroom_needed(rate, delay, packet_bytes, Pfc::FRAME_BYTES);
    let headroom_bytes = headroom.unwrap_or(needed);
    let Some(xoff_bytes) = room.checked_sub(headroom_bytes) else {
        let field = if headroom.is_some() { "network.pfc_headroom" } else { "network.buffer" };
        return Err(wrong(
            field,
            format!("{room} bytes of buffer do not hold a headroom of {headroom_bytes}"),
        ));
    };
    Ok(PfcChoice::Thresholds(Pfc {
        priorities: Priorities::ALL,
        xoff_bytes,
        xon_bytes: xoff_bytes.saturating_sub(hysteresis),
        headroom_bytes,
        frame_bytes: Pfc::FRAME_BYTES,
    }))
}

pub(super) fn scheme(
    params: &Params,
    network: &Network,
    topology: &Topology,
) -> Result<Scheme, ScenarioError> {
    let rto_high = rto_high(params, network, topology);
    let has_pfc = network.pfc != PfcChoice::Off;
    let congestion = params.congestion();
    let transport = match params.word("transport.protocol").unwrap_or_default() {
        "roce" => Transport::GoBackN(roce(params, congestion, has_pfc, rto_high)),
        "iwarp" => Transport::Tcp(iwarp(params, rto_high)?),
        _ => Transport::Irn(irn(params, rto_high)?),
    };
    Ok(Scheme {
        transport,
        congestion,
        mtu_bytes: bytes(params, "transport.mtu")?,
        headers: HeaderBytes {
            is_encoded: params.word("transport.headers") == Some("encoded"),
            extra: bytes(params, "transport.extra_header")?,
            gap: bytes(params, "transport.gap")?,
        },
        queue_pairs: match params.word("transport.queue_pairs") {
            Some("per-pair") => QueuePairs::PerPair,
            _ => QueuePairs::PerFlow,
        },
        ack_priority: match params.word("transport.ack_priority") {
            Some("above") => AckPriority::Above,
            _ => AckPriority::AsData,
        },
        turn_packets: small(params, "transport.turn")?,
        entropy: match params.word("transport.entropy") {
            Some("per-packet") => Entropy::PerPacket,
            _ => Entropy::PerFlow,
        },
    })
}

/// Ports of the largest switch.
pub(super) fn ports_max(topology: &Topology) -> u64 {
    let ports = (0..topology.switch_count()).map(|switch| topology.switch_ports(switch)).max();
    u64::from(ports.unwrap_or(1))
}

/// How many priorities share a buffer.
pub(super) fn priorities(params: &Params) -> u64 {
    let is_split = params.word("transport.ack_priority") == Some("above") || params.flag("network.trimming");
    if is_split { 2 } else { 1 }
}

/// IRN §4.1: propagation there and back on the longest way, plus a switch whose inputs are all full and drain into one
/// output, its slowest; 312 µs in the default scenario, which the paper calls about 320.
fn rto_high(params: &Params, network: &Network, topology: &Topology) -> Span {
    let base = match params.span("transport.rto_high") {
        Some(span) => span,
        None => {
            let drained = slowest_ports(topology).into_iter().map(|(ports, rate)| match network.buffering {
                Buffering::InputQueued { input_bytes } => rate.span_of(input_bytes.saturating_mul(ports)),
                Buffering::OutputQueued { pool_bytes, .. } => rate.span_of(pool_bytes),
            });
            let queued = drained.max().unwrap_or_default();
            let step = Span::from_us(20).as_ps();
            let span = (longest_delay(topology) * 2 + queued).as_ps();
            Span::from_ps(span.div_ceil(step).saturating_mul(step))
        }
    };
    let factor = params.number("transport.rto_high_factor").unwrap_or(1.0);
    Span::from_ps((base.as_ps() as f64 * factor).round() as u64)
}

/// Per switch, how many ports it has, and the rate of the slowest.
fn slowest_ports(topology: &Topology) -> Vec<(u64, Rate)> {
    let mut slowest: Vec<Option<Rate>> = vec![None; topology.switch_count() as usize];
    for link in topology.links() {
        for (node, _) in link.ends {
            let NodeId::Switch(switch) = node else { continue };
            let place = &mut slowest[switch as usize];
            *place = Some(place.map_or(link.spec.rate, |rate| rate.min(link.spec.rate)));
        }
    }
    let ports = (0..).map(|switch| u64::from(topology.switch_ports(switch)));
    slowest.into_iter().zip(ports).filter_map(|(rate, ports)| Some((ports, rate?))).collect()
}

fn roce(params: &Params, congestion: CongestionChoice, has_pfc: bool, rto_high: Span) -> GoBackN {
    let needs_acks = congestion.algorithm().hears_acks;
    let has_timeout = match params.word("transport.timeouts") {
        Some("on") => true,
        Some("off") => false,
        _ => !has_pfc,
    };
    let acks = match params.word("transport.acks") {
        Some("per-packet") => Acks::Every(1),
        Some("last-only") => Acks::LastOnly,
        _ if has_pfc && !needs_acks => Acks::LastOnly,
        _ => Acks::Every(1),
    };
    // More than half of all PSNs are never in flight.
    let window_packets = params
        .count("transport.window")
        .map(|count| u32::try_from(count).unwrap_or(u32::MAX).min(WINDOW_MAX));
    GoBackN { timeout: has_timeout.then_some(rto_high), acks, window_packets }
}

fn irn(params: &Params, rto_high: Span) -> Result<Irn, ScenarioError> {
    let computes_rto = params.flag("transport.computed_rto");
    Ok(Irn {
        cap: match params.word("transport.cap") {
            Some("unlimited") => Cap::Unlimited,
            Some(_) => Cap::Bdp,
            None => Cap::Packets(small(params, "transport.cap")?),
        },
        rto_low: params.span("transport.rto_low").unwrap_or_default(),
        rto_high,
        rto_low_in_flight_max: if computes_rto {
            Irn::default().rto_low_in_flight_max
        } else {
            small(params, "transport.rto_low_n")?
        },
        computes_rto,
        sack_restarts_timer: params.flag("transport.sack_restarts_timer"),
        recovery: match params.word("transport.loss_recovery") {
            Some("no-sack") => LossRecovery::SelectiveWithoutSack,
            Some("go-back-n") => LossRecovery::GoBackN,
            name => {
                name.and_then(RecoveryChoice::named).map_or(LossRecovery::SelectiveRepeat, LossRecovery::Own)
            }
        },
        partial_acks: match params.word("transport.partial_acks") {
            // Without SACK nothing else repeats packets.
            _ if params.word("transport.loss_recovery") != Some("sack") => PartialAcks::Evident,
            Some("never") => PartialAcks::Never,
            Some("hardware") => PartialAcks::Hardware,
            _ => PartialAcks::Evident,
        },
        reordering_packets: small(params, "transport.reordering")?,
        retransmission_delay: params.span("transport.retransmission_delay").unwrap_or_default(),
        ..Irn::default()
    })
}

fn iwarp(params: &Params, rto_high: Span) -> Result<Tcp, ScenarioError> {
    let min_rto = params.span("transport.min_rto").unwrap_or(rto_high);
    Ok(Tcp {
        initial_window: small(params, "transport.initial_window")?,
        initial_rto: params.span("transport.initial_rto").unwrap_or(min_rto),
        min_rto,
        sack: params.flag("transport.sack"),
        ..Tcp::default()
    })
}

/// The flows, and when the run is over.
fn traffic(
    plan: &Plan,
    params: &Params,
    topology: &Topology,
    scheme: &Scheme,
    seed: u64,
) -> Result<(Vec<Flow>, Stop), ScenarioError> {
    let rates: Vec<u64> =
        (0..topology.host_count()).map(|host| topology.host_link(HostId(host)).rate.as_bps()).collect();
    let ground = Ground { rates_bps: &rates, mtu_bytes: scheme.mtu_bytes, overhead_bytes: HEADER_BYTES };
    let span = |name| params.span(name).unwrap_or_default();
    let (warm_up, afterwards) = (span("workload.warm_up"), span("workload.afterwards"));
    let measured_end = Time::ZERO + warm_up + span("workload.duration");
    if params.word("workload.pattern") == Some("trace") {
        return Ok((
            trace(plan, params)?.flows(topology).map_err(|e| wrong("workload.trace", e.to_string()))?,
            Stop::WhenDone,
        ));
    }
    let workload = workload(plan, params, measured_end.since(Time::ZERO) + afterwards)?;
    let mut flows = workload.flows(&ground, seed).map_err(|e| wrong("workload", e.to_string()))?;
    if !matches!(workload, Workload::Poisson(_) | Workload::IncastAmong(..)) {
        return Ok((flows, Stop::WhenDone));
    }
    let last = flows.partition_point(|flow| flow.start <= measured_end);
    for (index, flow) in flows.iter_mut().enumerate() {
        if flow.class == TRAFFIC && (flow.start < Time::ZERO + warm_up || index >= last) {
            flow.class = UNMEASURED;
        }
    }
    let stop = if afterwards > Span::ZERO { Stop::WhenReceived(last as u32) } else { Stop::WhenDone };
    Ok((flows, stop))
}

fn workload(plan: &Plan, params: &Params, duration: Span) -> Result<Workload, ScenarioError> {
    let poisson = || {
        Ok(Poisson {
            sizes: sizes(plan, params)?,
            load: params.number("workload.load").unwrap_or(0.7),
            duration,
        })
    };
    let total = params.bytes("workload.bytes").unwrap_or_default();
    let incast = || {
        Ok(Incast {
            senders: small(params, "workload.senders")?,
            receiver: HostId(small(params, "workload.receiver")?),
            bytes: total,
            connections: small(params, "workload.connections")?,
            start: Time::ZERO + params.span("workload.start").unwrap_or_default(),
        })
    };
    Ok(match params.word("workload.pattern").unwrap_or_default() {
        "permutation" => Workload::Permutation(Permutation { bytes: total }),
        "incast" => Workload::Incast(incast()?),
        "incast-among-poisson" => Workload::IncastAmong(incast()?, poisson()?),
        "all-reduce" => Workload::AllReduce(AllReduce { bytes: total }),
        "tree-all-reduce" => {
            Workload::TreeAllReduce(TreeAllReduce { bytes: total, parts: small(params, "workload.parts")? })
        }
        "all-to-all" => Workload::AllToAll(AllToAll { bytes: total }),
        _ => Workload::Poisson(poisson()?),
    })
}

pub(super) fn sizes(plan: &Plan, params: &Params) -> Result<SizeDistribution, ScenarioError> {
    let name = params.word("workload.sizes").unwrap_or_default();
    if let Some(sizes) = SizeDistribution::named(name) {
        return Ok(sizes);
    }
    let text =
        plan.source.files.get(name).ok_or_else(|| wrong("workload.sizes", format!("no file {name}")))?;
    SizeDistribution::parse(text).map_err(|error| wrong("workload.sizes", error.to_string()))
}

/// The flows that the plan's file lists.
pub(super) fn trace(plan: &Plan, params: &Params) -> Result<Trace, ScenarioError> {
    let name = params.word("workload.trace").unwrap_or_default();
    let text = plan.source.files.get(name);
    let text = text.ok_or_else(|| wrong("workload.trace", "a trace needs a file"))?;
    Trace::parse(name, text).map_err(|error| wrong("workload.trace", error.to_string()))
}
