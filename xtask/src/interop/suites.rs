//! Command lines of others' programs and suites on the kernel's RNIC alone: both ends are in the guest, and Highwire takes no part.
//!
//! `cargo xtask compat --beside-rxe` compares their results with its own. Its tasks go to the run inside the namespace in a
//! file, and their outputs come back in another.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::agent::Agent;
use super::namespace::{self, GUEST_ADDRESS};
use super::{Args, initramfs, kernel, work_dir};

/// A run of one program, or of a server and its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) server: Option<String>,
    pub(crate) client: String,
    pub(crate) seconds_max: u64,
    /// The server goes on when its client has ended.
    pub(crate) server_stays: bool,
}

/// The output of an end, and its exit status; none if it was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) output: String,
    pub(crate) status: Option<i32>,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) client: End,
    pub(crate) server: Option<End>,
}

/// What came of all of them, in their order, and on which version of the kernel.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) kernel: String,
    pub(crate) ran: Vec<Ran>,
}

/// Where `{address}` leads in the guest.
pub(crate) const ADDRESS: &str = GUEST_ADDRESS;

/// How often a client may come before its server listens.
const ATTEMPTS: u32 = 10;
/// The statuses with which `timeout` ends: its own, and those of the signals that it sends.
const TIMED_OUT: [i32; 3] = [124, 137, 143];

/// Boots the guest with these programs and folders in it, and plays the tasks there in their order.
///
/// # Errors
/// A tool that exists but does not work. That this machine cannot run the guest is a reason and no error.
pub(crate) fn play(tasks: &[Task], more: &[PathBuf]) -> Result<Result<Played, String>> {
    if let Some(reason) = super::obstacle()? {
        return Ok(Err(reason));
    }
    let work = work_dir()?;
    let kernel = kernel::fetch(&work)?;
    initramfs::build_with(&kernel, &[], more, &work)?;
    let list: Vec<Value> = tasks.iter().map(Task::to_json).collect();
    fs::write(tasks_path(&work), Value::from(list).to_string())?;
    let _ = fs::remove_file(results_path(&work));
    namespace::reenter(&Args { suites: true, ..Args::default() })?;
    let text = fs::read(results_path(&work)).context("the run in the guest has left no results")?;
    let list: Vec<Value> = serde_json::from_slice(&text)?;
    Ok(Ok(Played { kernel: kernel.release(), ran: list.iter().map(Ran::from_json).collect() }))
}

/// The part inside the namespace, with the guest running.
pub(super) fn play_inside() -> Result<()> {
    let work = work_dir()?;
    let tasks: Vec<Value> = serde_json::from_slice(&fs::read(tasks_path(&work))?)?;
    let mut results = Vec::new();
    for (index, task) in tasks.iter().map(Task::from_json).enumerate() {
        let ran = play_one(&task).with_context(|| task.client.clone())?;
        let status = ran.client.status.map_or("ended".into(), |status| status.to_string());
        println!("[{:>3}/{}] {}: {status}", index + 1, tasks.len(), task.client);
        results.push(ran.to_json());
    }
    fs::write(results_path(&work), Value::from(results).to_string())?;
    Ok(())
}

fn tasks_path(work: &Path) -> PathBuf {
    work.join("suites.json")
}

fn results_path(work: &Path) -> PathBuf {
    work.join("suites.results.json")
}

fn play_one(task: &Task) -> Result<Ran> {
    // A connection of its own: what a command leaves behind ends with it.
    let mut guest = Agent::connect()?;
    guest.shell(&script(task))?;
    let mut end = |name: &str| -> Result<End> {
        let status = guest.shell(&format!("cat /tmp/{name}.status 2>/dev/null || true"))?;
        let status = status.trim().parse().ok().filter(|status| !TIMED_OUT.contains(status));
        Ok(End { output: guest.shell(&format!("cat /tmp/{name}.log"))?, status })
    };
    let client = end("client")?;
    let server = task.server.as_ref().map(|_| end("server")).transpose()?;
    Ok(Ran { client, server })
}

/// The task as one line for the guest's shell, which always succeeds.
fn script(task: &Task) -> String {
    let limit = format!("timeout -k 2 {}", task.seconds_max);
    let mut text = String::from("cd /tmp; rm -f /tmp/*.status /tmp/*.log; ");
    let client =
        format!("{limit} {} > /tmp/client.log 2>&1 < /dev/null; echo $? > /tmp/client.status", task.client);
    let Some(server) = &task.server else { return text + &client };
    text += &format!(
        "( {limit} {server} > /tmp/server.log 2>&1 < /dev/null; echo $? > /tmp/server.status ) & server=$!; \
         for attempt in $(seq {ATTEMPTS}); do sleep 0.5; {client}; \
         test $(cat /tmp/client.status) = 0 && break; test -e /tmp/server.status && break; done; "
    );
    if task.server_stays {
        let program = server.split_whitespace().next().unwrap_or_default();
        text += &format!("killall {program} 2> /dev/null; ");
    }
    text + "wait $server; true"
}

impl Task {
    fn to_json(&self) -> Value {
        json!([self.server, self.client, self.seconds_max, self.server_stays])
    }

    fn from_json(value: &Value) -> Task {
        Task {
            server: value[0].as_str().map(String::from),
            client: value[1].as_str().unwrap_or_default().into(),
            seconds_max: value[2].as_u64().unwrap_or_default(),
            server_stays: value[3].as_bool().unwrap_or_default(),
        }
    }
}

impl End {
    fn to_json(&self) -> Value {
        json!([self.output, self.status])
    }

    fn from_json(value: &Value) -> End {
        let status = value[1].as_i64().and_then(|status| i32::try_from(status).ok());
        End { output: value[0].as_str().unwrap_or_default().into(), status }
    }
}

impl Ran {
    fn to_json(&self) -> Value {
        json!([self.client.to_json(), self.server.as_ref().map(End::to_json)])
    }

    fn from_json(value: &Value) -> Ran {
        let server = Some(&value[1]).filter(|server| !server.is_null());
        Ran { client: End::from_json(&value[0]), server: server.map(End::from_json) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_results_come_back_as_they_were() {
        let task = Task { server: None, client: "a b".into(), seconds_max: 7, server_stays: false };
        let pair = Task { server: Some("s".into()), server_stays: true, ..task.clone() };
        assert_eq!([&task, &pair].map(|task| Task::from_json(&task.to_json())), [task, pair]);
        let end = End { output: "x\n\"y\"".into(), status: None };
        let ran = Ran { client: End { status: Some(0), ..end.clone() }, server: Some(end.clone()) };
        let alone = Ran { client: end, server: None };
        assert_eq!([&ran, &alone].map(|ran| Ran::from_json(&ran.to_json())), [ran, alone]);
    }

    #[test]
    fn a_server_that_stays_is_ended_and_a_client_that_fails_is_tried_again() {
        let task = Task { server: Some("x".into()), client: "y".into(), seconds_max: 1, server_stays: true };
        let text = script(&task);
        assert!(
            text.contains("killall x") && text.contains("seq 10") && text.ends_with("wait $server; true")
        );
        let alone = script(&Task { server: None, ..task });
        assert!(
            !alone.contains("killall") && alone.contains("timeout -k 2 1 y > /tmp/client.log"),
            "{alone}"
        );
    }
}
