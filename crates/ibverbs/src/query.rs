//! Queries of the device: attributes, port, GIDs, P_Keys, clock.

use crate::abi::*;
use crate::boundary::{c_api, c_ops, code, fill, input, minus_one, output};
use crate::context::Context;
use crate::limits::*;
use crate::{device, faults, registry};
use highwire_verbs::{Gid, MESSAGE_LENGTH_MAX, Mtu, SpreadFields};
use std::sync::Arc;

/// The context; one that was inherited through `fork` answers questions as well.
fn open(context: *const ibv_context) -> Result<Arc<Context>, c_int> {
    registry::find_inherited(context).map(|(_, context)| context)
}

fn device_attr(context: &Context) -> ibv_device_attr {
    let mut fw_ver = [0; 64];
    fill(&mut fw_ver, env!("CARGO_PKG_VERSION"));
    let guid = u64::from_ne_bytes(device::guid(context.index));
    ibv_device_attr {
        fw_ver,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xFFF,
        vendor_id: crate::ece::VENDOR,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: MAX_QP as c_int,
        max_qp_wr: MAX_WR as c_int,
        device_cap_flags: IBV_DEVICE_BAD_QKEY_CNTR
            | IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_RC_RNR_NAK_GEN
            | IBV_DEVICE_SRQ_RESIZE
            | IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_XRC
            | IBV_DEVICE_MEM_MGT_EXTENSIONS
            | IBV_DEVICE_MEM_WINDOW_TYPE_2B
            | IBV_DEVICE_MANAGED_FLOW_STEERING,
        max_sge: MAX_SGE as c_int,
        max_sge_rd: MAX_SGE as c_int,
        max_cq: MANY as c_int,
        max_cqe: MAX_CQE as c_int,
        max_mr: MAX_MR as c_int,
        max_pd: MANY as c_int,
        max_qp_rd_atom: c_int::from(MAX_RD_ATOMIC),
        max_ee_rd_atom: 0,
        max_res_rd_atom: c_int::from(MAX_RD_ATOMIC) * MAX_QP as c_int,
        max_qp_init_rd_atom: c_int::from(MAX_RD_ATOMIC),
        max_ee_init_rd_atom: 0,
        atomic_cap: IBV_ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: MANY as c_int,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: MAX_QP as c_int,
        max_mcast_grp: MAX_GROUPS as c_int,
        max_mcast_qp_attach: MAX_QP as c_int,
        max_total_mcast_qp_attach: (MAX_GROUPS * MAX_QP) as c_int,
        max_ah: MANY as c_int,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: MAX_SRQ as c_int,
        max_srq_wr: MAX_WR as c_int,
        max_srq_sge: MAX_SGE as c_int,
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: faults::port_count(context.index),
    }
}

/// Memory is reached through the process's own page tables, so every region is on demand.
fn odp_caps() -> ibv_odp_caps {
    let sends = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let writes = sends | IBV_ODP_SUPPORT_WRITE;
    let implicit = if crate::implicit::is_offered() { IBV_ODP_SUPPORT_IMPLICIT } else { 0 };
    ibv_odp_caps {
        general_caps: u64::from(IBV_ODP_SUPPORT | implicit),
        rc_odp_caps: writes | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
        uc_odp_caps: writes,
        ud_odp_caps: sends,
    }
}

