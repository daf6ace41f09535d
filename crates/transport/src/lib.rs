//! One queue pair's protocol, sans-IO: requester, responder, loss recovery, flow and congestion control.
#![forbid(unsafe_code)]

pub mod congestion;
pub mod irn;
