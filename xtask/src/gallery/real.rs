//! Software of others, unmodified, while a card dies: UCX with two rails as Debian ships it, Mooncake's and NIXL's wheels on the
//! processor's memory. What each makes of it is printed; a hang or a crash where it should go on is a failure.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;

use crate::packages;
use crate::programs::{Built, scenario_file};
use crate::shell::{Captured, Line, Log, target_dir};
use crate::wheels;

/// A guard against hangs.
const SECONDS_MAX: u32 = 120;
/// Of a program's output, so many lines at its end are shown.
const LINES: usize = 12;

/// A card's death, and what it is done to.
struct Death {
    scenario: &'static str,
    software: Software,
    /// What must be in the output.
    sign: &'static str,
}

enum Software {
    /// Two processes of `ucx_perftest`, which end with an error.
    Ucx,
    /// A program in Python that needs this wheel, with variables.
    Wheel { package: &'static str, program: &'static str, variables: &'static [(&'static str, &'static str)] },
}

const RAILS: &[(&str, &str)] =
    &[("UCX_TLS", "rc_verbs,ud_verbs,self"), ("UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1")];

const MOONCAKE: Software = Software::Wheel {
    package: "mooncake-transfer-engine-non-cuda",
    program: "mooncake_rails.py",
    variables: &[],
};
const NIXL: Software = Software::Wheel { package: "nixl-cu12", program: "nixl_rails.py", variables: RAILS };

const DEATHS: &[Death] = &[
    // The rail's requests end with a time-out, and UCX ends the endpoint, not the process.
    Death { scenario: "ucx-rail-dies", software: Software::Ucx, sign: "error handler called with status" },
    // The write that is on its way fails; all others go over the other card.
    Death { scenario: "mooncake-nic-vanishes", software: MOONCAKE, sign: "of 100 writes were read back" },
    Death { scenario: "nixl-rail-dies", software: NIXL, sign: "write " },
    // UCX gives the process up when it waits for completions of a card that is gone.
    Death { scenario: "nixl-nic-vanishes", software: NIXL, sign: "failed to arm iface" },
];

/// The scenarios that are played here, that of the other end, and that which `cargo xtask compat` plays.
#[cfg(test)]
pub(super) fn scenarios() -> Vec<&'static str> {
    DEATHS.iter().map(|death| death.scenario).chain(["two-nics", "valkey-link-flaps"]).collect()
}

/// Plays the chosen ones, and prints what happened.
pub(super) fn run(built: &Built, only: Option<&str>, log: &Log) -> Result<ExitCode> {
    let mut is_well = true;
    // What its programs say is kept there, also in a fresh checkout.
    fs::create_dir_all(target_dir().join("gallery"))?;
    for death in DEATHS.iter().filter(|death| only.is_none_or(|text| death.scenario.contains(text))) {
        println!("{}: highwire fault check examples/scenarios/{}.toml", death.scenario, death.scenario);
        let played = match &death.software {
            Software::Ucx => ucx(built, death.scenario, log)?,
            Software::Wheel { package, program, variables } => {
                wheel(built, death.scenario, (package, program, variables), log)?
            }
        };
        let Ok(output) = played.inspect_err(|reason| println!("  skipped: {reason}\n")) else { continue };
        // What libraries log comes first, and then what the program says.
        let text = format!("{}{}", output.stderr, output.stdout);
        let lines: Vec<&str> = text.lines().filter(|line| is_worth_reading(line)).collect();
        lines[lines.len().saturating_sub(LINES)..].iter().for_each(|line| println!("  {line}"));
        let went_wrong = went_wrong(death.scenario)?;
        went_wrong.lines().for_each(|line| println!("  scenario: {line}"));
        let is_as_expected = text.contains(death.sign) && !went_wrong.is_empty();
        println!("  {}\n", if is_as_expected { "as expected" } else { "NOT as expected" });
        is_well &= is_as_expected;
    }
    println!("Valkey: cargo xtask compat --only 'link that goes down'");
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Greetings and stacks fill the screen, and say nothing of what happened.
fn is_worth_reading(line: &str) -> bool {
    let noise = ["netlink", "socket create failed", "==== backtrace", "====="];
    let is_frame = line.contains("+0x") || line.contains(") [0x");
    !is_frame
        && !line.is_empty()
        && !noise.iter().any(|part| line.contains(part))
        && !line.starts_with(['I', '+', '|'])
}

fn diary(scenario: &str) -> PathBuf {
    target_dir().join("gallery").join(scenario).with_extension("log")
}

/// The logs of a scenario: each process has one.
fn diaries(scenario: &str) -> Result<Vec<PathBuf>> {
    let folder = target_dir().join("gallery");
    fs::create_dir_all(&folder)?;
    let paths = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let begin = format!("{scenario}.log");
    Ok(paths
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin)))
        .collect())
}

