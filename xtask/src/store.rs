//! The store as people run it: clusters under real faults, etcd for the register, and Redis's own clients at their doors.

use anyhow::Result;

use crate::packages;
use crate::shell::{Line, Log};
use crate::test::Tally;

/// Redis's clients, and its server as the oracle of replies; etcd; and the program that makes networks.
pub(crate) const PACKAGES: &[&str] =
    &["redis-tools", "redis-server", "python3-redis", "etcd-server", "iproute2"];

/// The crate's tests, which print a reason if a program is missing.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    if let Err(missing) = packages::ensure(PACKAGES, log)? {
        log.note(&missing.0)?;
    }
    let line = Line::cargo("test --package highwire-store --no-fail-fast -- --show-output");
    let success = line.run_logged(log)?;
    Ok(Tally::from_cargo_test(&log.text()?, success))
}
