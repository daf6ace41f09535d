//! The proof in a program's output that it did its job.

use super::outcome::Outcome;

/// Exit status 0 at both ends is enough.
pub(super) fn ended_well(_: &Outcome) -> Result<String, String> {
    Ok(String::new())
}

/// A Rust program of tests: all of them, and at least one.
pub(super) fn tests_of_rust(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    let result = text
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. "))
        .ok_or_else(|| last_line(text))?;
    match result.split(' ').next().and_then(|count| count.parse::<u32>().ok()) {
        Some(passed @ 1..) => Ok(format!("{passed} pass")),
        _ => Err("no test ran".into()),
    }
}

/// libibverbs' examples: the bytes and iterations that they report, at both ends.
pub(super) fn pingpong(outcome: &Outcome) -> Result<String, String> {
    let per_iteration = |text: &str| {
        let line = text.lines().find(|line| line.contains(" iters in "))?;
        let text = line.split('=').nth(1)?.trim();
        let number = [" usec/iter", "µs/iter"].iter().find_map(|unit| text.strip_suffix(unit))?;
        let time = number.parse::<f64>().ok()?;
        (time > 0.0).then_some(time)
    };
    let server = outcome.server.as_ref().map_or("", |end| &end.output);
    if server.contains("invalid data") || outcome.client.output.contains("invalid data") {
        return Err("data came wrong".into());
    }
    match (per_iteration(&outcome.client.output), per_iteration(server)) {
        (Some(time), Some(_)) => Ok(format!("{time:.1} µs/iteration")),
        _ => Err("no iterations reported".into()),
    }
}

/// The domain pingpong of XRC has its own words.
pub(super) fn xsrq_pingpong(outcome: &Outcome) -> Result<String, String> {
    let is_done = |text: &str| text.lines().any(|line| line.trim() == "success");
    let server = outcome.server.as_ref();
    if is_done(&outcome.client.output) && server.is_some_and(|end| is_done(&end.output)) {
        Ok(String::new())
    } else {
        Err("an end has not said `success`".into())
    }
}

/// perftest: the last line of the table, whose first two numbers are the size and the iterations.
pub(super) fn perftest(outcome: &Outcome) -> Result<String, String> {
    let row = |text: &str| -> Option<Vec<f64>> {
        text.lines().rev().find_map(|line| {
            let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
            numbers.filter(|numbers| numbers.len() >= 4)
        })
    };
    let text = &outcome.client.output;
    let numbers = row(text).ok_or("no line of results")?;
    if numbers[1] < 1.0 {
        return Err("no iterations".into());
    }
    let heading = text.lines().rev().find(|line| line.contains("#bytes")).ok_or("no heading")?;
    // Bandwidth: peak, average, rate. Latency: minimum, maximum, typical and more, or, where a time was set, the average.
    let found = if heading.contains("BW average") {
        (numbers[3] > 0.0 || numbers.get(4).is_some_and(|rate| *rate > 0.0))
            .then(|| format!("{:.0} MiB/s, {:.3} M/s", numbers[3], numbers.get(4).copied().unwrap_or(0.0)))
    } else {
        let at = if heading.contains("t_typical") { 4 } else { 2 };
        numbers.get(at).filter(|time| **time > 0.0).map(|time| format!("{time:.2} µs"))
    };
    found.ok_or_else(|| "nothing was measured".into())
}

/// The same for programs that agree on nothing beforehand: the server has measured frames that arrived.
pub(super) fn raw_ethernet(outcome: &Outcome) -> Result<String, String> {
    let arrived = outcome.server.as_ref().is_some_and(|server| server.output.contains("#bytes"));
    if arrived { perftest(outcome) } else { Err("the server saw no frames".into()) }
}

/// Two ends that sleep in `poll`, `select` or `epoll_wait`: the thread that waits has found events itself, at both.
pub(super) fn found_their_own(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    let (said, stats) = text.split_once('\n').ok_or("no message came")?;
    let devices: Vec<serde_json::Value> =
        serde_json::from_str(stats).map_err(|error| format!("stats: {error}"))?;
    let channels: Vec<u64> = devices
        .iter()
        .filter_map(|device| device["channels"].as_object())
        .flat_map(|channels| channels.values())
        .map(|figures| figures["wakes_own"].as_u64().unwrap_or(0))
        .collect();
    match channels[..] {
        [one, other] if one > 0 && other > 0 => {
            Ok(format!("{said}, found by those who wait: {one} and {other}"))
        }
        _ => Err(format!("the waiting threads have found {channels:?} events themselves")),
    }
}

/// rping: every ping shown and validated.
pub(super) fn rping(outcome: &Outcome) -> Result<String, String> {
    let shown = outcome.client.output.matches("ping data: ").count();
    if shown == 10 { Ok("10 pings, validated".into()) } else { Err(format!("{shown} of 10 pings")) }
}

