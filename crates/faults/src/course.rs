//! A scenario while it is played.
//!
//! The driver asks [`Course::call`] before each call that a scenario may refuse, [`Course::completion`] for each
//! completion that it hands to the program, and [`Course::registering`] for memory. After each of them, and at
//! [`Course::deadline`], it drains [`Course::poll_happening`].
//!
//! The log has a line for each thing that went wrong, without times: two runs of one seed in which the program asks the
//! same have the same log.

use crate::rules::{Announcement, Event, Misfortune, Port, Scenario, Start};
use crate::trigger::Fires;
use crate::words::{errno_name, status_name};
use highwire_stdx::{Duration, Instant, Rng};
use highwire_verbs::{CompletionOp, CompletionStatus};
use std::collections::{BTreeMap, VecDeque};

/// Rules that are played at once at most.
const RULES_MAX: usize = 16 * 1024;
/// Lines that wait for the driver at most.
const LINES_MAX: usize = 4096;

/// A call that is about to be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The function's public name.
    pub function: &'static str,
    /// The device that it is about.
    pub device: Option<usize>,
    /// The queue pair that it is about.
    pub queue_pair: Option<u64>,
    /// The thread, in the order of first calls, from 1.
    pub thread: u64,
}

/// A completion on its way to the program.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its device.
    pub device: usize,
    /// Its queue pair, if the process has made it.
    pub queue_pair: Option<u64>,
    /// Its operation.
    pub operation: CompletionOp,
    /// Its status.
    pub status: CompletionStatus,
}

/// What becomes of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is handed out as it is.
    Pass,
    /// It fails with this status, and its queue pair goes to ERR.
    Fail(CompletionStatus),
    /// It comes so much later.
    Late(Duration),
    /// It never comes.
    Missing,
}

/// Something that the driver has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The device changes.
    Change {
        /// Which.
        device: usize,
        /// How.
        event: Event,
    },
    /// The program is told of an earlier change.
    Announce {
        /// Which device.
        device: usize,
        /// What had happened.
        event: Event,
    },
}

/// A scenario while it is played.
#[derive(Clone, Debug)]
pub struct Course {
    scenario: Scenario,
    calls: Vec<Fires>,
    completions: Vec<Fires>,
    starts: Vec<Option<Fires>>,
    /// What each limit on registrations has used: bytes and regions.
    registered: Vec<(u64, u64)>,
    /// By time, and then in the order of the file and of causes.
    pending: BTreeMap<(Instant, u64), Happening>,
    next: u64,
    has_begun: bool,
    lines: VecDeque<String>,
    hash: u64,
}

/// The announcement of an event that undoes another.
const ONCE: Announcement = Announcement { times: 1, late: Duration::ZERO };

