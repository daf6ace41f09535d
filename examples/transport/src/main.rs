//! Compares transports by name: `cargo run -p example-transport -- ndp delay marks`

use anyhow::{Context, Result};
use example_transport::{LEAST_CYCLES, incast};
use highwire_nanopu::nic::TransportKind;

fn main() -> Result<()> {
    example_transport::register()?;
    println!("{:<8} {:>9} {:>11} {:>14} {:>9}", "", "cycles", "over ideal", "longest queue", "repeated");
    for name in std::env::args().skip(1) {
        let kind = TransportKind::named(&name).with_context(|| {
            let known: Vec<&str> = TransportKind::all().map(|kind| kind.name).collect();
            format!("no transport is called {name:?}: there are {}", known.join(", "))
        })?;
        let outcome = incast(kind)?;
        let ideal = outcome.cycles as f64 / LEAST_CYCLES as f64;
        println!(
            "{name:<8} {:>9} {ideal:>11.2} {:>8} bytes {:>9}",
            outcome.cycles, outcome.queue_bytes, outcome.repeated
        );
    }
    Ok(())
}
