//! `highwire doctor`: what this machine allows, and what to change where it allows less than there could be.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use highwire_link::shm::Registry;
use highwire_link::{UdpConfig, UdpLink, floor};
use highwire_stdx::words::counted;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::console::{Console, Tone};
use crate::{devices, run};

/// Rings and registered memory of a few dozen queue pairs.
const SHM_BYTES_MIN: u64 = 256 << 20;
/// Files of a program with a few hundred connections.
const DESCRIPTORS_MIN: u64 = 1024;
/// The largest path MTU of RoCE.
const PATH_MTU_MAX: u32 = 4096;

/// Options of `highwire doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "`good`: as it should be. `limits`: programs run, and something is slower or smaller than it could be. `broken`: programs do not run.
The exit status is 1 if something is broken.

Examples:
  highwire doctor
  HIGHWIRE_ADDR=192.0.2.7 highwire doctor    the same for a device at this address
  highwire doctor --json"
)]
pub(crate) struct Args {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    Limits,
    Broken,
}

/// What was found of one thing.
#[derive(PartialEq, Eq, Debug, Serialize)]
struct Finding {
    of: &'static str,
    verdict: Verdict,
    found: String,
    /// What would make it better.
    change: Option<String>,
}

impl Finding {
    fn good(of: &'static str, found: impl Into<String>) -> Finding {
        Finding { of, verdict: Verdict::Good, found: found.into(), change: None }
    }

    fn limits(of: &'static str, found: impl Into<String>, change: impl Into<String>) -> Finding {
        Finding { of, verdict: Verdict::Limits, found: found.into(), change: Some(change.into()) }
    }

    fn broken(of: &'static str, found: impl Into<String>, change: impl Into<String>) -> Finding {
        Finding { of, verdict: Verdict::Broken, found: found.into(), change: Some(change.into()) }
    }
}

