//! The exchange of two ends before they have a queue pair: one JSON document per line over TCP.
//!
//! Both ends greet first, with the version of this exchange, so that two releases that do not understand each
//! other report that. A line is bounded and has a deadline: a stranger that connects to the port cannot make
//! this end wait or allocate without end.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the documents; raised whenever one changes in a way that an older end would misread.
const VERSION: u32 = 1;
const LINE_BYTES_MAX: u64 = 64 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The port of the exchange, unless told otherwise; the one that people know from perftest.
pub(crate) const DEFAULT_PORT: u16 = 18515;

#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    program: String,
    exchange: u32,
}

/// A conversation with the other end.
#[derive(Debug)]
pub(crate) struct Exchange {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    peer: SocketAddr,
}

impl Exchange {
    /// Connects to `server` (a name or an address, with or without a port).
    pub(crate) fn connect(server: &str, port: u16) -> Result<Self> {
        let addresses: Vec<SocketAddr> = resolve(server, port)?;
        let mut last = anyhow!("{server} has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return Self::greet(stream),
                Err(error) => last = anyhow!("{address}: {error}"),
            }
        }
        Err(last
            .context(format!("nobody answers at {server}; start the same command there with --listen first")))
    }

    /// Waits for the next end that connects to `listener`.
    pub(crate) fn accept(listener: &TcpListener) -> Result<Self> {
        let (stream, _) = listener.accept().context("waiting for the other end")?;
        Self::greet(stream)
    }

    fn greet(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let peer = stream.peer_addr()?;
        let mut exchange = Self { reader: BufReader::new(stream.try_clone()?), writer: stream, peer };
        exchange.send(&Greeting { program: "highwire".into(), exchange: VERSION })?;
        let theirs: Greeting = exchange.receive().context("the other end is no highwire program")?;
        if theirs.exchange != VERSION {
            bail!(
                "{peer} speaks version {} of the exchange, this program version {VERSION}",
                theirs.exchange
            );
        }
        Ok(exchange)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address by which the other end reaches this machine; `None` if it is on this machine.
    pub(crate) fn address_for_peer(&self) -> Result<Option<IpAddr>> {
        let local = self.writer.local_addr()?.ip();
        Ok((local != self.peer.ip()).then_some(local))
    }

    pub(crate) fn send(&mut self, document: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(document)?;
        line.push(b'\n');
        self.writer.write_all(&line).with_context(|| format!("telling {}", self.peer))
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Ok(0) => bail!("{} ended the conversation", self.peer),
            Ok(_) if line.last() != Some(&b'\n') => bail!("{} sent half a document", self.peer),
            Ok(_) => serde_json::from_slice(&line).with_context(|| format!("{} sent nonsense", self.peer)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                bail!("{} was silent for {} s", self.peer, ANSWER_TIMEOUT.as_secs())
            }
            Err(error) => Err(error).with_context(|| format!("listening to {}", self.peer)),
        }
    }

    /// Whether `receive` would return at once: with a document, or because the other end has gone. Costs a
    /// system call.
    pub(crate) fn has_news(&self) -> Result<bool> {
        if !self.reader.buffer().is_empty() {
            return Ok(true);
        }
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        match peeked {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error).with_context(|| format!("listening to {}", self.peer)),
        }
    }
}

fn resolve(server: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let with_port = server.to_socket_addrs().or_else(|_| (server, port).to_socket_addrs());
    Ok(with_port.with_context(|| format!("cannot resolve {server}"))?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends in one process: `there` runs on a thread of its own and finds its end connected.
    fn converse(there: impl FnOnce(TcpStream) + Send + 'static) -> Result<Exchange> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        std::thread::spawn(move || there(TcpStream::connect(address).expect("somebody listens")));
        Exchange::accept(&listener)
    }

    #[test]
    fn both_ends_greet_and_talk() {
        let mut here = converse(|stream| {
            let mut there = Exchange::greet(stream).expect("both greet");
            let number: u32 = there.receive().expect("a document");
            there.send(&(number + 1)).expect("an answer");
        })
        .expect("both greet");
        here.send(&41u32).expect("a document");
        assert_eq!(here.receive::<u32>().expect("an answer"), 42);
        assert!(here.receive::<u32>().is_err(), "the other end has gone");
        assert!(here.has_news().expect("the socket is there"), "that it has gone is news");
    }

    #[test]
    fn a_stranger_is_told_apart() {
        let error = converse(|mut stream| stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it connects"))
            .expect_err("no greeting");
        assert!(format!("{error:#}").contains("no highwire program"), "{error:#}");
    }

    #[test]
    fn another_version_is_told_apart() {
        let error = converse(|mut stream| {
            stream.write_all(b"{\"program\":\"highwire\",\"exchange\":99}\n").expect("it connects");
        })
        .expect_err("another version");
        assert!(format!("{error:#}").contains("version 99"), "{error:#}");
    }

    #[test]
    fn an_endless_line_ends() {
        let error = converse(|mut stream| {
            let _ = stream.write_all(&vec![b'x'; 2 * LINE_BYTES_MAX as usize]);
        })
        .expect_err("no line is that long");
        assert!(format!("{error:#}").contains("half a document"), "{error:#}");
    }
}
