//! One end of a stream: its queue pair, its buffers, and what is under way.
//!
//! Nothing happens by itself: whoever calls takes what has completed ([`Stream::progress`]) and waits on the two
//! descriptors that [`Stream::descriptors`] names.

use std::collections::VecDeque;
use std::ptr::null_mut;

use libc::{c_int, c_void};

use super::c;
use super::memory::Buffer;
use super::options::Options;
use super::wire::{Hello, IoMap, Message, TARGETS, Target};
use crate::abi::*;
use crate::rdmacm::abi::*;

/// Messages without data that may be under way beside those with: credits and the end.
const CONTROL_MESSAGES: u32 = 4;

/// How far a stream has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It may have an address.
    Fresh,
    /// It takes connections.
    Listening,
    /// It waits for an answer.
    Connecting,
    /// It can be used.
    Connected,
    /// It has ended, in order.
    Ended,
    /// It failed; the errno is for whoever asks first.
    Failed(c_int),
}

/// Everything that a connection needs.
pub(super) struct Pipe {
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    /// What the peer writes into.
    receive: Buffer,
    /// What is being sent.
    send: Buffer,
    /// The table that the peer writes: where its buffer goes on, and what memory it has mapped.
    table: Buffer,
    pub(super) iomap_entries: u16,
    send_size: u32,
    receive_size: u32,
    inline_max: usize,
    // The sending side.
    send_at: usize,
    send_free: usize,
    wqes_free: u32,
    control_free: u32,
    sent: u16,
    sent_max: u16,
    target: usize,
    peer: Hello,
    // The receiving side.
    arrived: VecDeque<u32>,
    receive_at: usize,
    /// Where the next half that is given to the peer begins, and how many bytes have been taken and not given again.
    grant_at: usize,
    taken: usize,
    consumed: u16,
    credit_due: u16,
    table_entry: usize,
}

/// One end of a stream.
pub(super) struct Stream {
    pub(super) state: State,
    pub(super) id: *mut rdma_cm_id,
    pub(super) events: *mut rdma_event_channel,
    pub(super) pipe: Option<Pipe>,
    pub(super) options: Options,
    /// Whether more may come, and whether more may be sent.
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// Requests for connections that `raccept` has not taken.
    pub(super) requests: VecDeque<*mut rdma_cm_event>,
    /// Memory that the peer may write to, and which of it the peer has yet to be told.
    pub(super) mapped: Vec<super::iomap::Mapped>,
    /// Threads that wait for it.
    pub(super) waiters: u32,
}

// SAFETY: the pointers are to objects that any thread may use; the stream is behind a lock.
unsafe impl Send for Stream {}

/// What a completion is of: the kind above, bytes of the send buffer below.
const KIND_RECEIVE: u64 = 1 << 32;
const KIND_CONTROL: u64 = 2 << 32;
const KIND_DATA: u64 = 3 << 32;
const KIND_MASK: u64 = 3 << 32;

impl Stream {
    /// A stream without a connection.
    pub(super) fn new() -> Result<Stream, c_int> {
        // SAFETY: the calls have no preconditions but a live result.
        unsafe {
            let events = c::made(c::rdma_create_event_channel())?;
            let mut id = null_mut();
            if let Err(errno) = c::done(c::rdma_create_id(events, &mut id, null_mut(), RDMA_PS_TCP)) {
                c::rdma_destroy_event_channel(events);
                return Err(errno);
            }
            Stream::around(id, events)
        }
    }

    /// A stream around an identifier on a channel of its own.
    fn around(id: *mut rdma_cm_id, events: *mut rdma_event_channel) -> Result<Stream, c_int> {
        // SAFETY: the channel is alive.
        c::set_nonblocking(unsafe { (*events).fd })?;
        Ok(Stream {
            state: State::Fresh,
            id,
            events,
            pipe: None,
            options: Options::default(),
            is_readable: false,
            is_writable: false,
            requests: VecDeque::new(),
            mapped: Vec::new(),
            waiters: 0,
        })
    }

    /// The number that the application knows the stream by.
    pub(super) fn fd(&self) -> c_int {
        // SAFETY: the channel lives as long as the stream.
        unsafe { (*self.events).fd }
    }

