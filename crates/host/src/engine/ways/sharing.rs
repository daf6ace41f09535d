//! Which addresses several processes share.

use highwire_link::shm::Registry;
use highwire_stdx::{Duration, IdMap, Instant};
use highwire_verbs::Gid;
use highwire_wire::Qpn;

/// How long an answer is believed.
const BELIEVED_FOR: Duration = Duration::from_millis(500);
/// Addresses remembered.
const ADDRESSES_MAX: usize = 4096;

/// Which addresses are shared. Those of other machines count as not shared: there, packets of a train arrive
/// one by one.
pub(super) struct Sharing {
    /// This device shares its own.
    is_ours: bool,
    registry: Option<Registry>,
    /// By the last four bytes; two addresses that agree in these replace each other.
    known: IdMap<Answer>,
    recent: Option<Answer>,
}

#[derive(Clone, Copy)]
struct Answer {
    gid: Gid,
    until: Instant,
    is_shared: bool,
}

impl Sharing {
    pub(super) fn new(is_ours: bool) -> Sharing {
        Sharing { is_ours, registry: Registry::open().ok(), known: IdMap::new(0), recent: None }
    }

    /// In which trains a packet may travel: one of the processes that share an address receives a train whole, so packets for
    /// different processes travel in different trains.
    #[inline]
    pub(super) fn class_of(&mut self, now: Instant, gid: Gid, qpn: Qpn) -> u8 {
        if self.is_ours || self.is_shared(now, gid) { qpn.value() as u8 } else { 0 }
    }

    /// Whether processes of this user share an address of this machine.
    #[inline]
    fn is_shared(&mut self, now: Instant, gid: Gid) -> bool {
        match self.recent {
            Some(answer) if answer.gid == gid && now < answer.until => answer.is_shared,
            _ => self.look_up(now, gid),
        }
    }

    fn look_up(&mut self, now: Instant, gid: Gid) -> bool {
        let Some(registry) = &self.registry else { return false };
        let id = u32::from_be_bytes([gid.0[12], gid.0[13], gid.0[14], gid.0[15]]);
        let known = self.known.get(id).copied().filter(|answer| answer.gid == gid && now < answer.until);
        let answer = known.unwrap_or_else(|| Answer {
            gid,
            until: now + BELIEVED_FOR,
            is_shared: registry.is_shared(gid.to_ip()),
        });
        if known.is_none() {
            if self.known.len() >= ADDRESSES_MAX {
                self.known = IdMap::new(0);
            }
            self.known.insert(id, answer);
        }
        self.recent = Some(answer);
        answer.is_shared
    }
}
