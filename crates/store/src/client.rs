//! The client library: transactions as closures, over a connection to any node.
//!
//! A transaction reads through the connection and keeps its writes to itself. Committing sends both, the
//! versions that were read and the writes, and the node commits them if everything is still as it was read.
//! If not, the closure runs again. So the closure may run several times, may see a state that never was (then
//! it runs again), and must have no effects outside the transaction that it would regret.

use crate::error::StoreError;
use crate::message::{Answer, Entry, Footprint, GREETING, NodeStatus, Request, WriteRequest, receive, send};
use crate::milestones::Milestone;
use crate::transaction::RANGE_KEYS_MAX;
use crate::{order, rows};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// How long a node may take to let a client in.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// How long a node may take to answer unless set: longer than the node's own patience with a transaction.
const ANSWER_PATIENCE: Duration = Duration::from_secs(8);

/// A table and a key in it.
type Name = (Vec<u8>, Vec<u8>);
/// `None`: the key has no value.
type Value = Option<Vec<u8>>;

/// A client of a cluster. It talks to one node at a time, and to another when it loses that one.
#[derive(Debug)]
pub struct Client {
    doors: Vec<String>,
    next: usize,
    stream: Option<BufReader<TcpStream>>,
    patience: Duration,
    answer_patience: Duration,
    started: Instant,
    counts: Counts,
}

/// Counts of a client's transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that a closure ran again because other transactions conflicted with its own.
    pub retries: u64,
    /// Times that a connection was lost.
    pub reconnects: u64,
}

impl Client {
    /// A client of the cluster with these doors (`host:port`). It connects with its first question.
    pub fn new(doors: impl IntoIterator<Item = impl Into<String>>) -> Client {
        let doors = doors.into_iter().map(Into::into).collect();
        Client {
            doors,
            next: 0,
            stream: None,
            patience: Duration::from_secs(20),
            answer_patience: ANSWER_PATIENCE,
            started: Instant::now(),
            counts: Counts::default(),
        }
    }

    /// How long a transaction may take, all attempts together; 20 seconds unless set.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// How long a node may take to answer before it counts as lost; 8 seconds unless set. With less, the
    /// client notices sooner that a machine is gone without having closed the connection, but a commit that
    /// takes longer has an unknown outcome.
    pub fn set_answer_patience(&mut self, patience: Duration) {
        self.answer_patience = patience.max(Duration::from_millis(1));
    }

    /// How long a transaction may take, all attempts together.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A key's value; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn get(&mut self, table: &str, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        self.transact(|transaction| transaction.get(table, key.as_ref()))
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn put(
        &mut self,
        table: &str,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), StoreError> {
        self.transact(|transaction| {
            transaction.put(table, key.as_ref(), value.as_ref());
            Ok(())
        })
    }

