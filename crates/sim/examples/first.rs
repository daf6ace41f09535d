//! Fifty hosts send 3 MB each to one: with IRN and no PFC, and with RoCE and PFC.
//!
//! `cargo run --release -p highwire-sim --example first`

use highwire_fabric::{Ecn, Time};
use highwire_sim::scenario::{GoBackN, Irn, PfcChoice, Transport};
use highwire_sim::{Flow, RunError, Scenario, run};

fn main() -> Result<(), RunError> {
    let mut scenario = Scenario::default();
    for sender in 0..50 {
        let flow = Flow::new(sender, 53, 3_000_000, Time::ZERO);
        scenario.flows.push(Flow { group: Some(0), ..flow });
    }
    scenario.network.ecn = Some(Ecn::red(5_000, 200_000, 0.01));
    let schemes = [
        ("IRN", Transport::Irn(Irn::default()), PfcChoice::Off),
        ("RoCE", Transport::GoBackN(GoBackN::default()), PfcChoice::Computed),
    ];
    for (name, transport, pfc) in schemes {
        scenario.scheme.transport = transport;
        scenario.network.pfc = pfc;
        let outcome = run(&scenario, &mut ())?;
        let rct = outcome.groups[0].rct().expect("the run ends when all flows are over");
        let slowest = outcome.fcts(|_| true).last().copied().unwrap_or_default();
        println!(
            "{name}: all received after {:.2} ms, the slowest flow took {:.2} ms; {} of {} data packets dropped, {} pause frames",
            rct.as_secs_f64() * 1e3,
            slowest.as_secs_f64() * 1e3,
            outcome.totals.dropped_data_packets,
            outcome.totals.data_packets,
            outcome.totals.pause_frames,
        );
    }
    Ok(())
}
