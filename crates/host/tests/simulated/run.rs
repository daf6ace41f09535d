//! One run of a seed: it plays the processes, strikes as planned, and looks what is left in the end.

use crate::machine::Machine;
use crate::network::Wires;
use crate::plan::{Kind, Plan, Theme};
use crate::process::{self, Scene, open_descriptors};
use highwire_host::LinkChoice;
use highwire_link::simulated;
use highwire_stdx::Rng;
use highwire_wake::world;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    pub hash: u64,
    pub steps: u64,
    pub time_ns: u64,
    pub messages: u64,
}

/// Counters of rescues: of what a run without faults never needs.
const RESCUES: [&str; 9] = [
    "timeouts",
    "retransmitted",
    "wake_rescues",
    "dropped_bad_icrc",
    "dropped_malformed_packet",
    "dropped_link_full",
    "dropped_mailbox_full",
    "dropped_unreachable",
    "cq_overruns",
];

/// `FUTEX_OWNER_DIED`, and where the kernel would write it: `docs/uapi.md` has the engine's segment.
const HAS_DIED: u32 = 0x4000_0000;
const LIFE_AT: u64 = 136;

/// Runs a seed; it panics or fails if something does not hold.
///
/// # Errors
/// What does not.
pub fn run(registry: &Path, theme: Theme, seed: u64) -> Result<Report, String> {
    // What killed processes have left there is of another time.
    let _ = std::fs::remove_dir_all(registry);
    let plan = Plan::new(theme, seed);
    let mut rng = Rng::new(seed).fork(1000 + theme as u64);
    let wires = Rc::new(Wires::new(rng.fork(2), plan.weather));
    let count = plan.processes.len();
    let machine = Machine::new(rng, plan.habits, count + 1, Rc::clone(&wires));
    let _world = world::enter(Rc::<Machine>::clone(&machine));
    let _network = simulated::enter(Rc::<Wires>::clone(&wires));
    let before = open_descriptors();
    let scene = Rc::new(Scene {
        plan,
        machine: Rc::clone(&machine),
        wires: Rc::clone(&wires),
        board: RefCell::default(),
        connected: RefCell::default(),
        posted: RefCell::default(),
        done: RefCell::default(),
        counters: RefCell::default(),
        messages: RefCell::default(),
    });
    for number in 0..count {
        let scene = Rc::clone(&scene);
        machine.start(number, "main", move || process::live(&scene, number, 0));
    }
    let mut blows = scene.plan.blows.clone();
    blows.sort_by_key(|blow| blow.step);
    let next = Cell::new(0);
    while machine.step().inspect_err(|_| machine.abandon())? {
        let Some(blow) = blows.get(next.get()) else { continue };
        // A process that has nothing left to do waits to be killed.
        let is_idle = blow.kind == Kind::Kill && scene.done.borrow().contains(&(0, blow.process));
        if machine.steps() < blow.step && !is_idle {
            continue;
        }
        next.set(next.get() + 1);
        match blow.kind {
            Kind::Stop { for_ns } => machine.stop(blow.process, for_ns),
            Kind::Kill => {
                kill(registry, &scene, blow.process);
                let (scene, process) = (Rc::clone(&scene), blow.process);
                machine.start(count, "main", move || process::live(&scene, process, 1));
            }
        }
    }
    check_end(registry, &scene, before.len())?;
    let messages = *scene.messages.borrow();
    Ok(Report { hash: machine.hash(), steps: machine.steps(), time_ns: machine.now_ns(), messages })
}

/// The end of a process, and what the kernel does then.
fn kill(registry: &Path, scene: &Scene, process: usize) {
    let address = Scene::address(process);
    scene.machine.kill(process);
    scene.wires.close_all(address);
    let engine = registry.join(address.to_string()).join("engine");
    if let Ok(file) = std::fs::OpenOptions::new().write(true).open(engine) {
        let _ = file.write_all_at(&HAS_DIED.to_ne_bytes(), LIFE_AT);
    }
    let folder = registry.join(address.to_string());
    for fd in open_descriptors() {
        let file = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        if file.is_ok_and(|file| file.starts_with(&folder)) {
            unlock(fd);
        }
    }
}

/// Lets go of the locks that came with a descriptor of a file of the killed process. Neighbours hold none there.
fn unlock(fd: RawFd) {
    let mut all = libc::flock {
        l_type: libc::F_UNLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the structure is valid; the call fails for what is no file.
    unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw mut all) };
}

fn check_end(registry: &Path, scene: &Scene, descriptors_before: usize) -> Result<(), String> {
    if scene.wires.open() > 0 {
        return Err(format!("{} sockets are open", scene.wires.open()));
    }
    let names = std::fs::read_dir(registry).map_err(|error| error.to_string())?;
    let left: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
    let engines = left.iter().filter(|name| name.to_str().is_some_and(|name| name.parse::<IpAddr>().is_ok()));
    if engines.count() > 0 {
        return Err(format!("left behind: {left:?}"));
    }
    let descriptors = open_descriptors().len();
    if scene.plan.theme != Theme::Killed && descriptors != descriptors_before {
        return Err(format!("{descriptors} descriptors are open; {descriptors_before} were"));
    }
    if scene.plan.theme == Theme::Clean {
        for counters in scene.counters.borrow().iter() {
            let rescues = RESCUES.map(|name| (name, counters.value(name)));
            // A datagram goes to the lane of its first packet, which hands the others over: they come late, and out of order.
            let may_overtake = scene.plan.processes.iter().any(|process| process.lanes > 1)
                && scene.plan.processes[0].link == LinkChoice::Udp;
            let counts = |name: &str| name != "retransmitted" || !may_overtake;
            if let Some((name, count)) = rescues.into_iter().find(|(name, count)| *count > 0 && counts(name))
            {
                return Err(format!("{name} is {count}, and there was no fault"));
            }
        }
    }
    Ok(())
}
