//! Send queues: the application writes WQEs, the engine reads them.
//!
//! ```text
//!   0 ┌──────────────────────────────┬───────┬───────┬────────┬───────┬──────────────────┐
//!     │ wr_id u64                    │opcode │flags  │num_sge │ zero  │ length u32       │
//!  16 ├──────────────┬───────────────┼───────┴───────┴────────┴───────┴──────────────────┤
//!     │ imm u32      │ rkey u32      │ remote_addr u64                                   │
//!  32 ├──────────────┴───────────────┼───────────────────────────────────────────────────┤
//!     │ compare_add u64 · gid[0..8]  │ swap u64 · gid[8..16] · window length             │
//!  48 ├──────────────┬───────────────┼───────────┬────────┬────────┬────────┬────────────┤
//!     │ qpn · srqn   │ qkey · access │ flow u32  │ class  │ hops   │ level  │ gid_index  │
//!  64 ├──────────────┴───────────────┴───────────┴────────┴────────┴────────┴────────────┤
//!     │ num_sge × { addr u64, length u32, lkey u32 }, or `length` bytes inline           │
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A slot of 128 bytes holds 4 SGEs or 64 inline bytes, one of 320 bytes 16 SGEs or 256 inline bytes. Slots start on
//! cache lines, so an inline SEND of up to 64 bytes touches two.

use crate::layout::{LayoutError, RingKind, RingLayout};
use crate::ring::{Consumer, CursorError, PostError, Producer};
use crate::window::Window;

/// The most SGEs that any slot holds.
pub const MAX_SGES: usize = 16;

/// The most inline bytes that any slot holds.
pub const MAX_INLINE_BYTES: usize = 256;

/// Bytes of a send WQE before its SGEs or inline data.
const CONTROL_BYTES: usize = 64;

/// One piece of a scatter/gather list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Virtual address, in the space of the memory region.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// What to do. The numbers are those of `ibv_wr_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The verbs' own names.
pub enum SendOpcode {
    Write = 0,
    WriteWithImm = 1,
    Send = 2,
    SendWithImm = 3,
    Read = 4,
    CompareSwap = 5,
    FetchAdd = 6,
    LocalInvalidate = 7,
    BindWindow = 8,
    SendWithInvalidate = 9,
}

/// How to do it: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags(pub u8);

/// A send WQE without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub opcode: SendOpcode,
    /// How; [`SendFlags::INLINE`] and [`SendFlags::DATAGRAM`] are set by `post` and `decode` as the rest demands.
    pub flags: SendFlags,
    /// Immediate data in host order, or the rkey to invalidate.
    pub imm: u32,
    /// Where it goes.
    pub target: Target,
    /// XRC: the peer's shared receive queue, of WRITE, READ and atomics; else zero. A SEND names it as a datagram its QPN.
    pub srqn: u32,
}

/// The remote end of a WQE, as far as its opcode needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// SEND on a connected QP, local invalidate.
    Connected,
    /// WRITE and READ.
    Remote {
        /// Virtual address at the peer.
        addr: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Compare-and-swap, fetch-and-add.
    Atomic {
        /// Virtual address at the peer, a multiple of 8.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// The value to compare with, or the one to add.
        compare_add: u64,
        /// The value to store if the comparison holds.
        swap: u64,
    },
    /// SEND on a UD QP.
    Datagram(AddressHandle),
    /// Bind a type 2 memory window.
    Bind(BindWindow),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressHandle {
    /// Destination GID.
    pub gid: [u8; 16],
    /// Destination QPN.
    pub qpn: u32,
    /// Q_Key.
    pub qkey: u32,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Traffic class, or the IPv4 type of service.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub service_level: u8,
    /// Index of the source GID.
    pub gid_index: u8,
}

/// The window to bind (IBTA §10.6.7.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindWindow {
    /// First byte of the window.
    pub addr: u64,
    /// Bytes; zero unbinds.
    pub length: u64,
    /// The window's new rkey.
    pub rkey: u32,
    /// The lkey of the region below it; travels in the `imm` field.
    pub lkey: u32,
    /// Access flags of the window.
    pub access: u32,
}

