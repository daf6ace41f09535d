//! `cargo xtask compat --valkey`: requests, latencies and the server's processor time over RDMA in every mode of
//! waiting, beside the kernel's TCP and Valkey's own epoll.

use anyhow::{Context, Result, bail};

use crate::bench::{machine, replace_section};
use crate::measure::Spread;
use crate::shell::root;
use crate::table::Table;

use super::super::Workshop;
use super::super::judge::last_line;
use super::build::{self, Trouble};
use super::server::Server;

const PAGE: &str = "docs/measurements/valkey.md";
const SECTION: &str = "valkey";
const MODES: [&str; 4] = ["event", "balanced", "latency", "power"];
/// Clients, and requests that each has under way.
const LOADS: [(u32, u32); 5] = [(1, 1), (16, 1), (50, 1), (128, 1), (50, 16)];
/// Connections are made before the warm-up is over.
const WORDS: &str = "--warmup 1 --duration 2 -d 64 -t set --csv -q";
const SECONDS_MAX: u32 = 60;

/// How requests reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Tcp,
    Rdma { link: &'static str, mode: &'static str },
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    per_second: f64,
    /// Microseconds, as the rest.
    p50: f64,
    p99: f64,
    cpu: f64,
}

/// All runs of one way under one load.
#[derive(Debug)]
struct Cell {
    way: Way,
    load: (u32, u32),
    samples: Vec<Sample>,
}

/// Measures in turns, prints the table, and writes it into the page.
///
/// # Errors
/// There is no Valkey here. A run that fails leaves a hole, and says why.
pub(in super::super) fn run(workshop: &Workshop, rounds: u32, write_docs: bool) -> Result<()> {
    let programs = match build::programs(&workshop.folder) {
        Ok(programs) => programs,
        Err(Trouble::NoSource(reason) | Trouble::NoBuild(reason)) => bail!("{reason}"),
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut cells: Vec<Cell> = ways()
        .into_iter()
        .flat_map(|way| LOADS.iter().map(move |load| Cell { way, load: *load, samples: Vec::new() }))
        .collect();
    for round in 1..=rounds {
        for cells in cells.chunk_mut_by_way() {
            let run = cells[0].way.run();
            let folder = workshop.folder.join("valkey/table");
            let server = Server::start(workshop, programs, &folder, run.as_deref(), "")?;
            for cell in cells {
                let (clients, depth) = cell.load;
                let what =
                    format!("{}, {clients} clients, {depth} under way each", cell.way.shown().join(", "));
                match measure(&server, cell.load) {
                    Ok(sample) => {
                        println!(
                            "[round {round}] {what}: {:.0} requests/s, p50 {:.0} µs",
                            sample.per_second, sample.p50
                        );
                        cell.samples.push(sample);
                    }
                    Err(error) => println!("[round {round}] {what}: nothing: {error:#}"),
                }
            }
        }
    }
    let table = table(&cells);
    let beside = beside_tcp(&cells);
    println!("\n{}\n{beside}", table.to_text());
    if write_docs {
        let path = root().join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let text = format!(
            "Valkey {}. Medians of {rounds} rounds, on {} with a load of {} from other programs before. {beside}\n\n{}",
            programs.version,
            machine()?.trim(),
            load.split(' ').next().unwrap_or("?"),
            table.to_folded_markdown("All rows"),
        );
        std::fs::write(&path, replace_section(&page, SECTION, &text)?)
            .with_context(|| path.display().to_string())?;
        println!("{PAGE} is up to date");
    }
    Ok(())
}

fn ways() -> Vec<Way> {
    let rdma = |link| MODES.map(|mode| Way::Rdma { link, mode });
    [vec![Way::Tcp], rdma("shm").to_vec(), rdma("udp").to_vec()].concat()
}

/// Cells of one way are beside each other, and share a server.
trait ByWay {
    fn chunk_mut_by_way(&mut self) -> std::slice::ChunksMut<'_, Cell>;
}

impl ByWay for Vec<Cell> {
    fn chunk_mut_by_way(&mut self) -> std::slice::ChunksMut<'_, Cell> {
        self.chunks_mut(LOADS.len())
    }
}

impl Way {
    fn run(self) -> Option<String> {
        match self {
            Way::Tcp => None,
            Way::Rdma { link, mode } => Some(format!("--link {link} --wake {mode}")),
        }
    }

    /// What carries the requests, and how the server waits for them.
    fn shown(self) -> [String; 2] {
        match self {
            Way::Tcp => ["TCP".into(), "epoll".into()],
            Way::Rdma { link: "shm", mode } => ["RDMA, shared memory".into(), format!("`{mode}`")],
            Way::Rdma { mode, .. } => ["RDMA, UDP".into(), format!("`{mode}`")],
        }
    }
}

fn measure(server: &Server<'_>, (clients, depth): (u32, u32)) -> Result<Sample> {
    let before = server.figures()?;
    let output = server.benchmark(&format!("-c {clients} -P {depth} {WORDS}"), SECONDS_MAX).capture()?;
    if !output.success {
        bail!("{}", last_line(&format!("{}{}", output.stdout, output.stderr)));
    }
    let after = server.figures()?;
    let requests = (after.requests - before.requests) as f64;
    let printed = read(&output.stdout).with_context(|| format!("not a line of SET: {}", output.stdout))?;
    Ok(Sample { cpu: (after.cpu - before.cpu) * 1e6 / requests, ..printed })
}

