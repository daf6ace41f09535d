//! What a seed decides: processes, connections, what their ends do, and what happens to them.

use crate::machine::{Habits, Process, log_uniform};
use crate::network::Weather;
use highwire_host::verbs::Recovery;
use highwire_host::{Engine, LinkChoice, WakeMode};
use highwire_stdx::Rng;
use std::fmt;

/// The kinds of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theme {
    /// No fault: nothing may have been rescued.
    Clean,
    /// Processes are stopped and continued.
    Stopped,
    /// A process is killed, and another one takes its address.
    Killed,
    /// The network loses, doubles and reorders packets.
    Lossy,
}

impl Theme {
    pub const ALL: [Theme; 4] = [Theme::Clean, Theme::Stopped, Theme::Killed, Theme::Lossy];

    pub fn name(self) -> &'static str {
        match self {
            Theme::Clean => "clean",
            Theme::Stopped => "stopped",
            Theme::Killed => "killed",
            Theme::Lossy => "lossy",
        }
    }
}

/// An event of a run, at a step of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Blow {
    pub step: u64,
    pub process: Process,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Stop { for_ns: u64 },
    Kill,
}

/// How a thread waits for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    Poll,
    Wait,
    Channel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    FetchAdd,
}

impl What {
    /// Whether it takes a receive of the peer's.
    pub fn is_message(self) -> bool {
        matches!(self, What::Send | What::SendImm | What::WriteImm)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub what: What,
    pub bytes: usize,
    /// A pause before it is posted.
    pub pause_ns: u64,
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct EndPlan {
    pub process: Process,
    /// The thread of the process that serves it.
    pub thread: usize,
    pub requests: Vec<Request>,
    pub window: usize,
    /// Messages that it may be ahead of the peer's.
    pub lead: usize,
}

#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    pub ends: [EndPlan; 2],
    pub recovery: Recovery,
    pub mtu_small: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct ThreadPlan {
    pub lane: u32,
    pub style: Style,
}

#[derive(Clone, Debug)]
pub struct ProcessPlan {
    pub engine: Engine,
    pub wake: WakeMode,
    pub link: LinkChoice,
    pub lanes: u32,
    pub threads: Vec<ThreadPlan>,
}

pub struct Plan {
    pub seed: u64,
    pub theme: Theme,
    pub habits: Habits,
    pub weather: Weather,
    pub processes: Vec<ProcessPlan>,
    pub connections: Vec<ConnectionPlan>,
    pub blows: Vec<Blow>,
}

const MODES: [WakeMode; 5] =
    [WakeMode::Balanced, WakeMode::Balanced, WakeMode::Power, WakeMode::Event, WakeMode::Dispatcher];

impl Plan {
    pub fn new(theme: Theme, seed: u64) -> Plan {
        let mut rng = Rng::new(seed).fork(theme as u64 + 1);
        let habits = Habits {
            switches: *rng.pick(&[1, 2, 4, 16, 64]),
            stalls: *rng.pick(&[16, 64, 256, 4096]),
            stall_max_ns: match theme {
                Theme::Clean => *rng.pick(&[2_000, 20_000, 60_000]),
                _ => *rng.pick(&[2_000, 60_000, 3_000_000, 20_000_000]),
            },
            cores: *rng.pick(&[1, 2, 4]),
        };
        let count = rng.between(2, 3) as usize;
        let link = *rng.pick(&[LinkChoice::Auto, LinkChoice::Auto, LinkChoice::Udp]);
        let processes: Vec<_> = (0..count).map(|_| process(&mut rng, theme, link)).collect();
        let weather = weather(theme, &mut rng);
        let connections = (0..rng.between(1, 4)).map(|_| connection(&mut rng, &processes)).collect();
        let blows = match theme {
            Theme::Clean | Theme::Lossy => Vec::new(),
            Theme::Stopped => (0..rng.between(1, 3))
                .map(|_| {
                    let kind = Kind::Stop { for_ns: log_uniform(&mut rng, 4_000_000_000) };
                    Blow {
                        step: log_uniform(&mut rng, 20_000),
                        process: rng.below(count as u64) as usize,
                        kind,
                    }
                })
                .collect(),
            Theme::Killed => {
                let process = rng.below(count as u64) as usize;
                vec![Blow { step: log_uniform(&mut rng, 20_000), process, kind: Kind::Kill }]
            }
        };
        Plan { seed, theme, habits, weather, processes, connections, blows }
    }
}

fn weather(theme: Theme, rng: &mut Rng) -> Weather {
    let delay_min_ns = rng.between(500, 20_000);
    let delay_max_ns = delay_min_ns + rng.between(1, 20_000);
    let calm = Weather { delay_min_ns, delay_max_ns, ..Weather::default() };
    match theme {
        Theme::Lossy => Weather {
            lost: *rng.pick(&[0, 5, 50]),
            doubled: *rng.pick(&[0, 5, 50]),
            overtaken: *rng.pick(&[0, 5, 50]),
            ..calm
        },
        _ => calm,
    }
}

fn process(rng: &mut Rng, theme: Theme, link: LinkChoice) -> ProcessPlan {
    let lanes = *rng.pick(&[1, 1, 2, 3]);
    let engine = *rng.pick(&[Engine::Both, Engine::Both, Engine::Both, Engine::Background, Engine::Inline]);
    // Where threads alone run the engine, one that pauses lets its peers' packets wait.
    let engine = if theme == Theme::Clean && engine == Engine::Inline { Engine::Both } else { engine };
    // And one that blocks on a channel does not run it.
    let styles: &[Style] = match engine {
        Engine::Inline => &[Style::Poll, Style::Wait],
        _ => &[Style::Poll, Style::Wait, Style::Channel],
    };
    let thread =
        |rng: &mut Rng| ThreadPlan { lane: rng.below(u64::from(lanes)) as u32, style: *rng.pick(styles) };
    // A dispatcher polls as long as threads wait, which is long where a peer is stopped or dead.
    let modes = match theme {
        Theme::Clean | Theme::Lossy => &MODES[..],
        Theme::Stopped | Theme::Killed => &MODES[..4],
    };
    ProcessPlan {
        engine,
        wake: *rng.pick(modes),
        link,
        lanes,
        threads: (0..rng.between(1, 3)).map(|_| thread(rng)).collect(),
    }
}

fn connection(rng: &mut Rng, processes: &[ProcessPlan]) -> ConnectionPlan {
    let a = rng.below(processes.len() as u64) as usize;
    let b = (a + rng.between(1, processes.len() as u64 - 1) as usize) % processes.len();
    let ends = [a, b].map(|process| {
        let lazy = *rng.pick(&[0, 0, 0, 8, 3]);
        EndPlan {
            process,
            thread: rng.below(processes[process].threads.len() as u64) as usize,
            requests: (0..rng.between(0, 20)).map(|_| request(rng, lazy)).collect(),
            window: rng.between(1, 8) as usize,
            lead: rng.between(1, 4) as usize,
        }
    });
    let recovery = *rng.pick(&[Recovery::Irn, Recovery::GoBackN]);
    ConnectionPlan { ends, recovery, mtu_small: rng.chance(0.3) }
}

fn request(rng: &mut Rng, lazy: u64) -> Request {
    const KINDS: [What; 8] = [
        What::Send,
        What::Send,
        What::Send,
        What::SendImm,
        What::Write,
        What::WriteImm,
        What::Read,
        What::FetchAdd,
    ];
    let what = *rng.pick(&KINDS);
    let bytes = match what {
        What::FetchAdd => 8,
        _ => *rng.pick(&[0, 1, 32, 64, 255, 1024, 4096, 9000, SLOT_BYTES as u64]) as usize,
    };
    let pauses = lazy > 0 && rng.below(lazy) == 0;
    Request { what, bytes, pause_ns: if pauses { log_uniform(rng, 200_000_000) } else { 0 } }
}

/// The longest message.
pub const SLOT_BYTES: usize = 12_288;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, theme, habits, weather, processes, connections, blows } = self;
        writeln!(f, "{theme:?}, seed {seed}: {habits:?}, {weather:?}")?;
        processes
            .iter()
            .enumerate()
            .try_for_each(|(at, process)| writeln!(f, "  process {at}: {process:?}"))?;
        for connection in connections {
            let ConnectionPlan { recovery, mtu_small, .. } = connection;
            writeln!(f, "  connection, {recovery:?}, small packets {mtu_small}")?;
            for EndPlan { process, thread, requests, window, lead } in &connection.ends {
                write!(f, "    process {process} thread {thread} window {window} lead {lead}:")?;
                requests.iter().try_for_each(|Request { what, bytes, pause_ns }| {
                    write!(f, " {what:?}({bytes})+{pause_ns}")
                })?;
                writeln!(f)?;
            }
        }
        blows.iter().try_for_each(|blow| writeln!(f, "  {blow:?}"))
    }
}
