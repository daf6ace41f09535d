//! The passive end: taking requests, and answering them.

use super::books::{Incoming, Progress};
use super::connection::{Depths, check, own_psn, prepare, ready};
use super::{CmError, Connection, Running, Terms, after};
use crate::broker::{PortSpace, ServiceIds};
use crate::device::Device;
use crate::queue_pair::QueuePair;
use highwire_cm::CommId;
use highwire_verbs::{Gid, Mtu, Service};
use highwire_wire::cm::{IpCm, RejectReason, Rep, Req, TransportType, service_id};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Takes the requests for a port of a device. A port belongs to one process of all that share the address, and to one listener.
pub struct Listener {
    running: Arc<Running>,
    device: Device,
    port: u16,
}

/// A request for a connection. One that is dropped is refused.
pub struct Request {
    running: Arc<Running>,
    device: Device,
    incoming: Option<Incoming>,
    addresses: Option<IpCm>,
}

impl Device {
    /// Listens at a port for connections (port space TCP, `RDMA_PS_TCP`); 0 is any that is free.
    ///
    /// # Errors
    /// [`CmError`]: the device does not share its address, or another listener has the port.
    pub fn listen(&self, port: u16) -> Result<Listener, CmError> {
        let running = self.connections()?;
        let port = running.driver.gsi().bind_port(PortSpace::TCP, port)?;
        let listener = Listener { running, device: self.clone(), port };
        let (driver, service) = (&listener.running.driver, listener.service());
        // Ready before the first request can come. If a step below fails, dropping the listener undoes the
        // earlier ones.
        {
            let mut books = driver.lock();
            books.listeners.insert(service, VecDeque::new());
            let listening = books.manager.listen(service);
            debug_assert!(listening.is_ok(), "the broker has given us the port, so nobody here has it");
        }
        driver.gsi().listen(ServiceIds::one(service))?;
        Ok(listener)
    }
}

impl Listener {
    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address at which peers reach it.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.device.gid().to_ip(), self.port)
    }

    /// The next request, or `None` after `patience` without one. Any number of threads may wait.
    pub fn request(&self, patience: Duration) -> Option<Request> {
        let (driver, service) = (&self.running.driver, self.service());
        let mut taken = None;
        let books = driver.wait_until(driver.lock(), after(patience), |books| {
            while taken.is_none()
                && let Some(incoming) = books.listeners.get_mut(&service).and_then(VecDeque::pop_front)
            {
                // Skips requests of peers that have given up meanwhile.
                if books.is_waiting(incoming.comm) {
                    taken = Some(incoming);
                } else {
                    books.release(driver.gsi(), incoming.comm);
                }
            }
            taken.is_some()
        });
        drop(books);
        let incoming = taken?;
        let addresses = incoming.request.private_data.first_chunk().and_then(IpCm::parse);
        let running = Arc::clone(&self.running);
        Some(Request { running, device: self.device.clone(), incoming: Some(incoming), addresses })
    }

    fn service(&self) -> u64 {
        service_id(PortSpace::TCP.0, self.port)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.running.is_inherited() {
            return;
        }
        let (driver, service) = (&self.running.driver, self.service());
        let mut books = driver.lock();
        for incoming in books.listeners.remove(&service).into_iter().flatten() {
            books.release(driver.gsi(), incoming.comm);
        }
        books.manager.unlisten(super::now(), service);
        driver.flush(&mut books);
        drop(books);
        // A broker that is gone has forgotten both.
        let _ = driver.gsi().unlisten(ServiceIds::one(service));
        let _ = driver.gsi().release_port(PortSpace::TCP, self.port);
    }
}

impl Request {
    /// The peer's address and port; port 0 if the peer has not named one.
    pub fn peer(&self) -> SocketAddr {
        match &self.addresses {
            Some(addresses) => SocketAddr::new(addresses.source, addresses.source_port),
            None => SocketAddr::new(self.from().to_ip(), 0),
        }
    }

    /// The address that the peer has asked for, which may be one of several of this machine.
    pub fn asked_for(&self) -> IpAddr {
        self.addresses.as_ref().map_or(self.device.gid().to_ip(), |addresses| addresses.destination)
    }

    /// The peer application's data, filled up with zeros: 56 bytes, or 92 if the request does not name the
    /// peer's address.
    pub fn private_data(&self) -> &[u8] {
        let skipped = if self.addresses.is_some() { IpCm::LEN } else { 0 };
        &self.request().private_data[skipped..]
    }

    /// The connection's service; `None` if this device does not have it.
    pub fn service(&self) -> Option<Service> {
        match self.request().transport {
            TransportType::Rc => Some(Service::Rc),
            TransportType::Uc => Some(Service::Uc),
            TransportType::Rd | TransportType::Xrc => None,
        }
    }

