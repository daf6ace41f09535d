//! The symbols that real programs and libraries need from `libibverbs.so.1`, against the table of its
//! exports.

use super::{output, skip};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const TABLE: &str = include_str!("../../symbols/ibverbs.txt");

/// `symbol@NODE` of every line, families expanded.
pub(super) fn exported(table: &str) -> BTreeSet<String> {
    let mut exported = BTreeSet::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(node), Some(symbol)) = (words.next(), words.next()) else { continue };
        match node.split_once('{') {
            None => {
                exported.insert(format!("{symbol}@{node}"));
            }
            Some((before, numbers)) => {
                for number in numbers.trim_end_matches('}').split(',') {
                    exported.insert(format!("{}@{before}{number}", symbol.replace("{}", number)));
                }
            }
        }
    }
    exported
}

/// Programs and libraries that use verbs, as far as they are installed.
const USERS: [&str; 24] = [
    "/usr/bin/ibv_devices",
    "/usr/bin/ibv_devinfo",
    "/usr/bin/ibv_rc_pingpong",
    "/usr/bin/ibv_uc_pingpong",
    "/usr/bin/ibv_ud_pingpong",
    "/usr/bin/ibv_srq_pingpong",
    "/usr/bin/ibv_xsrq_pingpong",
    "/usr/bin/ibv_asyncwatch",
    "/usr/bin/ib_send_lat",
    "/usr/bin/ib_write_bw",
    "/usr/bin/ib_atomic_bw",
    "/usr/bin/raw_ethernet_bw",
    "/usr/bin/qperf",
    "/usr/bin/rping",
    "/usr/bin/ucmatose",
    "/usr/lib/x86_64-linux-gnu/librdmacm.so.1",
    "/usr/lib/x86_64-linux-gnu/libmlx4.so.1",
    "/usr/lib/x86_64-linux-gnu/libmlx5.so.1",
    "/usr/lib/x86_64-linux-gnu/libefa.so.1",
    "/usr/lib/x86_64-linux-gnu/libmana.so.1",
    "/usr/lib/x86_64-linux-gnu/libfabric.so.1",
    "/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0",
    "/usr/lib/x86_64-linux-gnu/ucx/libuct_rdmacm.so.0",
    "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
];

#[test]
fn every_symbol_that_programs_need_is_exported_under_its_version() {
    let exported = exported(TABLE);
    let mut found = 0;
    for path in USERS.into_iter().filter(|path| Path::new(path).exists()) {
        // For the stock library itself, the symbols that it defines; for all others, those that they need.
        let what = if path.ends_with("libibverbs.so.1") { "--defined-only" } else { "--undefined-only" };
        let listed = Command::new("nm").args(["-D", "--with-symbol-versions", what, path]).output();
        let Ok(listed) = listed else { return skip("needs nm: apt-get install binutils") };
        for symbol in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
            let symbol = symbol.replace("@@", "@");
            if symbol.contains("@IBVERBS_") {
                found += 1;
                assert!(exported.contains(&symbol), "{path} has {symbol}, which we do not");
            }
        }
    }
    if found == 0 {
        skip("no program that uses verbs is installed: apt-get install ibverbs-utils perftest");
    }
}