/// librdmacm's examples print how they ended.
pub(super) fn return_status(outcome: &Outcome) -> Result<String, String> {
    let status = |text: &str| text.lines().any(|line| line.trim() == "return status 0");
    let server = outcome.server.as_ref();
    if !status(&outcome.client.output) {
        return Err("client: no `return status 0`".into());
    }
    if server.is_some_and(|end| !end.was_dismissed && !status(&end.output)) {
        return Err("server: no `return status 0`".into());
    }
    Ok(String::new())
}

/// rstream and riostream: a table of sizes with rates.
pub(super) fn stream(outcome: &Outcome) -> Result<String, String> {
    let rows = outcome
        .client
        .output
        .lines()
        .filter(|line| line.contains('s') && line.split_whitespace().count() >= 6);
    let count = rows.skip(1).count();
    if count == 0 { Err("no line of results".into()) } else { Ok(format!("{count} sizes")) }
}

/// The received file equals the sent one.
pub(super) fn same_files(outcome: &Outcome) -> Result<String, String> {
    let read =
        |name: &str| std::fs::read(outcome.folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let (sent, came) = (read("sent")?, read("came")?);
    if sent == came { Ok(format!("{} bytes", sent.len())) } else { Err("the copy differs".into()) }
}

/// qperf: a result with a number and a unit per test.
pub(super) fn qperf(outcome: &Outcome) -> Result<String, String> {
    let results: Vec<&str> = outcome
        .client
        .output
        .lines()
        .filter_map(|line| line.split_once('=').map(|(_, value)| value.trim()))
        .filter(|value| value.split_whitespace().next().is_some_and(|number| number.parse::<f64>().is_ok()))
        .collect();
    match results.first() {
        Some(first) if !outcome.client.output.contains("failed") => Ok((*first).into()),
        _ => Err(last_line(&outcome.client.output)),
    }
}

/// fi_pingpong: a row per size.
pub(super) fn fi_pingpong(outcome: &Outcome) -> Result<String, String> {
    let rows = outcome.client.output.lines().filter(|line| line.split_whitespace().count() == 8);
    let rows = rows.filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count();
    if rows == 0 { Err(last_line(&outcome.client.output)) } else { Ok(format!("{rows} sizes, data checked")) }
}

/// ucx_perftest's final row.
pub(super) fn ucx_perftest(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    let last = text.lines().find(|line| line.starts_with("Final:")).ok_or_else(|| last_line(text))?;
    let numbers: Vec<f64> = last.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [_, typical, _, overall, ..] if *overall > 0.0 => Ok(format!("{typical:.2} µs")),
        [.., bandwidth, _] => Ok(format!("{bandwidth:.0}")),
        _ => Err("no numbers".into()),
    }
}

/// The repository's MPI programs print so when every byte was right.
pub(super) fn mpi(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    let good = text.lines().find_map(|line| line.strip_prefix("mpi: all right: "));
    good.map(String::from).ok_or_else(|| last_line(text))
}

/// The device is listed.
pub(super) fn lists_device(outcome: &Outcome) -> Result<String, String> {
    if outcome.client.output.contains("hw0") { Ok(String::new()) } else { Err("hw0 is not listed".into()) }
}

/// `ibv_devinfo -v`: a port that is up, with a GID.
pub(super) fn devinfo(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    for wanted in ["hw0", "PORT_ACTIVE", "Ethernet", "RoCE v2", "max_qp_wr"] {
        if !text.contains(wanted) {
            return Err(format!("no {wanted}"));
        }
    }
    Ok(String::new())
}

/// The measured value is more than zero.
pub(super) fn fio(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    let line =
        text.lines().map(str::trim).find(|line| line.starts_with("WRITE:") || line.starts_with("READ:"));
    line.and_then(|line| line.split("bw=").nth(1)?.split(' ').next().map(String::from))
        .ok_or_else(|| last_line(text))
}

/// libiscsi read how large the disk is: 16 MiB.
pub(super) fn iscsi_capacity(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    let line = text.lines().find_map(|line| line.strip_prefix("Total size:"));
    match line.map(str::trim) {
        Some("16777216") => Ok("16 MiB".into()),
        _ => Err(last_line(text)),
    }
}

/// libiscsi's conformance tests: assertions, and none of them failed.
pub(super) fn iscsi_test(outcome: &Outcome) -> Result<String, String> {
    let text = &outcome.client.output;
    let line = text.lines().find(|line| line.trim_start().starts_with("asserts"));
    let numbers: Vec<u64> =
        line.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect();
    match numbers.as_slice() {
        [_, ran, passed, 0] if ran == passed && *ran > 0 => Ok(format!("{ran} assertions")),
        _ => Err(last_line(text)),
    }
}

pub(super) fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it said nothing").chars().take(120).collect()
}
