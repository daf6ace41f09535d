//! The door for clients that speak RPCs: their requests come as datagrams, through shared memory or UDP, to the node's own thread.
//!
//! A client comes in over a connection first, and shows there who it is. It asks for a way ([`Request::Reach`]) and gets a number
//! and a key that only it and this node have. The way ends with the connection, and it is the same user's. Requests are checked, paced
//! and carried out as those of the connection; what is long takes the connection instead.
//!
//! Clients have an endpoint of their own beside the one for nodes, so none of them can crowd out a node or speak for one.

use super::identity::check;
use super::{Conversation, Node as Member, Room, Way, answer};
use crate::access::{Visitor, random};
use crate::engine::Store;
use crate::error::StoreError;
use crate::message::{Answer, Request, Ticket, decode};
use crate::session::{Local, Shared};
use highwire_host::Device;
use highwire_host::rpc::{
    ClusterKey, Idle, NestedRequest, Node, RequestType, Rpc, RpcConfig, RpcCounters, Worker,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};

/// The type of all requests.
pub(crate) const ASK: RequestType = RequestType(1);
/// The node, for its clients.
pub(crate) const SERVER: Node = Node(0);
/// Requests of one client that may be under way.
pub(crate) const SLOTS: u16 = 16;
/// The longest request, and the longest answer.
pub(crate) const BYTES_MAX: usize = 16 << 10;
/// The most that a batch adds to its only message.
const BATCH_BYTES_MAX: u32 = BYTES_MAX as u32 + 64;
/// What one client can make the endpoint hold: a request and an answer in each slot.
const HELD_BYTES: usize = 2 * SLOTS as usize * BATCH_BYTES_MAX as usize;
/// Clients at a time.
const CALLERS_MAX: u16 = 1024;
const RECEIVES: u32 = 2048;

/// The endpoint for clients, on the node's thread.
#[derive(Default)]
pub(crate) struct Direct {
    device: Option<Device>,
    /// It opens with the first client.
    rpc: Option<Rpc>,
    callers: Rc<RefCell<Callers>>,
}

#[derive(Default)]
struct Callers {
    by_number: BTreeMap<u16, Caller>,
    /// The incarnation of the last one; each has a greater one than all before.
    incarnation: u64,
}

/// A client that has a way.
struct Caller {
    visitor: Visitor,
    is_member: bool,
}

/// A way by RPCs. It ends when this is dropped.
pub(super) struct Reached {
    store: Store,
    number: u16,
    _room: Room,
}

impl Drop for Reached {
    fn drop(&mut self) {
        let number = self.number;
        // A node that does not run any more has no ways.
        let _ =
            self.store.start(move |local| async move { local.shared.direct.borrow_mut().dismiss(number) });
    }
}

impl Conversation {
    /// Opens a way to the node by RPCs.
    pub(super) async fn reach(&mut self) -> Result<Answer, StoreError> {
        if self.store.keeper.has_tls() {
            let why = "this node speaks TLS, and requests by RPCs would not be encrypted: use the connection";
            return Err(StoreError::invalid(why));
        }
        let mut room = Room::new(&self.store.keeper.total, HELD_BYTES);
        room.take(HELD_BYTES)?;
        self.reached = None;
        let store = self.store.clone();
        let caller =
            Caller { visitor: self.guest.visitor.companion(), is_member: self.node == Member::Proved };
        let admit = move |local: Local| async move {
            let ticket = local.shared.direct.borrow_mut().admit(&local, &store, caller)?;
            Ok((Reached { store, number: ticket.number, _room: room }, ticket))
        };
        let (reached, ticket) = self.store.ask(admit).await??;
        self.reached = Some(reached);
        // It asks elsewhere from now on.
        self.guest.stream.may_be_idle();
        Ok(Answer::Reached(ticket))
    }
}

impl Direct {
    pub(crate) fn new(device: Device) -> Direct {
        Direct { device: Some(device), ..Direct::default() }
    }

    fn admit(&mut self, local: &Local, store: &Store, caller: Caller) -> Result<Ticket, StoreError> {
        let unavailable = |what: &dyn std::fmt::Display| StoreError::Unavailable(format!("RPCs: {what}"));
        let key: [u8; 32] = random().map_err(|error| unavailable(&error))?;
        let rpc = match &mut self.rpc {
            Some(rpc) => rpc,
            closed => {
                let device = self.device.as_ref().ok_or_else(|| unavailable(&"the node has no device"))?;
                closed.insert(open(device, local, store, &self.callers).map_err(|error| unavailable(&error))?)
            }
        };
        let mut callers = self.callers.borrow_mut();
        let number = (1..=CALLERS_MAX).find(|number| !callers.by_number.contains_key(number));
        let number =
            number.ok_or_else(|| unavailable(&format_args!("{CALLERS_MAX} clients, which is the most")))?;
        let incarnation = rpc.config().incarnation.max(callers.incarnation) + 1;
        callers.incarnation = incarnation;
        callers.by_number.insert(number, caller);
        rpc.set_peer_key(Node(number), ClusterKey(key));
        Ok(Ticket { endpoint: rpc.address().to_string(), qkey: rpc.config().qkey, number, incarnation, key })
    }

