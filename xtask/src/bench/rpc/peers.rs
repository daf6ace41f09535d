//! The systems: the program of `comparisons/rpc` for each, its link, and how the programs are built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::packages;
use crate::shell::{Line, Log, root, target_dir};

/// One program, with a server and a client in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Highwire,
    Iceoryx2,
    Ucx,
    Sockets,
    Zeromq,
    CapnProto,
    Tarpc,
    Tonic,
    Ruapc,
}

impl Program {
    pub(super) const ALL: [Program; 9] = [
        Program::Highwire,
        Program::Iceoryx2,
        Program::Ucx,
        Program::Sockets,
        Program::Zeromq,
        Program::CapnProto,
        Program::Tarpc,
        Program::Tonic,
        Program::Ruapc,
    ];

    /// The package in `comparisons/`; the one in C has none.
    fn package(self) -> Option<&'static str> {
        Some(match self {
            Program::Highwire => "comparisons-rpc-highwire",
            Program::Iceoryx2 => "comparisons-rpc-iceoryx2",
            Program::Ucx => return None,
            Program::Sockets => "comparisons-echo",
            Program::Zeromq => "comparisons-rpc-zeromq",
            Program::CapnProto => "comparisons-rpc-capnp",
            Program::Tarpc => "comparisons-rpc-tarpc",
            Program::Tonic => "comparisons-rpc-tonic",
            Program::Ruapc => "comparisons-rpc-ruapc",
        })
    }

    /// The folder of the workspace that the package is in.
    fn workspace(self) -> &'static str {
        match self {
            Program::Ruapc => "comparisons/rpc/ruapc",
            _ => "comparisons",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Program::Highwire => "echo-highwire",
            Program::Iceoryx2 => "echo-iceoryx2",
            Program::Ucx => "echo-ucx",
            Program::Sockets => "echo-sockets",
            Program::Zeromq => "echo-zeromq",
            Program::CapnProto => "echo-capnp",
            Program::Tarpc => "echo-tarpc",
            Program::Tonic => "echo-tonic",
            Program::Ruapc => "echo-ruapc",
        }
    }

    /// The Debian packages that it needs.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Program::Iceoryx2 => &["libclang-dev"],
            Program::Ucx => &["gcc", "libc6-dev", "libucx-dev"],
            Program::Zeromq => &["g++"],
            Program::CapnProto => &["capnproto"],
            Program::Ruapc => &["gcc", "libc6-dev", "libclang-dev", "libibverbs-dev", "pkg-config"],
            Program::Highwire | Program::Sockets | Program::Tarpc | Program::Tonic => &[],
        }
    }
}

/// A row: a system over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// The link's name, for people.
    pub(super) carrier: &'static str,
    /// How both ends wait.
    pub(super) waits: &'static str,
    pub(super) program: Program,
    /// The link's name, for the program.
    pub(super) over: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
    /// The program runs over Highwire's libibverbs, with this link.
    pub(super) link: Option<&'static str>,
}

const fn peer(
    program: Program,
    name: &'static str,
    over: &'static str,
    carrier: &'static str,
    waits: &'static str,
) -> Peer {
    Peer { name, carrier, waits, program, over, env: &[], link: None }
}

const fn on_ours(peer: Peer, link: &'static str, env: &'static [(&'static str, &'static str)]) -> Peer {
    Peer { link: Some(link), env, ..peer }
}

const SHM: &str = "shared memory";
const TCP: &str = "TCP";
const UNIX: &str = "Unix socket";
const POLL: &str = "poll";
const SLEEP: &str = "sleep";
const SLEEP_LATER: &str = "poll 50 µs, then sleep";
const OURS_SHM: &str = "Highwire's libibverbs, shared memory";
const OURS_UDP: &str = "Highwire's libibverbs, UDP";
/// Shared memory only, lest it take the network.
const UCX_SHM: &[(&str, &str)] = &[("UCX_TLS", "posix,sysv,self"), ("UCX_WARN_UNUSED_ENV_VARS", "n")];
const UCX_VERBS: &[(&str, &str)] = &[("UCX_TLS", "rc_verbs,ud_verbs"), ("UCX_WARN_UNUSED_ENV_VARS", "n")];

