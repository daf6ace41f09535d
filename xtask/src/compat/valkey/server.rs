//! A server of Valkey, over RDMA and TCP at once, and clients of both kinds.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell::Line;

use super::super::Workshop;
use super::super::case::fresh_port;
use super::super::judge::last_line;
use super::build::Programs;

const READY_MAX: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Of one command of a client, in seconds.
const COMMAND_MAX: u32 = 60;

/// A running server.
#[derive(Debug)]
pub(super) struct Server<'a> {
    workshop: &'a Workshop,
    programs: &'a Programs,
    folder: PathBuf,
    /// The options of `highwire run`; none: the kernel's TCP only.
    run: Option<String>,
    options: String,
    port: u16,
    child: Child,
}

/// What the server says of itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    pub(super) requests: u64,
    pub(super) connected: u64,
    /// Of all its threads, Highwire's among them, in seconds.
    pub(super) cpu: f64,
}

impl<'a> Server<'a> {
    /// Starts it, and waits until it serves.
    pub(super) fn start(
        workshop: &'a Workshop,
        programs: &'a Programs,
        folder: &Path,
        run: Option<&str>,
        options: &str,
    ) -> Result<Server<'a>> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let port = fresh_port();
        let child = Server::spawn(workshop, programs, folder, run, options, port)?;
        let mut server = Server {
            workshop,
            programs,
            folder: folder.to_path_buf(),
            run: run.map(String::from),
            options: options.into(),
            port,
            child,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn spawn(
        workshop: &Workshop,
        programs: &Programs,
        folder: &Path,
        run: Option<&str>,
        options: &str,
        port: u16,
    ) -> Result<Child> {
        let line = placed(workshop, run, Line::new("env")).arg(programs.at("valkey-server"));
        let line = line.words("--bind 127.0.0.1 --save").arg("").arg("--port").arg(port.to_string());
        let line = line.arg("--dir").arg(folder).words(options);
        let line = match run {
            None => line,
            Some(_) => {
                let module = programs.at("valkey-rdma.so");
                let line = line.arg("--loadmodule").arg(module).arg("--rdma-bind").arg(&workshop.address);
                line.arg("--rdma-port").arg(port.to_string())
            }
        };
        let output = File::create(folder.join("server.txt"))?;
        let mut command = line.command();
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        command.spawn().with_context(|| format!("cannot start {line}"))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let sign = format!("Ready to accept connections {}", if self.run.is_some() { "rdma" } else { "tcp" });
        let deadline = Instant::now() + READY_MAX;
        loop {
            let output = fs::read(self.folder.join("server.txt"))?;
            let output = String::from_utf8_lossy(&output);
            if output.contains(&sign) {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the server does not start: {}", last_line(&output));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The server dies without a word.
    pub(super) fn kill(&mut self) -> Result<()> {
        kill_group(&mut self.child)
    }

    /// Another server with the same address, port and options.
    pub(super) fn restart(&mut self) -> Result<()> {
        let run = self.run.as_deref();
        self.child =
            Server::spawn(self.workshop, self.programs, &self.folder, run, &self.options, self.port)?;
        self.wait_until_ready()
    }

    /// What a command prints that valkey-cli sends over RDMA; `-x` takes its last word from `input`.
    pub(super) fn rdma_cli(&self, words: &[&str], input: Option<&[u8]>) -> Result<Vec<u8>> {
        let line = self.rdma_client("valkey-cli", COMMAND_MAX);
        let line = words.iter().fold(line, |line, word| line.arg(word));
        let path = self.folder.join("input");
        fs::write(&path, input.unwrap_or_default())?;
        let output = line.command().stdin(File::open(&path)?).output()?;
        if !output.status.success() {
            bail!("valkey-cli --rdma {}: {}", words.join(" "), said(&output));
        }
        Ok(output.stdout)
    }

    /// The same over the kernel's TCP, without Highwire.
    pub(super) fn tcp_cli(&self, words: &[&str]) -> Result<Vec<u8>> {
        let line = self.tcp_client("valkey-cli", COMMAND_MAX);
        let line = words.iter().fold(line, |line, word| line.arg(word));
        let output = line.command().stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("valkey-cli {}: {}", words.join(" "), said(&output));
        }
        Ok(output.stdout)
    }

    /// valkey-benchmark over what the server is for, for so many seconds at most.
    pub(super) fn benchmark(&self, words: &str, seconds_max: u32) -> Line {
        let line = match self.run {
            Some(_) => self.rdma_client("valkey-benchmark", seconds_max),
            None => self.tcp_client("valkey-benchmark", seconds_max),
        };
        line.words(words)
    }

    pub(super) fn own_test(&self, seconds_max: u32) -> Line {
        let line = placed(self.workshop, self.run.as_deref(), limited(seconds_max));
        let line = line.arg(self.programs.test()).words("--thread 4 -h").arg(&self.workshop.address);
        line.arg("-p").arg(self.port.to_string())
    }

    fn rdma_client(&self, program: &str, seconds_max: u32) -> Line {
        let line = placed(self.workshop, self.run.as_deref(), limited(seconds_max));
        let line = line.arg(self.programs.at(program)).words("--rdma -h").arg(&self.workshop.address);
        line.arg("-p").arg(self.port.to_string())
    }

    fn tcp_client(&self, program: &str, seconds_max: u32) -> Line {
        let line = limited(seconds_max).arg(self.programs.at(program));
        line.words("-h 127.0.0.1 -p").arg(self.port.to_string())
    }

    pub(super) fn requests(&self) -> Result<u64> {
        Ok(self.figures()?.requests)
    }

    pub(super) fn connected(&self) -> Result<u64> {
        Ok(self.figures()?.connected)
    }

    pub(super) fn figures(&self) -> Result<Figures> {
        let text = String::from_utf8(self.tcp_cli(&["info"])?)?;
        figures_of(&text).with_context(|| format!("INFO lacks a figure: {text}"))
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Under `highwire run`, or by itself.
fn placed(workshop: &Workshop, run: Option<&str>, line: Line) -> Line {
    let Some(options) = run else { return line };
    let line = line
        .env("HIGHWIRE_SHM_DIR", workshop.registry.display().to_string())
        .env("HIGHWIRE_LIBS", workshop.libraries.display().to_string())
        .env("HIGHWIRE_ADDR", &workshop.address);
    line.arg(&workshop.highwire).arg("run").words(options).arg("--")
}

fn limited(seconds: u32) -> Line {
    Line::new("timeout").words("--foreground -k 5").arg(seconds.to_string())
}

fn said(output: &std::process::Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    format!("{}: {}", output.status, last_line(&String::from_utf8_lossy(&text)))
}

/// Ends a process group that was started here.
pub(super) fn kill_group(child: &mut Child) -> Result<()> {
    if child.try_wait()?.is_none() {
        let _ = Line::new("kill").words("-KILL --").arg(format!("-{}", child.id())).capture();
        child.wait()?;
    }
    Ok(())
}

fn figures_of(info: &str) -> Option<Figures> {
    let value = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim())
    };
    let seconds = |name: &str| value(name)?.parse::<f64>().ok();
    Some(Figures {
        requests: value("total_commands_processed")?.parse().ok()?,
        connected: value("connected_clients")?.parse().ok()?,
        cpu: seconds("used_cpu_sys")? + seconds("used_cpu_user")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_the_server_says() {
        let info = "# Clients\r\nconnected_clients:17\r\n# Stats\r\ntotal_commands_processed:4100\r\n\
             # CPU\r\nused_cpu_sys:0.500000\r\nused_cpu_user:1.250000\r\nused_cpu_sys_children:9.0\r\n";
        let expected = Figures { requests: 4100, connected: 17, cpu: 1.75 };
        assert_eq!(figures_of(info), Some(expected));
        assert_eq!(figures_of("connected_clients:17\r\n"), None);
    }
}