    fn dismiss(&mut self, number: u16) {
        self.callers.borrow_mut().by_number.remove(&number);
        if let Some(rpc) = &mut self.rpc {
            rpc.forget_peer(Node(number));
        }
    }

    /// Clients that have a way now.
    pub(crate) fn callers(&self) -> usize {
        self.callers.borrow().by_number.len()
    }

    /// The work of the endpoint so far.
    pub(crate) fn counters(&self) -> RpcCounters {
        self.rpc.as_ref().map(|rpc| rpc.counters()).unwrap_or_default()
    }

    /// One turn. Returns whether there was anything to do.
    pub(crate) fn poll(&mut self) -> bool {
        self.endpoint().is_some_and(Rpc::poll)
    }

    /// The endpoint, while it has clients.
    pub(crate) fn endpoint(&mut self) -> Option<&mut Rpc> {
        let has_callers = !self.callers.borrow().by_number.is_empty();
        self.rpc.as_mut().filter(|rpc| has_callers || rpc.running() > 0)
    }
}

/// Opens the endpoint for clients.
fn open(
    device: &Device,
    local: &Local,
    store: &Store,
    callers: &Rc<RefCell<Callers>>,
) -> Result<Rpc, Box<dyn std::error::Error>> {
    let mut config = RpcConfig::new(SERVER);
    config.idle = Idle::Spin;
    (config.receives, config.sends) = (RECEIVES, 512);
    let [key, qkey] = [random::<32>()?, random::<32>()?];
    // Nobody has this one: each client is given a key of its own.
    config.endpoint.key = Some(ClusterKey(key));
    config.endpoint.qkey = u32::from_be_bytes([qkey[0], qkey[1], qkey[2], qkey[3]]) >> 1;
    (config.endpoint.slots, config.endpoint.batch_bytes_max) = (SLOTS, BATCH_BYTES_MAX);
    config.endpoint.tasks_max = 4096;
    let mut rpc = Rpc::open(device, config)?;
    let (callers, store) = (Rc::clone(callers), Rc::new(store.clone()));
    // Whatever holds the node must not be held by it.
    let (shared, worker) = (Rc::downgrade(&local.shared), local.rpc.clone());
    rpc.register_nested(ASK, move |_, request| {
        let (callers, store) = (Rc::clone(&callers), Rc::clone(&store));
        serve(shared.clone(), worker.clone(), store, callers, request)
    });
    Ok(rpc)
}

/// Carries out a client's request.
async fn serve(
    shared: Weak<Shared>,
    worker: Worker,
    store: Rc<Store>,
    callers: Rc<RefCell<Callers>>,
    request: NestedRequest,
) -> Vec<u8> {
    let Some(shared) = shared.upgrade() else {
        return to_bytes(&Answer::Failed(StoreError::Unknown("the node has ended".into())));
    };
    let here = Here { store, local: Local { shared, rpc: worker } };
    match here.admit(&callers, &request).await {
        Ok(request) => to_bytes(&answer(request, &here).await.0),
        Err(error) => to_bytes(&Answer::Failed(error)),
    }
}

/// On the node's thread itself.
struct Here {
    store: Rc<Store>,
    local: Local,
}

impl Here {
    /// The request, when its sender may make it and it is its time.
    async fn admit(
        &self,
        callers: &RefCell<Callers>,
        request: &NestedRequest,
    ) -> Result<Request, StoreError> {
        let asked = decode(&request.bytes).map_err(|error| StoreError::invalid(error.to_string()))?;
        let delay = {
            let mut callers = callers.borrow_mut();
            let caller = callers.by_number.get_mut(&request.node.0);
            let caller =
                caller.ok_or_else(|| StoreError::Denied("the client's connection has ended".into()))?;
            check(&asked, &mut caller.visitor, caller.is_member)?;
            caller.visitor.delay(1)
        };
        if !asked.may_be_direct() {
            return Err(StoreError::invalid("this is asked on the connection"));
        }
        if !delay.is_zero() {
            self.local.sleep_ns(delay.as_nanos() as u64).await;
        }
        Ok(asked)
    }
}

impl Way for Here {
    fn store(&self) -> &Store {
        &self.store
    }

    async fn ask<T, F, W>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Local) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        Ok(job(self.local.clone()).await)
    }
}

/// An answer as it goes by RPC.
fn to_bytes(answer: &Answer) -> Vec<u8> {
    match postcard::to_allocvec(answer) {
        Ok(bytes) if bytes.len() <= BYTES_MAX => bytes,
        _ => postcard::to_allocvec(&Answer::TooLong).unwrap_or_default(),
    }
}
