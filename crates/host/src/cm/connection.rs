//! The active end, and connections that are in use.

use super::books::{Books, Progress};
use super::{CmError, Running, Terms, after, now};
use crate::broker::PortSpace;
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::queue_pair::{ConnectOptions, QueuePair};
use highwire_cm::{CommId, DisconnectCause};
use highwire_verbs::{Gid, ModifyError, QpAttr, QpState, Service};
use highwire_wire::Psn;
use highwire_wire::cm::{CmPath, IpCm, LID_NONE, Rej, Req, TransportType, service_id};
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Code of the packet rate in a REQ: 10 Gb/s. A software RNIC has no fixed rate, and no peer uses the field.
const PACKET_RATE: u8 = 3;

/// A queue pair with a peer. The peer is told when this value is dropped, and when the process ends, even if it is killed.
pub struct Connection {
    running: Arc<Running>,
    queue_pair: QueuePair,
    comm: CommId,
    peer: SocketAddr,
    heard: Vec<u8>,
    /// The port of this end, if it was taken for the connection.
    port: Option<u16>,
}

/// READs and atomics at once.
#[derive(Clone, Copy)]
pub(super) struct Depths {
    /// READs and atomics that this end answers at once.
    pub(super) accepted: u8,
    /// READs and atomics that this end begins at once.
    pub(super) begun: u8,
}

impl Device {
    /// Connects `queue_pair`, which is in RESET or INIT, to the listener at `to` (port space TCP), and waits for the answer. Receives
    /// for the peer's first messages are posted before, after [`QueuePair::prepare`].
    ///
    /// # Errors
    /// [`CmError`]; the queue pair is gone.
    pub fn connect(
        &self,
        to: SocketAddr,
        queue_pair: QueuePair,
        terms: &Terms<'_>,
    ) -> Result<Connection, CmError> {
        let service = check(&queue_pair, terms, Req::PRIVATE_LEN - IpCm::LEN)?;
        let running = self.connections()?;
        let gsi = running.driver.gsi();
        let own = self.gid();
        let peer = gsi.gid_of(to.ip()).ok_or(CmError::NoRoute { to: to.ip(), from: own.to_ip() })?;
        prepare(&queue_pair, terms)?;
        let port = gsi.bind_port(PortSpace::TCP, 0)?;
        let asking = Asking { running, to, comm: None, port: Some(port) };
        let source = if peer == own && !to.ip().is_unspecified() { to.ip() } else { own.to_ip() };
        let header = IpCm { source_port: port, source, destination: to.ip() };
        let request = request(self, &queue_pair, service, (peer, to.port()), &header, terms);
        asking.ask(peer, &request, queue_pair, terms)
    }
}

fn request(
    device: &Device,
    queue_pair: &QueuePair,
    service: Service,
    (peer, port): (Gid, u16),
    header: &IpCm,
    terms: &Terms<'_>,
) -> Req {
    let (options, psn) = (&terms.options, own_psn(queue_pair));
    let mut private_data = [0; Req::PRIVATE_LEN];
    private_data[..IpCm::LEN].copy_from_slice(&header.emit());
    private_data[IpCm::LEN..][..terms.private_data.len()].copy_from_slice(terms.private_data);
    let primary = CmPath {
        local_lid: LID_NONE,
        remote_lid: LID_NONE,
        local_gid: device.gid().0,
        remote_gid: peer.0,
        flow_label: psn.value() & 0xF_FFFF,
        packet_rate: PACKET_RATE,
        hop_limit: 64,
        local_ack_timeout: options.timeout,
        ..CmPath::default()
    };
    Req {
        // The manager fills in the identifier, the GUID, the response times and the number of retries.
        local_id: 0,
        ca_guid: 0,
        remote_response_timeout: 0,
        local_response_timeout: 0,
        max_cm_retries: 0,
        ece_vendor: 0,
        service_id: service_id(PortSpace::TCP.0, port),
        qkey: 0,
        qpn: queue_pair.qpn(),
        responder_resources: options.max_rd_atomic,
        initiator_depth: options.max_rd_atomic,
        transport: if service == Service::Uc { TransportType::Uc } else { TransportType::Rc },
        has_flow_control: false,
        starting_psn: psn,
        retry_count: options.retry_count.min(7),
        pkey: 0xFFFF,
        path_mtu: options.mtu.unwrap_or(device.mtu()).min(device.mtu()) as u8 + 1,
        rnr_retry_count: options.rnr_retry.min(7),
        has_srq: false,
        primary,
        alternate: CmPath::default(),
        private_data,
    }
}

