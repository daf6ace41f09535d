//! PostgreSQL: a function for each kind of transaction, called once and committed by itself.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use highwire_txn::workloads::{Procedure, Put, Workload};
use postgres::error::SqlState;
use postgres::{Client, NoTls, Statement};

use crate::{Ended, Name, Session};

const TATP: &str = include_str!("tatp.sql");
const SMALLBANK: &str = include_str!("smallbank.sql");
/// Keys that only full tables have.
const TATP_KEYS: &str = include_str!("tatp_keys.sql");
const SMALLBANK_KEYS: &str = include_str!("smallbank_keys.sql");

/// A connection with every function prepared.
pub(crate) struct Connection {
    client: Client,
    functions: BTreeMap<String, Statement>,
}

fn connect(at: &str) -> Result<Client> {
    let mut client = Client::connect(at, NoTls).with_context(|| at.to_string())?;
    client.batch_execute("SET default_transaction_isolation = 'serializable'")?;
    Ok(client)
}

impl Connection {
    pub(crate) fn open(at: &str, workload: Name) -> Result<Connection> {
        let mut client = connect(at)?;
        let functions = kinds(workload)
            .iter()
            .map(|name| {
                let parameters = match workload {
                    Name::Tatp => "$1, $2, $3, $4, $5",
                    Name::Smallbank => "$1, $2",
                };
                Ok((name.to_uppercase(), client.prepare(&format!("SELECT {name}({parameters})"))?))
            })
            .collect::<Result<_>>()?;
        Ok(Connection { client, functions })
    }
}

fn kinds(workload: Name) -> &'static [&'static str] {
    match workload {
        Name::Tatp => &[
            "get_subscriber_data",
            "get_access_data",
            "get_new_destination",
            "update_subscriber_data",
            "update_location",
            "insert_call_forwarding",
            "delete_call_forwarding",
        ],
        Name::Smallbank => {
            &["amalgamate", "balance", "deposit_checking", "send_payment", "transact_savings", "write_check"]
        }
    }
}

impl Session for Connection {
    /// A function returns by how much the money has grown, or nothing if it has refused.
    fn attempt(&mut self, transaction: &mut dyn Procedure) -> Result<Ended> {
        let name = transaction.name();
        let function = self.functions.get(name).with_context(|| format!("no function for {name}"))?;
        let arguments = transaction.arguments();
        let arguments: Vec<_> =
            arguments.iter().map(|argument| argument as &(dyn postgres::types::ToSql + Sync)).collect();
        match self.client.query_one(function, &arguments) {
            Ok(row) => Ok(row.try_get::<_, Option<i64>>(0)?.map_or(Ended::Refused, Ended::Committed)),
            Err(error) => match error.code() {
                Some(code) if is_conflict(code) => Ok(Ended::Conflict),
                _ => Err(error).with_context(|| name.to_string()),
            },
        }
    }

    fn money(&mut self, _: u64) -> Result<i64> {
        let sum = "SELECT ((SELECT sum(balance) FROM savings) + (SELECT sum(balance) FROM checking))::bigint";
        Ok(self.client.query_one(sum, &[])?.try_get(0)?)
    }
}

/// The errors that, according to the manual, must be tried again.
fn is_conflict(code: &SqlState) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION]
        .contains(code)
}

/// Makes tables and functions, and copies the rows in.
pub(crate) fn fill(at: &str, workload: Name, benchmark: &dyn Workload) -> Result<()> {
    let mut client = connect(at)?;
    let (schema, keys, tables): (_, _, &[&str]) = match workload {
        Name::Tatp => {
            (TATP, TATP_KEYS, &["subscriber", "", "access_info", "special_facility", "call_forwarding"])
        }
        Name::Smallbank => (SMALLBANK, SMALLBANK_KEYS, &["savings", "checking"]),
    };
    client.batch_execute(schema)?;
    for (number, table) in tables.iter().enumerate().filter(|(_, table)| !table.is_empty()) {
        let mut writer = client.copy_in(&format!("COPY {table} FROM STDIN"))?;
        for row in benchmark.rows().filter(|row| usize::from(row.table.0) == number) {
            writeln!(writer, "{}", line(workload, &row))?;
        }
        writer.finish()?;
    }
    client.batch_execute(keys)?;
    client.batch_execute("VACUUM ANALYZE")?;
    Ok(())
}

/// A row in the text format of COPY. Values of TATP's have as many bytes here as there.
fn line(workload: Name, row: &Put) -> String {
    let (value, key) = (&row.value, row.key);
    let hex = |bytes: &[u8]| {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\\\\x{digits}")
    };
    if workload == Name::Smallbank {
        let balance = value.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        return format!("{key}\t{balance}");
    }
    let (subscriber, kind, start) = (key & 0xFFFF_FFFF, key >> 32 & 0xFF, key >> 40);
    match row.table.0 {
        // Its number is in the table, which a second index finds.
        0 => format!("{subscriber}\t{subscriber}\t{}\t{}\t{}", value[8], value[36], hex(&value[..34])),
        2 => format!("{subscriber}\t{kind}\t{}", hex(value)),
        3 => format!("{subscriber}\t{kind}\t{}\t{}\t{}", value[0] == 1, value[2], hex(&value[..5])),
        _ => format!("{subscriber}\t{kind}\t{start}\t{}\t{}", value[0], hex(&value[1..])),
    }
}
