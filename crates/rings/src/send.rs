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

use highwire_shmem::{Consumer, CursorError, LayoutError, Producer, RingKind, RingLayout, Window};
use highwire_verbs::{
    Access, Address, Datagram, Gid, LocalKey, Operation, PostError, Remote, RemoteKey, SendFlags, SendWr,
    Sge, WindowBind,
};
use highwire_wire::Qpn;

/// Rings of send WQEs; the application produces.
pub const SEND_RING: RingKind = RingKind::new(1, 128, 320);

/// The most SGEs that any slot holds.
pub const MAX_SGES: usize = 16;

/// The most inline bytes that any slot holds.
pub const MAX_INLINE_BYTES: usize = 256;

/// Bytes of a send WQE before its SGEs or inline data.
const CONTROL_BYTES: usize = 64;

/// Bits of a slot's `flags`.
mod flag {
    pub(super) const FENCE: u8 = 1;
    pub(super) const SIGNALED: u8 = 2;
    pub(super) const SOLICITED: u8 = 4;
    /// The data lies in the slot.
    pub(super) const INLINE: u8 = 8;
    /// Bytes 32 to 63 are an address handle.
    pub(super) const DATAGRAM: u8 = 128;
}

/// Numbers of a slot's `opcode`, those of `ibv_wr_opcode`.
mod opcode {
    pub(super) const WRITE: u8 = 0;
    pub(super) const WRITE_WITH_IMM: u8 = 1;
    pub(super) const SEND: u8 = 2;
    pub(super) const SEND_WITH_IMM: u8 = 3;
    pub(super) const READ: u8 = 4;
    pub(super) const COMPARE_SWAP: u8 = 5;
    pub(super) const FETCH_ADD: u8 = 6;
    pub(super) const LOCAL_INVALIDATE: u8 = 7;
    pub(super) const BIND_WINDOW: u8 = 8;
    pub(super) const SEND_WITH_INVALIDATE: u8 = 9;
}

/// A slot with invalid contents; the engine completes it in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadWqe {
    /// As found in the slot.
    pub wr_id: u64,
    /// The error in the slot.
    pub kind: BadWqeKind,
}

