//! How nodes find one another: each connects to the others' doors and introduces its queue pair, and each
//! answers with its own.
//!
//! The connection stays open. When it ends the other process has probably ended too, and its next life has
//! another queue pair, so this node connects again until a node answers.

use crate::config::ClusterConfig;
use crate::engine::{Store, named};
use crate::message::{Answer, GREETING, Request, receive, send};
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// The pause between two attempts at a closed door.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts a thread for each other node.
pub(crate) fn introduce(store: &Store, config: &ClusterConfig) -> io::Result<()> {
    for other in config.nodes.iter().filter(|other| other.id != store.introduction.node) {
        let (store, door, id) = (store.clone(), other.door.clone(), other.id);
        named(format!("peer {id}")).spawn(move || {
            loop {
                // However the conversation ended, the next one finds the cause.
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
    // Waits until the connection ends.
    receive::<Answer>(&mut stream).map(drop)
}
