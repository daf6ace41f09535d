//! What is measured beside what the same programs make of TCP, and promises that take more than one run of a program.

use anyhow::Result;

use crate::shell::Line;

use super::Workshop;
use super::case::{Case, Link, Ready};
use super::judge;
use super::results::Verdict;

pub(super) const GROUP: &str = "measured";

pub(super) fn add(cases: &mut Vec<Case>) {
    for (program, link) in
        [("ib_write_lat", Link::Shm), ("ib_send_lat", Link::Shm), ("ib_send_lat", Link::Udp)]
    {
        let words = format!("{program} -F -s 8 -n 20000 -p {{port}}");
        cases.push(Case::two(GROUP, &words, link, judge::perftest));
    }
    cases.push(
        Case::two(GROUP, "UCX_TLS=tcp ucx_perftest -t tag_lat", Link::Auto, judge::ucx_perftest).ends(
            "env UCX_TLS=tcp ucx_perftest -t tag_lat -n 5000 -w 500 -p {port}",
            "env UCX_TLS=tcp ucx_perftest -t tag_lat -n 5000 -w 500 -p {port} {address}",
            Ready::Port,
        ),
    );
    cases.push(
        Case::two(GROUP, "qperf tcp_lat", Link::Auto, judge::qperf)
            .ends("qperf -lp {port}", "qperf -lp {port} -t 2 {address} tcp_lat", Ready::Port)
            .server_stays(),
    );
    cases.push(
        Case::two(GROUP, "qperf tcp_bw", Link::Auto, judge::qperf)
            .ends("qperf -lp {port}", "qperf -lp {port} -t 2 {address} tcp_bw", Ready::Port)
            .server_stays(),
    );
    cases.push(Case::two(GROUP, "ib_write_bw -F -n 5000 -p {port}", Link::Shm, judge::perftest));
    cases.push(Case::two(GROUP, "ib_write_bw -F -n 5000 -t 64 -p {port}", Link::Udp, judge::perftest));
    cases.push(Case::special(GROUP, "the floor: raw UDP, polling, half a round trip", Link::Auto, floor));
    cases.push(Case::special(
        GROUP,
        "a hundred processes come, go and are killed for a minute",
        Link::Auto,
        churn,
    ));
    cases.push(Case::special(GROUP, "the same seed gives the same faults", Link::Udp, same_faults));
}

/// What `highwire perf floor` says of half a round trip of UDP.
fn floor(workshop: &Workshop, _: &Case) -> Result<Verdict> {
    let line = Line::new(&workshop.highwire.to_string_lossy()).words("perf floor --json");
    let output = line.capture()?;
    if !output.success {
        return Ok(Verdict::Fails(judge::last_line(&output.stderr)));
    }
    std::fs::write(workshop.folder.join("floor.json"), &output.stdout)?;
    Ok(Verdict::Works(judge::last_line(&output.stdout)))
}

/// Nobody who stays notices anything, and nothing is left behind.
fn churn(workshop: &Workshop, _: &Case) -> Result<Verdict> {
    let line = Line::new(&workshop.highwire.to_string_lossy());
    let output = line.words("churn --processes 100 --steps 6000 --seed 7").capture()?;
    if !output.success {
        return Ok(Verdict::Fails(judge::last_line(&output.stderr)));
    }
    Ok(Verdict::Works(judge::last_line(&output.stdout)))
}

/// Two runs with one seed: what the two captures hold is the same, packet by packet, but for keys and numbers that are drawn.
fn same_faults(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    let mut fates = Vec::new();
    for run in ["first", "second"] {
        let words = "ibv_rc_pingpong -g 0 -n 300 -p {port}";
        let one = Case::two(GROUP, words, Link::Udp, judge::pingpong)
            .titled(&format!("{} {run}", case.title))
            .options("--loss 1% --seed 7 --pcap {folder}/faults.pcap");
        match one.play(workshop)? {
            Verdict::Works(_) => {}
            other => return Ok(other),
        }
        fates.push(losses(workshop, &one)?);
    }
    if fates[0].is_empty() {
        return Ok(Verdict::Fails("nothing was lost".into()));
    }
    if fates[0] == fates[1] {
        Ok(Verdict::Works(format!("{} packets", fates[0].len())))
    } else {
        Ok(Verdict::Fails("the two captures differ".into()))
    }
}

/// The packets of a capture, by what does not depend on chance other than the faults': opcode and length, in order.
fn losses(workshop: &Workshop, case: &Case) -> Result<Vec<String>> {
    let folder = super::ends::folder_of(workshop, case);
    let line = Line::new(&workshop.highwire.to_string_lossy()).words("pcap").arg(folder.join("faults.pcap"));
    let text = line.capture()?.stdout;
    let packets = text.lines().filter(|line| line.contains(" qpn "));
    Ok(packets
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(4);
            let opcode = words.next()?;
            let length = line.split(" len ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or("0");
            Some(format!("{opcode} {length}"))
        })
        .collect())
}
