//! The messages at a node's door: requests of clients and of other nodes, and the answers. A message is its
//! length in four bytes, big-endian, and its body in postcard's encoding.

use crate::access::{NONCE_BYTES, PROOF_BYTES};
use crate::error::StoreError;
use crate::milestones::Milestone;
use crate::rows::BackupEntry;
use highwire_txn::{Key, Version};
use postcard::ser_flavors::Size;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::io::{self, Read, Write};
use std::marker::PhantomData;

/// The first bytes of a conversation: this protocol, and its version.
pub(crate) const GREETING: [u8; 8] = *b"hwstore6";

/// What to say to the one that has greeted so: nothing if it may go on, and nothing that it would understand if it speaks another protocol.
pub(crate) fn check_greeting(greeting: [u8; 8]) -> Result<(), Option<StoreError>> {
    let ([name @ .., version], [own_name @ .., own]) = (greeting, GREETING);
    match (name == own_name, version == own) {
        (true, true) => Ok(()),
        (true, false) => Err(Some(StoreError::invalid(format!(
            "this node speaks version {} of the store's protocol, and you speak version {}: use one release of this program everywhere",
            char::from(own),
            char::from(version)
        )))),
        (false, _) => Err(None),
    }
}

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The longest request of a client that has not said who it is.
pub(crate) const STRANGERS_BYTES_MAX: usize = 4 << 10;
/// The longest request: what a transaction writes, and what it has read.
pub(crate) const REQUEST_BYTES_MAX: usize = 24 << 20;
/// The most keys of a question.
pub(crate) const KEYS_MAX: usize = 1 << 14;
/// The most writes of a transaction, and the most of anything else that a request lists.
const ITEMS_MAX: usize = 1 << 16;
/// The most rows that a transaction shows to have read.
const ROWS_MAX: usize = 1 << 20;
/// A message's length, in front of it.
pub(crate) const HEADER_BYTES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Values of keys, all at one instant.
    Get {
        #[serde(deserialize_with = "few::<_, _, KEYS_MAX>")]
        keys: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// All entries of a table, at one instant. If `is_alone`, the transaction does nothing else, and the answer may come from a snapshot without a
    /// footprint.
    Scan { table: Vec<u8>, prefix: Vec<u8>, is_alone: bool },
    /// The first entries of an ordered table from one key on and before another, at one instant.
    Range { table: Vec<u8>, from: Vec<u8>, to: Option<Vec<u8>>, limit: u32 },
    /// Commits writes, if everything is still as it was read.
    Commit {
        seen: Footprint,
        #[serde(deserialize_with = "few::<_, _, ITEMS_MAX>")]
        writes: Vec<WriteRequest>,
    },
    /// The node's status.
    Status,
    /// Which nodes are primaries of keys.
    Locate {
        #[serde(deserialize_with = "few::<_, _, KEYS_MAX>")]
        keys: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// What happened to the node, and when.
    Milestones,
    /// Another node introduces itself, and asks the same.
    Meet(Introduction),
    /// Ends the node.
    Stop,
    /// The doors of all nodes that this one knows.
    Doors,
    /// A step of a backup, or of a scan, which ends with the conversation.
    Backup { token: u64, step: BackupStep, of: BackupOf },
    /// Puts entries, if the key `note` has the value `from`, and gives it the value `to`.
    Restore { note: (Vec<u8>, Vec<u8>), from: Option<Vec<u8>>, to: Option<Vec<u8>>, cells: Vec<BackupEntry> },
    /// Asks the node to leave the cluster.
    Leave,
    /// Counts a table's entries in rows from `low` to `high`, which are offsets within the table, and takes them away if they are at most `most`.
    Sweep { table: Vec<u8>, low: u64, high: u64, most: u32 },
    /// Says who the client is.
    Authenticate { user: String, password: String },
    /// A node asks for the other end's proof, and will give its own.
    Challenge { nonce: [u8; NONCE_BYTES] },
    /// The proof that the connection is a node's.
    Prove { proof: [u8; PROOF_BYTES] },
    /// Asks for a way to the node by RPCs, which lasts as long as the conversation.
    Reach,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Got {
        values: Vec<Option<Vec<u8>>>,
        seen: Footprint,
    },
    Scanned {
        entries: Vec<Entry>,
        seen: Footprint,
    },
    Committed,
    Status(Box<NodeStatus>),
    Located {
        nodes: Vec<u16>,
    },
    Milestones(Vec<Milestone>),
    Met {
        node: Introduction,
        doors: Vec<(u16, String)>,
    },
    Stopping,
    Failed(StoreError),
    Doors(Vec<(u16, String)>),
    Leaving,
    Backup(BackupAnswer),
    /// `None`: more entries than one transaction can read.
    Swept {
        entries: Option<u64>,
    },
    /// The door lets no more clients in. Nothing was done, and the conversation ends.
    Refused {
        why: String,
    },
    /// The client is the user that it says it is, or the node one of the cluster.
    Welcome,
    Challenged {
        nonce: [u8; NONCE_BYTES],
        proof: [u8; PROOF_BYTES],
    },
    Reached(Ticket),
    /// The answer is too long for the way that the request has taken. It changed nothing, and can be asked on the connection.
    TooLong,
}

impl Request {
    /// Whether it may come by an RPC. What changes the node or the cluster needs a connection, and so does what ends with one.
    pub(crate) fn may_be_direct(&self) -> bool {
        matches!(
            self,
            Request::Get { .. }
                | Request::Scan { .. }
                | Request::Range { .. }
                | Request::Commit { .. }
                | Request::Locate { .. }
                | Request::Status
                | Request::Milestones
                | Request::Doors
        )
    }

    /// Whether it lists no more than one request may.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let (count, most, what) = match self {
            Request::Get { keys } | Request::Locate { keys } => {
                (keys.len(), KEYS_MAX, "keys with one question")
            }
            Request::Commit { seen, .. } if seen.rows.len() > ROWS_MAX || seen.nodes.len() > ROWS_MAX => {
                (ROWS_MAX + 1, ROWS_MAX, "rows that a transaction has read")
            }
            Request::Commit { seen, .. } if seen.ranges.len() > ITEMS_MAX => {
                (ITEMS_MAX + 1, ITEMS_MAX, "ranges that a transaction has read")
            }
            Request::Commit { writes, .. } => (writes.len(), ITEMS_MAX, "keys that a transaction writes"),
            _ => return Ok(()),
        };
        match count <= most {
            true => Ok(()),
            false => Err(StoreError::invalid(format!("at most {most} {what} are possible"))),
        }
    }
}

