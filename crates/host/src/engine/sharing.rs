//! Which addresses several processes share.

use highwire_link::shm::Registry;
use highwire_stdx::{Duration, Instant};
use highwire_verbs::Gid;
use highwire_wire::Qpn;

/// How long an answer is believed.
const BELIEVED_FOR: Duration = Duration::from_millis(500);
/// Addresses remembered.
const ADDRESSES_MAX: usize = 256;

/// What is known about addresses. Those of other machines count as not shared: there, packets of a train arrive one by one.
#[derive(Default)]
pub(super) struct Sharing {
    /// This device shares its own.
    is_ours: bool,
    registry: Option<Registry>,
    known: Vec<(Gid, Instant, bool)>,
    recent: usize,
}

impl Sharing {
    pub(super) fn new(is_ours: bool) -> Sharing {
        Sharing { is_ours, registry: Registry::open().ok(), known: Vec::new(), recent: 0 }
    }

    /// In which trains a packet may travel: one of those who share an address gets a train whole, so packets for different
    /// ones keep apart.
    #[inline]
    pub(super) fn class_of(&mut self, now: Instant, gid: Gid, qpn: Qpn) -> u8 {
        if self.is_ours || self.is_shared(now, gid) { qpn.value() as u8 } else { 0 }
    }

    /// Whether processes of this user share an address of this machine.
    #[inline]
    fn is_shared(&mut self, now: Instant, gid: Gid) -> bool {
        match self.known.get(self.recent) {
            Some(&(known, until, is_shared)) if known == gid && now < until => is_shared,
            _ => self.look_up(now, gid),
        }
    }

    #[cold]
    fn look_up(&mut self, now: Instant, gid: Gid) -> bool {
        let Some(registry) = &self.registry else { return false };
        self.recent = match self.known.iter().position(|(known, ..)| *known == gid) {
            Some(at) => at,
            None => {
                if self.known.len() == ADDRESSES_MAX {
                    self.known.clear();
                }
                self.known.push((gid, Instant::ZERO, false));
                self.known.len() - 1
            }
        };
        let entry = &mut self.known[self.recent];
        if entry.1 <= now {
            *entry = (gid, now + BELIEVED_FOR, registry.is_shared(gid.to_ip()));
        }
        entry.2
    }
}