/// What a WQE carries or points at.
#[derive(Clone, Copy, Debug)]
pub enum WqeData<'a> {
    /// Bytes that are copied into the slot; the buffer is free when `post` returns.
    Inline(&'a [u8]),
    /// Pieces of registered memory.
    Sges(&'a [Sge]),
}

/// A slot whose contents make no sense; the engine completes it in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadWqe {
    /// As found in the slot.
    pub wr_id: u64,
    /// What is wrong.
    pub kind: BadWqeKind,
}

/// What is wrong with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadWqeKind {
    /// The opcode is none of [`SendOpcode`].
    Opcode(u8),
    /// More SGEs than the slot holds.
    SgeCount(u8),
    /// More inline bytes than the slot holds.
    InlineLength(u32),
}

/// The application's end of a send queue.
#[derive(Debug)]
pub struct SendQueueProducer(Producer);

/// The engine's end of a send queue.
#[derive(Debug)]
pub struct SendQueueConsumer(Consumer);

/// A send WQE that the engine has copied out: the application can no longer change `control`.
#[derive(Debug)]
pub struct SendSlot<'a> {
    window: &'a Window,
    data: usize,
    data_bytes: usize,
    control: [u64; 8],
}

impl SendQueueProducer {
    /// Takes the producing end of a send ring that [`RingLayout::create`] has made.
    ///
    /// # Errors
    /// What is wrong with the header or its cursors.
    pub fn attach(window: &Window) -> Result<SendQueueProducer, LayoutError> {
        Producer::attach(window, RingKind::Send).map(SendQueueProducer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        &self.0.shape.layout
    }

    /// Writes a WQE into the next slot. The engine sees it after [`publish_release`](Self::publish_release).
    ///
    /// # Errors
    /// [`PostError`]; the queue is as before.
    #[inline]
    pub fn post(&mut self, wqe: &SendWqe, data: WqeData<'_>) -> Result<(), PostError> {
        let room = self.0.shape.slot_bytes() - CONTROL_BYTES;
        let (num_sge, length, inline) = match data {
            WqeData::Inline(bytes) if bytes.len() <= room => (0, bytes.len() as u32, SendFlags::INLINE.0),
            WqeData::Inline(_) => return Err(PostError::InlineTooLong { max: room }),
            WqeData::Sges(sges) if sges.len() <= room / 16 => (sges.len() as u8, 0, 0),
            WqeData::Sges(_) => return Err(PostError::TooManySges { max: room / 16 }),
        };
        if self.0.free()? == 0 {
            return Err(PostError::Full);
        }
        let slot = self.0.slot();
        let control = wqe.encode(num_sge, length, inline);
        let window = &self.0.shape.window;
        window.store_words_relaxed(slot, &control);
        match data {
            WqeData::Inline(bytes) => window.copy_in(slot + CONTROL_BYTES, bytes),
            WqeData::Sges(sges) => {
                for (i, sge) in sges.iter().enumerate() {
                    window.store_words_relaxed(slot + CONTROL_BYTES + 16 * i, &sge.encode());
                }
            }
        }
        self.0.advance();
        Ok(())
    }

    /// Makes every posted WQE visible to the engine; true if there was any.
    #[inline]
    pub fn publish_release(&mut self) -> bool {
        self.0.publish_release()
    }

    /// Slots that are free, as far as the engine has told.
    ///
    /// # Errors
    /// [`CursorError`] if the engine's cursor is impossible.
    pub fn free_slots(&mut self) -> Result<u64, CursorError> {
        self.0.observe_head_acquire()
    }
}

impl SendQueueConsumer {
    /// Takes the consuming end of a send ring.
    ///
    /// # Errors
    /// What is wrong with the header or its cursors.
    pub fn attach(window: &Window) -> Result<SendQueueConsumer, LayoutError> {
        Consumer::attach(window, RingKind::Send).map(SendQueueConsumer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        &self.0.shape.layout
    }

    /// WQEs that wait.
    ///
    /// # Errors
    /// [`CursorError`] if the application's cursor is impossible: the QP should go to the error state.
    #[inline]
    pub fn available(&mut self) -> Result<u64, CursorError> {
        self.0.available()
    }

    /// Copies the oldest waiting WQE's control part out, if there is one. [`advance`](Self::advance) passes it.
    ///
    /// # Errors
    /// As for [`available`](Self::available).
    #[inline]
    pub fn peek(&mut self) -> Result<Option<SendSlot<'_>>, CursorError> {
        if self.0.available()? == 0 {
            return Ok(None);
        }
        let slot = self.0.slot();
        let shape = &self.0.shape;
        Ok(Some(SendSlot {
            control: shape.window.load_words_relaxed(slot),
            window: &shape.window,
            data: slot + CONTROL_BYTES,
            data_bytes: shape.slot_bytes() - CONTROL_BYTES,
        }))
    }

