//! IRN's own loss recovery with one thing changed: congestion control hears of a loss only when more than one packet is missing.
//!
//! The wrapped rule keeps its state and makes every decision about repetitions, so without congestion control the two do the same.

use highwire_transport::irn::{self, Account, News, RecoveryAlgorithm, RecoveryChoice, RecoveryRule};
use highwire_wire::Psn;

/// One lost packet in a window slows nobody down.
pub static SPARING: RecoveryAlgorithm = RecoveryAlgorithm {
    name: "sparing",
    start: &|config| Box::new(Sparing { irn: (irn::SACK.start)(config) }),
};

/// Makes the name known; `None` if another rule has it.
pub fn register() -> Option<RecoveryChoice> {
    RecoveryChoice::register(&SPARING)
}

#[derive(Clone, Debug)]
struct Sparing {
    irn: Box<dyn RecoveryRule>,
}

/// The packets that are missing below the highest that has arrived.
fn missing(account: &Account<'_>) -> u32 {
    let highest = account.sacked.highest();
    highest.map_or(0, |highest| {
        highest.distance_from(account.first_unacknowledged) as u32 + 1 - account.sacked.count()
    })
}

impl RecoveryRule for Sparing {
    fn on_ack(&mut self, account: &Account<'_>, news: News) -> bool {
        self.irn.on_ack(account, news) && missing(account) > 1
    }

    fn on_trimmed(&mut self, account: &Account<'_>, psn: Psn) -> bool {
        self.irn.on_trimmed(account, psn)
    }

    fn on_timeout(&mut self, account: &Account<'_>) {
        self.irn.on_timeout(account);
    }

    fn next(&mut self, account: &Account<'_>) -> Option<Psn> {
        self.irn.next(account)
    }

    fn on_resent(&mut self, account: &Account<'_>, psn: Psn) {
        self.irn.on_resent(account, psn);
    }

    fn begins_repair(&self, psn: Psn) -> bool {
        self.irn.begins_repair(psn)
    }

    fn repaired_since(&self, front: Psn) -> Option<Psn> {
        self.irn.repaired_since(front)
    }

    fn heeds_progress(&self) -> bool {
        self.irn.heeds_progress()
    }

    fn keeps_sacks(&self) -> bool {
        self.irn.keeps_sacks()
    }
}
