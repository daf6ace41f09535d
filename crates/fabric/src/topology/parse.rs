//! A graph from text: [`Topology::parse`] shows the form.
//!
//! One pass over the lines, then the checks that need them all. Every error names its line.

use std::collections::BTreeMap;
use std::fmt;

use super::{LinkSpec, NodeId, Router, Topology};
use crate::{Rate, Span};

/// Where a topology's text is wrong, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: ParseProblem,
}

/// What can be wrong with a topology's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParseProblem {
    /// The line begins with something else than a statement.
    UnknownStatement(String),
    /// A statement has too few or too many words; here is its form.
    WrongForm(&'static str),
    /// Neither a rate nor a delay.
    NotARateOrDelay(String),
    /// A link without a rate or a delay, and no default to take it from.
    NoDefault {
        /// `rate` or `delay`.
        what: &'static str,
    },
    /// A name that no earlier line declares.
    UnknownName {
        /// The name.
        name: String,
        /// The declared name most like it.
        nearest: Option<String>,
    },
    /// A name that an earlier line declares as well.
    NameTaken(String),
    /// Both ends of a link are the same node.
    LinkToItself(String),
    /// A host's second link.
    SecondLink(String),
    /// A host that has no link (the line declares it).
    NoLink(String),
    /// A link from host to host.
    NoSwitchBetween(String, String),
    /// Two hosts without a way between them (the line declares the second).
    NotConnected(String, String),
    /// The text declares fewer than two hosts (the line is its last).
    TooFewHosts,
    /// A switch with more than 4096 links.
    TooManyPorts(String),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for ParseProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ParseProblem::*;
        match self {
            UnknownStatement(word) => {
                write!(f, "`{word}` is no statement; there are `default`, `host`, `switch` and `link`")
            }
            WrongForm(form) => write!(f, "expected `{form}`"),
            NotARateOrDelay(word) => {
                write!(f, "`{word}` is neither a rate (like 40Gbps) nor a delay (like 2us or 500ns)")
            }
            NoDefault { what } => write!(f, "the link gives no {what}, and no `default` line before it does"),
            UnknownName { name, nearest: Some(near) } => {
                write!(f, "no host or switch is called `{name}`; is it `{near}`?")
            }
            UnknownName { name, nearest: None } => write!(f, "no host or switch is called `{name}`"),
            NameTaken(name) => write!(f, "there is a `{name}` already"),
            LinkToItself(name) => write!(f, "a link from `{name}` to itself"),
            SecondLink(name) => write!(f, "host `{name}` has a link already; a host has exactly one"),
            NoLink(name) => write!(f, "host `{name}` has no link"),
            NoSwitchBetween(a, b) => write!(f, "`{a}` and `{b}` are hosts; put a switch between them"),
            NotConnected(a, b) => write!(f, "there is no way from `{a}` to `{b}`"),
            TooFewHosts => write!(f, "a network needs at least two hosts"),
            TooManyPorts(name) => write!(f, "switch `{name}` has more than {PORTS_MAX} links"),
        }
    }
}

const PORTS_MAX: u16 = 4096;

/// Reads a rate such as `40Gbps`, `2.5Gbps`, `100Mbps` or `1Tbps`.
pub fn parse_rate(text: &str) -> Option<Rate> {
    let units = [("Kbps", 1_000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000), ("Tbps", 1_000_000_000_000)];
    let bps = scaled(text, &units).or_else(|| scaled(text, &[("bps", 1)]))?;
    (1..=8_192_000_000_000_000).contains(&bps).then(|| Rate::from_bps(bps))
}

/// Reads a span such as `2us`, `1.5us`, `500ns`, `1ms`, `1s` or `250ps`.
pub fn parse_span(text: &str) -> Option<Span> {
    let units = [("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000)];
    let ps = scaled(text, &units).or_else(|| scaled(text, &[("s", 1_000_000_000_000)]))?;
    Some(Span::from_ps(ps))
}

/// A decimal number with one of these units, exactly.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|&(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || number.ends_with('.') {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes().map(|b| u64::from(b - b'0')) {
        if digit != 0 && !place.is_multiple_of(10) {
            return None;
        }
        place /= 10;
        value = value.checked_add(digit * place)?;
    }
    Some(value)
}

#[derive(Default)]
struct Reader {
    names: BTreeMap<String, NodeId>,
    host_lines: Vec<usize>,
    hosts: Vec<String>,
    switches: Vec<String>,
    links: Vec<(NodeId, NodeId, LinkSpec)>,
    linked: Vec<bool>,
    port_counts: Vec<u16>,
    rate: Option<Rate>,
    delay: Option<Span>,
}

