//! A process: it opens a device, connects, lets its threads converse, checks its memory and closes the device.

use crate::machine::Machine;
use crate::network::Wires;
use crate::plan::{EndPlan, Plan, Style, Theme, ThreadPlan, What};
use crate::traffic::{self, End, Told};
use highwire_host::verbs::{Access, Mtu, QpCaps, QpState, RecvWr, Remote, Service};
use highwire_host::{
    ChannelTarget, CompletionQueueConfig, ConnectOptions, CounterSnapshot, Device, DeviceConfig, Endpoint,
    Engine, QueuePairConfig,
};
use highwire_wake::world::Kernel;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::rc::Rc;

/// How often a process without a thread of its own looks for packets.
const LOOK_NS: u64 = 200_000;

/// Which conversation: the first one, or the one after a process was killed.
pub type Round = usize;
/// A connection's end of a round.
pub type Name = (Round, usize, usize);

/// What the other end has to know.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub endpoint: Endpoint,
    pub memory: Remote,
}

/// What all processes of a run see, beside their devices.
pub struct Scene {
    pub plan: Plan,
    pub machine: Rc<Machine>,
    pub wires: Rc<Wires>,
    pub board: RefCell<BTreeMap<Name, Published>>,
    pub connected: RefCell<BTreeSet<Name>>,
    /// When each request was posted.
    pub posted: RefCell<BTreeMap<(Name, usize), u64>>,
    /// Processes whose threads have ended, by round.
    pub done: RefCell<BTreeSet<(Round, usize)>>,
    pub counters: RefCell<Vec<CounterSnapshot>>,
    /// Messages that have arrived.
    pub messages: RefCell<u64>,
}

impl Scene {
    pub fn address(process: usize) -> IpAddr {
        IpAddr::from([127, 77, 0, 10 + process as u8])
    }

    /// Whether the process of a round has been killed.
    pub fn is_dead(&self, round: Round, process: usize) -> bool {
        round == 0 && self.machine.is_killed(process)
    }

    /// The connections of a round that a process has an end of, with its side.
    fn ends(&self, round: Round, process: usize) -> Vec<(usize, usize)> {
        let victim = self.plan.blows.first().map(|blow| blow.process);
        let all = self.plan.connections.iter().enumerate();
        let takes_part =
            |plan: &[EndPlan; 2]| round == 0 || plan.iter().any(|end| Some(end.process) == victim);
        let ours = all.filter(|(_, plan)| takes_part(&plan.ends));
        let sides = ours.flat_map(|(at, _)| [(at, 0), (at, 1)]);
        sides.filter(|&(at, side)| self.plan.connections[at].ends[side].process == process).collect()
    }

    fn wait(&self, is_over: &dyn Fn() -> bool) {
        self.machine.sleep_until(is_over, None);
    }
}

/// The whole life of a process that takes part from some round on.
pub fn live(scene: &Rc<Scene>, process: usize, from: Round) {
    let plan = scene.plan.processes[process].clone();
    let device = scene.machine.undisturbed(|| {
        let config = DeviceConfig {
            address: Some(Scene::address(process)),
            lanes: plan.lanes,
            engine: plan.engine,
            wake: Some(plan.wake),
            link: plan.link,
            seed: Some(scene.plan.seed << 8 | (from << 4 | process) as u64),
            ..DeviceConfig::default()
        };
        Device::open(&config).expect("a device")
    });
    let rounds = if scene.plan.theme == Theme::Killed { 2 } else { 1 };
    for round in from..rounds {
        converse(scene, &device, process, round);
    }
    let counters = device.counters();
    scene.counters.borrow_mut().push(counters);
    drop(device);
}

