//! The network namespace in which the guest and the test meet.
//!
//! `xtask` runs itself again inside `unshare`: for root with a network namespace only, for others with a user namespace
//! too, in which they may make a tap device.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::outcome::Outcome;
use super::{Args, outcome_path};

/// Set in the inner run's environment.
const MARK: &str = "HIGHWIRE_INTEROP_NAMESPACE";

/// The test's end of the tap device.
pub(super) const TAP: &str = "hw-interop";
/// Highwire's addresses on it.
pub(super) const HOST_ADDRESS: &str = "10.77.0.1";
pub(super) const HOST_ADDRESS_V6: &str = "fd77::1";
/// The guest's addresses.
pub(super) const GUEST_ADDRESS: &str = "10.77.0.2";
pub(super) const GUEST_ADDRESS_V6: &str = "fd77::2";

/// Whether this process is the inner run.
pub(super) fn is_inside() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Why no namespace with a tap device can be made here, if so.
pub(super) fn obstacle() -> Option<String> {
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        return Some(format!("the guest's network needs /dev/net/tun: {error}"));
    }
    let output = unshare().args(["ip", "tuntap", "add", "dev", TAP, "mode", "tap"]).output();
    match output {
        Err(error) => Some(format!("cannot run unshare: {error}")),
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            Some(format!("no network namespace with a tap device: {}", error.trim()))
        }
    }
}

/// Runs `cargo xtask interop` with these options inside, and returns the outcome that it left.
pub(super) fn reenter(args: &Args) -> Result<Outcome> {
    let path = outcome_path()?;
    // A shell leaves no outcome, so one is written at the start.
    Outcome::default().store(&path)?;
    let mut command = unshare();
    command.arg(std::env::current_exe().context("no path to this program")?).arg("interop").env(MARK, "1");
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    if args.control {
        command.arg("--control");
    }
    if args.shell {
        command.arg("--shell");
    }
    if args.suites {
        command.arg("--suites");
    }
    let status = command.status().context("cannot run unshare")?;
    if !status.success() {
        bail!("the run inside the namespace did not finish ({status})");
    }
    Outcome::load(&path)
}

/// Makes the tap device with Highwire's addresses. Called once, inside.
pub(super) fn set_up() -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["tuntap", "add", "dev", TAP, "mode", "tap"])?;
    ip(&["addr", "add", &format!("{HOST_ADDRESS}/24"), "dev", TAP])?;
    ip(&["addr", "add", &format!("{HOST_ADDRESS_V6}/64"), "dev", TAP, "nodad"])?;
    ip(&["link", "set", TAP, "up"])
}

/// Sets the MTU of Highwire's end. The guest's is set in the guest.
pub(super) fn set_mtu(bytes: u32) -> Result<()> {
    ip(&["link", "set", TAP, "mtu", &bytes.to_string()])
}

/// An interactive shell inside, for people who want to try something by hand.
pub(super) fn shell() -> Result<()> {
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
    println!("this shell is {HOST_ADDRESS}, the guest is {GUEST_ADDRESS}; exit ends both");
    Command::new(shell).env("HIGHWIRE_ADDR", HOST_ADDRESS).status().context("cannot run the shell")?;
    Ok(())
}

/// `unshare` with the options that this user needs for a network namespace of their own.
fn unshare() -> Command {
    let allowed =
        Command::new("unshare").args(["--net", "true"]).output().is_ok_and(|output| output.status.success());
    let mut command = Command::new("unshare");
    command.args(["--net", "--fork", "--kill-child"]);
    if !allowed {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--");
    command
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output().context("cannot run ip")?;
    if !output.status.success() {
        bail!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
