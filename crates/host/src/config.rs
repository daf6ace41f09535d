//! The configuration of a device. Everything has a default that suits a program on one machine.

use highwire_link::FaultConfig;
use highwire_rnic::CongestionChoice;
use highwire_wake::Mode;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The environment variable that names the device's address.
pub const ADDRESS_VARIABLE: &str = "HIGHWIRE_ADDR";
/// The environment variable that says how threads wait, for programs that do not choose themselves.
pub const WAKE_VARIABLE: &str = "HIGHWIRE_WAKE";

/// Which threads run a device's engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// The threads that post and poll, while they do. A peer's READ or WRITE waits until then.
    Inline,
    /// One thread of the device's own, and no other. Posting wakes it.
    Background,
    /// The threads that post and poll, and a thread of the device's own that takes over when they stop.
    #[default]
    Both,
}

/// Which links carry packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkChoice {
    /// Shared memory to devices of the same user on this machine, UDP to all others; with faults or a
    /// capture, UDP to all.
    #[default]
    Auto,
    /// UDP to everybody.
    Udp,
    /// Shared memory; other peers are unreachable.
    Shm,
}

/// Whether other processes of the user have the device's address as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// This process alone.
    #[default]
    Exclusive,
    /// Every process of the user that asks for it, as with a card. A broker, started by the first and gone with the last,
    /// tells their packets apart. Such a device has one lane.
    Shared,
}

/// The share of each program behind a door, unless another is given: a quarter of the device.
pub const DOOR_SHARE: u32 = crate::limits::BELLS / 4;

/// The configuration of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// The device's address, which is its GID. `None` takes `HIGHWIRE_ADDR`, and without that an unused address of
    /// 127.0.0.0/8.
    pub address: Option<IpAddr>,
    /// Whether other processes have that address as well. If so, `address: None` without `HIGHWIRE_ADDR` means
    /// [`default_shared_address`](crate::default_shared_address).
    pub sharing: Sharing,
    /// Engine shards, each with a socket and queues of its own; 1 to 64.
    pub lanes: u32,
    /// Which threads run the engine.
    pub engine: Engine,
    /// How threads wait for completions, with [`Engine::Both`]. `None` takes `HIGHWIRE_WAKE`, and without
    /// that [`Mode::Balanced`].
    pub wake: Option<Mode>,
    /// Which links carry packets.
    pub link: LinkChoice,
    /// Faults to inject into the packets that leave.
    pub faults: Option<FaultConfig>,
    /// A scenario's packets: lost, late or all gone, as it says at the moment.
    pub packet_faults: Option<crate::PacketFaults>,
    /// Where to keep what the device does; bytes of messages are not kept.
    pub record: Option<crate::Recording>,
    /// Where to record the packets of all lanes.
    pub capture: Option<PathBuf>,
    /// Decides every random choice: keys, QPNs, PSNs, faults. `None` asks the system for one.
    pub seed: Option<u64>,
    /// How rates are controlled: an algorithm of any crate. Of those that listen to marks, `dctcp` must be the peer's choice, too.
    pub congestion: CongestionChoice,
    /// The largest path MTU to offer, in bytes; `None` takes what the interface carries.
    pub mtu_max: Option<u32>,
    /// Other programs of this user may use the device through a [`Door`](crate::door::Door): its doorbells lie in a file.
    pub has_door: bool,
    /// Queue pairs and shared receive queues that each program behind the door may have, of the 4096 of the device.
    pub door_share: u32,
}

impl Default for DeviceConfig {
    fn default() -> DeviceConfig {
        DeviceConfig {
            address: None,
            sharing: Sharing::default(),
            lanes: 1,
            engine: Engine::default(),
            wake: None,
            link: LinkChoice::default(),
            faults: None,
            packet_faults: None,
            record: None,
            capture: None,
            seed: None,
            congestion: CongestionChoice::NONE,
            mtu_max: None,
            has_door: false,
            door_share: DOOR_SHARE,
        }
    }
}

/// Names of choices, for command lines: `inline`, `background`, `both`; `auto`, `udp`, `shm`.
macro_rules! names {
    ($type:ident: $($name:literal => $value:ident),+) => {
        impl FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<$type, String> {
                match text {
                    $($name => Ok($type::$value),)+
                    _ => Err(format!("`{text}` is none of {}", [$($name),+].join(", "))),
                }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($type::$value => $name,)+ })
            }
        }
    };
}

names!(Engine: "inline" => Inline, "background" => Background, "both" => Both);
names!(Sharing: "exclusive" => Exclusive, "shared" => Shared);
names!(LinkChoice: "auto" => Auto, "udp" => Udp, "shm" => Shm);
