//! Many connections over a bad network, for many seeds: every conversation ends as it should, and nothing stays behind.

mod harness;

use std::collections::BTreeMap;

use harness::{Faults, Net, SERVICE, reply};
use highwire_cm::{CommId, Event};
use highwire_stdx::{Duration, Instant, Rng};
use highwire_wire::Qpn;
use highwire_wire::cm::{RejectReason, SidrStatus};

const SEEDS: u64 = 300;
const CONNECTIONS: u32 = 12;

/// Counts of what has happened to the connections of one end.
#[derive(Default, Debug)]
struct Ledger {
    requested: u32,
    established: u32,
    rejected: u32,
    unreachable: u32,
    disconnected: u32,
    answered: u32,
    /// Decisions that the application takes later.
    decisions: BTreeMap<(Instant, CommId), Decision>,
}

#[derive(Clone, Copy, Debug)]
enum Decision {
    Accept,
    Reject,
    Establish,
    Disconnect,
    Release,
    Answer,
}

struct Run {
    net: Net,
    rng: Rng,
    ends: [Ledger; 2],
}

impl Run {
    fn new(seed: u64, faults: Faults) -> Run {
        let mut net = Net::new(2, seed, faults);
        for end in 0..2 {
            net.end(end).listen(SERVICE).expect("nobody listens yet");
        }
        Run { net, rng: Rng::new(!seed), ends: Default::default() }
    }

    fn decide(&mut self, end: usize, id: CommId, decision: Decision) {
        let at = self.net.now + Duration::from_micros(self.rng.between(1, 400_000));
        self.ends[end].decisions.insert((at, id), decision);
    }

    fn on_event(&mut self, end: usize, event: &Event) {
        let id = event.id();
        let ledger = &mut self.ends[end];
        match event {
            Event::Requested { .. } => {
                ledger.requested += 1;
                let decision = if self.rng.chance(0.2) { Decision::Reject } else { Decision::Accept };
                self.decide(end, id, decision);
            }
            Event::Replied { .. } => self.decide(end, id, Decision::Establish),
            Event::Established { .. } => {
                ledger.established += 1;
                self.decide(end, id, Decision::Disconnect);
            }
            Event::Rejected { .. } => {
                ledger.rejected += 1;
                self.decide(end, id, Decision::Release);
            }
            Event::Unreachable { .. } => {
                ledger.unreachable += 1;
                self.decide(end, id, Decision::Release);
            }
            Event::Disconnected { .. } => {
                ledger.disconnected += 1;
                self.decide(end, id, Decision::Release);
            }
            Event::TimewaitExited { .. } => {}
            Event::ServiceRequested { .. } => self.decide(end, id, Decision::Answer),
            Event::ServiceAnswered { .. } => ledger.answered += 1,
            Event::ServiceUnreachable { .. } => ledger.unreachable += 1,
        }
    }

    fn act(&mut self, end: usize, id: CommId, decision: Decision) {
        let (now, qpn) = (self.net.now, id.0 >> 8);
        let manager = self.net.end(end);
        // An application cannot know in which state its decision arrives: a late call is refused, without
        // other effect.
        let _ = match decision {
            Decision::Accept => manager.accept(now, id, &reply(qpn), 0),
            Decision::Reject => manager.reject(id, RejectReason::CONSUMER, &[], b"no").map(|()| {
                manager.release(now, id);
            }),
            Decision::Establish => manager.establish(id),
            Decision::Disconnect => manager.disconnect(now, id, &[]),
            Decision::Answer => manager.answer_service(now, id, SidrStatus::SUCCESS, (Qpn::new(qpn), 1), &[]),
            Decision::Release => {
                manager.release(now, id);
                Ok(())
            }
        };
    }

