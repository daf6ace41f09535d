//! Processor time of two processes, to the nanosecond: /proc counts in hundredths of a second.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The clocks of this process and of another, all their threads together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks([ClockId; 2]);

impl Clocks {
    pub(crate) fn of(other: i32) -> Result<Clocks> {
        let clock = |process: i32| {
            clock_getcpuclockid(Pid::from_raw(process)).with_context(|| format!("process {process}"))
        };
        Ok(Clocks([clock(std::process::id() as i32)?, clock(other)?]))
    }

    pub(crate) fn read(&self) -> Result<[Duration; 2]> {
        let [own, other] = self.0.map(|clock| clock_gettime(clock).map(Duration::from));
        Ok([own?, other.context("the server has ended")?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_process_runs_while_it_works() {
        let own = std::process::id() as i32;
        let clocks = Clocks::of(own).expect("we are there");
        let before = clocks.read().expect("we are there");
        // However busy the machine is, this ends only when this process has had a processor for that long.
        let mut after = before;
        while after[0] < before[0] + Duration::from_millis(2) {
            after = clocks.read().expect("we are there");
        }
        assert!(after[1] >= before[1] + Duration::from_millis(1), "both are ours");
    }

    #[test]
    fn a_process_that_is_not_there_has_no_clock() {
        // Linux numbers its processes up to 2^22.
        assert!(Clocks::of((1 << 22) + 1).is_err());
    }
}
