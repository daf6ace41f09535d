//! `highwire fault`: reads scenarios, and changes those that programs play.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use highwire_host::faults::{Event, Port, Scenario, Start, Times, Trigger};
use highwire_link::shm::Registry;
use highwire_stdx::words::counted;

use crate::console::Console;
use crate::failure::usage;

/// Options of `highwire fault`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Read a scenario and say what it does; the first mistake is named with its line.
    #[command(after_help = "Examples:
  highwire fault check two-nics.toml")]
    Check {
        /// The scenario.
        file: PathBuf,
    },
    /// Add the rules of a file to the scenarios that running programs play, if theirs say `control = true`.
    #[command(after_help = "Examples:
  highwire fault add more.toml
  highwire fault add more.toml --pid 4711")]
    Add {
        /// Rules without devices; those of the programs are meant.
        file: PathBuf,
        /// Only to this process.
        #[arg(long)]
        pid: Option<u32>,
    },
    /// Let an event happen now in running programs whose scenario says `control = true`.
    #[command(after_help = "Examples:
  highwire fault event port-down
  highwire fault event port-down --device mlx5_1 --port 2 --lasts 2s
  highwire fault event device-removal --lasts 5s
  highwire fault event queue-pair-error --queue-pair 1")]
    Event(EventArgs),
}

#[derive(Debug, clap::Args)]
struct EventArgs {
    /// port-down, port-init, port-up, device-fatal, device-removal, device-return, gid-change, queue-pair-error or silence.
    event: String,
    /// The device [default: the first]
    #[arg(long)]
    device: Option<String>,
    /// The port of an event about one [default: 1]
    #[arg(long)]
    port: Option<u8>,
    /// The queue pair, in the order in which the program made them, from 1.
    #[arg(long)]
    queue_pair: Option<u64>,
    /// After this the event is undone.
    #[arg(long, value_name = "TIME")]
    lasts: Option<String>,
    /// Only in this process.
    #[arg(long)]
    pid: Option<u32>,
}

impl EventArgs {
    /// As a scenario has it.
    fn text(&self) -> String {
        let mut text = format!("[[event]]\nafter = \"0s\"\ndo = {:?}\n", self.event);
        for (key, value) in [("device", &self.device), ("lasts", &self.lasts)] {
            if let Some(value) = value {
                text += &format!("{key} = {value:?}\n");
            }
        }
        let port = self.port.map(u64::from);
        for (key, value) in [("port", port), ("queue_pair", self.queue_pair)] {
            if let Some(value) = value {
                text += &format!("{key} = {value}\n");
            }
        }
        text
    }
}

/// Carries the command out.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Check { file } => {
            let mut console = Console::new();
            for line in describe(&read(file)?) {
                console.line(line)?;
            }
        }
        Command::Add { file, pid } => {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            tell(&text, *pid)?;
        }
        Command::Event(event) => tell(&event.text(), event.pid)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a scenario.
///
/// # Errors
/// The file cannot be read; or the first mistake in it, which is a wrong command line.
pub(crate) fn read(file: &Path) -> Result<Scenario> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Scenario::read(&file.display().to_string(), &text).map_err(|error| usage(error.to_string()))
}

/// How long a process may take to answer; one whose threads are all stopped never does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends rules to the programs that take some.
///
/// # Errors
/// There is none; or one refuses them.
fn tell(text: &str, only: Option<u32>) -> Result<()> {
    let registry = Registry::open()?;
    let own = std::env::temp_dir().join(format!("highwire-fault-{}", std::process::id()));
    let _ = std::fs::remove_file(&own);
    let socket = UnixDatagram::bind(&own).with_context(|| format!("cannot make {}", own.display()))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let told = tell_all(&socket, registry.root(), text, only);
    let _ = std::fs::remove_file(&own);
    match told? {
        0 => bail!("no program plays a scenario that says `control = true`"),
        _ => Ok(()),
    }
}

/// The number of programs that took the rules.
fn tell_all(socket: &UnixDatagram, folder: &Path, text: &str, only: Option<u32>) -> Result<usize> {
    let mut told = 0;
    for path in std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pid = name.strip_prefix("fault-").and_then(|rest| rest.strip_suffix(".sock"));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        // A process that is gone has left its socket.
        if only.is_some_and(|only| only != pid) || socket.send_to(text.as_bytes(), &path).is_err() {
            continue;
        }
        let mut answer = vec![0; 64 * 1024];
        let length = socket.recv(&mut answer).with_context(|| format!("process {pid} does not answer"))?;
        if length > 0 {
            return Err(usage(String::from_utf8_lossy(&answer[..length]).into_owned()));
        }
        told += 1;
    }
    Ok(told)
}

