//! The typed client of a verbs agent: the guest's over TCP, a process of this machine, or the JVM's.
//! `interop/guest/agent.h` describes the lines that both speak.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::namespace::GUEST_ADDRESS;

/// The address at which the agent listens.
pub(super) const AGENT_PORT: u16 = 7471;

/// Longer than any request waits in the guest.
const ANSWER_LIMIT: Duration = Duration::from_secs(150);

/// One connection: a process with verbs objects of its own, which end with it.
pub(super) struct Agent {
    requests: Box<dyn Write>,
    answers: BufReader<Box<dyn Read>>,
    /// The process, if it runs on this machine.
    process: Option<Child>,
}

/// The fields of an `ok` line, in its order; a key may come more than once.
#[derive(Debug)]
pub(super) struct Answer {
    request: String,
    fields: Vec<(String, String)>,
}

/// A refusal: the errno that the verb returned, and the agent's text.
#[derive(Debug)]
pub(super) struct Refused {
    errno: i32,
    request: String,
    text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' was refused: {} (errno {})", self.request, self.text, self.errno)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Whether the agent lacks the command: there is nothing to test.
    pub(super) fn is_unsupported(&self) -> bool {
        const ENOSYS: i32 = 38;
        self.errno == ENOSYS
    }
}

/// A completion in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkCompletion {
    pub(super) wr_id: u64,
    /// `enum ibv_wc_status`
    pub(super) status: u32,
    /// `enum ibv_wc_opcode`; meaningless unless `status` is 0
    pub(super) opcode: u32,
    pub(super) length_bytes: u32,
    pub(super) qpn: u32,
    pub(super) source_qpn: u32,
    /// Immediate data, or the invalidated rkey
    pub(super) immediate: u32,
    /// `enum ibv_wc_flags`
    pub(super) flags: u32,
}

/// A registered region in the guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// The agent's number for it
    pub(super) id: u32,
    pub(super) address: u64,
    pub(super) rkey: u32,
}

impl Agent {
    /// Connects to the guest's; nothing is open yet.
    pub(super) fn connect() -> Result<Agent> {
        let address = SocketAddr::new(GUEST_ADDRESS.parse()?, AGENT_PORT);
        let requests = TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .with_context(|| format!("no agent at {address}"))?;
        requests.set_nodelay(true)?;
        requests.set_read_timeout(Some(ANSWER_LIMIT))?;
        let answers: Box<dyn Read> = Box::new(requests.try_clone()?);
        Ok(Agent { requests: Box::new(requests), answers: BufReader::new(answers), process: None })
    }

    /// Starts `program` as one, which speaks the lines on its standard input and output. It uses `address`.
    pub(super) fn start(program: &Path, address: &str) -> Result<Agent> {
        // A socket pair and not pipes, because a read from a socket can have a time limit.
        let (ours, theirs) = UnixStream::pair().context("no socket pair")?;
        ours.set_read_timeout(Some(ANSWER_LIMIT))?;
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .arg("serve")
            .env("HIGHWIRE_ADDR", address)
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .context("cannot run setpriv")?;
        let answers: Box<dyn Read> = Box::new(ours.try_clone()?);
        Ok(Agent { requests: Box::new(ours), answers: BufReader::new(answers), process: Some(process) })
    }

    /// Connects to one that listens on a Unix-domain socket, such as the JVM's.
    pub(super) fn connect_local(socket: &Path) -> Result<Agent> {
        let requests =
            UnixStream::connect(socket).with_context(|| format!("no agent at {}", socket.display()))?;
        requests.set_read_timeout(Some(ANSWER_LIMIT))?;
        let answers: Box<dyn Read> = Box::new(requests.try_clone()?);
        Ok(Agent { requests: Box::new(requests), answers: BufReader::new(answers), process: None })
    }

    /// Sends one request and waits for its answer.
    ///
    /// # Errors
    /// [`Refused`], or the connection is gone.
    pub(super) fn ask(&mut self, request: &str) -> Result<Answer> {
        self.send(request)?;
        self.receive(request)
    }

    /// Sends a request whose answer [`receive`](Agent::receive) reads later, so that the test can act meanwhile.
    pub(super) fn send(&mut self, request: &str) -> Result<()> {
        self.requests.write_all(format!("{request}\n").as_bytes()).context("the agent is gone")
    }

