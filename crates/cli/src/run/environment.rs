//! The variables that `highwire run` and `highwire env` set, from the options that both have.
//!
//! Options are checked here, where a person reads the message, and passed on as text: the libraries read the
//! same variables from users who set them directly.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use highwire_host::{WAKE_VARIABLE, WakeMode};
use highwire_link::{FaultConfig, local_addresses, parse_duration, parse_rate};

use crate::failure::usage;
use crate::perf::{Link, Recovery};

use super::libraries::Libraries;

/// Options of the device that programs get.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EnvironmentArgs {
    /// The device's address [default: one of 127.0.0.0/8 that all programs of this user share]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// How packets travel; with faults or --pcap, auto means udp.
    #[arg(long, value_enum, default_value_t = Link::Auto)]
    link: Link,
    /// Loss recovery of RC between two Highwires; any other peer gets go-back-n.
    #[arg(long, value_enum)]
    recovery: Option<Recovery>,
    /// How threads wait for completions [default: balanced]
    ///
    /// Take balanced for all programs: threads poll where that pays, and sleep elsewhere.
    /// Take latency where cores are to spare: threads poll for 10 ms before they sleep.
    /// Take power where no core may be spent on polling: threads sleep at once.
    /// Take dispatcher where many threads share cores with nothing else: one thread of the device polls where they sleep.
    /// Take event to compare with a card: threads sleep at once, and are woken from any core.
    #[arg(long, verbatim_doc_comment, value_name = "latency|balanced|power|dispatcher|event")]
    wake: Option<WakeMode>,
    /// Write every packet that a program sends and receives to a capture file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Where the drop-in libraries are [default: HIGHWIRE_LIBS, those beside this program, or those in it]
    #[arg(long, value_name = "DIR")]
    libs: Option<PathBuf>,
    /// Devices, and what goes wrong with them, from a file; `highwire fault check` reads it without a run.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Write a line for each thing that the scenario lets go wrong; one seed gives one log.
    #[arg(long, value_name = "FILE", requires = "scenario")]
    scenario_log: Option<PathBuf>,
    #[command(flatten)]
    faults: FaultArgs,
}

/// What goes wrong on purpose; kept as text, for that is how it is handed on.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Faults, of packets that a program sends")]
struct FaultArgs {
    /// Packets lost: 1% or 0.01
    #[arg(long, value_parser = rate, value_name = "SHARE")]
    loss: Option<String>,
    /// Packets sent twice.
    #[arg(long, visible_alias = "dup", value_parser = rate, value_name = "SHARE")]
    duplicate: Option<String>,
    /// Packets overtaken by later ones.
    #[arg(long, value_parser = rate, value_name = "SHARE")]
    reorder: Option<String>,
    /// Packets with one bit flipped.
    #[arg(long, value_parser = rate, value_name = "SHARE")]
    corrupt: Option<String>,
    /// Added to every packet's way: 10us, 5ms
    #[arg(long, value_parser = time, value_name = "TIME")]
    delay: Option<String>,
    /// The same seed gives the same faults [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

fn rate(text: &str) -> Result<String, String> {
    parse_rate(text).map(|_| text.trim().to_string()).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.trim().to_string()).map_err(|error| error.to_string())
}

/// Variables to set, and search paths of programs for libraries, to which folders are prepended.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) set: Vec<(&'static str, OsString)>,
    pub(crate) prepend: Vec<(&'static str, OsString)>,
}

impl Settings {
    /// Applies these settings to `command`, on top of this process's environment.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        for (name, value) in &self.prepend {
            command.env(name, prepended(value, std::env::var_os(name).as_deref()));
        }
    }
}

/// `value:before`, without parts of `value` that `before` has already, so that `run` within `run` does not
/// pile up.
fn prepended(value: &OsStr, before: Option<&OsStr>) -> OsString {
    let ours: Vec<PathBuf> = std::env::split_paths(value).collect();
    let theirs = before.into_iter().flat_map(std::env::split_paths);
    let others = theirs.filter(|path| !path.as_os_str().is_empty() && !ours.contains(path));
    let paths: Vec<PathBuf> = ours.iter().cloned().chain(others).collect();
    std::env::join_paths(paths).expect("what was split at colons has none")
}