/// A conversation that has not become a connection. Dropping it gives back everything that was taken for it.
struct Asking {
    running: Arc<Running>,
    to: SocketAddr,
    comm: Option<CommId>,
    port: Option<u16>,
}

impl Asking {
    fn ask(
        mut self,
        peer: Gid,
        request: &Req,
        queue_pair: QueuePair,
        terms: &Terms<'_>,
    ) -> Result<Connection, CmError> {
        let running = Arc::clone(&self.running);
        let driver = &running.driver;
        let mut books = driver.lock();
        let comm = books.manager.connect(now(), peer, request, 0);
        self.comm = Some(comm);
        books.conversations.insert(comm, Progress::Waiting);
        driver.flush(&mut books);
        books = driver.wait_until(books, terms.deadline(), |books| !books.is_waiting(comm));
        let reply = match books.conversations.get(&comm) {
            Some(Progress::Replied(reply)) => **reply,
            Some(Progress::Refused(reject)) => return Err(CmError::refused(reject)),
            Some(Progress::Unanswered) => return Err(CmError::Unanswered),
            Some(Progress::Ended(cause)) => return Err(CmError::Ended(*cause)),
            Some(Progress::Waiting | Progress::Established) | None => {
                return Err(CmError::TimedOut(terms.patience));
            }
        };
        drop(books);
        let depths = Depths {
            accepted: terms.options.max_rd_atomic.min(reply.initiator_depth),
            begun: terms.options.max_rd_atomic.min(reply.responder_resources),
        };
        let options = ConnectOptions { rnr_retry: reply.rnr_retry_count, ..terms.options };
        let endpoint = Endpoint { gid: peer, qpn: reply.qpn, psn: request.starting_psn };
        ready(&queue_pair, &endpoint, reply.starting_psn, &options, depths)?;
        let mut books = driver.lock();
        if books.manager.establish(comm).is_err() {
            // The peer has gone between its answer and this end's.
            return Err(match books.conversations.get(&comm) {
                Some(Progress::Ended(cause)) => CmError::Ended(*cause),
                Some(Progress::Refused(reject)) => CmError::refused(reject),
                _ => CmError::Unanswered,
            });
        }
        books.on_established(driver.gsi(), comm);
        driver.flush(&mut books);
        drop(books);
        self.comm = None;
        let (heard, port) = (reply.private_data.to_vec(), self.port.take());
        Ok(Connection::new(Arc::clone(&running), queue_pair, comm, self.to, heard, port))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        give_back(&self.running, self.comm, self.port);
    }
}

fn give_back(running: &Running, comm: Option<CommId>, port: Option<u16>) {
    if running.is_inherited() {
        return;
    }
    let driver = &running.driver;
    if let Some(comm) = comm {
        let mut books = driver.lock();
        books.release(driver.gsi(), comm);
        driver.flush(&mut books);
    }
    if let Some(port) = port {
        // A broker that is gone has forgotten it.
        let _ = driver.gsi().release_port(PortSpace::TCP, port);
    }
}

impl Connection {
    pub(super) fn new(
        running: Arc<Running>,
        queue_pair: QueuePair,
        comm: CommId,
        peer: SocketAddr,
        heard: Vec<u8>,
        port: Option<u16>,
    ) -> Connection {
        Connection { running, queue_pair, comm, peer, heard, port }
    }

    /// The queue pair, in RTS while the connection is in use.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// The peer's address and port.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer application's data when the connection was made, filled up with zeros: 196 bytes of an
    /// answer, 56 of a request.
    pub fn private_data(&self) -> &[u8] {
        &self.heard
    }

