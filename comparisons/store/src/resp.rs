//! Redis's protocol: a transaction watches the keys that it reads, and EXEC does nothing if one of them has
//! changed.
//!
//! The steps are those of Highwire's own workers: WATCH and MGET read in one round trip what a worker reads
//! in one, and MULTI and EXEC commit in another. A kind that only reads, once, is one MGET, which is atomic
//! by itself.

use anyhow::{Context, Result, bail};
use highwire_txn::workloads::{Access, Procedure, Put, Step, Workload};
use highwire_txn::{Key, Mode, TableId};
use redis::{Pipeline, RedisError, Value};

use crate::seen::Seen;
use crate::{Ended, Name, Session};

/// Keys that one MSET sets.
const KEYS_AT_A_TIME: usize = 64;
/// Of those that only read, once.
const READS: [&str; 3] = ["BALANCE", "GET_SUBSCRIBER_DATA", "GET_ACCESS_DATA"];

/// A connection, and the keys that its transaction has read.
pub(crate) struct Connection {
    connection: redis::Connection,
    workload: Name,
    seen: Seen,
}

/// Both benchmarks may be in one server.
fn name(workload: Name, table: TableId, key: Key) -> String {
    match workload {
        Name::Tatp => format!("t{}:{key:x}", table.0),
        Name::Smallbank => format!("s{}:{key:x}", table.0),
    }
}

fn connect(at: &str) -> Result<redis::Connection> {
    Ok(redis::Client::open(format!("redis://{at}/"))?.get_connection()?)
}

impl Connection {
    pub(crate) fn open(at: &str, workload: Name) -> Result<Connection> {
        Ok(Connection { connection: connect(at)?, workload, seen: Seen::default() })
    }

    /// Reads keys in one round trip, and watches them unless that is needless.
    fn read(&mut self, accesses: Vec<Access>, is_watched: bool) -> Result<(), RedisError> {
        let names: Vec<String> =
            accesses.iter().map(|access| name(self.workload, access.table, access.key)).collect();
        let mut pipeline = Pipeline::new();
        if is_watched {
            pipeline.cmd("WATCH").arg(&names).ignore();
        }
        pipeline.cmd("MGET").arg(&names);
        let (values,): (Vec<Option<Vec<u8>>>,) = pipeline.query(&mut self.connection)?;
        self.seen.0.extend(accesses.into_iter().zip(values));
        Ok(())
    }

    /// Whether no key had changed.
    fn commit(&mut self, puts: &[Put]) -> Result<bool, RedisError> {
        let mut pipeline = Pipeline::new();
        pipeline.atomic();
        for Put { table, key, value } in puts {
            pipeline.cmd("SET").arg(name(self.workload, *table, *key)).arg(value);
        }
        for (access, _) in &self.seen.0 {
            if access.mode == Some(Mode::Delete) {
                pipeline.cmd("DEL").arg(name(self.workload, access.table, access.key));
            }
        }
        if pipeline.is_empty() {
            // EXEC reports whether a watched key has changed, if it has commands.
            let seen = self
                .seen
                .0
                .first()
                .map_or_else(String::new, |(access, _)| name(self.workload, access.table, access.key));
            pipeline.cmd("GET").arg(seen);
        }
        let answer: Value = pipeline.query(&mut self.connection)?;
        Ok(answer != Value::Nil)
    }

    fn forget(&mut self) -> Result<(), RedisError> {
        redis::cmd("UNWATCH").query(&mut self.connection)
    }

    fn steps(&mut self, transaction: &mut dyn Procedure) -> Result<Ended, RedisError> {
        self.seen.0.clear();
        let is_watched = !READS.contains(&transaction.name());
        loop {
            match transaction.step(&self.seen) {
                Step::Execute(accesses) => {
                    self.read(accesses, is_watched)?;
                    if !self.seen.is_as_wanted() {
                        self.forget()?;
                        return Ok(Ended::Refused);
                    }
                }
                Step::Abort => {
                    if is_watched {
                        self.forget()?;
                    }
                    return Ok(Ended::Refused);
                }
                Step::Commit(_) if !is_watched => return Ok(Ended::Committed(0)),
                Step::Commit(puts) => {
                    let is_done = self.commit(&puts)?;
                    return Ok(if is_done { Ended::Committed(transaction.money()) } else { Ended::Conflict });
                }
            }
        }
    }
}

impl Session for Connection {
    fn attempt(&mut self, transaction: &mut dyn Procedure) -> Result<Ended> {
        match self.steps(transaction) {
            // The answer of Highwire's door under contention, after it has tried by itself.
            Err(error) if error.code() == Some("TRYAGAIN") => {
                let _ = self.forget();
                Ok(Ended::Conflict)
            }
            result => result.with_context(|| transaction.name().to_string()),
        }
    }

    fn money(&mut self, customers: u64) -> Result<i64> {
        let keys: Vec<u64> = (0..customers).collect();
        let mut sum = 0;
        for table in [TableId(0), TableId(1)] {
            for some in keys.chunks(KEYS_AT_A_TIME) {
                let names: Vec<String> = some.iter().map(|key| name(self.workload, table, *key)).collect();
                let values: Vec<Option<Vec<u8>>> =
                    redis::cmd("MGET").arg(names).query(&mut self.connection)?;
                for value in values {
                    let Some(&bytes) = value.as_deref().and_then(|value| value.first_chunk()) else {
                        bail!("an account is not there");
                    };
                    sum += i64::from_le_bytes(bytes);
                }
            }
        }
        Ok(sum)
    }
}

/// Sets all rows.
pub(crate) fn fill(at: &str, workload: Name, benchmark: &dyn Workload) -> Result<()> {
    let mut connection = connect(at)?;
    let mut rows = benchmark.rows().peekable();
    while rows.peek().is_some() {
        let mut command = redis::cmd("MSET");
        for row in rows.by_ref().take(KEYS_AT_A_TIME) {
            command.arg(name(workload, row.table, row.key)).arg(row.value);
        }
        command.query::<()>(&mut connection)?;
    }
    Ok(())
}
