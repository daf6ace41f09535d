//! The client library: transactions as closures, over a connection to any node, or over RPCs.
//!
//! A transaction reads through the connection and keeps its writes to itself. Committing sends both, the
//! versions that were read and the writes, and the node commits them if everything is still as it was read.
//! If not, the closure runs again. So the closure may run several times, may see a state that never was (then
//! it runs again), and must have no effects outside the transaction that it would regret.

mod asynchronous;
mod backoff;
mod connection;
mod line;
mod stream;
mod transaction;

pub use asynchronous::AsyncClient;
pub(crate) use connection::{Conversation, EntryError};
pub use transaction::{AsyncTransaction, ClientTransaction};

use crate::access::Access;
use crate::error::StoreError;
use crate::message::{Answer, Entry, NodeStatus, Request};
use crate::milestones::Milestone;
use asynchronous::Attempts;
use std::time::Duration;

/// A table and a key in it.
type Name = (Vec<u8>, Vec<u8>);
/// `None`: the key has no value.
type Value = Option<Vec<u8>>;

/// How a client's questions travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over a connection of TCP, or TLS.
    #[default]
    Tcp,
    /// As RPCs over Highwire: through shared memory to a node of this machine, over UDP to others. A connection of TCP stays beside them: the
    /// client comes in by it, long questions and answers take it, and its end tells that the node has ended.
    Rpc,
}

/// A client of a cluster. It talks to one node at a time, and to another when it loses that one.
///
/// With [`Transport::Rpc`] it belongs to the thread that uses it: on another thread it connects anew.
#[derive(Debug)]
pub struct Client {
    inner: AsyncClient,
}

/// Counts of a client's transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that a closure ran again because other transactions conflicted with its own.
    pub retries: u64,
    /// Times that a connection was lost, or a door was full.
    pub reconnects: u64,
    /// Times that this client waited before it tried a door again.
    pub pauses: u64,
}

impl Client {
    /// A client of the cluster with these doors (`host:port`). It connects with its first question.
    pub fn new(doors: impl IntoIterator<Item = impl Into<String>>) -> Client {
        Client { inner: AsyncClient::new(doors) }
    }

    /// What the client shows of itself when it connects; nothing unless set.
    pub fn set_access(&mut self, access: Access) {
        self.inner.set_access(access);
    }

    /// How questions travel; over TCP unless set.
    pub fn set_transport(&mut self, transport: Transport) {
        self.inner.set_transport(transport);
    }

    pub(crate) fn access(&self) -> &Access {
        &self.inner.access
    }

    /// The seed of the random parts of pauses between attempts; the system gives one unless it is set.
    pub fn set_seed(&mut self, seed: u64) {
        self.inner.set_seed(seed);
    }

    /// How long a transaction may take, all attempts together; 20 seconds unless set.
    pub fn set_patience(&mut self, patience: Duration) {
        self.inner.set_patience(patience);
    }

    /// How long a node may take to answer before it counts as lost; 8 seconds unless set. With less, the
    /// client notices sooner that a machine is gone without having closed the connection, but a commit that
    /// takes longer has an unknown outcome.
    pub fn set_answer_patience(&mut self, patience: Duration) {
        self.inner.set_answer_patience(patience);
    }

    /// How long a transaction may take, all attempts together.
    pub fn patience(&self) -> Duration {
        self.inner.patience
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.inner.counts()
    }

    /// A key's value; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn get(&mut self, table: &str, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.block_on(self.inner.get(table, key))
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
        self.inner.block_on(self.inner.put(table, key, value))
    }

    /// Takes a key away; returns whether it was there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete(&mut self, table: &str, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.inner.block_on(self.inner.delete(table, key))
    }

    /// All entries of a table whose keys begin with `prefix`, in the order of their keys, as they were at one instant. Other clients' writes do not
    /// make it fail: a node that they get in the way of reads a snapshot.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn scan(&mut self, table: &str, prefix: impl AsRef<[u8]>) -> Result<Vec<Entry>, StoreError> {
        self.inner.block_on(self.inner.scan(table, prefix))
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
        self.inner.block_on(self.inner.range(table, from, to, limit))
    }

    /// Runs a transaction until it commits. An error of the closure ends it, and it has no effect.
    ///
    /// The closure may run several times, and may read values that never were there together. Whatever it returns, a value or an error, counts
    /// only if all that it read was true at one instant; otherwise it runs again.
    ///
    /// # Errors
    /// The closure's error, or why the transaction could not be committed.
    pub fn transact<T>(
        &mut self,
        mut body: impl FnMut(&mut ClientTransaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let inner = &self.inner;
        let mut attempts = Attempts::new(inner.patience);
        loop {
            let mut transaction = ClientTransaction(AsyncTransaction::new(inner));
            let result = body(&mut transaction);
            if let Some(result) = inner.block_on(inner.settle(transaction.0, result, &mut attempts)) {
                return result;
            }
        }
    }

    /// The status of the node that this client talks to.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn status(&mut self) -> Result<NodeStatus, StoreError> {
        self.inner.block_on(self.inner.status())
    }

    /// The doors of all nodes that the node knows to which this client talks, by their numbers.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn doors(&mut self) -> Result<Vec<(u16, String)>, StoreError> {
        self.inner.block_on(self.inner.doors())
    }

    /// The nodes that are primaries of keys, according to the node that this client talks to.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn primaries(&mut self, keys: &[(&str, &[u8])]) -> Result<Vec<u16>, StoreError> {
        self.inner.block_on(self.inner.primaries(keys))
    }

    /// The milestones of the node that this client talks to, the latest last.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn milestones(&mut self) -> Result<Vec<Milestone>, StoreError> {
        self.inner.block_on(self.inner.milestones())
    }

    /// Ends the node that this client talks to, and no other one.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if the connection is lost before the node has answered; [`StoreError`].
    pub fn stop_node(&mut self) -> Result<(), StoreError> {
        self.inner.block_on(self.inner.stop_node())
    }

    /// Asks the node that this client talks to to leave the cluster. It ends when its data has moved to the others.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if too few would stay; [`StoreError::Unknown`] if the connection is lost before the node has answered, and no other
    /// node is asked; [`StoreError`].
    pub fn leave(&mut self) -> Result<(), StoreError> {
        self.inner.block_on(self.inner.leave())
    }

    /// Asks a node once. If that node cannot serve, the next question goes to another one.
    pub(crate) fn ask_once(&mut self, request: &Request) -> Result<Answer, StoreError> {
        self.inner.block_on(self.inner.ask_once(request))
    }
}

