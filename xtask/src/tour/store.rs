//! The store's stop: a node is lost in the middle of a bank's day.

use anyhow::Result;

use crate::measure::Program;
use crate::table::Table;

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
    let mut sum = Table::new(&["when", "measured here"]);
    let per_second = |name: &str| format!("{:.0} transactions/s", number(name));
    for (what, value) in [
        ("before the node was killed", per_second("transactions_per_second_before")),
        ("the longest time without any", format!("{} ms", figures["longest_pause_ms"])),
        ("at the end, with a new node", per_second("transactions_per_second_after")),
        ("transactions of unknown outcome", figures["unknown"].to_string()),
        ("cents lost", figures["cents_lost"].to_string()),
    ] {
        sum.row([what.into(), value]);
    }
    let mut stop = Stop::new(
        "A store that loses a node and no money",
        "Three processes hold a bank's accounts, each twice, over RPCs on RDMA. One is killed while clients pay each other; the others notice, decide what it had begun, and go on. The sum of all accounts is what it was, to the cent.",
        format!("highwire {WORDS}"),
    );
    stop.sum = Some(sum);
    Ok(stop)
}
