//! Batches of datagrams: what a [`Link`](crate::Link) sends from and receives into.

mod rx;
mod train;
mod tx;

pub(crate) use rx::Arrival;
pub use rx::{Ecn, Packet, Packets, RxBatch};
pub use train::TrainLimits;
pub use tx::{Order, PACKET_BYTES_MAX, Path, ReserveError, Slot, TxBatch};
