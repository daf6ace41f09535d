//! Requests between nodes, and their responses. Every request carries the sender's configuration; a node in
//! another configuration refuses most of them.

use crate::codec::{Decode, Encode, Malformed, decode, fields, variants};
use crate::configuration::{Agreed, Configuration, Replica};
use crate::id::{Key, NodeId, RegionId, TableId, Txid, Version};
use crate::node::Floor;
use crate::record::Write;
use crate::table::{Entry, Lock, Mode, RangeRow, Row, ScanError};

/// A request on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The fence.
    pub(crate) configuration: u32,
    pub(crate) from: NodeId,
    pub(crate) request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    // FaSST's phases.
    Read {
        table: TableId,
        key: Key,
    },
    Scan {
        txid: Txid,
        table: TableId,
        low: Key,
        high: Key,
    },
    /// The value is left out if the coordinator has no use for it.
    Lock {
        txid: Txid,
        table: TableId,
        key: Key,
        mode: Mode,
        wants_value: bool,
    },
    Validate {
        table: TableId,
        key: Key,
        version: Version,
    },
    ValidateScan {
        txid: Txid,
        table: TableId,
        low: Key,
        high: Key,
        seen: Vec<(Key, Version)>,
        floor: Version,
    },
    Log {
        worker: u16,
        record: Vec<u8>,
    },
    CommitBackup {
        txid: Txid,
        write: Write,
    },
    CommitPrimary {
        txid: Txid,
        write: Write,
    },
    Unlock {
        txid: Txid,
        table: TableId,
        key: Key,
    },
    // Leases and membership.
    Heartbeat {
        boot: u64,
        sent_ns: u64,
        is_restarted: bool,
    },
    Join {
        boot: u64,
    },
    Leave {
        boot: u64,
    },
    // Reconfiguration, from its manager.
    // Boxed: it is seldom sent, and unboxed it would make every request as large as itself.
    Adopt {
        new: Box<Configuration>,
    },
    /// The member's records from this slot on: they did not fit into its last answer.
    Records {
        from: (NodeId, u16),
    },
    /// Records, and the floors below which deleted rows may be gone somewhere.
    Recover {
        records: Vec<Vec<u8>>,
        floors: Vec<Floor>,
    },
    Open {},
    // Data for a new replica.
    Fetch {
        region: RegionId,
        table: TableId,
        cursor: u64,
    },
    Synced {
        region: RegionId,
    },
    /// Rows of deleted keys go, at all copies.
    Reclaim {
        region: RegionId,
        table: TableId,
        floor: Version,
        rows: Vec<(Key, Version)>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Read {
        row: Row,
    },
    /// The rows of a range, and the version of its keys that have none.
    Scan {
        rows: Vec<RangeRow>,
        floor: Version,
    },
    ScanRefused {
        too_long: bool,
    },
    Lock {
        lock: Lock,
    },
    Valid {
        valid: bool,
    },
    Done {},
    Heartbeat {
        configuration: u32,
        sent_ns: u64,
    },
    /// Records, and the slot of the first one that is left.
    Adopted {
        records: Vec<Vec<u8>>,
        next: Option<(NodeId, u16)>,
        floors: Vec<Floor>,
    },
    Page {
        entries: Vec<Entry>,
        next: Option<u64>,
    },
}

variants!(Request {
    1 => Read { table, key },
    2 => Scan { txid, table, low, high },
    3 => Lock { txid, table, key, mode, wants_value },
    4 => Validate { table, key, version },
    5 => ValidateScan { txid, table, low, high, seen, floor },
    6 => Log { worker, record },
    7 => CommitBackup { txid, write },
    8 => CommitPrimary { txid, write },
    9 => Unlock { txid, table, key },
    16 => Heartbeat { boot, sent_ns, is_restarted },
    17 => Join { boot },
    18 => Leave { boot },
    24 => Adopt { new },
    25 => Recover { records, floors },
    26 => Open {},
    27 => Records { from },
    32 => Fetch { region, table, cursor },
    33 => Synced { region },
    34 => Reclaim { region, table, floor, rows },
});