/// The line of SET in what valkey-benchmark prints: name, requests a second, and in milliseconds the latencies'
/// mean, minimum, median, p95, p99 and maximum.
fn read(csv: &str) -> Option<Sample> {
    let line = csv.lines().find(|line| line.starts_with("\"SET\","))?;
    let fields: Vec<f64> =
        line.split(',').skip(1).filter_map(|field| field.trim().trim_matches('"').parse().ok()).collect();
    let [per_second, _, _, p50, _, p99, _] = fields.as_slice() else { return None };
    Some(Sample { per_second: *per_second, p50: p50 * 1e3, p99: p99 * 1e3, cpu: 0.0 })
}

/// The clients of a load, and what each has under way.
fn named(load: (u32, u32)) -> String {
    match load {
        (clients, 1) => clients.to_string(),
        (clients, depth) => format!("{clients}, {depth} requests each"),
    }
}

/// The best mode's requests a second as a share of TCP's, under every load.
fn beside_tcp(cells: &[Cell]) -> String {
    let median =
        |cell: &Cell| Some(Spread::of(cell.samples.iter().map(|sample| sample.per_second).collect())?.median);
    let of = |load: (u32, u32), wanted: fn(Way) -> bool| {
        let cells = cells.iter().filter(|cell| cell.load == load && wanted(cell.way));
        cells.filter_map(median).reduce(f64::max)
    };
    let shares = LOADS.iter().filter_map(|load| {
        let tcp = of(*load, |way| way == Way::Tcp)?;
        let share = |wanted| of(*load, wanted).map(|best| format!("{:.0} %", 100.0 * best / tcp));
        let shm = share(|way| matches!(way, Way::Rdma { link: "shm", .. }))?;
        let udp = share(|way| matches!(way, Way::Rdma { link: "udp", .. }))?;
        Some(format!("{shm} and {udp} ({})", named(*load)))
    });
    let shares: Vec<String> = shares.collect();
    format!(
        "The best mode's share of TCP's requests a second, through shared memory and over UDP (clients): {}.",
        shares.join("; ")
    )
}

fn table(cells: &[Cell]) -> Table {
    let mut table = Table::new(&[
        "over",
        "waiting",
        "clients",
        "requests/s",
        "p50, µs",
        "p99, µs",
        "server's CPU per request, µs",
    ]);
    for load in LOADS {
        for cell in cells.iter().filter(|cell| cell.load == load) {
            let [over, waiting] = cell.way.shown();
            let clients = named(load);
            let median = |of: fn(&Sample) -> f64, digits: usize| {
                let spread = Spread::of(cell.samples.iter().map(of).collect());
                spread.map_or("–".into(), |spread| format!("{:.digits$}", spread.median))
            };
            table.row(vec![
                over,
                waiting,
                clients,
                median(|sample| sample.per_second, 0),
                median(|sample| sample.p50, 0),
                median(|sample| sample.p99, 0),
                median(|sample| sample.cpu, 1),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_benchmark_is_read() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
             \"p99_latency_ms\",\"max_latency_ms\"\n\
             \"SET\",\"6641.50\",\"0.142\",\"0.024\",\"0.087\",\"0.175\",\"2.679\",\"7.223\"\n";
        let sample = read(csv).expect("a line of SET");
        assert_eq!((sample.per_second, sample.p50.round(), sample.p99.round()), (6641.5, 87.0, 2679.0));
        assert_eq!(read("\"SET\",\"6641.50\"\n"), None);
    }

    #[test]
    fn every_way_has_a_row_under_every_load_and_a_hole_where_nothing_was_measured() {
        let sample = |per_second| Sample { per_second, p50: 20.0, p99: 60.4, cpu: 7.25 };
        let cells = vec![
            Cell { way: Way::Tcp, load: (50, 16), samples: vec![sample(3.0), sample(1.0), sample(2.0)] },
            Cell { way: ways()[5], load: (1, 1), samples: vec![] },
        ];
        let rows = table(&cells).rows().to_vec();
        assert_eq!(rows[0], ["RDMA, UDP", "`event`", "1", "–", "–", "–", "–"]);
        assert_eq!(rows[1], ["TCP", "epoll", "50, 16 requests each", "2", "20", "60", "7.2"]);
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn the_best_mode_of_each_link_is_set_beside_tcp() {
        let cell = |way, per_second| {
            let sample = Sample { per_second, p50: 1.0, p99: 1.0, cpu: 1.0 };
            Cell { way, load: (16, 1), samples: vec![sample] }
        };
        let [tcp, event, balanced, udp] = [ways()[0], ways()[1], ways()[2], ways()[5]];
        let cells = vec![cell(tcp, 200.0), cell(event, 50.0), cell(balanced, 80.0), cell(udp, 30.0)];
        let text = beside_tcp(&cells);
        assert!(text.ends_with("(clients): 40 % and 15 % (16)."), "{text}");
    }

    #[test]
    fn the_page_has_the_section() {
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is in the repository");
        replace_section(&page, SECTION, "").expect("the section is marked");
    }
}