/// Reads a list, and keeps no more of it than shows that it is too long: a short message may list much that takes no bytes.
fn few<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Few<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Few<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while let Some(item) = list.next_element()? {
                if kept.len() <= MOST {
                    kept.push(item);
                }
            }
            Ok(kept)
        }
    }
    deserializer.deserialize_seq(Few::<T, MOST>(PhantomData))
}

/// What is read at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BackupOf {
    /// Everything.
    All,
    /// The entries in rows with these keys, with their values or without.
    Rows { low: Key, high: Key, has_values: bool },
}

/// A step of a backup at one node, in their order: see `freeze`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BackupStep {
    /// Lets no commit begin, and waits for those under way.
    Freeze,
    /// Marks this moment.
    Mark,
    /// Lets commits begin again.
    Thaw,
    /// The next rows as they were when they were marked.
    Page,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BackupAnswer {
    Frozen {
        configuration: u32,
        members: Vec<u16>,
        regions: u16,
    },
    /// The regions of which this node gives the rows.
    Marked {
        regions: u16,
        rows: u64,
    },
    /// Whether no commit can have begun since the node was frozen.
    Thawed {
        was_frozen: bool,
    },
    Page {
        cells: Vec<BackupEntry>,
        is_last: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteRequest {
    pub(crate) table: Vec<u8>,
    pub(crate) key: Vec<u8>,
    /// `None` deletes the key.
    pub(crate) value: Option<Vec<u8>>,
}

impl WriteRequest {
    pub(crate) fn bytes(&self) -> usize {
        self.table.len() + self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// The data that a transaction read: rows and their versions, whole ranges of rows, and nodes of trees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Footprint {
    #[serde(deserialize_with = "few::<_, _, ROWS_MAX>")]
    pub(crate) rows: Vec<(Key, Version)>,
    #[serde(deserialize_with = "few::<_, _, ITEMS_MAX>")]
    pub(crate) ranges: Vec<RangeFootprint>,
    /// Nodes of the trees of ordered tables.
    #[serde(deserialize_with = "few::<_, _, ROWS_MAX>")]
    pub(crate) nodes: Vec<(Key, Version)>,
}

impl Footprint {
    pub(crate) fn extend(&mut self, other: Footprint) {
        self.rows.extend(other.rows);
        self.ranges.extend(other.ranges);
        self.nodes.extend(other.nodes);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RangeFootprint {
    pub(crate) low: Key,
    pub(crate) high: Key,
    pub(crate) rows: Vec<(Key, Version)>,
}

/// What a client needs to reach a node by RPCs: the node's queue pair, and the number, life and key that the client has there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    pub(crate) endpoint: String,
    pub(crate) qkey: u32,
    pub(crate) number: u16,
    pub(crate) incarnation: u64,
    pub(crate) key: [u8; 32],
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A node's identity, and the address of its queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) node: u16,
    /// The life as which it would be a member of a first configuration.
    pub(crate) boot: u64,
    pub(crate) endpoint: String,
    /// Where clients and other nodes reach it.
    pub(crate) door: String,
    pub(crate) shape: Shape,
}

/// The settings that all nodes of a cluster must share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) f: u16,
    pub(crate) regions: u16,
    pub(crate) workers: u16,
    pub(crate) has_data: bool,
    /// These can be changed in the register, which counts more than a node's file.
    pub(crate) lease_ms: u64,
    pub(crate) rows_max: u64,
    /// Numbers of the program.
    pub(crate) drift_ppm_max: u64,
    pub(crate) schema: u64,
}

/// A node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's number.
    pub node: u16,
    /// The node's process.
    pub process: u32,
    /// The configuration that it knows.
    pub configuration: u32,
    /// The configuration's members.
    pub members: Vec<u16>,
    /// Counts changes of this configuration: copies that became complete.
    pub revision: u32,
    /// Members that leave.
    pub leaving: Vec<u16>,
    /// The regions of which each member has a copy that is complete, and of which it is being given one.
    pub holdings: Vec<Holding>,
    /// Whether this node is one of them.
    pub is_member: bool,
    /// Whether transactions can run.
    pub is_open: bool,
    /// Whether it knows that all data has all its copies. Only the configuration's manager learns it at once.
    pub is_settled: bool,
    /// The number of copies that all data should have.
    pub copies: u16,
    /// Regions of which this node is primary.
    pub primary_of: u16,
    /// Regions of which this node has a copy.
    pub copy_of: u16,
    /// Transactions that were committed here.
    pub committed: u64,
    /// Attempts with which other transactions conflicted.
    pub conflicts: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Keys in the regions of which this node is primary: rows of three tables, of which a long value and a node of an ordered table take one each.
    pub rows: u64,
    /// Rows of deleted keys there that have not been reclaimed yet.
    pub tombstones: u64,
    /// How many rows a table takes in a region.
    pub rows_max: u64,
    /// The rows of the table of a region that is fullest, of all copies at this node, in percent of these.
    pub fullest_percent: u64,
    /// One line for a person who wonders why nothing happens.
    pub standing: String,
}

/// The copies that a member has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The member.
    pub node: u16,
    /// Regions of which its copy is complete.
    pub complete: u16,
    /// Regions of which it is being given a copy.
    pub coming: u16,
}

/// Sends a message, without a second copy of it in memory: `stream` gathers what is short.
/// A message's bytes, with their length in front.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let length = postcard::serialize_with_flavor(message, Size::default()).map_err(io::Error::other)?;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + length);
    bytes.extend_from_slice(&(length as u32).to_be_bytes());
    postcard::to_extend(message, bytes).map_err(io::Error::other)
}

