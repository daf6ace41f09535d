//! The environment, read once, in one place.
//!
//! An invalid value is reported on stderr, once, and then there is no device: a program that was to be tested
//! under loss must not run without it.

/// The ways to move memory that a list names.
fn ways(text: &str) -> Result<Vec<MovingWay>, String> {
    let way = |name: &str| match name.trim() {
        "alone" => Ok(MovingWay::Alone),
        "faults" => Ok(MovingWay::Faults),
        "thread-faults" => Ok(MovingWay::ThreadFaults),
        "protection" => Ok(MovingWay::Protection),
        _ => Err("0, 1, or some of alone,faults,thread-faults,protection".to_string()),
    };
    text.split(',').map(way).collect()
}

use highwire_faults::Scenario;
#[cfg(test)]
use highwire_host::WakeMode;
use highwire_host::verbs::Recovery;
use highwire_host::{DeviceConfig, LinkChoice, MovingWay, Sharing, WAKE_VARIABLE};
use highwire_link::{FaultConfig, environment, parse_duration, parse_rate};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The device's settings from the environment.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Its name; `HIGHWIRE_DEVICE_NAME`.
    pub(crate) name: String,
    /// How it is opened.
    pub(crate) device: DeviceConfig,
    /// How its queue pairs recover losses; `HIGHWIRE_RECOVERY`.
    pub(crate) recovery: Recovery,
    /// Whether registered memory may be moved, where it lies, to where neighbours reach it; not with `HIGHWIRE_REMAP=0`.
    pub(crate) moves_memory: bool,
    /// What goes wrong on purpose; `HIGHWIRE_SCENARIO`.
    pub(crate) scenario: Option<Scenario>,
    /// Where to write what went wrong; `HIGHWIRE_SCENARIO_LOG`.
    pub(crate) scenario_log: Option<PathBuf>,
    /// Whether to say on stderr why something failed; `HIGHWIRE_LOG`.
    pub(crate) prints: bool,
    /// The folder for what `highwire run --report` tells of this process; `HIGHWIRE_REPORT`.
    pub(crate) report: Option<PathBuf>,
    /// The file in which this process keeps what its devices do; `HIGHWIRE_RECORD`.
    pub(crate) record: Option<PathBuf>,
}

static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();

/// The settings, unless one of them is wrong.
pub(crate) fn settings() -> Option<&'static Settings> {
    let variable = |name: &str| environment::variable(name)?.into_string().ok();
    let read = || match read(|name| variable(name).filter(|value| !value.trim().is_empty())) {
        Ok(settings) => Some(settings),
        Err(message) => {
            say(&message);
            crate::report::note_misread(variable("HIGHWIRE_REPORT"), &message);
            None
        }
    };
    let mut is_first = false;
    let settings = SETTINGS.get_or_init(|| {
        is_first = true;
        read()
    });
    if is_first {
        crate::report::begin(settings.as_ref());
        crate::record::begin();
    }
    settings.as_ref()
}

/// Prints a line on stderr. If that fails, perhaps because a log's disk is full, the line is lost and the
/// program goes on. It is written at once: other processes write to the same terminal.
pub(crate) fn say(message: &dyn std::fmt::Display) {
    let _ = std::io::stderr().write_all(format!("highwire: {message}\n").as_bytes());
}

/// Whether the user asked for messages, on stderr, in a report or in a record.
#[inline]
pub(crate) fn is_loud() -> bool {
    let settings = SETTINGS.get().and_then(Option::as_ref);
    settings.is_some_and(|settings| settings.prints || settings.report.is_some() || settings.record.is_some())
}

/// Prints a line that the user asked for; where only a report or a record was asked for, nothing.
pub(crate) fn print(message: &dyn std::fmt::Display) {
    if SETTINGS.get().and_then(Option::as_ref).is_some_and(|settings| settings.prints) {
        say(message);
    }
}

