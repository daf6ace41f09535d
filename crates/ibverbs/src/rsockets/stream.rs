//! One end of a stream: its queue pair, its buffers, and requests under way.
//!
//! No thread serves a connected stream: each call takes completions ([`Stream::progress`]), and waits for
//! [`Changes`].

use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::Arc;

use libc::c_int;

use super::c;
use super::changes::Changes;
use super::listening::Listening;
use super::mapped::Mapped;
use super::memory::Buffer;
use super::options::Options;
use super::wire::{Hello, IoMap, Message, TARGETS, Target};
use crate::abi::*;
use crate::rdmacm::abi::*;
use crate::rdmacm::channel::observe;

/// Messages without data that may be under way beside those with: credits and the end.
pub(super) const CONTROL_MESSAGES: u32 = 4;

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
    /// It failed; the first call that asks gets the errno.
    Failed(c_int),
}

/// The objects of a connection.
pub(super) struct Pipe {
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) cq: *mut ibv_cq,
    /// The buffer that the peer writes into.
    pub(super) receive: Buffer,
    /// The data being sent.
    pub(super) send: Buffer,
    /// The table that the peer writes: the next half of its buffer, and its mapped memory.
    pub(super) table: Buffer,
    pub(super) iomap_entries: u16,
    pub(super) send_size: u32,
    pub(super) receive_size: u32,
    pub(super) inline_max: usize,
    // The sending side.
    pub(super) send_at: usize,
    pub(super) send_free: usize,
    pub(super) wqes_free: u32,
    pub(super) control_free: u32,
    pub(super) sent: u16,
    pub(super) sent_max: u16,
    pub(super) target: usize,
    pub(super) peer: Hello,
    // The receiving side.
    pub(super) arrived: VecDeque<u32>,
    /// The bytes of all of them.
    pub(super) unread: usize,
    pub(super) receive_at: usize,
    /// Where the next half that is given to the peer begins, and how many bytes have been taken and not given again.
    pub(super) grant_at: usize,
    pub(super) taken: usize,
    pub(super) consumed: u16,
    pub(super) credit_due: u16,
    pub(super) table_entry: usize,
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
    /// Whether the peer still takes what was sent. A stream that both ends have ended in turn may have data under way.
    pub(super) is_delivering: bool,
    /// The background thread tells the peer of what it is owed.
    pub(super) is_watched: bool,
    /// Connections that `raccept` has not taken.
    pub(super) listening: Listening,
    /// The end of a direction or of both, for which the peer has not been told yet.
    pub(super) unsent_end: Option<Message>,
    /// Memory that the peer may write to, and which parts have yet to be announced to it.
    pub(super) mapped: Vec<Mapped>,
    pub(super) changes: Arc<Changes>,
}

