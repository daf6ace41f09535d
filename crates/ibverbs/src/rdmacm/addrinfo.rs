//! `rdma_getaddrinfo`: names to addresses, by `getaddrinfo`, with the fields that RDMA adds.

use std::ptr::{NonNull, null_mut};

use libc::{addrinfo, c_char, c_int, sockaddr};

use super::abi::*;
use crate::abi::{IBV_QPT_RC, IBV_QPT_UD, ibv_qp_type};
use crate::boundary::{c_api, set_errno};

/// Each address is one allocation: the structure, and behind it the data that it points to.
#[repr(C)]
struct Node {
    info: rdma_addrinfo,
    source: libc::sockaddr_storage,
    destination: libc::sockaddr_storage,
    name: [c_char; 256],
}

/// The caller's wishes, with defaults.
struct Wishes {
    flags: c_int,
    family: c_int,
    qp_type: ibv_qp_type,
    port_space: c_int,
    source: *const sockaddr,
    source_length: u32,
}

impl Wishes {
    /// # Safety
    /// `hints` is null or valid.
    unsafe fn read(hints: *const rdma_addrinfo) -> Wishes {
        // SAFETY: the caller's promise; zeros are no wishes.
        let hints = if hints.is_null() { unsafe { std::mem::zeroed() } } else { unsafe { hints.read() } };
        let port_space = match (hints.ai_port_space, hints.ai_qp_type as ibv_qp_type) {
            (0, IBV_QPT_UD) => RDMA_PS_UDP as c_int,
            (0, _) => RDMA_PS_TCP as c_int,
            (given, _) => given,
        };
        let qp_type = match (hints.ai_qp_type as ibv_qp_type, port_space as rdma_port_space) {
            (0, RDMA_PS_UDP | RDMA_PS_IPOIB) => IBV_QPT_UD,
            (0, _) => IBV_QPT_RC,
            (given, _) => given,
        };
        Wishes {
            flags: hints.ai_flags,
            family: if hints.ai_flags & RAI_FAMILY != 0 { hints.ai_family } else { libc::AF_UNSPEC },
            qp_type,
            port_space,
            source: hints.ai_src_addr,
            source_length: hints.ai_src_len,
        }
    }

    fn is_passive(&self) -> bool {
        self.flags & RAI_PASSIVE != 0
    }
}

/// The list that `getaddrinfo` returned; freed with this.
struct Found(*mut addrinfo);

