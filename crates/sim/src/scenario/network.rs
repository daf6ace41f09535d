//! Links and switches.

use highwire_fabric::{
    Balancing, Buffering, Ecn, FabricConfig, Forwarding, LinkSpec, Pfc, Rate, Rerouting, Service, Span, Time,
    Topology, Trimming,
};
use serde::{Deserialize, Serialize};

use super::ScenarioError;
use crate::ways::bandwidth_delay_product;

/// A network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// How hosts and switches are joined.
    pub shape: Shape,
    /// Every link's rate; a graph's text names the rate of each link itself.
    pub rate: Rate,
    /// Every link's delay, one way; a graph's text names the delay of each link itself.
    pub delay: Span,
    /// Where packets wait in switches, and how much room there is.
    pub buffering: Buffering,
    /// In which order the packets that wait for an output leave.
    pub service: Service,
    /// Priority flow control.
    pub pfc: PfcChoice,
    /// Marking.
    pub ecn: Option<Ecn>,
    /// Trimming.
    pub trimming: Option<Trimming>,
    /// When a switch passes a packet on.
    pub forwarding: Forwarding,
    /// Whether switches write into data packets what they see, for congestion controls that want it.
    pub telemetry: bool,
    /// How a switch picks among equally short ways.
    pub balancing: Balancing,
    /// What a switch does about a dead link.
    pub rerouting: Rerouting,
    /// Links that fail and come back.
    pub events: Vec<LinkEvent>,
    /// Links that damage packets.
    pub faults: Vec<LinkFault>,
}

/// How hosts and switches are joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shape {
    /// So many hosts around one switch.
    Star {
        /// How many.
        hosts: u32,
    },
    /// Two switches, and the link between them.
    Dumbbell {
        /// Hosts at the first switch: 0 to `left` exclusive.
        left: u32,
        /// Hosts at the second.
        right: u32,
        /// The rate of the link in the middle; as all others if there is none.
        trunk_rate: Option<Rate>,
    },
    /// Every leaf joined to every spine.
    LeafSpine {
        /// Switches with hosts.
        leaves: u32,
        /// Switches without.
        spines: u32,
        /// Hosts per leaf.
        hosts_per_leaf: u32,
        /// The rate between leaves and spines; as all others if there is none.
        uplink_rate: Option<Rate>,
    },
    /// Three tiers of `k`-port switches with k³/4 hosts: 54 (k=6), 128 (8), 250 (10), 1024 (16).
    FatTree {
        /// Ports per switch, even.
        k: u32,
    },
    /// A graph, in the text form of [`Topology::parse`].
    Graph(String),
}

/// Priority flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PfcChoice {
    /// None: a full buffer drops.
    #[default]
    Off,
    /// Thresholds that leave exactly the headroom that cannot overflow ([`Pfc::for_input`]). Input-queued switches only.
    Computed,
    /// As given.
    Thresholds(Pfc),
}

/// A link fails or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEvent {
    /// When.
    pub at: Time,
    /// Its place in [`Topology::links`].
    pub link: u32,
    /// Whether it comes back.
    pub is_up: bool,
}

/// A link that damages packets, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFault {
    /// Its place in [`Topology::links`]; `None`: every link.
    pub link: Option<u32>,
    /// The probability that a bit is wrong.
    pub bit_error_rate: f64,
    /// The probability that a packet is lost, regardless of its length.
    pub packet_loss: f64,
}

impl Default for Network {
    /// A fat tree of 54 hosts at 40 Gb/s, 2 µs per link, 240 KB per input, lossy (IRN §4.1).
    fn default() -> Network {
        Network {
            shape: Shape::FatTree { k: 6 },
            rate: Rate::from_gbps(40),
            delay: Span::from_us(2),
            buffering: Buffering::InputQueued { input_bytes: 240_000 },
            service: Service::RoundRobin,
            pfc: PfcChoice::Off,
            ecn: None,
            trimming: None,
            forwarding: Forwarding::StoreAndForward,
            telemetry: false,
            balancing: Balancing::Ecmp,
            rerouting: Rerouting::None,
            events: Vec::new(),
            faults: Vec::new(),
        }
    }
}

impl Network {
    /// Its links as they are unless the shape says otherwise.
    pub fn link(&self) -> LinkSpec {
        LinkSpec { rate: self.rate, delay: self.delay }
    }

    /// The topology.
    ///
    /// # Errors
    /// If its numbers are impossible or its text is wrong.
    pub fn topology(&self) -> Result<Topology, ScenarioError> {
        let link = self.link();
        let of_rate = |rate: Option<Rate>| LinkSpec { rate: rate.unwrap_or(self.rate), ..link };
        let shaped = match &self.shape {
            Shape::Star { hosts } => Topology::star(*hosts, link),
            Shape::Dumbbell { left, right, trunk_rate } => {
                Topology::dumbbell(*left, *right, link, of_rate(*trunk_rate))
            }
            Shape::LeafSpine { leaves, spines, hosts_per_leaf, uplink_rate } => {
                Topology::leaf_spine(*leaves, *spines, *hosts_per_leaf, link, of_rate(*uplink_rate))
            }
            Shape::FatTree { k } => Topology::fat_tree(*k, link),
            Shape::Graph(text) => return Topology::parse(text).map_err(ScenarioError::Topology),
        };
        shaped.map_err(ScenarioError::Shape)
    }

    /// The bytes that fit on the way between two hosts on which most fit, there and back: the bandwidth-delay product.
    ///
    /// # Errors
    /// As [`Network::topology`].
    pub fn bandwidth_delay_product(&self) -> Result<u64, ScenarioError> {
        let topology = self.topology()?;
        Ok(bandwidth_delay_product(&topology))
    }

    pub(crate) fn config(
        &self,
        topology: &Topology,
        seed: u64,
        priorities: u8,
        packet_bytes_max: u32,
    ) -> Result<FabricConfig, ScenarioError> {
        let pfc = match self.pfc {
            PfcChoice::Off => None,
            PfcChoice::Thresholds(pfc) => Some(pfc),
            PfcChoice::Computed => {
                let Buffering::InputQueued { input_bytes } = self.buffering else {
                    return Err(ScenarioError::Value {
                        field: "network.pfc",
                        problem: "thresholds are computed for input-queued switches only; give them".into(),
                    });
                };
                let LinkSpec { rate, delay } = hungriest(topology, packet_bytes_max);
                // Priorities have equal shares, for any of them may fill up.
                let share = input_bytes / u64::from(priorities.max(1));
                let pfc = Pfc::for_input(share, rate, delay, packet_bytes_max);
                Some(pfc.ok_or_else(|| ScenarioError::Value {
                    field: "network.buffering",
                    problem: format!("{input_bytes} bytes do not hold PFC's headroom"),
                })?)
            }
        };
        Ok(FabricConfig {
            seed,
            priorities,
            buffering: self.buffering,
            service: self.service,
            pfc,
            ecn: self.ecn,
            trimming: self.trimming,
            forwarding: self.forwarding,
            balancing: self.balancing,
            rerouting: self.rerouting,
        })
    }
}

/// The link that needs most headroom under PFC. Thresholds are the same at all inputs, so it decides.
pub(crate) fn hungriest(topology: &Topology, packet_bytes_max: u32) -> LinkSpec {
    let needed =
        |spec: LinkSpec| Pfc::headroom_needed(spec.rate, spec.delay, packet_bytes_max, Pfc::FRAME_BYTES);
    let specs = topology.links().iter().map(|link| link.spec);
    specs.max_by_key(|&spec| needed(spec)).expect("a network has links")
}
