//! `highwire store get|put|delete|scan|txn|status`: clients of a cluster.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use highwire_store::{Access, Client, ClientTransaction, ClusterConfig, Entry, NodeStatus, StoreError};
use serde_json::{Value, json};

use crate::console::{Console, Tone};
use crate::failure::usage;

/// The user's password.
const PASSWORD: &str = "HIGHWIRE_STORE_PASSWORD";

/// Which cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Cluster {
    /// Doors of the cluster's nodes, `host:port`, with commas in between.
    #[arg(
        long,
        value_delimiter = ',',
        env = "HIGHWIRE_STORE",
        default_value = "127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402"
    )]
    at: Vec<String>,
    /// The cluster's file, which names the doors.
    #[arg(long, conflicts_with = "at")]
    config: Option<PathBuf>,
    /// The user as whom to ask, of a cluster that has users. The password is in HIGHWIRE_STORE_PASSWORD, or in a file.
    #[arg(long, env = "HIGHWIRE_STORE_USER")]
    user: Option<String>,
    /// A file whose first line is the user's password.
    #[arg(long, requires = "user", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Speak TLS, to nodes whose certificates are of the authority in this file.
    #[arg(long, env = "HIGHWIRE_STORE_TLS_AUTHORITY", value_name = "PEM")]
    tls_authority: Option<PathBuf>,
    /// The client's own certificate, if nodes ask for one.
    #[arg(long, requires_all = ["tls_authority", "tls_key"], value_name = "PEM")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the client's certificate.
    #[arg(long, requires = "tls_certificate", value_name = "PEM")]
    tls_key: Option<PathBuf>,
    /// How many seconds to try for.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Cluster {
    /// The doors of its nodes.
    pub(crate) fn doors(&self) -> Result<Vec<String>> {
        match &self.config {
            Some(path) => Ok(ClusterConfig::load(path).map_err(|error| usage(error.to_string()))?.doors()),
            None => Ok(self.at.clone()),
        }
    }

    /// Whether to print JSON.
    pub(super) fn prints_json(&self) -> bool {
        self.json
    }

    pub(crate) fn client(&self) -> Result<Client> {
        let mut client = self.client_of(self.doors()?)?;
        client.set_patience(Duration::from_secs(self.patience));
        Ok(client)
    }

    /// A client of some of the nodes.
    pub(super) fn client_of(&self, doors: impl IntoIterator<Item = String>) -> Result<Client> {
        let mut client = Client::new(doors);
        client.set_access(self.access()?);
        Ok(client)
    }

    fn access(&self) -> Result<Access> {
        let access = self.user_access()?;
        let access = match (&self.tls_authority, &self.tls_certificate, &self.tls_key) {
            (None, ..) => Ok(access),
            (Some(authority), Some(certificate), Some(key)) => {
                access.with_certificate(authority, certificate, key)
            }
            (Some(authority), ..) => access.with_tls(authority),
        };
        access.map_err(usage)
    }

    fn user_access(&self) -> Result<Access> {
        let Some(user) = &self.user else { return Ok(Access::anonymous()) };
        let password = match &self.password_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
                text.lines().next().unwrap_or_default().to_string()
            }
            None => std::env::var(PASSWORD).map_err(|_| {
                usage(format!(
                    "--user {user}: the password must be in {PASSWORD}, or in a file (--password-file)"
                ))
            })?,
        };
        Ok(Access::user(user, password))
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// The table.
    table: String,
    /// The key.
    key: String,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, clap::Args)]
pub(super) struct Put {
    /// The table; there is no need to make it first.
    table: String,
    /// The key.
    key: String,
    /// The value; `-` is the standard input.
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, clap::Args)]
pub(super) struct Delete {
    /// The table.
    table: String,
    /// The key.
    key: String,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, clap::Args)]
pub(super) struct Scan {
    /// The table.
    table: String,
    /// Only keys that begin with this.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Only keys from this one on. The table must be ordered: its name begins with `ordered.`.
    #[arg(long, conflicts_with = "prefix")]
    from: Option<String>,
    /// Only keys before this one, of an ordered table.
    #[arg(long, conflicts_with = "prefix")]
    to: Option<String>,
    /// At most so many.
    #[arg(long)]
    limit: Option<usize>,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, clap::Args)]