    /// Reads the answer to the oldest request that was sent.
    pub(super) fn receive(&mut self, request: &str) -> Result<Answer> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).with_context(|| format!("no answer to '{request}'"))?;
        if read == 0 {
            bail!("the agent ended at '{request}'");
        }
        let (verdict, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        if verdict == "ok" {
            let fields = rest.split(' ').filter_map(|word| word.split_once('='));
            let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            return Ok(Answer { request: request.to_owned(), fields });
        }
        let (errno, text) = rest.split_once(' ').unwrap_or((rest, ""));
        Err(anyhow!(Refused {
            errno: errno.parse().unwrap_or(0),
            request: request.into(),
            text: text.into()
        }))
    }

    /// Registers `bytes` zeroed bytes with the agent's access letters.
    pub(super) fn register(&mut self, pd: u32, bytes: usize, access: &str) -> Result<Region> {
        let answer = self.ask(&format!("mr pd={pd} bytes={bytes} access={access}"))?;
        Ok(Region { id: answer.number("mr")?, address: answer.number("addr")?, rkey: answer.number("rkey")? })
    }

    /// Waits until `count` completions have come or `limit_ms` have passed; returns those that have come.
    pub(super) fn poll(&mut self, cq: u32, count: usize, limit_ms: u64) -> Result<Vec<WorkCompletion>> {
        self.ask(&format!("poll cq={cq} count={count} ms={limit_ms}"))?.completions()
    }

    /// Where the region's bytes first differ from a seed's pattern, if anywhere.
    pub(super) fn mismatch(
        &mut self,
        region: Region,
        offset: usize,
        length: usize,
        seed: u64,
    ) -> Result<Option<u64>> {
        let answer =
            self.ask(&format!("check mr={} offset={offset} length={length} seed={seed}", region.id))?;
        if answer.number::<u32>("match")? == 1 { Ok(None) } else { answer.number("at").map(Some) }
    }

    /// Runs a shell command in the guest; returns its output, both streams.
    ///
    /// # Errors
    /// The command failed.
    pub(super) fn shell(&mut self, command: &str) -> Result<String> {
        let answer = self.ask(&format!("run {command}"))?;
        let mut output = vec![0; answer.number("bytes")?];
        self.answers.read_exact(&mut output)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        match answer.number::<i32>("status")? {
            0 => Ok(output),
            status => bail!("'{command}' in the guest ended with {status}: {}", output.trim()),
        }
    }

    /// Asks the guest to power off, which does not live to answer.
    pub(super) fn power_off(&mut self) {
        // QEMU's end shows whether it worked; the caller waits for that.
        let _ = self.send("run poweroff -f");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Killed, not asked: an agent that hangs must not outlive its scenario.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Answer {
    /// The value of a key as text.
    pub(super) fn text(&self, key: &str) -> Result<&str> {
        let field = self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        field.with_context(|| format!("the answer to '{}' lacks {key}", self.request))
    }

    /// Every value of a key.
    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The value of a key as a number, decimal or 0x….
    pub(super) fn number<T: TryFrom<i128>>(&self, key: &str) -> Result<T> {
        let text = self.text(key)?;
        parse(text)
            .and_then(|value| T::try_from(value).ok())
            .with_context(|| format!("{key}={text} is no number"))
    }

    fn completions(&self) -> Result<Vec<WorkCompletion>> {
        self.all("wc").map(|text| WorkCompletion::parse(text).with_context(|| format!("wc={text}"))).collect()
    }
}

impl WorkCompletion {
    fn parse(text: &str) -> Option<WorkCompletion> {
        let numbers: Vec<u64> =
            text.split(',').map(|n| u64::try_from(parse(n)?).ok()).collect::<Option<_>>()?;
        let [wr_id, rest @ ..] = numbers.as_slice() else { return None };
        let rest: Vec<u32> = rest.iter().map(|n| u32::try_from(*n).ok()).collect::<Option<_>>()?;
        let [status, opcode, length_bytes, qpn, source_qpn, immediate, flags] = rest[..] else { return None };
        Some(WorkCompletion {
            wr_id: *wr_id,
            status,
            opcode,
            length_bytes,
            qpn,
            source_qpn,
            immediate,
            flags,
        })
    }
}

fn parse(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::WorkCompletion;

    #[test]
    fn a_completion_has_eight_numbers() {
        let completion = WorkCompletion::parse("7,0,128,64,17,18,0xab,2").expect("well formed");
        assert_eq!((completion.wr_id, completion.immediate, completion.flags), (7, 0xab, 2));
        assert_eq!(WorkCompletion::parse("7,0"), None);
        assert_eq!(WorkCompletion::parse("7,0,128,64,17,18,x,2"), None);
    }
}