    /// What becomes readable when something happens.
    pub(super) fn descriptors(&self) -> [c_int; 2] {
        // SAFETY: the channel lives as long as the pipe.
        [self.fd(), self.pipe.as_ref().map_or(-1, |pipe| unsafe { (*pipe.channel).fd })]
    }

    /// Asks for a connection; the answer comes as an event.
    ///
    /// # Safety
    /// `address` is as long as its family says.
    pub(super) unsafe fn connect(&mut self, address: *const libc::sockaddr) -> Result<(), c_int> {
        // SAFETY: the identifier is alive; both resolutions are done at once, and their events come in order.
        unsafe {
            c::done(c::rdma_resolve_addr(self.id, null_mut(), address.cast_mut(), 2000))?;
            c::done(c::rdma_resolve_route(self.id, 2000))?;
        }
        let hello = self.build()?.emit();
        let mut parameters = parameters(&hello);
        // SAFETY: the parameters are alive.
        c::done(unsafe { c::rdma_connect(self.id, &mut parameters) })?;
        self.state = State::Connecting;
        Ok(())
    }

    /// Accepts a request that waits.
    pub(super) fn accept(&mut self) -> Result<Stream, c_int> {
        let event = self.requests.pop_front().ok_or(libc::EAGAIN)?;
        // SAFETY: the event is ours until it is acknowledged; its private data lies behind it.
        let (id, peer) = unsafe {
            let parameters = (*event).param.conn;
            let length = usize::from(parameters.private_data_len);
            ((*event).id, Hello::parse(std::slice::from_raw_parts(parameters.private_data.cast(), length)))
        };
        // SAFETY: as above.
        unsafe { c::rdma_ack_cm_event(event) };
        let accepted = peer.ok_or(libc::ECONNABORTED).and_then(|peer| self.answer(id, peer));
        accepted.inspect_err(|_| {
            // SAFETY: nobody else has the identifier.
            unsafe { c::rdma_destroy_id(id) };
        })
    }

    fn answer(&self, id: *mut rdma_cm_id, peer: Hello) -> Result<Stream, c_int> {
        // SAFETY: the identifier is of the request.
        let events = unsafe {
            let events = c::made(c::rdma_create_event_channel())?;
            if let Err(errno) = c::done(c::rdma_migrate_id(id, events)) {
                c::rdma_destroy_event_channel(events);
                return Err(errno);
            }
            events
        };
        let mut stream = Stream::around(id, events)?;
        stream.options = self.options.clone();
        let hello = stream.build()?.emit();
        stream.greet(peer);
        let mut parameters = parameters(&hello);
        // SAFETY: the parameters are alive.
        if let Err(errno) = c::done(unsafe { c::rdma_accept(id, &mut parameters) }) {
            // The caller destroys the identifier.
            stream.id = null_mut();
            return Err(errno);
        }
        stream.state = State::Connecting;
        Ok(stream)
    }

    /// Makes the queue pair and its buffers, and says what the peer has to know of them.
    fn build(&mut self) -> Result<Hello, c_int> {
        let options = &self.options;
        let (send_size, receive_size) = (options.send_queue, options.receive_queue);
        // SAFETY: the identifier is bound to a device; what is made is owned by the pipe or taken apart.
        unsafe {
            let context = (*self.id).verbs;
            let channel = c::made(c::ibv_create_comp_channel(context))?;
            let entries = (send_size + receive_size + 2 * CONTROL_MESSAGES) as c_int;
            let cq = match c::made(c::ibv_create_cq(context, entries, null_mut(), channel, 0)) {
                Ok(cq) => cq,
                Err(errno) => {
                    c::ibv_destroy_comp_channel(channel);
                    return Err(errno);
                }
            };
            let made = c::set_nonblocking((*channel).fd).and_then(|()| self.buffers(channel, cq));
            match made {
                Ok((pipe, hello)) => {
                    self.pipe = Some(pipe);
                    self.post_receives(receive_size + CONTROL_MESSAGES)?;
                    Ok(hello)
                }
                Err(errno) => {
                    c::rdma_destroy_qp(self.id);
                    c::ibv_destroy_cq(cq);
                    c::ibv_destroy_comp_channel(channel);
                    Err(errno)
                }
            }
        }
    }