/// One conversation of a process.
fn converse(scene: &Rc<Scene>, device: &Device, process: usize, round: Round) {
    let plan = &scene.plan.processes[process];
    let pd = device.protection_domain();
    let told: Vec<Rc<Told>> = plan.threads.iter().map(|thread| Rc::new(told(device, thread))).collect();
    // Its threads are the only ones that run an engine of the kind `Inline`.
    let idle = |is_over: &dyn Fn() -> bool| match plan.engine {
        Engine::Inline => {
            while !is_over() {
                scene.machine.sleep_ns(LOOK_NS);
                for told in &told {
                    told.cq.poll(&mut []);
                }
            }
        }
        _ => scene.wait(is_over),
    };
    let mut ends: Vec<End> = Vec::new();
    for (at, side) in scene.ends(round, process) {
        let connection = &scene.plan.connections[at];
        let (own, theirs) = (connection.ends[side].clone(), connection.ends[1 - side].clone());
        let told = Rc::clone(&told[own.thread]);
        let caps = QpCaps { max_send_wr: 32, max_recv_wr: 32, ..QpCaps::default() };
        let config = QueuePairConfig { caps, ..QueuePairConfig::new(Service::Rc, &told.cq) };
        let qp = pd.queue_pair(&config).expect("a queue pair");
        let buffer = pd.allocate(traffic::memory_bytes(&own, &theirs), Access::ALL).expect("memory");
        let end = End::new((round, at, side), (own, theirs), qp, buffer);
        end.qp.prepare(Access::ALL).expect("it is new");
        for (wr_id, sges) in end.receives() {
            end.qp.post_recv(&RecvWr { wr_id, sges: &sges }).expect("there is room");
        }
        let published = Published { endpoint: end.qp.endpoint(), memory: end.buffer.remote(0) };
        scene.board.borrow_mut().insert((round, at, side), published);
        ends.push(end);
    }
    for end in &mut ends {
        let (_, at, side) = end.name;
        let (theirs, peer) = ((round, at, 1 - side), scene.plan.connections[at].ends[1 - side].process);
        idle(&|| scene.board.borrow().contains_key(&theirs) || scene.is_dead(round, peer));
        let Some(published) = scene.board.borrow().get(&theirs).copied() else {
            end.qp.modify(&highwire_host::verbs::QpAttr::to_state(QpState::Error)).expect("always allowed");
            end.is_broken = true;
            continue;
        };
        let connection = &scene.plan.connections[at];
        let options = ConnectOptions {
            recovery: connection.recovery,
            mtu: connection.mtu_small.then_some(Mtu::B256),
            ..ConnectOptions::default()
        };
        end.peer = Some(published);
        end.qp.connect(&published.endpoint, &options).expect("it connects");
        scene.connected.borrow_mut().insert(end.name);
    }
    for end in ends.iter_mut().filter(|end| !end.is_broken) {
        // A packet that comes too early would be lost, and sent again after a timeout.
        let (_, at, side) = end.name;
        let (theirs, peer) = ((round, at, 1 - side), scene.plan.connections[at].ends[1 - side].process);
        idle(&|| scene.connected.borrow().contains(&theirs) || scene.is_dead(round, peer));
        end.connected_ns = scene.machine.now_ns();
    }
    let ends = serve_all(scene, &told, ends);
    scene.done.borrow_mut().insert((round, process));
    let victim = scene.plan.blows.first().map(|blow| blow.process);
    let has_come = |of: usize| scene.done.borrow().contains(&(round, of)) || scene.is_dead(round, of);
    let all_have = || (0..scene.plan.processes.len()).all(has_come);
    // In the first round the process that is to be killed may not wait for others: it would never be.
    let is_doomed = scene.plan.theme == Theme::Killed && round == 0 && Some(process) == victim;
    idle(&|| !is_doomed && all_have());
    ends.iter().filter(|end| !end.is_broken).for_each(End::check_memory);
}

/// Starts the threads, and waits for their end.
fn serve_all(scene: &Rc<Scene>, told: &[Rc<Told>], ends: Vec<End>) -> Vec<End> {
    let of_thread: Rc<RefCell<Vec<End>>> = Rc::default();
    let mut started = Vec::new();
    let mut left = ends;
    for (number, told) in told.iter().enumerate() {
        let (own, others): (Vec<End>, Vec<End>) = left.into_iter().partition(|end| end.own.thread == number);
        left = others;
        if own.is_empty() {
            continue;
        }
        let (told, scene_of, back) = (Rc::clone(told), Rc::clone(scene), Rc::clone(&of_thread));
        let machine_process = scene.machine.process_of_thread();
        started.push(scene.machine.start(machine_process, &format!("thread {number}"), move || {
            let ends = traffic::serve(&scene_of, &told, own);
            back.borrow_mut().extend(ends);
        }));
    }
    started.into_iter().for_each(|thread| thread.join());
    of_thread.take()
}

fn told(device: &Device, plan: &ThreadPlan) -> Told {
    let channel = (plan.style == Style::Channel).then(|| device.completion_channel().expect("a channel"));
    let target = channel.as_ref().map(|channel| ChannelTarget { channel, tag: 1 });
    let config =
        CompletionQueueConfig { lane: plan.lane, channel: target, ..CompletionQueueConfig::new(512) };
    let cq = device.create_completion_queue(&config).expect("a completion queue");
    Told { cq, channel, style: plan.style }
}

/// The descriptors of this process of the real machine.
pub fn open_descriptors() -> BTreeSet<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut open: BTreeSet<RawFd> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: a question about a number.
    open.retain(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
    open
}

/// The messages among an end's requests.
pub fn messages(plan: &EndPlan) -> impl Iterator<Item = (usize, What, usize)> + '_ {
    let requests = plan.requests.iter().enumerate().filter(|(_, request)| request.what.is_message());
    requests.map(|(at, request)| (at, request.what, request.bytes))
}
