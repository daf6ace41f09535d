//! Apache Ignite, by a door of its nodes (`ignite/Node.java`): a transaction reads in one round trip for each of its steps, and commits in another.
//!
//! Requests and answers are big-endian. A kind that reads one key and no more is a read outside of any transaction.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};
use highwire_txn::workloads::{Access, Procedure, Put, Step, Workload};
use highwire_txn::{Key, Mode, TableId};

use crate::seen::Seen;
use crate::{Ended, Name, Session};

const READ: u8 = 1;
const EXECUTE: u8 = 2;
const COMMIT: u8 = 3;
const ABORT: u8 = 4;
const FILL: u8 = 5;

const DONE: u8 = 0;
const CONFLICT: u8 = 1;

/// Rows that a request asks for outside of transactions.
const ROWS_AT_A_TIME: usize = 256;
/// Rows of a request that fills.
const FILL_AT_A_TIME: usize = 8192;
/// Of those that read one key, once.
const READS: [&str; 2] = ["GET_SUBSCRIBER_DATA", "GET_ACCESS_DATA"];
/// Longer rows are a mistake of the door.
const ROW_BYTES_MAX: i32 = 1 << 16;

/// A connection, and what its transaction has seen.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    workload: Name,
    request: Vec<u8>,
    seen: Seen,
}

impl Connection {
    pub(crate) fn open(at: &str, workload: Name) -> Result<Connection> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream: BufReader::new(stream),
            workload,
            request: Vec::new(),
            seen: Seen::default(),
        })
    }

    fn begin(&mut self, kind: u8, count: usize) -> Result<()> {
        let count = u16::try_from(count).context("too many rows for a request")?;
        self.request.clear();
        self.request.push(kind);
        self.request.extend(count.to_be_bytes());
        Ok(())
    }

    /// Both benchmarks may be in one cluster.
    fn place(&mut self, table: TableId, key: Key) {
        let first = if self.workload == Name::Tatp { 0 } else { 16 };
        self.request.push(first + table.0);
        self.request.extend(key.to_be_bytes());
    }

    /// Sends the request. Whether it was carried out, and met no other transaction.
    fn ask(&mut self) -> Result<bool> {
        self.stream.get_mut().write_all(&self.request)?;
        match self.bytes::<1>()? {
            [DONE] => Ok(true),
            [CONFLICT] => Ok(false),
            [other] => bail!("the door answered {other}"),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).context("the door")?;
        Ok(bytes)
    }

    fn row(&mut self) -> Result<Option<Vec<u8>>> {
        let length = i32::from_be_bytes(self.bytes()?);
        if length > ROW_BYTES_MAX {
            bail!("the door answered with a row of {length} bytes");
        }
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        let mut row = vec![0; length];
        self.stream.read_exact(&mut row).context("the door")?;
        Ok(Some(row))
    }

    /// Reads keys. Whether that met no other transaction.
    fn read(&mut self, kind: u8, accesses: Vec<Access>) -> Result<bool> {
        self.begin(kind, accesses.len())?;
        for access in &accesses {
            self.place(access.table, access.key);
        }
        let is_done = self.ask()?;
        for access in accesses.into_iter().filter(|_| is_done) {
            let row = self.row()?;
            self.seen.0.push((access, row));
        }
        Ok(is_done)
    }

    /// Whether nothing had changed.
    fn commit(&mut self, puts: &[Put]) -> Result<bool> {
        let is_deleted = |access: &&(Access, _)| access.0.mode == Some(Mode::Delete);
        let deleted: Vec<(TableId, Key)> =
            self.seen.0.iter().filter(is_deleted).map(|(access, _)| (access.table, access.key)).collect();
        self.begin(COMMIT, puts.len() + deleted.len())?;
        self.puts(puts)?;
        for (table, key) in deleted {
            self.place(table, key);
            self.request.extend((-1i32).to_be_bytes());
        }
        self.ask()
    }

    fn puts(&mut self, puts: &[Put]) -> Result<()> {
        for put in puts {
            self.place(put.table, put.key);
            self.request.extend(i32::try_from(put.value.len())?.to_be_bytes());
            self.request.extend_from_slice(&put.value);
        }
        Ok(())
    }

    fn abort(&mut self) -> Result<Ended> {
        self.request.clear();
        self.request.push(ABORT);
        self.ask()?;
        Ok(Ended::Refused)
    }
}

impl Session for Connection {
    fn attempt(&mut self, transaction: &mut dyn Procedure) -> Result<Ended> {
        self.seen.0.clear();
        let is_one_read = READS.contains(&transaction.name());
        loop {
            match transaction.step(&self.seen) {
                Step::Execute(accesses) => {
                    let kind = if is_one_read { READ } else { EXECUTE };
                    if !self.read(kind, accesses)? {
                        return Ok(Ended::Conflict);
                    }
                    if !self.seen.is_as_wanted() {
                        return self.abort();
                    }
                }
                Step::Abort => return self.abort(),
                Step::Commit(_) if is_one_read => return Ok(Ended::Committed(0)),
                Step::Commit(puts) => {
                    let is_done = self.commit(&puts)?;
                    return Ok(if is_done { Ended::Committed(transaction.money()) } else { Ended::Conflict });
                }
            }
        }
    }

    fn money(&mut self, customers: u64) -> Result<i64> {
        let keys: Vec<u64> = (0..customers).collect();
        let mut sum = 0;
        for table in [TableId(0), TableId(1)] {
            for some in keys.chunks(ROWS_AT_A_TIME) {
                self.seen.0.clear();
                let accesses = some.iter().map(|&key| Access { table, key, mode: None }).collect();
                if !self.read(READ, accesses)? {
                    bail!("a read without a transaction met another");
                }
                for (_, row) in &self.seen.0 {
                    let Some(&bytes) = row.as_deref().and_then(|row| row.first_chunk()) else {
                        bail!("an account is not there");
                    };
                    sum += i64::from_le_bytes(bytes);
                }
            }
        }
        Ok(sum)
    }
}

/// Puts all rows, each table's together.
pub(crate) fn fill(at: &str, workload: Name, benchmark: &dyn Workload) -> Result<()> {
    let mut connection = Connection::open(at, workload)?;
    let rows: Vec<Put> = benchmark.rows().collect();
    for some in rows.chunks(FILL_AT_A_TIME) {
        connection.begin(FILL, some.len())?;
        connection.puts(some)?;
        if !connection.ask()? {
            bail!("a row met a transaction");
        }
    }
    Ok(())
}