/// The error in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadWqeKind {
    /// The opcode is no send opcode.
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
    /// The error in the header or its cursors.
    pub fn attach(window: &Window) -> Result<SendQueueProducer, LayoutError> {
        Producer::attach(window, SEND_RING).map(SendQueueProducer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        self.0.layout()
    }

    /// Writes a request into the next slot. The engine sees it after [`publish_release`](Self::publish_release).
    ///
    /// # Errors
    /// [`QueueFull`](PostError::QueueFull), [`TooManySges`](PostError::TooManySges), or
    /// [`NoSuchQueue`](PostError::NoSuchQueue) if the engine's cursor is impossible; the queue is as before.
    #[inline]
    pub fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let window_key;
        let sges = match wr.operation {
            // The control part has no field for the window's present key.
            Operation::BindWindow(bind) => {
                window_key = [Sge { lkey: LocalKey(bind.window.0), ..Sge::default() }];
                &window_key[..]
            }
            _ => wr.sges,
        };
        if sges.len() > (self.0.layout().slot_bytes() - CONTROL_BYTES) / 16 {
            return Err(PostError::TooManySges);
        }
        let slot = self.begin(&encode(wr, sges.len() as u8, 0, 0))?;
        for (i, sge) in sges.iter().enumerate() {
            self.0.window().store_words_relaxed(slot + CONTROL_BYTES + 16 * i, &encode_sge(sge));
        }
        self.0.advance();
        Ok(())
    }

    /// Whether a slot is long enough for a request, or for so many bytes of inline data.
    ///
    /// # Errors
    /// As for [`post`](Self::post) and [`post_inline`](Self::post_inline).
    pub fn check(&self, wr: &SendWr<'_>, inline: Option<usize>) -> Result<(), PostError> {
        let room = self.0.layout().slot_bytes() - CONTROL_BYTES;
        match inline {
            Some(bytes) if bytes > room => Err(PostError::TooLong),
            None if wr.sges.len() > room / 16 => Err(PostError::TooManySges),
            _ => Ok(()),
        }
    }

    /// As [`post`](Self::post), with `data` in the slot instead of the request's SGEs.
    ///
    /// # Errors
    /// As for [`post`](Self::post), with [`TooLong`](PostError::TooLong) if the slot is too small.
    #[inline]
    pub fn post_inline(&mut self, wr: &SendWr<'_>, data: &[u8]) -> Result<(), PostError> {
        if data.len() > self.0.layout().slot_bytes() - CONTROL_BYTES {
            return Err(PostError::TooLong);
        }
        let slot = self.begin(&encode(wr, 0, data.len() as u32, flag::INLINE))?;
        self.0.window().copy_in(slot + CONTROL_BYTES, data);
        self.0.advance();
        Ok(())
    }

    /// Writes the control part; returns where the slot begins.
    #[inline]
    fn begin(&mut self, control: &[u64; 8]) -> Result<usize, PostError> {
        has_room(&mut self.0)?;
        let slot = self.0.slot();
        self.0.window().store_words_relaxed(slot, control);
        Ok(slot)
    }

    /// Makes every posted WQE visible to the engine; true if there was any.
    #[inline]
    pub fn publish_release(&mut self) -> bool {
        self.0.publish_release()
    }

    /// The number of free slots, as far as the engine has published.
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
    /// The error in the header or its cursors.
    pub fn attach(window: &Window) -> Result<SendQueueConsumer, LayoutError> {
        Consumer::attach(window, SEND_RING).map(SendQueueConsumer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        self.0.layout()
    }

    /// The number of WQEs that wait.
    ///
    /// # Errors
    /// [`CursorError`] if the application's cursor is impossible: the QP should go to the error state.
    #[inline]
    pub fn available(&mut self) -> Result<u64, CursorError> {
        self.0.available()
    }

    /// Copies the oldest waiting WQE's control part out, if there is one. [`advance`](Self::advance) moves
    /// past it.
    ///
    /// # Errors
    /// As for [`available`](Self::available).
    #[inline]
    pub fn peek(&mut self) -> Result<Option<SendSlot<'_>>, CursorError> {
        if self.0.available()? == 0 {
            return Ok(None);
        }
        let slot = self.0.slot();
        Ok(Some(SendSlot {
            control: self.0.window().load_words_relaxed(slot),
            window: self.0.window(),
            data: slot + CONTROL_BYTES,
            data_bytes: self.0.layout().slot_bytes() - CONTROL_BYTES,
        }))
    }

    /// Moves past the WQE that `peek` returned.
    #[inline]
    pub fn advance(&mut self) {
        self.0.advance();
    }

    /// Gives the slots of all used WQEs back to the application.
    #[inline]
    pub fn release(&mut self) {
        self.0.release();
    }
}

