//! Sets a plan up: RNICs, regions, queue pairs, and every request and receive that will be posted.

use crate::common::{Buffer, Bytes, End, Net, Node, connect, gid};
use crate::flow::{Effect, Flow, Receive, Receives, Request, Spans};
use crate::plan::{Connection, Plan};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::{
    Access, Address, Datagram, LocalKey, Operation, QpAttr, QpCaps, QpConfig, Recovery, RemoteKey, SendFlags,
    SendWr, Service, Sge, SrqId, WindowBind,
};
use highwire_wire::{Psn, Qpn};

pub(crate) const QKEY: u32 = 0x1357_9BDF;
const SGES_MAX: u64 = 4;
const WINDOWS: usize = 2;

/// A plan, set up.
pub(crate) struct Stage {
    pub net: Net<Bytes>,
    pub ends: Vec<[End; 2]>,
    /// Two per connection: the first side's requests to the second, and the second's to the first.
    pub flows: Vec<Flow>,
    pub queues: Vec<Receives>,
    /// Each node's word that all flows add to, and its first value.
    pub shared_words: Vec<(u64, u64)>,
}

/// Hands out a region piece by piece, with gaps that must stay untouched.
struct Carver {
    buffer: Buffer,
    used: u64,
}

impl Carver {
    fn new(node: &mut Node<Bytes>, length: u64, access: Access) -> Carver {
        Carver { buffer: node.register(length.max(8), access), used: 0 }
    }

    fn take(&mut self, length: u64, align: u64, rng: &mut Rng) -> u64 {
        let at = (self.used + rng.below(9)).next_multiple_of(align);
        self.used = at + length;
        assert!(self.used <= self.buffer.length, "the region was measured too small");
        at
    }

    fn sge(&mut self, length: u64, align: u64, rng: &mut Rng) -> (Sge, std::ops::Range<u64>) {
        let at = self.take(length, align, rng);
        let addr = self.buffer.addr + at;
        (self.buffer.sge(at, length as u32), addr..addr + length)
    }

    /// A list of pieces that together have `length` bytes.
    fn list(&mut self, length: u64, rng: &mut Rng) -> (Vec<Sge>, Spans) {
        let pieces = if rng.chance(0.6) { 1 } else { rng.between(1, SGES_MAX) };
        let mut left = length;
        (0..pieces)
            .map(|n| {
                let take = if n + 1 == pieces { left } else { rng.below(left + 1) };
                left -= take;
                self.sge(take, 1, rng)
            })
            .unzip()
    }
}

/// Room for a message and the gaps around its pieces.
fn room(length: u64) -> u64 {
    length + 16 * (SGES_MAX + 1)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    OwnAdd,
    OwnSwap,
    SharedAdd,
    Window,
}

fn kinds(service: Service) -> &'static [Kind] {
    use Kind::*;
    match service {
        Service::Raw | Service::XrcInitiator | Service::XrcTarget => unreachable!("no plan has them"),
        Service::Rc => &[
            Send,
            SendImm,
            SendInvalidate,
            Write,
            WriteImm,
            Read,
            OwnAdd,
            OwnSwap,
            SharedAdd,
            Window,
            Send,
            Write,
            Read,
            Write,
            Send,
        ],
        Service::Uc => &[Send, SendImm, Write, WriteImm],
        Service::Ud => &[Send, SendImm],
    }
}

impl Stage {
    pub(crate) fn new(plan: &Plan) -> Stage {
        let mut rng = Rng::new(plan.seed ^ 0x5354_4147);
        let memories = vec![Bytes::new(1 << 12); plan.nodes];
        let mut net = Net::new(memories, plan.link, plan.transport, plan.seed);
        let srqs: Vec<Option<SrqId>> = net
            .nodes
            .iter_mut()
            .map(|node| plan.srq.then(|| node.rnic.create_srq(node.pd, 24, SGES_MAX as u32).expect("an SRQ")))
            .collect();
        let mut stage =
            Stage { net, ends: Vec::new(), flows: Vec::new(), queues: Vec::new(), shared_words: Vec::new() };
        let mut words = Vec::new();
        for node in &mut stage.net.nodes {
            let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
            let mut carver = Carver::new(node, 16 * 16, access);
            let (_, span) = carver.sge(8, 8, &mut rng);
            let initial = u64::from(rng.next_u32());
            node.memory.slice_mut(span.clone()).copy_from_slice(&initial.to_ne_bytes());
            stage.shared_words.push((span.start, initial));
            words.push(carver);
        }
        for connection in &plan.connections {
            stage.connect(connection, &srqs);
        }
        let mut lengths: Vec<Vec<u64>> = vec![Vec::new(); 2 * plan.connections.len()];
        for (index, connection) in plan.connections.iter().enumerate() {
            for side in 0..2 {
                let flow = stage.flow(plan, index, connection, side, &mut words, &mut rng);
                let consumed = flow.requests.iter().filter(|r| r.consumes_receive());
                lengths[2 * index + side] = consumed.map(|r| r.data.len() as u64).collect();
                stage.flows.push(flow);
            }
        }
        stage.receives(plan, &srqs, &lengths, &mut rng);
        stage
    }

