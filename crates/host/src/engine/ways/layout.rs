//! A packet as it lies in a batch.

use crate::memory::HostMemory;
use highwire_link::{Order, Path, ReserveError, TxBatch};
use highwire_rnic::Outgoing;
use highwire_verbs::MemoryLost;
use highwire_wire::ICRC_LEN;

/// Why a packet is not in the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteError {
    Reserve(ReserveError),
    /// Its payload is not there any more.
    Memory(MemoryLost),
}

impl From<ReserveError> for WriteError {
    fn from(error: ReserveError) -> WriteError {
        WriteError::Reserve(error)
    }
}

impl From<MemoryLost> for WriteError {
    fn from(error: MemoryLost) -> WriteError {
        WriteError::Memory(error)
    }
}

/// Writes one packet, without its ICRC, into the batch.
#[inline]
pub(super) fn write(
    tx: &mut TxBatch,
    path: Path,
    outgoing: &Outgoing<'_>,
    memory: &HostMemory,
) -> Result<(), WriteError> {
    let headers = outgoing.headers.encoded_len();
    let payload = outgoing.payload.len() as usize;
    let padding = usize::from(outgoing.headers.bth.pad_count);
    let order = match outgoing.order {
        highwire_rnic::Order::Strict => Order::Strict,
        highwire_rnic::Order::Free => Order::Free,
    };
    let bytes = headers + payload + padding + ICRC_LEN;
    let mut slot = tx.reserve(path, bytes, order)?;
    outgoing.headers.emit(&mut slot);
    memory.copy_out(&outgoing.payload, &mut slot[headers..headers + payload])?;
    slot[headers + payload..bytes].fill(0);
    slot.commit(bytes);
    Ok(())
}
