//! Transports by name.
//!
//! The names that come with the crate are constants; those of other crates are added with [`TransportKind::register`] before they are used.
//! They are properties of the program and not of a run: the table only grows, and an entry never changes.

use std::fmt;
use std::sync::OnceLock;

use highwire_fabric::FabricConfig;

use super::{Homa, HomaConfig, Ndp, Transport};
use crate::network::{PrioritySwitch, TrimmingSwitch};
use crate::nic::NicConfig;

/// A transport, and the switches that it wants.
pub struct TransportKind {
    /// Its name on command lines and in files.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Such a transport for a NIC.
    pub make: fn(&NicConfig) -> Box<dyn Transport + Send>,
    /// The switches between such NICs.
    pub switch: fn() -> FabricConfig,
}

/// A name that another transport has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken(
    /// The name.
    pub &'static str,
);

/// NDP, set as on the prototype.
static NDP: TransportKind = TransportKind {
    name: "ndp",
    about: "receivers pull at the pace of their link; switches trim",
    make: |nic| Box::new(Ndp { rtt_packets: nic.rtt_packets }),
    switch: || TrimmingSwitch::default().config(),
};

/// Homa, set as on the prototype.
static HOMA: TransportKind = TransportKind {
    name: "homa",
    about: "receivers grant to the message that has least left; switches have priorities",
    make: |nic| Box::new(Homa::new(HomaConfig { rtt_packets: nic.rtt_packets, ..HomaConfig::default() })),
    switch: || PrioritySwitch { priorities: 8, pool_bytes: 1 << 20 }.config(),
};

const OTHERS_MAX: usize = 64;
/// Transports of other crates.
static OTHERS: [OnceLock<&'static TransportKind>; OTHERS_MAX] = [const { OnceLock::new() }; OTHERS_MAX];

impl TransportKind {
    /// NDP.
    pub const NDP: &'static TransportKind = &NDP;
    /// Homa.
    pub const HOMA: &'static TransportKind = &HOMA;

    /// Every transport that is known now: those that come with the crate, then those that were registered.
    pub fn all() -> impl Iterator<Item = &'static TransportKind> {
        let others = OTHERS.iter().map_while(|slot| slot.get().copied());
        [TransportKind::NDP, TransportKind::HOMA].into_iter().chain(others)
    }

    /// The transport of that name.
    pub fn named(name: &str) -> Option<&'static TransportKind> {
        TransportKind::all().find(|kind| kind.name == name)
    }

    /// Makes a transport known by its name, for the rest of the program. The same one may be registered again.
    ///
    /// # Errors
    /// Another transport has the name.
    ///
    /// # Panics
    /// If 64 transports are registered.
    pub fn register(kind: &'static TransportKind) -> Result<(), Taken> {
        if [TransportKind::NDP, TransportKind::HOMA].iter().any(|known| known.name == kind.name) {
            return Err(Taken(kind.name));
        }
        for slot in &OTHERS {
            // Of two that register at the same time, the first takes the place, and the other looks at it.
            let known = slot.get_or_init(|| kind);
            if std::ptr::eq(*known, kind) {
                return Ok(());
            }
            if known.name == kind.name {
                return Err(Taken(kind.name));
            }
        }
        panic!("at most {OTHERS_MAX} transports can be registered");
    }
}

impl fmt::Debug for TransportKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TransportKind({})", self.name)
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "another transport is called {:?}", self.0)
    }
}

impl std::error::Error for Taken {}

#[cfg(test)]
mod tests {
    use super::*;

    static MINE: TransportKind =
        TransportKind { name: "mine", about: "for the test", make: NDP.make, switch: NDP.switch };
    static SAME_NAME: TransportKind =
        TransportKind { name: "mine", about: "another one", make: HOMA.make, switch: HOMA.switch };
    static TAKEN: TransportKind =
        TransportKind { name: "ndp", about: "another one", make: HOMA.make, switch: HOMA.switch };

    #[test]
    fn a_name_belongs_to_one_transport() {
        assert!(TransportKind::named("mine").is_none());
        for _ in 0..2 {
            assert_eq!(TransportKind::register(&MINE), Ok(()));
        }
        assert_eq!(TransportKind::register(&SAME_NAME), Err(Taken("mine")));
        assert_eq!(TransportKind::register(&TAKEN), Err(Taken("ndp")));
        let found = TransportKind::named("mine").expect("it was registered");
        assert!(std::ptr::eq(found, &MINE));
        let names: Vec<&str> = TransportKind::all().map(|kind| kind.name).collect();
        assert_eq!(names, ["ndp", "homa", "mine"]);
    }
}
