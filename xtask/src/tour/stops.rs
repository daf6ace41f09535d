//! The stops of the tour, in a sensible order.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::{CASES, Goodputs, Outcome, Recovery};
use crate::measure::{Program, Quantity};
use crate::shell::{root, target_dir};

use super::page::{Bar, Chart};
use super::{Results, Stop, java, nanopu, store, wake};
use crate::table::Table;
use crate::{libs, packages, shell::Log};

/// Seconds of each of the eight goodput measurements.
const GOODPUT_SECONDS: f64 = 0.7;

/// A stop before the visit.
pub(super) struct Sight {
    pub(super) title: &'static str,
    pub(super) visit: fn(&Program, &mut Results) -> Result<Stop>,
}

/// Every stop.
pub(super) const ALL: &[Sight] = &[
    Sight { title: "Packets of real hardware's protocol, byte for byte", visit: captures },
    Sight { title: "How fast can this machine go at all?", visit: floor },
    Sight { title: "Two processes, one queue pair", visit: speed },
    Sight { title: "What loss costs", visit: loss },
    Sight { title: "The same misfortune every time", visit: misfortune },
    Sight { title: "A program written for RDMA cards, unmodified", visit: unmodified },
    Sight { title: "The same code on a simulated network", visit: simulated },
    Sight { title: "A store that loses a node and no money", visit: store::loses_a_node },
    Sight { title: "Hundreds of threads wait, and none of them polls", visit: wake::strategies },
    Sight { title: "Java, without a native library", visit: java::beside_sockets },
    Sight { title: "A processor with the network in its registers", visit: nanopu::timeline },
    Sight { title: "A core that is right to the cycle", visit: nanopu::rocket },
];

/// Every golden capture, decoded and verified by one run each.
fn captures(program: &Program, results: &mut Results) -> Result<Stop> {
    let folder = root().join("vectors/roce");
    let (mut files, mut packets, mut wrong) = (0u64, 0, 0);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        let summary = program.json(&format!("pcap --summary {}", path.display()))?;
        files += 1;
        packets += summary["packets"].as_u64().unwrap_or(0);
        wrong += summary["icrc_wrong"].as_u64().unwrap_or(0);
    }
    if wrong > 0 {
        bail!("{wrong} ICRCs are wrong");
    }
    let output = program.line("pcap vectors/roce/rc_write_imm.pcap").capture()?.stdout;
    results.row(
        "captures of two Linux kernels, decoded",
        &format!("{packets} packets in {files} files"),
        "every ICRC right",
        "all",
    );
    let meaning = format!(
        "{files} captures of two Linux kernels' own software RNICs, {packets} packets: each decodes, and every invariant CRC is right."
    );
    let title = "Packets of real hardware's protocol, byte for byte";
    Ok(Stop::new(title, meaning, "highwire pcap vectors/roce/rc_write_imm.pcap").showing(&output))
}

fn floor(program: &Program, _results: &mut Results) -> Result<Stop> {
    let output = program.line("perf floor").capture()?;
    if !output.success {
        bail!("{}", output.stderr.trim());
    }
    let meaning = "Raw sockets, a shared cache line and memory, with nothing of ours on top: what everything below is compared with.";
    Ok(Stop::new("How fast can this machine go at all?", meaning, "highwire perf floor")
        .showing(&output.stdout))
}

fn speed(program: &Program, results: &mut Results) -> Result<Stop> {
    let mut sum = Table::new(&["what", "measured here", "floor or aim"]);
    let mut bars = Vec::new();
    for case in CASES {
        let outcome = case.measure(program, 1)?;
        let here = outcome.here.show(case.quantity);
        let against = against(&outcome);
        results.row(case.what, &here, &against, &outcome.comparison());
        sum.row([case.what.into(), here.clone(), against]);
        if case.quantity == Quantity::RoundTrip {
            let floor = outcome.floor.unwrap_or_default();
            bars.push(Bar {
                label: case.what.into(),
                value: outcome.here.median,
                text: here,
                mark: Some(floor),
            });
        }
    }
    let meaning = "Each row starts two processes, which exchange real RoCEv2 packets over UDP, or the same over shared memory. The mark in a bar is the floor.";
    let mut stop =
        Stop::new("Two processes, one queue pair", meaning, format!("highwire {}", CASES[0].command));
    stop.sum = Some(sum);
    stop.chart =
        Some(Chart { title: "Time, 32 bytes (shorter is better)".into(), bars, is_logarithmic: true });
    Ok(stop)
}

fn against(outcome: &Outcome) -> String {
    match outcome.floor {
        Some(_) => format!("floor {}", outcome.floor_text()),
        None => format!("aim {}", outcome.aim()),
    }
}

