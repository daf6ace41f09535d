//! Who may come in at a node's endpoints, and what each may do.
//!
//! ```text
//!   users' file ─▶ Users ─▶ Gate ◀── Visitor, one for each connection
//!                            │           standing(): open, stranger, or a role
//!                            ├─ passwords: hashed off the I/O loop, few at a time, and fewer of one address
//!                            └─ Account, one for each user: connections, rate
//!   the register's secret and the cluster's key ─▶ NodeKey: challenge and answer between nodes
//! ```
//!
//! Without a users' file every client of a loopback address is let in, and no other one while `protected_mode` is on.

mod account;
mod client;
mod gate;
mod guesses;
pub(crate) mod key;
mod proof;
mod users;

pub use client::Access;
pub(crate) use gate::{Denied, Gate, Refusal, Standing, Visitor, count};
pub use key::make_key;
pub(crate) use proof::{End, NONCE_BYTES, NodeKey, PROOF_BYTES};
pub use users::{User, UserLimits, Users, UsersError};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a user may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads data, status and metrics.
    Read,
    /// Writes data.
    Write,
    /// Backs up, restores, takes nodes out, stops them, and sees other clients.
    Admin,
}

impl Role {
    const ALL: [(&'static str, Role); 3] =
        [("read", Role::Read), ("write", Role::Write), ("admin", Role::Admin)];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Role::ALL.iter().find(|known| known.1 == *self).map_or("", |known| known.0);
        f.write_str(name)
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let known = Role::ALL.iter().find(|known| known.0 == text);
        known.map(|known| known.1).ok_or_else(|| format!("`{text}` is no role: read, write or admin"))
    }
}

/// Bytes that the system draws.
pub(crate) fn random<const LENGTH: usize>() -> std::io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}