fn went_wrong(scenario: &str) -> Result<String> {
    Ok(diaries(scenario)?.iter().filter_map(|path| fs::read_to_string(path).ok()).collect())
}

/// A run under a scenario, whose logs begin anew.
fn under(built: &Built, scenario: &str) -> Result<Line> {
    for old in diaries(scenario)? {
        fs::remove_file(old)?;
    }
    let diary = diary(scenario);
    let file = scenario_file(scenario);
    let options = format!("--scenario {} --scenario-log {}", file.display(), diary.display());
    Ok(built.under("auto", &options, SECONDS_MAX.into()))
}

/// The client is under the scenario, and the server has its devices.
fn ucx(built: &Built, scenario: &str, log: &Log) -> Result<Result<Captured, String>> {
    if let Err(missing) = packages::ensure(&["ucx-utils"], log)? {
        return Ok(Err(missing.0));
    }
    let port = 20_000 + std::process::id() % 10_000;
    let words = format!("ucx_perftest -e -t tag_bw -s 262144 -n 3000 -w 100 -p {port}");
    // An end that only answers finds a dead rail out by its keepalive.
    let more = [
        ("UCX_MAX_RNDV_RAILS", "2"),
        ("UCX_RC_TIMEOUT", "100ms"),
        ("UCX_RC_RETRY_COUNT", "3"),
        ("UCX_KEEPALIVE_INTERVAL", "1s"),
    ];
    let with = |line: Line| RAILS.iter().chain(&more).fold(line, |line, (name, value)| line.env(name, value));
    let quiet = built.under(
        "auto",
        &format!("--scenario {}", scenario_file("two-nics").display()),
        SECONDS_MAX.into(),
    );
    let mut command: Command = with(quiet.words(&words)).command();
    let said = fs::File::create(target_dir().join("gallery/ucx-server.txt"))?;
    let mut server = command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).spawn()?;
    let client = with(under(built, scenario)?).words(&format!("{words} 127.0.0.1"));
    let mut output = client.capture();
    // The client comes too early until the server listens.
    for _ in 0..100 {
        match &output {
            Ok(played)
                if played.stderr.contains("connect")
                    && diary(scenario).metadata().map_or(0, |at| at.len()) == 0 =>
            {
                std::thread::sleep(std::time::Duration::from_millis(200));
                output = client.capture();
            }
            _ => break,
        }
    }
    let _ = server.kill();
    server.wait()?;
    Ok(Ok(output?))
}

fn wheel(
    built: &Built,
    scenario: &str,
    (package, program, variables): (&str, &str, &[(&str, &str)]),
    log: &Log,
) -> Result<Result<Captured, String>> {
    let python = match wheels::python(&[package, "numpy"], &[], log)? {
        Ok(python) => python,
        Err(reason) => return Ok(Err(reason)),
    };
    let line = under(built, scenario)?.arg(&python).arg(wheels::script(program));
    Ok(Ok(variables.iter().fold(line, |line, (name, value)| line.env(name, value)).capture()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_happened() {
        assert!(is_worth_reading("write 7: NIXL_ERR_REMOTE_DISCONNECT"));
        assert!(is_worth_reading("W1129 worker_pool.cpp:1014] local catastrophic error"));
        for line in
            ["", " 0  /lib/libucs.so.0(ucs_handle_error+0x2dc)", "==== backtrace (tid: 9) ====", "+----+"]
        {
            assert!(!is_worth_reading(line), "{line}");
        }
        assert!(DEATHS.iter().all(|death| scenario_file(death.scenario).exists()));
    }
}
