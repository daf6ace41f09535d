//! One program's objects, and its questions about them.
//!
//! All objects belong to the session and are destroyed with it, in the order that keys, queues and memory
//! demand. Handles are numbers of this session, never used again; another session's handles are invalid here.

use super::bells::{BellName, Bells};
use super::protocol::{Kind, Refusal, Request, Status, narrow};
use super::shares::{Program, Share, Shares};
use super::{Bell, Channels, attributes};
use crate::completion_queue::{CompletionQueue, CompletionQueueConfig};
use crate::device::Device;
use crate::queue_pair::{QueuePair, QueuePairConfig};
use crate::region::{MemoryRegion, ProtectionDomain};
use crate::rings::Home;
use crate::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use highwire_link::shm::LocalEngine;
use highwire_shmem::WholeSegment;
use highwire_stdx::words::counted;
use highwire_verbs::{QpCaps, Service};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a withdrawal waits for a living peer that uses the object, before it answers that the object is
/// in use.
const PATIENCE: Duration = Duration::from_secs(2);

type Answer = Result<Vec<u64>, Refusal>;

/// The objects of one program. The order of the fields is that in which they go.
pub(super) struct Session {
    queue_pairs: BTreeMap<u64, Held<QueuePair>>,
    srqs: BTreeMap<u64, Held<SharedReceiveQueue>>,
    regions: BTreeMap<u64, Held<MemoryRegion>>,
    cqs: BTreeMap<u64, CompletionQueue>,
    pds: BTreeMap<u64, ProtectionDomain>,
    arenas: BTreeMap<u64, WholeSegment>,
    bells: BTreeMap<u64, BellName>,
    next_handle: u64,
    channels: Arc<Channels>,
    local: Arc<LocalEngine>,
    device: Device,
    shares: (Arc<Shares>, Program),
    names: Arc<Bells>,
}

/// An object with the handles of those that it needs.
struct Held<T> {
    object: T,
    needs: Vec<u64>,
    _share: Option<Share>,
}

impl Session {
    pub(super) fn new(
        device: &Device,
        local: &Arc<LocalEngine>,
        channels: Arc<Channels>,
        shares: (Arc<Shares>, Program),
        names: &Arc<Bells>,
    ) -> Session {
        Session {
            queue_pairs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            regions: BTreeMap::new(),
            cqs: BTreeMap::new(),
            pds: BTreeMap::new(),
            arenas: BTreeMap::new(),
            bells: BTreeMap::new(),
            next_handle: 1,
            channels,
            local: Arc::clone(local),
            device: device.clone(),
            shares,
            names: Arc::clone(names),
        }
    }

    /// Carries out a request.
    pub(super) fn handle(&mut self, request: &Request) -> Answer {
        let unknown =
            || Refusal::new(Status::Malformed, format!("there is no request of kind {}", request.kind));
        match Kind::from_u16(request.kind).ok_or_else(unknown)? {
            Kind::Hello | Kind::Events => {
                Err(Refusal::new(Status::Malformed, "only the first frame says hello"))
            }
            Kind::CreatePd => {
                let [] = request.words()?;
                let pd = self.device.protection_domain();
                let number = u64::from(pd.id().0);
                let handle = self.next();
                self.pds.insert(handle, pd);
                Ok(vec![handle, number])
            }
            Kind::DestroyPd => {
                let [handle] = request.words()?;
                self.check_unused(handle, "protection domain")?;
                remove(&mut self.pds, handle, "protection domain").map(|_| vec![])
            }
            Kind::Allocate => self.allocate(request.words()?),
            Kind::Free => {
                let [handle] = request.words()?;
                self.check_unused(handle, "arena")?;
                remove(&mut self.arenas, handle, "arena").map(|_| vec![])
            }
            Kind::Register => self.register(request.words()?),
            Kind::Deregister => self.deregister(request.words()?),
            Kind::CreateCq => self.create_cq(request.words()?),
            Kind::DestroyCq => {
                let [handle] = request.words()?;
                self.check_unused(handle, "completion queue")?;
                remove(&mut self.cqs, handle, "completion queue").map(|_| vec![])
            }
            Kind::CreateSrq => self.create_srq(request.words()?),
            Kind::DestroySrq => {
                let [handle] = request.words()?;
                self.check_unused(handle, "shared receive queue")?;
                remove(&mut self.srqs, handle, "shared receive queue").map(|_| vec![])
            }
            Kind::CreateQp => self.create_qp(request.words()?),
            Kind::DestroyQp => self.destroy_qp(request.words()?),
            Kind::ModifyQp => self.modify_qp(request.words()?),
            Kind::QueryQp => {
                let [handle] = request.words()?;
                Ok(attributes::to_words(&find(&self.queue_pairs, handle, "queue pair")?.object.query()))
            }
            Kind::CreateBell => {
                let [] = request.words()?;
                let name = self.names.name(self.bells.len())?;
                let number = u64::from(name.number());
                let handle = self.next();
                self.bells.insert(handle, name);
                Ok(vec![handle, number])
            }
            Kind::DestroyBell => {
                let [handle] = request.words()?;
                remove(&mut self.bells, handle, "bell").map(|_| vec![])
            }
        }
    }

