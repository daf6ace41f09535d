//! The flow of a stream: messages out and in, completions, credits.

use std::ptr::null_mut;

use libc::c_int;

use super::stream::{CONTROL_MESSAGES, Pipe, State, Stream};
use super::wire::{IoMap, Message, TARGETS, Target};
use crate::abi::*;

/// In a request's number: the kind in the upper bits, bytes of the send buffer in the lower.
const KIND_RECEIVE: u64 = 1 << 32;
const KIND_CONTROL: u64 = 2 << 32;
const KIND_DATA: u64 = 3 << 32;
const KIND_MASK: u64 = 3 << 32;

impl Stream {
    pub(super) fn post_receives(&mut self, count: u32) -> Result<(), c_int> {
        let mut request =
            ibv_recv_wr { wr_id: KIND_RECEIVE, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        for _ in 0..count {
            let mut bad = null_mut();
            // SAFETY: the queue pair and the request are alive.
            match unsafe { crate::post::post_recv(self.qp(), &mut request, &mut bad) } {
                0 => {}
                errno => return Err(errno),
            }
        }
        Ok(())
    }

    /// Posts a WRITE; with a message, which the peer gets as immediate data.
    fn post_write(
        &self,
        wr_id: u64,
        sges: &mut [ibv_sge],
        (remote_addr, rkey): (u64, u32),
        message: Option<Message>,
        is_inline: bool,
    ) -> Result<(), c_int> {
        // SAFETY: zeros are a request without anything.
        let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
        request.wr_id = wr_id;
        (request.sg_list, request.num_sge) = (sges.as_mut_ptr(), sges.len() as c_int);
        request.send_flags = if is_inline { IBV_SEND_INLINE } else { 0 };
        request.wr.rdma = WrRdma { remote_addr, rkey };
        request.opcode = IBV_WR_RDMA_WRITE;
        if let Some(message) = message {
            (request.opcode, request.imm_data) = (IBV_WR_RDMA_WRITE_WITH_IMM, message.emit().to_be());
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair, the request and what it points to are alive.
        match unsafe { crate::post::post_send(self.qp(), &mut request, &mut bad) } {
            0 => Ok(()),
            errno => Err(errno),
        }
    }

    /// Takes completions. Returns whether there were any.
    pub(super) fn take_completions(&mut self) -> bool {
        const BATCH: usize = 16;
        let Some(cq) = self.pipe.as_ref().map(|pipe| pipe.cq) else { return false };
        let mut has_taken = false;
        loop {
            let mut completions = [ibv_wc::default(); BATCH];
            // SAFETY: the queue is alive, and the array as long as it says.
            let count = unsafe { crate::cq::poll_cq(cq, BATCH as c_int, completions.as_mut_ptr()) };
            let Ok(count) = usize::try_from(count) else {
                self.break_off(State::Failed(libc::EIO));
                return true;
            };
            has_taken |= count > 0;
            let mut received = 0;
            for completion in &completions[..count] {
                if completion.status != IBV_WC_SUCCESS {
                    // A peer that has gone without an announcement has broken the stream.
                    self.break_off(State::Failed(libc::ECONNRESET));
                    continue;
                }
                match completion.wr_id & KIND_MASK {
                    KIND_RECEIVE => {
                        received += 1;
                        self.on_message(Message::parse(u32::from_be(completion.imm_data)));
                    }
                    kind => self.on_sent(kind, completion.wr_id as u32 as usize),
                }
            }
            if received > 0 && self.post_receives(received).is_err() {
                self.break_off(State::Failed(libc::ECONNRESET));
            }
            if count < BATCH {
                return has_taken;
            }
        }
    }

    fn on_sent(&mut self, kind: u64, bytes: usize) {
        let Some(pipe) = &mut self.pipe else { return };
        if kind == KIND_CONTROL {
            pipe.control_free += 1;
        } else {
            pipe.wqes_free += 1;
            pipe.send_free += bytes;
        }
    }

    fn on_message(&mut self, message: Message) {
        let Some(pipe) = &mut self.pipe else { return };
        match message {
            // Its bytes lie in the buffer only if the peer keeps to what it was given.
            Message::Data(bytes) if pipe.has_room_for(bytes) => {
                pipe.arrived.push_back(bytes);
                pipe.unread += bytes as usize;
            }
            Message::Data(_) => self.break_off(State::Failed(libc::ECONNRESET)),
            Message::Credits(number) => pipe.sent_max = number,
            Message::Disconnect => self.break_off(State::Ended),
            Message::Shutdown => {
                self.is_readable = false;
                if !self.is_writable {
                    self.end(State::Ended);
                }
            }
            Message::IoMap | Message::KeepAlive | Message::Unknown => {}
        }
    }

    /// The entry of the table where the next data goes.
    fn next_target(pipe: &Pipe) -> Target {
        pipe.table.read(pipe.target * size_of::<Target>())
    }

    /// Whether something can be sent now.
    pub(super) fn can_send(&self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        self.state == State::Connected
            && self.is_writable
            && pipe.wqes_free > 0
            && pipe.sent != pipe.sent_max
            && pipe.send_free >= pipe.send.len().min(2048)
            && Stream::next_target(pipe).length > 0
            // What the peer is sent now may tell it that memory is mapped.
            && self.mapped.iter().all(|mapped| mapped.unannounced().is_none())
    }

    /// Whether there is something that can be read.
    pub(super) fn has_data(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| !pipe.arrived.is_empty())
    }

    /// Whether something can be read now, the end included.
    pub(super) fn can_read(&self) -> bool {
        self.has_data() || !self.is_readable
    }

    /// Sends as much of `bytes` as fits into one message. Returns how much that was.
    pub(super) fn send_some(&mut self, bytes: &[u8]) -> Result<usize, c_int> {
        /// Longer messages would keep the peer waiting for their beginning.
        const MESSAGE_BYTES_MAX: usize = 1 << 16;
        let Some(pipe) = &mut self.pipe else { return Err(libc::ENOTCONN) };
        let target = Stream::next_target(pipe);
        let length = bytes.len().min(pipe.send_free).min(target.length as usize).min(MESSAGE_BYTES_MAX);
        let is_inline = length <= pipe.inline_max;
        let (mut sges, count, used) = if is_inline {
            let sge = ibv_sge { addr: bytes.as_ptr() as u64, length: length as u32, lkey: 0 };
            ([sge, ibv_sge::default()], 1, 0)
        } else {
            // SAFETY: the bytes are the application's, as many as it says.
            unsafe { pipe.send.fill(pipe.send_at, bytes.as_ptr(), length) };
            pipe.sges(length)
        };
        pipe.send_free -= used;
        pipe.send_at = (pipe.send_at + used) % pipe.send.len();
        pipe.wqes_free -= 1;
        pipe.sent = pipe.sent.wrapping_add(1);
        // The peer wrote the address, which may be any.
        let addr = target.addr.wrapping_add(length as u64);
        let left = Target { addr, length: target.length - length as u32, ..target };
        pipe.table.write(pipe.target * size_of::<Target>(), left);
        if left.length == 0 {
            pipe.target = (pipe.target + 1) % TARGETS;
        }
        let message = Some(Message::Data(length as u32));
        let wr_id = KIND_DATA | used as u64;
        self.post_write(wr_id, &mut sges[..count], (target.addr, target.key), message, is_inline)?;
        Ok(length)
    }

    /// Writes as much of `bytes` to mapped memory of the peer as fits at once. Returns how much that was.
    pub(super) fn write_some(&mut self, bytes: &[u8], to: Target) -> Result<usize, c_int> {
        let Some(pipe) = &mut self.pipe else { return Err(libc::ENOTCONN) };
        let length = bytes.len().min(pipe.send_free).min(to.length as usize);
        // SAFETY: the bytes are the application's, as many as it says.
        unsafe { pipe.send.fill(pipe.send_at, bytes.as_ptr(), length) };
        let (mut sges, count, used) = pipe.sges(length);
        pipe.send_free -= used;
        pipe.send_at = (pipe.send_at + used) % pipe.send.len();
        pipe.wqes_free -= 1;
        self.post_write(KIND_DATA | used as u64, &mut sges[..count], (to.addr, to.key), None, false)?;
        Ok(length)
    }

    /// Takes bytes that have arrived, up to the length of `to`.
    pub(super) fn receive_some(&mut self, to: &mut [u8], is_peek: bool) -> usize {
        let Some(pipe) = &mut self.pipe else { return 0 };
        let (mut done, mut at, mut messages) = (0, pipe.receive_at, 0);
        let mut left = 0;
        while done < to.len()
            && let Some(&message) = pipe.arrived.get(messages)
        {
            let length = (message as usize).min(to.len() - done);
            // SAFETY: the destination has that many bytes left.
            unsafe { pipe.receive.drain(at, to.as_mut_ptr().add(done), length) };
            (done, at) = (done + length, (at + length) % pipe.receive.len());
            left = message as usize - length;
            if left > 0 {
                break;
            }
            messages += 1;
        }
        if !is_peek {
            pipe.arrived.drain(..messages);
            if left > 0
                && let Some(front) = pipe.arrived.front_mut()
            {
                *front = left as u32;
            }
            pipe.consumed = pipe.consumed.wrapping_add(messages as u16);
            (pipe.receive_at, pipe.taken, pipe.unread) = (at, pipe.taken + done, pipe.unread - done);
        }
        done
    }

    /// Tells the peer of room, once there is half a buffer of it or half a queue: of both halves, if there are.
    pub(super) fn give_credits(&mut self) {
        while self.state == State::Connected && self.is_credit_due() && self.give_credit() {}
    }

    /// Whether the peer is to be told of room.
    pub(super) fn is_credit_due(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| {
            let is_queue_due = pipe.consumed.wrapping_sub(pipe.credit_due) as i16 >= 0;
            pipe.taken >= pipe.receive.len() / 2 || is_queue_due
        })
    }

