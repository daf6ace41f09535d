//! The permissions of a key.

use std::fmt;
use std::ops::{BitAnd, BitOr};

/// A set of permissions on memory, as bits that `libibverbs` also uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Access(u32);

impl Access {
    /// Nothing but local reads, which every region permits.
    pub const NONE: Access = Access(0);
    /// The RNIC may write here for its own process (receives, READ responses, atomic results).
    pub const LOCAL_WRITE: Access = Access(1);
    /// A peer may WRITE here.
    pub const REMOTE_WRITE: Access = Access(1 << 1);
    /// A peer may READ here.
    pub const REMOTE_READ: Access = Access(1 << 2);
    /// A peer may execute atomics here.
    pub const REMOTE_ATOMIC: Access = Access(1 << 3);
    /// Memory windows may be bound to this region.
    pub const WINDOW_BIND: Access = Access(1 << 4);
    /// Remote addresses count from zero instead of from the region's address.
    pub const ZERO_BASED: Access = Access(1 << 5);
    /// Every permission that a peer can have, and local writes.
    pub const ALL: Access = Access(0b1111);

    /// The permissions whose bits are set; unknown bits are kept out.
    pub const fn from_bits_truncate(bits: u32) -> Access {
        Access(bits & 0b11_1111)
    }

    /// The permissions as bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether every permission in `needed` is present.
    pub const fn contains(self, needed: Access) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Whether any permission in `any` is present.
    pub const fn intersects(self, any: Access) -> bool {
        self.0 & any.0 != 0
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, rhs: Access) -> Access {
        Access(self.0 | rhs.0)
    }
}

impl BitAnd for Access {
    type Output = Access;
    fn bitand(self, rhs: Access) -> Access {
        Access(self.0 & rhs.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            ["local-write", "remote-write", "remote-read", "remote-atomic", "window-bind", "zero-based"];
        let set: Vec<_> =
            names.iter().enumerate().filter(|(i, _)| self.0 >> i & 1 == 1).map(|(_, n)| *n).collect();
        write!(f, "Access({})", if set.is_empty() { "local-read".into() } else { set.join("|") })
    }
}