    fn buffers(&self, channel: *mut ibv_comp_channel, cq: *mut ibv_cq) -> Result<(Pipe, Hello), c_int> {
        let options = &self.options;
        let cap = ibv_qp_cap {
            max_send_wr: options.send_queue + CONTROL_MESSAGES,
            max_recv_wr: options.receive_queue + CONTROL_MESSAGES,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: options.inline,
        };
        // SAFETY: zeros are attributes without anything.
        let mut attributes: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (attributes.send_cq, attributes.recv_cq, attributes.cap) = (cq, cq, cap);
        (attributes.qp_type, attributes.sq_sig_all) = (IBV_QPT_RC, 1);
        // SAFETY: the identifier is bound to a device, and the attributes are alive.
        let pd = unsafe {
            c::done(c::rdma_create_qp(self.id, null_mut(), &mut attributes))?;
            (*self.id).pd
        };
        let receive =
            Buffer::new(pd, options.receive_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)?;
        let send = Buffer::new(pd, options.send_bytes, IBV_ACCESS_LOCAL_WRITE)?;
        let iomap_entries = options.iomap_entries;
        let table_bytes = TARGETS * size_of::<Target>() + usize::from(iomap_entries) * size_of::<IoMap>();
        let table = Buffer::new(pd, table_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)?;
        let half = receive.len() / 2;
        let hello = Hello {
            credits: options.receive_queue as u16,
            iomap_entries,
            table: Target { length: TARGETS as u32, ..table.target(0, table_bytes) },
            buffer: receive.target(0, half),
            is_swapped: false,
        };
        let pipe = Pipe {
            channel,
            cq,
            iomap_entries,
            send_size: options.send_queue,
            receive_size: options.receive_queue,
            inline_max: attributes.cap.max_inline_data as usize,
            send_at: 0,
            send_free: send.len(),
            wqes_free: options.send_queue,
            control_free: CONTROL_MESSAGES,
            sent: 0,
            sent_max: 0,
            target: 0,
            peer: hello,
            arrived: VecDeque::new(),
            receive_at: 0,
            grant_at: half,
            // The second half can be given at once.
            taken: half,
            consumed: 0,
            credit_due: (options.receive_queue / 2) as u16,
            table_entry: 1,
            receive,
            send,
            table,
        };
        Ok((pipe, hello))
    }

    /// Notes what the peer said when it connected.
    pub(super) fn greet(&mut self, peer: Hello) {
        if let Some(pipe) = &mut self.pipe {
            (pipe.peer, pipe.sent_max) = (peer, peer.credits);
            pipe.table.write(0, peer.buffer);
        }
        (self.is_readable, self.is_writable) = (true, true);
    }

    fn qp(&self) -> *mut ibv_qp {
        // SAFETY: the identifier lives as long as the stream.
        unsafe { (*self.id).qp }
    }

