//! Connection management datagrams: the MADs that queue pair 1 exchanges (IBTA §12.6).
//!
//! A MAD is 256 bytes: a common header of 24, then 232 that belong to the message. One file per message. A message is
//! a plain value; [`CmMad`] is a message with what the common header adds to it.
//!
//! Invariant: parsing never panics, and what parses re-emits to the same bytes except for reserved fields.

mod disconnect;
mod ip_cm;
mod mad;
mod mra;
mod path;
mod rej;
mod rep;
mod req;
mod rtu;
mod sidr;

pub use disconnect::{Drep, Dreq};
pub use ip_cm::{IpCm, service_id};
pub use mad::{CmAttribute, CmMad, CmMessage};
pub use mra::{Answered, Mra};
pub use path::{CmPath, LID_NONE};
pub use rej::{Rej, RejectReason, Rejected};
pub use rep::Rep;
pub use req::{Req, TransportType};
pub use rtu::Rtu;
pub use sidr::{SidrRep, SidrReq, SidrStatus};

/// Length of a management datagram.
pub const MAD_LEN: usize = 256;
/// Length of the common header of every MAD (IBTA §13.4.3).
pub const MAD_HEADER_LEN: usize = 24;
/// Length of a connection management MAD behind its common header.
pub const CM_DATA_LEN: usize = MAD_LEN - MAD_HEADER_LEN;
/// The Q_Key of queue pair 1 (IBTA §10.2.4).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The bytes behind the common header.
pub(crate) type CmData = [u8; CM_DATA_LEN];

/// The private data of length `N` that begins at `at`.
fn private<const N: usize>(data: &CmData, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}