variants!(Response {
    1 => Read { row },
    2 => Scan { rows, floor },
    3 => ScanRefused { too_long },
    4 => Lock { lock },
    5 => Valid { valid },
    6 => Done {},
    16 => Heartbeat { configuration, sent_ns },
    24 => Adopted { records, next, floors },
    32 => Page { entries, next },
});

fields!(Packet { configuration, from, request });
fields!(RegionId { 0 });
fields!(Floor { region, table, version });
fields!(Row { version, owner, value });
fields!(Entry { key, version, value });
fields!(RangeRow { key, version, value });
fields!(Replica { node, synced });
fields!(Agreed { f, workers, rows_max, lease_ns, drift_ppm_max, schema });

/// A configuration of an earlier version ends with the byte of `has_removed`. A bit in it says that more follows, so that registers and
/// journals of that version are still read.
const HAS_AGREED: u8 = 2;

impl Encode for Configuration {
    fn put(&self, to: &mut Vec<u8>) {
        self.cluster.put(to);
        self.id.put(to);
        self.revision.put(to);
        self.manager.put(to);
        self.members.put(to);
        self.leaving.put(to);
        self.regions.put(to);
        self.guards.put(to);
        self.complete.put(to);
        (u8::from(self.has_removed) | if self.agreed.is_some() { HAS_AGREED } else { 0 }).put(to);
        if let Some(agreed) = self.agreed {
            agreed.put(to);
            self.lease_before_ns.put(to);
        }
    }
}

impl Decode for Configuration {
    fn take(from: &mut &[u8]) -> Result<Configuration, Malformed> {
        let mut configuration = Configuration {
            cluster: Decode::take(from)?,
            id: Decode::take(from)?,
            revision: Decode::take(from)?,
            manager: Decode::take(from)?,
            members: Decode::take(from)?,
            leaving: Decode::take(from)?,
            regions: Decode::take(from)?,
            guards: Decode::take(from)?,
            complete: Decode::take(from)?,
            has_removed: false,
            agreed: None,
            lease_before_ns: 0,
        };
        let last = u8::take(from)?;
        if last > 3 {
            return Err(Malformed);
        }
        configuration.has_removed = last & 1 != 0;
        if last & HAS_AGREED != 0 {
            configuration.agreed = Some(Decode::take(from)?);
            configuration.lease_before_ns = Decode::take(from)?;
        }
        Ok(configuration)
    }
}

impl Encode for Mode {
    fn put(&self, to: &mut Vec<u8>) {
        (*self as u8).put(to);
    }
}

impl Decode for Mode {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(match u8::take(from)? {
            0 => Mode::Insert,
            1 => Mode::Update,
            2 => Mode::Delete,
            _ => return Err(Malformed),
        })
    }
}

impl Encode for Lock {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Lock::Granted(row) => {
                0u8.put(to);
                row.put(to);
            }
            Lock::Held => 1u8.put(to),
            Lock::Exists => 2u8.put(to),
            Lock::Missing => 3u8.put(to),
            Lock::Full => 4u8.put(to),
        }
    }
}

impl Decode for Lock {
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(match u8::take(from)? {
            0 => Lock::Granted(Row::take(from)?),
            1 => Lock::Held,
            2 => Lock::Exists,
            3 => Lock::Missing,
            4 => Lock::Full,
            _ => return Err(Malformed),
        })
    }
}

impl Request {
    /// Whether the answer promises that the node will remember something for good.
    pub(crate) fn is_promise(&self) -> bool {
        matches!(
            self,
            Request::Log { .. }
                | Request::CommitBackup { .. }
                | Request::CommitPrimary { .. }
                | Request::Adopt { .. }
                | Request::Recover { .. }
                | Request::Open {}
                | Request::Reclaim { .. }
        )
    }
}

