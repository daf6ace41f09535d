//! The drop-in library on a machine that has an RDMA device: in the guest, whose kernel has rxe0.
//!
//! Programs find both devices on the list. Calls on the machine's own device go through Highwire's library to
//! Debian's, those on Highwire's do not; each pair here has both its ends in the guest.

use anyhow::{Result, ensure};

use super::super::agent::Agent;
use super::super::initramfs::OURS;

/// One shell command in the guest.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) checks: &'static str,
    command: &'static str,
    /// The output that it must have.
    expected: &'static [&'static str],
}

const fn case(
    name: &'static str,
    checks: &'static str,
    command: &'static str,
    expected: &'static [&'static str],
) -> Case {
    Case { name, checks, command, expected }
}

pub(super) const ALL: &[Case] = &[
    case("beside list", "both devices are on the list", "ibv_devices", &["hw0", "rxe0"]),
    case(
        "beside devinfo",
        "the kernel's device in detail",
        "ibv_devinfo -v -d rxe0",
        &["PORT_ACTIVE", "RoCE v2"],
    ),
    case(
        "beside port",
        "the kernel has port 4791 where its device is: opening ours says so",
        "ibv_devinfo -d hw0 2>&1; true",
        &["4791"],
    ),
    case(
        "beside rc_pingpong",
        "a hundred messages each way over the kernel's device",
        "pair ibv_rc_pingpong -d rxe0 -g 1 -n 100",
        &["100 iters"],
    ),
    case(
        "beside rc_pingpong -e",
        "the same, sleeping until there is an event",
        "pair ibv_rc_pingpong -d rxe0 -g 1 -n 100 -e",
        &["100 iters"],
    ),
    case(
        "beside ud_pingpong",
        "the same with datagrams",
        "pair ibv_ud_pingpong -d rxe0 -g 1 -n 100 -s 512",
        &["100 iters"],
    ),
    case(
        "beside srq_pingpong",
        "the same with a shared receive queue",
        "pair ibv_srq_pingpong -d rxe0 -g 1 -n 100",
        &["100 iters"],
    ),
    case("beside ib_write_lat", "perftest", "pair ib_write_lat -d rxe0 -x 1 -n 100", &["2       100"]),
    case(
        "beside own",
        "our device, where the kernel's does not hold the port",
        "unshare -n sh -c '/usr/sbin/ip link set lo up; pair ibv_rc_pingpong -d hw0 -g 0 -n 100'",
        &["100 iters"],
    ),
];

/// Runs the command over Highwire's library.
pub(super) fn play(case: &Case) -> Result<()> {
    let mut guest = Agent::connect()?;
    let environment = format!(
        "export LD_LIBRARY_PATH={OURS} HIGHWIRE_BROKER={OURS}/interop-peer HIGHWIRE_SHM_DIR=/tmp/registry HIGHWIRE_LOG=1"
    );
    let output = guest.shell(&format!("{environment}; {}", case.command))?;
    for text in case.expected {
        ensure!(output.contains(text), "nothing of `{text}` in:\n{output}");
    }
    Ok(())
}