fn unexpected(answer: Answer) -> StoreError {
    match answer {
        Answer::Failed(error) => error,
        _ => StoreError::invalid(
            "the node answered something else than was asked: another version of this program?",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Footprint;
    use crate::message::{GREETING, receive, send};
    use std::io::BufReader;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    /// A door that greets each client, and then does this. Its thread ends with the test.
    fn door(serve: impl Fn(&mut BufReader<TcpStream>) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let door = listener.local_addr().expect("its address").to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = BufReader::new(stream);
                let _ = stream.read_exact(&mut [0; GREETING.len()]);
                serve(&mut stream);
            }
        });
        door
    }

    /// A door that gives each client this one answer.
    fn door_that_answers(answer: fn() -> Answer) -> String {
        door(move |stream| {
            while receive::<Request>(stream).is_ok() {
                let _ = send(stream.get_mut(), &answer());
            }
        })
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
    fn doors_that_are_full_or_end_every_connection_are_not_tried_without_a_pause() {
        let full = || Answer::Refused { why: "the door is full".into() };
        for doors in [vec![door_that_answers(full), door_that_answers(full)], vec![door_that_ends(); 2]] {
            let mut client = Client::new(doors);
            client.set_seed(3);
            client.set_patience(Duration::from_millis(400));
            let error = client.put("t", "k", "v").expect_err("nobody");
            let counts = client.counts();
            // A commit that was on its way may have happened, and is not tried again.
            let is_unknown = matches!(error, StoreError::Unknown(_));
            assert!(is_unknown || matches!(error, StoreError::Unavailable(_)), "{error:?}");
            let error = client.get("t", "k").expect_err("nobody");
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            let counts =
                Counts { reconnects: client.counts().reconnects.max(counts.reconnects), ..client.counts() };
            assert!(counts.reconnects > 3, "it tries again: {counts:?}");
            assert!(counts.pauses + 2 >= counts.reconnects, "{counts:?}");
        }
    }

    /// A door that ends every conversation after its first question.
    fn door_that_ends() -> String {
        door(|stream| drop(receive::<Request>(stream)))
    }

    #[test]
    fn a_write_that_finds_a_full_door_goes_to_another() {
        let full = || Answer::Refused { why: "the door is full".into() };
        let commits = || Answer::Committed;
        let mut client = Client::new([door_that_answers(full), door_that_answers(commits)]);
        assert_eq!(client.put("t", "k", "v"), Ok(()));
        assert_eq!(client.counts().reconnects, 1);
    }

    #[test]
    fn a_write_is_not_given_to_a_connection_that_has_ended_meanwhile() {
        let mut client = Client::new([door_that_ends_when_idle()]);
        assert_eq!(client.put("t", "k", "v"), Ok(()));
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(client.put("t", "k", "v"), Ok(()));
    }

    /// A door that commits once in each conversation.
    fn door_that_ends_when_idle() -> String {
        door(|stream| {
            let _ = receive::<Request>(stream);
            let _ = send(stream.get_mut(), &Answer::Committed);
        })
    }

    #[test]
    fn a_write_that_meets_a_node_that_ends_is_not_tried_again() {
        let commits = || Answer::Committed;
        let mut client = Client::new([door_that_answers(ending), door_that_answers(commits)]);
        assert_eq!(client.put("t", "k", "v"), Err(StoreError::Unknown("the node has ended".into())));
    }
}