    /// Takes a key away; returns whether it was there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete(&mut self, table: &str, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            let was_there = transaction.get(table, key.as_ref())?.is_some();
            if was_there {
                transaction.delete(table, key.as_ref());
            }
            Ok(was_there)
        })
    }

    /// All entries of a table whose keys begin with `prefix`, in the order of their keys, as they were at one instant.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn scan(&mut self, table: &str, prefix: impl AsRef<[u8]>) -> Result<Vec<Entry>, StoreError> {
        self.transact(|transaction| transaction.scan(table, prefix.as_ref()))
    }

    /// The first `limit` entries of an ordered table from the key `from` on and before the key `to`, in the order
    /// of their keys, as they were at one instant. A table is ordered if its name begins with `ordered.`.
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Invalid`] if the table has no order.
    pub fn range(
        &mut self,
        table: &str,
        from: impl AsRef<[u8]>,
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.transact(|transaction| transaction.range(table, from.as_ref(), to, limit))
    }

    /// Runs a transaction until it commits. An error of the closure ends it, and it has no effect.
    ///
    /// # Errors
    /// The closure's error, or why the transaction could not be committed.
    pub fn transact<T>(
        &mut self,
        mut body: impl FnMut(&mut ClientTransaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + self.patience;
        for attempt in 0u32.. {
            let mut transaction = ClientTransaction {
                client: self,
                seen: Footprint::default(),
                writes: BTreeMap::new(),
                values: BTreeMap::new(),
                reads: 0,
            };
            let result = body(&mut transaction).and_then(|value| transaction.commit().map(|()| value));
            let is_over = Instant::now() >= deadline;
            match result {
                Err(StoreError::Conflict) if !is_over => self.counts.retries += 1,
                // The commit had no effect, and another node may be able to serve.
                Err(StoreError::Unavailable(_)) if !is_over && self.stream.take().is_some() => self.next += 1,
                result => return result,
            }
            // A random part of a limit that doubles: two clients that conflicted should not conflict again.
            let most = 50_000u64 << attempt.min(8);
            let part = self.started.elapsed().subsec_nanos();
            std::thread::sleep(Duration::from_nanos(u64::from(part).wrapping_mul(0x9E37_79B9) % most));
        }
        Err(StoreError::Conflict)
    }

    /// The status of the node that this client talks to.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn status(&mut self) -> Result<NodeStatus, StoreError> {
        match self.ask(&Request::Status)? {
            Answer::Status(status) => Ok(*status),
            answer => Err(unexpected(answer)),
        }
    }

    /// The doors of all nodes that the node knows to which this client talks, by their numbers.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn doors(&mut self) -> Result<Vec<(u16, String)>, StoreError> {
        match self.ask(&Request::Doors)? {
            Answer::Doors(doors) => Ok(doors),
            answer => Err(unexpected(answer)),
        }
    }

    /// The nodes that are primaries of keys, according to the node that this client talks to.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn primaries(&mut self, keys: &[(&str, &[u8])]) -> Result<Vec<u16>, StoreError> {
        let names = keys.iter().map(|(table, key)| (table.as_bytes().to_vec(), key.to_vec()));
        match self.ask(&Request::Locate { keys: names.collect() })? {
            Answer::Located { nodes } if nodes.len() == keys.len() => Ok(nodes),
            answer => Err(unexpected(answer)),
        }
    }

    /// The milestones of the node that this client talks to, the latest last.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn milestones(&mut self) -> Result<Vec<Milestone>, StoreError> {
        match self.ask(&Request::Milestones)? {
            Answer::Milestones(milestones) => Ok(milestones),
            answer => Err(unexpected(answer)),
        }
    }

    /// Ends the node that this client talks to, and no other one.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if the connection is lost before the node has answered; [`StoreError`].
    pub fn stop_node(&mut self) -> Result<(), StoreError> {
        match self.tell(&Request::Stop)? {
            Answer::Stopping => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    /// Asks the node that this client talks to to leave the cluster. It ends when its data has moved to the others.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if too few would stay; [`StoreError::Unknown`] if the connection is lost before the node has answered, and no other
    /// node is asked; [`StoreError`].
    pub fn leave(&mut self) -> Result<(), StoreError> {
        match self.tell(&Request::Leave)? {
            Answer::Leaving => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    fn read(&mut self, keys: &[Name]) -> Result<(Vec<Value>, Footprint), StoreError> {
        keys.iter().try_for_each(|(table, key)| rows::check_key(table, key))?;
        match self.ask(&Request::Get { keys: keys.to_vec() })? {
            Answer::Got { values, seen } if values.len() == keys.len() => Ok((values, seen)),
            answer => Err(unexpected(answer)),
        }
    }

    /// Asks a question that changes nothing, so that it can be asked again elsewhere.
    fn ask(&mut self, request: &Request) -> Result<Answer, StoreError> {
        let deadline = Instant::now() + self.patience;
        loop {
            self.connect(deadline)?;
            match self.exchange(request) {
                // The node ends. Nothing was changed by this question, so nothing about it is unknown.
                Ok(Answer::Failed(StoreError::Unknown(why))) => {
                    return Ok(Answer::Failed(StoreError::Unavailable(why)));
                }
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() >= deadline => {
                    return Err(StoreError::Unavailable(format!("the connection was lost: {error}")));
                }
                Err(_) => {}
            }
        }
    }

    /// Asks one node for what it must not do twice, and what no other node may do in its place.
    fn tell(&mut self, request: &Request) -> Result<Answer, StoreError> {
        self.connect(Instant::now() + self.patience)?;
        // It may have arrived before the connection was lost.
        self.exchange(request).map_err(lost)
    }

    fn commit(&mut self, request: &Request) -> Result<(), StoreError> {
        match self.tell(request)? {
            Answer::Committed => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    /// Asks a node once. If that node cannot serve, the next question goes to another one.
    pub(crate) fn ask_once(&mut self, request: &Request) -> Result<Answer, StoreError> {
        self.connect(Instant::now() + self.patience)?;
        let answer = self.exchange(request);
        if matches!(answer, Ok(Answer::Failed(StoreError::Unavailable(_)))) {
            self.stream = None;
            self.next += 1;
        }
        answer.map_err(lost)
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        let result = match &mut self.stream {
            Some(stream) => send(stream.get_mut(), request).and_then(|()| receive(stream)),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        if result.is_err() {
            // The next question goes elsewhere: a stopped process still accepts connections.
            self.stream = None;
            self.next += 1;
            self.counts.reconnects += 1;
        }
        result
    }

    /// Finds a node that lets this client in: tries each in turn, the last one used first.
    fn connect(&mut self, deadline: Instant) -> Result<(), StoreError> {
        let mut errors = Vec::new();
        while self.stream.is_none() {
            if self.doors.is_empty() {
                return Err(StoreError::Unavailable("the client knows no node".into()));
            }
            let door = &self.doors[self.next % self.doors.len()];
            match enter(door, self.answer_patience) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => {
                    errors.push(format!("{door}: {error}"));
                    self.next += 1;
                    if errors.len() >= self.doors.len() {
                        if Instant::now() >= deadline || errors.len() >= NOBODY.max(self.doors.len()) {
                            errors.truncate(self.doors.len());
                            let what = format!("no node lets a client in ({})", errors.join("; "));
                            return Err(StoreError::Unavailable(what));
                        }
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
        }
        Ok(())
    }
}

/// After this many refusals by all nodes, a client believes that there is no store.
const NOBODY: usize = 9;

/// A conversation with one node, for questions that only this node can answer.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: BufReader<TcpStream>,
}

impl Conversation {
    pub(crate) fn enter(door: &str) -> io::Result<Conversation> {
        Ok(Conversation { stream: enter(door, ANSWER_PATIENCE)? })
    }

    pub(crate) fn tell(&mut self, request: &Request) -> io::Result<()> {
        send(self.stream.get_mut(), request)
    }

    pub(crate) fn hear(&mut self) -> io::Result<Answer> {
        receive(&mut self.stream)
    }
}

fn enter(door: &str, patience: Duration) -> io::Result<BufReader<TcpStream>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in door.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(mut stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.write_all(&GREETING)?;
                return Ok(BufReader::new(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn lost(error: io::Error) -> StoreError {
    StoreError::Unknown(format!("the connection was lost: {error}"))
}

fn unexpected(answer: Answer) -> StoreError {
    match answer {
        Answer::Failed(error) => error,
        _ => StoreError::invalid(
            "the node answered something else than was asked: another version of this program?",
        ),
    }
}

/// A transaction of a client, as its closure sees it.
#[derive(Debug)]
pub struct ClientTransaction<'a> {
    client: &'a mut Client,
    seen: Footprint,
    writes: BTreeMap<Name, Value>,
    /// The values read: a key that is read twice has one value.
    values: BTreeMap<Name, Value>,
    reads: usize,
}

impl ClientTransaction<'_> {
    /// A key's value, as this transaction sees it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn get(&mut self, table: &str, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        let mut values = self.get_all(&[(table, key.as_ref())])?;
        Ok(values.pop().flatten())
    }

    /// Values of several keys, with one question.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn get_all(&mut self, keys: &[(&str, &[u8])]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names: Vec<Name> =
            keys.iter().map(|(table, key)| (table.as_bytes().to_vec(), key.to_vec())).collect();
        let is_known = |name: &&Name| self.writes.contains_key(*name) || self.values.contains_key(*name);
        let unknown: Vec<_> = names.iter().filter(|name| !is_known(name)).cloned().collect();
        if !unknown.is_empty() {
            let (values, seen) = self.client.read(&unknown)?;
            self.reads += 1;
            self.seen.rows.extend(seen.rows);
            self.values.extend(unknown.into_iter().zip(values));
        }
        let value = |name| self.writes.get(name).or_else(|| self.values.get(name)).cloned().flatten();
        Ok(names.iter().map(value).collect())
    }

    /// All entries of a table whose keys begin with `prefix`, in the order of their keys. An entry that is
    /// added or removed there before this transaction commits is a conflict.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn scan(&mut self, table: &str, prefix: impl AsRef<[u8]>) -> Result<Vec<Entry>, StoreError> {
        let (table, prefix) = (table.as_bytes().to_vec(), prefix.as_ref().to_vec());
        let request = Request::Scan { table: table.clone(), prefix: prefix.clone() };
        let (entries, seen) = match self.client.ask(&request)? {
            Answer::Scanned { entries, seen } => (entries, seen),
            answer => return Err(unexpected(answer)),
        };
        self.reads += 1;
        self.seen.extend(seen);
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> =
            entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        for ((_, key), value) in
            self.writes.iter().filter(|((of, key), _)| *of == table && key.starts_with(&prefix))
        {
            match value {
                Some(value) => found.insert(key.clone(), value.clone()),
                None => found.remove(key),
            };
        }
        Ok(found.into_iter().map(|(key, value)| Entry { key, value }).collect())
    }

    /// The first `limit` entries of an ordered table from the key `from` on and before the key `to`, in the order
    /// of their keys. An entry that is added, changed or removed there before this transaction commits is a conflict.
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Invalid`] if the table has no order.
    pub fn range(
        &mut self,
        table: &str,
        from: impl AsRef<[u8]>,
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let (table, mut from) = (table.as_bytes().to_vec(), from.as_ref().to_vec());
        order::check(&table)?;
        let own: Vec<(Vec<u8>, Value)> = self
            .writes
            .range((table.clone(), from.clone())..)
            .take_while(|((of, key), _)| *of == table && to.is_none_or(|to| key.as_slice() < to))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        // So many that enough are left if this transaction has deleted some.
        let enough = limit.saturating_add(own.len());
        let mut found = BTreeMap::new();
        while found.len() < enough {
            let limit = RANGE_KEYS_MAX.min(enough - found.len());
            let (table, to) = (table.clone(), to.map(<[u8]>::to_vec));
            let request = Request::Range { table, from: from.clone(), to, limit: limit as u32 };
            let (entries, seen) = match self.client.ask(&request)? {
                Answer::Scanned { entries, seen } => (entries, seen),
                answer => return Err(unexpected(answer)),
            };
            self.reads += 1;
            self.seen.extend(seen);
            let count = entries.len();
            // The next key behind the last one.
            if let Some(last) = entries.last() {
                from = [last.key.as_slice(), &[0]].concat();
            }
            found.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
            if count < limit {
                break;
            }
        }
        for (key, value) in own {
            match value {
                Some(value) => found.insert(key, value),
                None => found.remove(&key),
            };
        }
        Ok(found.into_iter().take(limit).map(|(key, value)| Entry { key, value }).collect())
    }

    /// Gives a key a value, when the transaction commits.
    pub fn put(&mut self, table: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let name = (table.as_bytes().to_vec(), key.as_ref().to_vec());
        self.writes.insert(name, Some(value.as_ref().to_vec()));
    }

    /// Takes a key away, when the transaction commits.
    pub fn delete(&mut self, table: &str, key: impl AsRef<[u8]>) {
        self.writes.insert((table.as_bytes().to_vec(), key.as_ref().to_vec()), None);
    }

    fn commit(self) -> Result<(), StoreError> {
        // One question is answered at one instant, which is when the transaction happened.
        if self.writes.is_empty() && self.reads <= 1 {
            return Ok(());
        }
        for ((table, key), value) in &self.writes {
            rows::check_key(table, key)?;
            rows::check_value(value.as_deref().unwrap_or_default())?;
        }
        let write = |((table, key), value)| WriteRequest { table, key, value };
        let is_read_only = self.writes.is_empty();
        let writes: Vec<WriteRequest> = self.writes.into_iter().map(write).collect();
        let bytes: usize = writes.iter().map(WriteRequest::bytes).sum();
        if bytes > rows::WRITE_BYTES_MAX {
            return Err(rows::writes_too_much(bytes));
        }
        let request = Request::Commit { seen: self.seen, writes };
        match self.client.commit(&request) {
            // The transaction changes nothing: it is as if it had not been tried.
            Err(StoreError::Unknown(_)) if is_read_only => Err(StoreError::Conflict),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// A door that gives each client this one answer. Its thread ends with the test.
    fn door_that_answers(answer: fn() -> Answer) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let door = listener.local_addr().expect("its address").to_string();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read_exact(&mut [0; GREETING.len()]);
                let mut stream = BufReader::new(stream);
                while receive::<Request>(&mut stream).is_ok() {
                    let _ = send(stream.get_mut(), &answer());
                }
            }
        });
        door
    }

    fn ending() -> Answer {
        Answer::Failed(StoreError::Unknown("the node has ended".into()))
    }

    #[test]
    fn a_read_that_meets_a_node_that_ends_is_answered_by_another() {
        let serves = || Answer::Got { values: vec![Some(b"v".to_vec())], seen: Footprint::default() };
        let mut client = Client::new([door_that_answers(ending), door_that_answers(serves)]);
        assert_eq!(client.get("t", "k"), Ok(Some(b"v".to_vec())));
    }

    #[test]
    fn a_write_that_meets_a_node_that_ends_is_not_tried_again() {
        let commits = || Answer::Committed;
        let mut client = Client::new([door_that_answers(ending), door_that_answers(commits)]);
        assert_eq!(client.put("t", "k", "v"), Err(StoreError::Unknown("the node has ended".into())));
    }
}