/// In the order of the table: Highwire, bounds, then by link.
pub(super) const PEERS: &[Peer] = &[
    peer(Program::Highwire, "**Highwire**", "shm", SHM, POLL),
    peer(Program::Iceoryx2, "iceoryx2 (a bound: one machine, no loss)", "shm", SHM, POLL),
    Peer { env: UCX_SHM, ..peer(Program::Ucx, "UCX active messages", "shm", SHM, POLL) },
    peer(Program::Highwire, "**Highwire**", "udp", "UDP", POLL),
    peer(Program::Sockets, "bare sockets (the floor of those below)", "tcp", TCP, SLEEP),
    peer(Program::Zeromq, "ZeroMQ", "tcp", TCP, SLEEP),
    peer(Program::CapnProto, "Cap'n Proto (capnp-rpc)", "tcp", TCP, SLEEP),
    peer(Program::Tarpc, "tarpc", "tcp", TCP, SLEEP),
    peer(Program::Tonic, "tonic (gRPC)", "tcp", TCP, SLEEP),
    peer(Program::Ruapc, "ruapc", "tcp", TCP, SLEEP),
    peer(Program::Sockets, "bare sockets (the floor of those below)", "unix", UNIX, SLEEP),
    peer(Program::Zeromq, "ZeroMQ", "unix", UNIX, SLEEP),
    peer(Program::CapnProto, "Cap'n Proto (capnp-rpc)", "unix", UNIX, SLEEP),
    peer(Program::Tarpc, "tarpc", "unix", UNIX, SLEEP),
    on_ours(peer(Program::Ucx, "UCX active messages", "verbs", OURS_SHM, POLL), "shm", UCX_VERBS),
    on_ours(peer(Program::Ruapc, "ruapc", "rdma", OURS_SHM, SLEEP_LATER), "shm", &[]),
    on_ours(peer(Program::Ucx, "UCX active messages", "verbs", OURS_UDP, POLL), "udp", UCX_VERBS),
    on_ours(peer(Program::Ruapc, "ruapc", "rdma", OURS_UDP, SLEEP_LATER), "udp", &[]),
];

/// The place of a program, or why it does not exist.
pub(super) type Built = BTreeMap<Program, std::result::Result<PathBuf, String>>;

/// Builds all programs that can be built; the compilers' output goes to the log.
pub(super) fn build(log: &Log) -> Result<Built> {
    let mut built = Built::new();
    let mut ready = Vec::new();
    for program in Program::ALL {
        match packages::ensure(program.needs(), log)? {
            Ok(()) => ready.push(program),
            Err(missing) => drop(built.insert(program, Err(missing.0))),
        }
    }
    let target = target_dir().join("comparisons");
    // Together if all of them build; otherwise one by one to find the failing one.
    let mut built_together = BTreeMap::new();
    for program in &ready {
        built_together.entry(program.workspace()).or_insert_with(Vec::new).extend(program.package());
    }
    let mut all_build = BTreeMap::new();
    for (workspace, crates) in &built_together {
        all_build.insert(*workspace, cargo(workspace, crates, &target).run_logged(log)?);
    }
    for program in ready {
        let workspace = program.workspace();
        let is_built = match program.package() {
            Some(_) if all_build[workspace] => true,
            Some(package) => cargo(workspace, &[package], &target).run_logged(log)?,
            None => cc(&target).run_logged(log)?,
        };
        let path = target.join("release").join(program.file());
        let reason = || format!("does not build here; the log {} says why", log.name());
        built.insert(program, if is_built { Ok(path) } else { Err(reason()) });
    }
    Ok(built)
}

fn cargo(workspace: &str, crates: &[&str], target: &Path) -> Line {
    let line = Line::cargo("build --release --keep-going --target-dir").arg(target);
    crates.iter().fold(line, |line, name| line.words("--package").arg(name)).dir(root().join(workspace))
}

fn cc(target: &Path) -> Line {
    let line = Line::new("cc").words("-O2 -Wall -Wextra -o").arg(target.join("release/echo-ucx"));
    line.arg(root().join("comparisons/rpc/ucx/echo.c")).words("-lucp -lucs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_row_and_lies_where_its_package_says() {
        for program in Program::ALL {
            assert!(PEERS.iter().any(|peer| peer.program == program), "{program:?}");
            let Some(package) = program.package() else { continue };
            let folder = package.trim_start_matches("comparisons-").trim_start_matches("rpc-");
            let manifest = root().join("comparisons/rpc").join(folder).join("Cargo.toml");
            let text = std::fs::read_to_string(&manifest).expect("it is in the repository");
            assert!(text.contains(&format!("name = \"{package}\"")), "{package}");
            assert!(text.contains(&format!("name = \"{}\"", program.file())), "{package}");
        }
    }

    #[test]
    fn no_two_rows_are_of_the_same_system_over_the_same() {
        for (place, peer) in PEERS.iter().enumerate() {
            let same = |other: &&Peer| (other.name, other.carrier) == (peer.name, peer.carrier);
            assert_eq!(PEERS.iter().filter(same).count(), 1, "{place}: {peer:?}");
        }
    }
}
