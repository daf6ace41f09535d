//! Structures of the kernel's interface, translated for stock libraries that speak to it and ask us to.

use crate::abi::*;
use crate::boundary::c_api;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ib_uverbs_ah_attr {
    dgid: [u8; 16],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    _reserved: u8,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
    _reserved2: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ib_uverbs_qp_attr {
    qp_attr_mask: u32,
    qp_state: u32,
    cur_qp_state: u32,
    path_mtu: u32,
    path_mig_state: u32,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: u32,
    ah_attr: ib_uverbs_ah_attr,
    alt_ah_attr: ib_uverbs_ah_attr,
    caps: [u32; 5],
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    _reserved: [u8; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ib_user_path_rec {
    dgid: [u8; 16],
    sgid: [u8; 16],
    dlid: u16,
    slid: u16,
    raw_traffic: u32,
    flow_label: u32,
    reversible: u32,
    mtu: u32,
    pkey: u16,
    hop_limit: u8,
    traffic_class: u8,
    numb_path: u8,
    sl: u8,
    mtu_selector: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

fn ah_attr(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.dgid },
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

fn qp_attr(from: &ib_uverbs_qp_attr) -> ibv_qp_attr {
    let [max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data] = from.caps;
    ibv_qp_attr {
        qp_state: from.qp_state,
        cur_qp_state: from.cur_qp_state,
        path_mtu: from.path_mtu,
        path_mig_state: from.path_mig_state,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data },
        ah_attr: ah_attr(&from.ah_attr),
        alt_ah_attr: ah_attr(&from.alt_ah_attr),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: from.en_sqd_async_notify,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        rate_limit: 0,
    }
}

c_api! {
    fn ibv_copy_ah_attr_from_kern(to: *mut ibv_ah_attr, from: *const ib_uverbs_ah_attr) {
        if let (false, Some(from)) = (to.is_null(), from.as_ref()) {
            to.write(ah_attr(from));
        }
    }

    fn ibv_copy_qp_attr_from_kern(to: *mut ibv_qp_attr, from: *const ib_uverbs_qp_attr) {
        if let (false, Some(from)) = (to.is_null(), from.as_ref()) {
            // The last field is newer than some programs.
            let attr = qp_attr(from);
            let bytes = std::mem::offset_of!(ibv_qp_attr, rate_limit);
            std::ptr::copy_nonoverlapping((&raw const attr).cast::<u8>(), to.cast::<u8>(), bytes);
        }
    }

    fn ibv_copy_path_rec_from_kern(to: *mut ibv_sa_path_rec, from: *const ib_user_path_rec) {
        if let (false, Some(from)) = (to.is_null(), from.as_ref()) {
            to.write(ibv_sa_path_rec {
                dgid: ibv_gid { raw: from.dgid },
                sgid: ibv_gid { raw: from.sgid },
                dlid: from.dlid,
                slid: from.slid,
                raw_traffic: from.raw_traffic as i32,
                flow_label: from.flow_label,
                hop_limit: from.hop_limit,
                traffic_class: from.traffic_class,
                reversible: from.reversible as i32,
                numb_path: from.numb_path,
                pkey: from.pkey,
                sl: from.sl,
                mtu_selector: from.mtu_selector,
                mtu: from.mtu as u8,
                rate_selector: from.rate_selector,
                rate: from.rate,
                packet_life_time_selector: from.packet_life_time_selector,
                packet_life_time: from.packet_life_time,
                preference: from.preference,
            });
        }
    }

    fn ibv_copy_path_rec_to_kern(to: *mut ib_user_path_rec, from: *const ibv_sa_path_rec) {
        if let (false, Some(from)) = (to.is_null(), from.as_ref()) {
            to.write(ib_user_path_rec {
                dgid: from.dgid.raw,
                sgid: from.sgid.raw,
                dlid: from.dlid,
                slid: from.slid,
                raw_traffic: from.raw_traffic as u32,
                flow_label: from.flow_label,
                reversible: from.reversible as u32,
                mtu: u32::from(from.mtu),
                pkey: from.pkey,
                hop_limit: from.hop_limit,
                traffic_class: from.traffic_class,
                numb_path: from.numb_path,
                sl: from.sl,
                mtu_selector: from.mtu_selector,
                rate_selector: from.rate_selector,
                rate: from.rate,
                packet_life_time_selector: from.packet_life_time_selector,
                packet_life_time: from.packet_life_time,
                preference: from.preference,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_from_the_kernel() {
        let path = ibv_sa_path_rec { dlid: 3, mtu: 4, reversible: 1, rate: 7, ..ibv_sa_path_rec::default() };
        let (mut kernel, mut back) = (ib_user_path_rec::default(), ibv_sa_path_rec::default());
        // SAFETY: references to structures of these types.
        unsafe {
            ibv_copy_path_rec_to_kern(&mut kernel, &path);
            ibv_copy_path_rec_from_kern(&mut back, &kernel);
        }
        assert_eq!((back.dlid, back.mtu, back.reversible, back.rate), (3, 4, 1, 7));
    }
}
