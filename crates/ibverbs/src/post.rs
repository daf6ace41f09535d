//! Posting work requests: the data path. No locks that are not the queue's own, no allocation, no look-ups.

use crate::abi::*;
use crate::ah::Ah;
use crate::errno;
use crate::implicit;
use crate::limits::{MAX_INLINE, MAX_SGE};
use crate::mw::Mw;
use crate::qp::Qp;
use crate::registry;
use highwire_host::Chain;
use highwire_verbs::{
    Datagram, LocalKey, Operation, PostError, RecvWr, Remote, RemoteKey, SendFlags, SendWr, Service, Sge,
};
use highwire_wire::Qpn;
use std::mem::MaybeUninit;

/// The structure behind a pointer from C, or a copy if it is not aligned as Rust's references must be:
/// programs put requests into packed structures, and C reads them there.
///
/// # Safety
/// `pointer` is null or points to a `T`, which no thread changes meanwhile.
#[inline]
pub(crate) unsafe fn at<T: Copy>(pointer: *const T, copy: &mut MaybeUninit<T>) -> Option<&T> {
    if pointer.is_aligned() {
        // SAFETY: the caller's promise, and aligned.
        unsafe { pointer.as_ref() }
    } else {
        // SAFETY: the caller's promise; an unaligned pointer is not null.
        Some(copy.write(unsafe { pointer.read_unaligned() }))
    }
}

/// A request's SGEs in the form of the layer below.
pub(crate) struct Sges {
    sges: [Sge; MAX_SGE as usize],
    count: usize,
}

impl Sges {
    /// # Safety
    /// `list` points to `count` SGEs.
    #[inline]
    pub(crate) unsafe fn read(list: *const ibv_sge, count: c_int) -> Result<Sges, PostError> {
        let mut sges = Sges { sges: [Sge::default(); MAX_SGE as usize], count: 0 };
        if count < 0 || count as usize > sges.sges.len() {
            return Err(PostError::TooManySges);
        }
        sges.count = count as usize;
        for (index, to) in sges.sges[..sges.count].iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = to_sge(&unsafe { list.add(index).read_unaligned() });
        }
        Ok(sges)
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Sge] {
        &self.sges[..self.count]
    }

    #[inline]
    fn verify(&mut self, writes: bool) {
        implicit::verify(&mut self.sges[..self.count], writes);
    }
}

#[inline]
pub(crate) fn to_sge(from: &ibv_sge) -> Sge {
    Sge { addr: from.addr, length: from.length, lkey: LocalKey(from.lkey) }
}

#[inline]
pub(crate) fn flags(bits: c_uint) -> SendFlags {
    SendFlags {
        signaled: bits & IBV_SEND_SIGNALED != 0,
        solicited: bits & IBV_SEND_SOLICITED != 0,
        fence: bits & IBV_SEND_FENCE != 0,
        inline: bits & IBV_SEND_INLINE != 0,
    }
}

/// Where a datagram goes.
///
/// # Safety
/// `ah` is null or an address handle.
#[inline]
pub(crate) unsafe fn datagram(ah: *const ibv_ah, qpn: u32, qkey: u32) -> Result<Datagram, PostError> {
    // SAFETY: handles of ours begin with the structure that C knows.
    let ah = unsafe { ah.cast::<Ah>().as_ref() }.ok_or(PostError::BadDestination)?;
    Ok(Datagram { address: ah.address, qpn: Qpn::new(qpn), qkey })
}

/// How many bytes an atomic moves.
pub(crate) const ATOMIC_BYTES: u32 = 8;

/// An atomic WRITE goes as a WRITE of one aligned word, which a responder of ours stores at once, whichever way it came: it is
/// one packet at any MTU, and never split on the way to memory.
pub(crate) fn atomic_write(service: Service, remote: Remote) -> Result<Operation, PostError> {
    if !matches!(service, Service::Rc | Service::XrcInitiator) {
        return Err(PostError::Unsupported);
    }
    let is_aligned = remote.va.is_multiple_of(u64::from(ATOMIC_BYTES));
    if is_aligned { Ok(Operation::Write(remote)) } else { Err(PostError::BadAtomic) }
}

