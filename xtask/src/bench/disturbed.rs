//! What a record and a scenario cost: a ball between two processes over the drop-in libraries, plainly, with `--record`, and with scenarios
//! that do nothing. All follow each other in each round, so that other work of the machine meets each of them.

use std::fs;
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::{Args, machine};
use crate::measure::Spread;
use crate::packages;
use crate::programs::{self, Built};
use crate::shell::{Log, target_dir};
use crate::table::Table;

/// Round trips of a run.
const COUNT: u32 = 50_000;
const SECONDS_MAX: u64 = 600;

/// A rule that no call of the data path has to be asked about.
const ASKS_NOTHING: &str = r#"
[[call]]
function = "ibv_create_cq"
errno = "ENOMEM"
nth = 4000000000
"#;

/// Rules that count each request and each completion, none of which is ever carried out.
const DOES_NOTHING: &str = r#"
[[call]]
function = "ibv_post_send"
errno = "ENOMEM"
nth = 4000000000

[[completion]]
missing = true
nth = 4000000000
"#;

/// Measures and prints the table.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("bench-record")?;
    if let Err(missing) = packages::ensure(programs::PACKAGES, &log)? {
        bail!(missing.0);
    }
    let Some(built) = Built::new(true, &log)? else { bail!("{} says why", log.name()) };
    let Some(program) = programs::compile(&programs::source("round_trip"), &log)? else {
        bail!("{} says why", log.name())
    };
    let folder = target_dir().join("bench-record");
    fs::create_dir_all(&folder)?;
    let scenario = |name: &str, rules: &str| {
        let path = folder.join(name).with_extension("toml");
        fs::write(&path, rules).map(|()| format!("--scenario {}", path.display()))
    };
    // A file on a disk costs what the disk costs.
    let record = format!("/dev/shm/highwire-bench-{}.hwr", std::process::id());
    let ways = [
        ("plainly", String::new()),
        ("with `--record`", format!("--record {record}")),
        ("with a scenario for other calls", scenario("asks-nothing", ASKS_NOTHING)?),
        ("with rules that count each request and completion", scenario("does-nothing", DOES_NOTHING)?),
    ];
    let mut table =
        Table::new(&["round trip of 64 bytes", "over", "median", "times plain", "lowest to highest"]);
    for link in ["udp", "shm"] {
        let mut rounds: Vec<Vec<f64>> = Vec::new();
        for round in 0..args.runs {
            let mut times = vec![0.0; ways.len()];
            for turn in 0..ways.len() {
                // None is always the first.
                let way = (turn + round as usize) % ways.len();
                let line = built.line(&program, link, &ways[way].1, &COUNT.to_string(), SECONDS_MAX);
                let played = line.capture()?;
                let Some(time) = median_ns(&played.stdout).filter(|_| played.success) else {
                    bail!("{line}\n{}{}", played.stdout, played.stderr);
                };
                times[way] = time;
            }
            rounds.push(times);
        }
        for (way, (what, _)) in ways.iter().enumerate() {
            table.row(row(what, link, way, &rounds));
        }
    }
    let _ = fs::remove_file(&record);
    println!("{}{}", machine()?, table.to_text());
    Ok(ExitCode::SUCCESS)
}

fn median_ns(output: &str) -> Option<f64> {
    output.lines().find_map(|line| line.strip_prefix("median ")?.strip_suffix(" ns")?.parse().ok())
}

/// Medians of the times, and of the ratios of each round.
fn row(what: &str, link: &str, way: usize, rounds: &[Vec<f64>]) -> [String; 5] {
    let spread = |values: Vec<f64>| Spread::of(values).expect("at least one run");
    let times = spread(rounds.iter().map(|times| times[way]).collect());
    let ratios = spread(rounds.iter().map(|times| times[way] / times[0]).collect());
    [
        what.to_string(),
        link.to_string(),
        format!("{:.2} µs", times.median / 1e3),
        format!("{:.2} ×", ratios.median),
        format!("{:.2} to {:.2}", ratios.low, ratios.high),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let rounds = [vec![1000.0, 1100.0], vec![4000.0, 4800.0], vec![2000.0, 2600.0]];
        assert_eq!(row("x", "udp", 1, &rounds)[2..], ["2.60 µs", "1.20 ×", "1.10 to 1.30"].map(String::from));
        assert_eq!(row("x", "udp", 0, &rounds)[3], "1.00 ×");
        assert_eq!(median_ns("x\nmedian 4711 ns\n"), Some(4711.0));
        assert_eq!(median_ns("median of all"), None);
    }
}