/// Says something that no call reports, if the user asked for messages.
pub(crate) fn log(message: impl FnOnce() -> String) {
    if is_loud() {
        crate::refusal::say_once(&message());
    }
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
    let value = |name: &'static str| variable(name).map(|value| (name, value.trim().to_string()));
    let wrong = |name: &str, value: &str, why: &dyn std::fmt::Display| format!("{name} is `{value}`: {why}");
    let rate = |name| match value(name) {
        None => Ok(0.0),
        Some((name, text)) => parse_rate(&text).map_err(|error| wrong(name, &text, &error)),
    };
    let seed = match value("HIGHWIRE_SEED") {
        None => None,
        Some((name, text)) => {
            Some(text.parse::<u64>().map_err(|_| wrong(name, &text, &"it is a whole number"))?)
        }
    };
    let delay = match value("HIGHWIRE_DELAY") {
        None => Default::default(),
        Some((name, text)) => parse_duration(&text).map_err(|error| wrong(name, &text, &error))?,
    };
    let faults = FaultConfig {
        loss: rate("HIGHWIRE_LOSS")?,
        duplicate: rate("HIGHWIRE_DUPLICATE")?,
        reorder: rate("HIGHWIRE_REORDER")?,
        corrupt: rate("HIGHWIRE_CORRUPT")?,
        delay,
        seed: seed.unwrap_or(1),
        ..FaultConfig::default()
    };
    faults.check().map_err(|error| error.to_string())?;
    let address = match value("HIGHWIRE_ADDR") {
        None => None,
        Some((name, text)) => Some(text.parse().map_err(|_| wrong(name, &text, &"it is an IP address"))?),
    };
    let link = match value("HIGHWIRE_LINK") {
        None => LinkChoice::default(),
        Some((name, text)) => text.parse().map_err(|error: String| wrong(name, &text, &error))?,
    };
    let recovery = match value("HIGHWIRE_RECOVERY") {
        None => Recovery::Irn,
        Some((_, text)) if text == "irn" => Recovery::Irn,
        Some((_, text)) if text == "go-back-n" => Recovery::GoBackN,
        Some((name, text)) => return Err(wrong(name, &text, &"it is irn or go-back-n")),
    };
    let wake = match value(WAKE_VARIABLE) {
        None => None,
        Some((name, text)) => Some(text.parse().map_err(|error: String| wrong(name, &text, &error))?),
    };
    let scenario = value("HIGHWIRE_SCENARIO").map(|(_, file)| scenario(&file)).transpose()?;
    let scenario_log = value("HIGHWIRE_SCENARIO_LOG").map(|(_, path)| PathBuf::from(path));
    let named = scenario.as_ref().and_then(|scenario| scenario.devices.first());
    let name = match named {
        Some(device) => device.name.clone(),
        None => value("HIGHWIRE_DEVICE_NAME").map_or_else(|| "hw0".to_string(), |(_, name)| name),
    };
    if name.len() > 63 || name.contains('/') {
        return Err(wrong(
            "HIGHWIRE_DEVICE_NAME",
            &name,
            &"it has at most 63 characters, none of them a slash",
        ));
    }
    let device = DeviceConfig {
        address,
        wake,
        link,
        sharing: Sharing::Shared,
        faults: (!faults.is_harmless()).then_some(faults),
        capture: value("HIGHWIRE_PCAP").map(|(_, path)| PathBuf::from(path)),
        ..DeviceConfig::default()
    };
    let moves_memory = value("HIGHWIRE_REMAP").is_none_or(|(_, value)| value != "0");
    if let Some((name, text)) = value("HIGHWIRE_REMAP").filter(|(_, text)| text != "0" && text != "1") {
        highwire_host::permit_moving(&ways(&text).map_err(|error| wrong(name, &text, &error))?);
    }
    let prints = value("HIGHWIRE_LOG").is_some_and(|(_, value)| value != "0");
    let report = value("HIGHWIRE_REPORT").map(|(_, folder)| PathBuf::from(folder));
    let record = value("HIGHWIRE_RECORD").map(|(_, file)| PathBuf::from(file));
    Ok(Settings { name, device, recovery, moves_memory, scenario, scenario_log, prints, report, record })
}

fn scenario(file: &str) -> Result<Scenario, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("HIGHWIRE_SCENARIO is `{file}`, which cannot be read: {error}"))?;
    Scenario::read(file, &text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &[(&str, &str)], expected: Result<fn(&Settings) -> bool, &str>) {
        let variable = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        match (read(variable), expected) {
            (Ok(settings), Ok(is_right)) => assert!(is_right(&settings), "{settings:?}"),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, _) => panic!("{set:?}: {found:?}"),
        }
    }

    #[test]
    fn nothing_set_is_a_plain_device() {
        check(&[], Ok(|s| s.name == "hw0" && s.device.faults.is_none() && s.device.capture.is_none()));
    }

    #[test]
    fn faults_are_as_on_the_command_line() {
        let set = [("HIGHWIRE_LOSS", "1%"), ("HIGHWIRE_SEED", "7"), ("HIGHWIRE_DELAY", "10us")];
        check(&set, Ok(|s| s.device.faults.as_ref().is_some_and(|f| f.loss == 0.01 && f.seed == 7)));
    }

    #[test]
    fn a_wrong_value_is_named() {
        check(&[("HIGHWIRE_SCENARIO", "/nowhere.toml")], Err("/nowhere.toml"));
        check(&[("HIGHWIRE_LINK", "carrier-pigeon")], Err("HIGHWIRE_LINK"));
        check(&[("HIGHWIRE_ADDR", "hw0")], Err("IP address"));
        check(&[("HIGHWIRE_LOSS", "often")], Err("HIGHWIRE_LOSS"));
        check(&[("HIGHWIRE_SEED", "x")], Err("whole number"));
        check(&[("HIGHWIRE_RECOVERY", "hope")], Err("go-back-n"));
        check(&[("HIGHWIRE_WAKE", "coffee")], Err("balanced"));
        check(&[("HIGHWIRE_WAKE", "power")], Ok(|s| s.device.wake == Some(WakeMode::Power)));
        check(&[("HIGHWIRE_DEVICE_NAME", "a/b")], Err("slash"));
    }
}