impl EnvironmentArgs {
    /// Checks the options.
    ///
    /// # Errors
    /// An option that is invalid on this machine; libraries that are not built.
    pub(crate) fn settings(&self) -> Result<Settings> {
        self.check_faults()?;
        let mut settings = Settings::default();
        let mut set = |name, value: OsString| settings.set.push((name, value));
        if let Some(address) = self.address {
            check_address(address)?;
            set("HIGHWIRE_ADDR", address.to_string().into());
        }
        if self.link != Link::Auto {
            set("HIGHWIRE_LINK", name_of(self.link).into());
        }
        if let Some(recovery) = self.recovery {
            set("HIGHWIRE_RECOVERY", name_of(recovery).into());
        }
        if let Some(wake) = self.wake {
            set(WAKE_VARIABLE, wake.name().into());
        }
        let faults = &self.faults;
        let texts = [
            ("HIGHWIRE_LOSS", &faults.loss),
            ("HIGHWIRE_DUPLICATE", &faults.duplicate),
            ("HIGHWIRE_REORDER", &faults.reorder),
            ("HIGHWIRE_CORRUPT", &faults.corrupt),
            ("HIGHWIRE_DELAY", &faults.delay),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                set(name, text.into());
            }
        }
        if let Some(seed) = faults.seed {
            set("HIGHWIRE_SEED", seed.to_string().into());
        }
        if let Some(file) = &self.pcap {
            // The program may change its folder before it opens its device.
            let file = std::path::absolute(file).context("--pcap names no file")?;
            set("HIGHWIRE_PCAP", file.into());
        }
        if let Some(file) = &self.scenario {
            crate::fault::read(file)?;
            set("HIGHWIRE_SCENARIO", std::path::absolute(file)?.into());
        }
        if let Some(file) = &self.scenario_log {
            set(
                "HIGHWIRE_SCENARIO_LOG",
                std::path::absolute(file).context("--scenario-log names no file")?.into(),
            );
        }
        // Last, so that a mistake in an option is named on a machine without libraries too.
        let libraries = Libraries::find(self.libs.as_deref())?;
        set("HIGHWIRE_LIBS", libraries.folder().into());
        if let Ok(this_program) = std::env::current_exe() {
            set("HIGHWIRE_BROKER", this_program.into());
        }
        settings.prepend.push(("LD_LIBRARY_PATH", libraries.folder().into()));
        settings.prepend.push(("LD_PRELOAD", libraries.preload()?));
        Ok(settings)
    }

    fn check_faults(&self) -> Result<()> {
        let share = |text: &Option<String>| text.as_ref().map_or(Ok(0.0), |text| parse_rate(text));
        let faults = FaultConfig {
            loss: share(&self.faults.loss)?,
            duplicate: share(&self.faults.duplicate)?,
            reorder: share(&self.faults.reorder)?,
            corrupt: share(&self.faults.corrupt)?,
            ..FaultConfig::default()
        };
        faults.check().map_err(|error| usage(error.to_string()))
    }
}

/// The choice's name on the command line and in the variables.
fn name_of(choice: impl clap::ValueEnum) -> String {
    choice.to_possible_value().expect("no choice is hidden").get_name().to_string()
}

/// A device can only have an address of this machine.
fn check_address(address: IpAddr) -> Result<()> {
    match UdpSocket::bind((address, 0)) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
            let mut known: Vec<String> = local_addresses()
                .unwrap_or_default()
                .iter()
                .filter(|local| !local.is_loopback)
                .map(|local| local.ip.to_string())
                .collect();
            known.push("any of 127.0.0.0/8".into());
            Err(usage(format!("{address} is not an address of this machine, which has {}", known.join(", "))))
        }
        // The device itself explains any other error better.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_go_before_those_of_the_user() {
        let check = |value: &str, before: Option<&str>, expected: &str| {
            assert_eq!(prepended(value.as_ref(), before.map(OsStr::new)), expected);
        };
        check("/h", None, "/h");
        check("/h", Some(""), "/h");
        check("/h", Some("/a:/b"), "/h:/a:/b");
        check("/h", Some("/a:/h:/b"), "/h:/a:/b");
        check("/h/x.so:/h/y.so", Some("/h/x.so:/h/y.so:/j.so"), "/h/x.so:/h/y.so:/j.so");
    }

    #[test]
    fn choices_are_handed_on_as_they_are_typed() {
        assert_eq!(name_of(Link::Shm), "shm");
        assert_eq!(name_of(Recovery::GoBackN), "go-back-n");
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let error = check_address("192.0.2.1".parse().unwrap()).expect_err("not ours");
        assert!(error.to_string().contains("any of 127.0.0.0/8"), "{error}");
        check_address("127.1.2.3".parse().unwrap()).expect("ours");
    }
}