fn device_attr_ex(context: &Context) -> ibv_device_attr_ex {
    let orig_attr = device_attr(context);
    ibv_device_attr_ex {
        device_cap_flags_ex: u64::from(orig_attr.device_cap_flags),
        orig_attr,
        comp_mask: 0,
        odp_caps: odp_caps(),
        completion_timestamp_mask: u64::MAX,
        hca_core_clock: CLOCK_KHZ,
        tso_caps: ibv_tso_caps::default(),
        rss_caps: ibv_rss_caps {
            supported_qpts: 1 << IBV_QPT_RAW_PACKET,
            max_rwq_indirection_tables: MAX_QP,
            max_rwq_indirection_table_size: 1 << MAX_SPREAD_LOG,
            rx_hash_fields_mask: SpreadFields::ALL.0,
            rx_hash_function: IBV_RX_HASH_FUNC_TOEPLITZ,
        },
        max_wq_type_rq: MAX_QP,
        packet_pacing_caps: ibv_packet_pacing_caps::default(),
        raw_packet_caps: 0,
        tm_caps: ibv_tm_caps {
            max_rndv_hdr_size: MAX_RENDEZVOUS,
            max_num_tags: MAX_TAGS,
            flags: IBV_TM_CAP_RC,
            // Operations on the matching list are carried out when they are posted.
            max_ops: MAX_WR,
            max_sge: MAX_SGE,
        },
        cq_mod_caps: ibv_cq_moderation_caps { max_cq_count: u16::MAX, max_cq_period: u16::MAX },
        max_dm_size: MAX_DM,
        pci_atomic_caps: ibv_pci_atomic_caps::default(),
        xrc_odp_caps: odp_caps().rc_odp_caps,
        phys_port_cnt_ex: u32::from(faults::port_count(context.index)),
    }
}

pub(crate) fn mtu_of(mtu: Mtu) -> ibv_mtu {
    match mtu.bytes() {
        256 => IBV_MTU_256,
        512 => IBV_MTU_512,
        1024 => IBV_MTU_1024,
        2048 => IBV_MTU_2048,
        _ => IBV_MTU_4096,
    }
}

fn port_attr(context: &Context, port: u8) -> ibv_port_attr {
    let mtu = mtu_of(context.device.mtu());
    let mut attr = ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        max_mtu: IBV_MTU_4096,
        active_mtu: mtu,
        gid_tbl_len: GID_TABLE as c_int,
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_REINIT_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: MESSAGE_LENGTH_MAX,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        // 4 lanes of 25 Gb/s, a rate that programs understand; shared memory is faster.
        active_width: 2,
        active_speed: 32,
        phys_state: 5,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: IBV_QPF_GRH_REQUIRED,
        ..ibv_port_attr::default()
    };
    faults::shape_port(context.index, port, &mut attr);
    attr
}

/// The GID at a place of the table.
pub(crate) fn gid_at(context: &Context, port: u32, index: u32) -> Result<Gid, c_int> {
    let port = faults::check_port(context.index, port)?;
    let first = faults::first_gid(context.index, port);
    match index {
        _ if (first..first + GIDS).contains(&index) => Ok(faults::gid_of_port(context.device.gid(), port)),
        0..GID_TABLE => Err(libc::ENODATA),
        _ => Err(libc::EINVAL),
    }
}

fn gid_entry(context: &Context, port: u32, index: u32) -> Result<ibv_gid_entry, c_int> {
    Ok(ibv_gid_entry {
        gid: ibv_gid { raw: gid_at(context, port, index)?.0 },
        gid_index: index,
        port_num: port,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: crate::sysfs::interface_index(context.device.gid().to_ip()),
    })
}

/// The bytes of a port's attributes in the stable ABI of 2006: everything before `link_layer`.
const COMPAT_PORT_BYTES: usize = std::mem::offset_of!(ibv_port_attr, link_layer);

c_ops! {
    fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, bytes: usize) -> c_int {
        let run = || {
            let context = open(context)?;
            let port = faults::check_port(context.index, u32::from(port))?;
            if attr.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { output(&port_attr(&context, port), attr, bytes) };
            Ok(())
        };
        code(run())
    }

    fn query_device_ex(
        context: *mut ibv_context,
        input_: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        bytes: usize,
    ) -> c_int {
        let run = || {
            let context = open(context)?;
            let is_known = input_.is_null() || unsafe { input(input_)?.comp_mask } == 0;
            if !is_known || attr.is_null() || bytes < size_of::<ibv_device_attr>() {
                return Err(libc::EINVAL);
            }
            unsafe { output(&device_attr_ex(&context), attr, bytes) };
            Ok(())
        };
        code(run())
    }

    fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
        let run = || {
            open(context)?;
            let asked = unsafe { input(values)?.comp_mask };
            if asked & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            let now = crate::cq_ex::raw_clock_ns();
            let raw_clock = libc::timespec {
                tv_sec: (now / 1_000_000_000) as libc::time_t,
                tv_nsec: (now % 1_000_000_000) as libc::c_long,
            };
            unsafe { values.write(ibv_values_ex { comp_mask: asked, raw_clock }) };
            Ok(())
        };
        code(run())
    }
}