fn describe(scenario: &Scenario) -> Vec<String> {
    let name = |at: usize| match scenario.devices.get(at) {
        Some(device) => device.name.clone(),
        None => format!("hw{at}"),
    };
    let mut lines = vec![format!("seed {}", scenario.seed)];
    for device in &scenario.devices {
        let address = device.address.map_or("an address of its own".into(), |address| address.to_string());
        let ports: Vec<&str> =
            (1..=device.port_count()).map(|number| port_name(device.port(number))).collect();
        let words = match ports.as_slice() {
            [one] => format!("its port is {one} when it is opened"),
            several => format!("its ports are {} when it is opened", several.join(" and ")),
        };
        lines.push(format!("device {}: {address}; {words}", device.name));
    }
    for rule in &scenario.calls {
        let errno = highwire_host::faults::words::errno_name(rule.errno);
        lines.push(format!("{} returns {errno}: {}", rule.function, which(&rule.trigger)));
    }
    for rule in &scenario.events {
        let start = match &rule.start {
            Start::After(after) => {
                format!("{:.3} s after the first device was opened", after.as_nanos() as f64 / 1e9)
            }
            Start::Call(function, trigger) => format!("at {function}: {}", which(trigger)),
        };
        lines.push(format!("device {}: {}, {start}", name(rule.device), event_name(rule.event)));
    }
    let others = [
        ("limits on registered memory", scenario.registrations.len()),
        ("rules for completions", scenario.completions.len()),
        ("rules for packets", scenario.paths.len()),
    ];
    lines
        .extend(others.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}")));
    lines
}

fn port_name(port: Port) -> &'static str {
    match port {
        Port::Down => "down",
        Port::Init => "not configured",
        Port::Active => "active",
    }
}

fn event_name(event: Event) -> String {
    match event {
        Event::Port(1, port) => format!("its port becomes {}", port_name(port)),
        Event::Port(number, port) => format!("its port {number} becomes {}", port_name(port)),
        Event::Fatal => "it fails for good".to_owned(),
        Event::Removal => "it is taken out".to_owned(),
        Event::Return => "it is there again, as a new one".to_owned(),
        Event::GidChange(1) => "its GIDs change places".to_owned(),
        Event::GidChange(number) => format!("the GIDs of its port {number} change places"),
        Event::QueuePairError(number) => format!("queue pair {number} goes to ERR"),
        Event::Silence => "no packet passes, and nobody is told".to_owned(),
        Event::Sound => "packets pass again".to_owned(),
    }
}

/// Which of the calls that a rule is about.
fn which(trigger: &Trigger) -> String {
    let every = if trigger.every > 1 { format!(", then one in {}", trigger.every) } else { String::new() };
    let times = match trigger.times {
        Times::Count(1) => ", once".to_owned(),
        Times::Count(times) => format!(", {}", counted(times, "time")),
        Times::Forever => ", always".to_owned(),
    };
    let chance = match trigger.probability {
        chance if chance < 1.0 => format!(", each with a chance of {}%", chance * 100.0),
        _ => String::new(),
    };
    format!("from call {}{every}{times}{chance}", trigger.nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_told_in_words() {
        let text = "seed = 9\n[[device]]\nname = \"mlx5_0\"\nport = \"down\"\n\
            [[call]]\nfunction = \"ibv_reg_mr\"\nerrno = \"ENOMEM\"\nnth = 3\nevery = 5\ntimes = 2\n\
            [[call]]\nfunction = \"ibv_alloc_pd\"\nerrno = \"EIO\"\nprobability = \"10%\"\ntimes = \"forever\"\n\
            [[event]]\ndo = \"port-up\"\nafter = \"250ms\"\n\
            [[event]]\ndo = \"queue-pair-error\"\nqueue_pair = 2\ncall = \"ibv_post_send\"\n";
        let scenario = Scenario::read("a.toml", text).expect("it is right");
        let expected = [
            "seed 9",
            "device mlx5_0: an address of its own; its port is down when it is opened",
            "ibv_reg_mr returns ENOMEM: from call 3, then one in 5, 2 times",
            "ibv_alloc_pd returns EIO: from call 1, always, each with a chance of 10%",
            "device mlx5_0: its port becomes active, 0.250 s after the first device was opened",
            "device mlx5_0: queue pair 2 goes to ERR, at ibv_post_send: from call 1, once",
        ];
        assert_eq!(describe(&scenario), expected);
    }
}