/// The message of these bytes, which are all of it but its length.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the message is none of this protocol")),
    }
}

/// The length of a message's body, which is at most `most`.
pub(crate) fn length_within(header: [u8; HEADER_BYTES], most: usize) -> Result<usize, StoreError> {
    let length = u32::from_be_bytes(header) as usize;
    if length > most {
        return Err(StoreError::invalid(format!(
            "the message has {length} bytes; at most {most} are possible"
        )));
    }
    Ok(length)
}

pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&encode(message)?)?;
    stream.flush()
}

pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let length = length_within(header, MESSAGE_BYTES_MAX)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    // Memory grows only with the bytes that have really come.
    let mut body = Vec::new();
    if stream.by_ref().take(length as u64).read_to_end(&mut body)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    decode(&body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn samples() -> Vec<Request> {
        let rows = vec![(1, 2), (u64::MAX, 3)];
        let ranges = vec![RangeFootprint { low: 0, high: 9, rows: rows.clone() }];
        let seen = Footprint { rows: rows.clone(), ranges, nodes: rows };
        let (table, key, value) = (b"t".to_vec(), b"k".to_vec(), Some(b"v".to_vec()));
        vec![
            Request::Get { keys: vec![(table.clone(), key.clone())] },
            Request::Commit { seen, writes: vec![WriteRequest { table, key, value }] },
            Request::Locate { keys: vec![(b"t".to_vec(), b"k".to_vec())] },
            Request::Range { table: b"t".to_vec(), from: vec![], to: Some(vec![7]), limit: 9 },
            Request::Milestones,
            Request::Doors,
            Request::Backup { token: 7, step: BackupStep::Page, of: BackupOf::All },
            Request::Sweep { table: b"t".to_vec(), low: 0, high: u64::MAX, most: 3 },
            restore_sample(),
            Request::Meet(Introduction {
                node: 1,
                boot: 2,
                endpoint: "e".into(),
                door: "d:1".into(),
                shape: Shape {
                    f: 1,
                    regions: 16,
                    workers: 64,
                    has_data: false,
                    lease_ms: 300,
                    rows_max: 9,
                    drift_ppm_max: 1000,
                    schema: 5,
                },
            }),
        ]
    }

    fn restore_sample() -> Request {
        let kind = crate::rows::Kind::Fields;
        let cell = BackupEntry {
            table: b"t".to_vec(),
            key: b"k".to_vec(),
            kind,
            expires: Some(9),
            value: b"v".to_vec(),
        };
        let note = (b"t".to_vec(), b"n".to_vec());
        Request::Restore { note, from: None, to: Some(b"1".to_vec()), cells: vec![cell] }
    }

    #[test]
    fn messages_come_back_as_they_were() {
        for sample in samples() {
            let mut bytes = Vec::new();
            send(&mut bytes, &sample).expect("memory");
            assert_eq!(receive::<Request>(&mut &bytes[..]).expect("a message"), sample);
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_read_to_its_end_and_not_kept() {
        let keys = vec![(Vec::new(), Vec::new()); 20 * KEYS_MAX];
        let mut bytes = Vec::new();
        send(&mut bytes, &Request::Get { keys }).expect("memory");
        let mut rest = &bytes[..];
        let found = receive::<Request>(&mut rest).expect("a request");
        let Request::Get { keys } = &found else { panic!("{found:?}") };
        assert_eq!((keys.len(), rest.len()), (KEYS_MAX + 1, 0));
        let error = found.check().expect_err("too many");
        assert_eq!(error, StoreError::invalid("at most 16384 keys with one question are possible"));
        assert_eq!(Request::Get { keys: keys[1..].to_vec() }.check(), Ok(()));
    }

    #[test]
    fn a_length_is_refused_before_anything_behind_it_is_read() {
        let most = REQUEST_BYTES_MAX as u32;
        let check = |length: u32| length_within(length.to_be_bytes(), REQUEST_BYTES_MAX).ok();
        assert_eq!(
            [check(0), check(most), check(most + 1), check(u32::MAX)],
            [Some(0), Some(most as usize), None, None]
        );
    }

    #[test]
    fn damaged_messages_never_panic_and_are_no_messages_if_short() {
        let mut rng = Rng::new(5);
        for sample in samples() {
            let mut bytes = Vec::new();
            send(&mut bytes, &sample).expect("memory");
            for end in 0..bytes.len() {
                assert!(receive::<Request>(&mut &bytes[..end]).is_err());
            }
            for _ in 0..2000 {
                let mut bent = bytes.clone();
                let at = rng.below(bent.len() as u64) as usize;
                bent[at] = rng.next_u32() as u8;
                let _ = receive::<Request>(&mut &bent[..]);
                let _ = receive::<Answer>(&mut &bent[..]);
            }
        }
    }
}
