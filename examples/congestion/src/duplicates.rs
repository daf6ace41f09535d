//! A loss recovery from outside: as TCP's fast retransmit, a packet counts as lost when three that left after it have arrived.
//!
//! It repeats one packet at a time, the front; the next one when the front has moved. So several losses in a window cost a round trip
//! each, and packets that overtake each other by one or two cost nothing.

use highwire_transport::irn::{Account, News, RecoveryAlgorithm, RecoveryChoice, RecoveryRule};
use highwire_wire::Psn;

/// Three packets beyond the front.
pub static DUPLICATES: RecoveryAlgorithm =
    RecoveryAlgorithm { name: "three-duplicates", start: &|_config| Box::new(Duplicates::default()) };

/// Makes the name known; `None` if another rule has it.
pub fn register() -> Option<RecoveryChoice> {
    RecoveryChoice::register(&DUPLICATES)
}

/// One flow's repair.
#[derive(Clone, Debug, Default)]
struct Duplicates {
    /// The front is to leave again.
    is_due: bool,
    /// The last packet that was repeated.
    repeated: Option<Psn>,
}

impl RecoveryRule for Duplicates {
    fn on_ack(&mut self, account: &Account<'_>, _news: News) -> bool {
        let front = account.first_unacknowledged;
        let begins = account.sacked.count() >= 3 && self.repeated != Some(front) && !self.is_due;
        self.is_due |= begins;
        self.is_due &= !account.sacked.is_empty();
        begins
    }

    fn on_timeout(&mut self, _account: &Account<'_>) {
        (self.is_due, self.repeated) = (true, None);
    }

    fn next(&mut self, account: &Account<'_>) -> Option<Psn> {
        self.is_due.then_some(account.first_unacknowledged)
    }

    fn on_resent(&mut self, _account: &Account<'_>, psn: Psn) {
        (self.is_due, self.repeated) = (false, Some(psn));
    }
}
