//! The store beside other stores: TATP, SmallBank and redis-benchmark, each system alone for its turn, and
//! once in every round.

mod server;
mod tables;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Args, machine};
use crate::measure::Program;
use crate::measurements;
use crate::packages;
use crate::shell::{Line, Log, root, target_dir};
use server::{Kind, Server};
use tables::{Commands, Rows};

/// Subscribers, and customers.
const KEYS: u64 = 100_000;
const SECONDS: u64 = 3;
const CLIENTS: u64 = 16;
/// Transactions that a node of Highwire's store coordinates at a time.
const WORKERS: u64 = 32;
const WORKLOADS: [&str; 2] = ["tatp", "smallbank"];
/// The commands of redis-benchmark, to Redis and to the store's door alike: one request at a time on each
/// connection, and 16.
const COMMANDS: &str = "-t set,get,incr,mset -c 50 -r 100000 --csv";
const DEPTHS: [(u64, u64); 2] = [(1, 50_000), (16, 100_000)];

/// Everything that a round measures.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    let log = Log::create("bench-store")?;
    let driver = build()?;
    let mut notes = Vec::new();
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        let found = match kind.packages() {
            _ if kind == Kind::IgniteMemory => server::fetch_ignite(&log)?,
            [] => Ok(()),
            needed => packages::ensure(needed, &log)?,
        };
        match found {
            Ok(()) => kinds.push(kind),
            Err(missing) => notes.push(format!("Not measured: {}: {}.", kind.name(), missing.0)),
        }
    }
    let has_clients = match packages::ensure(&["redis-tools"], &log)? {
        Ok(()) => true,
        Err(missing) => {
            notes.push(format!("redis-benchmark did not run: {}.", missing.0));
            false
        }
    };
    let mut rows = Rows::default();
    let mut commands = Commands::default();
    for round in 1..=args.runs {
        eprintln!("round {round} of {}: Highwire by its own workers", args.runs);
        for (workload, is_durable) in WORKLOADS.into_iter().flat_map(|name| [(name, false), (name, true)]) {
            // The place of the other systems' files.
            let data = std::env::temp_dir();
            let data = if is_durable { format!("--data {}", data.display()) } else { String::new() };
            let words = format!(
                "bench store --workload {workload} --keys {KEYS} --workers {WORKERS} --seconds {SECONDS}s --half-load {data}"
            );
            rows.add_own(workload, is_durable, &program.json(&words)?)?;
        }
        for kind in &kinds {
            eprintln!("round {round} of {}: {}", args.runs, kind.name());
            let server = Server::start(*kind, program, &log)?;
            for workload in WORKLOADS {
                rows.add(*kind, workload, &play(&driver, &server, workload)?)?;
            }
            if has_clients && kind.speaks_resp() {
                for (depth, count) in DEPTHS {
                    commands.add(*kind, depth, &redis_benchmark(&driver, &server, depth, count)?)?;
                }
            }
            server.stop()?;
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let contention = [
        program_markdown(program, &format!("--workload smallbank --keys {KEYS} --hot 10,100,1000,4000"))?,
        program_markdown(program, &format!("--workload ycsb --keys {KEYS} --theta 0,0.5,0.9,0.99"))?,
    ];
    let text = format!(
        "`cargo xtask bench --store --runs {}`, on {}with a load of {} when it ended\n\n{}\n{}\n{}Contention, ours, by the nodes' own workers:\n\n{}\n{}",
        args.runs,
        machine()?,
        load.split(' ').next().unwrap_or("?"),
        rows.to_markdown(),
        commands.to_markdown(),
        notes.iter().map(|note| format!("{note}\n\n")).collect::<String>(),
        contention.join("\n"),
        memory(program)?
    );
    println!("{text}");
    if args.write_docs {
        measurements::STORE.write(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The clients of other systems, which are no part of the workspace.
fn build() -> Result<String> {
    let target = target_dir().join("comparisons");
    let line = Line::cargo("build --quiet --release --package comparisons-store --target-dir").arg(&target);
    if !line.dir(root().join("comparisons")).run()? {
        bail!("the clients of other stores do not build");
    }
    Ok(target.join("release/transactions").display().to_string())
}

/// Fills a system and measures.
fn play(driver: &str, server: &Server, workload: &str) -> Result<Value> {
    let target = format!("--system {} --workload {workload} --keys {KEYS} --at", server.kind().system());
    let fill = Line::new(driver).arg("fill").words(&target).arg(server.at());
    succeed(&fill)?;
    let loops = format!(
        "--clients {CLIENTS} --seconds {SECONDS} --warm-up {} --process {}",
        server.kind().warm_up(),
        server.process()
    );
    json(&Line::new(driver).arg("play").words(&target).arg(server.at()).words(&loops))
}

/// The output of redis-benchmark, and the processor time of the processes.
fn redis_benchmark(driver: &str, server: &Server, depth: u64, count: u64) -> Result<Value> {
    let (host, port) = server.door().rsplit_once(':').context("a door")?;
    let line = Line::new(driver).words(&format!("run --process {} -- redis-benchmark", server.process()));
    json(&line.words(&format!("-h {host} -p {port} {COMMANDS} -P {depth} -n {count}")))
}

/// The memory of a key, from ten million of them if the machine has room.
fn memory(program: &Program) -> Result<String> {
    let available = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = available.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let keys: u64 = if kilobytes.unwrap_or(0) > 12 << 20 { 10_000_000 } else { 1_000_000 };
    let words = format!("bench store --workload objects --keys {keys} --seconds 1s");
    let runs = program.json(&words)?;
    let memory = &runs[0]["memory"];
    let figure = |name: &str| memory[name].as_f64().with_context(|| format!("no {name} in {memory}"));
    let (rows, copies, resident) = (figure("rows")?, figure("copies")?, figure("resident_bytes")?);
    Ok(format!(
        "Memory: `highwire {words}`, {rows} keys with values of 40 bytes, {copies} copies: {:.0} bytes of table and {:.0} of resident memory for each copy, {:.0} for \
         a key on all nodes, {:.1} GiB in all.\n",
        figure("table_bytes")? / copies,
        resident / copies,
        resident / rows,
        resident / f64::from(1 << 30)
    ))
}

/// The first table that `highwire bench store` prints for a page: of loads.
fn program_markdown(program: &Program, words: &str) -> Result<String> {
    let line = program.line(&format!("bench store {words} --seconds {SECONDS}s --markdown"));
    let text = succeed(&line)?;
    let table =
        text.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let table: String = table.map(|line| format!("{line}\n")).collect();
    Ok(format!("`highwire bench store {words}`\n\n{table}"))
}

fn json(line: &Line) -> Result<Value> {
    serde_json::from_str(&succeed(line)?).with_context(|| format!("{line} printed no JSON"))
}

fn succeed(line: &Line) -> Result<String> {
    let output = line.capture()?;
    if !output.success {
        bail!("{line}: {}", output.stderr.trim());
    }
    Ok(output.stdout)
}
