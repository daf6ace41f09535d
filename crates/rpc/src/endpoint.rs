//! An endpoint: one per thread, shared by a master (the code that drives it) and its workers (FaSST §4.1).
//!
//! Law of use: after any `handle_*` the driver calls [`run`](Endpoint::run) and then
//! [`transmit`](Endpoint::transmit) until there is nothing more to send; once per sweep over the completions,
//! so that everything that a sweep caused leaves with one doorbell.

use crate::config::{Config, Node, RequestType};
use crate::core::{Core, Execution, Outgoing, Step};
use crate::counters::Counters;
use crate::error::{AddPeerError, SpawnError};
use crate::executor::{Executor, Running};
use crate::handler::{Action, Handler, Handlers, NestedRequest, Request, Response, status};
use crate::nested::Collector;
use crate::seal::{ClusterKey, Seals, Verdict};
use crate::wire::{
    HEADER_LEN, MESSAGE_BYTES_MAX, MESSAGE_HEADER_LEN, Message, Messages, emit_message_header,
};
use crate::worker::Worker;
use highwire_stdx::Instant;
use highwire_verbs::Datagram;
use highwire_wire::Qpn;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// A datagram that arrived: its completion's fields, and the bytes in its receive.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The immediate.
    pub immediate: u32,
    /// The sender's queue pair.
    pub source_qpn: Qpn,
    /// The 40 bytes in front of the datagram, if there are any: from them an endpoint learns the address of a
    /// node that introduces itself.
    pub grh: Option<&'a [u8]>,
    /// The datagram.
    pub bytes: &'a [u8],
}

/// An endpoint.
#[derive(Debug)]
pub struct Endpoint {
    // Before the core: workers that are dropped cancel their calls there.
    executor: Executor,
    handlers: Handlers,
    pub(crate) core: Rc<RefCell<Core>>,
    /// Of a cluster with a key.
    seals: Option<Seals>,
    /// The longest response that a handler may make.
    response_bytes_max: usize,
}

impl Endpoint {
    /// An endpoint without handlers, workers and peers.
    pub fn new(config: Config) -> Endpoint {
        let config = config.sound();
        Endpoint {
            executor: Executor::new(config.tasks_max),
            handlers: Handlers::new(),
            seals: Seals::new(&config),
            response_bytes_max: MESSAGE_BYTES_MAX.min(config.batch_bytes_max as usize),
            core: Rc::new(RefCell::new(Core::new(config))),
        }
    }

    /// This node.
    pub fn node(&self) -> Node {
        self.core.borrow().config.node
    }

    /// Its configuration.
    pub fn config(&self) -> Config {
        self.core.borrow().config.clone()
    }

    /// Handles requests of a type in the call that receives them. The handler must not wait.
    pub fn register(
        &mut self,
        request: RequestType,
        handler: impl FnMut(&Request<'_>, &mut Response<'_>) + 'static,
    ) {
        self.handlers.set(request, Action::Plain(Box::new(handler)));
    }

    /// Handles requests of a type each by a worker of its own, which may call other nodes.
    pub fn register_nested<F>(
        &mut self,
        request: RequestType,
        mut handler: impl FnMut(Worker, NestedRequest) -> F + 'static,
    ) where
        F: Future<Output = Vec<u8>> + 'static,
    {
        let handler =
            move |worker, request| -> crate::handler::NestedFuture { Box::pin(handler(worker, request)) };
        self.handlers.set(request, Action::Nested(Box::new(handler)));
    }

    /// Lets requests of a registered type run only if they carry this node's configuration id.
    pub fn set_fenced(&mut self, request: RequestType, is_fenced: bool) {
        if let Some(handler) = self.handlers.get(request.0) {
            handler.is_fenced = is_fenced;
        }
    }

    /// Shows requests of a registered type to `look` before the first request of their batch is executed: it
    /// can fetch from memory what the handler will read, for all of them at the same time.
    pub fn look_ahead(&mut self, request: RequestType, look: impl FnMut(&[u8]) + 'static) {
        if let Some(handler) = self.handlers.get(request.0) {
            handler.ahead = Some(Box::new(look));
        }
    }

    /// Adds a peer, or gives it another address. The Q_Key is the configuration's.
    ///
    /// # Errors
    /// [`AddPeerError`].
    pub fn add_peer(&mut self, node: Node, to: Datagram) -> Result<(), AddPeerError> {
        self.core.borrow_mut().add_peer(node, to)
    }

