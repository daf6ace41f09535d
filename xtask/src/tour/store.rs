//! The store's stop: a node is lost in the middle of a bank's day.

use anyhow::Result;

use crate::measure::Program;

use super::{Results, Stop};

const WORDS: &str = "bench smallbank --clients 6 --accounts 1000 --seconds 6 --lose-node";

/// Three nodes, one of which is killed, and the audit afterwards.
pub(super) fn loses_a_node(program: &Program, results: &mut Results) -> Result<Stop> {
    // It fails if a cent is missing.
    let figures = program.json(WORDS)?;
    let number = |name: &str| figures[name].as_f64().unwrap_or_default();
    let rate = format!("{:.0} transactions/s", number("transactions_per_second"));
    results.row("SmallBank, a node killed: money lost", &format!("{} cents", figures["cents_lost"]), "0", "");
    results.row("SmallBank over three nodes, clients at their doors", &rate, "", "");
    let output = format!(
        "{:.0} transactions/s before the node was killed\nnone for {} ms\n{:.0} transactions/s at the end, with a new node\n{} transactions of unknown outcome, {} cents lost\n",
        number("transactions_per_second_before"),
        figures["longest_pause_ms"],
        number("transactions_per_second_after"),
        figures["unknown"],
        figures["cents_lost"],
    );
    Ok(Stop {
        title: "A store that loses a node and no money".into(),
        meaning: "Three processes hold a bank's accounts, each twice, over RPCs on RDMA. One is killed while clients pay each other; the others notice, decide what it had begun, and go on. The sum of all accounts is what it was, to the cent.".into(),
        command: format!("highwire {WORDS}"),
        output,
        chart: None,
    })
}