impl Packet {
    #[cfg(all(test, not(loom)))]
    pub(crate) fn encode(&self) -> Vec<u8> {
        crate::codec::encode(self)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Packet, Malformed> {
        decode(bytes)
    }
}

/// Bytes of a packet in front of its request: configuration and sender.
const FENCE_BYTES: usize = 6;

/// The key that a packet's request is about, without taking the packet apart; only a hint, since nothing
/// else is checked.
pub(crate) fn key_of(packet: &[u8]) -> Option<(TableId, Key)> {
    let (&tag, mut rest) = packet.get(FENCE_BYTES..)?.split_first()?;
    match tag {
        // Read, Validate.
        1 | 4 => {}
        // Lock, CommitBackup, CommitPrimary, Unlock: the transaction's name comes first.
        3 | 7 | 8 | 9 => drop(Txid::take(&mut rest).ok()?),
        _ => return None,
    }
    Some((TableId::take(&mut rest).ok()?, Key::take(&mut rest).ok()?))
}

impl Response {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Response, Malformed> {
        decode(bytes)
    }

    pub(crate) fn from_scan(scan: Result<Vec<RangeRow>, ScanError>, floor: Version) -> Response {
        match scan {
            Ok(rows) => Response::Scan { rows, floor },
            Err(error) => Response::ScanRefused { too_long: error == ScanError::TooLong },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn samples() -> Vec<Request> {
        let txid = Txid { node: NodeId(1), worker: 2, sequence: 3 };
        let write = Write { table: TableId(0), key: 9, read: 4, value: Some(b"value".to_vec()) };
        let (table, key) = (TableId(1), 7);
        vec![
            Request::Read { table, key },
            Request::Scan { txid, table, low: 1, high: 2 },
            Request::Lock { txid, table, key, mode: Mode::Delete, wants_value: true },
            Request::Validate { table, key, version: 8 },
            Request::ValidateScan { txid, table, low: 1, high: 9, seen: vec![(1, 2), (3, 4)], floor: 6 },
            Request::Log { worker: 4, record: vec![1, 2, 3] },
            Request::CommitBackup { txid, write: write.clone() },
            Request::CommitPrimary { txid, write: Write { value: None, ..write } },
            Request::Unlock { txid, table, key },
            Request::Heartbeat { boot: 5, sent_ns: 6, is_restarted: true },
            Request::Adopt { new: Box::new(Configuration::first(&[NodeId(0), NodeId(1)], &[7, 8], 4, 1)) },
            Request::Recover {
                records: vec![vec![], vec![1]],
                floors: vec![Floor { region: RegionId(1), table, version: 5 }],
            },
            Request::Reclaim { region: RegionId(2), table, floor: 9, rows: vec![(1, 8), (4, 9)] },
            Request::Open {},
            Request::Records { from: (NodeId(2), 7) },
            Request::Fetch { region: RegionId(3), table, cursor: 10 },
        ]
    }

    #[test]
    fn requests_come_back_as_they_were() {
        for request in samples() {
            let packet = Packet { configuration: 3, from: NodeId(1), request };
            assert_eq!(Packet::parse(&packet.encode()), Ok(packet));
        }
    }

    #[test]
    fn a_key_is_known_before_its_packet_is_taken_apart() {
        for request in samples() {
            let expected = match &request {
                Request::Read { table, key }
                | Request::Lock { table, key, .. }
                | Request::Validate { table, key, .. }
                | Request::Unlock { table, key, .. } => Some((*table, *key)),
                Request::CommitBackup { write, .. } | Request::CommitPrimary { write, .. } => {
                    Some((write.table, write.key))
                }
                _ => None,
            };
            let bytes = Packet { configuration: 3, from: NodeId(1), request }.encode();
            assert_eq!(key_of(&bytes), expected);
        }
    }

    #[test]
    fn damaged_messages_never_panic() {
        let mut rng = Rng::new(1);
        for request in samples() {
            let bytes = Packet { configuration: 3, from: NodeId(1), request }.encode();
            for end in 0..bytes.len() {
                assert_eq!(Packet::parse(&bytes[..end]), Err(Malformed), "a prefix is a message");
                let _ = key_of(&bytes[..end]);
            }
            for _ in 0..500 {
                let mut bent = bytes.clone();
                let place = rng.below(bent.len() as u64) as usize;
                bent[place] = rng.next_u32() as u8;
                let _ = Packet::parse(&bent);
                let _ = Response::parse(&bent);
                let _ = key_of(&bent);
            }
        }
    }
}
