//! Accesses that were refused, and why, in words.

use super::{AccessError, Kind, Pd, Region, Regions};
use crate::access::Access;
use highwire_wire::Qpn;

/// Why an access was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DenialCause {
    /// The key does not permit it.
    Key(AccessError),
    /// The queue pair lacks the right, whatever the key permits.
    QueuePair,
    /// An atomic's address is not a multiple of eight.
    Misaligned,
    /// A datagram's Q_Key is not the queue pair's.
    QueueKey {
        /// The queue pair's.
        expected: u32,
        /// The sender.
        source: Qpn,
    },
    /// The receive is too short for a datagram and its GRH.
    ShortReceive {
        /// The bytes that it has room for.
        capacity: u64,
        /// The sender.
        source: Qpn,
    },
}

/// An access that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The queue pair that made it, or that a peer made it through.
    pub qpn: Qpn,
    /// Whether a peer made it; otherwise the key is local.
    pub is_remote: bool,
    /// The domain of the queue pair or of its receives.
    pub pd: Pd,
    /// The key.
    pub key: u32,
    /// The first address.
    pub va: u64,
    /// How many bytes.
    pub length: u32,
    /// The right that it needs; none for a local read.
    pub needed: Access,
    /// Why it was refused.
    pub cause: DenialCause,
}

impl Regions {
    /// A sentence that says what was refused, which region was missed, and what to change.
    pub fn explain(&self, denial: &Denial) -> String {
        let Denial { qpn, is_remote, key, va, length, needed, .. } = *denial;
        match denial.cause {
            DenialCause::QueueKey { expected, source } => {
                return format!(
                    "queue pair {:#x} (UD) drops a datagram of queue pair {:#x}: its Q_Key is {key:#x}, and this queue pair's \
                     is {expected:#x}; the sender gives this one as wr.ud.remote_qkey (without bit 31, which means the sender's own)",
                    qpn.value(),
                    source.value()
                );
            }
            DenialCause::ShortReceive { capacity, source } => {
                return format!(
                    "queue pair {:#x} (UD) drops a datagram of {length} bytes of queue pair {:#x}: the receive has room for \
                     {capacity}, and the GRH needs 40 more than the data",
                    qpn.value(),
                    source.value()
                );
            }
            DenialCause::Key(_) | DenialCause::QueuePair | DenialCause::Misaligned => {}
        }
        let what = match needed {
            Access::REMOTE_WRITE => "a peer's WRITE",
            Access::REMOTE_READ => "a peer's READ",
            Access::REMOTE_ATOMIC => "a peer's atomic",
            Access::LOCAL_WRITE => "a local write",
            _ => "a local read",
        };
        let name = if is_remote { "rkey" } else { "lkey" };
        let why = self.cause(denial);
        let qpn = qpn.value();
        format!("queue pair {qpn:#x} refuses {what} of {length} bytes at {va:#x} with {name} {key:#x}: {why}")
    }

    fn cause(&self, denial: &Denial) -> String {
        let Denial { is_remote, key, va, length, needed, pd, .. } = *denial;
        let region = self.map.get(key >> 8).filter(|region| region.key == key);
        let error = match (denial.cause, region) {
            (DenialCause::Misaligned, _) => return "an atomic's address is a multiple of 8".to_string(),
            (DenialCause::QueuePair, _) => {
                let flag = flag_of(needed);
                return format!(
                    "the queue pair's qp_access_flags lack {flag} (ibv_modify_qp to INIT or RTR)"
                );
            }
            (DenialCause::Key(error), _) => error,
            (DenialCause::QueueKey { .. } | DenialCause::ShortReceive { .. }, _) => return String::new(),
        };
        match (error, region) {
            (AccessError::Denied, Some(region)) => {
                format!("{} lacks {} (ibv_reg_mr)", span_of(region), flag_of(needed))
            }
            (AccessError::Bounds, Some(region)) => {
                format!("{} does not cover it", span_of(region))
            }
            (AccessError::WrongDomain, Some(region)) if region.pd == pd => {
                "the window is bound through another queue pair".to_string()
            }
            (AccessError::WrongDomain, Some(region)) => {
                format!("{} belongs to another protection domain than the queue pair", span_of(region))
            }
            (_, Some(Region { kind: Kind::FreeWindow(_), .. })) => "the window is not bound".to_string(),
            _ => {
                let name = if is_remote { "rkey" } else { "lkey" };
                let covers = |region: &&Region| region.pd == pd && region.translate(va, length).is_ok();
                match self.map.iter().map(|(_, region)| region).find(covers) {
                    Some(region) => {
                        format!(
                            "there is no such {name}; {} covers it, whose {name} is {:#x}",
                            span_of(region),
                            region.key
                        )
                    }
                    None => format!("there is no such {name}: it was deregistered, or mistaken on the way"),
                }
            }
        }
    }
}

