//! Batches of datagrams, from which a [`Link`](crate::Link) sends and into which it receives.

mod path;
mod rx;
mod stage;
mod train;
mod tx;

pub use path::{Order, Path};
pub(crate) use rx::Arrival;
pub use rx::{Ecn, Packet, Packets, RxBatch};
pub use stage::Slot;
pub use train::TrainLimits;
pub(crate) use tx::TrainView;
pub use tx::{PACKET_BYTES_MAX, ReserveError, TxBatch};
