//! Structures and symbols against those of rdma-core v65 (`vectors/abi`), which is newer than the headers of distributions.

use super::layout::{Field, Structure, all_structures, bytes_of_field, structures};
use crate::abi::*;
use crate::rdmacm::abi::*;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

const LAYOUTS: &str = include_str!("../../../../vectors/abi/layouts-v65.txt");
const VERBS: &str = include_str!("../../../../vectors/abi/libibverbs-v65.txt");
const RDMACM: &str = include_str!("../../../../vectors/abi/librdmacm-v65.txt");

/// Structures that no call of this library reads or writes: their calls are refused, or treat them as bytes.
const NEVER_READ: [&str; 18] = [
    // Completion counters and steering tags of a PCI bus.
    "ibv_comp_cntr",
    "ibv_comp_cntr_caps",
    "ibv_comp_cntr_init_attr",
    "ibv_qp_attach_comp_cntr_attr",
    "ibv_dmah",
    "ibv_dmah_init_attr",
    // Actions on headers, tags and MPLS, and the union over all specifications.
    "ibv_fd_arr",
    "ibv_flow_action",
    "ibv_flow_action_esp_attr",
    "ibv_flow_mpls_filter",
    "ibv_flow_spec",
    "ibv_flow_spec_action_handle",
    "ibv_flow_spec_action_tag",
    "ibv_flow_spec_mpls",
    // The answer of a subnet manager.
    "ibv_path_data",
    "ibv_path_record",
    "ibv_sa_mcmember_rec",
    "ibv_sa_service_rec",
];

/// Those that older headers lack or have shorter, and those of `<rdma/rdma_cma.h>`.
fn newer_structures() -> Vec<Structure> {
    structures! {
        ibv_mr_init_attr { length, access, comp_mask, iova, addr, fd, fd_offset, dmah, buf };
        ibv_port_attr { active_speed_ex };
        ibv_qp_ex { wr_flush };
        verbs_context { free_buf, alloc_buf, dm_export_dmabuf_fd, reg_mr_ex, dealloc_dmah, alloc_dmah };
        rdma_ib_addr { sgid, dgid, pkey };
        rdma_addr { src => "src_storage", dst => "dst_storage", ibaddr };
        rdma_route { addr, path_rec, num_paths };
        rdma_event_channel { fd };
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel, recv_cq,
            srq, pd, qp_type
        };
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num
        };
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey };
        rdma_cm_event { id, listen_id, event, status, param };
        rdma_addrinfo {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr, ai_dst_addr,
            ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len, ai_connect, ai_next
        };
        rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr };
    }
}

/// A structure of the listing: its size; and offset, size and name of its fields.
type Listed<'a> = (usize, BTreeSet<(usize, usize, &'a str)>);

fn listed() -> BTreeMap<&'static str, Listed<'static>> {
    let mut structures: BTreeMap<&str, Listed<'_>> = BTreeMap::new();
    let mut current = "";
    for line in LAYOUTS.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse().expect("a number");
        match words.len() {
            2 => {
                current = words[0];
                structures.insert(current, (number(1), BTreeSet::new()));
            }
            _ => {
                let fields = &mut structures.get_mut(current).expect("a structure came first").1;
                fields.insert((number(0), number(1), words[2]));
            }
        }
    }
    structures
}

#[test]
fn every_public_structure_lies_as_rdma_core_v65_lays_it() {
    let listed = listed();
    assert_eq!(listed.len(), 121);
    let mut compared = BTreeSet::new();
    for (name, bytes, fields) in all_structures().into_iter().chain(newer_structures()) {
        // The only one that is no structure but a union.
        if name == "ibv_gid" {
            continue;
        }
        let (expected, known) = listed.get(name).unwrap_or_else(|| panic!("{name} is not in the listing"));
        assert_eq!(bytes, *expected, "sizeof {name}");
        for Field { name: path, offset, bytes } in fields {
            let field = path.rsplit('.').next().unwrap_or(path);
            assert!(
                known.contains(&(offset, bytes, field)),
                "{name}.{path}: {offset} {bytes}, listed: {known:?}"
            );
        }
        compared.insert(name);
    }
    let refused: BTreeSet<&str> = NEVER_READ.into_iter().collect();
    for name in listed.keys() {
        assert!(
            compared.contains(name) != refused.contains(name),
            "{name} is compared or never read, and not both"
        );
    }
}

/// `symbol@NODE` of every line.
fn symbols(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| !line.starts_with('#') && line.contains('@'))
        .map(|line| line.replace("@@", "@"))
}

#[test]
fn every_symbol_of_rdma_core_v65_is_exported_under_its_version() {
    let table = format!(
        "{}\n{}",
        include_str!("../../symbols/ibverbs.txt"),
        include_str!("../../symbols/rdmacm.txt")
    );
    let exported = super::exports::exported(&table);
    let missing: Vec<String> =
        symbols(VERBS).chain(symbols(RDMACM)).filter(|symbol| !exported.contains(symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
