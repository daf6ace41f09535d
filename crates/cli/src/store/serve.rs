//! `highwire store serve`: one node of a cluster, or a whole cluster on this machine.

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_host::EndSignals;
use highwire_store::{ClusterConfig, Engine};

use crate::console::Console;
use crate::failure::usage;

use super::options::Args;
use super::supervisor;

/// How a node tells its supervisor that it has left the cluster.
pub(super) const HAS_LEFT: u8 = 3;

/// Serves until a signal ends it.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match (&args.config, args.node) {
        (Some(path), Some(node)) => {
            let mut config = ClusterConfig::load(path).map_err(|error| usage(error.to_string()))?;
            config.node(node).map_err(usage)?;
            if let Some(register) = &args.register {
                config.register = register.into();
            }
            if let Some(users) = &args.users {
                config.users = Some(users.clone());
            }
            if let Some(own) = config.nodes.iter_mut().find(|own| own.id == node) {
                own.data = args.data.clone().or(own.data.take());
            }
            run_node(args, &config, node)
        }
        _ => supervisor::run(args),
    }
}

fn run_node(args: &Args, config: &ClusterConfig, id: u16) -> Result<ExitCode> {
    let ends = EndSignals::block();
    let engine = Engine::start(config, id)?;
    if let Some((address, port)) = &args.resp {
        let opened = engine.store().open_resp(&format!("{address}:{port}"));
        opened.with_context(|| format!("--resp: {address}:{port}"))?;
    }
    if let Some((address, port)) = &args.metrics {
        let opened = engine.store().open_metrics(&format!("{address}:{port}"));
        opened.with_context(|| format!("--metrics: {address}:{port}"))?;
    }
    let own = engine.store().clone();
    let (store, door) = (engine.store().clone(), &config.node(id).map_err(usage)?.door);
    if args.until_stdin_ends {
        let store = store.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            store.stop();
        });
    } else {
        let mut console = Console::new();
        console.line(format_args!("node {id} listens at {door}"))?;
        console.finish()?;
    }
    std::thread::spawn(move || {
        ends.wait();
        store.stop();
    });
    engine.join()?;
    // A supervisor would start a node that has only ended again.
    Ok(if own.has_left() && args.until_stdin_ends { ExitCode::from(HAS_LEFT) } else { ExitCode::SUCCESS })
}
