//! `cargo xtask soak rsockets`: `crates/ibverbs/tests/programs/rsockets_stress.c` at length, over shared memory, over UDP, and
//! over UDP that loses packets. Its short form is a line of that program's arguments.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::programs::{self, Built};
use crate::shell::Log;

/// Options of `cargo xtask soak rsockets`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask soak rsockets --seconds 3600
  cargo xtask soak rsockets --seconds 60 --link udp --loss 1% --seed 12")]
pub(crate) struct Args {
    /// How long altogether; each way has its share.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The seed of every script.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Over this link only.
    #[arg(long, value_parser = ["shm", "udp"])]
    link: Option<String>,
    /// With `--link udp`: lose so many packets.
    #[arg(long, requires = "link")]
    loss: Option<String>,
    /// With optimised libraries.
    #[arg(long)]
    release: bool,
}

/// Runs the program each way, its output on the terminal.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("soak-rsockets")?;
    let Some(built) = Built::new(args.release, &log)? else { bail!("see {}", log.path().display()) };
    let Some(program) = programs::compile(&programs::source("rsockets_stress"), &log)? else {
        bail!("the program does not compile: {}", log.path().display());
    };
    let ways = ways(args);
    let share = (args.seconds / ways.len() as u64).max(1);
    let mut is_good = true;
    for (link, options) in ways {
        println!("over {link} {options}, {share} s, seed {}", args.seed);
        let words = format!("soak {} {share}", args.seed);
        // Beyond its share it only finishes a round.
        is_good &= built.line(&program, &link, &options, &words, share + 300).run()?;
    }
    println!("{}", if is_good { "nothing has grown" } else { "FAILED" });
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Links, each with options of `highwire run`.
fn ways(args: &Args) -> Vec<(String, String)> {
    match &args.link {
        Some(link) => {
            vec![(link.clone(), args.loss.as_ref().map_or(String::new(), |loss| format!("--loss {loss}")))]
        }
        None => [("shm", ""), ("udp", ""), ("udp", "--loss 1%")].map(|(l, o)| (l.into(), o.into())).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_link_every_way_is_taken() {
        let args = Args { seconds: 9, seed: 1, link: None, loss: None, release: false };
        assert_eq!(ways(&args).len(), 3);
        let one = Args { link: Some("udp".into()), loss: Some("2%".into()), ..args };
        assert_eq!(ways(&one), [("udp".to_string(), "--loss 2%".to_string())]);
    }
}