fn span_of(region: &Region) -> String {
    format!("the region of {} bytes at {:#x}", region.length, region.iova)
}

fn flag_of(right: Access) -> &'static str {
    match right {
        Access::REMOTE_WRITE => "IBV_ACCESS_REMOTE_WRITE",
        Access::REMOTE_READ => "IBV_ACCESS_REMOTE_READ",
        Access::REMOTE_ATOMIC => "IBV_ACCESS_REMOTE_ATOMIC",
        _ => "IBV_ACCESS_LOCAL_WRITE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionAttr;
    use highwire_stdx::Rng;

    #[test]
    fn each_cause_names_the_region_and_what_to_change() {
        let mut regions = Regions::new(Rng::new(5));
        let attr = RegionAttr { addr: 0x9000, length: 256, iova: 0x5000, access: Access::LOCAL_WRITE };
        let key = regions.register(Pd(1), attr).expect("it is right").0;
        let base = Denial {
            qpn: Qpn::new(0x11),
            is_remote: true,
            pd: Pd(1),
            key,
            va: 0x5010,
            length: 16,
            needed: Access::REMOTE_WRITE,
            cause: DenialCause::Key(AccessError::Denied),
        };
        let region = "the region of 256 bytes at 0x5000";
        let of = |denial: Denial, parts: &[&str]| {
            let text = regions.explain(&denial);
            for part in parts {
                assert!(text.contains(part), "{text} / {part}");
            }
        };
        let cause = |error| DenialCause::Key(error);
        of(
            base,
            &[
                "queue pair 0x11 refuses a peer's WRITE of 16 bytes at 0x5010",
                region,
                "lacks IBV_ACCESS_REMOTE_WRITE",
            ],
        );
        of(
            Denial { va: 0x50ff, cause: cause(AccessError::Bounds), ..base },
            &["at 0x50ff", region, "does not cover"],
        );
        let other = Denial { pd: Pd(2), cause: cause(AccessError::WrongDomain), ..base };
        of(other, &[region, "another protection domain"]);
        let unknown = Denial { key: key ^ 0x100, cause: cause(AccessError::BadKey), ..base };
        of(unknown, &["no such rkey", region, &format!("whose rkey is {key:#x}")]);
        let local = Denial { is_remote: false, needed: Access::NONE, va: 0x9000_0000, ..unknown };
        of(local, &["a local read", "no such lkey", "deregistered"]);
        of(
            Denial { cause: DenialCause::QueuePair, needed: Access::REMOTE_READ, ..base },
            &["qp_access_flags lack IBV_ACCESS_REMOTE_READ"],
        );
        of(Denial { cause: DenialCause::Misaligned, ..base }, &["multiple of 8"]);
        let source = Qpn::new(0x77);
        let drops = "queue pair 0x11 (UD) drops a datagram";
        let wrong_key = DenialCause::QueueKey { expected: 0xabc, source };
        of(
            Denial { key: 0xdef, cause: wrong_key, ..base },
            &[drops, "queue pair 0x77", "Q_Key is 0xdef", "0xabc"],
        );
        let short = DenialCause::ShortReceive { capacity: 16, source };
        of(Denial { cause: short, ..base }, &[drops, "of 16 bytes", "room for 16", "40 more"]);
    }
}