impl Topology {
    /// Reads a graph. Packets take all shortest ways through it.
    ///
    /// ```text
    /// # two racks; the default holds for links that say nothing else
    /// default 40Gbps 2us
    /// host a b c
    /// switch s t
    /// link a s
    /// link b s
    /// link c t 10Gbps
    /// link s t 100Gbps 500ns
    /// ```
    ///
    /// One statement per line; `#` begins a comment. Names are declared before they are used. A host has exactly one link;
    /// switches may be joined by several.
    ///
    /// # Errors
    /// The first line that is wrong, and how.
    pub fn parse(text: &str) -> Result<Topology, ParseError> {
        let mut reader = Reader::default();
        let mut last = 1;
        for (number, line) in text.lines().enumerate() {
            last = number + 1;
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            reader.read(last, &words).map_err(|problem| ParseError { line: last, problem })?;
        }
        reader.finish(last)
    }
}

impl Reader {
    fn read(&mut self, line: usize, words: &[&str]) -> Result<(), ParseProblem> {
        match words {
            [] => Ok(()),
            ["default", spec @ ..] if (1..=2).contains(&spec.len()) => {
                (self.rate, self.delay) = self.spec(spec)?;
                Ok(())
            }
            ["host", names @ ..] if !names.is_empty() => {
                names.iter().try_for_each(|name| self.declare_host(line, name))
            }
            ["switch", names @ ..] if !names.is_empty() => {
                names.iter().try_for_each(|name| self.declare_switch(name))
            }
            ["link", a, b, spec @ ..] if spec.len() <= 2 => self.link(a, b, spec),
            ["default", ..] => Err(ParseProblem::WrongForm("default RATE DELAY")),
            ["host", ..] => Err(ParseProblem::WrongForm("host NAME...")),
            ["switch", ..] => Err(ParseProblem::WrongForm("switch NAME...")),
            ["link", ..] => Err(ParseProblem::WrongForm("link NAME NAME [RATE] [DELAY]")),
            [word, ..] => Err(ParseProblem::UnknownStatement((*word).to_owned())),
        }
    }

    /// Rate and delay from words in any order, the rest from the default.
    fn spec(&self, words: &[&str]) -> Result<(Option<Rate>, Option<Span>), ParseProblem> {
        let (mut rate, mut delay) = (self.rate, self.delay);
        for word in words {
            if let Some(r) = parse_rate(word) {
                rate = Some(r);
            } else if let Some(d) = parse_span(word) {
                delay = Some(d);
            } else {
                return Err(ParseProblem::NotARateOrDelay((*word).to_owned()));
            }
        }
        Ok((rate, delay))
    }

    fn declare(&mut self, name: &str, node: NodeId) -> Result<(), ParseProblem> {
        match self.names.insert(name.to_owned(), node) {
            None => Ok(()),
            Some(_) => Err(ParseProblem::NameTaken(name.to_owned())),
        }
    }

    fn declare_host(&mut self, line: usize, name: &str) -> Result<(), ParseProblem> {
        self.declare(name, NodeId::Host(self.hosts.len() as u32))?;
        self.hosts.push(name.to_owned());
        self.host_lines.push(line);
        self.linked.push(false);
        Ok(())
    }

    fn declare_switch(&mut self, name: &str) -> Result<(), ParseProblem> {
        self.declare(name, NodeId::Switch(self.switches.len() as u32))?;
        self.switches.push(name.to_owned());
        self.port_counts.push(0);
        Ok(())
    }

    fn link(&mut self, a: &str, b: &str, spec: &[&str]) -> Result<(), ParseProblem> {
        let (from, to) = (self.node(a)?, self.node(b)?);
        if from == to {
            return Err(ParseProblem::LinkToItself(a.to_owned()));
        }
        if let (NodeId::Host(_), NodeId::Host(_)) = (from, to) {
            return Err(ParseProblem::NoSwitchBetween(a.to_owned(), b.to_owned()));
        }
        let (rate, delay) = self.spec(spec)?;
        let rate = rate.ok_or(ParseProblem::NoDefault { what: "rate" })?;
        let delay = delay.ok_or(ParseProblem::NoDefault { what: "delay" })?;
        for (node, name) in [(from, a), (to, b)] {
            match node {
                NodeId::Host(h) if std::mem::replace(&mut self.linked[h as usize], true) => {
                    return Err(ParseProblem::SecondLink(name.to_owned()));
                }
                NodeId::Host(_) => {}
                NodeId::Switch(s) => {
                    self.port_counts[s as usize] += 1;
                    if self.port_counts[s as usize] > PORTS_MAX {
                        return Err(ParseProblem::TooManyPorts(name.to_owned()));
                    }
                }
            }
        }
        self.links.push((from, to, LinkSpec { rate, delay }));
        Ok(())
    }

    fn node(&self, name: &str) -> Result<NodeId, ParseProblem> {
        self.names.get(name).copied().ok_or_else(|| {
            let near = self.names.keys().map(|known| (strsim::levenshtein(name, known), known)).min();
            let nearest = near.filter(|&(d, _)| d <= 1 + name.len() / 3).map(|(_, n)| n.clone());
            ParseProblem::UnknownName { name: name.to_owned(), nearest }
        })
    }