    /// Passes the WQE that `peek` showed.
    #[inline]
    pub fn advance(&mut self) {
        self.0.advance();
    }

    /// Gives the slots of all passed WQEs back to the application.
    #[inline]
    pub fn release(&mut self) {
        self.0.release();
    }
}

impl SendSlot<'_> {
    /// The control part with its meaning.
    ///
    /// # Errors
    /// [`BadWqe`], which says under which `wr_id` to complete in error.
    #[inline]
    pub fn wqe(&self) -> Result<SendWqe, BadWqe> {
        let wqe = SendWqe::decode(&self.control)?;
        let bad = |kind| Err(BadWqe { wr_id: wqe.wr_id, kind });
        if wqe.flags.contains(SendFlags::INLINE) {
            if self.length() as usize > self.data_bytes {
                return bad(BadWqeKind::InlineLength(self.length()));
            }
        } else if usize::from(self.num_sge()) * 16 > self.data_bytes {
            return bad(BadWqeKind::SgeCount(self.num_sge()));
        }
        Ok(wqe)
    }

    /// Copies the inline bytes into `buffer` and returns them; nothing beyond the slot, whatever `length` says.
    #[inline]
    pub fn inline<'b>(&self, buffer: &'b mut [u8; MAX_INLINE_BYTES]) -> &'b [u8] {
        let inline = SendFlags((self.control[1] >> 8) as u8).contains(SendFlags::INLINE);
        let length = if inline { (self.length() as usize).min(self.data_bytes) } else { 0 };
        self.window.copy_out(self.data, &mut buffer[..length]);
        &buffer[..length]
    }

    /// Copies the SGEs into `buffer` and returns them; nothing beyond the slot, whatever `num_sge` says.
    #[inline]
    pub fn sges<'b>(&self, buffer: &'b mut [Sge; MAX_SGES]) -> &'b [Sge] {
        let inline = SendFlags((self.control[1] >> 8) as u8).contains(SendFlags::INLINE);
        let count = if inline { 0 } else { usize::from(self.num_sge()).min(self.data_bytes / 16) };
        for (i, sge) in buffer[..count].iter_mut().enumerate() {
            *sge = Sge::decode(self.window.load_words_relaxed(self.data + 16 * i));
        }
        &buffer[..count]
    }

    fn num_sge(&self) -> u8 {
        (self.control[1] >> 16) as u8
    }

    fn length(&self) -> u32 {
        (self.control[1] >> 32) as u32
    }
}