    /// Returns whether the peer was told.
    fn give_credit(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        let half = pipe.receive.len() / 2;
        if pipe.control_free == 0 {
            return false;
        }
        pipe.control_free -= 1;
        pipe.credit_due = pipe.consumed.wrapping_add((pipe.receive_size / 2) as u16);
        let message = Message::Credits(pipe.consumed.wrapping_add(pipe.receive_size as u16));
        let posted = if pipe.taken >= half {
            let mut target = pipe.receive.target(pipe.grant_at, half);
            if pipe.peer.is_swapped {
                target = Target {
                    addr: target.addr.swap_bytes(),
                    key: target.key.swap_bytes(),
                    length: target.length.swap_bytes(),
                };
            }
            pipe.taken -= half;
            pipe.grant_at = (pipe.grant_at + half) % pipe.receive.len();
            let to = pipe.peer.table.addr.wrapping_add((pipe.table_entry * size_of::<Target>()) as u64);
            let key = pipe.peer.table.key;
            pipe.table_entry = (pipe.table_entry + 1) % pipe.peer.table.length.max(1) as usize;
            let addr = (&raw const target) as u64;
            let mut sge = [ibv_sge { addr, length: size_of::<Target>() as u32, lkey: 0 }];
            self.post_write(KIND_CONTROL, &mut sge, (to, key), Some(message), true)
        } else {
            self.post_write(KIND_CONTROL, &mut [], (0, 0), Some(message), false)
        };
        if posted.is_err() {
            self.break_off(State::Failed(libc::ECONNRESET));
        }
        posted.is_ok()
    }

