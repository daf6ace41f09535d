//! How nodes find one another: each connects to the others' doors and introduces its queue pair, and each
//! answers with its own, and with the doors that it knows.
//!
//! So a node that joins needs to know some nodes only, and those that were there need not know it: they hear of it. The connection stays
//! open. When it ends the other process has probably ended too, and its next life has another queue pair, so this node connects
//! again until a node answers.

use crate::config::ClusterConfig;
use crate::engine::{Store, named};
use crate::error::StoreError;
use crate::message::{Answer, GREETING, Introduction, Request, Shape, receive, send};
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// The pause between two attempts at a closed door.
const PAUSE: Duration = Duration::from_millis(100);
/// After so many attempts, a node that is not in the cluster's file is given up: it has left, or will introduce itself again.
const ATTEMPTS_MAX: u32 = 3000;

/// Starts a thread for each other node.
pub(crate) fn introduce(store: &Store, config: &ClusterConfig) -> io::Result<()> {
    let others = config.nodes.iter().filter(|other| other.id != store.introduction.node);
    others.into_iter().try_for_each(|other| visit(store, other.id, false))
}

/// Starts a thread that visits a node again and again.
pub(crate) fn visit(store: &Store, node: u16, is_learned: bool) -> io::Result<()> {
    let store = store.clone();
    let visits = move || {
        let mut attempts = 0;
        while let Some(door) = store.door_of(node) {
            let mut has_met = false;
            // However the conversation ended, the next one finds the cause.
            let _ = converse(&store, &door, node, &mut has_met);
            attempts = if has_met { 0 } else { attempts + 1 };
            if is_learned && attempts >= ATTEMPTS_MAX {
                store.forget(node);
            }
            thread::sleep(PAUSE);
        }
    };
    named(format!("peer {node}")).spawn(visits).map(drop)
}

fn converse(store: &Store, door: &str, id: u16, has_met: &mut bool) -> io::Result<()> {
    let mut stream = TcpStream::connect(door)?;
    stream.set_nodelay(true)?;
    stream.write_all(&GREETING)?;
    send(&mut stream, &Request::Meet(store.introduction.clone()))?;
    match receive(&mut stream)? {
        Answer::Met { node, doors } if node.node == id => {
            *has_met = true;
            store.meet(node);
            // What the other node knows by hearsay must not replace what this one has been told.
            for (node, door) in doors.into_iter().filter(|known| store.door_of(known.0).is_none()) {
                store.learn(node, &door);
            }
        }
        Answer::Failed(StoreError::Invalid(why)) => store.refused(why),
        _ => {}
    }
    // Waits until the connection ends.
    receive::<Answer>(&mut stream).map(drop)
}

/// What all nodes of a cluster must share, as this file has it.
pub(crate) fn shape_of(config: &ClusterConfig, has_data: bool) -> Shape {
    Shape { f: config.f as u16, regions: config.regions as u16, workers: config.workers, has_data }
}

/// Whether two nodes can be of one cluster.
pub(crate) fn check_shape(other: &Introduction, own: &Introduction) -> Result<(), StoreError> {
    let (theirs, ours) = (&other.shape, &own.shape);
    let numbers = [
        ("f", theirs.f, ours.f),
        ("regions", theirs.regions, ours.regions),
        ("workers", theirs.workers, ours.workers),
    ];
    if let Some((name, theirs, ours)) = numbers.into_iter().find(|(_, theirs, ours)| theirs != ours) {
        return Err(StoreError::invalid(format!(
            "`{name}` is {theirs} here and {ours} at node {}, and must be the same",
            own.node
        )));
    }
    match (theirs.has_data, ours.has_data) {
        (true, false) => Err(StoreError::invalid(format!(
            "node {} has a `data` folder and node {} has none",
            other.node, own.node
        ))),
        (false, true) => Err(StoreError::invalid(format!(
            "node {} has no `data` folder and node {} has one",
            other.node, own.node
        ))),
        _ => Ok(()),
    }
}
