//! Endpoints around a switch that speak one transport or another, and how their messages fare.

use highwire_fabric::{DropReason, Fabric, FabricConfig, Observer, PortId, Time};

use super::super::ExperimentError;
use crate::network::{
    Arrived, Endpoint, Frame, HostId, PrioritySwitch, Sending, Topology, TrimmingSwitch, link, time_of,
};
use crate::nic::{Homa, HomaConfig, Ndp, NicConfig, Transport};

/// The transport of the endpoints, which decides how the switch queues.
#[derive(Clone, Debug)]
pub(super) enum Speaks {
    /// NDP, and a switch that trims.
    Ndp,
    /// NDP, and a switch that drops, so that only NDP's timer is left.
    DropTail,
    /// Homa, and a switch with priorities that drops.
    Homa(HomaConfig),
}

/// Endpoints and what they send.
pub(super) struct Contest {
    pub(super) nic: NicConfig,
    pub(super) link_cycles: u64,
    /// Of each endpoint.
    pub(super) cores: usize,
    /// Room for data behind each port of a switch that trims.
    pub(super) data_bytes: u64,
    /// Memory of a switch that drops.
    pub(super) pool_bytes: u64,
    /// By host.
    pub(super) plans: Vec<Vec<Sending>>,
    /// The cycle at which it ends.
    pub(super) end: u64,
}

/// The results of a contest.
pub(super) struct Found {
    /// The messages and their receivers; for each receiver in the order in which messages were complete.
    pub(super) arrived: Vec<(HostId, Arrived)>,
    /// The longest queue behind host 0's port, in bytes, and how it grew, by microseconds.
    pub(super) queue_max: u64,
    pub(super) queue: Vec<(f64, f64)>,
    /// Packets dropped or trimmed, anywhere.
    pub(super) cut: u64,
}

impl Speaks {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Speaks::Ndp => "NDP",
            Speaks::DropTail => "drop-tail",
            Speaks::Homa(_) => "Homa",
        }
    }

    fn switch(&self, contest: &Contest) -> FabricConfig {
        let Contest { data_bytes, pool_bytes, .. } = *contest;
        match self {
            Speaks::Ndp => TrimmingSwitch { data_bytes, control_bytes: data_bytes }.config(),
            Speaks::DropTail => PrioritySwitch { priorities: 2, pool_bytes }.config(),
            Speaks::Homa(config) => PrioritySwitch { priorities: config.priorities(), pool_bytes }.config(),
        }
    }
}

impl Contest {
    /// Plays it.
    pub(super) fn play(&self, speaks: &Speaks) -> Result<Found, ExperimentError> {
        let rtt_packets = self.nic.rtt_packets;
        match speaks {
            Speaks::Ndp | Speaks::DropTail => self.play_with(speaks, || Ndp { rtt_packets }),
            Speaks::Homa(config) => {
                let config = HomaConfig { rtt_packets, ..config.clone() };
                self.play_with(speaks, || Homa::new(config.clone()))
            }
        }
    }

    fn play_with<T: Transport>(
        &self,
        speaks: &Speaks,
        transport: impl Fn() -> T,
    ) -> Result<Found, ExperimentError> {
        let broken = ExperimentError::Broken;
        let hosts = self.plans.len() as u32;
        let star =
            Topology::star(hosts, link(self.link_cycles)).map_err(|error| broken(error.to_string()))?;
        let config = speaks.switch(self);
        let endpoints = (0..hosts)
            .map(HostId)
            .zip(&self.plans)
            .map(|(host, plan)| Endpoint::new(host, &self.nic, self.cores, transport(), plan.clone()));
        // The switch's ports follow the hosts'.
        let watch = Watch { port: hosts, ..Watch::default() };
        let mut fabric: Fabric<Frame, Endpoint<T>, Watch> =
            Fabric::observed(star, config, endpoints.collect(), watch)
                .map_err(|error| broken(error.to_string()))?;
        fabric.run_until(time_of(self.end)).map_err(|violation| broken(violation.to_string()))?;
        let all = (0..hosts)
            .map(HostId)
            .flat_map(|host| fabric.host(host).arrived().iter().map(move |&arrived| (host, arrived)));
        let Watch { queue_max, queue, cut, .. } = fabric.observer();
        Ok(Found { arrived: all.collect(), queue_max: *queue_max, queue: queue.clone(), cut: *cut })
    }
}

/// Watches the port to host 0, and counts packets that are cut anywhere.
#[derive(Default)]
struct Watch {
    port: u32,
    queue_max: u64,
    queue: Vec<(f64, f64)>,
    cut: u64,
}

/// So many points of the queue are kept.
const POINTS_MAX: usize = 4_000;

impl Observer<Frame> for Watch {
    const SEES_QUEUES: bool = true;

    fn on_wait(&mut self, now: Time, port: PortId, bytes: u64) {
        if port.0 == self.port {
            self.queue_max = self.queue_max.max(bytes);
            if self.queue.len() < POINTS_MAX {
                self.queue.push((now.since(Time::ZERO).as_us_f64(), bytes as f64));
            }
        }
    }

    fn on_trim(&mut self, _: Time, _: PortId, _: &Frame) {
        self.cut += 1;
    }

    fn on_drop(&mut self, _: Time, _: PortId, _: DropReason, _: &Frame) {
        self.cut += 1;
    }
}
