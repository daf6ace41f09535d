//! `highwire store faults`: real processes, real faults, and how long each was felt.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use highwire_program::laboratory;
use highwire_store::faults::{self, Episode, Etcd, Fault, Laboratory, Level, Setting};
use serde_json::{Value, json};

use crate::console::{Console, Tone};
use crate::values::{seconds_or_span, show_count};

/// Options of `highwire store faults`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where what was committed lies; both in turn unless given.
    #[arg(long)]
    level: Option<LevelArg>,
    /// Only these faults, in this order.
    #[arg(long, value_delimiter = ',')]
    only: Vec<FaultArg>,
    /// The nodes' lease.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    lease_ms: u64,
    /// Clients at a time.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// Rows of 1000 bytes that are there from the beginning.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    rows: u64,
    /// How long a client waits for an answer before it goes to another node.
    #[arg(long, default_value = "1s", value_parser = seconds_or_span)]
    patience: Duration,
    /// How long the load runs before a fault, and after the cluster has recovered.
    #[arg(long, default_value = "3s", value_parser = seconds_or_span)]
    calm: Duration,
    /// Where nodes and etcd keep their files; a folder for temporary files unless given. Nothing stays.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LevelArg {
    Memory,
    Disk,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FaultArg {
    Kill,
    Stop,
    Partition,
    FullDisk,
    EtcdRestart,
    EtcdAway,
    PowerLoss,
    RollingRestart,
}

impl From<FaultArg> for Fault {
    fn from(fault: FaultArg) -> Fault {
        match fault {
            FaultArg::Kill => Fault::Kill,
            FaultArg::Stop => Fault::Stop,
            FaultArg::Partition => Fault::Partition,
            FaultArg::FullDisk => Fault::FullDisk,
            FaultArg::EtcdRestart => Fault::EtcdRestart,
            FaultArg::EtcdAway => Fault::EtcdAway,
            FaultArg::PowerLoss => Fault::PowerLoss,
            FaultArg::RollingRestart => Fault::RollingRestart,
        }
    }
}

/// Plays the faults.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    if !Etcd::is_there() {
        bail!("there is no etcd here; apt-get install etcd-server");
    }
    let mut obstacle = None;
    if !faults::is_private() {
        match faults::private() {
            // Runs this program again, with a network of its own.
            Ok(mut command) => {
                let error = command.args(std::env::args_os().skip(1)).exec();
                return Err(error).context("unshare");
            }
            Err(reason) => obstacle = Some(reason),
        }
    }
    let levels = match args.level {
        Some(LevelArg::Memory) => vec![Level::Memory],
        Some(LevelArg::Disk) => vec![Level::Disk],
        None => vec![Level::Memory, Level::Disk],
    };
    let mut console = Console::new();
    let mut documents = Vec::new();
    for level in levels {
        documents.push(play(args, level, obstacle.as_deref(), &mut console)?);
    }
    if args.json {
        console.json(&documents)?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn play(args: &Args, level: Level, obstacle: Option<&str>, console: &mut Console) -> Result<Value> {
    let setting = Setting {
        level,
        lease_ms: args.lease_ms,
        clients: usize::from(args.clients),
        filling: args.rows,
        patience: args.patience,
        calm: args.calm,
    };
    let parent = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("highwire-faults-{}", highwire_store::fresh_name()?));
    let program = laboratory::product()?;
    let launch = move |file: &Path, node: u16| {
        let mut command = Command::new(&program);
        command.args(["store", "serve", "--until-stdin-ends", "--config"]).arg(file);
        command.args(["--node", &node.to_string()]);
        command
    };
    let mut laboratory = Laboratory::start(setting, &folder, Box::new(launch))?;
    if !args.json {
        let link = if faults::is_private() { "UDP between namespaces" } else { "shared memory" };
        let title = format!("{level:?}, a lease of {} ms, {link}", args.lease_ms);
        console.line(console.paint(Tone::Heading, &title))?;
        let head = format!("{:<36}{HEAD}", "milliseconds from the fault until");
        console.line(console.paint(Tone::Faint, &head))?;
    }
    let chosen: Vec<Fault> = match args.only.is_empty() {
        true => Fault::ALL.to_vec(),
        false => args.only.iter().map(|&fault| fault.into()).collect(),
    };
    let (mut episodes, mut skipped) = (Vec::new(), Vec::new());
    for fault in chosen {
        if let Some(reason) = fault.obstacle(&laboratory) {
            let reason = obstacle.unwrap_or(reason);
            skipped.push(json!({ "fault": fault.name(), "reason": reason }));
            if !args.json {
                console.line(format!("{}: skipped: {reason}", fault.name()))?;
            }
            continue;
        }
        for episode in fault.play(&mut laboratory).with_context(|| fault.name())? {
            if !args.json {
                console.line(row(&episode))?;
            }
            episodes.push(episode);
        }
    }
    let counted = laboratory.counted();
    let (acknowledged, unknown) = (counted.acknowledged(), counted.unknown());
    if !args.json {
        let text = format!(
            "{} commits were acknowledged and are there; of {unknown} more nobody was told",
            show_count(acknowledged as f64)
        );
        console.line(console.paint(Tone::Good, &text))?;
    }
    Ok(json!({
        "level": level,
        "lease_ms": args.lease_ms,
        "namespaces": faults::is_private(),
        "episodes": episodes,
        "skipped": skipped,
        "acknowledged": acknowledged,
        "unknown": unknown,
    }))
}

const HEAD: &str =
    " suspected configured  unlocked full speed replicated     back | pause  commits/s before, after";

fn row(episode: &Episode) -> String {
    let times = &episode.times;
    let show = |ms: Option<f64>| ms.map_or_else(|| "–".to_string(), |ms| format!("{ms:.0}"));
    format!(
        "{:<36}{:>10}{:>11}{:>10}{:>11}{:>11}{:>9} |{:>6.0}{:>10.0}{:>8.0}",
        episode.name,
        show(times.suspected_ms),
        show(times.configured_ms),
        show(times.unlocked_ms),
        show(times.full_speed_ms),
        show(times.replicated_ms),
        show(episode.back_ms),
        times.pause_ms,
        times.rate_before,
        times.rate_after,
    )
}
