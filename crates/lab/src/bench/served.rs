//! Parts that benchmarks of the store share: clusters of their own, folders and ports for them, and
//! latencies.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_program::laboratory;

/// A running cluster, or one that this command starts.
pub(super) struct Served {
    supervisor: Option<Child>,
    pub(super) doors: Vec<String>,
}

impl Served {
    pub(super) fn start(nodes: u16, at: &[String]) -> Result<Served> {
        if !at.is_empty() {
            return Ok(Served { supervisor: None, doors: at.to_vec() });
        }
        let port = free_ports(nodes)?;
        let mut supervisor = Command::new(laboratory::product()?)
            .args(["store", "serve", "--nodes", &nodes.to_string(), "--port", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("a cluster")?;
        let output = supervisor.stdout.take().context("the cluster's output")?;
        let doors = (0..nodes).map(|node| format!("127.0.0.1:{}", port + node)).collect();
        let cluster = Served { supervisor: Some(supervisor), doors };
        let mut lines = BufReader::new(output).lines();
        if !lines.any(|line| line.is_ok_and(|line| line.contains("the store serves"))) {
            bail!("the cluster has ended before it served");
        }
        Ok(cluster)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let Some(supervisor) = &mut self.supervisor else { return };
        if let Some(pid) = rustix::process::Pid::from_raw(supervisor.id() as i32) {
            // Interrupted and not killed: it has nodes to end and a folder to remove.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = supervisor.wait();
    }
}

pub(super) fn free_ports(count: u16) -> Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0")?;
        let port = first.local_addr()?.port();
        let others = (1..count).map(|node| TcpListener::bind(("127.0.0.1", port.saturating_add(node))));
        if port < u16::MAX - count && others.collect::<std::io::Result<Vec<_>>>().is_ok() {
            return Ok(port);
        }
    }
    bail!("no {count} ports in a row are free")
}

/// A folder that is removed with its owner.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(what: &str) -> Result<Folder> {
        Folder::below(&std::env::temp_dir(), what)
    }

    pub(super) fn below(parent: &Path, what: &str) -> Result<Folder> {
        let folder = Folder(parent.join(format!("highwire-{what}-{}", highwire_store::fresh_name()?)));
        std::fs::create_dir_all(&folder.0).with_context(|| folder.0.display().to_string())?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Up to an hour: with bounds of its own choice, a histogram that saturates holds nothing beyond 2 ns.
pub(super) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_kept_as_they_were() {
        let mut latencies = histogram().expect("bounds");
        latencies.saturating_record(5_000_000);
        assert!(latencies.value_at_quantile(0.5).abs_diff(5_000_000) < 5_000);
    }
}