pub(super) struct Txn {
    /// The operations, in order; without any, lines of the standard input.
    operations: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    cluster: Cluster,
}

/// A client's error, in words and with the right exit status.
pub(super) fn told(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Invalid(what) => usage(what),
        error => error.into(),
    }
}

pub(super) fn get(args: &Get) -> Result<ExitCode> {
    let value = args.cluster.client()?.get(&args.table, &args.key).map_err(told)?;
    let Some(value) = value else { bail!("`{}` has no key `{}`", args.table, args.key) };
    let mut console = Console::new();
    match args.cluster.json {
        true => console.json(&json!({ "table": args.table, "key": args.key, "value": text(&value) }))?,
        false => console.bytes(&value)?,
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn put(args: &Put) -> Result<ExitCode> {
    let mut value = args.value.clone().into_bytes();
    if args.value == "-" {
        value.clear();
        std::io::stdin().read_to_end(&mut value).context("the standard input")?;
    }
    args.cluster.client()?.put(&args.table, &args.key, &value).map_err(told)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn delete(args: &Delete) -> Result<ExitCode> {
    if !args.cluster.client()?.delete(&args.table, &args.key).map_err(told)? {
        bail!("`{}` has no key `{}`", args.table, args.key);
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn scan(args: &Scan) -> Result<ExitCode> {
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut client = args.cluster.client()?;
    let is_range = args.from.is_some() || args.to.is_some();
    let entries = if is_range || args.prefix.is_empty() && args.table.starts_with("ordered.") {
        let to = args.to.as_deref().map(str::as_bytes);
        client.range(&args.table, args.from.as_deref().unwrap_or_default(), to, limit)
    } else {
        client.scan(&args.table, &args.prefix)
    };
    let mut entries = entries.map_err(told)?;
    entries.truncate(limit);
    let mut console = Console::new();
    if args.cluster.json {
        let json = |entry: &Entry| json!({ "key": text(&entry.key), "value": text(&entry.value) });
        console.json(&entries.iter().map(json).collect::<Vec<_>>())?;
    } else {
        for Entry { key, value } in &entries {
            console.line(format!("{}\t{}", String::from_utf8_lossy(key), String::from_utf8_lossy(value)))?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Text as a string; other bytes as numbers, so that nothing is lost.
fn text(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}

/// One operation of a transaction.
#[derive(Debug, PartialEq, Eq)]
enum Operation {
    Get { table: String, key: String },
    Put { table: String, key: String, value: String },
    Delete { table: String, key: String },
    Add { table: String, key: String, number: i64 },
    Check { table: String, key: String, value: String },
    AtLeast { table: String, key: String, number: i64 },
}

impl Operation {
    fn parse(line: &str) -> Result<Operation> {
        let mut words = line.trim().splitn(4, char::is_whitespace);
        let mut word = || words.next().map(str::to_string);
        let wrong = || usage(format!("`{line}` is no operation; see `highwire store txn --help`"));
        let (name, table, key) =
            (word().ok_or_else(wrong)?, word().ok_or_else(wrong)?, word().ok_or_else(wrong)?);
        let rest = word();
        let number = || -> Result<i64> {
            let text = rest.clone().ok_or_else(wrong)?;
            text.parse().map_err(|_| usage(format!("`{line}`: `{text}` is no whole number of 64 bits")))
        };
        let value = || rest.clone().ok_or_else(wrong);
        Ok(match name.as_str() {
            "get" if rest.is_none() => Operation::Get { table, key },
            "put" => Operation::Put { value: value()?, table, key },
            "delete" if rest.is_none() => Operation::Delete { table, key },
            "add" => Operation::Add { number: number()?, table, key },
            "check" => Operation::Check { value: value()?, table, key },
            "atleast" => Operation::AtLeast { number: number()?, table, key },
            _ => return Err(wrong()),
        })
    }

    /// Carries out the operation; returns the text to print.
    fn run(&self, transaction: &mut ClientTransaction<'_>) -> Result<Option<Value>, StoreError> {
        match self {
            Operation::Get { table, key } => {
                let value = transaction.get(table, key)?;
                return Ok(Some(value.map_or(Value::Null, |value| text(&value))));
            }
            Operation::Put { table, key, value } => transaction.put(table, key, value),
            Operation::Delete { table, key } => transaction.delete(table, key),
            Operation::Add { table, key, number } => {
                let sum = number_in(transaction, table, key)?.checked_add(*number);
                let sum =
                    sum.ok_or_else(|| StoreError::Aborted(format!("`{table} {key}` would exceed 64 bits")))?;
                transaction.put(table, key, sum.to_string());
            }
            Operation::Check { table, key, value } => {
                if transaction.get(table, key)?.as_deref() != Some(value.as_bytes()) {
                    return Err(StoreError::Aborted(format!(
                        "`{table} {key}` is not `{value}`; nothing was changed"
                    )));
                }
            }
            Operation::AtLeast { table, key, number } => {
                let there = number_in(transaction, table, key)?;
                if there < *number {
                    let what = format!("`{table} {key}` is {there}, less than {number}; nothing was changed");
                    return Err(StoreError::Aborted(what));
                }
            }
        }
        Ok(None)
    }
}

fn number_in(transaction: &mut ClientTransaction<'_>, table: &str, key: &str) -> Result<i64, StoreError> {
    let Some(value) = transaction.get(table, key)? else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        StoreError::Aborted(format!("`{table} {key}` is no whole number; nothing was changed"))
    })
}

pub(super) fn txn(args: &Txn) -> Result<ExitCode> {
    let mut lines = args.operations.clone();
    if lines.is_empty() {
        let text = std::io::read_to_string(std::io::stdin()).context("the standard input")?;
        lines.extend(text.lines().filter(|line| !line.trim().is_empty()).map(String::from));
    }
    let operations: Vec<Operation> =
        lines.iter().map(|line| Operation::parse(line)).collect::<Result<_>>()?;
    let results = args.cluster.client()?.transact(|transaction| {
        let results = operations.iter().map(|operation| operation.run(transaction));
        results.collect::<Result<Vec<_>, _>>()
    });
    let results = results.map_err(told)?;
    let mut console = Console::new();
    if args.cluster.json {
        console.json(&results)?;
    } else {
        for value in results.into_iter().flatten() {
            match value {
                Value::String(text) => console.line(text)?,
                Value::Null => console.line("(none)")?,
                other => console.line(other)?,
            }
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// A door, and the status of the node behind it.
type Asked = (String, Result<NodeStatus, StoreError>);

/// Asks all doors at once.
fn ask(doors: Vec<String>, access: &Access) -> Vec<Asked> {
    std::thread::scope(|scope| {
        let ask = |door: String| {
            let mut client = Client::new([door.clone()]);
            client.set_access(access.clone());
            client.set_patience(Duration::from_secs(1));
            let status = client.status();
            (door, status)
        };
        let threads: Vec<_> = doors.into_iter().map(|door| scope.spawn(move || ask(door))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Doors of members that were not asked.
fn unlisted(asked: &[Asked], access: &Access) -> Vec<String> {
    let Some((door, status)) = asked.iter().find_map(|(door, status)| Some((door, status.as_ref().ok()?)))
    else {
        return Vec::new();
    };
    let is_known =
        |node: u16| asked.iter().any(|(_, status)| status.as_ref().is_ok_and(|status| status.node == node));
    let mut client = Client::new([door.clone()]);
    client.set_access(access.clone());
    client.set_patience(Duration::from_secs(1));
    let doors = client.doors().unwrap_or_default().into_iter();
    let others = doors.filter(|(node, _)| status.members.contains(node) && !is_known(*node));
    others.map(|(_, door)| door).filter(|door| asked.iter().all(|known| known.0 != *door)).collect()
}

/// How far members that come and go are, for the newest of what the nodes know.
fn moves(known: &[&NodeStatus]) -> Vec<String> {
    let Some(newest) = known.iter().max_by_key(|status| (status.configuration, status.revision)) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for holding in &newest.holdings {
        let node = holding.node;
        if newest.leaving.contains(&node) {
            lines.push(format!(
                "node {node} leaves: {} regions are still with it",
                holding.complete + holding.coming
            ));
        } else if holding.coming > 0 {
            lines.push(format!(
                "node {node} gets copies: {} of its {} regions are complete",
                holding.complete,
                holding.complete + holding.coming
            ));
        }
    }
    lines
}

/// Fails if no node can serve.
pub(super) fn status(args: &Status) -> Result<ExitCode> {
    let access = args.cluster.access()?;
    let mut asked = ask(args.cluster.doors()?, &access);
    // Nodes that have joined since the doors were written down.
    asked.extend(ask(unlisted(&asked, &access), &access));

    let mut console = Console::new();
    let known: Vec<&NodeStatus> = asked.iter().filter_map(|(_, status)| status.as_ref().ok()).collect();
    let latest = known.iter().map(|status| status.configuration).max();
    let is_settled = known.iter().any(|status| Some(status.configuration) == latest && status.is_settled);
    let mut serves = false;
    let mut list = Vec::new();
    for (door, status) in &asked {
        match status {
            Ok(status) => {
                serves |= status.is_open;
                list.push(json!({ "door": door, "status": status }));
                if !args.cluster.json {
                    show(&mut console, door, status, is_settled)?;
                }
            }
            Err(error) => {
                list.push(json!({ "door": door, "error": error.to_string() }));
                if !args.cluster.json {
                    console.line(format!("{door:<22} {}: {error}", console.paint(Tone::Bad, "silent")))?;
                }
            }
        }
    }
    let moves = moves(&known);
    if args.cluster.json {
        console.json(&json!({ "serves": serves, "nodes": list, "moves": moves }))?;
    } else {
        moves.iter().try_for_each(|line| console.line(line))?;
    }
    console.finish()?;
    Ok(if serves { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(console: &mut Console, door: &str, status: &NodeStatus, is_settled: bool) -> Result<()> {
    let state = match (status.is_open, is_settled) {
        (true, true) => console.paint(Tone::Good, "serves"),
        (true, false) => console.paint(Tone::Good, "serves, copies under way"),
        (false, _) if status.configuration == 0 => console.paint(Tone::Bad, "starting"),
        (false, _) if status.is_member => console.paint(Tone::Bad, "recovers"),
        _ => console.paint(Tone::Bad, "waits to be let in"),
    };
    let members: Vec<String> = status.members.iter().map(u16::to_string).collect();
    console.line(format!(
        "{door:<22} node {} {state} · process {} · configuration {} of nodes {} · primary of {} regions, {} copies · {} committed, {} conflicts, {} unknown",
        status.node,
        status.process,
        status.configuration,
        members.join(" "),
        status.primary_of,
        status.copy_of,
        status.committed,
        status.conflicts,
        status.unknown,
    ))?;
    if !status.is_open {
        console.line(format!("{:<22} {}", "", status.standing))?;
    }
    if status.fullest_percent >= 80 {
        let warning = format!("nearly full: {} % of rows_max = {}", status.fullest_percent, status.rows_max);
        console.line(format!("{:<22} {}", "", console.paint(Tone::Bad, &warning)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_and_wrong_ones_are_named() {
        let (table, key) = ("t".to_string(), "k".to_string());
        assert_eq!(
            Operation::parse("get t k").ok(),
            Some(Operation::Get { table: table.clone(), key: key.clone() })
        );
        let value = "two words".to_string();
        let put = Operation::Put { table: table.clone(), key: key.clone(), value };
        assert_eq!(Operation::parse("put t k two words").ok(), Some(put));
        assert_eq!(Operation::parse("add t k -5").ok(), Some(Operation::Add { table, key, number: -5 }));
        for wrong in ["", "get t", "get t k v", "put t k", "add t k five", "drop t k"] {
            assert!(Operation::parse(wrong).is_err(), "{wrong}");
        }
    }
}
