//! The data that two ends exchange before they can connect, as one word.
//!
//! Applications choose how: over TCP, through a file, by copy and paste.

use highwire_verbs::Gid;
use highwire_wire::{Psn, Qpn};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A queue pair as its peer needs to know it. Its text form is `qpn-psn@address`, as in `00abcd-123456@127.83.20.7`:
/// the numbers are hexadecimal.
///
/// ```
/// use highwire_host::{Endpoint, Psn, Qpn};
///
/// let peer: Endpoint = "00abcd-123456@127.83.20.7".parse()?;
/// assert_eq!((peer.qpn, peer.psn), (Qpn::new(0xABCD), Psn::new(0x123456)));
/// assert_eq!(peer.to_string(), "00abcd-123456@127.83.20.7");
/// # Ok::<(), highwire_host::EndpointError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Endpoint {
    /// The device.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
    /// The first PSN that it will send.
    pub psn: Psn,
}

/// The text is no endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is no endpoint: {part}; one looks like 00abcd-123456@127.83.20.7")]
pub struct EndpointError {
    text: String,
    part: &'static str,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}-{:06x}@{}", self.qpn.value(), self.psn.value(), self.gid)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let fail = |part| EndpointError { text: text.chars().take(80).collect(), part };
        let (numbers, address) = text.trim().split_once('@').ok_or_else(|| fail("there is no `@`"))?;
        let (qpn, psn) = numbers.split_once('-').ok_or_else(|| fail("there is no `-`"))?;
        let number = |digits: &str| {
            let hexadecimal = digits.len() <= 6 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            hexadecimal.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        let qpn = number(qpn).ok_or_else(|| fail("the queue pair number is not 24 bits in hexadecimal"))?;
        let psn = number(psn).ok_or_else(|| fail("the PSN is not 24 bits in hexadecimal"))?;
        let address: IpAddr = address.parse().map_err(|_| fail("the address is no IP address"))?;
        Ok(Endpoint { gid: Gid::from_ip(address), qpn: Qpn::new(qpn), psn: Psn::new(psn) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_are_the_same_thing() {
        for text in ["00abcd-123456@127.83.20.7", "ffffff-000000@fe80::1"] {
            let endpoint: Endpoint = text.parse().expect("an endpoint");
            assert_eq!(endpoint.to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        };
        check("", "no `@`");
        check("1@127.0.0.1", "no `-`");
        check("1000000-1@127.0.0.1", "queue pair number");
        check("+1-1@127.0.0.1", "queue pair number");
        check("1-@127.0.0.1", "PSN");
        check("1-1@localhost", "IP address");
    }
}