    fn connect(&mut self, connection: &Connection, srqs: &[Option<SrqId>]) {
        let ends = connection.nodes.map(|index| {
            let node = &mut self.net.nodes[index];
            let caps = QpCaps {
                max_send_wr: connection.send_wr,
                max_recv_wr: connection.recv_wr,
                ..QpCaps::default()
            };
            let config = QpConfig {
                service: connection.service,
                pd: node.pd,
                send_cq: node.cq,
                recv_cq: node.cq,
                srq: srqs[index],
                caps,
                signal_all: false,
            };
            End { node: index, qpn: node.rnic.create_qp(config).expect("a queue pair") }
        });
        for side in 0..2 {
            let peer = 1 - side;
            let attr = QpAttr {
                access: Some(Access::ALL),
                qkey: (connection.service == Service::Ud).then_some(QKEY),
                path_mtu: Some(connection.mtu),
                rq_psn: Some(Psn::new(connection.psn[peer])),
                sq_psn: Some(Psn::new(connection.psn[side])),
                max_rd_atomic: Some(connection.rd_atomic[side]),
                max_dest_rd_atomic: Some(connection.rd_atomic[peer]),
                min_rnr_timer: Some(connection.rnr_timer),
                timeout: Some(connection.timeout),
                retry_count: Some(7),
                rnr_retry: Some(7),
                recovery: Some(connection.recovery[side]),
                ..QpAttr::default()
            };
            let node = &mut self.net.nodes[ends[side].node];
            connect(
                node,
                ends[side].qpn,
                ends[peer],
                Instant::ZERO,
                &attr,
                connection.service == Service::Ud,
            );
            node.rnic.set_irn_accepted(ends[side].qpn, connection.recovery[peer] == Recovery::Irn);
        }
        self.ends.push(ends);
    }