// SAFETY: the pointers are to objects that any thread may use; the stream is behind a lock.
unsafe impl Send for Stream {}

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

    /// A stream around an identifier on a channel of its own. Both are the stream's from here on.
    fn around(id: *mut rdma_cm_id, events: *mut rdma_event_channel) -> Result<Stream, c_int> {
        let stream = Stream {
            state: State::Fresh,
            id,
            events,
            pipe: None,
            options: Options::default(),
            is_readable: false,
            is_writable: false,
            is_delivering: false,
            is_watched: false,
            listening: Listening::default(),
            unsent_end: None,
            mapped: Vec::new(),
            changes: Arc::default(),
        };
        let changes = Arc::clone(&stream.changes);
        observe(events, Box::new(move || changes.on_event()))?;
        // SAFETY: the channel is alive.
        c::set_nonblocking(unsafe { (*events).fd })?;
        Ok(stream)
    }

    /// The number that the application knows the stream by.
    pub(super) fn fd(&self) -> c_int {
        // SAFETY: the channel lives as long as the stream.
        unsafe { (*self.events).fd }
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

    /// The connection that a peer asks `listener` for. The identifier belongs to the connection, or is destroyed.
    pub(super) fn answer(listener: &Stream, id: *mut rdma_cm_id, peer: Hello) -> Result<Stream, c_int> {
        // SAFETY: the identifier is of the request, and no other code has it.
        let events = unsafe {
            let made = c::made(c::rdma_create_event_channel());
            let events = made.inspect_err(|_| _ = c::rdma_destroy_id(id))?;
            if let Err(errno) = c::done(c::rdma_migrate_id(id, events)) {
                c::rdma_destroy_id(id);
                c::rdma_destroy_event_channel(events);
                return Err(errno);
            }
            events
        };
        let mut stream = Stream::around(id, events)?;
        // As accept(2) has it, the mode of the listening end is not that of its connections.
        stream.options = listener.options.clone();
        stream.options.is_nonblocking = false;
        stream.changes.belong_to(&listener.changes);
        let hello = stream.build()?.emit();
        stream.greet(peer);
        let mut parameters = parameters(&hello);
        stream.state = State::Connecting;
        // SAFETY: the parameters are alive.
        c::done(unsafe { c::rdma_accept(id, &mut parameters) })?;
        Ok(stream)
    }

    /// Makes the queue pair and its buffers, and returns the greeting that describes them to the peer.
    fn build(&mut self) -> Result<Hello, c_int> {
        let options = &self.options;
        let (send_size, receive_size) = (options.send_queue, options.receive_queue);
        // SAFETY: the identifier is bound to a device; new objects belong to the pipe or are destroyed.
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
            let host = crate::events::host_channel(channel);
            let made = host.and_then(|host| Ok((host, self.buffers(channel, cq)?)));
            match made {
                Ok((host, (pipe, hello))) => {
                    self.changes.set_channel(host);
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
            unread: 0,
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

    /// Notes the peer's greeting.
    pub(super) fn greet(&mut self, peer: Hello) {
        if let Some(pipe) = &mut self.pipe {
            (pipe.peer, pipe.sent_max) = (peer, peer.credits);
            pipe.table.write(0, peer.buffer);
        }
        (self.is_readable, self.is_writable, self.is_delivering) = (true, true, true);
    }

    pub(super) fn qp(&self) -> *mut ibv_qp {
        // SAFETY: the identifier lives as long as the stream.
        unsafe { (*self.id).qp }
    }

    /// Takes connection events and completions, gives credits, and tells of changes.
    pub(super) fn progress(&mut self) {
        let has_changed = self.take_events() | self.take_completions() | self.take_connections();
        if self.state == State::Connected {
            self.announce();
            self.give_credits();
        }
        if self.is_delivering {
            self.send_end();
        }
        if has_changed {
            self.changes.note();
        }
    }

    /// Whether the peer has yet to be told of room or of memory, for which all messages are under way.
    pub(super) fn is_owing(&self) -> bool {
        self.state == State::Connected
            && (self.is_credit_due() || self.mapped.iter().any(|mapped| mapped.unannounced().is_some()))
    }

    /// Whether there is nothing left to do for the peer of a stream that was ended. Makes progress with it.
    pub(super) fn is_settled(&mut self) -> bool {
        self.changes.take_wakeups();
        self.progress();
        !self.is_delivering || self.unsent_end.is_none() && self.unacknowledged() == 0
    }

    /// Tells the peer of mappings that it does not know.
    fn announce(&mut self) {
        for at in 0..self.mapped.len() {
            let Some((index, entry)) = self.mapped[at].unannounced() else { continue };
            if !self.send_iomap(index, &entry) {
                return;
            }
            self.mapped[at].set_announced();
        }
    }

    /// Takes connection events; a listening stream takes only as many as it has room for. Returns whether there were any.
    fn take_events(&mut self) -> bool {
        let mut has_taken = false;
        while self.state != State::Listening || self.listening.has_room() {
            let mut event = null_mut();
            // SAFETY: the channel is alive and does not block.
            if unsafe { c::rdma_get_cm_event(self.events, &mut event) } != 0 {
                break;
            }
            has_taken = true;
            // SAFETY: the event is ours until it is acknowledged.
            let (kind, status) = unsafe { ((*event).event, (*event).status) };
            match kind {
                RDMA_CM_EVENT_CONNECT_REQUEST => {
                    self.take_request(event);
                    continue;
                }
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
                RDMA_CM_EVENT_DEVICE_REMOVAL => self.break_off(State::Failed(libc::EIO)),
                RDMA_CM_EVENT_DISCONNECTED => {
                    // Data that arrived before the end can still be read.
                    self.take_completions();
                    self.break_off(State::Ended);
                }
                _ => {}
            }
            // SAFETY: as above.
            unsafe { c::rdma_ack_cm_event(event) };
        }
        has_taken
    }

    fn on_established(&mut self, greeting: &[u8]) {
        // The accepting end knows its peer already, and its event carries nothing.
        if !self.is_writable {
            match Hello::parse(greeting) {
                Some(peer) => self.greet(peer),
                None => return self.state = State::Failed(libc::EPROTO),
            }
        }
        self.state = State::Connected;
    }

    /// Ends both directions, and what was sent goes nowhere any more.
    pub(super) fn break_off(&mut self, state: State) {
        self.end(state);
        self.is_delivering = false;
    }

    /// Ends both directions.
    pub(super) fn end(&mut self, state: State) {
        if matches!(self.state, State::Connected | State::Connecting) {
            self.state = state;
        }
        (self.is_readable, self.is_writable) = (false, false);
    }

    /// Asks for a wake-up at the next completion.
    pub(super) fn arm(&self) {
        if let Some(pipe) = &self.pipe {
            // SAFETY: the queue is alive.
            unsafe { crate::cq::req_notify_cq(pipe.cq, 0) };
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: all of it was made here, and goes in the order of its making, reversed.
        unsafe {
            if self.pipe.is_some() {
                c::rdma_disconnect(self.id);
                c::rdma_destroy_qp(self.id);
            }
            c::rdma_destroy_id(self.id);
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
pub(super) unsafe fn private_data(event: &rdma_cm_event) -> &[u8] {
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