c_api! {
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
        let run = || {
            let context = open(context)?;
            if attr.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { attr.write(device_attr(&context)) };
            Ok(())
        };
        code(run())
    }

    fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
        query_port(context, port, attr, COMPAT_PORT_BYTES)
    }

    /// In units of 100 Mb/s.
    fn ibv_query_port_speed(context: *mut ibv_context, port: u32, speed: *mut u64) -> c_int {
        let run = || {
            let context = open(context)?;
            faults::check_port(context.index, port)?;
            if speed.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { speed.write(faults::gigabits(context.index) * 10) };
            Ok(())
        };
        code(run())
    }

    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
        let run = || {
            let context = open(context)?;
            let index = u32::try_from(index).map_err(|_| libc::EINVAL)?;
            let raw = match gid_at(&context, u32::from(port), index) {
                Ok(gid) => gid.0,
                // An empty place reads as zeroes here, as it does in sysfs.
                Err(libc::ENODATA) => [0; 16],
                Err(errno) => return Err(errno),
            };
            if gid.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { gid.cast::<[u8; 16]>().write(raw) };
            Ok(())
        };
        minus_one(run())
    }

    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        bytes: usize,
    ) -> c_int {
        let run = || {
            let context = open(context)?;
            if flags != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            if entry.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { output(&gid_entry(&context, port, index)?, entry, bytes) };
            Ok(())
        };
        code(run())
    }

    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        bytes: usize,
    ) -> isize {
        let run = || {
            let context = open(context)?;
            if flags != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            let ports = faults::port_count(context.index);
            let count = GIDS as usize * usize::from(ports);
            if max_entries < count || entries.is_null() {
                return Err(libc::EINVAL);
            }
            let places = (PORT..=ports).flat_map(|port| (0..GIDS).map(move |place| (port, place)));
            for (at, (port, place)) in places.enumerate() {
                let index = faults::first_gid(context.index, port) + place;
                let entry = gid_entry(&context, u32::from(port), index)?;
                unsafe { output(&entry, entries.cast::<u8>().add(at * bytes).cast(), bytes) };
            }
            Ok(count as isize)
        };
        crate::boundary::answer(run())
    }

    fn ibv_query_gid_type(context: *mut ibv_context, port: u8, index: c_uint, kind: *mut c_int) -> c_int {
        let run = || {
            let context = open(context)?;
            gid_at(&context, u32::from(port), index)?;
            if kind.is_null() {
                return Err(libc::EINVAL);
            }
            // The number of this private function's enumeration: 0 is InfiniBand or RoCE v1, 1 is RoCE v2.
            unsafe { kind.write(1) };
            Ok(())
        };
        minus_one(run())
    }

    fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, pkey: *mut u16) -> c_int {
        let run = || {
            faults::check_port(open(context)?.index, u32::from(port))?;
            if index != 0 || pkey.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { pkey.write(PKEY.to_be()) };
            Ok(())
        };
        minus_one(run())
    }

    fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
        let found = registry::find::<Context>(context);
        let is_ours = found.and_then(|found| faults::check_port(found.index, u32::from(port)));
        if is_ours.is_ok() && u16::from_be(pkey) == PKEY { 0 } else { minus_one(Err(libc::EINVAL)) }
    }
}
