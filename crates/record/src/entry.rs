//! What an entry can say.

use highwire_verbs::{CompletionOp, CompletionStatus, Gid, QpState, Service};
use highwire_wire::cm::CmAttribute;
use highwire_wire::{Opcode, Syndrome};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Since the recorder of the process began.
    pub time_ns: u64,
    /// The device of the process, from 0.
    pub device: u8,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A device was opened; the name may be cut.
    Device {
        /// Its address.
        gid: Gid,
        /// Its name.
        name: String,
    },
    /// A queue pair is in another state than at the last look.
    State {
        /// The queue pair.
        qpn: u32,
        /// Its service.
        service: Service,
        /// The state before.
        from: QpState,
        /// The state now.
        to: QpState,
        /// Its peer's number; 0 without a peer.
        peer_qpn: u32,
        /// Its peer's address.
        peer: Gid,
        /// How often it sends again before it gives up.
        retry_count: u8,
        /// The same where the peer has no receive; 7 means without end.
        rnr_retry: u8,
        /// The time-out, as verbs code it.
        timeout: u8,
    },
    /// A queue pair is gone.
    Destroyed {
        /// The queue pair.
        qpn: u32,
    },
    /// A request was posted to a send queue.
    Posted(Request),
    /// A receive was posted.
    ReceivePosted {
        /// The queue pair; 0 for a shared receive queue.
        qpn: u32,
        /// As posted.
        wr_id: u64,
        /// Bytes that it has room for.
        length: u64,
    },
    /// A request has ended.
    Completed {
        /// The queue pair.
        qpn: u32,
        /// As posted.
        wr_id: u64,
        /// How it ended.
        status: CompletionStatus,
        /// Which operation.
        operation: CompletionOp,
        /// Bytes received, read or returned.
        bytes: u32,
    },
    /// A packet.
    Packet(Packet),
    /// A line in words.
    Text {
        /// What it is about.
        about: About,
        /// The queue pair, or 0.
        qpn: u32,
        /// The line.
        text: String,
    },
}

/// A request of a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The queue pair.
    pub qpn: u32,
    /// As posted.
    pub wr_id: u64,
    /// The operation.
    pub operation: CompletionOp,
    /// Bytes of all SGEs.
    pub length: u32,
    /// Whether a success is told as well.
    pub signaled: bool,
    /// It was carried out at once in a neighbour's memory, or put into its ring, past the queue.
    pub direct: bool,
    /// Where in the peer's memory; 0 for a message.
    pub va: u64,
    /// The key to that memory.
    pub rkey: u32,
    /// To which queue pair, of a datagram.
    pub to_qpn: u32,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PacketFate {
    /// It left the RNIC.
    Sent = 0,
    /// It came to the RNIC.
    Received = 1,
    /// It came damaged: its ICRC is wrong.
    BadIcrc = 2,
    /// It came, and its headers make no sense.
    Malformed = 3,
    /// It came for a queue pair that is not there.
    NoQueuePair = 4,
    /// A fault on purpose has lost it after it left.
    FaultLost = 5,
    /// A fault on purpose has sent it twice.
    FaultDoubled = 6,
    /// A fault on purpose has delayed it.
    FaultDelayed = 7,
    /// A fault on purpose has let others overtake it.
    FaultOvertaken = 8,
    /// A fault on purpose has flipped a bit of it.
    FaultDamaged = 9,
}

impl PacketFate {
    pub(crate) fn from_u8(number: u8) -> Option<PacketFate> {
        use PacketFate::*;
        let all = [
            Sent,
            Received,
            BadIcrc,
            Malformed,
            NoQueuePair,
            FaultLost,
            FaultDoubled,
            FaultDelayed,
            FaultOvertaken,
            FaultDamaged,
        ];
        all.get(usize::from(number)).copied()
    }

    /// Whether it is a fault that was asked for.
    pub fn is_fault(self) -> bool {
        self as u8 >= PacketFate::FaultLost as u8
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            PacketFate::Sent => "sent",
            PacketFate::Received => "received",
            PacketFate::BadIcrc => "dropped on arrival: wrong ICRC",
            PacketFate::Malformed => "dropped on arrival: malformed",
            PacketFate::NoQueuePair => "dropped on arrival: no such queue pair",
            PacketFate::FaultLost => "lost by a fault",
            PacketFate::FaultDoubled => "sent twice by a fault",
            PacketFate::FaultDelayed => "delayed by a fault",
            PacketFate::FaultOvertaken => "overtaken by a fault",
            PacketFate::FaultDamaged => "damaged by a fault",
        }
    }
}

/// A packet's headers, as far as they are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// What became of it.
    pub fate: PacketFate,
    /// The queue pair of this side, where it is known: a fault on the way knows the destination only.
    pub qpn: u32,
    /// The queue pair that it is for.
    pub to_qpn: u32,
    /// The opcode's number.
    pub opcode: u8,
    /// Its packet sequence number.
    pub psn: u32,
    /// Bytes of payload.
    pub length: u32,
    /// The syndrome of an acknowledgement or a response.
    pub syndrome: Option<Syndrome>,
    /// The address at the other end.
    pub peer: Gid,
    /// The message of connection management that it carries, between queue pairs 1.
    pub management: Option<CmAttribute>,
}

impl Packet {
    /// The name of its opcode, or of its message.
    pub fn name(&self) -> &'static str {
        if let Some(attribute) = self.management {
            return attribute.as_str();
        }
        Opcode::from_u8(self.opcode).map_or("an unknown opcode", |opcode| opcode.info().name)
    }
}

/// What a line in words is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum About {
    /// A call that failed.
    Refusal = 1,
    /// An access that was refused, told by the side that refuses.
    Denial = 2,
    /// A request that failed.
    Failure = 3,
    /// Anything else that is wrong: a wait without an end, a drop, a peer out of reach.
    Trouble = 4,
    /// What a scenario does on purpose.
    Scenario = 5,
}

impl About {
    pub(crate) fn from_u8(number: u8) -> Option<About> {
        use About::*;
        [Refusal, Denial, Failure, Trouble, Scenario].into_iter().find(|about| *about as u8 == number)
    }
}