fn loss(program: &Program, results: &mut Results) -> Result<Stop> {
    let goodputs = Goodputs::measure(program, GOODPUT_SECONDS)?;
    for recovery in [Recovery::Irn, Recovery::GoBackN] {
        let kept = goodputs.share("1%", recovery).unwrap_or_default();
        results.row(
            &format!("goodput kept at 1 % loss, {}", recovery.name()),
            &format!("{:.0} %", kept * 100.0),
            "loss-free: 100 %",
            "",
        );
    }
    let bars = goodputs.cells().iter().map(|&(loss, recovery, gbps)| Bar {
        label: format!("{loss} loss, {}", recovery.name()),
        value: gbps,
        text: Quantity::Goodput.show(gbps),
        mark: None,
    });
    let mut stop = Stop::new(
        "What loss costs",
        "IRN resends only what was lost; go-back-N, as RoCE network cards have it, resends everything behind it as well, which is why those want a lossless network.",
        "highwire perf write bw --link udp --loss 1% --seed 7 --recovery go-back-n",
    );
    stop.sum = Some(goodputs.table());
    stop.chart = Some(Chart {
        title: "Goodput of 64 KiB WRITEs (longer is better)".into(),
        bars: bars.collect(),
        is_logarithmic: false,
    });
    Ok(stop)
}

/// A lossy run recorded and read back.
fn misfortune(program: &Program, results: &mut Results) -> Result<Stop> {
    let folder = target_dir().join("tour");
    std::fs::create_dir_all(&folder)?;
    let capture = folder.join("lossy.pcap");
    let words = "perf send lat --link udp --iters 200 --loss 5% --seed 7 --no-floor --pcap";
    let run = program.line(words).arg(&capture).capture()?;
    if !run.success {
        bail!("{}", run.stderr.trim());
    }
    let shown = capture.strip_prefix(root()).unwrap_or(&capture).display().to_string();
    let summary = program.line("pcap --summary").arg(&capture).capture()?;
    if !summary.success {
        bail!("{}{}", summary.stdout, summary.stderr.trim());
    }
    let packets = program.json(&format!("pcap --summary {}", capture.display()))?["packets"].to_string();
    results.row("a run with 5 % loss, recorded", &format!("{packets} packets"), "every ICRC right", "all");
    let mut stop = Stop::new(
        "The same misfortune every time",
        "A seed decides which packets are lost, so a program's behaviour under loss can be seen again. Wireshark reads the recording, too.",
        format!("highwire {words} {shown} && highwire pcap --summary {shown}"),
    )
    .showing(&format!("{}{}", run.stdout, summary.stdout));
    stop.links.push(("the recording", "lossy.pcap"));
    Ok(stop)
}

/// Debian's own `ib_write_lat`, twice, over the drop-in libraries.
fn unmodified(program: &Program, results: &mut Results) -> Result<Stop> {
    // A port of its own, and a server that may listen late.
    let words = "run -- ib_write_lat -F -n 2000 -p 18719";
    let mut stop = Stop::new(
        "A program written for RDMA cards, unmodified",
        "perftest from Debian's archive, for cards that nobody here has: no kernel module, no root, no recompilation. docs/compatibility.md lists what else runs.",
        format!("highwire {words} > /dev/null & highwire {words} 127.0.0.1"),
    );
    if let Err(missing) = packages::ensure(&["perftest"], &Log::create("tour-packages")?)? {
        stop.output = missing.0;
        return Ok(stop);
    }
    if libs::build(true)?.is_none() {
        bail!("the libraries do not build");
    }
    let mut server = program.line(words).command();
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("ib_write_lat")?;
    let mut last = None;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(200));
        let client = program.line(words).arg("127.0.0.1").capture()?;
        if client.success {
            last = Some(client.stdout);
            break;
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    let Some(text) = last else { bail!("ib_write_lat found no server") };
    let rows: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with(['#', '2'])).collect();
    let typical = rows.last().and_then(|row| row.split_whitespace().nth(4)).unwrap_or("?");
    results.row(
        "ib_write_lat of 2 B, unmodified, shared memory",
        &format!("{typical} µs"),
        "aim at most 1 µs",
        "",
    );
    Ok(stop.showing(&text))
}

fn simulated(program: &Program, results: &mut Results) -> Result<Stop> {
    const PLAN: &str = "experiments/tour.toml";
    let folder = target_dir().join("tour/sim");
    let shown = folder.strip_prefix(root()).unwrap_or(&folder).display().to_string();
    let run = program.line(&format!("sim run {PLAN} --out")).arg(&folder).capture()?;
    if !run.success {
        bail!("{}", run.stderr.trim());
    }
    let ratio = run.stdout.lines().rev().find(|line| line.contains("average slowdown"));
    let ratio = ratio.and_then(|line| line.split_whitespace().find(|word| word.ends_with('×')));
    results.row(
        "RoCE with PFC against IRN without, simulated, 16 hosts: slowdown",
        &format!("{} as long", ratio.unwrap_or("?")),
        "paper 2.8 to 3.7 × on 54 hosts",
        "",
    );
    let mut stop = Stop::new(
        "The same code on a simulated network",
        "Sixteen RNICs, the very state machines that ran above, on a fat tree of simulated switches: loss recovery at the end hosts against a network that may not drop. `highwire sim list` shows the paper's figures.",
        format!("highwire sim run {PLAN} --out {shown}"),
    )
    .showing(&run.stdout);
    stop.links.push(("the report, with its charts", "sim/tour/report.html"));
    Ok(stop)
}
