//! `highwire store remove`: takes a node out of a running cluster.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use highwire_store::NodeStatus;
use serde_json::json;

use crate::console::Console;
use crate::failure::usage;
use crate::progress::Progress;

use super::commands::{Cluster, told};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The node's number.
    node: u16,
    /// Only ask the node to leave, and do not wait until it has left.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    let mut client = args.cluster.client()?;
    let status = client.status().map_err(told)?;
    if status.configuration == 0 {
        bail!("the cluster does not serve yet: {}", status.standing);
    }
    if !status.members.contains(&args.node) {
        let members: Vec<String> = status.members.iter().map(u16::to_string).collect();
        return Err(usage(format!("node {} is no member; members are {}", args.node, members.join(", "))));
    }
    let doors = client.doors().map_err(told)?;
    let others: Vec<String> = doors
        .iter()
        .filter(|(node, _)| *node != args.node && status.members.contains(node))
        .map(|(_, door)| door.clone())
        .collect();
    let Some((_, door)) = doors.iter().find(|known| known.0 == args.node) else {
        bail!("no node knows the door of node {}", args.node);
    };
    let mut leaver = args.cluster.client_of([door.clone()])?;
    leaver.set_patience(Duration::from_secs(2));
    leaver.leave().map_err(told)?;
    if !args.no_wait {
        wait_until_it_has_left(args.node, &others, &args.cluster)?;
    }
    let mut console = Console::new();
    if args.cluster.prints_json() {
        console.json(&json!({
            "node": args.node,
            "has_left": !args.no_wait,
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else if args.no_wait {
        console
            .line(format_args!("node {} leaves; `highwire store status` shows how far it is", args.node))?;
    } else {
        console.line(format_args!(
            "node {} has left after {:.1} s; its process has ended, and its data is with the others",
            args.node,
            began.elapsed().as_secs_f64()
        ))?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// What the others know, the newest first.
fn newest(others: &[String], cluster: &Cluster) -> Option<NodeStatus> {
    let ask = |door: &String| {
        let mut client = cluster.client_of([door.clone()]).ok()?;
        client.set_patience(Duration::from_secs(1));
        client.status().ok()
    };
    others.iter().filter_map(ask).max_by_key(|status| (status.configuration, status.revision))
}

fn wait_until_it_has_left(node: u16, others: &[String], cluster: &Cluster) -> Result<()> {
    let mut progress = None;
    let mut regions_all = 0;
    let mut has_begun = false;
    loop {
        if let Some(status) = newest(others, cluster) {
            if !status.members.contains(&node) {
                return Ok(());
            }
            let leaves = status.leaving.contains(&node);
            if has_begun && !leaves {
                bail!("node {node} was started again while it left, and has joined anew");
            }
            has_begun |= leaves;
            let holding =
                status.holdings.iter().find(|holding| holding.node == node).copied().unwrap_or_default();
            regions_all = regions_all.max(u64::from(holding.complete));
            let others = status.holdings.iter().filter(|holding| holding.node != node);
            let coming: u64 = others.map(|holding| u64::from(holding.coming)).sum();
            let line =
                progress.get_or_insert_with(|| Progress::new("remove", regions_all.max(1)).with_lines());
            line.at(regions_all.saturating_sub(coming), Instant::now());
        }
        thread::sleep(PAUSE);
    }
}
