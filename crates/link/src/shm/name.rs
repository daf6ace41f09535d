//! Names of engines.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A GID and, if processes share it, the number of a process's part: `127.83.20.7` or `127.83.20.7@5`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EngineName {
    /// The GID.
    pub gid: IpAddr,
    /// The last byte of all its queue pair numbers; 0 for an engine that has the GID to itself.
    pub shard: u8,
}

impl EngineName {
    /// The broker's part of a shared GID: no process's queue pair numbers end in it, and queue pair 1 is the
    /// broker's.
    pub const BROKER: u8 = 1;

    /// The broker of a GID that processes share.
    pub fn broker(gid: IpAddr) -> EngineName {
        EngineName::shared(gid, EngineName::BROKER)
    }

    /// Whether it names a broker.
    pub fn is_broker(&self) -> bool {
        self.shard == EngineName::BROKER
    }

    /// One of several engines with one GID.
    pub fn shared(gid: IpAddr, shard: u8) -> EngineName {
        EngineName { gid: gid.to_canonical(), shard }
    }
}

impl From<IpAddr> for EngineName {
    fn from(gid: IpAddr) -> EngineName {
        EngineName { gid: gid.to_canonical(), shard: 0 }
    }
}

impl PartialEq<IpAddr> for EngineName {
    fn eq(&self, gid: &IpAddr) -> bool {
        *self == EngineName::from(*gid)
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            0 => write!(f, "{}", self.gid),
            shard => write!(f, "{}@{shard}", self.gid),
        }
    }
}

/// The text is no engine's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadName;

impl FromStr for EngineName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<EngineName, BadName> {
        let (gid, shard) = match text.split_once('@') {
            Some((gid, shard)) => (gid, shard.parse().ok().filter(|&shard: &u8| shard > 0).ok_or(BadName)?),
            None => (text, 0),
        };
        let name = EngineName::shared(gid.parse().map_err(|_| BadName)?, shard);
        // Only one spelling of a name is valid; a directory with another one is no engine's.
        if name.to_string() == text { Ok(name) } else { Err(BadName) }
    }
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an engine is named by an IP address, or by one and `@` and a number from 1 to 255")
    }
}

impl std::error::Error for BadName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt_in_one_way() {
        for text in ["127.83.20.7", "127.83.20.7@254", "fe80::1", "fe80::1@2"] {
            assert_eq!(text.parse::<EngineName>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in
            ["", "lock", "broker-127.0.0.2", "127.0.0.2@0", "127.0.0.2@256", "127.0.0.2@02", "@3", "0:0::1"]
        {
            assert_eq!(text.parse::<EngineName>(), Err(BadName), "{text}");
        }
    }
}
