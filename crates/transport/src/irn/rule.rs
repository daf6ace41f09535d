//! Loss recovery is a rule: IRN's own, those that the paper compares it with, and rules of other crates.
//!
//! [`SenderWindow`](super::SenderWindow) keeps the account: what is in flight, what was selectively acknowledged, which acknowledgements
//! are to be believed, and the timer. A rule decides what is sent again. It sees the account and changes nothing in it, so no rule can
//! complete what has not arrived, or send what was never sent.

mod built_in;
mod front_only;
mod go_back_n;
mod selective;

use super::config::IrnConfig;
use super::sack::SackWindow;
use highwire_wire::Psn;
use std::fmt;
use std::sync::OnceLock;

/// The account that a rule decides by.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// The oldest packet that is not cumulatively acknowledged.
    pub first_unacknowledged: Psn,
    /// The next packet that was never sent.
    pub next_to_send: Psn,
    /// The packets in between that have arrived.
    pub sacked: &'a SackWindow,
    /// A packet was sent again, and not everything that was sent before that has arrived.
    pub in_recovery: bool,
}

impl Account<'_> {
    /// Whether a packet has arrived that is too far beyond the front to have overtaken it, if packets overtake each other by at most
    /// `tolerated`. `named` is one that an acknowledgement names.
    #[inline]
    pub(super) fn is_passed(&self, named: Option<Psn>, tolerated: u32) -> bool {
        let has_passed = |high: Psn| high.distance_from(self.first_unacknowledged) > tolerated as i32;
        named.is_some_and(has_passed) || self.sacked.highest().is_some_and(has_passed)
    }

    /// Whether a packet is in flight and not known to have arrived.
    fn is_missing(&self, psn: Psn) -> bool {
        let is_in_flight = !psn.is_before(self.first_unacknowledged) && psn.is_before(self.next_to_send);
        is_in_flight && !self.sacked.contains(psn)
    }
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// Packets that the cumulative acknowledgement covers for the first time.
    pub newly_acked: u32,
    /// The last packet of the run that it acknowledges selectively.
    pub sack_high: Option<Psn>,
    /// How many packets that run has; 0 if there is none.
    pub sack_run: u32,
    /// It ends a repair: everything has arrived that was sent before the last repetition.
    pub recovered: bool,
}

impl News {
    /// Whether the run has this packet.
    pub(super) fn covers(&self, psn: Psn) -> bool {
        let below = self.sack_high.map_or(-1, |high| high.distance_from(psn));
        below >= 0 && (below as u32) < self.sack_run
    }
}

/// The next step of a rule that repeats one packet at a time. The hardware keeps two flags, "retransmit" and "find a new hole", of
/// which at most one is ever set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// Nothing is known to be missing that was not resent already.
    Idle,
    /// The packet that the rule has in mind is to be resent.
    Resend,
    /// The first hole after it is to be resent, if there is one.
    Search,
}

/// Decides which packets are sent again.
pub trait RecoveryRule: fmt::Debug + Send + Sync + ReplicateRule {
    /// An acknowledgement has changed the account. Returns whether it shows a loss that starts a new repair: congestion control hears
    /// of that.
    fn on_ack(&mut self, account: &Account<'_>, news: News) -> bool;

    /// Of a packet the headers alone have arrived. Returns as [`on_ack`](Self::on_ack) does.
    fn on_trimmed(&mut self, _account: &Account<'_>, _psn: Psn) -> bool {
        false
    }

    /// Nothing was heard for the length of a timeout; something must be sent again now.
    fn on_timeout(&mut self, account: &Account<'_>);

    /// The packet to send again now, if there is one: asked often, and the same until something happens. A packet that is not in
    /// flight, or has arrived, is not sent.
    fn next(&mut self, account: &Account<'_>) -> Option<Psn>;

    /// That packet leaves.
    fn on_resent(&mut self, account: &Account<'_>, psn: Psn);

    /// Whether sending that packet again begins or renews a repair, which ends when everything has arrived that was sent before. Asked
    /// before [`on_resent`](Self::on_resent).
    fn begins_repair(&self, _psn: Psn) -> bool {
        true
    }

    /// While no repair is under way: if the front was sent again without beginning one, the first packet that was new then. The repair
    /// counts from there.
    fn repaired_since(&self, _front: Psn) -> Option<Psn> {
        None
    }

    /// Whether to call [`on_ack`](Self::on_ack) for an acknowledgement that brings progress alone, while no packet is known to be
    /// missing.
    fn heeds_progress(&self) -> bool {
        true
    }

    /// Whether the account keeps what was selectively acknowledged.
    fn keeps_sacks(&self) -> bool {
        true
    }
}

/// Copies a rule behind a pointer. Every rule that can be cloned has it.
pub trait ReplicateRule {
    /// The same rule once more.
    fn replicate(&self) -> Box<dyn RecoveryRule>;
}

impl<T: RecoveryRule + Clone + 'static> ReplicateRule for T {
    fn replicate(&self) -> Box<dyn RecoveryRule> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn RecoveryRule> {
    fn clone(&self) -> Box<dyn RecoveryRule> {
        (**self).replicate()
    }
}

pub use built_in::{GO_BACK_N, NO_SACK, SACK};
pub(super) use built_in::{Rule, with_rule};

/// A rule by its name.
pub struct RecoveryAlgorithm {
    /// Its name in plans: small letters, digits and hyphens.
    pub name: &'static str,
    /// The rule of a new flow.
    pub start: &'static (dyn Fn(&IrnConfig) -> Box<dyn RecoveryRule> + Send + Sync),
}

/// Which rule a sender has.
#[derive(Clone, Copy)]
pub struct RecoveryChoice(&'static RecoveryAlgorithm);

/// The rules that were registered; like opcodes, they are properties of the program.
static RULES: [OnceLock<&'static RecoveryAlgorithm>; RULES_MAX] = [const { OnceLock::new() }; RULES_MAX];
const RULES_MAX: usize = 64;
/// Names of the rules that come with the crate.
const BUILT_IN: [&str; 3] = ["sack", "no-sack", "go-back-n"];

impl RecoveryChoice {
    /// Makes a rule's name known to plans of this program. Doing it again changes nothing; `None` if the name is no name or another
    /// rule's, or if there are too many.
    pub fn register(algorithm: &'static RecoveryAlgorithm) -> Option<RecoveryChoice> {
        let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let name = algorithm.name;
        if name.is_empty() || !name.bytes().all(is_letter) || BUILT_IN.contains(&name) {
            return None;
        }
        for place in &RULES {
            let there = *place.get_or_init(|| algorithm);
            if std::ptr::eq(there, algorithm) {
                return Some(RecoveryChoice(algorithm));
            }
            if there.name == name {
                return None;
            }
        }
        None
    }

    /// The names that were registered.
    pub fn names() -> impl Iterator<Item = &'static str> {
        RULES.iter().map_while(OnceLock::get).map(|algorithm| algorithm.name)
    }

    /// The rule of that name.
    pub fn named(name: &str) -> Option<RecoveryChoice> {
        let mut all = RULES.iter().map_while(OnceLock::get);
        all.find(|algorithm| algorithm.name == name).map(|algorithm| RecoveryChoice(algorithm))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    pub(super) fn start(self, config: &IrnConfig) -> Box<dyn RecoveryRule> {
        (self.0.start)(config)
    }
}

/// Names are unique.
impl PartialEq for RecoveryChoice {
    fn eq(&self, other: &RecoveryChoice) -> bool {
        self.name() == other.name()
    }
}

impl Eq for RecoveryChoice {}

impl fmt::Debug for RecoveryChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
