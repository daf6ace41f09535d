//! A registry per test, and second processes.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use highwire_link::shm::{ChannelConfig, EngineConfig, LocalEngine, Registry, ShmSender};

/// A registry in a directory of its own, removed at the end.
pub(crate) struct House {
    pub(crate) registry: Registry,
}

impl House {
    pub(crate) fn new(name: &str) -> House {
        let root = PathBuf::from(format!("/dev/shm/highwire-test-{}-{name}", std::process::id()));
        House { registry: Registry::open_at(&root).unwrap() }
    }

    pub(crate) fn engine(&self, gid: &str) -> Arc<LocalEngine> {
        Arc::new(self.registry.claim(address(gid), &EngineConfig::default()).unwrap())
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.registry.root());
    }
}

pub(crate) fn address(gid: &str) -> IpAddr {
    gid.parse().unwrap()
}

pub(crate) fn gid_bytes(gid: IpAddr) -> [u8; 16] {
    match gid {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

pub(crate) fn connect(from: &Arc<LocalEngine>, to: IpAddr, config: &ChannelConfig) -> ShmSender {
    let peer = Arc::new(from.registry().lookup(to).unwrap());
    peer.attach(from, 0, 0, config).unwrap()
}

/// This very test program again, running `role` of the test named `child` in `processes`.
pub(crate) struct Second {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Second {
    pub(crate) fn spawn(role: &str, root: &Path) -> Second {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child", "--nocapture", "--test-threads=1"])
            .env("HIGHWIRE_TEST_ROLE", role)
            .env("HIGHWIRE_TEST_ROOT", root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Second { child, lines }
    }

    /// Waits until the child says so.
    pub(crate) fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if line.contains(word) {
                return;
            }
            line.clear();
        }
        panic!("the second process ended without saying {word}");
    }

    /// SIGKILL: no destructor runs.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes its input, which ends it in order.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}
