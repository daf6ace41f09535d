//! `highwire store backup|restore`: all tables into a file, and back.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use highwire_store::{BackupContents, RestoreError, RestoreOptions};
use serde_json::{Value, json};

use crate::console::Console;
use crate::failure::usage;
use crate::progress::Progress;
use crate::values::{show_count, show_ns};

use super::commands::Cluster;

#[derive(Debug, clap::Args)]
pub(super) struct Backup {
    /// The file to be written. It appears when it is whole.
    file: PathBuf,
    /// Take the place of a file that is there.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, clap::Args)]
pub(super) struct Restore {
    /// The backup.
    file: PathBuf,
    /// Empty the tables of the backup first. Without this they must be empty.
    #[arg(long, conflicts_with = "check")]
    replace: bool,
    /// Only check the file and tell what it holds; asks no node.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    cluster: Cluster,
}

pub(super) fn back_up(args: &Backup) -> Result<ExitCode> {
    if args.file.exists() && !args.force {
        return Err(usage(format!("{} is there; another name, or --force", args.file.display())));
    }
    let mut client = args.cluster.client()?;
    let mut progress = None;
    let taken = highwire_store::back_up(&mut client, &args.file, &mut |done, total| {
        // The estimate counts rows, of which some hold no entry or several.
        let line =
            progress.get_or_insert_with(|| Progress::new("backup", total.max(1)).with_rate().with_lines());
        line.at(done, Instant::now());
    })?;
    drop(progress);
    let mut console = Console::new();
    if args.cluster.prints_json() {
        let mut value = json_of(&taken.contents);
        value["file"] = json!(args.file);
        value["held_ms"] = json!(taken.held.as_secs_f64() * 1e3);
        value["attempts_lost"] = json!(taken.attempts_lost);
        console.json(&value)?;
    } else {
        console.line(format_args!(
            "{}: {}; commits were held back for {}",
            args.file.display(),
            text_of(&taken.contents),
            show_ns(taken.held.as_nanos() as f64)
        ))?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn restore(args: &Restore) -> Result<ExitCode> {
    let mut console = Console::new();
    if args.check {
        let contents = highwire_store::check_backup(&args.file)?;
        match args.cluster.prints_json() {
            true => console.json(&json_of(&contents))?,
            false => console.line(format_args!("{}: {}", args.file.display(), text_of(&contents)))?,
        }
        console.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut client = args.cluster.client()?;
    let mut progress = None;
    let options = RestoreOptions { replace: args.replace };
    let restored = highwire_store::restore(&mut client, &args.file, options, &mut |done, total| {
        let line = progress.get_or_insert_with(|| Progress::new("restore", total.max(1)).with_lines());
        line.at(done, Instant::now());
    });
    drop(progress);
    let (contents, already) = match restored {
        Err(error @ RestoreError::NotEmpty(_)) => {
            bail!("{error}. --replace empties them first")
        }
        restored => restored?,
    };
    if args.cluster.prints_json() {
        let mut value = json_of(&contents);
        value["blocks_before"] = json!(already);
        console.json(&value)?;
    } else {
        let before = match already {
            0 => String::new(),
            _ => format!(
                "; {already} of {} blocks were there from a restore that was broken off",
                contents.blocks
            ),
        };
        console.line(format_args!("{} is back: {}{before}", args.file.display(), text_of(&contents)))?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn json_of(contents: &BackupContents) -> Value {
    let tables = contents
        .tables
        .iter()
        .map(|(table, entries)| json!({ "table": String::from_utf8_lossy(table), "entries": entries }));
    json!({
        "identity": format!("{:016x}", contents.identity),
        "taken_s": contents.taken_s,
        "configuration": contents.configuration,
        "entries": contents.entries(),
        "tables": tables.collect::<Vec<_>>(),
        "bytes": contents.bytes,
        "blocks": contents.blocks,
    })
}

fn text_of(contents: &BackupContents) -> String {
    let count =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    format!(
        "{} in {}, {}B, as of configuration {}",
        count(contents.entries() as usize, "entry", "entries"),
        count(contents.tables.len(), "table", "tables"),
        show_count(contents.bytes as f64),
        contents.configuration
    )
}