    fn post_receives(&mut self, count: u32) -> Result<(), c_int> {
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

    /// Posts a WRITE; with a message, the peer is told what it was.
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

    /// Takes what has happened: connection events, completions; gives credits.
    pub(super) fn progress(&mut self) {
        self.take_events();
        self.take_completions();
        if self.state == State::Connected {
            super::iomap::announce(self);
            self.give_credits();
        }
    }

    fn take_events(&mut self) {
        loop {
            let mut event = null_mut();
            // SAFETY: the channel is alive and does not block.
            if unsafe { c::rdma_get_cm_event(self.events, &mut event) } != 0 {
                return;
            }
            // SAFETY: the event is ours until it is acknowledged.
            let (kind, status) = unsafe { ((*event).event, (*event).status) };
            if kind == RDMA_CM_EVENT_CONNECT_REQUEST {
                self.requests.push_back(event);
                continue;
            }
            match kind {
                RDMA_CM_EVENT_ESTABLISHED if self.state == State::Connecting => {
                    // SAFETY: as above; private data lies behind the event.
                    self.on_established(unsafe { private_data(&*event) });
                }
                RDMA_CM_EVENT_REJECTED => self.state = State::Failed(libc::ECONNREFUSED),
                RDMA_CM_EVENT_UNREACHABLE => self.state = State::Failed(libc::ETIMEDOUT),
                RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR => {
                    self.state =
                        State::Failed(status.checked_neg().filter(|&errno| errno > 0).unwrap_or(libc::EIO));
                }
                RDMA_CM_EVENT_DISCONNECTED => {
                    // What arrived before the end can still be read.
                    self.take_completions();
                    self.end(State::Ended);
                }
                _ => {}
            }
            // SAFETY: as above.
            unsafe { c::rdma_ack_cm_event(event) };
        }
    }

    fn on_established(&mut self, greeting: &[u8]) {
        // Who accepted knows its peer already, and its event carries nothing.
        if !self.is_writable {
            match Hello::parse(greeting) {
                Some(peer) => self.greet(peer),
                None => return self.state = State::Failed(libc::EPROTO),
            }
        }
        self.state = State::Connected;
    }

    /// Nothing more goes either way.
    fn end(&mut self, state: State) {
        if matches!(self.state, State::Connected | State::Connecting) {
            self.state = state;
        }
        (self.is_readable, self.is_writable) = (false, false);
    }

    fn take_completions(&mut self) {
        const BATCH: usize = 16;
        let Some(cq) = self.pipe.as_ref().map(|pipe| pipe.cq) else { return };
        loop {
            let mut completions = [ibv_wc::default(); BATCH];
            // SAFETY: the queue is alive, and the array as long as it says.
            let count = unsafe { crate::cq::poll_cq(cq, BATCH as c_int, completions.as_mut_ptr()) };
            let Ok(count) = usize::try_from(count) else { return self.end(State::Failed(libc::EIO)) };
            let mut received = 0;
            for completion in &completions[..count] {
                if completion.status != IBV_WC_SUCCESS {
                    // A peer that has gone is a stream that ends; while it was not told so, it broke.
                    self.end(State::Failed(libc::ECONNRESET));
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
                self.end(State::Failed(libc::ECONNRESET));
            }
            if count < BATCH {
                return;
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
            Message::Data(bytes) => pipe.arrived.push_back(bytes),
            Message::Credits(number) => pipe.sent_max = number,
            Message::Disconnect => self.end(State::Ended),
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
    }

    /// Whether a message without data can be sent now.
    pub(super) fn has_control(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.control_free > 0)
    }

    /// Whether there is something that can be read.
    pub(super) fn has_data(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| !pipe.arrived.is_empty())
    }

    /// Whether something can be read now, the end included.
    pub(super) fn can_read(&self) -> bool {
        self.has_data() || !self.is_readable
    }

    /// Sends as much of `bytes` as goes into one message; how much that was.
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
        let left =
            Target { addr: target.addr + length as u64, length: target.length - length as u32, ..target };
        pipe.table.write(pipe.target * size_of::<Target>(), left);
        if left.length == 0 {
            pipe.target = (pipe.target + 1) % TARGETS;
        }
        let message = Some(Message::Data(length as u32));
        let wr_id = KIND_DATA | used as u64;
        self.post_write(wr_id, &mut sges[..count], (target.addr, target.key), message, is_inline)?;
        Ok(length)
    }

    /// Writes as much of `bytes` to mapped memory of the peer as goes at once; how much that was.
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

    /// Takes what has arrived, up to the length of `to`.
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
            (pipe.receive_at, pipe.taken) = (at, pipe.taken + done);
        }
        done
    }

    /// Tells the peer of room, once there is half a buffer of it or half a queue.
    fn give_credits(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let half = pipe.receive.len() / 2;
        let is_due = pipe.taken >= half || pipe.consumed.wrapping_sub(pipe.credit_due) as i16 >= 0;
        if !is_due || pipe.control_free == 0 {
            return;
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
            let to = pipe.peer.table.addr + (pipe.table_entry * size_of::<Target>()) as u64;
            let key = pipe.peer.table.key;
            pipe.table_entry = (pipe.table_entry + 1) % pipe.peer.table.length.max(1) as usize;
            let addr = (&raw const target) as u64;
            let mut sge = [ibv_sge { addr, length: size_of::<Target>() as u32, lkey: 0 }];
            self.post_write(KIND_CONTROL, &mut sge, (to, key), Some(message), true)
        } else {
            self.post_write(KIND_CONTROL, &mut [], (0, 0), Some(message), false)
        };
        if posted.is_err() {
            self.end(State::Failed(libc::ECONNRESET));
        }
    }

    /// Tells the peer of an entry of its table of mapped memory; `false` if that cannot be done now.
    pub(super) fn send_iomap(&mut self, index: usize, entry: &IoMap) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        if index >= usize::from(pipe.peer.iomap_entries) || pipe.control_free == 0 {
            return false;
        }
        pipe.control_free -= 1;
        let at = pipe.peer.table.length as usize * size_of::<Target>() + index * size_of::<IoMap>();
        let (to, key) = (pipe.peer.table.addr + at as u64, pipe.peer.table.key);
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
            Some(Target { addr: entry.target.addr + within, key: entry.target.key, length: length as u32 })
        })
    }

    /// How many mappings the peer has room for.
    pub(super) fn peer_iomap_entries(&self) -> usize {
        self.pipe.as_ref().map_or(0, |pipe| usize::from(pipe.peer.iomap_entries))
    }

    /// Sends the end of one direction or of both; `false` if that cannot be done yet.
    pub(super) fn send_end(&mut self, message: Message) -> bool {
        let Some(pipe) = &mut self.pipe else { return true };
        if pipe.control_free == 0 {
            return false;
        }
        pipe.control_free -= 1;
        if self.post_write(KIND_CONTROL, &mut [], (0, 0), Some(message), false).is_err() {
            self.end(State::Failed(libc::ECONNRESET));
        }
        true
    }

    /// Whether everything that was sent has arrived.
    pub(super) fn is_drained(&self) -> bool {
        let Some(pipe) = &self.pipe else { return true };
        pipe.wqes_free == pipe.send_size && pipe.control_free == CONTROL_MESSAGES
    }

    /// Asks for a wake-up at the next completion.
    pub(super) fn arm(&self) {
        if let Some(pipe) = &self.pipe {
            // SAFETY: the queue is alive.
            unsafe { crate::cq::req_notify_cq(pipe.cq, 0) };
        }
    }

    /// Takes the wake-ups that have come.
    pub(super) fn disarm(&self) {
        let Some(pipe) = &self.pipe else { return };
        let (mut cq, mut context): (*mut ibv_cq, *mut c_void) = (null_mut(), null_mut());
        // SAFETY: the channel is alive and does not block; the results are writable.
        while unsafe { c::ibv_get_cq_event(pipe.channel, &mut cq, &mut context) } == 0 {
            // SAFETY: the queue is the one whose event was taken.
            unsafe { c::ibv_ack_cq_events(cq, 1) };
        }
    }
}