    fn allocate(&mut self, [length]: [u64; 1]) -> Answer {
        let length = narrow(length, "length")?;
        let segment = self.device.pool().whole(length);
        let segment = segment.map_err(|error| Refusal::new(Status::NoMemory, error))?;
        let (id, bytes) = (u64::from(segment.id()), segment.window().len() as u64);
        let handle = self.next();
        self.arenas.insert(handle, segment);
        Ok(vec![handle, id, bytes])
    }

    fn register(&mut self, [pd, arena, offset, length, iova, access]: [u64; 6]) -> Answer {
        let domain = find(&self.pds, pd, "protection domain")?;
        let window = find(&self.arenas, arena, "arena")?.window();
        let (offset, length) = (narrow::<usize>(offset, "offset")?, narrow::<usize>(length, "length")?);
        if offset.checked_add(length).is_none_or(|end| end > window.len()) {
            return Err(Refusal::refused("the region does not lie within its arena"));
        }
        let access = attributes::access(access)?;
        // SAFETY: the range lies in a mapping that the session keeps until the region is gone.
        #[allow(unsafe_code)]
        let region =
            unsafe { domain.register_at(window.as_ptr().wrapping_add(offset), length, iova, access) };
        let object = region.map_err(Refusal::refused)?;
        let key = u64::from(object.rkey().0);
        let handle = self.next();
        self.regions.insert(handle, Held { object, needs: vec![pd, arena], _share: None });
        Ok(vec![handle, key])
    }

    fn deregister(&mut self, [handle]: [u64; 1]) -> Answer {
        let key = find(&self.regions, handle, "memory region")?.object.rkey();
        self.local.withdraw_region(key.0, PATIENCE).map_err(|error| Refusal::new(Status::InUse, error))?;
        remove(&mut self.regions, handle, "memory region").map(|_| vec![])
    }

    fn create_cq(&mut self, [capacity, channel]: [u64; 2]) -> Answer {
        let config = CompletionQueueConfig::new(narrow(capacity, "capacity")?);
        let max_cqe = self.device.limits().max_cqe;
        if config.capacity > max_cqe {
            return Err(Refusal::refused(format!("a completion queue holds at most {max_cqe}")));
        }
        let handle = self.next();
        let bell = match channel {
            0 => None,
            channel => Some(Bell::new(self.channels.find(channel)?, handle)),
        };
        let owner = self.device.owner();
        let cq = CompletionQueue::create_in(owner, &config, Home::Files(self.device.pool()), bell);
        let cq = cq.map_err(Refusal::refused)?;
        let file = cq.ring_file();
        self.cqs.insert(handle, cq);
        Ok(vec![handle, u64::from(file.segment), file.bytes as u64])
    }

    fn create_srq(&mut self, [pd, max_wr, max_sge]: [u64; 3]) -> Answer {
        let domain = find(&self.pds, pd, "protection domain")?;
        let config = SharedReceiveQueueConfig::new(narrow(max_wr, "max_wr")?, narrow(max_sge, "max_sge")?);
        let limits = self.device.limits();
        if config.max_wr > limits.max_wr || config.max_sge > limits.max_sge {
            return Err(Refusal::refused(format!(
                "at most {} receives of {} SGEs",
                limits.max_wr, limits.max_sge
            )));
        }
        let share = self.shares.0.take(self.shares.1)?;
        let made = SharedReceiveQueue::create_in(domain, &config, Home::Files(self.device.pool()));
        let object = made.map_err(Refusal::refused)?;
        let (file, bell) = object.ring_file();
        let handle = self.next();
        self.srqs.insert(handle, Held { object, needs: vec![pd], _share: Some(share) });
        Ok(vec![handle, u64::from(file.segment), file.bytes as u64, u64::from(bell)])
    }

