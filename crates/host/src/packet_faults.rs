//! The fate of a device's packets by a scenario, which may change while the device runs.

use highwire_faults::{Packet, PacketFate, Traffic};
use highwire_link::{Rule, Subject, Verdict};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Judges the packets of one device. Clones judge as one.
#[derive(Clone, Debug)]
pub struct PacketFaults {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    traffic: Mutex<Traffic>,
    /// Packets that arrive are not worth a lock each, unless only some are heard.
    hearing: AtomicU8,
}

/// All packets that arrive are heard, none, or not those of some ports.
const ALL: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

fn hearing(traffic: &Traffic) -> u8 {
    match (traffic.is_silent(), traffic.is_partly_silent()) {
        (true, _) => NONE,
        (_, true) => SOME,
        _ => ALL,
    }
}

impl PacketFaults {
    /// Judges as `traffic` does.
    pub fn new(traffic: Traffic) -> PacketFaults {
        let hearing = AtomicU8::new(hearing(&traffic));
        PacketFaults { inner: Arc::new(Inner { traffic: Mutex::new(traffic), hearing }) }
    }

    /// Changes the rules.
    pub fn change(&self, change: impl FnOnce(&mut Traffic)) {
        let mut traffic = self.inner.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut traffic);
        self.inner.hearing.store(hearing(&traffic), Ordering::Relaxed);
    }

    /// Whether a packet that arrives is lost; its bytes are asked for only where they matter.
    pub(crate) fn loses<'a>(&self, bytes: impl FnOnce() -> &'a [u8]) -> bool {
        match self.inner.hearing.load(Ordering::Relaxed) {
            ALL => false,
            SOME => {
                let traffic = self.inner.traffic.lock().unwrap_or_else(PoisonError::into_inner);
                traffic.is_unheard(bytes())
            }
            _ => true,
        }
    }
}

impl Rule for PacketFaults {
    fn judge(&mut self, packet: &Subject<'_>) -> Verdict {
        let mut traffic = self.inner.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        let subject = Packet { to: packet.path.peer.ip(), bytes: packet.bytes };
        match traffic.judge(packet.now, &subject) {
            PacketFate::Pass => Verdict::Pass,
            PacketFate::Drop => Verdict::Drop,
            PacketFate::Delay(delay) => Verdict::Delay(delay),
        }
    }

    fn hears_all(&self) -> bool {
        self.inner.hearing.load(Ordering::Relaxed) == ALL
    }

    fn hears(&self, bytes: &[u8]) -> bool {
        !self.loses(|| bytes)
    }
}