/// The operation of a request.
///
/// # Safety
/// The request's unions hold what its opcode says.
#[inline]
unsafe fn operation(service: Service, wr: &ibv_send_wr) -> Result<Operation, PostError> {
    // SAFETY: read only where the opcode says so.
    let remote = || unsafe { Remote { va: wr.wr.rdma.remote_addr, rkey: RemoteKey(wr.wr.rdma.rkey) } };
    // SAFETY: as above.
    let atomic = || unsafe { wr.wr.atomic };
    Ok(match wr.opcode {
        IBV_WR_SEND => Operation::Send,
        IBV_WR_SEND_WITH_IMM => Operation::SendImm(u32::from_be(wr.imm_data)),
        IBV_WR_RDMA_WRITE => Operation::Write(remote()),
        IBV_WR_RDMA_WRITE_WITH_IMM => Operation::WriteImm(remote(), u32::from_be(wr.imm_data)),
        IBV_WR_RDMA_READ => Operation::Read(remote()),
        IBV_WR_ATOMIC_WRITE => {
            // SAFETY: a request with one element points to it.
            let is_word = wr.num_sge == 1 && unsafe { wr.sg_list.read_unaligned() }.length == ATOMIC_BYTES;
            if !is_word {
                return Err(PostError::BadAtomic);
            }
            atomic_write(service, remote())?
        }
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let WrAtomic { remote_addr, compare_add, swap, rkey } = atomic();
            let remote = Remote { va: remote_addr, rkey: RemoteKey(rkey) };
            Operation::CompareSwap { remote, compare: compare_add, swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let WrAtomic { remote_addr, compare_add, rkey, .. } = atomic();
            Operation::FetchAdd {
                remote: Remote { va: remote_addr, rkey: RemoteKey(rkey) },
                add: compare_add,
            }
        }
        IBV_WR_SEND_WITH_INV => Operation::SendInvalidate(RemoteKey(wr.imm_data)),
        IBV_WR_LOCAL_INV => Operation::LocalInvalidate(RemoteKey(wr.imm_data)),
        // SAFETY: as above.
        IBV_WR_BIND_MW => unsafe { bind(&wr.extra.bind_mw)? },
        _ => return Err(PostError::Unsupported),
    })
}

/// Windows are bound rarely, so these look their objects up.
#[cold]
fn bind(request: &WrBind) -> Result<Operation, PostError> {
    let mw = registry::find::<Mw>(request.mw).map_err(|_| PostError::Unsupported)?;
    mw.bind(request.rkey, &request.bind_info).map_err(|_| PostError::Unsupported)
}

/// Copies a request's inline data together, unless it lies in one piece, and adds the request to a chain.
///
/// # Safety
/// The SGEs name readable memory.
#[inline]
pub(crate) unsafe fn push_inline(
    chain: &mut Chain<'_>,
    wr: &SendWr<'_>,
    sges: &[Sge],
) -> Result<(), PostError> {
    let mut gathered = [0; MAX_INLINE as usize];
    let mut length = 0;
    if let [one] = sges {
        let data = match one.length {
            0 => &[][..],
            // SAFETY: the caller's promise; a null address has no bytes.
            bytes => unsafe { std::slice::from_raw_parts(one.addr as *const u8, bytes as usize) },
        };
        return chain.push_inline(wr, data);
    }
    for sge in sges {
        let place = gathered.get_mut(length..length + sge.length as usize).ok_or(PostError::TooLong)?;
        // SAFETY: as above; the place is as long.
        unsafe {
            std::ptr::copy_nonoverlapping(sge.addr as *const u8, place.as_mut_ptr(), sge.length as usize);
        }
        length += sge.length as usize;
    }
    chain.push_inline(wr, &gathered[..length])
}

/// # Safety
/// The request is one, as far as its opcode says.
#[inline]
unsafe fn push(qp: &Qp, chain: &mut Chain<'_>, wr: &ibv_send_wr) -> Result<(), PostError> {
    // SAFETY: the caller's promise.
    let (operation, mut sges) = unsafe { (operation(qp.service, wr)?, Sges::read(wr.sg_list, wr.num_sge)?) };
    let datagram = match qp.service {
        // An operation that a datagram service has not will fail, and has no address handle in its union.
        Service::Ud if !matches!(operation, Operation::Send | Operation::SendImm(_)) => None,
        // SAFETY: on UD this member of the union is the one in use.
        Service::Ud => Some(unsafe { datagram(wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey)? }),
        Service::XrcInitiator => Some(Datagram::to_shared_queue(Qpn::new(wr.remote_srqn))),
        _ => None,
    };
    sges.verify(operation.is_read_or_atomic());
    let mut to_post =
        SendWr { wr_id: wr.wr_id, operation, flags: flags(wr.send_flags), sges: sges.as_slice(), datagram };
    if operation.is_local() {
        to_post.sges = &[];
    }
    if let Operation::BindWindow(_) = operation {
        chain.push(&to_post)?;
        // SAFETY: the opcode says that this is the member in use.
        registry::with::<Mw, _>(unsafe { wr.extra.bind_mw.mw }, |mw| mw.posted(&operation));
        return Ok(());
    }
    if !to_post.flags.inline {
        return chain.push(&to_post);
    }
    to_post.flags.inline = false;
    // SAFETY: the caller's promise.
    unsafe { push_inline(chain, &SendWr { sges: &[], ..to_post }, sges.as_slice()) }
}

