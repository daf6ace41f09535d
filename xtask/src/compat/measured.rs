//! Measurements beside the same programs' over TCP, and promises that take more than one run of a program.

use anyhow::Result;

use crate::shell::Line;

use super::Workshop;
use super::case::{Case, Link, Ready};
use super::judge;
use super::verdict::Verdict;

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

/// Half a round trip of UDP, by `highwire perf floor`.
fn floor(workshop: &Workshop, _: &Case) -> Result<Verdict> {
    let line = Line::new(&workshop.highwire.to_string_lossy()).words("perf floor --json");
    let output = line.capture()?;
    if !output.success {
        return Ok(Verdict::Fails(judge::last_line(&output.stderr)));
    }
    std::fs::write(workshop.folder.join("floor.json"), &output.stdout)?;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&output.stdout).unwrap_or_default();
    let is_round_trip = |row: &&serde_json::Value| {
        row["what"].as_str().is_some_and(|what| what.starts_with("UDP round trip, polling"))
    };
    Ok(match rows.iter().find(is_round_trip).and_then(|row| row["value"].as_f64()) {
        Some(nanoseconds) => Verdict::Works(format!("{:.2} µs", nanoseconds / 2000.0)),
        None => Verdict::Fails("no round trip in what `perf floor` printed".into()),
    })
}

/// No process that stays notices anything, and no trace is left behind.
fn churn(workshop: &Workshop, _: &Case) -> Result<Verdict> {
    let line = Line::new(&workshop.highwire.to_string_lossy());
    let output = line.words("churn --processes 100 --steps 6000 --seed 7").capture()?;
    if !output.success {
        return Ok(Verdict::Fails(judge::last_line(&output.stderr)));
    }
    Ok(Verdict::Works(judge::last_line(&output.stdout)))
}

/// Two runs with one seed: the two captures are equal, packet by packet, but for random keys and numbers.
fn same_faults(workshop: &Workshop, _: &Case) -> Result<Verdict> {
    // Unreliable connections: lost packets are not sent again, so that only the seed decides.
    let fates = |seed: u32| -> Result<Vec<String>> {
        let words = "perf write bw --service uc --link udp --loss 1% -n 2000 --json --no-floor --seed";
        let line = Line::new(&workshop.highwire.to_string_lossy()).words(words).arg(seed.to_string());
        let text = line.capture()?.stdout;
        let counts = text.lines().filter(|line| line.contains("\"fault_"));
        Ok(counts.map(|line| line.trim().trim_end_matches(',').replace('"', "")).collect())
    };
    let [first, second, other] = [fates(7)?, fates(7)?, fates(8)?];
    Ok(match () {
        () if first.is_empty() => Verdict::Fails("nothing was counted".into()),
        () if first != second => {
            Verdict::Fails(format!("{} and then {}", first.join(", "), second.join(", ")))
        }
        () if first == other => Verdict::Fails("another seed gives the same".into()),
        () => Verdict::Works(first.join(", ")),
    })
}
