//! A way to a node by RPCs: an endpoint of this thread, and the connection beside it that tells when the node has ended.
//!
//! Endpoints belong to threads, and a client may go from one to another. So a client has the number of its endpoint, and the
//! endpoint is the thread's. Whoever waits runs the endpoint: no other thread has to wake it.

use super::connection::{EntryError, has_ended};
use crate::door::direct::{ASK, BYTES_MAX, SERVER, SLOTS};
use crate::error::StoreError;
use crate::message::{Answer, Request, Ticket, decode};
use highwire_host::rpc::{ClusterKey, Node, Rpc, RpcConfig, Running, SpawnError, Worker, time};
use highwire_host::{Device, DeviceConfig, Endpoint, Sharing};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How often a client that waits looks whether the node has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Receives of an endpoint: twice what may be under way, and some parts of long messages.
const RECEIVES: u32 = 256;
/// Questions that wait for one another at most.
const WORKERS_MAX: usize = 4096;

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

/// The endpoints of a thread, and their devices.
#[derive(Default)]
struct Own {
    rpcs: BTreeMap<u64, Rpc>,
    // Dropped behind the queue pairs in them.
    devices: BTreeMap<Option<IpAddr>, Device>,
}

/// A way to a node. Clones are the same; it ends with the last.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Way>);

#[derive(Debug)]
struct Way {
    number: u64,
    thread: ThreadId,
    connection: TcpStream,
}

impl Drop for Way {
    fn drop(&mut self) {
        // On another thread, or at this one's end, there is none.
        let _ = OWN.try_with(|own| drop(own.borrow_mut().rpcs.remove(&self.number)));
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Line) -> bool {
        self.0.number == other.0.number
    }
}

/// A request as it goes by RPC; `None` if it needs the connection.
pub(super) fn to_bytes(request: &Request) -> Option<Vec<u8>> {
    let bytes = request.may_be_direct().then(|| postcard::to_allocvec(request).ok())??;
    (bytes.len() <= BYTES_MAX).then_some(bytes)
}

impl Line {
    /// Opens the way that a node has given on this connection.
    pub(super) fn open(ticket: &Ticket, connection: &TcpStream) -> Result<Line, EntryError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let endpoint: Endpoint =
            ticket.endpoint.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let address = own_address(connection, endpoint.gid.to_ip())?;
        let mut config = RpcConfig::new(Node(ticket.number));
        (config.receives, config.sends) = (RECEIVES, RECEIVES);
        config.endpoint.incarnation = ticket.incarnation;
        config.endpoint.key = Some(ClusterKey(ticket.key));
        config.endpoint.qkey = ticket.qkey;
        config.endpoint.accepts_strangers = false;
        (config.endpoint.slots, config.endpoint.tasks_max) = (SLOTS, WORKERS_MAX);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.with(|own| {
            let own = &mut *own.borrow_mut();
            let device = device(&mut own.devices, address)?;
            let mut rpc = Rpc::open(&device, config).map_err(io::Error::other)?;
            rpc.connect(SERVER, &endpoint).map_err(io::Error::other)?;
            own.rpcs.insert(number, rpc);
            io::Result::Ok(())
        })?;
        let connection = connection.try_clone()?;
        Ok(Line(Arc::new(Way { number, thread: thread::current().id(), connection })))
    }

    pub(super) fn is_of_this_thread(&self) -> bool {
        self.0.thread == thread::current().id()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Rpc) -> T) -> io::Result<T> {
        OWN.with(|own| {
            let mut own = own.borrow_mut();
            let rpc = own.rpcs.get_mut(&self.0.number);
            rpc.map(work).ok_or_else(|| io::Error::other("the client has gone to another thread"))
        })
    }

    /// Runs the endpoint. The thread sleeps if nothing comes for a while.
    pub(super) fn step(&self) {
        // Whoever waits for one that is gone finds that out.
        let _ = self.with(Rpc::step);
    }

    /// Asks the node.
    ///
    /// # Errors
    /// There is no answer. The node may have done what the request asks.
    pub(super) async fn ask(&self, request: Vec<u8>, patience: Duration) -> io::Result<Answer> {
        let patience = time::Duration::from_nanos(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        let ask = async move |worker: Worker| match worker.call_within(SERVER, ASK, &request, patience).await
        {
            Ok(reply) => decode(&reply),
            Err(error) if error.is_outcome_unknown() => Err(io::Error::other(error)),
            Err(error) => Ok(Answer::Failed(StoreError::Unavailable(error.to_string()))),
        };
        match self.with(|rpc| rpc.spawn(ask))? {
            Ok(running) => self.drive(running).await?,
            Err(SpawnError) => {
                let why = format!("the client asks more than {WORKERS_MAX} questions at a time");
                Ok(Answer::Failed(StoreError::Unavailable(why)))
            }
        }
    }

    /// Sleeps; other questions go on meanwhile.
    pub(super) async fn sleep(&self, length: Duration) {
        let length = time::Duration::from_nanos(length.as_nanos() as u64);
        match self.with(|rpc| rpc.spawn(async move |worker: Worker| worker.sleep(length).await)) {
            // An end of the node is the next question's affair.
            Ok(Ok(running)) => drop(self.drive(running).await),
            _ => thread::sleep(length.into()),
        }
    }

    fn drive<T>(&self, running: Running<T>) -> Drive<'_, T> {
        Drive { line: self, running, looked: Instant::now() }
    }
}

/// Waits for a worker, and runs the endpoint while it is polled.
struct Drive<'a, T> {
    line: &'a Line,
    running: Running<T>,
    looked: Instant,
}

impl<T> Future for Drive<'_, T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if let Err(error) = self.line.with(Rpc::poll) {
            return Poll::Ready(Err(error));
        }
        if let Some(value) = self.running.take() {
            return Poll::Ready(Ok(value));
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if has_ended(&self.line.0.connection) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the node has ended")));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The address of a device that reaches the node: one of this machine alone if the node is on it, otherwise the one that the connection has.
fn own_address(connection: &TcpStream, node: IpAddr) -> Result<Option<IpAddr>, EntryError> {
    let (own, other) =
        (connection.local_addr()?.ip().to_canonical(), connection.peer_addr()?.ip().to_canonical());
    if own == other || other.is_loopback() {
        return Ok(None);
    }
    if node.to_canonical().is_loopback() {
        let why = format!(
            "the node's RDMA device has the address {node}, which only clients of its machine reach by RPCs: \
             give the node an `address` in the cluster's file, or use TCP"
        );
        return Err(EntryError::Failed(StoreError::invalid(why)));
    }
    Ok(Some(own))
}

/// This thread's device with an address.
fn device(devices: &mut BTreeMap<Option<IpAddr>, Device>, address: Option<IpAddr>) -> io::Result<Device> {
    if let Some(device) = devices.get(&address) {
        return Ok(device.clone());
    }
    // Other clients of this machine have the same address.
    let sharing = if address.is_some() { Sharing::Shared } else { Sharing::Exclusive };
    let engine = highwire_host::Engine::Inline;
    let config = DeviceConfig { address, sharing, engine, ..DeviceConfig::default() };
    let device = Device::open(&config).map_err(io::Error::other)?;
    devices.insert(address, device.clone());
    Ok(device)
}
