//! Storage over verbs: fio's engine, and iSCSI extensions for RDMA in user space, target (tgt) and initiator (libiscsi).

use super::super::case::{Case, Link, Ready};
use super::super::judge;
use super::LINKS;

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in LINKS {
        add_fio(cases, link);
        add_iser(cases, link);
    }
}

fn add_fio(cases: &mut Vec<Case>, link: Link) {
    for verb in ["write", "read", "send"] {
        let common = "--ioengine=rdma --port={port} --bs=64k --size=16m --name=job --thread";
        // Its receiving end forbids its peer to repeat messages that find no receive (rdma_accept with an
        // rnr_retry_count of 0): as its source says, it then needs more receives than the other end has
        // requests: here one for every message.
        let depth = if verb == "send" { 256 } else { 8 };
        cases.push(Case::two("fio", &format!("fio --ioengine=rdma --verb={verb}"), link, judge::fio).ends(
            &format!("fio {common} --rw=read --iodepth={depth}"),
            &format!("fio {common} --rw=write --iodepth=8 --hostname={{address}} --verb={verb}"),
            Ready::Soon,
        ));
    }
}

/// The initiator's name; over iSER tgt lets in only initiators that it has been told of.
const INITIATOR: &str = "iqn.2026-01.test:initiator";

/// A disk of 16 MiB, exported until the test ends it.
fn target() -> String {
    let admin = "tgtadm --lld iser --mode";
    format!(
        "sh -c 'export TGT_IPC_SOCKET={{folder}}/ipc; head -c 16M /dev/zero > disk; \
         tgtd -f --iscsi portal=127.0.0.1:{{port}} --iser port={{port}},pool_sz_mb=64 & \
         until {admin} target --op show; do sleep 0.1; done; \
         {admin} target --op new --tid 1 --targetname iqn.2026-01.test:disk && \
         {admin} logicalunit --op new --tid 1 --lun 1 -b {{folder}}/disk && \
         {admin} target --op bind --tid 1 -I ALL && \
         {admin} target --op bind --tid 1 -Q {INITIATOR}; wait'"
    )
}

fn add_iser(cases: &mut Vec<Case>, link: Link) {
    let url = "\"iscsi://{device}:{port}/iqn.2026-01.test:disk/1?iser\"";
    let inquiry = format!("iscsi-inq -i {INITIATOR} {url}");
    let wait = format!("for i in 1 2 3 4 5 6 7 8; do {inquiry} && break; sleep 0.5; done");
    let case = |title: &str, script: String, judge| {
        Case::two("libiscsi, tgt", title, link, judge)
            .ends(&target(), &format!("sh -c '{wait}; {script}'"), Ready::Soon)
            .server_stays()
            .at_most(30)
    };
    let capacity = format!("iscsi-readcapacity16 -i {INITIATOR} {url}");
    cases.push(case("iscsi-inq, iscsi-readcapacity16 (iSER)", capacity, judge::iscsi_capacity));
    for test in ["Read10.Simple", "Read10.BeyondEol", "Write10.Simple", "Read16.Simple", "Write16.Simple"] {
        let script = format!("iscsi-test-cu -d -i {INITIATOR} -t SCSI.{test} {url}");
        cases.push(case(&format!("iscsi-test-cu {test} (iSER)"), script, judge::iscsi_test));
    }
}
