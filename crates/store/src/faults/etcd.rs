//! One real member of etcd, which can be killed and started again on its data.

use super::{FaultError, failed, until};
use crate::register::EtcdRegister;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Etcd, with its data in a folder.
#[derive(Debug)]
pub struct Etcd {
    folder: PathBuf,
    client: String,
    peer: String,
    child: Option<Child>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Etcd {
    /// Whether there is an etcd on this machine.
    pub fn is_there() -> bool {
        let quiet = || Stdio::null();
        Command::new("etcd").arg("--version").stdout(quiet()).stderr(quiet()).status().is_ok()
    }

    /// Starts it at an address of this machine, and waits until it answers.
    ///
    /// # Errors
    /// [`FaultError`]: it is not there, or does not answer.
    pub fn start(folder: &Path, address: &str) -> Result<Etcd, FaultError> {
        let free =
            || -> std::io::Result<String> { Ok(TcpListener::bind((address, 0))?.local_addr()?.to_string()) };
        let port = |error| failed("a port for etcd", error);
        let (client, peer) = (free().map_err(port)?, free().map_err(port)?);
        let mut etcd = Etcd { folder: folder.to_path_buf(), client, peer, child: None };
        etcd.go()?;
        Ok(etcd)
    }

    /// Starts it again.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn go(&mut self) -> Result<(), FaultError> {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(&self.folder)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed("etcd", error))?;
        self.child = Some(child);
        let mut register =
            EtcdRegister::open(&format!("{}/nothing", self.client)).map_err(|error| failed("etcd", error))?;
        until("etcd", || register.holds().ok()).map(drop)
    }

    /// Kills it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Where clients find it: an address and a port.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// What `register` of a cluster's file says.
    pub fn register(&self) -> String {
        format!("etcd://{}/faults", self.client)
    }
}