impl Pipe {
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

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: all of it was made here, and goes in the order of its making, reversed.
        unsafe {
            for event in self.requests.drain(..) {
                let id = (*event).id;
                c::rdma_ack_cm_event(event);
                c::rdma_destroy_id(id);
            }
            if !self.id.is_null() {
                if self.pipe.is_some() {
                    c::rdma_disconnect(self.id);
                    c::rdma_destroy_qp(self.id);
                }
                c::rdma_destroy_id(self.id);
            }
            self.mapped.clear();
            if let Some(Pipe { channel, cq, .. }) = self.pipe.take() {
                c::ibv_destroy_cq(cq);
                c::ibv_destroy_comp_channel(channel);
            }
            c::rdma_destroy_event_channel(self.events);
        }
    }
}

/// Parameters that carry a greeting.
fn parameters(hello: &[u8; Hello::LEN]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: hello.as_ptr().cast(),
        private_data_len: Hello::LEN as u8,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

/// # Safety
/// The event is one with connection parameters.
unsafe fn private_data(event: &rdma_cm_event) -> &[u8] {
    // SAFETY: the caller's promise.
    let parameters = unsafe { event.param.conn };
    if parameters.private_data.is_null() {
        return &[];
    }
    // SAFETY: private data lies behind the event, as long as it says.
    unsafe {
        std::slice::from_raw_parts(parameters.private_data.cast(), usize::from(parameters.private_data_len))
    }
}