    /// Connects `queue_pair`, which is in RESET or INIT, and waits until the peer is ready. Receives for the peer's first messages are
    /// posted before, after [`QueuePair::prepare`].
    ///
    /// # Errors
    /// [`CmError`]; the peer is told, and the queue pair is gone.
    pub fn accept(mut self, queue_pair: QueuePair, terms: &Terms<'_>) -> Result<Connection, CmError> {
        let service = check(&queue_pair, terms, Rep::PRIVATE_LEN)?;
        if Some(service) != self.service() {
            return Err(CmError::Service(service));
        }
        let (request, from) = (*self.request(), self.from());
        let depths = Depths {
            accepted: terms.options.max_rd_atomic.min(request.initiator_depth),
            begun: terms.options.max_rd_atomic.min(request.responder_resources),
        };
        prepare(&queue_pair, terms)?;
        let psn = own_psn(&queue_pair);
        let own_mtu = terms.options.mtu.unwrap_or(self.device.mtu()).min(self.device.mtu());
        let options = crate::ConnectOptions {
            mtu: Some(mtu_of(request.path_mtu).unwrap_or(own_mtu).min(own_mtu)),
            retry_count: request.retry_count,
            rnr_retry: request.rnr_retry_count,
            ..terms.options
        };
        let peer = crate::Endpoint { gid: from, qpn: request.qpn, psn };
        ready(&queue_pair, &peer, request.starting_psn, &options, depths)?;
        let mut private_data = [0; Rep::PRIVATE_LEN];
        private_data[..terms.private_data.len()].copy_from_slice(terms.private_data);
        let reply = Rep {
            local_id: 0,
            remote_id: 0,
            qkey: 0,
            qpn: queue_pair.qpn(),
            ece_vendor: 0,
            starting_psn: psn,
            responder_resources: depths.accepted,
            initiator_depth: depths.begun,
            target_ack_delay: 15,
            failover: 0,
            has_flow_control: request.has_flow_control,
            rnr_retry_count: terms.options.rnr_retry.min(7),
            has_srq: false,
            ca_guid: 0,
            private_data,
        };
        let (comm, heard) = (self.comm(), self.private_data().to_vec());
        let (driver, deadline) = (&self.running.driver, terms.deadline());
        let mut books = driver.lock();
        if books.manager.accept(super::now(), comm, &reply, 0).is_ok() {
            driver.flush(&mut books);
            books = driver.wait_until(books, deadline, |books| !books.is_waiting(comm));
        }
        match books.conversations.get(&comm) {
            Some(Progress::Established) => {}
            Some(Progress::Ended(cause)) => return Err(CmError::Ended(*cause)),
            Some(Progress::Refused(reject)) => return Err(CmError::refused(reject)),
            Some(Progress::Unanswered) => return Err(CmError::Unanswered),
            Some(Progress::Waiting | Progress::Replied(_)) | None => {
                return Err(CmError::TimedOut(terms.patience));
            }
        }
        drop(books);
        let peer = self.peer();
        // From here on dropping the connection ends the conversation.
        self.incoming = None;
        let port = None;
        Ok(Connection::new(Arc::clone(&self.running), queue_pair, comm, peer, heard, port))
    }

    /// Refuses, with up to 148 bytes for the peer's application.
    ///
    /// # Errors
    /// [`CmError::PrivateData`]; the request is refused without it.
    pub fn refuse(self, private_data: &[u8]) -> Result<(), CmError> {
        let room = highwire_wire::cm::Rej::PRIVATE_LEN;
        if private_data.len() > room {
            return Err(CmError::PrivateData { given: private_data.len(), room });
        }
        let driver = &self.running.driver;
        let mut books = driver.lock();
        // A peer that has given up needs no refusal.
        let _ = books.manager.reject(self.comm(), RejectReason::CONSUMER, &[], private_data);
        driver.flush(&mut books);
        Ok(())
    }

    fn incoming(&self) -> &Incoming {
        self.incoming.as_ref().expect("taken only where the request ends")
    }

    fn request(&self) -> &Req {
        &self.incoming().request
    }

    fn from(&self) -> Gid {
        self.incoming().from
    }

    fn comm(&self) -> CommId {
        self.incoming().comm
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(incoming) = self.incoming.take().filter(|_| !self.running.is_inherited()) else { return };
        let driver = &self.running.driver;
        let mut books = driver.lock();
        books.release(driver.gsi(), incoming.comm);
        driver.flush(&mut books);
    }
}

/// The MTU of a REQ's code (IBTA §12.7.27).
fn mtu_of(code: u8) -> Option<Mtu> {
    Mtu::ALL.get(usize::from(code).checked_sub(1)?).copied()
}