impl SendSlot<'_> {
    /// The application's request, with its SGEs: those of the slot, or those given for its inline data.
    ///
    /// # Errors
    /// [`BadWqe`], which has the `wr_id` to complete in error.
    #[inline]
    pub fn request<'b>(&self, sges: &'b [Sge]) -> Result<SendWr<'b>, BadWqe> {
        let bad = |kind| Err(BadWqe { wr_id: self.control[0], kind });
        if self.is_inline() {
            if self.length() as usize > self.data_bytes {
                return bad(BadWqeKind::InlineLength(self.length()));
            }
        } else if usize::from(self.num_sge()) * 16 > self.data_bytes {
            return bad(BadWqeKind::SgeCount(self.num_sge()));
        }
        decode(&self.control, sges)
    }

    /// Copies the inline bytes into `buffer` and returns them; never reads beyond the slot, even if `length`
    /// is larger.
    #[inline]
    pub fn inline<'b>(&self, buffer: &'b mut [u8; MAX_INLINE_BYTES]) -> &'b [u8] {
        let length = if self.is_inline() { (self.length() as usize).min(self.data_bytes) } else { 0 };
        self.window.copy_out(self.data, &mut buffer[..length]);
        &buffer[..length]
    }

    /// Copies the SGEs into `buffer` and returns them; never reads beyond the slot, even if `num_sge` is
    /// larger.
    #[inline]
    pub fn sges<'b>(&self, buffer: &'b mut [Sge; MAX_SGES]) -> &'b [Sge] {
        let count = if self.is_inline() { 0 } else { usize::from(self.num_sge()).min(self.data_bytes / 16) };
        for (i, sge) in buffer[..count].iter_mut().enumerate() {
            *sge = decode_sge(self.window.load_words_relaxed(self.data + 16 * i));
        }
        &buffer[..count]
    }

    fn is_inline(&self) -> bool {
        (self.control[1] >> 8) as u8 & flag::INLINE != 0
    }

    fn num_sge(&self) -> u8 {
        (self.control[1] >> 16) as u8
    }

    fn length(&self) -> u32 {
        (self.control[1] >> 32) as u32
    }
}

/// Whether a slot is free, as a verb's result.
#[inline]
pub(crate) fn has_room(ring: &mut Producer) -> Result<(), PostError> {
    match ring.free() {
        Ok(0) => Err(PostError::QueueFull),
        Ok(_) => Ok(()),
        // A ring whose other end lies cannot be used.
        Err(CursorError { .. }) => Err(PostError::NoSuchQueue),
    }
}

#[inline]
pub(crate) fn encode_sge(sge: &Sge) -> [u64; 2] {
    [sge.addr, pair(sge.length, sge.lkey.0)]
}

#[inline]
pub(crate) fn decode_sge(words: [u64; 2]) -> Sge {
    Sge { addr: words[0], length: words[1] as u32, lkey: LocalKey((words[1] >> 32) as u32) }
}

#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn encode(wr: &SendWr<'_>, num_sge: u8, length: u32, mut flags: u8) -> [u64; 8] {
    let mut words = [0; 8];
    let (mut imm, mut rkey) = (0, 0);
    let mut remote = |at: Remote| (rkey, words[3]) = (at.rkey.0, at.va);
    let opcode = match wr.operation {
        Operation::Send => opcode::SEND,
        Operation::SendImm(value) => {
            imm = value;
            opcode::SEND_WITH_IMM
        }
        Operation::SendInvalidate(key) => {
            imm = key.0;
            opcode::SEND_WITH_INVALIDATE
        }
        Operation::Write(to) => {
            remote(to);
            opcode::WRITE
        }
        Operation::WriteImm(to, value) => {
            remote(to);
            imm = value;
            opcode::WRITE_WITH_IMM
        }
        Operation::Read(from) => {
            remote(from);
            opcode::READ
        }
        Operation::CompareSwap { remote: at, compare, swap } => {
            remote(at);
            (words[4], words[5]) = (compare, swap);
            opcode::COMPARE_SWAP
        }
        Operation::FetchAdd { remote: at, add } => {
            remote(at);
            words[4] = add;
            opcode::FETCH_ADD
        }
        Operation::LocalInvalidate(key) => {
            imm = key.0;
            opcode::LOCAL_INVALIDATE
        }
        Operation::BindWindow(bind) => {
            (imm, rkey) = (bind.region.0, bind.new_key.0);
            (words[3], words[5], words[6]) = (bind.va, bind.length, pair(0, bind.access.bits()));
            opcode::BIND_WINDOW
        }
    };
    match (&wr.datagram, opcode) {
        (Some(to), opcode::SEND | opcode::SEND_WITH_IMM | opcode::SEND_WITH_INVALIDATE) => {
            flags |= flag::DATAGRAM;
            let (address, [low, high]) = (&to.address, halves(&to.address.gid));
            (words[4], words[5], words[6]) = (low, high, pair(to.qpn.value(), to.qkey));
            let small = [address.traffic_class, address.hop_limit, 0, 0];
            words[7] = pair(address.flow_label, u32::from_le_bytes(small));
        }
        // XRC: the peer's shared receive queue.
        (Some(to), _) if !wr.operation.is_local() => words[6] = pair(to.qpn.value(), 0),
        _ => {}
    }
    let bit = |set: bool, flag: u8| if set { flag } else { 0 };
    flags |= bit(wr.flags.signaled, flag::SIGNALED)
        | bit(wr.flags.solicited, flag::SOLICITED)
        | bit(wr.flags.fence, flag::FENCE);
    words[0] = wr.wr_id;
    words[1] = u64::from(opcode) | u64::from(flags) << 8 | u64::from(num_sge) << 16 | u64::from(length) << 32;
    words[2] = pair(imm, rkey);
    words
}

