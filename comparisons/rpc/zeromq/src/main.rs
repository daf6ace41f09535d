//! ZeroMQ: a dealer that keeps requests under way, and a router that answers them. Each end has, besides the thread that is measured, libzmq's own
//! for input and output, on the same core. All of them sleep in the kernel.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use comparisons_echo::{Book, PATIENCE, Report, Server, System};
use zmq::{Context as Zmq, Message, Socket};

/// The beginning of a Unix socket's address.
const IPC: &str = "ipc://";
/// The interval between two checks whether the server must end.
const LOOK_MS: i32 = 50;

struct Zeromq;

impl System for Zeromq {
    fn serve(over: &str, server: &'static Server) -> Result<()> {
        let place = match over {
            "tcp" => "tcp://127.0.0.1:*".to_string(),
            "unix" => format!("{IPC}{}", path().display()),
            _ => bail!("ZeroMQ is asked over tcp and unix, and not over {over}"),
        };
        let context = Zmq::new();
        let socket = context.socket(zmq::ROUTER)?;
        socket.set_rcvtimeo(LOOK_MS)?;
        socket.set_linger(0)?;
        socket.bind(&place)?;
        server.is_at(socket.get_last_endpoint()?.ok().context("the endpoint is no text")?);
        let (mut name, mut body) = (Message::new(), Message::new());
        while !server.is_over() {
            match socket.recv(&mut name, 0) {
                Ok(()) => {
                    socket.recv(&mut body, 0)?;
                    server.reply(&mut body);
                    socket.send(std::mem::replace(&mut name, Message::new()), zmq::SNDMORE)?;
                    socket.send(std::mem::replace(&mut body, Message::new()), 0)?;
                }
                Err(zmq::Error::EAGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A router answers in the order of one dealer's requests.
    fn call(_over: &str, place: &str, book: Book) -> Result<Report> {
        let context = Zmq::new();
        let socket = context.socket(zmq::DEALER)?;
        socket.set_rcvtimeo(PATIENCE.as_millis() as i32)?;
        socket.set_linger(0)?;
        socket.connect(place)?;
        let report = ask(&socket, book);
        if let Some(path) = place.strip_prefix(IPC) {
            // The server removes it itself, unless it is killed before.
            let _ = std::fs::remove_file(path);
        }
        report
    }
}

fn ask(socket: &Socket, mut book: Book) -> Result<Report> {
    let mut under_way = VecDeque::new();
    let mut reply = Message::new();
    for _ in 0..book.window() {
        under_way.extend(book.request());
    }
    for request in &under_way {
        socket.send(&request.bytes[..], 0)?;
    }
    while let Some(request) = under_way.pop_front() {
        socket.recv(&mut reply, 0).context("no reply")?;
        book.answered(&request, &reply)?;
        let Some(next) = book.request() else { break };
        socket.send(&next.bytes[..], 0)?;
        under_way.push_back(next);
    }
    book.report()
}

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("echo-zeromq-{}", std::process::id()))
}

fn main() -> ExitCode {
    comparisons_echo::run::<Zeromq>()
}
