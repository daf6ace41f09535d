//! How nodes find one another: each connects to the others' doors and introduces its queue pair, and each
//! answers with its own, and with the doors that it knows.
//!
//! So a node that joins needs to know some nodes only, and those that were there need not know it: they hear of it. The connection stays
//! open. When it ends the other process has probably ended too, and its next life has another queue pair, so this node connects
//! again until a node answers.

use crate::client::{Conversation, EntryError};
use crate::config::ClusterConfig;
use crate::engine::{Store, named, say};
use crate::error::StoreError;
use crate::message::{Answer, Introduction, Request, Shape};
use crate::register::Register;
use highwire_txn::{Agreed, ConfigurationService as _};
use std::io;
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
        let (mut attempts, mut said) = (0, None);
        while let Some(door) = store.door_of(node) {
            let mut has_met = false;
            match converse(&store, &door, node, &mut has_met) {
                // Whoever is there may be no node: that ends nothing here, and is said once.
                Err(EntryError::Failed(error)) if said.as_ref() != Some(&error) => {
                    say(format_args!("node {node} at {door} is not taken for one: {error}"));
                    said = Some(error);
                }
                // However the conversation ended, the next one finds the cause.
                _ => {}
            }
            attempts = if has_met { 0 } else { attempts + 1 };
            if is_learned && attempts >= ATTEMPTS_MAX {
                store.forget(node);
            }
            thread::sleep(PAUSE);
        }
    };
    named(format!("peer {node}")).spawn(visits).map(drop)
}

fn converse(store: &Store, door: &str, id: u16, has_met: &mut bool) -> Result<(), EntryError> {
    let mut conversation = Conversation::enter(door, &store.access)?;
    conversation.tell(&Request::Meet(store.introduction.clone()))?;
    match conversation.hear()? {
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
    conversation.wait_for_ever()?;
    Ok(conversation.hear().map(drop)?)
}

/// What all nodes of a cluster must share, as this file has it.
pub(crate) fn shape_of(config: &ClusterConfig, has_data: bool) -> Shape {
    let agreed = config.settings().agreed();
    Shape {
        f: agreed.f,
        regions: config.regions as u16,
        workers: agreed.workers,
        has_data,
        lease_ms: config.lease_ms,
        rows_max: agreed.rows_max,
        drift_ppm_max: agreed.drift_ppm_max,
        schema: agreed.schema,
    }
}

/// Whether two nodes can be of one cluster. `is_new`: the cluster has not begun, so that no register has the numbers that can be changed.
pub(crate) fn check_shape(other: &Introduction, own: &Introduction, is_new: bool) -> Result<(), StoreError> {
    let (theirs, ours) = (&other.shape, &own.shape);
    let numbers = [
        ("f", u64::from(theirs.f), u64::from(ours.f)),
        ("regions", u64::from(theirs.regions), u64::from(ours.regions)),
        ("workers", u64::from(theirs.workers), u64::from(ours.workers)),
        ("drift_ppm_max of the program", theirs.drift_ppm_max, ours.drift_ppm_max),
        ("schema of the program", theirs.schema, ours.schema),
    ];
    let changeable =
        [("lease_ms", theirs.lease_ms, ours.lease_ms), ("rows_max", theirs.rows_max, ours.rows_max)];
    let changeable = changeable.into_iter().filter(|_| is_new);
    let mut all = numbers.into_iter().chain(changeable);
    if let Some((name, theirs, ours)) = all.find(|(_, theirs, ours)| theirs != ours) {
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

/// Whether a node with its own numbers can be one of the cluster whose numbers are these.
pub(crate) fn check_agreed(own: &Agreed, agreed: &Agreed) -> Result<(), String> {
    let Some((name, here, there)) = own.difference(agreed) else { return Ok(()) };
    Err(match name {
        "lease_ns" => {
            let ms = |ns: u64| ns as f64 / 1e6;
            differs("lease_ms", ms(here), ms(there), CHANGED)
        }
        "rows_max" => differs(name, here, there, CHANGED),
        "f" | "workers" => differs(name, here, there, "it cannot be changed"),
        _ => differs(name, here, there, "this is another version of the program"),
    })
}

const CHANGED: &str = "change the file, or the cluster with `highwire store configure`";

fn differs(name: &str, here: impl std::fmt::Display, there: impl std::fmt::Display, advice: &str) -> String {
    format!("`{name}` is {here} here and {there} in the cluster's register: {advice}")
}

/// Lets the cluster share the numbers of this file from now on. Returns whether it did not before.
///
/// # Errors
/// The register cannot be read or changed, or a number cannot be changed: its name, and both values.
pub fn configure(config: &ClusterConfig) -> Result<bool, String> {
    let text = |error| format!("the register: {error}");
    let mut register = Register::open(&config.register).map_err(text)?;
    let wanted = config.settings().agreed();
    loop {
        let holds = register
            .holds()
            .map_err(text)?
            .ok_or("the cluster has not begun: its nodes take the numbers of their file")?;
        if holds.regions.len() != config.regions {
            return Err(differs("regions", config.regions, holds.regions.len(), "it cannot be changed"));
        }
        if holds.agreed == Some(wanted) {
            return Ok(false);
        }
        if let Some(agreed) = &holds.agreed {
            let fixed = Agreed { lease_ns: wanted.lease_ns, rows_max: wanted.rows_max, ..*agreed };
            check_agreed(&wanted, &fixed)?;
        }
        let next = holds.with_other_numbers(wanted, config.f).map_err(|refusal| {
            format!("the cluster cannot change now, because copies are missing ({refusal:?})")
        })?;
        let after = register.compare_and_swap(holds.id, holds.revision, next.clone()).map_err(text)?;
        if after == next {
            return Ok(true);
        }
    }
}