#[inline]
fn decode<'a>(words: &[u64; 8], sges: &'a [Sge]) -> Result<SendWr<'a>, BadWqe> {
    let wr_id = words[0];
    let bits = (words[1] >> 8) as u8;
    let (imm, rkey) = (words[2] as u32, RemoteKey((words[2] >> 32) as u32));
    let remote = Remote { va: words[3], rkey };
    let operation = match words[1] as u8 {
        opcode::SEND => Operation::Send,
        opcode::SEND_WITH_IMM => Operation::SendImm(imm),
        opcode::SEND_WITH_INVALIDATE => Operation::SendInvalidate(RemoteKey(imm)),
        opcode::WRITE => Operation::Write(remote),
        opcode::WRITE_WITH_IMM => Operation::WriteImm(remote, imm),
        opcode::READ => Operation::Read(remote),
        opcode::COMPARE_SWAP => Operation::CompareSwap { remote, compare: words[4], swap: words[5] },
        opcode::FETCH_ADD => Operation::FetchAdd { remote, add: words[4] },
        opcode::LOCAL_INVALIDATE => Operation::LocalInvalidate(RemoteKey(imm)),
        opcode::BIND_WINDOW => Operation::BindWindow(WindowBind {
            // The key's upper 24 bits name the window; a bind changes the low eight (IBTA §10.6.7.2).
            window: sges.first().map_or(rkey, |sge| RemoteKey(sge.lkey.0)),
            new_key: rkey,
            region: LocalKey(imm),
            va: words[3],
            length: words[5],
            access: Access::from_bits_truncate((words[6] >> 32) as u32),
        }),
        other => return Err(BadWqe { wr_id, kind: BadWqeKind::Opcode(other) }),
    };
    let number = Qpn::new(words[6] as u32);
    let datagram = match operation {
        Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => {
            (bits & flag::DATAGRAM != 0).then(|| decode_datagram(words))
        }
        Operation::LocalInvalidate(_) | Operation::BindWindow(_) => None,
        _ => (number.value() != 0).then(|| Datagram::to_shared_queue(number)),
    };
    let flags = SendFlags {
        signaled: bits & flag::SIGNALED != 0,
        solicited: bits & flag::SOLICITED != 0,
        fence: bits & flag::FENCE != 0,
        inline: bits & flag::INLINE != 0,
    };
    let sges = if matches!(operation, Operation::BindWindow(_)) { &[] } else { sges };
    Ok(SendWr { wr_id, operation, flags, sges, datagram })
}

fn halves(gid: &Gid) -> [u64; 2] {
    let number = u128::from_le_bytes(gid.0);
    [number as u64, (number >> 64) as u64]
}

fn decode_datagram(words: &[u64; 8]) -> Datagram {
    let gid = Gid((u128::from(words[4]) | u128::from(words[5]) << 64).to_le_bytes());
    let [traffic_class, hop_limit, ..] = ((words[7] >> 32) as u32).to_le_bytes();
    Datagram {
        address: Address { gid, hop_limit, traffic_class, flow_label: words[7] as u32 },
        qpn: Qpn::new(words[6] as u32),
        qkey: (words[6] >> 32) as u32,
    }
}