    /// Runs until nothing more can happen.
    fn run(&mut self) {
        loop {
            self.net.drain();
            for end in 0..2 {
                for event in self.net.events(end) {
                    self.on_event(end, &event);
                }
            }
            let due =
                self.ends.iter().filter_map(|ledger| ledger.decisions.keys().next()).map(|&(at, _)| at).min();
            let until = due.unwrap_or(self.net.now + Duration::from_secs(3600));
            if self.net.step(until) {
                continue;
            }
            if due.is_none() {
                return;
            }
            for end in 0..2 {
                while let Some((&(at, id), &decision)) = self.ends[end].decisions.first_key_value()
                    && at <= self.net.now
                {
                    self.ends[end].decisions.remove(&(at, id));
                    self.act(end, id, decision);
                }
            }
        }
    }
}

fn check(seed: u64, faults: Faults) -> String {
    let mut run = Run::new(seed, faults);
    for n in 0..CONNECTIONS {
        let from = (n % 2) as usize;
        run.net.connect(from, 1 - from, 0x100 + n);
        if n % 3 == 0 {
            let (now, to) = (run.net.now, run.net.ends[1 - from].gid);
            run.net.end(from).ask_service(now, to, SERVICE, 0xFFFF, &[]).expect("short enough");
        }
    }
    run.run();
    let [a, b] = &run.ends;
    let story = format!("seed {seed}: {a:?} {b:?}");
    // A request whose refusal is lost again and again is forgotten, and looks new once more.
    let requested = a.requested + b.requested;
    assert!((CONNECTIONS..=CONNECTIONS + 2).contains(&requested), "{story}");
    assert_eq!(a.unreachable + b.unreachable, 0, "{story}");
    assert_eq!(a.answered + b.answered, CONNECTIONS / 3, "{story}");
    let made = a.established + b.established;
    assert!(made + a.rejected + b.rejected >= CONNECTIONS, "{story}");
    assert!(a.disconnected + b.disconnected >= 2 * made, "both ends of each: {story}");
    for end in 0..2 {
        assert!(run.net.end(end).is_empty(), "{story} leaves {}", run.net.end(end).len());
        assert_eq!(run.net.end(end).poll_timeout(), None, "{story}");
    }
    format!("{story} {}", run.net.spoken())
}

#[test]
fn a_good_network_needs_no_repetition_but_for_slow_applications() {
    for seed in 0..SEEDS {
        check(seed, Faults { loss: 0.0, duplication: 0.0, delay_max_us: 50 });
    }
}

#[test]
fn a_quarter_of_all_datagrams_may_be_lost() {
    for seed in 0..SEEDS {
        check(seed, Faults { loss: 0.25, duplication: 0.0, delay_max_us: 1_000 });
    }
}

#[test]
fn repeated_and_reordered_datagrams_change_nothing() {
    for seed in 0..SEEDS {
        check(seed, Faults { loss: 0.0, duplication: 0.5, delay_max_us: 900_000 });
    }
}

#[test]
fn everything_at_once() {
    for seed in 0..SEEDS {
        check(seed, Faults { loss: 0.25, duplication: 0.25, delay_max_us: 700_000 });
    }
}

#[test]
fn one_seed_gives_one_story() {
    let faults = Faults { loss: 0.25, duplication: 0.25, delay_max_us: 700_000 };
    for seed in [3, 5, 8] {
        assert_eq!(check(seed, faults), check(seed, faults));
    }
}

#[test]
fn any_bytes_from_anybody_are_taken() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed, Faults::default());
        run.net.connect(0, 1, 1);
        run.net.run_for(Duration::from_millis(1));
        let mut rng = Rng::new(seed);
        for _ in 0..200 {
            let mut mad = [0; 256];
            rng.fill(&mut mad);
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[16..18].copy_from_slice(&(0x10 + rng.below(11) as u16).to_be_bytes());
            if rng.chance(0.3) {
                mad[32..40].copy_from_slice(&SERVICE.to_be_bytes());
            }
            let now = run.net.now;
            let from = run.net.ends[rng.below(2) as usize].gid;
            run.net.end(1).handle_mad(now, from, &mad);
            run.net.drain();
        }
    }
}
