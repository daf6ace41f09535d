//! IRN's loss recovery and flow control (Improved RoCE NIC, SIGCOMM 2018), without packets.
//!
//! Two state machines over packet sequence numbers: [`SenderWindow`] decides what may be sent and what is resent,
//! [`ReceiverWindow`] tracks what has arrived. A requester keeps a sender for its requests (sPSN) and a receiver for READ
//! responses (rPSN); a responder keeps the mirror image (IRN §5.4). Neither knows time, bytes or headers.
//!
//! Invariants: never more packets in flight than the cap; a packet is resent only when something above it was selectively
//! acknowledged, when the cumulative acknowledgement stops at it, or after a timeout; messages complete in order.

mod config;
mod receiver;
mod ring;
mod rto;
mod rule;
mod sack;
mod sender;
mod state;
mod trimmed;

#[cfg(test)]
mod exchange;
#[cfg(test)]
mod scenarios;

pub use config::{IrnConfig, LossRecovery, PartialAcks};
pub use receiver::{Arrival, Location, PacketClass, ReceiverWindow, SACK_RUN_MAX};
pub use rto::RetransmissionTimeout;
pub use rule::{
    Account, GO_BACK_N, NO_SACK, News, RecoveryAlgorithm, RecoveryChoice, RecoveryRule, ReplicateRule, SACK,
};
pub use sack::SackWindow;
pub use sender::{AckOutcome, SenderCounters, SenderWindow, TimeoutOutcome};
pub use state::{
    Field, Origin, RECEIVE_WQE_AND_COMPLETION, ReceiverState, RepairStep, SEND_WQE, SenderState,
};
