//! The speed of the network's simulator: `highwire sim bench` as a table.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Args, machine};
use crate::measure::Program;
use crate::measurements;
use crate::table::Table;

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    let words = format!("sim bench --repeat {}", args.runs);
    let cases = program.json(&words)?;
    let table = table(cases.as_array().context("no list of cases")?)?;
    println!("{}", table.to_text());
    if args.write_docs {
        let text = format!("`highwire {words}`, on {}\n{}", machine()?, table.to_markdown());
        measurements::SIMULATOR.write(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(cases: &[Value]) -> Result<Table> {
    let mut table = Table::new(&["case", "Mhops per CPU second", "goal"]);
    for case in cases {
        let name = case["what"].as_str().with_context(|| format!("no name in {case}"))?;
        let rate = case["packet_hops_per_cpu_second"].as_f64();
        let rate = rate.with_context(|| format!("no rate in {case}"))?;
        let goal = case["goal_per_cpu_second"].as_f64();
        table.row([
            name.to_string(),
            format!("{:.1}", rate / 1e6),
            goal.map_or_else(String::new, |goal| format!("{:.0}", goal / 1e6)),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_millions_and_a_case_may_have_no_goal() {
        let case = |goal: Option<f64>| json!({ "what": "54 hosts", "packet_hops_per_cpu_second": 8_640_000.0, "goal_per_cpu_second": goal });
        let table = table(&[case(Some(6e6)), case(None)]).expect("two cases");
        assert_eq!(table.rows(), [["54 hosts", "8.6", "6"], ["54 hosts", "8.6", ""]]);
        assert!(super::table(&[json!({})]).is_err());
    }
}
