//! Address handles.

use crate::abi::*;
use crate::boundary::{answer, c_api, code, input, minus_one};
use crate::context::Context;
use crate::faults;
use crate::limits::GIDS;
use crate::pd::Pd;
use crate::refusal::refused;
use crate::registry::{self, Object, Use};
use highwire_verbs::{Address, Gid};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: UnsafeCell<ibv_ah>,
    pub(crate) address: Address,
    _pd: Use<Pd>,
}

// SAFETY: this side only reads `c`.
unsafe impl Send for Ah {}
// SAFETY: as above.
unsafe impl Sync for Ah {}

impl Object for Ah {
    type C = ibv_ah;
    const LIMIT: usize = crate::limits::MANY as usize;
    fn as_c(&self) -> *mut ibv_ah {
        self.c.get()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).handle }
    }
}

/// The address that C's attributes describe. RoCE has no LIDs, so it needs a GRH.
///
/// # Errors
/// EINVAL without one, for another port, or a source GID that is not there.
pub(crate) fn address_of(attr: &ibv_ah_attr, device: usize) -> Result<Address, c_int> {
    let wrong = |reason: String| Err(refused(libc::EINVAL, || reason));
    let port = faults::check_port(device, u32::from(attr.port_num)).map_err(|errno| {
        refused(errno, || format!("ah_attr.{}", faults::ports(device, attr.port_num.into())))
    })?;
    let first_gid = faults::first_gid(device, port);
    if attr.is_global == 0 {
        return wrong(
            "ah_attr.is_global is 0; RoCE has no LIDs: set it to 1, and grh.dgid to the peer's GID".into(),
        );
    }
    if !(first_gid..first_gid + GIDS).contains(&u32::from(attr.grh.sgid_index)) {
        let (index, last) = (attr.grh.sgid_index, first_gid + GIDS - 1);
        return wrong(format!(
            "ah_attr.grh.sgid_index is {index}; the table has GIDs at {first_gid} to {last}"
        ));
    }
    Ok(Address {
        gid: faults::behind(Gid(attr.grh.dgid.raw)).0,
        hop_limit: if attr.grh.hop_limit == 0 { 64 } else { attr.grh.hop_limit },
        traffic_class: attr.grh.traffic_class,
        flow_label: attr.grh.flow_label & 0xF_FFFF,
    })
}

pub(crate) fn attr_of(address: &Address, port: u8) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: address.gid.0 },
            flow_label: address.flow_label,
            sgid_index: 0,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
        },
        is_global: 1,
        port_num: port,
        ..ibv_ah_attr::default()
    }
}

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, c_int> {
    let pd = Use::<Pd>::find(pd)?;
    let address = address_of(attr, pd.context.index)?;
    let c = UnsafeCell::new(ibv_ah { context: pd.context.as_c(), pd: pd.as_c(), handle: 0 });
    registry::publish(Arc::new(Ah { c, address, _pd: pd }))
}

/// The sender of a datagram whose first 40 bytes are `grh`. For IPv4 the header lies in the last 20 of them
/// (RoCEv2 A17.4.5.1).
fn sender(device: usize, port: u8, wc: &ibv_wc, grh: *const ibv_grh) -> Result<ibv_ah_attr, c_int> {
    let port = faults::check_port(device, u32::from(port))?;
    if wc.wc_flags & IBV_WC_GRH == 0 {
        let reason = || "the completion must be a datagram's (IBV_WC_GRH)".to_string();
        return Err(refused(libc::EINVAL, reason));
    }
    // SAFETY: the flag says that the 40 bytes are there.
    let bytes = unsafe { input(grh.cast::<[u8; 40]>())? };
    let address = if bytes[0] >> 4 == 6 {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[8..24]);
        let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Address {
            gid: Gid(gid),
            hop_limit: 0xFF,
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xF_FFFF,
        }
    } else if bytes[20] >> 4 == 4 {
        let ip = std::net::Ipv4Addr::new(bytes[32], bytes[33], bytes[34], bytes[35]);
        Address { hop_limit: 0xFF, traffic_class: bytes[21], ..Address::new(Gid::from_ip(ip.into())) }
    } else {
        return Err(libc::EINVAL);
    };
    Ok(ibv_ah_attr { sl: wc.sl, dlid: wc.slid, src_path_bits: wc.dlid_path_bits, ..attr_of(&address, port) })
}

c_api! {
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        answer(input(attr).and_then(|attr| create(pd, &attr)))
    }

    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
        let run = || {
            registry::find::<Ah>(ah)?;
            registry::withdraw::<Ah>(ah);
            Ok(())
        };
        code(run())
    }

    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        attr: *mut ibv_ah_attr,
    ) -> c_int {
        let run = || {
            let device = registry::find::<Context>(context)?.index;
            let found = sender(device, port, &unsafe { input(wc)? }, grh)?;
            if attr.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { attr.write(found) };
            Ok(())
        };
        minus_one(run())
    }

    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port: u8) -> *mut ibv_ah {
        let run = || {
            let device = registry::find::<Pd>(pd)?.context.index;
            create(pd, &sender(device, port, &unsafe { input(wc)? }, grh)?)
        };
        answer(run())
    }

    /// A made-up link address: this device sees no part of a frame below IP.
    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context,
        attr: *mut ibv_ah_attr,
        mac: *mut [u8; 6],
        vlan: *mut u16,
    ) -> c_int {
        let run = || {
            let device = registry::find::<Context>(context)?.index;
            let gid = address_of(&unsafe { input(attr)? }, device)?.gid.0;
            if mac.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { mac.write([2, 0, gid[12], gid[13], gid[14], gid[15]]) };
            if !vlan.is_null() {
                unsafe { vlan.write(0xFFFF) };
            }
            Ok(())
        };
        minus_one(run())
    }
}