impl Course {
    /// Begins to play a scenario.
    pub fn new(scenario: Scenario) -> Course {
        let mut rng = Rng::new(scenario.seed);
        let mut stream = 0;
        let mut fires = |trigger| {
            stream += 1;
            Fires::new(trigger, rng.fork(stream))
        };
        let calls = scenario.calls.iter().map(|rule| fires(rule.trigger)).collect();
        let completions = scenario.completions.iter().map(|rule| fires(rule.trigger)).collect();
        let starts = scenario.events.iter().map(|rule| match rule.start {
            Start::Call(_, trigger) => Some(fires(trigger)),
            Start::After(_) => None,
        });
        Course {
            calls,
            completions,
            starts: starts.collect(),
            registered: vec![(0, 0); scenario.registrations.len()],
            scenario,
            pending: BTreeMap::new(),
            next: 0,
            has_begun: false,
            lines: VecDeque::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The first device is opened: times count from here. Later calls change nothing.
    pub fn begin(&mut self, now: Instant) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        for index in 0..self.scenario.events.len() {
            if let Start::After(after) = self.scenario.events[index].start {
                self.schedule(now + after, index);
            }
        }
    }

    /// Adds another scenario's rules to those that are played; its devices and seed are not heeded. Its times count from now.
    ///
    /// # Errors
    /// There would be too many.
    pub fn add(&mut self, now: Instant, more: Scenario) -> Result<(), String> {
        let rules = |of: &Scenario| {
            of.calls.len() + of.completions.len() + of.registrations.len() + of.events.len() + of.paths.len()
        };
        if rules(&self.scenario) + rules(&more) > RULES_MAX {
            return Err(format!("a program plays {RULES_MAX} rules at most"));
        }
        self.scenario.paths.extend(more.paths);
        let mut rng = Rng::new(self.scenario.seed).fork(u64::MAX - self.next);
        let first = self.scenario.events.len();
        for rule in more.calls {
            self.calls.push(Fires::new(rule.trigger, rng.fork(1)));
            self.scenario.calls.push(rule);
        }
        for rule in more.completions {
            self.completions.push(Fires::new(rule.trigger, rng.fork(2)));
            self.scenario.completions.push(rule);
        }
        for rule in more.registrations {
            self.registered.push((0, 0));
            self.scenario.registrations.push(rule);
        }
        for rule in more.events {
            self.starts.push(match rule.start {
                Start::Call(_, trigger) => Some(Fires::new(trigger, rng.fork(3))),
                Start::After(_) => None,
            });
            self.scenario.events.push(rule);
        }
        for index in first..self.scenario.events.len() {
            if let Start::After(after) = self.scenario.events[index].start {
                self.schedule(now + after, index);
            }
        }
        Ok(())
    }

    /// A call is about to be carried out; the errno with which it fails instead, if it does. The time is asked for only if an event begins.
    pub fn call(&mut self, now: impl Fn() -> Instant, call: &Call) -> Option<i32> {
        for index in 0..self.scenario.events.len() {
            let Some(fires) = &mut self.starts[index] else { continue };
            let rule = &self.scenario.events[index];
            let is_it = matches!(&rule.start, Start::Call(function, _) if *function == call.function);
            if is_it && fires.on().is_some() {
                self.schedule(now(), index);
            }
        }
        let mut refusal = None;
        for (rule, fires) in self.scenario.calls.iter().zip(&mut self.calls) {
            let is_about = rule.function == call.function
                && rule.device.is_none_or(|device| call.device == Some(device))
                && rule.queue_pair.is_none_or(|number| call.queue_pair == Some(number))
                && rule.thread.is_none_or(|thread| call.thread == thread);
            if is_about && let Some(number) = fires.on() {
                refusal.get_or_insert((number, rule.errno));
            }
        }
        let (number, errno) = refusal?;
        self.note(format!("call {number} of {}: {}", call.function, errno_name(errno)));
        Some(errno)
    }

    /// Memory is about to be registered.
    ///
    /// # Errors
    /// The errno with which that fails instead.
    pub fn registering(&mut self, device: usize, bytes: u64) -> Result<(), i32> {
        let limits = self.scenario.registrations.iter().zip(&self.registered);
        let full =
            limits.filter(|(rule, _)| rule.device.is_none_or(|only| only == device)).find(|(rule, used)| {
                rule.bytes.is_some_and(|most| used.0.saturating_add(bytes) > most)
                    || rule.regions.is_some_and(|most| used.1 >= most)
            });
        if let Some(errno) = full.map(|(rule, _)| rule.errno) {
            self.note(format!("a registration of {bytes} bytes is beyond the limit: {}", errno_name(errno)));
            return Err(errno);
        }
        self.count(device, |used| *used = (used.0.saturating_add(bytes), used.1.saturating_add(1)));
        Ok(())
    }

    /// Memory is registered no more, or could not be.
    pub fn deregistered(&mut self, device: usize, bytes: u64) {
        self.count(device, |used| *used = (used.0.saturating_sub(bytes), used.1.saturating_sub(1)));
    }

    /// Counts a registration again that was given back for a moment.
    pub fn restore(&mut self, device: usize, bytes: u64) {
        self.count(device, |used| *used = (used.0.saturating_add(bytes), used.1.saturating_add(1)));
    }

    fn count(&mut self, device: usize, change: impl Fn(&mut (u64, u64))) {
        let limits = self.scenario.registrations.iter().zip(&mut self.registered);
        limits
            .filter(|(rule, _)| rule.device.is_none_or(|only| only == device))
            .for_each(|(_, used)| change(used));
    }

    /// A completion is about to be handed to the program. Failed ones are let through and not counted.
    pub fn completion(&mut self, seen: &Seen) -> Fate {
        if seen.status != CompletionStatus::Success {
            return Fate::Pass;
        }
        let mut found = None;
        for (rule, fires) in self.scenario.completions.iter().zip(&mut self.completions) {
            let is_about = rule.device.is_none_or(|device| seen.device == device)
                && rule.queue_pair.is_none_or(|number| seen.queue_pair == Some(number))
                && (rule.operations.is_empty() || rule.operations.contains(&seen.operation));
            if is_about && let Some(number) = fires.on() {
                found.get_or_insert((number, rule.misfortune));
            }
        }
        let Some((number, misfortune)) = found else { return Fate::Pass };
        let (fate, words) = match misfortune {
            Misfortune::Status(status) => (Fate::Fail(status), status_name(status).to_string()),
            Misfortune::Late(late) => (Fate::Late(late), format!("{} us late", late.as_nanos() / 1000)),
            Misfortune::Missing => (Fate::Missing, "missing".to_string()),
        };
        self.note(format!("completion {number}: {words}"));
        fate
    }

    /// Puts a rule's event and what follows from it in its place.
    fn schedule(&mut self, at: Instant, index: usize) {
        let rule = &self.scenario.events[index];
        let (device, event, lasts, announcement) = (rule.device, rule.event, rule.lasts, rule.announcement);
        self.put(at, device, event, announcement);
        if let Some(lasts) = lasts {
            self.put(at + lasts, device, undone(event), ONCE);
        }
    }

    fn put(&mut self, at: Instant, device: usize, event: Event, announcement: Announcement) {
        self.push(at, Happening::Change { device, event });
        for _ in 0..announcement.times {
            self.push(at + announcement.late, Happening::Announce { device, event });
        }
    }

    fn push(&mut self, at: Instant, happening: Happening) {
        self.next += 1;
        self.pending.insert((at, self.next), happening);
    }

    /// When something happens next.
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next thing that has happened by now.
    pub fn poll_happening(&mut self, now: Instant) -> Option<Happening> {
        let entry = self.pending.first_entry().filter(|entry| entry.key().0 <= now)?;
        let happening = entry.remove();
        if let Happening::Change { device, event } = happening {
            self.note(format!("device {device}: {}", name_of(event)));
        }
        Some(happening)
    }

    fn note(&mut self, line: String) {
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if self.lines.len() < LINES_MAX {
            self.lines.push_back(line);
        }
    }

    /// The next line of the log.
    pub fn poll_line(&mut self) -> Option<String> {
        self.lines.pop_front()
    }

    /// A number that is the same after the same things have gone wrong in the same order.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// What ends an event that lasts for a while.
fn undone(event: Event) -> Event {
    match event {
        Event::Port(number, _) => Event::Port(number, Port::Active),
        Event::Removal => Event::Return,
        _ => Event::Sound,
    }
}

/// An event's name, as a file writes it.
fn name_of(event: Event) -> String {
    let of_port = |name: &str, number: u8| match number {
        1 => name.to_string(),
        number => format!("{name} {number}"),
    };
    match event {
        Event::Port(number, Port::Down) => of_port("port-down", number),
        Event::Port(number, Port::Init) => of_port("port-init", number),
        Event::Port(number, Port::Active) => of_port("port-up", number),
        Event::Fatal => "device-fatal".into(),
        Event::Removal => "device-removal".into(),
        Event::Return => "device-return".into(),
        Event::GidChange(number) => of_port("gid-change", number),
        Event::QueuePairError(number) => format!("queue-pair-error {number}"),
        Event::Silence => "silence".into(),
        Event::Sound => "silence ends".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(text: &str) -> Course {
        Course::new(Scenario::read("f", text).unwrap_or_else(|error| panic!("{error}")))
    }

    fn call(function: &'static str) -> Call {
        Call { function, device: Some(0), queue_pair: None, thread: 1 }
    }

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn the_second_call_fails_and_only_that() {
        let mut course = course("[[call]]\nfunction = \"ibv_create_cq\"\nnth = 2\nerrno = \"ENOMEM\"");
        let found: Vec<_> = (0..4).map(|_| course.call(|| NOW, &call("ibv_create_cq"))).collect();
        assert_eq!(found, [None, Some(12), None, None]);
        assert_eq!(course.call(|| NOW, &call("ibv_alloc_pd")), None);
        assert_eq!(course.poll_line().as_deref(), Some("call 2 of ibv_create_cq: ENOMEM"));
        assert_eq!(course.poll_line(), None);
    }

    #[test]
    fn filters_count_only_what_they_are_about() {
        let rule =
            "[[call]]\nfunction = \"ibv_post_send\"\nerrno = \"EAGAIN\"\nqueue_pair = 2\nthread = 3\nnth = 2";
        let mut course = course(rule);
        let mut post = |queue_pair, thread| {
            let call = Call { queue_pair: Some(queue_pair), thread, ..call("ibv_post_send") };
            course.call(|| NOW, &call)
        };
        assert_eq!([post(2, 3), post(1, 3), post(2, 1), post(2, 3)], [None, None, None, Some(11)]);
    }

    #[test]
    fn memory_is_refused_beyond_a_limit_and_not_after_it_is_freed() {
        let mut course = course("[[registration]]\nbytes = \"8KiB\"\nregions = 2");
        assert_eq!(course.registering(0, 4096), Ok(()));
        assert_eq!(course.registering(0, 4097), Err(12));
        assert_eq!(course.registering(0, 1), Ok(()));
        assert_eq!(course.registering(0, 1), Err(12), "two regions");
        course.deregistered(0, 4096);
        assert_eq!(course.registering(0, 8191), Ok(()));
    }

    #[test]
    fn completions_fail_and_failed_ones_are_not_counted() {
        let mut course = course(
            "[[completion]]\noperation = \"write\"\nnth = 2\nstatus = \"IBV_WC_RETRY_EXC_ERR\"\n[[completion]]\noperation = \"receive\"\nmissing = true",
        );
        let mut see = |operation, status| {
            course.completion(&Seen { device: 0, queue_pair: Some(1), operation, status })
        };
        let good = CompletionStatus::Success;
        assert_eq!(see(CompletionOp::Write, good), Fate::Pass);
        assert_eq!(see(CompletionOp::Write, CompletionStatus::Flushed), Fate::Pass);
        assert_eq!(see(CompletionOp::Send, good), Fate::Pass);
        assert_eq!(see(CompletionOp::Write, good), Fate::Fail(CompletionStatus::RetryExceeded));
        assert_eq!(see(CompletionOp::Receive, good), Fate::Missing);
        assert_eq!(see(CompletionOp::Receive, good), Fate::Pass);
    }

    #[test]
    fn a_flap_is_two_changes_each_told_once() {
        let mut course =
            course("[[event]]\ndo = \"port-down\"\nafter = \"5ms\"\nlasts = \"10ms\"\nannounced = \"twice\"");
        assert_eq!(course.deadline(), None);
        let at = |millis| NOW + Duration::from_millis(millis);
        course.begin(at(100));
        course.begin(at(0));
        assert_eq!((course.deadline(), course.poll_happening(at(104))), (Some(at(105)), None));
        let down = Event::Port(1, Port::Down);
        let up = Event::Port(1, Port::Active);
        let all: Vec<_> = std::iter::from_fn(|| course.poll_happening(at(200))).collect();
        let change = |event| Happening::Change { device: 0, event };
        let announce = |event| Happening::Announce { device: 0, event };
        assert_eq!(all, [change(down), announce(down), announce(down), change(up), announce(up)]);
    }

    #[test]
    fn a_change_may_be_told_later_or_never() {
        let all = |text: &str| {
            let mut course = course(&format!("[[event]]\ndo = \"gid-change\"\nafter = \"1ms\"\n{text}"));
            course.begin(NOW);
            let at = |millis| NOW + Duration::from_millis(millis);
            let early = std::iter::from_fn(|| course.poll_happening(at(1))).count();
            (early, std::iter::from_fn(|| course.poll_happening(at(9))).count())
        };
        assert_eq!(all(""), (2, 0));
        assert_eq!(all("late = \"5ms\""), (1, 1));
        assert_eq!(all("announced = \"never\""), (1, 0));
    }

    #[test]
    fn a_removal_ends_with_a_return_and_a_port_by_its_number() {
        let all = |text: &str| {
            let mut course = course(&format!(
                "[[device]]\nports = 2\n[[event]]\nafter = \"1ms\"\nlasts = \"1ms\"\n{text}"
            ));
            course.begin(NOW);
            while course.poll_happening(NOW + Duration::from_millis(9)).is_some() {}
            std::iter::from_fn(|| course.poll_line()).collect::<Vec<_>>()
        };
        let removed = ["device 0: device-removal", "device 0: device-return"];
        assert_eq!(all("do = \"device-removal\""), removed);
        assert_eq!(all("do = \"port-down\"\nport = 2"), ["device 0: port-down 2", "device 0: port-up 2"]);
        assert_eq!(all("do = \"port-down\""), ["device 0: port-down", "device 0: port-up"]);
    }

    #[test]
    fn an_event_at_a_call_is_there_before_the_call() {
        let mut course = course("[[event]]\ndo = \"device-fatal\"\ncall = \"ibv_post_send\"\nnth = 2");
        course.call(|| NOW, &call("ibv_post_send"));
        assert_eq!(course.poll_happening(NOW), None);
        course.call(|| NOW, &call("ibv_post_send"));
        assert_eq!(course.poll_happening(NOW), Some(Happening::Change { device: 0, event: Event::Fatal }));
    }

    #[test]
    fn rules_that_come_later_count_from_then() {
        let mut course = course("control = true");
        course.begin(NOW);
        let text = "[[event]]\ndo = \"port-down\"\nafter = \"5ms\"\n[[call]]\nfunction = \"ibv_alloc_pd\"\nerrno = \"EIO\"";
        let more = Scenario::read_more("f", text, course.scenario()).expect("right");
        let now = NOW + Duration::from_millis(100);
        course.add(now, more).expect("few");
        assert_eq!(course.deadline(), Some(now + Duration::from_millis(5)));
        assert_eq!(course.call(|| now, &call("ibv_alloc_pd")), Some(5));
        let devices = Scenario::read_more("f", "[[device]]", course.scenario()).expect_err("they stay");
        assert!(devices.problem.contains("stay as they are"));
    }

    #[test]
    fn one_seed_has_one_log() {
        let text = |seed: u64| {
            format!(
                "seed = {seed}\n[[call]]\nfunction = \"ibv_post_send\"\nerrno = \"EAGAIN\"\nprobability = \"10%\"\ntimes = \"forever\""
            )
        };
        let run = |seed| {
            let mut course = course(&text(seed));
            for _ in 0..500 {
                course.call(|| NOW, &call("ibv_post_send"));
            }
            course.hash()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
