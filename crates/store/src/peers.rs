//! How nodes find one another: each calls at the others' doors, says where its queue pair is, and is told the same.
//!
//! The conversation stays open. When it ends the other process has probably ended too, and its next life has another queue pair, so this one
//! calls again until a node answers.

use crate::config::ClusterConfig;
use crate::engine::{Store, named};
use crate::message::{Answer, GREETING, Request, receive, send};
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// Between two calls at a door that is closed.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts a thread for each other node.
pub(crate) fn introduce(store: &Store, config: &ClusterConfig) -> io::Result<()> {
    for other in config.nodes.iter().filter(|other| other.id != store.introduction.node) {
        let (store, door, id) = (store.clone(), other.door.clone(), other.id);
        named(format!("peer {id}")).spawn(move || {
            loop {
                // However it ended, the next one finds out what is the matter.
                let _ = converse(&store, &door, id);
                thread::sleep(PAUSE);
            }
        })?;
    }
    Ok(())
}

fn converse(store: &Store, door: &str, id: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(door)?;
    stream.set_nodelay(true)?;
    stream.write_all(&GREETING)?;
    send(&mut stream, &Request::Meet(store.introduction.clone()))?;
    if let Answer::Met(other) = receive(&mut stream)?
        && other.node == id
    {
        store.meet(other);
    }
    // Until it ends.
    receive::<Answer>(&mut stream).map(drop)
}