    fn finish(self, last_line: usize) -> Result<Topology, ParseError> {
        let at_host = |h: usize, problem| ParseError { line: self.host_lines[h], problem };
        if self.hosts.len() < 2 {
            return Err(ParseError { line: last_line, problem: ParseProblem::TooFewHosts });
        }
        if let Some(h) = self.linked.iter().position(|&linked| !linked) {
            return Err(at_host(h, ParseProblem::NoLink(self.hosts[h].clone())));
        }
        let (hosts, switches) = (self.hosts.len(), self.switches.len());
        let mut t = Topology::new(format!("graph, {hosts} hosts, {switches} switches"), hosts as u32);
        t.host_names.clone_from(&self.hosts);
        for name in &self.switches {
            t.add_switch(name.clone(), Router::Table);
        }
        for &(a, b, spec) in &self.links {
            t.connect(a, b, spec);
        }
        t.route_by_tables(|_| true);
        let NodeId::Switch(first) = t.neighbours()[0][0].0 else { unreachable!("hosts hang on switches") };
        for h in 1..hosts {
            if t.tables.ways(first, h as u32).is_empty() {
                let problem = ParseProblem::NotConnected(self.hosts[0].clone(), self.hosts[h].clone());
                return Err(at_host(h, problem));
            }
        }
        Ok(t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        assert_eq!(
            Topology::parse(text).map(|t| t.name).map_err(|e| e.to_string()),
            Err(expected.to_owned())
        );
    }

    #[test]
    fn units_are_exact() {
        assert_eq!(parse_rate("40Gbps"), Some(Rate::from_gbps(40)));
        assert_eq!(parse_rate("2.5Gbps"), Some(Rate::from_bps(2_500_000_000)));
        assert_eq!(parse_span("1.5us"), Some(Span::from_ns(1500)));
        assert_eq!(parse_span("43ns"), Some(Span::from_ns(43)));
        assert_eq!(parse_span("1s"), Some(Span::from_ms(1000)));
        for wrong in ["", "us", "1", "1.us", ".5us", "-1us", "0.5ps", "1e3us", "99999999999999999999s"] {
            assert_eq!(parse_span(wrong), None, "{wrong}");
        }
        assert_eq!((parse_rate("0Gbps"), parse_rate("9999Tbps")), (None, None));
    }

    #[test]
    fn no_text_makes_it_panic() {
        let words = [
            "default", "host", "switch", "link", "a", "b", "s", "t", "40Gbps", "2us", "#", "1.5", "\n", "\n",
            "é",
        ];
        let mut rng = highwire_stdx::Rng::new(9);
        let mut good = 0;
        for _ in 0..20_000 {
            let head = if rng.chance(0.5) { "default 1Gbps 1us\nhost a b\nswitch s t\n" } else { "" };
            let tail: Vec<&str> = (0..rng.below(14)).map(|_| *rng.pick(&words)).collect();
            good += u32::from(Topology::parse(&format!("{head}{}", tail.join(" "))).is_ok());
        }
        assert!(
            Topology::parse("default 1Gbps 1us\nhost a b\nswitch s\nlink a s\nlink b s").is_ok()
                && good < 20_000
        );
    }

    #[test]
    fn errors_name_the_line_and_what_would_be_right() {
        let two = "default 40Gbps 2us\nhost a b\nswitch s1 s2\n";
        check_error(
            "hots a",
            "line 1: `hots` is no statement; there are `default`, `host`, `switch` and `link`",
        );
        check_error("host a\n\nlink a", "line 3: expected `link NAME NAME [RATE] [DELAY]`");
        check_error(
            "default fast",
            "line 1: `fast` is neither a rate (like 40Gbps) nor a delay (like 2us or 500ns)",
        );
        check_error(
            "host a b\nswitch s\nlink a s 1Gbps",
            "line 3: the link gives no delay, and no `default` line before it does",
        );
        check_error(&format!("{two}link a s3"), "line 4: no host or switch is called `s3`; is it `s1`?");
        check_error(&format!("{two}host s1"), "line 4: there is a `s1` already");
        check_error(&format!("{two}link s1 s1"), "line 4: a link from `s1` to itself");
        check_error(
            &format!("{two}link a s1\nlink a s2"),
            "line 5: host `a` has a link already; a host has exactly one",
        );
        check_error(&format!("{two}link a b"), "line 4: `a` and `b` are hosts; put a switch between them");
        check_error(&format!("{two}link a s1"), "line 2: host `b` has no link");
        check_error(&format!("{two}link a s1\nlink b s2"), "line 2: there is no way from `a` to `b`");
        check_error("host a # alone", "line 1: a network needs at least two hosts");
    }
}