impl Found {
    /// # Safety
    /// Both names are null or end with a zero.
    unsafe fn look_up(node: *const c_char, service: *const c_char, wishes: &Wishes) -> Result<Found, c_int> {
        // SAFETY: zeros are no hints.
        let mut hints: addrinfo = unsafe { std::mem::zeroed() };
        hints.ai_family = wishes.family;
        hints.ai_socktype = if wishes.qp_type == IBV_QPT_UD { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
        if wishes.is_passive() {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if wishes.flags & RAI_NUMERICHOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        let mut found = null_mut();
        // SAFETY: the caller's promise.
        match unsafe { libc::getaddrinfo(node, service, &hints, &mut found) } {
            0 => Ok(Found(found)),
            error => Err(error),
        }
    }

    fn entries(&self) -> impl Iterator<Item = &addrinfo> {
        // SAFETY: the list is valid until it is freed, which the borrow prevents.
        std::iter::successors(unsafe { self.0.as_ref() }, |entry| unsafe { entry.ai_next.as_ref() })
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: it came from getaddrinfo.
        unsafe { libc::freeaddrinfo(self.0) };
    }
}

impl Node {
    /// The fields that are the same for every address.
    fn new(wishes: &Wishes) -> Box<Node> {
        // SAFETY: zeros are valid: null pointers and addresses of no family.
        let mut node: Box<Node> = Box::new(unsafe { std::mem::zeroed() });
        node.info.ai_flags = wishes.flags;
        (node.info.ai_qp_type, node.info.ai_port_space) = (wishes.qp_type as c_int, wishes.port_space);
        node
    }

    /// The same, with pointers into itself.
    fn copy(&self) -> Box<Node> {
        let mut node = Box::new(Node { info: rdma_addrinfo { ai_next: null_mut(), ..self.info }, ..*self });
        let (source, destination): (*mut sockaddr, *mut sockaddr) =
            ((&raw mut node.source).cast(), (&raw mut node.destination).cast());
        let name = node.name.as_mut_ptr();
        let info = &mut node.info;
        info.ai_src_addr = if info.ai_src_addr.is_null() { null_mut() } else { source };
        info.ai_dst_addr = if info.ai_dst_addr.is_null() { null_mut() } else { destination };
        info.ai_dst_canonname = if info.ai_dst_canonname.is_null() { null_mut() } else { name };
        node
    }

    /// # Safety
    /// `address` is null or `length` long.
    unsafe fn take_source(&mut self, address: *const sockaddr, length: u32) {
        if !address.is_null() && length > 0 {
            // SAFETY: the caller's promise.
            self.info.ai_src_len = unsafe { copy(&mut self.source, address, length) };
            self.info.ai_src_addr = (&raw mut self.source).cast();
        }
    }

    /// # Safety
    /// `address` is null or `length` long.
    unsafe fn take_destination(&mut self, address: *const sockaddr, length: u32) {
        if !address.is_null() && length > 0 {
            // SAFETY: the caller's promise.
            self.info.ai_dst_len = unsafe { copy(&mut self.destination, address, length) };
            self.info.ai_dst_addr = (&raw mut self.destination).cast();
        }
    }
}

/// Copies as much of an address as there is room for. Returns how much that was.
///
/// # Safety
/// `from` is `length` long.
unsafe fn copy(to: &mut libc::sockaddr_storage, from: *const sockaddr, length: u32) -> u32 {
    let length = (length as usize).min(size_of_val(to));
    // SAFETY: the caller's promise, and the storage is as long.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), std::ptr::from_mut(to).cast::<u8>(), length) };
    length as u32
}

/// One address as RDMA describes it.
///
/// # Safety
/// The entry's address and the wished source are as long as they say.
unsafe fn node(entry: &addrinfo, wishes: &Wishes) -> Box<Node> {
    let mut node = Node::new(wishes);
    node.info.ai_family = entry.ai_family;
    // SAFETY: the caller's promise.
    unsafe {
        if wishes.is_passive() {
            node.take_source(entry.ai_addr, entry.ai_addrlen);
        } else {
            node.take_destination(entry.ai_addr, entry.ai_addrlen);
            node.take_source(wishes.source, wishes.source_length);
        }
    }
    if !entry.ai_canonname.is_null() {
        // SAFETY: the name ends with a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ai_canonname) }.to_bytes();
        crate::boundary::fill(&mut node.name, &String::from_utf8_lossy(name));
        node.info.ai_dst_canonname = node.name.as_mut_ptr();
    }
    node
}

/// A list of addresses, as C links it; freed with it.
pub(super) struct Addresses(*mut rdma_addrinfo);

// SAFETY: the list is its own, and its pointers are to itself.
unsafe impl Send for Addresses {}

impl Addresses {
    /// Looks names up; without any, the addresses in the hints are the answer.
    ///
    /// # Errors
    /// As getaddrinfo(3) has them.
    ///
    /// # Safety
    /// As rdma_getaddrinfo(3) has it; names or hints are there.
    pub(super) unsafe fn look_up(
        name: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
    ) -> Result<Addresses, c_int> {
        // SAFETY: the caller's promise.
        if let (true, true, Some(hints)) = (name.is_null(), service.is_null(), unsafe { hints.as_ref() }) {
            return Ok(Addresses::of_hints(hints));
        }
        // SAFETY: the caller's promise.
        let wishes = unsafe { Wishes::read(hints) };
        // SAFETY: the caller's promise.
        let found = unsafe { Found::look_up(name, service, &wishes) }?;
        // SAFETY: getaddrinfo's entries are as long as they say, and so is the caller's source.
        let list = Addresses::link(found.entries().map(|entry| unsafe { node(entry, &wishes) }));
        if list.0.is_null() { Err(libc::EAI_NONAME) } else { Ok(list) }
    }

    /// The addresses that the hints bring themselves; either may be missing.
    pub(super) fn of_hints(hints: &rdma_addrinfo) -> Addresses {
        // SAFETY: the hints are a live structure.
        let wishes = unsafe { Wishes::read(hints) };
        let mut node = Node::new(&wishes);
        // SAFETY: the application's addresses are as long as they say.
        unsafe {
            node.take_source(hints.ai_src_addr, hints.ai_src_len);
            node.take_destination(hints.ai_dst_addr, hints.ai_dst_len);
        }
        let first = if wishes.is_passive() { hints.ai_src_addr } else { hints.ai_dst_addr };
        let second = if wishes.is_passive() { hints.ai_dst_addr } else { hints.ai_src_addr };
        node.info.ai_family = match NonNull::new(first).or(NonNull::new(second)) {
            // SAFETY: an address begins with its family.
            Some(address) => c_int::from(unsafe { address.as_ref().sa_family }),
            None => wishes.family,
        };
        Addresses::link(std::iter::once(node))
    }

    fn link(nodes: impl Iterator<Item = Box<Node>>) -> Addresses {
        let mut list = Addresses(null_mut());
        let mut last: *mut rdma_addrinfo = null_mut();
        for node in nodes {
            let made = Box::into_raw(node).cast::<rdma_addrinfo>();
            if last.is_null() {
                list.0 = made;
            } else {
                // SAFETY: it was made in the round before.
                unsafe { (*last).ai_next = made };
            }
            last = made;
        }
        list
    }

    pub(super) fn first(&self) -> *const rdma_addrinfo {
        self.0
    }

    /// The same addresses once more.
    pub(super) fn copy(&self) -> Addresses {
        let next = |entry: &NonNull<rdma_addrinfo>| {
            // SAFETY: every entry of the list is one of ours, and lives as long as the list.
            NonNull::new(unsafe { entry.as_ref() }.ai_next)
        };
        let nodes = std::iter::successors(NonNull::new(self.0), next);
        // SAFETY: as above.
        Addresses::link(nodes.map(|entry| unsafe { entry.cast::<Node>().as_ref() }.copy()))
    }

    /// Hands the list to C, which frees it.
    pub(super) fn into_raw(self) -> *mut rdma_addrinfo {
        let list = std::mem::ManuallyDrop::new(self);
        list.0
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: the list is its own.
        unsafe { free(self.0) };
    }
}

/// # Safety
/// The list is null or was made here, and no other code uses it.
unsafe fn free(list: *mut rdma_addrinfo) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let node = unsafe { Box::from_raw(next.cast::<Node>()) };
        next = node.info.ai_next;
    }
}

c_api! {
    fn rdma_getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
        res: *mut *mut rdma_addrinfo,
    ) -> c_int {
        let refused = |errno| {
            set_errno(errno);
            -1
        };
        if res.is_null() || node.is_null() && service.is_null() && hints.is_null() {
            return refused(libc::EINVAL);
        }
        if let Err(errno) = super::asked::check_source(hints.as_ref().map_or(0, |hints| hints.ai_flags)) {
            return refused(errno);
        }
        match Addresses::look_up(node, service, hints) {
            Ok(found) => {
                *res = found.into_raw();
                0
            }
            // As getaddrinfo(3) has them.
            Err(error) => error,
        }
    }

    fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
        free(res);
    }
}

const _: () = assert!(std::mem::offset_of!(Node, info) == 0, "C's structure is the beginning of ours");