    fn flow(
        &mut self,
        plan: &Plan,
        index: usize,
        connection: &Connection,
        side: usize,
        words: &mut [Carver],
        rng: &mut Rng,
    ) -> Flow {
        let [from, to] = [self.ends[index][side], self.ends[index][1 - side]];
        let longest = if connection.service == Service::Ud {
            plan.length_max.min(connection.mtu.bytes().into())
        } else {
            plan.length_max
        };
        let shapes: Vec<(Kind, u64)> = (0..connection.requests[side])
            .map(|_| {
                (*rng.pick(kinds(connection.service)), length(longest, connection.mtu.bytes().into(), rng))
            })
            .collect();
        let total: u64 = shapes.iter().map(|(_, length)| room(*length)).sum::<u64>() + 64;
        let near = &mut self.net.nodes[from.node];
        let mut sources = Carver::new(near, total, Access::NONE);
        let mut results =
            Carver::new(near, total + 32 * shapes.len() as u64, Access::LOCAL_WRITE | Access::WINDOW_BIND);
        let far = &mut self.net.nodes[to.node];
        let mut targets = Carver::new(far, total, Access::ALL | Access::WINDOW_BIND);
        let range = targets.buffer.addr..targets.buffer.addr + targets.buffer.length;
        rng.fill(far.memory.slice_mut(range));
        let windows =
            if connection.service == Service::Rc { self.windows(to, &targets.buffer) } else { Vec::new() };
        let far = &mut self.net.nodes[to.node];
        let (own_sge, own_span) = words[to.node].sge(8, 8, rng);
        let own = u64::from(rng.next_u32());
        far.memory.slice_mut(own_span.clone()).copy_from_slice(&own.to_ne_bytes());
        let word_key = RemoteKey(words[to.node].buffer.key.0);
        let shared = words[to.node].buffer.iova + self.shared_words[to.node].0 - words[to.node].buffer.addr;
        let mut flow = Flow {
            connection: index,
            node: from.node,
            qpn: from.qpn,
            peer_node: to.node,
            requests: Vec::new(),
            posted: 0,
            completed: 0,
            succeeded: 0,
            broken: false,
            next_arrival: 0,
            arrivals: Vec::new(),
            own_word: own_span.start,
            own_values: vec![own],
        };
        let mut live = windows;
        let mut bound: Option<RemoteKey> = None;
        let mut post_at = times(plan, shapes.len(), rng);
        for (n, (kind, length)) in shapes.into_iter().enumerate() {
            let is_word = matches!(kind, Kind::OwnAdd | Kind::OwnSwap | Kind::SharedAdd);
            let is_local = kind == Kind::Window;
            let length = if is_word {
                8
            } else if is_local {
                0
            } else {
                length
            };
            // A request that has no room for its number in its first bytes carries it as immediate data.
            let kind = match kind {
                Kind::Send if length < 4 => Kind::SendImm,
                Kind::SendInvalidate if live.is_empty() || length < 4 => Kind::SendImm,
                kind => kind,
            };
            let mut data = vec![0; length as usize];
            rng.fill(&mut data);
            if let Some(head) = data.first_chunk_mut::<4>() {
                *head = (n as u32).to_le_bytes();
            }
            let near = &mut self.net.nodes[from.node];
            let mut flags = SendFlags {
                signaled: rng.chance(0.7),
                solicited: rng.chance(0.2),
                fence: rng.chance(0.2),
                inline: false,
            };
            let is_inward = is_word || kind == Kind::Read;
            let (sges, spans) = if is_local {
                (Vec::new(), Vec::new())
            } else if is_word {
                let (sge, span) = results.sge(8, 8, rng);
                (vec![sge], vec![span])
            } else if is_inward {
                results.list(length, rng)
            } else if length <= 200 && rng.chance(0.2) {
                flags.inline = true;
                let sge = near.copy_inline(&data);
                (vec![sge], Vec::new())
            } else {
                sources.list(length, rng)
            };
            if !is_inward {
                put(near, &spans, &data);
            }
            let far = &mut self.net.nodes[to.node];
            let mut place = |length: u64, rng: &mut Rng| {
                let at = targets.take(length, 1, rng);
                (targets.buffer.remote(at), targets.buffer.addr + at)
            };
            let word = |va: u64| highwire_verbs::Remote { va, rkey: word_key };
            let before = *flow.own_values.last().expect("it begins with one");
            let (operation, effect) = match kind {
                Kind::Send => (Operation::Send, Effect::Deliver),
                Kind::SendImm => (Operation::SendImm(n as u32), Effect::Deliver),
                Kind::SendInvalidate => {
                    let key = live.pop().expect("checked above");
                    (Operation::SendInvalidate(key), Effect::Deliver)
                }
                Kind::Write | Kind::WriteImm => {
                    let (mut remote, target) = place(length, rng);
                    if let Some(key) = live.last()
                        && rng.chance(0.3)
                    {
                        remote.rkey = *key;
                    }
                    let is_plain = kind == Kind::Write;
                    let operation = if is_plain {
                        Operation::Write(remote)
                    } else {
                        Operation::WriteImm(remote, n as u32)
                    };
                    (operation, Effect::Write { target })
                }
                Kind::Read => {
                    let (remote, target) = place(length, rng);
                    data.copy_from_slice(far.memory.slice(target..target + length));
                    (Operation::Read(remote), Effect::Read)
                }
                Kind::OwnAdd => {
                    let add = rng.next_u64();
                    flow.own_values.push(before.wrapping_add(add));
                    (Operation::FetchAdd { remote: word(own_sge.addr), add }, Effect::OwnWord { before })
                }
                Kind::OwnSwap => {
                    let compare = if rng.chance(0.6) { before } else { rng.next_u64() };
                    let swap = rng.next_u64();
                    flow.own_values.push(if compare == before { swap } else { before });
                    let remote = word(own_sge.addr);
                    (Operation::CompareSwap { remote, compare, swap }, Effect::OwnWord { before })
                }
                Kind::SharedAdd => {
                    let add = rng.between(1, 1000);
                    (Operation::FetchAdd { remote: word(shared), add }, Effect::SharedWord { add })
                }
                Kind::Window => {
                    let near = &mut self.net.nodes[from.node];
                    let operation = match bound.take() {
                        Some(key) => Operation::LocalInvalidate(key),
                        None => {
                            let window = near.rnic.regions_mut().allocate_window(near.pd);
                            let bind = bind_all(window.rkey, &results.buffer, Access::REMOTE_READ);
                            bound = Some(bind.new_key);
                            Operation::BindWindow(bind)
                        }
                    };
                    (operation, Effect::Local)
                }
            };
            let is_ud = connection.service == Service::Ud;
            let datagram =
                is_ud.then(|| Datagram { address: Address::new(gid(to.node)), qpn: to.qpn, qkey: QKEY });
            let post_at = post_at.next().expect("a time for each");
            flow.requests.push(Request { operation, flags, sges, spans, data, effect, datagram, post_at });
        }
        flow.arrivals = vec![0; flow.requests.len()];
        flow
    }

