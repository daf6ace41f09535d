//! The server over TCP: a thread for each connection that blocks in `read`, or one for all in `epoll_wait`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::epoll;

use super::{Connections, Load, MESSAGE_BYTES, Outcome, drive, own_cost};

const STACK_BYTES: usize = 128 << 10;
/// The most events that one call returns.
const EVENTS_MAX: usize = 64;

pub(super) struct Client(pub(super) Vec<TcpStream>);

impl Connections for Client {
    fn send(&mut self, connection: usize) -> Result<()> {
        self.0[connection].write_all(&[0; MESSAGE_BYTES]).context("cannot ask")
    }

    fn poll(&mut self, waiting: &[usize]) -> Result<Option<usize>> {
        for &connection in waiting {
            match self.0[connection].read(&mut [0; MESSAGE_BYTES]) {
                // Thirty-two bytes on the loopback come in one piece.
                Ok(MESSAGE_BYTES) => return Ok(Some(connection)),
                Ok(length) => bail!("a response of {length} bytes"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("no response"),
            }
        }
        Ok(None)
    }
}

/// Answers until the client has gone.
fn serve(mut stream: &TcpStream) -> Result<()> {
    let mut bytes = [0; MESSAGE_BYTES];
    loop {
        match stream.read_exact(&mut bytes) {
            Ok(()) => stream.write_all(&bytes)?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error).context("no request"),
        }
    }
}

/// Answers on all connections.
fn serve_all(streams: &[TcpStream]) -> Result<()> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, stream) in (0..).zip(streams) {
        stream.set_nonblocking(true)?;
        epoll::add(&set, stream, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    let mut left = streams.len();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    while left > 0 {
        events.clear();
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None) {
            Err(rustix::io::Errno::INTR) => continue,
            waited => waited?,
        };
        for event in &events {
            let mut stream = &streams[event.data.u64() as usize];
            let mut bytes = [0; MESSAGE_BYTES];
            match stream.read(&mut bytes) {
                Ok(0) => {
                    epoll::delete(&set, stream)?;
                    left -= 1;
                }
                Ok(length) => stream.write_all(&bytes[..length])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("no request"),
            }
        }
    }
    Ok(())
}

pub(super) fn play(is_epoll: bool, load: Load) -> Result<Outcome> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    let (mut client, mut served) = (Vec::new(), Vec::new());
    for _ in 0..load.connections {
        let ours = TcpStream::connect(listener.local_addr()?).context("cannot connect")?;
        let (theirs, _) = listener.accept()?;
        ours.set_nodelay(true)?;
        theirs.set_nodelay(true)?;
        ours.set_nonblocking(true)?;
        client.push(ours);
        served.push(theirs);
    }
    let mut client = Client(client);
    thread::scope(|threads| {
        let small = || thread::Builder::new().stack_size(STACK_BYTES);
        let mut serving = Vec::new();
        if is_epoll {
            serving.push(small().spawn_scoped(threads, || serve_all(&served))?);
        } else {
            for stream in &served {
                serving.push(small().spawn_scoped(threads, move || serve(stream))?);
            }
        }
        thread::sleep(Duration::from_millis(20));
        let outcome = drive(&mut client, load, &own_cost);
        drop(client);
        for thread in serving {
            thread.join().unwrap_or_else(|_| bail!("a thread of the server panicked"))?;
        }
        outcome
    })
}
