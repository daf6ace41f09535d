//! Numbers as words.

use crate::abi::*;
use crate::boundary::c_api;
use std::ffi::CStr;

fn word(words: &[&'static CStr], number: c_int, unknown: &'static CStr) -> *const c_char {
    let found = usize::try_from(number).ok().and_then(|number| words.get(number));
    found.unwrap_or(&unknown).as_ptr()
}

const STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const NODES: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const OPCODES: [&CStr; 16] = [
    c"RDMA write",
    c"RDMA write with immediate",
    c"send",
    c"send with immediate",
    c"RDMA read",
    c"atomic compare and swap",
    c"atomic fetch and add",
    c"local invalidate",
    c"bind memory window",
    c"send with invalidate",
    c"TSO",
    c"driver",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic write",
];

c_api! {
    fn ibv_wc_status_str(status: c_int) -> *const c_char {
        word(&STATUSES, status, c"unknown")
    }

    fn ibv_event_type_str(event: c_int) -> *const c_char {
        word(&EVENTS, event, c"unknown")
    }

    fn ibv_node_type_str(node: c_int) -> *const c_char {
        word(&NODES, node, c"unknown")
    }

    fn ibv_port_state_str(state: c_int) -> *const c_char {
        word(&PORT_STATES, state, c"invalid state")
    }

    fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
        word(&OPCODES, opcode, c"unknown")
    }
}
