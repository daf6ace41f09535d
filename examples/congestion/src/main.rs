//! Plays a plan that may name the algorithms of this crate: `cargo run -p example-congestion -- examples/congestion/compare.toml`

use anyhow::{Context, Result, bail};
use highwire_sim::plan::{Plan, Scale};

fn main() -> Result<()> {
    example_congestion::register()?;
    let file = std::env::args().nth(1).context("which plan?")?;
    let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
    let folder = std::path::Path::new(&file).parent().map(std::path::Path::to_owned).unwrap_or_default();
    let load = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|e| format!("{name}: {e}"));
    let plan = Plan::read(&file, &text, Scale::Small, &load)?;
    for finding in plan.review() {
        eprintln!("{}", finding.about);
        if finding.is_error {
            bail!("the plan cannot be played");
        }
    }
    println!("{:<12} {:>5} {:>9} {:>10} {:>13}", "scheme", "seed", "slowdown", "99 % FCT", "longest queue");
    for run in plan.runs() {
        let outcome = highwire_sim::run(&run.scenario(&plan)?, &mut ())?;
        let summary = outcome.summary(|_| true);
        let queue = outcome.ports.iter().map(|port| port.queue_bytes_max).max().unwrap_or(0);
        println!(
            "{:<12} {:>5} {:>9.2} {:>7.1} us {:>10} KB",
            plan.schemes[run.scheme].name,
            run.seed,
            summary.slowdown_mean,
            summary.fct_p99_s * 1e6,
            queue / 1000
        );
    }
    Ok(())
}
