//! The pages of measurements: which section of which page each command writes, and the charts that are drawn from the tables.
//!
//! A section stands between `<!-- begin: name -->` and `<!-- end: name -->`. The text around it explains, and is written by hand.

mod chart;
mod charts;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::bench::replace_section;
use crate::shell::root;

/// A part of a page that a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    page: &'static str,
    name: &'static str,
}

impl Section {
    const fn of(page: &'static str, name: &'static str) -> Self {
        Self { page, name }
    }

    fn path(self) -> PathBuf {
        root().join("docs/measurements").join(self.page)
    }

    fn read(self) -> Result<String> {
        let path = self.path();
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// Replaces what the page has there, and draws the page's charts again.
    ///
    /// # Errors
    /// The page has no such section, or cannot be written.
    pub(crate) fn write(self, text: &str) -> Result<()> {
        let page = replace_section(&self.read()?, self.name, text).with_context(|| self.page)?;
        let path = self.path();
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        charts::draw(|section| section.page == self.page)?;
        println!("docs/measurements/{}: the section \"{}\" is up to date", self.page, self.name);
        Ok(())
    }
}

pub(crate) const MACHINE: Section = Section::of("verbs.md", "machine");
pub(crate) const SPEED: Section = Section::of("verbs.md", "speed");
pub(crate) const PROTOCOL: Section = Section::of("verbs.md", "protocol");
pub(crate) const GOODPUT_OVER_LOSS: Section = Section::of("verbs.md", "goodput over loss");
pub(crate) const PROGRAMS: Section = Section::of("verbs.md", "programs");
pub(crate) const AGAINST: Section = Section::of("verbs.md", "against");
pub(crate) const RPC: Section = Section::of("rpc.md", "rpc");
pub(crate) const RPC_BESIDE_OTHERS: Section = Section::of("rpc.md", "rpc beside others");
pub(crate) const STORE: Section = Section::of("store.md", "store");
pub(crate) const FAULTS: Section = Section::of("store.md", "faults");
pub(crate) const JAVA: Section = Section::of("java.md", "java");
pub(crate) const WAKE: Section = Section::of("wake.md", "wake");
pub(crate) const CORES: Section = Section::of("cores.md", "cores");
pub(crate) const SIMULATOR: Section = Section::of("simulator.md", "simulator");
pub(crate) const NANOPU_SIMULATOR: Section = Section::of("simulator.md", "nanopu");
pub(crate) const FIGURES: Section = Section::of("irn.md", "figures");
pub(crate) const SWEEPS: Section = Section::of("irn-sweeps.md", "sweeps");
pub(crate) const FIGURES_AT_FULL_SCALE: Section = Section::of("irn-full.md", "figures at full scale");
pub(crate) const PARTIAL_ACKS: Section = Section::of("irn-choices.md", "partial acknowledgements");
pub(crate) const OPEN_CHOICES: Section = Section::of("irn-choices.md", "open choices");
pub(crate) const NANOPU_EXPERIMENTS: Section = Section::of("nanopu.md", "experiments");
pub(crate) const ROCKET_BENCHMARKS: Section = Section::of("nanopu-hardware.md", "rocket benchmarks");
pub(crate) const ROCKET_SEQUENCES: Section = Section::of("nanopu-hardware.md", "rocket sequences");
pub(crate) const ROCKET_RANDOM_PROGRAMS: Section =
    Section::of("nanopu-hardware.md", "rocket random programs");
pub(crate) const RTL_SIMULATION: Section = Section::of("nanopu-hardware.md", "simulation");
pub(crate) const RTL_SYNTHESIS: Section = Section::of("nanopu-hardware.md", "synthesis");
pub(crate) const IRN_RTL_SIMULATION: Section = Section::of("irn-hardware.md", "simulation");
pub(crate) const IRN_RTL_RATES: Section = Section::of("irn-hardware.md", "rates");
pub(crate) const IRN_RTL_SYNTHESIS: Section = Section::of("irn-hardware.md", "synthesis");
pub(crate) const IRN_STATE: Section = Section::of("irn-hardware.md", "state");
pub(crate) const IRN_MEMORY: Section = Section::of("irn-hardware.md", "memory");

pub(crate) const SOFT_ROCE: Section = Section::of("soft-roce.md", "suites");

/// All of them; those of `docs/wake.md` and `docs/compatibility.md` are kept by their own commands.
#[cfg(test)]
const ALL: [Section; 32] = [
    MACHINE,
    SPEED,
    PROTOCOL,
    GOODPUT_OVER_LOSS,
    PROGRAMS,
    AGAINST,
    RPC,
    RPC_BESIDE_OTHERS,
    STORE,
    FAULTS,
    JAVA,
    WAKE,
    CORES,
    SIMULATOR,
    NANOPU_SIMULATOR,
    FIGURES,
    SWEEPS,
    FIGURES_AT_FULL_SCALE,
    PARTIAL_ACKS,
    OPEN_CHOICES,
    NANOPU_EXPERIMENTS,
    ROCKET_BENCHMARKS,
    ROCKET_SEQUENCES,
    ROCKET_RANDOM_PROGRAMS,
    RTL_SIMULATION,
    RTL_SYNTHESIS,
    IRN_RTL_SIMULATION,
    IRN_RTL_RATES,
    IRN_RTL_SYNTHESIS,
    IRN_STATE,
    IRN_MEMORY,
    SOFT_ROCE,
];

/// Draws every chart again from the tables as they stand in the pages.
pub(crate) fn draw_charts() -> Result<ExitCode> {
    for path in charts::draw(|_| true)? {
        println!("{path}");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_is_marked_in_its_page() {
        for section in ALL {
            let page = section.read().expect("the page is in the repository");
            replace_section(&page, section.name, "")
                .unwrap_or_else(|error| panic!("docs/measurements/{}: {error}", section.page));
        }
    }

    #[test]
    fn every_marked_section_has_a_command_that_writes_it() {
        for page in ALL.map(|section| section.page) {
            let text = Section::of(page, "").read().expect("the page is in the repository");
            let marked = text.split("<!-- begin: ").skip(1).filter_map(|rest| rest.split(" -->").next());
            for name in marked {
                let is_known = ALL.iter().any(|section| section.page == page && section.name == name);
                assert!(is_known, "no command writes the section \"{name}\" of docs/measurements/{page}");
            }
        }
    }
}