#[test]
fn pure_functions_agree_with_the_stock_library() {
    let folder = std::env::temp_dir().join(format!("highwire-pure-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let binary = folder.join("pure");
    let source = "#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {\n\
        for (int i = -1; i < 30; i++) printf(\"%d %d\\n\", ibv_rate_to_mult(i), ibv_rate_to_mbps(i));\n\
        for (int i = 0; i < 500; i++) printf(\"%d\\n\", mult_to_ibv_rate(i));\n\
        for (int i = 0; i < 40; i++) printf(\"%d\\n\", mbps_to_ibv_rate(2500 * i)); return 0; }\n";
    let c = folder.join("pure.c");
    std::fs::write(&c, source).expect("a source file");
    let mut cc = Command::new("cc");
    if output(cc.arg("-w").arg(&c).arg("-libverbs").arg("-o").arg(&binary)).is_none() {
        skip("needs a C compiler and libibverbs-dev: apt-get install gcc libibverbs-dev");
    } else {
        let stock = output(Command::new(&binary).env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD"));
        let mut ours = String::new();
        // SAFETY: functions of numbers.
        unsafe {
            use crate::rates::*;
            use std::fmt::Write;
            // Later headers have one rate more.
            for rate in (-1..25).chain([99; 5]) {
                let _ = writeln!(ours, "{} {}", ibv_rate_to_mult(rate), ibv_rate_to_mbps(rate));
            }
            for multiple in 0..500 {
                let _ = writeln!(ours, "{}", mult_to_ibv_rate(multiple));
            }
            for n in 0..40 {
                let _ = writeln!(ours, "{}", mbps_to_ibv_rate(2500 * n));
            }
        }
        assert_eq!(stock.expect("it runs"), ours);
    }
    std::fs::remove_dir_all(&folder).expect("nothing is left behind");
}

/// What the native methods of DiSNI 2.1 (`com.ibm.disni.verbs.impl.NativeDispatcher` in its jar) stand for, one C function or
/// more each. Their native half is no package; methods that only read a structure need none.
const OF_DISNI: [(&str, &[&str]); 33] = [
    ("_createEventChannel", &["rdma_create_event_channel"]),
    ("_createId", &["rdma_create_id"]),
    ("_createQP", &["rdma_create_qp"]),
    ("_bindAddr", &["rdma_bind_addr"]),
    ("_listen", &["rdma_listen"]),
    ("_resolveAddr", &["rdma_resolve_addr"]),
    ("_resolveRoute", &["rdma_resolve_route"]),
    ("_getCmEvent", &["rdma_get_cm_event"]),
    ("_connect", &["rdma_connect"]),
    ("_accept", &["rdma_accept"]),
    ("_ackCmEvent", &["rdma_ack_cm_event"]),
    ("_disconnect", &["rdma_disconnect"]),
    ("_destroyEventChannel", &["rdma_destroy_event_channel"]),
    ("_destroyCmId", &["rdma_destroy_id"]),
    ("_destroyQP", &["rdma_destroy_qp"]),
    ("_getSrcAddr", &["rdma_get_src_port"]),
    ("_getDstAddr", &["rdma_get_dst_port"]),
    ("_destroyEp", &["rdma_destroy_ep"]),
    ("_allocPd", &["ibv_alloc_pd"]),
    ("_createCompChannel", &["ibv_create_comp_channel"]),
    ("_createCQ", &["ibv_create_cq"]),
    ("_modifyQP", &["ibv_modify_qp"]),
    ("_regMr", &["ibv_reg_mr", "ibv_reg_mr_iova2"]),
    ("_queryOdpSupport", &["ibv_query_device"]),
    ("_deregMr", &["ibv_dereg_mr"]),
    ("_getCqEvent", &["ibv_get_cq_event"]),
    ("_ackCqEvent", &["ibv_ack_cq_events"]),
    ("_destroyCompChannel", &["ibv_destroy_comp_channel"]),
    ("_deallocPd", &["ibv_dealloc_pd"]),
    ("_destroyCQ", &["ibv_destroy_cq"]),
    ("_getContext", &["ibv_open_device", "ibv_close_device"]),
    ("devices", &["ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name"]),
    ("_createId, synchronous", &["rdma_create_ep", "rdma_getaddrinfo", "rdma_freeaddrinfo"]),
];

#[test]
fn what_disni_stands_on_is_there() {
    let ours = format!("{TABLE}\n{}", include_str!("../../symbols/rdmacm.txt"));
    let names: BTreeSet<&str> = ours.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let missing: Vec<_> = OF_DISNI
        .iter()
        .flat_map(|(method, functions)| functions.iter().map(move |function| (method, *function)))
        .filter(|(_, function)| !names.contains(function))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