    /// Binds some windows over `buffer` through `end`, and returns their keys.
    fn windows(&mut self, end: End, buffer: &Buffer) -> Vec<RemoteKey> {
        let keys = (0..WINDOWS).map(|_| {
            let node = &mut self.net.nodes[end.node];
            let window = node.rnic.regions_mut().allocate_window(node.pd);
            let bind = bind_all(window.rkey, buffer, Access::REMOTE_WRITE);
            let wr =
                SendWr { flags: SendFlags::default(), ..SendWr::new(0, Operation::BindWindow(bind), &[]) };
            node.rnic.post_send(Instant::ZERO, end.qpn, &wr).expect("a bind");
            self.net.drain();
            bind.new_key
        });
        keys.collect()
    }

    fn receives(&mut self, plan: &Plan, srqs: &[Option<SrqId>], lengths: &[Vec<u64>], rng: &mut Rng) {
        let is_datagram = |c: &Connection| if c.service == Service::Ud { 40 } else { 0 };
        if plan.srq {
            for (node, srq) in srqs.iter().enumerate() {
                let incoming = plan.connections.iter().enumerate().flat_map(|(index, c)| {
                    let sides = (0..2).filter(move |side| c.nodes[1 - side] == node);
                    sides.flat_map(move |side| {
                        lengths[2 * index + side].iter().map(move |l| l + is_datagram(c))
                    })
                });
                let all: Vec<u64> = incoming.collect();
                let longest = all.iter().copied().max().unwrap_or(0);
                // Datagrams may come twice, and messages that lost their last packet keep their receives.
                let each = vec![longest; 2 * all.len() + plan.connections.len()];
                self.queue(plan, node, Qpn::default(), *srq, &each, false, rng);
            }
            return;
        }
        for (index, connection) in plan.connections.iter().enumerate() {
            for side in 0..2 {
                let end = self.ends[index][1 - side];
                // A lost unreliable message leaves its receive to a longer one.
                let is_exact = connection.service == Service::Rc;
                let mut each = lengths[2 * index + side].clone();
                let longest = each.iter().copied().max().unwrap_or(0);
                for length in &mut each {
                    let slack = if rng.chance(0.5) { rng.below(100) } else { 0 };
                    *length = if is_exact { *length } else { longest } + slack + is_datagram(connection);
                }
                self.queue(plan, end.node, end.qpn, None, &each, is_exact, rng);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a receive queue in one call")]
    fn queue(
        &mut self,
        plan: &Plan,
        node: usize,
        qpn: Qpn,
        srq: Option<SrqId>,
        lengths: &[u64],
        is_exact: bool,
        rng: &mut Rng,
    ) {
        let total: u64 = lengths.iter().map(|length| room(*length)).sum();
        let mut carver = Carver::new(&mut self.net.nodes[node], total, Access::LOCAL_WRITE);
        let mut post_at = times(plan, lengths.len(), rng);
        let list = lengths
            .iter()
            .map(|length| {
                let (sges, spans) = carver.list(*length, rng);
                let at = post_at.next().expect("a time for each");
                let post_at = if plan.late_receives { at } else { Instant::ZERO };
                Receive { sges, spans, post_at, filled: None }
            })
            .collect();
        self.queues.push(Receives { node, qpn, srq, list, posted: 0, completed: 0, is_exact });
    }
}

fn bind_all(window: RemoteKey, buffer: &Buffer, access: Access) -> WindowBind {
    WindowBind {
        window,
        new_key: RemoteKey(window.0 ^ 1),
        region: LocalKey(buffer.key.0),
        va: buffer.iova,
        length: buffer.length,
        access,
    }
}

/// Rising times over the plan's span, often in bursts.
fn times(plan: &Plan, count: usize, rng: &mut Rng) -> impl Iterator<Item = Instant> + use<> {
    let is_burst = rng.chance(0.4);
    let span = if is_burst { 0 } else { plan.span.as_nanos() };
    let mut all: Vec<u64> = (0..count).map(|_| rng.below(span + 1)).collect();
    all.sort_unstable();
    all.into_iter().map(Instant::from_nanos)
}

/// A random length: mostly short, often about a packet, sometimes long.
fn length(longest: u64, mtu: u64, rng: &mut Rng) -> u64 {
    let length = match rng.below(10) {
        0 => 0,
        1..=3 => rng.below(65),
        4 => mtu - 1 + rng.below(3),
        5..=7 => rng.below(4 * mtu),
        _ => rng.below(longest + 1),
    };
    length.min(longest)
}

/// Writes `data` over the spans.
fn put(node: &mut Node<Bytes>, spans: &Spans, data: &[u8]) {
    let mut at = 0;
    for span in spans {
        let length = (span.end - span.start) as usize;
        node.memory.slice_mut(span.clone()).copy_from_slice(&data[at..at + length]);
        at += length;
    }
}
