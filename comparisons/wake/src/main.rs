//! A server for `highwire bench server --beside`: a task of tokio for each connection, on one thread or on one for each core.
//!
//! It prints `port N` on its standard output, and ends when its standard input does.

use std::io::Read;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// Bytes of a request and of a response.
const MESSAGE_BYTES: usize = 32;

/// Answers until the client has gone.
async fn serve(mut stream: TcpStream) {
    let mut bytes = [0; MESSAGE_BYTES];
    while stream.read_exact(&mut bytes).await.is_ok() && stream.write_all(&bytes).await.is_ok() {}
}

async fn accept(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream));
    }
}

fn main() -> Result<()> {
    let mut builder = match std::env::args().nth(1).as_deref() {
        Some("one") => Builder::new_current_thread(),
        Some("many") => Builder::new_multi_thread(),
        _ => bail!("server-tokio one: a thread for all connections; server-tokio many: one for each core"),
    };
    // When the process that started it goes, this one does too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    builder.enable_io().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        println!("port {}", listener.local_addr()?.port());
        // On a worker: the main thread sleeps.
        tokio::spawn(accept(listener)).await?
    })
}
