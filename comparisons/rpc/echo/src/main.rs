//! The floor: 32 bytes there and back through a socket of the kernel, with nothing on top. Both ends sleep in `read`.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use comparisons_echo::{Book, PATIENCE, Report, SIZE, Server, System};

struct Sockets;

/// As many as the widest window.
const BUFFER_BYTES: usize = 512 * SIZE;

impl System for Sockets {
    fn serve(over: &str, server: &'static Server) -> Result<()> {
        match over {
            "tcp" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                server.is_at(listener.local_addr()?);
                for stream in listener.incoming() {
                    let stream = stream?;
                    stream.set_nodelay(true)?;
                    answer(stream, server);
                }
            }
            "unix" => {
                let path = socket();
                let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
                server.is_at(path.display());
                for stream in listener.incoming() {
                    answer(stream?, server);
                }
            }
            _ => bail!("sockets know tcp and unix, and not {over}"),
        }
        Ok(())
    }

    fn call(over: &str, place: &str, book: Book) -> Result<Report> {
        match over {
            "tcp" => {
                let stream = TcpStream::connect(place).with_context(|| place.to_string())?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                ask(stream, book)
            }
            "unix" => {
                let stream = UnixStream::connect(place).with_context(|| place.to_string())?;
                // The only client has come: no other process needs the name.
                let _ = std::fs::remove_file(place);
                stream.set_read_timeout(Some(PATIENCE))?;
                ask(stream, book)
            }
            _ => bail!("sockets know tcp and unix, and not {over}"),
        }
    }
}

fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("echo-sockets-{}", std::process::id()))
}

/// Until the client goes; requests may arrive in parts.
fn answer(mut stream: impl Read + Write, server: &Server) {
    let mut buffer = [0; BUFFER_BYTES];
    let mut here = 0;
    while let Ok(more @ 1..) = stream.read(&mut buffer[here..]) {
        here += more;
        let whole = here / SIZE * SIZE;
        buffer[..whole].chunks_exact_mut(SIZE).for_each(|reply| server.reply(reply));
        if stream.write_all(&buffer[..whole]).is_err() {
            return;
        }
        buffer.copy_within(whole..here, 0);
        here -= whole;
    }
}

/// As many new requests follow together as were answered together.
fn ask(mut stream: impl Read + Write, mut book: Book) -> Result<Report> {
    let mut under_way = VecDeque::new();
    let mut free = book.window();
    let (mut out, mut buffer, mut here) = (Vec::new(), [0; BUFFER_BYTES], 0);
    loop {
        out.clear();
        for _ in 0..std::mem::take(&mut free) {
            let Some(request) = book.request() else { return book.report() };
            out.extend_from_slice(&request.bytes);
            under_way.push_back(request);
        }
        stream.write_all(&out)?;
        while free == 0 {
            let more = stream.read(&mut buffer[here..]).context("no reply")?;
            if more == 0 {
                bail!("the server has gone");
            }
            here += more;
            let whole = here / SIZE * SIZE;
            for reply in buffer[..whole].chunks_exact(SIZE) {
                let request = under_way.pop_front().context("a reply to nothing")?;
                book.answered(&request, reply)?;
                free += 1;
            }
            buffer.copy_within(whole..here, 0);
            here -= whole;
        }
    }
}

fn main() -> ExitCode {
    comparisons_echo::run::<Sockets>()
}
