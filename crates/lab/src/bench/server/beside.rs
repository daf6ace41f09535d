//! A server that is a program of its own, and answers over TCP: `port N` is the first line that it prints,
//! and it ends when its standard input does.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::tcp::Client;
use super::{Cost, Load, Outcome, drive};

/// A program and the name of its row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Beside {
    name: String,
    words: Vec<String>,
}

impl FromStr for Beside {
    type Err = String;

    fn from_str(text: &str) -> Result<Beside, String> {
        let (name, command) = text.split_once('=').ok_or("a server beside is NAME=COMMAND")?;
        let words: Vec<String> = command.split_whitespace().map(String::from).collect();
        if name.is_empty() || words.is_empty() {
            return Err("a server beside is NAME=COMMAND".into());
        }
        Ok(Beside { name: name.into(), words })
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The program while it runs.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // A server that ignores the end of its input is ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Beside {
    pub(super) fn play(&self, load: Load) -> Result<Outcome> {
        let command = || self.words.join(" ");
        let mut program = Command::new(&self.words[0]);
        program.args(&self.words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running(program.spawn().with_context(command)?);
        let output = running.0.stdout.take().context("its output is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).with_context(command)?;
        let port = line.strip_prefix("port ").and_then(|port| port.trim().parse::<u16>().ok());
        let port = port.with_context(|| format!("{} says no port but '{}'", command(), line.trim()))?;
        let mut streams = Vec::new();
        for _ in 0..load.connections {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        // Gives it time to accept all of them.
        std::thread::sleep(Duration::from_millis(20));
        let process = running.0.id();
        drive(&mut Client(streams), load, &|| cost_of(process))
    }
}

/// The costs of the threads of another process that still exist.
fn cost_of(process: u32) -> Cost {
    let mut cost = Cost::default();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let nanos = read("schedstat").split(' ').next().and_then(|text| text.parse().ok());
        cost.cpu += Duration::from_nanos(nanos.unwrap_or(0));
        let status = read("status");
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        cost.switches += counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>();
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_command_are_wanted() {
        let beside: Beside = "tokio=/bin/server many".parse().expect("both");
        assert_eq!(
            (beside.to_string().as_str(), beside.words.as_slice()),
            ("tokio", ["/bin/server".into(), "many".into()].as_slice())
        );
        for text in ["tokio", "=server", "tokio= "] {
            assert!(text.parse::<Beside>().is_err_and(|error| error.contains("NAME=COMMAND")), "{text}");
        }
    }

    #[test]
    fn what_a_process_takes_is_counted() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do sleep 0.01; done"]);
        let process = Running(command.spawn().expect("there is a shell"));
        let cost = || cost_of(process.0.id());
        let (begin, before) = (std::time::Instant::now(), cost());
        // However busy the machine is, the other process gets the processor in the end.
        while cost().cpu <= before.cpu || cost().switches <= before.switches {
            assert!(begin.elapsed() < Duration::from_secs(60), "{before:?}, and then {:?}", cost());
        }
        drop(process);
        let nobody = cost_of(u32::MAX);
        assert_eq!((nobody.cpu, nobody.switches), (Duration::ZERO, 0));
    }
}