    /// Why the connection is over, if it is. If the peer has died without disconnecting, the queue pair's
    /// completions show it.
    pub fn ended(&self) -> Option<DisconnectCause> {
        ended(&self.running.driver.lock(), self.comm)
    }

    /// Waits until the connection is over, for so long at most. Earlier messages can still be polled;
    /// requests fail from [`disconnect`](Connection::disconnect) on.
    pub fn wait_ended(&self, patience: Duration) -> Option<DisconnectCause> {
        ended(&self.await_end(patience), self.comm)
    }

    /// Ends the connection: requests that are under way fail, the peer is told, and its answer awaited.
    ///
    /// # Errors
    /// [`CmError::TimedOut`] if the peer has not answered yet. It has been told, and will be again.
    pub fn disconnect(self, patience: Duration) -> Result<(), CmError> {
        self.fail();
        let driver = &self.running.driver;
        {
            let mut books = driver.lock();
            // If the connection is over already, there is no peer to tell.
            let _ = books.manager.disconnect(now(), self.comm, &[]);
            driver.flush(&mut books);
        }
        match self.wait_ended(patience) {
            Some(_) => Ok(()),
            None => Err(CmError::TimedOut(patience)),
        }
    }

    fn await_end(&self, patience: Duration) -> MutexGuard<'_, Books> {
        let driver = &self.running.driver;
        driver.wait_until(driver.lock(), after(patience), |books| ended(books, self.comm).is_some())
    }

    /// Sends nothing more, and flushes posted requests.
    fn fail(&self) {
        // Refused only in the child of a fork, which must not touch the queue pair.
        let _ = self.queue_pair.modify(&QpAttr::to_state(QpState::Error));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.running.is_inherited() {
            return;
        }
        self.fail();
        give_back(&self.running, Some(self.comm), self.port);
    }
}

fn ended(books: &Books, comm: CommId) -> Option<DisconnectCause> {
    match books.conversations.get(&comm) {
        Some(Progress::Ended(cause)) => Some(*cause),
        _ => None,
    }
}

impl CmError {
    pub(super) fn refused(reject: &Rej) -> CmError {
        CmError::Refused { reason: reject.reason, private_data: reject.private_data.to_vec() }
    }
}

/// Whether a queue pair and terms can make a connection.
pub(super) fn check(queue_pair: &QueuePair, terms: &Terms<'_>, room: usize) -> Result<Service, CmError> {
    let service = queue_pair.service();
    if !matches!(service, Service::Rc | Service::Uc) {
        return Err(CmError::Service(service));
    }
    let given = terms.private_data.len();
    if given > room { Err(CmError::PrivateData { given, room }) } else { Ok(service) }
}

/// The PSN at which the peer is to begin.
pub(super) fn own_psn(queue_pair: &QueuePair) -> Psn {
    queue_pair.endpoint().psn
}

/// Moves a queue pair to INIT, unless it is there already.
pub(super) fn prepare(queue_pair: &QueuePair, terms: &Terms<'_>) -> Result<(), ModifyError> {
    if queue_pair.state() == QpState::Reset { queue_pair.prepare(terms.options.access) } else { Ok(()) }
}

/// Moves a queue pair from INIT to RTS. Here each end says at which PSN the *other* is to begin (IBTA
/// §12.7.31).
pub(super) fn ready(
    queue_pair: &QueuePair,
    peer: &Endpoint,
    sq_psn: Psn,
    options: &ConnectOptions,
    depths: Depths,
) -> Result<(), ModifyError> {
    let mut to_rtr = queue_pair.to_rtr(peer, options);
    let mut to_rts = QpAttr { sq_psn: Some(sq_psn), ..queue_pair.to_rts(options) };
    if queue_pair.service() == Service::Rc {
        to_rtr.max_dest_rd_atomic = Some(depths.accepted);
        to_rts.max_rd_atomic = Some(depths.begun);
    }
    queue_pair.modify(&to_rtr)?;
    queue_pair.modify(&to_rts)
}