    /// Forgets a peer: calls to it fail, and its datagrams are a stranger's.
    pub fn remove_peer(&mut self, node: Node) {
        self.core.borrow_mut().remove_peer(node);
    }

    /// Gives a peer a key that only it and this endpoint have, in place of the cluster's. Without a cluster's key nothing carries a tag, and
    /// this does nothing.
    pub fn set_peer_key(&mut self, node: Node, key: ClusterKey) {
        if let Some(seals) = &mut self.seals {
            seals.set_key(node.0, Some(key));
        }
    }

    /// Forgets everything of a peer, with its own key and its responses. The number may be another peer's from then on, if the new peer has a
    /// greater incarnation and a key of its own.
    pub fn forget_peer(&mut self, node: Node) {
        self.core.borrow_mut().forget_peer(node);
        if let Some(seals) = &mut self.seals {
            seals.set_key(node.0, None);
        }
    }

    /// The configuration id that goes with every datagram from now on.
    pub fn set_fence(&mut self, fence: u16) {
        self.core.borrow_mut().fence = fence;
    }

    /// A worker's access, for a driver that makes workers.
    pub fn worker(&self) -> Worker {
        Worker { core: Rc::clone(&self.core) }
    }

    /// Adds a worker; it begins with the next [`run`](Self::run).
    ///
    /// # Errors
    /// [`SpawnError`]: there are `tasks_max` already.
    pub fn spawn<F>(&mut self, work: impl FnOnce(Worker) -> F) -> Result<Running<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let worker = self.worker();
        self.executor.spawn(work(worker))
    }

    /// The number of workers and nested handlers.
    pub fn running(&self) -> usize {
        self.executor.running()
    }

    /// The endpoint's work so far.
    pub fn counters(&self) -> Counters {
        self.core.borrow().counters
    }

    /// Takes a datagram. Requests in it are executed before this returns.
    #[inline]
    pub fn handle_receive(&mut self, now: Instant, received: &Received<'_>) {
        let Some(seals) = &mut self.seals else { return self.handle_open(now, received) };
        let mut core = self.core.borrow_mut();
        match seals.open(received) {
            Verdict::Open(bytes) => {
                drop(core);
                return self.handle_open(now, &Received { bytes, ..*received });
            }
            Verdict::OtherLife(immediate, header) => core.refuse_other_life(received, &immediate, &header),
            Verdict::Forged => core.counters.forged += 1,
            Verdict::Replayed => core.counters.replayed += 1,
        }
        core.counters.received += 1;
    }

    #[inline]
    fn handle_open(&mut self, now: Instant, received: &Received<'_>) {
        let step = {
            let mut core = self.core.borrow_mut();
            core.now = now;
            core.receive(received)
        };
        if let Step::Execute(execution) = step {
            self.execute(execution, received.bytes.get(HEADER_LEN..).unwrap_or_default());
        }
    }

    /// Runs the timers that are due; early and late calls are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut core = self.core.borrow_mut();
        core.now = now;
        core.handle_timeout();
    }

    /// When the driver must call [`handle_timeout`](Self::handle_timeout); may be early.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.core.borrow().poll_timeout()
    }

    /// Resumes the workers that are ready, and executes requests to this very node. Workers that these make
    /// ready in turn are resumed as well, within limits: a worker that yields again and again cannot keep the
    /// endpoint from the network.
    #[inline]
    pub fn run(&mut self, now: Instant) {
        const ROUNDS_MAX: u32 = 4;
        self.core.borrow_mut().now = now;
        for _ in 0..ROUNDS_MAX {
            let resumed = self.executor.run();
            let has_local = {
                let mut core = self.core.borrow_mut();
                core.counters.resumed += resumed;
                !core.local.is_empty()
            };
            if has_local {
                self.run_local();
            }
            if !self.executor.is_ready() {
                return;
            }
        }
    }

    /// Whether a worker is to be resumed, or there is a datagram to send.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.executor.is_ready() || {
            let core = self.core.borrow();
            core.has_output() || !core.local.is_empty()
        }
    }

    /// Whether there is a datagram to send.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.core.borrow().has_output()
    }

    /// Offers each datagram to `post`, until `post` says that it has no room; returns how many `post` took.
    #[inline]
    pub fn transmit(&mut self, mut post: impl FnMut(&Outgoing<'_>) -> bool) -> u32 {
        let mut core = self.core.borrow_mut();
        if !core.has_output() {
            return 0;
        }
        match &mut self.seals {
            Some(seals) => core.transmit(&mut |outgoing| {
                let seal = seals.seal(outgoing);
                post(&Outgoing { tail: &seal, ..*outgoing })
            }),
            None => core.transmit(&mut post),
        }
    }

    /// Executes requests to this very node, which see no network.
    #[cold]
    fn run_local(&mut self) {
        loop {
            let next = self.core.borrow_mut().take_local();
            let Some((execution, request)) = next else { return };
            let origin = execution.origin;
            self.execute(execution, request.get(HEADER_LEN..).unwrap_or_default());
            self.core.borrow_mut().keep_request(origin, request);
        }
    }

    /// Runs the handlers of a batch, with nothing borrowed: a handler may use a worker's access.
    #[inline]
    fn execute(&mut self, mut execution: Execution, body: &[u8]) {
        let mut response = std::mem::take(&mut execution.response);
        let Ok(mut messages) = execution.messages(body) else { return };
        let own_fence = {
            let mut core = self.core.borrow_mut();
            core.counters.handled += u64::from(execution.count);
            core.fence
        };
        if execution.count > 1 {
            for message in messages.clone() {
                if let Some(Handler { ahead: Some(look), .. }) = self.handlers.get(message.tag) {
                    look(message.bytes);
                }
            }
        }
        while let Some(message) = messages.next() {
            if self.handlers.is_nested(message.tag) {
                return self.execute_nested(&execution, own_fence, &response, message, messages);
            }
            self.answer(&execution, &message, own_fence, &mut response);
        }
        self.core.borrow_mut().executed(execution.origin, execution.count, response);
    }

    /// Adds the response to a request with a plain handler, or the status that says why there is none.
    #[inline]
    fn answer(&mut self, execution: &Execution, message: &Message<'_>, own_fence: u16, batch: &mut Vec<u8>) {
        let at = batch.len();
        batch.extend_from_slice(&[0; MESSAGE_HEADER_LEN]);
        let (status, length) = match self.handlers.get(message.tag) {
            None => (status::NO_SUCH_TYPE, 0),
            Some(handler) if handler.is_fenced && execution.fence != own_fence => {
                self.core.borrow_mut().counters.fenced += 1;
                (status::FENCED, 0)
            }
            Some(handler) => match &mut handler.action {
                Action::Plain(run) => {
                    let mut response = Response::new(batch);
                    run(&execution.request(message), &mut response);
                    response.finish(self.response_bytes_max)
                }
                Action::Nested(_) => (status::OVERLOADED, 0),
            },
        };
        emit_message_header(batch, at, status, length);
    }

    /// Executes the rest of a batch, from the first request with a nested handler on. The answers so far are
    /// in `response`.
    #[cold]
    fn execute_nested(
        &mut self,
        execution: &Execution,
        own_fence: u16,
        response: &[u8],
        first: Message<'_>,
        rest: Messages<'_>,
    ) {
        let answered = usize::from(execution.count) - 1 - rest.clone().count();
        let behind = response.get(HEADER_LEN..).unwrap_or_default();
        let collector = Collector::new(Rc::clone(&self.core), execution, behind, answered);
        for (message, index) in std::iter::once(first).chain(rest).zip(answered..) {
            if self.handlers.may_run_nested(message.tag, execution.fence == own_fence)
                && self.spawn_nested(execution, index, &message, &collector)
            {
                continue;
            }
            let mut alone = Vec::new();
            self.answer(execution, &message, own_fence, &mut alone);
            let bytes = alone.split_off(MESSAGE_HEADER_LEN);
            collector.put(index, alone[0], bytes);
        }
    }

    fn spawn_nested(
        &mut self,
        execution: &Execution,
        index: usize,
        message: &Message<'_>,
        collector: &Collector,
    ) -> bool {
        let worker = self.worker();
        if self.executor.is_full() {
            return false;
        }
        let Some(handler) = self.handlers.get(message.tag) else { return false };
        let Action::Nested(run) = &mut handler.action else { return false };
        let request = execution.request(message);
        let owned = NestedRequest { node: request.node, fence: request.fence, bytes: request.bytes.to_vec() };
        let work = run(worker, owned);
        let (collector, bytes_max) = (collector.clone(), self.response_bytes_max);
        let job = async move {
            let bytes = work.await;
            match bytes.len() <= bytes_max {
                true => collector.put(index, status::OK, bytes),
                false => collector.put(index, status::HANDLER_FAILED, Vec::new()),
            }
        };
        self.executor.spawn(job).is_ok()
    }
}