impl SendWqe {
    #[inline]
    fn encode(&self, num_sge: u8, length: u32, inline: u8) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut flags = (self.flags.0 & !(SendFlags::INLINE.0 | SendFlags::DATAGRAM.0)) | inline;
        let mut words = [0; 8];
        let mut imm = self.imm;
        let mut rkey_word = 0;
        match self.target {
            Target::Connected => {}
            Target::Remote { addr, rkey } => (rkey_word, words[3]) = (rkey, addr),
            Target::Atomic { addr, rkey, compare_add, swap } => {
                rkey_word = rkey;
                words[3..6].copy_from_slice(&[addr, compare_add, swap]);
            }
            Target::Datagram(to) => {
                flags |= SendFlags::DATAGRAM.0;
                words[4] = u64::from_le_bytes(to.gid[..8].try_into().expect("eight bytes"));
                words[5] = u64::from_le_bytes(to.gid[8..].try_into().expect("eight bytes"));
                words[6] = pair(to.qpn, to.qkey);
                let small = [to.traffic_class, to.hop_limit, to.service_level, to.gid_index];
                words[7] = pair(to.flow_label, u32::from_le_bytes(small));
            }
            Target::Bind(bind) => {
                (imm, rkey_word) = (bind.lkey, bind.rkey);
                (words[3], words[5], words[6]) = (bind.addr, bind.length, pair(0, bind.access));
            }
        }
        if matches!(self.target, Target::Remote { .. } | Target::Atomic { .. }) {
            words[6] = pair(self.srqn, 0);
        }
        words[0] = self.wr_id;
        words[1] = u64::from(self.opcode as u8)
            | u64::from(flags) << 8
            | u64::from(num_sge) << 16
            | u64::from(length) << 32;
        words[2] = pair(imm, rkey_word);
        words
    }

    #[inline]
    fn decode(words: &[u64; 8]) -> Result<SendWqe, BadWqe> {
        let wr_id = words[0];
        let code = words[1] as u8;
        let opcode = SendOpcode::from_u8(code).ok_or(BadWqe { wr_id, kind: BadWqeKind::Opcode(code) })?;
        let flags = SendFlags((words[1] >> 8) as u8);
        let (imm, rkey, addr) = (words[2] as u32, (words[2] >> 32) as u32, words[3]);
        let target = match opcode {
            SendOpcode::Write | SendOpcode::WriteWithImm | SendOpcode::Read => Target::Remote { addr, rkey },
            SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
                Target::Atomic { addr, rkey, compare_add: words[4], swap: words[5] }
            }
            SendOpcode::BindWindow => Target::Bind(BindWindow {
                addr,
                length: words[5],
                rkey,
                lkey: imm,
                access: (words[6] >> 32) as u32,
            }),
            _ if flags.contains(SendFlags::DATAGRAM) => Target::Datagram(AddressHandle::decode(words)),
            _ => Target::Connected,
        };
        let srqn = match target {
            Target::Remote { .. } | Target::Atomic { .. } => words[6] as u32,
            _ => 0,
        };
        Ok(SendWqe { wr_id, opcode, flags, imm, target, srqn })
    }
}

impl AddressHandle {
    fn decode(words: &[u64; 8]) -> AddressHandle {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&words[4].to_le_bytes());
        gid[8..].copy_from_slice(&words[5].to_le_bytes());
        let [traffic_class, hop_limit, service_level, gid_index] = ((words[7] >> 32) as u32).to_le_bytes();
        AddressHandle {
            gid,
            qpn: words[6] as u32,
            qkey: (words[6] >> 32) as u32,
            flow_label: words[7] as u32,
            traffic_class,
            hop_limit,
            service_level,
            gid_index,
        }
    }
}

impl Sge {
    #[inline]
    pub(crate) fn encode(&self) -> [u64; 2] {
        [self.addr, u64::from(self.length) | u64::from(self.lkey) << 32]
    }

    #[inline]
    pub(crate) fn decode(words: [u64; 2]) -> Sge {
        Sge { addr: words[0], length: words[1] as u32, lkey: (words[1] >> 32) as u32 }
    }
}

impl SendOpcode {
    /// The opcode with this number.
    pub fn from_u8(value: u8) -> Option<SendOpcode> {
        use SendOpcode::*;
        const ALL: [SendOpcode; 10] = [
            Write,
            WriteWithImm,
            Send,
            SendWithImm,
            Read,
            CompareSwap,
            FetchAdd,
            LocalInvalidate,
            BindWindow,
            SendWithInvalidate,
        ];
        ALL.get(usize::from(value)).copied()
    }
}

impl SendFlags {
    /// Wait for earlier READs and atomics.
    pub const FENCE: SendFlags = SendFlags(1);
    /// Complete with a CQE even on success.
    pub const SIGNALED: SendFlags = SendFlags(2);
    /// Wake the peer that waits for solicited completions.
    pub const SOLICITED: SendFlags = SendFlags(4);
    /// The data lies in the slot.
    pub const INLINE: SendFlags = SendFlags(8);
    /// Bytes 32 to 63 are an address handle.
    pub const DATAGRAM: SendFlags = SendFlags(128);

    /// Whether every bit of `other` is set.
    #[inline]
    pub fn contains(self, other: SendFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for SendFlags {
    type Output = SendFlags;

    fn bitor(self, other: SendFlags) -> SendFlags {
        SendFlags(self.0 | other.0)
    }
}
