//! Which congestion control new queue pairs get, by name.
//!
//! The names that come with the crate are constants; those of other crates are added with [`register`] before they are used. Like
//! opcodes, they are properties of the program and not of a run: the table only grows, and an entry never changes.

use super::{Algorithm, Congestion, Start, aimd, dcqcn, dctcp, timely};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Which congestion control new queue pairs get.
#[derive(Clone, Copy)]
pub struct CongestionChoice(&'static Algorithm);

/// Line rate, always.
static NONE: Algorithm = Algorithm::new("none", "line rate, always", &|_| None);

/// Algorithms of other crates.
static OTHERS: [OnceLock<&'static Algorithm>; OTHERS_MAX] = [const { OnceLock::new() }; OTHERS_MAX];
const OTHERS_MAX: usize = 64;

impl CongestionChoice {
    /// Line rate, always.
    pub const NONE: CongestionChoice = CongestionChoice(&NONE);
    /// DCQCN with its paper's parameters.
    pub const DCQCN: CongestionChoice = CongestionChoice(&dcqcn::PAPER);
    /// DCQCN with parameters in the style of ConnectX firmware.
    pub const DCQCN_CONNECTX: CongestionChoice = CongestionChoice(&dcqcn::CONNECTX);
    /// Timely with its paper's parameters.
    pub const TIMELY: CongestionChoice = CongestionChoice(&timely::PAPER);
    /// Timely with a step that grows with the link.
    pub const TIMELY_SCALED: CongestionChoice = CongestionChoice(&timely::SCALED);
    /// Timely with an update per 16 packets, its paper's smallest segment, instead of per round trip.
    pub const TIMELY_SEGMENTS: CongestionChoice = CongestionChoice(&timely::SEGMENTS);
    /// Timely that also halves its rate at losses (IRN §4.3, question 1).
    pub const TIMELY_BACKOFF: CongestionChoice = CongestionChoice(&timely::BACKOFF);
    /// TCP's additive increase and multiplicative decrease, from the bandwidth-delay product on.
    pub const AIMD: CongestionChoice = CongestionChoice(&aimd::TCP);
    /// DCTCP; acknowledgements echo ECN marks, so both ends must choose it.
    pub const DCTCP: CongestionChoice = CongestionChoice(&dctcp::USUAL);

    /// All that come with the crate.
    pub const NAMED: [CongestionChoice; 9] = [
        CongestionChoice::NONE,
        CongestionChoice::DCQCN,
        CongestionChoice::DCQCN_CONNECTX,
        CongestionChoice::TIMELY,
        CongestionChoice::TIMELY_SCALED,
        CongestionChoice::TIMELY_SEGMENTS,
        CongestionChoice::TIMELY_BACKOFF,
        CongestionChoice::AIMD,
        CongestionChoice::DCTCP,
    ];

    /// An algorithm of one's own, whether it is registered or not.
    pub const fn of(algorithm: &'static Algorithm) -> CongestionChoice {
        CongestionChoice(algorithm)
    }

    /// Every name that is known now: those that come with the crate, then those that were registered, in that order.
    pub fn all() -> impl Iterator<Item = CongestionChoice> {
        let others = OTHERS.iter().map_while(OnceLock::get);
        CongestionChoice::NAMED.into_iter().chain(others.map(|algorithm| CongestionChoice(algorithm)))
    }

    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<CongestionChoice> {
        CongestionChoice::all().find(|choice| choice.name() == name)
    }

    /// Its name in plans and on command lines.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// All that is known of it.
    pub const fn algorithm(self) -> &'static Algorithm {
        self.0
    }

    /// Whether it listens to ECN marks, so that its packets should be sent as ECN-capable.
    pub const fn uses_ecn(self) -> bool {
        !matches!(self.0.marks, super::Marks::Ignored)
    }

    /// Whether marks come back in acknowledgements instead of in CNPs.
    pub const fn echoes_marks(self) -> bool {
        matches!(self.0.marks, super::Marks::Echoes)
    }

    /// The state machine of a new flow.
    pub fn start(self, start: &Start) -> Congestion {
        let start = Start { bdp_packets: start.bdp_packets.min(start.window_max), ..*start };
        (self.0.start)(&start).into()
    }
}

/// Makes an algorithm's name known to plans, hosts and command lines of this program. Doing it again changes nothing.
///
/// # Errors
/// [`RegisterError`]: the name is no name, or another algorithm's.
pub fn register(algorithm: &'static Algorithm) -> Result<CongestionChoice, RegisterError> {
    let name = algorithm.name;
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(is_letter) {
        return Err(RegisterError::NoName(name));
    }
    if CongestionChoice::NAMED.iter().any(|choice| choice.name() == name) {
        return Err(RegisterError::Taken(name));
    }
    for place in &OTHERS {
        let there = *place.get_or_init(|| algorithm);
        if std::ptr::eq(there, algorithm) {
            return Ok(CongestionChoice(algorithm));
        }
        if there.name == name {
            return Err(RegisterError::Taken(name));
        }
    }
    Err(RegisterError::Full)
}

/// Why an algorithm's name is not known now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// A name consists of small letters, digits and hyphens.
    NoName(&'static str),
    /// Another algorithm has the name.
    Taken(&'static str),
    /// There are too many.
    Full,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::NoName(name) => {
                write!(f, "`{name}` is no name: small letters, digits and hyphens make one")
            }
            RegisterError::Taken(name) => write!(f, "another congestion control is called `{name}`"),
            RegisterError::Full => write!(f, "{OTHERS_MAX} congestion controls are registered, and no more"),
        }
    }
}

