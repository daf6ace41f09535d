//! The commit record: once f + 1 nodes have it, the transaction is committed (FaSST §5, step 3).
//!
//! It names everything that recovery needs to finish the transaction without its coordinator: table, key, the version read under the lock,
//! whether the key is deleted, and the value itself. A checksum tells a torn record from a whole one after a
//! crash that the memory survived.

use crate::codec::{Encode as _, Malformed, decode, fields};
use crate::id::{Key, NodeId, TableId, Txid, Version};

/// One key's part of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The table.
    pub(crate) table: TableId,
    /// The key.
    pub(crate) key: Key,
    /// The version under the lock; the write makes the next one.
    pub(crate) read: Version,
    /// `None` deletes the key.
    pub(crate) value: Option<Vec<u8>>,
}

impl Write {
    /// The version that it makes.
    pub(crate) fn version(&self) -> Version {
        self.read.wrapping_add(1)
    }
}

/// Bytes of a slot's checksum.
const SUM_BYTES: usize = 4;
/// Room for two short writes: most records take one allocation.
const RECORD_BYTES_USUAL: usize = 160;

/// A transaction's writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The transaction.
    pub(crate) txid: Txid,
    /// Each key once.
    pub(crate) writes: Vec<Write>,
}

fields!(NodeId { 0 });
fields!(TableId { 0 });
fields!(Txid { node, worker, sequence });
fields!(Write { table, key, read, value });
fields!(Record { txid, writes });

impl Record {
    /// The bytes of a log slot: a checksum, then the record.
    pub(crate) fn seal(&self) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(RECORD_BYTES_USUAL);
        sealed.extend_from_slice(&[0; SUM_BYTES]);
        self.put(&mut sealed);
        let sum = crc32fast::hash(&sealed[SUM_BYTES..]);
        sealed[..SUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        sealed
    }

    /// A slot's record, if it is whole.
    pub(crate) fn unseal(slot: &[u8], checked: bool) -> Result<Record, Malformed> {
        let (sum, body) = slot.split_first_chunk().ok_or(Malformed)?;
        if checked && crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err(Malformed);
        }
        decode(body)
    }
}