    /// Tells the peer of an entry of its table of mapped memory; `false` if that cannot be done now.
    pub(super) fn send_iomap(&mut self, index: usize, entry: &IoMap) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        if index >= usize::from(pipe.peer.iomap_entries) || pipe.control_free == 0 {
            return false;
        }
        pipe.control_free -= 1;
        let at = pipe.peer.table.length as usize * size_of::<Target>() + index * size_of::<IoMap>();
        let (to, key) = (pipe.peer.table.addr.wrapping_add(at as u64), pipe.peer.table.key);
        let addr = std::ptr::from_ref(entry) as u64;
        let mut sge = [ibv_sge { addr, length: size_of::<IoMap>() as u32, lkey: 0 }];
        self.post_write(KIND_CONTROL, &mut sge, (to, key), Some(Message::IoMap), true).is_ok()
    }

    /// The memory that the peer has mapped at `offset`.
    pub(super) fn peer_memory(&self, offset: u64) -> Option<Target> {
        let pipe = self.pipe.as_ref()?;
        (0..usize::from(pipe.iomap_entries)).find_map(|index| {
            let at = TARGETS * size_of::<Target>() + index * size_of::<IoMap>();
            let entry: IoMap = pipe.table.read(at);
            let within = offset.checked_sub(entry.offset)?;
            let length = u64::from(entry.target.length).checked_sub(within).filter(|&left| left > 0)?;
            let addr = entry.target.addr.wrapping_add(within);
            Some(Target { addr, key: entry.target.key, length: length as u32 })
        })
    }

    /// How many mappings the peer has room for.
    pub(super) fn peer_iomap_entries(&self) -> usize {
        self.pipe.as_ref().map_or(0, |pipe| usize::from(pipe.peer.iomap_entries))
    }

    /// Sends the end of a direction or of both, if that can be done now.
    pub(super) fn send_end(&mut self) {
        let (Some(message), Some(pipe)) = (self.unsent_end, &mut self.pipe) else { return };
        if pipe.control_free == 0 {
            return;
        }
        pipe.control_free -= 1;
        self.unsent_end = None;
        if self.post_write(KIND_CONTROL, &mut [], (0, 0), Some(message), false).is_err() {
            self.break_off(State::Failed(libc::ECONNRESET));
        }
    }

    /// Messages that have been sent and have not arrived yet, as far as is known.
    pub(super) fn unacknowledged(&self) -> u32 {
        let Some(pipe) = &self.pipe else { return 0 };
        pipe.send_size - pipe.wqes_free + CONTROL_MESSAGES - pipe.control_free
    }
}

impl Pipe {
    /// Whether a message of so many bytes can be one that this end has given the peer room for. A peer that breaks its word would
    /// have bytes read that are not in the buffer, or fill the list of messages.
    fn has_room_for(&self, bytes: u32) -> bool {
        let is_short = (1..=self.receive.len() - self.unread).contains(&(bytes as usize));
        is_short && self.arrived.len() < self.receive_size as usize
    }

    /// Where the next `length` bytes of the send buffer lie: one piece, or two round its end.
    fn sges(&self, length: usize) -> ([ibv_sge; 2], usize, usize) {
        let first = length.min(self.send.len() - self.send_at);
        let piece = |at, length: usize| ibv_sge {
            addr: self.send.at(at) as u64,
            length: length as u32,
            lkey: self.send.lkey(),
        };
        let pieces = [piece(self.send_at, first), piece(0, length - first)];
        (pieces, if first < length { 2 } else { 1 }, length)
    }
}
