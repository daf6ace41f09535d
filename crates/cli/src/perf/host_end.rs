//! An end on this machine's own device.

use std::net::IpAddr;

use anyhow::{Result, bail};
use highwire_link::FaultConfig;

use super::endpoint::{EndAddress, Endpoint, LinkUsed, Polled};
use super::options::Local;
use super::plan::Plan;
use super::session::Counters;

/// A queue pair of a device in this process.
pub(crate) struct HostEnd {
    address: EndAddress,
}

impl HostEnd {
    /// Opens a device that the peer reaches by the same interface as `reached_by`.
    pub(crate) fn open(
        _plan: &Plan,
        _faults: FaultConfig,
        _local: &Local,
        _reached_by: IpAddr,
    ) -> Result<Self> {
        bail!("this build has no device yet")
    }

    pub(crate) fn address(&self) -> EndAddress {
        self.address.clone()
    }

    pub(crate) fn connect(&mut self, _peer: &EndAddress) -> Result<()> {
        Ok(())
    }

    pub(crate) fn link_used(&self) -> LinkUsed {
        LinkUsed::Udp
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters::new()
    }
}

impl Endpoint for HostEnd {
    fn post(&mut self, _count: u32) -> Result<()> {
        Ok(())
    }

    fn post_receives(&mut self, _count: u32) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled> {
        Ok(Polled::default())
    }

    fn mark(&mut self, _mark: u8) {}

    fn arrived(&self) -> u8 {
        0
    }
}