pub(crate) unsafe extern "C-unwind" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: this function is reached through the queue pair's own context only, so it is one of ours.
        let qp = unsafe { &*qp.cast::<Qp>() };
        let Ok(host) = qp.host() else { return libc::EINVAL };
        let refused = host.chain(|chain| {
            let (mut next, mut copy) = (wr, MaybeUninit::uninit());
            // SAFETY: verbs' callers promise a chain of requests that ends with null.
            while let Some(request) = unsafe { at(next, &mut copy) } {
                // SAFETY: as above.
                if let Err(error) = unsafe { push(qp, chain, request) } {
                    if !bad.is_null() {
                        // SAFETY: not null, and C's to be written to.
                        unsafe { bad.write(next) };
                    }
                    return Some(error);
                }
                next = request.next;
            }
            None
        });
        // Only now: its explanation asks the queue pair, which is locked within the chain.
        refused.map_or(0, |error| errno::of_post("ibv_post_send", Some(qp), error))
    })
}

/// Posts a chain of receives one by one.
///
/// # Safety
/// `wr` is a chain of requests that ends with null; `bad` is null or can be written to.
#[inline]
pub(crate) unsafe fn receives(
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    (call, qp): (&'static str, Option<&Qp>),
    mut post: impl FnMut(&RecvWr<'_>) -> Result<(), PostError>,
) -> c_int {
    let (mut next, mut copy) = (wr, MaybeUninit::uninit());
    // SAFETY: the caller's promise.
    while let Some(request) = unsafe { at(next, &mut copy) } {
        // SAFETY: the caller's promise.
        let sges = unsafe { Sges::read(request.sg_list, request.num_sge) };
        let posted = sges.and_then(|mut sges| {
            sges.verify(true);
            post(&RecvWr { wr_id: request.wr_id, sges: sges.as_slice() })
        });
        if let Err(error) = posted {
            if !bad.is_null() {
                // SAFETY: the caller's promise.
                unsafe { bad.write(next) };
            }
            return errno::of_post(call, qp, error);
        }
        next = request.next;
    }
    0
}

pub(crate) unsafe extern "C-unwind" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: as in `post_send`.
        let qp = unsafe { &*qp.cast::<Qp>() };
        let Ok(host) = qp.host() else { return libc::EINVAL };
        // SAFETY: verbs' callers promise a chain of requests.
        unsafe { receives(wr, bad, ("ibv_post_recv", Some(qp)), |wr| host.post_recv(wr)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_may_lie_at_any_address() {
        let request =
            ibv_recv_wr { wr_id: 7, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 1 };
        let sge = ibv_sge { addr: 0x1000, length: 9, lkey: 3 };
        let mut bytes = [0u8; 128];
        for shift in 0..8 {
            // SAFETY: both fit, one behind the other, and a request of the caller's is not changed.
            unsafe {
                let place = bytes.as_mut_ptr().add(shift);
                let list = place.add(64).cast::<ibv_sge>();
                list.write_unaligned(sge);
                place.cast::<ibv_recv_wr>().write_unaligned(ibv_recv_wr { sg_list: list, ..request });
                let mut seen = None;
                let result = receives(place.cast(), std::ptr::null_mut(), ("ibv_post_recv", None), |wr| {
                    seen = Some((wr.wr_id, wr.sges[0]));
                    Ok(())
                });
                assert_eq!((result, seen), (0, Some((7, to_sge(&sge)))), "at {shift}");
            }
        }
    }

    #[test]
    fn an_atomic_write_is_one_aligned_word_on_a_reliable_service() {
        let read = |service, va, length, count| {
            let mut sge = ibv_sge { addr: 0x1000, length, lkey: 1 };
            // SAFETY: zeros are a request without anything.
            let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
            (request.opcode, request.sg_list, request.num_sge) = (IBV_WR_ATOMIC_WRITE, &mut sge, count);
            request.wr.rdma = WrRdma { remote_addr: va, rkey: 7 };
            // SAFETY: the opcode's member of the union was written, and the elements are there.
            unsafe { operation(service, &request) }
        };
        let word = Operation::Write(Remote { va: 0x2008, rkey: RemoteKey(7) });
        assert_eq!(read(Service::Rc, 0x2008, 8, 1), Ok(word));
        assert_eq!(read(Service::XrcInitiator, 0x2008, 8, 1), Ok(word));
        assert_eq!(read(Service::Rc, 0x2004, 8, 1), Err(PostError::BadAtomic));
        assert_eq!(read(Service::Rc, 0x2008, 4, 1), Err(PostError::BadAtomic));
        assert_eq!(read(Service::Rc, 0x2008, 8, 0), Err(PostError::BadAtomic));
        assert_eq!(read(Service::Uc, 0x2008, 8, 1), Err(PostError::Unsupported));
    }
}
