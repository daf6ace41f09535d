//! librdmacm's examples, and rsockets.

use super::super::case::{Case, Link, Ready};
use super::super::judge;
use super::LINKS;

const GROUP: &str = "rdmacm-utils";

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in LINKS {
        let soon = |title: &str, judge, server: &str, client: &str| {
            Case::two(GROUP, title, link, judge).ends(server, client, Ready::Soon)
        };
        for arguments in ["", "-q", "-S 4096", "-S 60000"] {
            let common = format!("-v -V -C 10 -p {{port}} {arguments}");
            let title = format!("rping -v -V -C 10 {arguments}");
            let server = format!("rping -s -a {{address}} {common}");
            let client = format!("rping -c -a {{address}} {common}");
            let case = soon(title.trim(), judge::rping, &server, &client);
            cases.push(if arguments.is_empty() { case.quick() } else { case });
        }
        cases.push(
            soon(
                "rping -P",
                judge::rping,
                "rping -s -P -a {address} -p {port}",
                "rping -c -a {address} -v -V -C 10 -p {port}",
            )
            .server_stays(),
        );
        for arguments in ["", "-c 8 -C 50", "-S 4096", "-P ib", "-a 18"] {
            let common = format!("-p {{port}} {arguments}");
            let title = format!("ucmatose {arguments}");
            cases.push(soon(
                title.trim(),
                judge::return_status,
                &format!("ucmatose {common}"),
                &format!("ucmatose -s {{address}} {common}"),
            ));
        }
        for arguments in ["", "-c 8 -C 50", "-S 1024"] {
            let common = arguments;
            let title = format!("udaddy {arguments}");
            cases.push(soon(
                title.trim(),
                judge::return_status,
                &format!("udaddy -b {{address}} {common}"),
                &format!("udaddy -b {{address}} -s {{address}} {common}"),
            ));
        }
        for arguments in ["", "-c 2 -C 20"] {
            let title = format!("mckey {arguments}");
            cases.push(soon(
                title.trim(),
                judge::return_status,
                &format!("mckey -m 239.1.2.3 -b {{address}} {arguments}"),
                &format!("mckey -m 239.1.2.3 -b {{address}} -s {arguments}"),
            ));
        }
        cases.push(
            soon(
                "cmtime -c 50",
                judge::ended_well,
                "cmtime -b {address} -c 50 -p {port}",
                "cmtime -s {address} -c 50 -p {port}",
            )
            .server_stays(),
        );
        cases.push(soon(
            "rdma_server, rdma_client",
            judge::ended_well,
            "rdma_server -p {port}",
            "rdma_client -s {address} -p {port}",
        ));
        cases.push(soon(
            "rdma_xserver, rdma_xclient",
            judge::ended_well,
            "rdma_xserver -p {port}",
            "rdma_xclient -s {address} -p {port}",
        ));
        for arguments in
            ["-T a", "-T b", "-T n", "-T v", "-T r", "-T f"].map(|way| format!("{way} -S 16384 -C 100 -I 20"))
        {
            let title = format!("rstream {arguments}");
            cases.push(soon(
                title.trim(),
                judge::stream,
                &format!("rstream -p {{port}} {arguments}"),
                &format!("rstream -s {{address}} -p {{port}} {arguments}"),
            ));
        }
        for arguments in ["-T a", "-T b", "-T v"].map(|way| format!("{way} -S 16384 -C 100 -I 20")) {
            let title = format!("riostream {arguments}");
            cases.push(soon(
                title.trim(),
                judge::stream,
                &format!("riostream -p {{port}} {arguments}"),
                &format!("riostream -s {{address}} -p {{port}} {arguments}"),
            ));
        }
        cases.push(
            soon(
                "udpong",
                judge::ended_well,
                "udpong -p {port} -b {address} -S 1024 -C 500",
                "udpong -s {address} -p {port} -S 1024 -C 500",
            )
            .server_stays(),
        );
        cases.push(
            soon(
                "rcopy",
                judge::same_files,
                "rcopy -p {port}",
                "sh -c 'head -c 3000001 /dev/urandom > {folder}/sent && rcopy {folder}/sent {address}:{folder}/came -p {port}'",
            )
            .server_stays(),
        );
        add_preloaded(cases, link);
    }
}

/// Programs that were written for TCP, over rsockets.
fn add_preloaded(cases: &mut Vec<Case>, link: Link) {
    const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
    let with = |words: &str| format!("sh -c 'LD_PRELOAD={PRELOAD}:$LD_PRELOAD exec {words}'");
    cases.push(
        Case::two(GROUP, "iperf3 over librspreload", link, judge::ended_well)
            .ends(&with("iperf3 -s -1 -p {port}"), &with("iperf3 -c {address} -p {port} -n 10M"), Ready::Soon)
            .at_most(60),
    );
}
