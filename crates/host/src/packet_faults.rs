//! The fate of a device's packets by a scenario, which may change while the device runs.

use highwire_faults::{Packet, PacketFate, Traffic};
use highwire_link::{Rule, Subject, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Judges the packets of one device. Clones judge as one.
#[derive(Clone, Debug)]
pub struct PacketFaults {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    traffic: Mutex<Traffic>,
    /// Packets that arrive are not worth a lock each.
    is_silent: AtomicBool,
}

impl PacketFaults {
    /// Judges as `traffic` does.
    pub fn new(traffic: Traffic) -> PacketFaults {
        let is_silent = AtomicBool::new(traffic.is_silent());
        PacketFaults { inner: Arc::new(Inner { traffic: Mutex::new(traffic), is_silent }) }
    }

    /// Changes the rules.
    pub fn change(&self, change: impl FnOnce(&mut Traffic)) {
        let mut traffic = self.inner.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut traffic);
        self.inner.is_silent.store(traffic.is_silent(), Ordering::Relaxed);
    }

    /// Whether packets that arrive are lost.
    pub(crate) fn is_silent(&self) -> bool {
        self.inner.is_silent.load(Ordering::Relaxed)
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

    fn hears(&self) -> bool {
        !self.is_silent()
    }
}