    fn create_qp(&mut self, words: [u64; 11]) -> Answer {
        let [
            pd,
            service,
            send_cq,
            recv_cq,
            srq,
            max_send_wr,
            max_recv_wr,
            sges,
            max_inline,
            signal_all,
            takes,
        ] = words;
        let domain = find(&self.pds, pd, "protection domain")?;
        let service = match service {
            2 => Service::Rc,
            3 => Service::Uc,
            4 => Service::Ud,
            _ => return Err(Refusal::refused(format!("no service has the number {service}"))),
        };
        let srq_held = if srq == 0 { None } else { Some(find(&self.srqs, srq, "shared receive queue")?) };
        let config = QueuePairConfig {
            service,
            send_cq: find(&self.cqs, send_cq, "completion queue")?,
            recv_cq: find(&self.cqs, recv_cq, "completion queue")?,
            srq: srq_held.map(|held| &held.object),
            caps: QpCaps {
                max_send_wr: narrow(max_send_wr, "max_send_wr")?,
                max_recv_wr: narrow(max_recv_wr, "max_recv_wr")?,
                max_send_sge: sges as u32,
                max_recv_sge: (sges >> 32) as u32,
                max_inline: narrow(max_inline, "max_inline")?,
            },
            signal_all: signal_all != 0,
            keeps_places: false,
            events: None,
        };
        let limits = self.device.limits();
        if config.caps.max_send_wr.max(config.caps.max_recv_wr) > limits.max_wr {
            return Err(Refusal::refused(format!("a queue holds at most {} requests", limits.max_wr)));
        }
        let share = self.shares.0.take(self.shares.1)?;
        // If several queue pairs receive from one queue, or one from several peers, no peer can take receives
        // itself.
        let on_demand = takes != 0 && service == Service::Rc && srq == 0;
        let object = domain
            .queue_pair_in(&config, Home::Files(self.device.pool()), on_demand)
            .map_err(Refusal::refused)?;
        if let Some(sq) = object.mapped_sq() {
            self.local.guests().add(sq);
        }
        let (files, endpoint) = (object.files(), object.endpoint());
        let handle = self.next();
        self.queue_pairs
            .insert(handle, Held { object, needs: vec![pd, send_cq, recv_cq, srq], _share: Some(share) });
        Ok(vec![
            handle,
            u64::from(endpoint.qpn.value()),
            u64::from(endpoint.psn.value()),
            u64::from(files.sq.segment),
            files.sq.bytes as u64,
            u64::from(files.bell),
            u64::from(files.rq.segment),
            files.rq.bytes as u64,
            u64::from(files.bell),
        ])
    }

    fn destroy_qp(&mut self, [handle]: [u64; 1]) -> Answer {
        let qp = &find(&self.queue_pairs, handle, "queue pair")?.object;
        let closed = self.local.withdraw_queue_pair(qp.qpn().value(), PATIENCE);
        closed.map_err(|error| Refusal::new(Status::InUse, error))?;
        if let Some(sq) = qp.mapped_sq() {
            self.local.guests().remove(sq);
        }
        remove(&mut self.queue_pairs, handle, "queue pair").map(|_| vec![])
    }

    fn modify_qp(&mut self, words: [u64; 1 + attributes::WORDS]) -> Answer {
        let [handle, attributes @ ..] = words;
        let attr = attributes::from_words(&attributes)?;
        let qp = &find(&self.queue_pairs, handle, "queue pair")?.object;
        qp.modify(&attr).map_err(|error| Refusal::new(Status::WrongState, error))?;
        Ok(vec![])
    }

    fn next(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle - 1
    }

    /// An object that other objects need must not be destroyed before them.
    fn check_unused(&self, handle: u64, what: &str) -> Result<(), Refusal> {
        fn needs<T>(of: &BTreeMap<u64, Held<T>>, handle: u64) -> usize {
            of.values().filter(|held| held.needs.contains(&handle)).count()
        }
        let (qps, srqs) = (needs(&self.queue_pairs, handle), needs(&self.srqs, handle));
        let regions = needs(&self.regions, handle);
        if qps + srqs + regions == 0 {
            return Ok(());
        }
        let text = format!(
            "the {what} is still used by {}, {} and {}",
            counted(qps as u64, "queue pair"),
            counted(srqs as u64, "shared receive queue"),
            counted(regions as u64, "memory region")
        );
        Err(Refusal::new(Status::InUse, text))
    }
}

impl Drop for Session {
    /// The program has gone. It may have stopped in the middle of a direct operation; no thread may go on waiting for it to
    /// finish.
    fn drop(&mut self) {
        for sq in self.queue_pairs.values().filter_map(|held| held.object.mapped_sq()) {
            self.local.guests().remove(sq);
        }
    }
}

fn find<'a, T>(of: &'a BTreeMap<u64, T>, handle: u64, what: &str) -> Result<&'a T, Refusal> {
    of.get(&handle).ok_or_else(|| no_such(handle, what))
}

fn remove<T>(of: &mut BTreeMap<u64, T>, handle: u64, what: &str) -> Result<T, Refusal> {
    of.remove(&handle).ok_or_else(|| no_such(handle, what))
}

fn no_such(handle: u64, what: &str) -> Refusal {
    Refusal::new(Status::NoSuchObject, format!("this session has no {what} with the handle {handle}"))
}