impl std::error::Error for RegisterError {}

impl Default for CongestionChoice {
    fn default() -> CongestionChoice {
        CongestionChoice::NONE
    }
}

/// Names are unique.
impl PartialEq for CongestionChoice {
    fn eq(&self, other: &CongestionChoice) -> bool {
        std::ptr::eq(self.0, other.0) || self.name() == other.name()
    }
}

impl Eq for CongestionChoice {}

impl fmt::Debug for CongestionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CongestionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no congestion control's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCongestion(pub String);

impl fmt::Display for UnknownCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = CongestionChoice::all().map(CongestionChoice::name).collect();
        write!(f, "`{}` is none of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownCongestion {}

impl FromStr for CongestionChoice {
    type Err = UnknownCongestion;

    fn from_str(text: &str) -> Result<CongestionChoice, UnknownCongestion> {
        CongestionChoice::named(text).ok_or_else(|| UnknownCongestion(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rate;
    use super::*;

    const START: Start =
        Start { line_rate: Rate::from_gbps(40), bdp_packets: 111, window_max: 4096, packet_bytes: 1086 };

    #[test]
    fn names_lead_back_to_choices_and_wrong_ones_name_the_right_ones() {
        for choice in CongestionChoice::NAMED {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "bbr".parse::<CongestionChoice>().expect_err("no such thing");
        assert!(
            error.to_string().starts_with(
                "`bbr` is none of none, dcqcn, dcqcn-connectx, timely, timely-scaled, timely-segments, timely-backoff, aimd, dctcp"
            ),
            "{error}"
        );
    }

    #[test]
    fn every_flow_starts_at_line_rate_or_with_the_bandwidth_delay_product() {
        for choice in CongestionChoice::NAMED {
            let congestion = choice.start(&START);
            assert!(congestion.rate().is_none_or(|rate| rate == Rate::from_gbps(40)), "{choice}");
            assert!(congestion.window().is_none_or(|window| window == 111), "{choice}");
        }
        let narrow = Start { window_max: 16, ..START };
        assert_eq!(CongestionChoice::AIMD.start(&narrow).window(), Some(16));
    }

    #[test]
    fn a_registered_name_is_known_once_and_only_with_its_own_algorithm() {
        static MINE: Algorithm = Algorithm::new("mine-1", "half of the link", &|_| None);
        static OTHER: Algorithm = Algorithm::new("mine-1", "another one", &|_| None);
        static BUILT_IN: Algorithm = Algorithm::new("dcqcn", "an impostor", &|_| None);
        static BAD: Algorithm = Algorithm::new("My CC", "no name", &|_| None);
        assert_eq!(register(&MINE), Ok(CongestionChoice::of(&MINE)));
        assert_eq!(register(&MINE), Ok(CongestionChoice::of(&MINE)));
        assert_eq!("mine-1".parse(), Ok(CongestionChoice::of(&MINE)));
        assert_eq!(CongestionChoice::all().filter(|choice| choice.name() == "mine-1").count(), 1);
        assert_eq!(register(&OTHER), Err(RegisterError::Taken("mine-1")));
        assert_eq!(register(&BUILT_IN), Err(RegisterError::Taken("dcqcn")));
        assert_eq!(register(&BAD), Err(RegisterError::NoName("My CC")));
    }
}
