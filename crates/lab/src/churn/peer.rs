//! One process, as its starter sees it.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use highwire_host::LinkChoice;

use super::member::Role;

/// A process that prints lines of a word and its arguments.
pub(super) struct Peer {
    child: Child,
    role: Role,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(super) fn start(role: Role, address: IpAddr, link: LinkChoice) -> Result<Peer> {
        let name = role.to_possible_value().expect("every role has a name");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["churn", "--address", &address.to_string(), "--role", name.get_name()])
            .args(["--link", &link.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start another process")?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Peer { child, role, input, output })
    }

    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("it was told to end")?;
        writeln!(input, "{line}")
            .with_context(|| format!("{:?} {} does not listen", self.role, self.child.id()))
    }

    /// Waits for a line that begins with `word`, which must be the next; returns the rest.
    pub(super) fn hear_text(&mut self, word: &str) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some((first, rest)) if first == word => Ok(rest.to_owned()),
            _ if line.trim_end() == word => Ok(String::new()),
            _ => bail!("{:?} {} said `{}`, not `{word}`", self.role, self.child.id(), line.trim_end()),
        }
    }

    /// The same for lines of numbers.
    pub(super) fn hear(&mut self, word: &str) -> Result<Vec<u64>> {
        self.hear_text(word)?.split_whitespace().map(|number| Ok(number.parse()?)).collect()
    }

    /// Ends it in an orderly way.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "{:?} {} failed: {status}", self.role, self.child.id());
        Ok(())
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}