/// Looks at the machine, and prints what it finds.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let findings = look()?;
    let is_broken = findings.iter().any(|finding| finding.verdict == Verdict::Broken);
    let mut console = Console::new();
    if args.json {
        console.json(&findings)?;
    } else {
        for finding in &findings {
            console.line(text(finding, &console))?;
        }
        console.line(summary(&findings))?;
    }
    console.finish()?;
    Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn look() -> Result<Vec<Finding>> {
    let machine = highwire_wake::machine_cores();
    // If the system does not say which cores this program may use, no limit is known.
    let allowed = floor::allowed_cores().map_or(machine, |cores| cores.len());
    let mut findings = vec![cores(allowed, machine, highwire_wake::runnable_threads())];
    let registry = Registry::open();
    findings.push(match &registry {
        Ok(registry) => shared_memory(registry.root(), free_bytes(registry.root())),
        Err(error) => Finding::broken(
            "shared memory",
            error.to_string(),
            "name another folder in memory by HIGHWIRE_SHM_DIR, with mode 0700",
        ),
    });
    if let Ok(registry) = &registry {
        let device = devices::shared_device(registry)?;
        findings.push(address(device.address, device.reason));
        findings.push(path_mtu(device.address, device.path_mtu_bytes));
    }
    let config = UdpConfig { port: 0, ..UdpConfig::new(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
    findings.push(match UdpLink::open(&config) {
        Ok(link) => {
            let counters = link.totals();
            udp(counters.gso > 0, counters.gro > 0, link.receive_buffer_bytes(), config.receive_buffer_bytes)
        }
        Err(error) => Finding::broken(
            "UDP",
            error.to_string(),
            "let this program open UDP sockets; --link shm needs none",
        ),
    });
    let descriptors = getrlimit(Resource::Nofile);
    findings.push(file_descriptors(descriptors.current, descriptors.maximum));
    findings.push(match run::drop_in_folder() {
        Ok(folder) => Finding::good("drop-in", folder.display().to_string()),
        Err(error) => {
            Finding::limits("drop-in", "programs for RDMA cards cannot be run yet", format!("{error:#}"))
        }
    });
    Ok(findings)
}

/// `runnable`: threads of the whole machine that run or want to, this one included.
fn cores(allowed: usize, machine: usize, runnable: Option<usize>) -> Finding {
    let found =
        if allowed < machine { format!("{allowed} of {machine} may be used") } else { format!("{machine}") };
    if allowed < 2 {
        let change = "both ends of a conversation share it: programs that poll keep their peer from it; `highwire run --wake power` never polls";
        return Finding::limits("cores", found, change);
    }
    match runnable {
        Some(threads) if threads > machine => Finding::limits(
            "cores",
            format!("{found}, and {} want to run now", counted(threads as u64, "thread")),
            "measure when other programs are quiet: latencies are theirs as well",
        ),
        _ => Finding::good("cores", found),
    }
}

fn shared_memory(folder: &Path, free: Option<u64>) -> Finding {
    let folder = folder.display();
    match free {
        Some(free) if free < SHM_BYTES_MIN => Finding::limits(
            "shared memory",
            format!("{folder}, {} MiB free", free >> 20),
            "mount -o remount,size=1G /dev/shm; of a container: --shm-size=1g; or HIGHWIRE_SHM_DIR names another folder in memory",
        ),
        Some(free) => Finding::good("shared memory", format!("{folder}, {} MiB free", free >> 20)),
        None => Finding::good("shared memory", format!("{folder}")),
    }
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(folder).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

fn address(address: IpAddr, reason: Option<String>) -> Finding {
    match reason {
        None => Finding::good("device", format!("hw0 at {address}")),
        Some(reason) => Finding::broken(
            "device",
            format!("hw0 at {address}: {reason}"),
            "HIGHWIRE_ADDR names another address of this machine; any of 127.0.0.0/8 is one",
        ),
    }
}

fn path_mtu(address: IpAddr, bytes: Option<u32>) -> Finding {
    match bytes {
        Some(bytes) if bytes < PATH_MTU_MAX => Finding::limits(
            "path MTU",
            format!("{bytes} bytes"),
            format!(
                "more packets for each message: where the network carries it, `ip link set dev NAME mtu 4200` for the interface of {address}, at both ends"
            ),
        ),
        Some(bytes) => Finding::good("path MTU", format!("{bytes} bytes")),
        None => Finding::limits(
            "path MTU",
            format!("no interface of this machine has {address}"),
            "HIGHWIRE_ADDR names an address that one has",
        ),
    }
}

/// `granted` is in bytes of the kernel's own accounting, twice what was asked for if all of it was granted.
fn udp(has_gso: bool, has_gro: bool, granted: usize, asked: usize) -> Finding {
    let trains = match (has_gso, has_gro) {
        (true, true) => "sends and receives trains of packets",
        (true, false) => "sends trains of packets, and receives single ones",
        (false, true) => "receives trains of packets, and sends single ones",
        (false, false) => "sends and receives single packets",
    };
    let found = format!("{trains}, receive buffer {} KiB", granted >> 10);
    if !(has_gso && has_gro) {
        return Finding::limits(
            "UDP",
            found,
            "a kernel with UDP_SEGMENT and UDP_GRO (5.0 or later), and a sandbox that lets them through",
        );
    }
    if granted < asked {
        let change = format!("bursts of many senders overrun it: sysctl -w net.core.rmem_max={asked}");
        return Finding::limits("UDP", found, change);
    }
    Finding::good("UDP", found)
}

/// `None` is no limit.
fn file_descriptors(soft: Option<u64>, hard: Option<u64>) -> Finding {
    match soft {
        Some(soft) if soft < DESCRIPTORS_MIN => {
            let most = hard.unwrap_or(u64::MAX);
            let change = if most >= DESCRIPTORS_MIN {
                format!("ulimit -n {DESCRIPTORS_MIN}, for programs with hundreds of connections")
            } else {
                format!(
                    "hard limit {most}: a higher one in limits.conf, for programs with hundreds of connections"
                )
            };
            Finding::limits("descriptors", soft.to_string(), change)
        }
        Some(soft) => Finding::good("descriptors", soft.to_string()),
        None => Finding::good("descriptors", "as many as there is memory for"),
    }
}

fn text(finding: &Finding, console: &Console) -> String {
    let verdict = match finding.verdict {
        Verdict::Good => console.paint(Tone::Good, "good  "),
        Verdict::Limits => console.paint(Tone::Heading, "limits"),
        Verdict::Broken => console.paint(Tone::Bad, "broken"),
    };
    let change = finding.change.as_ref().map(|change| format!("\n{:23} → {change}", "")).unwrap_or_default();
    format!("{verdict}  {:<14} {}{change}", finding.of, finding.found)
}

fn summary(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    match (count(Verdict::Broken), count(Verdict::Limits)) {
        (0, 0) => "Everything is as it should be.".into(),
        (0, limits) => format!("Programs run; limits: {limits}."),
        (broken, _) => format!("Programs do not run; broken: {broken}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Broken, Good, Limits};

    fn is(finding: &Finding, verdict: Verdict, found: &str, change: &str) {
        assert_eq!(finding.verdict, verdict, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        let said = finding.change.as_deref().unwrap_or("");
        assert!(said.contains(change) && said.is_empty() == change.is_empty(), "{finding:?}");
    }

    #[test]
    fn one_core_is_a_limit_and_so_is_a_crowd() {
        is(&cores(2, 2, Some(2)), Good, "2", "");
        is(&cores(2, 8, None), Good, "2 of 8", "");
        is(&cores(1, 8, Some(1)), Limits, "1 of 8", "--wake power");
        is(&cores(2, 2, Some(3)), Limits, "3 threads", "quiet");
    }

    #[test]
    fn little_room_in_memory_is_a_limit() {
        let folder = Path::new("/dev/shm/highwire-7");
        is(&shared_memory(folder, Some(SHM_BYTES_MIN)), Good, "256 MiB", "");
        is(&shared_memory(folder, Some(SHM_BYTES_MIN - 1)), Limits, "255 MiB", "--shm-size");
        is(&shared_memory(folder, None), Good, "/dev/shm/highwire-7", "");
    }

    #[test]
    fn an_address_that_cannot_be_had_breaks_it_and_a_small_mtu_limits_it() {
        let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        is(&address(ip, None), Good, "192.0.2.7", "");
        is(&address(ip, Some("it is taken".into())), Broken, "it is taken", "HIGHWIRE_ADDR");
        is(&path_mtu(ip, Some(4096)), Good, "4096", "");
        is(&path_mtu(ip, Some(1024)), Limits, "1024", "192.0.2.7");
        is(&path_mtu(ip, None), Limits, "no interface", "HIGHWIRE_ADDR");
    }

    #[test]
    fn an_old_kernel_and_a_small_buffer_limit_udp() {
        is(&udp(true, true, 16 << 20, 8 << 20), Good, "16384 KiB", "");
        is(&udp(false, true, 16 << 20, 8 << 20), Limits, "sends single ones", "UDP_SEGMENT");
        is(&udp(true, false, 16 << 20, 8 << 20), Limits, "receives single ones", "UDP_GRO");
        is(&udp(true, true, (8 << 20) - 1, 8 << 20), Limits, "8191 KiB", "rmem_max=8388608");
    }

    #[test]
    fn few_descriptors_are_a_limit_that_the_user_may_lift_or_not() {
        is(&file_descriptors(Some(1024), Some(4096)), Good, "1024", "");
        is(&file_descriptors(None, None), Good, "as many", "");
        is(&file_descriptors(Some(256), Some(4096)), Limits, "256", "ulimit -n 1024");
        is(&file_descriptors(Some(256), Some(512)), Limits, "256", "limits.conf");
    }

    #[test]
    fn the_summary_says_whether_programs_run() {
        let good = || Finding::good("a", "b");
        assert_eq!(summary(&[good()]), "Everything is as it should be.");
        assert!(summary(&[good(), Finding::limits("a", "b", "c")]).starts_with("Programs run; limits: 1"));
        let all = [Finding::limits("a", "b", "c"), Finding::broken("a", "b", "c"), good()];
        assert_eq!(summary(&all), "Programs do not run; broken: 1.");
    }
}
