//! A sender and a receiver over a channel that loses, duplicates and reorders in both directions, checked at every step
//! against a model that remembers everything. A failure names the seed and what the seed chose.

use super::*;
use highwire_stdx::{Duration, Instant, Rng};
use highwire_wire::Psn;
use std::collections::{BTreeMap, BTreeSet};

const ONE_WAY_NS: u64 = 5_000;
const PACKET_NS: u64 = 200;

/// What the channel does to a packet while the faults last.
#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: f64,
    duplicate: f64,
    /// Up to this much is added to each packet's delay.
    jitter_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    config: IrnConfig,
    initial: Psn,
    packets: u32,
    faults: Faults,
    faults_end: Instant,
}

impl Plan {
    fn from_seed(seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        let recoveries =
            [LossRecovery::SelectiveRepeat, LossRecovery::SelectiveWithoutSack, LossRecovery::GoBackN];
        let packets = rng.between(1, 300) as u32;
        Plan {
            seed,
            config: IrnConfig::default()
                .with_cap(*rng.pick(&[1, 2, 7, 64, 111, 600]))
                .with_recovery(recoveries[seed as usize % 3]),
            // Half of the flows wrap.
            initial: Psn::new(if rng.chance(0.5) { rng.next_u32() } else { 0 })
                .sub(rng.below(u64::from(packets)) as u32),
            packets,
            faults: Faults {
                loss: *rng.pick(&[0.0, 0.01, 0.1, 0.3, 0.6]),
                duplicate: *rng.pick(&[0.0, 0.0, 0.05, 0.3]),
                jitter_ns: *rng.pick(&[0, 0, 1_000, 30_000, 400_000]),
            },
            faults_end: Instant::from_nanos(rng.between(0, 2_000_000)),
        }
    }

    /// Which packets end messages is part of the plan, too.
    fn class(&self, index: u32) -> PacketClass {
        match Rng::new(self.seed ^ u64::from(index)).below(4) {
            0 => PacketClass::Last,
            1 => PacketClass::LastWithCompletion,
            _ => PacketClass::Middle,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Packet {
    /// The n-th of the flow.
    Data(u32),
    Ack {
        cumulative: Psn,
        sack: Option<(Psn, u32)>,
    },
}

struct Exchange {
    plan: Plan,
    rng: Rng,
    now: Instant,
    sender: SenderWindow,
    receiver: ReceiverWindow,
    deadline: Option<Instant>,
    /// What is under way, by arrival time, then in the order sent.
    wire: BTreeMap<(Instant, u64), Packet>,
    sent: u64,
    /// The model of the receiver: which packets have been placed.
    placed: BTreeSet<u32>,
    first_missing: u32,
    completions: u32,
    /// How often each packet was resent since the last timeout.
    resent: BTreeMap<u32, u32>,
}

#[derive(Debug, PartialEq, Eq)]
struct Summary {
    finished_at: Instant,
    transmissions: u64,
    counters: SenderCounters,
}

impl Exchange {
    fn new(plan: Plan) -> Exchange {
        Exchange {
            plan,
            rng: Rng::new(!plan.seed),
            now: Instant::ZERO,
            sender: SenderWindow::new(plan.initial, plan.config),
            receiver: ReceiverWindow::new(plan.initial, &plan.config),
            deadline: None,
            wire: BTreeMap::new(),
            sent: 0,
            placed: BTreeSet::new(),
            first_missing: 0,
            completions: 0,
            resent: BTreeMap::new(),
        }
    }

    /// Runs until every packet is acknowledged.
    fn run(mut self) -> Summary {
        // Once the channel behaves, each packet costs at most a timeout and a round trip.
        let patience = self.plan.config.rto_high.as_nanos() + 4 * ONE_WAY_NS + 2 * self.plan.faults.jitter_ns;
        let end = self.plan.faults_end + Duration::from_nanos(patience * (u64::from(self.plan.packets) + 3));
        while self.index(self.sender.first_unacknowledged()) < self.plan.packets {
            assert!(self.now <= end, "still at {} at {:?}: {:?}", self.sender, self.now, self.plan);
            self.transmit_one();
            self.now += Duration::from_nanos(PACKET_NS);
            self.deliver_due();
            if self.deadline.is_some_and(|deadline| deadline <= self.now) {
                self.time_out();
            }
        }
        assert_eq!(self.placed.len() as u32, self.plan.packets, "{:?}", self.plan);
        let due = (0..self.plan.packets).filter(|&i| self.plan.class(i) == PacketClass::LastWithCompletion);
        assert_eq!(self.completions as usize, due.count(), "{:?}", self.plan);
        Summary { finished_at: self.now, transmissions: self.sent, counters: self.sender.counters() }
    }

    fn index(&self, psn: Psn) -> u32 {
        psn.distance_from(self.plan.initial) as u32
    }

    fn psn(&self, index: u32) -> Psn {
        self.plan.initial.add(index)
    }

    fn transmit_one(&mut self) {
        if let Some(psn) = self.sender.poll_retransmit() {
            self.check_retransmission(psn);
            self.send(Packet::Data(self.index(psn)));
        } else if self.index(self.sender.next_to_send()) < self.plan.packets && self.sender.can_send_new() {
            let psn = self.sender.on_send_new();
            self.send(Packet::Data(self.index(psn)));
        } else {
            return;
        }
        assert!(
            self.sender.in_flight() <= self.plan.config.cap,
            "{} over the cap: {:?}",
            self.sender,
            self.plan
        );
        if self.deadline.is_none() {
            self.arm();
        }
    }

    fn check_retransmission(&mut self, psn: Psn) {
        assert!(!self.sender.sacked().contains(psn), "{psn} was SACKed: {} {:?}", self.sender, self.plan);
        assert!(
            !psn.is_before(self.sender.first_unacknowledged()) && psn.is_before(self.sender.next_to_send())
        );
        let index = self.index(psn);
        let times = self.resent.entry(index).or_default();
        *times += 1;
        // Rule 6. Go-back-N repeats a packet whenever a pass covers it again.
        let is_once = *times == 1 || self.plan.config.recovery == LossRecovery::GoBackN;
        assert!(is_once, "packet {index} resent {times} times without a timeout: {:?}", self.plan);
    }

    fn send(&mut self, packet: Packet) {
        let Faults { loss, duplicate, jitter_ns } = self.plan.faults;
        let has_faults = self.now < self.plan.faults_end;
        let copies = if has_faults && self.rng.chance(duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            self.sent += 1;
            if has_faults && self.rng.chance(loss) {
                continue;
            }
            let jitter = if has_faults && jitter_ns > 0 { self.rng.below(jitter_ns) } else { 0 };
            let arrives = self.now + Duration::from_nanos(ONE_WAY_NS + jitter);
            self.wire.insert((arrives, self.sent), packet);
        }
    }

    fn deliver_due(&mut self) {
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Packet::Data(index) => self.receive(index),
                Packet::Ack { cumulative, sack } => self.acknowledge(cumulative, sack),
            }
        }
    }

    fn receive(&mut self, index: u32) {
        let (psn, expected_before) = (self.psn(index), self.index(self.receiver.next_expected()));
        let arrival = self.receiver.on_arrival(psn, self.plan.class(index));
        let keeps_early = self.plan.config.recovery != LossRecovery::GoBackN;
        let mut sack = None;
        match arrival {
            Arrival::InOrder { advanced, messages, completions } => {
                assert_eq!(index, expected_before);
                assert!(self.placed.insert(index), "packet {index} placed twice: {:?}", self.plan);
                let now_in_order = expected_before..expected_before + advanced;
                let classes = now_in_order.map(|i| self.plan.class(i));
                let (mut ends, mut completes) = (0, 0);
                for class in classes {
                    ends += u32::from(class != PacketClass::Middle);
                    completes += u32::from(class == PacketClass::LastWithCompletion);
                }
                assert_eq!((messages, completions), (ends, completes), "{:?}", self.plan);
                self.completions += completions;
            }
            Arrival::OutOfOrder { place, run_len } => {
                assert!(index > expected_before);
                assert_eq!(place, keeps_early && self.placed.insert(index), "{:?}", self.plan);
                let run = (0..=index).rev().take_while(|i| keeps_early && self.placed.contains(i)).count();
                assert_eq!(run_len, (run as u32).min(SACK_RUN_MAX), "{:?}", self.plan);
                sack = Some((psn, run_len));
            }
            Arrival::Duplicate => assert!(index < expected_before),
            Arrival::BeyondWindow => panic!("packet {index} beyond the window: {:?}", self.plan),
        }
        while self.placed.contains(&self.first_missing) {
            self.first_missing += 1;
        }
        assert_eq!(self.index(self.receiver.next_expected()), self.first_missing, "{:?}", self.plan);
        self.send(Packet::Ack { cumulative: self.receiver.next_expected(), sack });
    }

    fn acknowledge(&mut self, cumulative: Psn, sack: Option<(Psn, u32)>) {
        let outcome = match sack {
            None => self.sender.on_ack(cumulative),
            Some((high, run)) => self.sender.on_nack(cumulative, high, run),
        };
        assert!(
            self.sender.sacked().iter().all(|psn| self.placed.contains(&self.index(psn))),
            "{:?}",
            self.plan
        );
        assert_eq!(self.sender.counters().invalid, 0, "an honest answer was called invalid: {:?}", self.plan);
        if outcome.newly_acked > 0 {
            self.arm();
        }
    }

    fn time_out(&mut self) {
        match self.sender.on_timeout() {
            TimeoutOutcome::Idle => panic!("the timer runs with nothing in flight: {:?}", self.plan),
            TimeoutOutcome::Extended(rest) => self.deadline = Some(self.now + rest),
            TimeoutOutcome::Resend => {
                self.resent.clear();
                self.arm();
            }
        }
    }

    fn arm(&mut self) {
        self.deadline = self.sender.arm_timeout().map(|rto| self.now + rto);
    }
}

#[test]
fn every_packet_arrives_once_whatever_the_channel_does() {
    for seed in 0..3_000 {
        Exchange::new(Plan::from_seed(seed)).run();
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..30 {
        let plan = Plan::from_seed(seed);
        assert_eq!(Exchange::new(plan).run(), Exchange::new(plan).run(), "{plan:?}");
    }
}

/// IRN's rule behind the hook, as a rule of another crate would start it.
#[test]
fn irns_own_rule_under_another_name_does_the_same() {
    static AGAIN: RecoveryAlgorithm =
        RecoveryAlgorithm { name: "sack-again", start: &|config| (SACK.start)(config) };
    let again = LossRecovery::Own(RecoveryChoice::register(&AGAIN).expect("the name is free"));
    let mut resent = 0;
    for seed in 0..300 {
        let plan = Plan::from_seed(3 * seed);
        assert_eq!(plan.config.recovery, LossRecovery::SelectiveRepeat);
        let summary = Exchange::new(plan).run();
        resent += summary.counters.retransmitted;
        let wrapped = Plan { config: plan.config.with_recovery(again), ..plan };
        assert_eq!(Exchange::new(wrapped).run(), summary, "{plan:?}");
    }
    assert!(resent > 1000, "{resent} repetitions");
}

#[test]
fn a_faultless_channel_sees_no_retransmission() {
    for seed in 0..100 {
        let plan = Plan { faults_end: Instant::ZERO, ..Plan::from_seed(seed) };
        let counters = Exchange::new(plan).run().counters;
        assert_eq!(counters, SenderCounters::default(), "{plan:?}");
    }
}

/// What each way of repairing losses costs under the same faults: 20,000 packets, 40 Gb/s, a round trip of 10 µs.
#[test]
fn selective_repeat_ends_first_and_go_back_n_resends_most() {
    let mut table = String::from("\n loss   selective repeat     without SACK        go-back-N\n");
    for loss in [0.001, 0.01, 0.05] {
        table += &format!("{:4.1}%", loss * 100.0);
        for recovery in
            [LossRecovery::SelectiveRepeat, LossRecovery::SelectiveWithoutSack, LossRecovery::GoBackN]
        {
            let plan = Plan {
                seed: 1,
                config: IrnConfig::default().with_recovery(recovery),
                initial: Psn::new(0),
                packets: 20_000,
                faults: Faults { loss, duplicate: 0.0, jitter_ns: 0 },
                faults_end: Instant::FAR_FUTURE,
            };
            let Summary { finished_at, counters, .. } = Exchange::new(plan).run();
            let ms = finished_at.as_nanos() as f64 / 1e6;
            table += &format!("   {:6} in {ms:4.1} ms", counters.retransmitted);
        }
        table.push('\n');
    }
    let expected = "
 loss   selective repeat     without SACK        go-back-N
 0.1%       27 in  4.0 ms       27 in  4.0 ms     1581 in  4.3 ms
 1.0%      207 in  4.4 ms      208 in  4.6 ms    11998 in  6.7 ms
 5.0%     1126 in 18.4 ms     1090 in 29.6 ms    59037 in 37.0 ms
";
    assert_eq!(table, expected, "{table}");
}

/// With any input the window stays within its cap, resends only packets in flight, and counts acknowledgements that it does not
/// believe.
#[test]
fn forged_acknowledgements_do_no_harm() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let plan = Plan::from_seed(seed);
        let mut window = SenderWindow::new(plan.initial, plan.config);
        for _ in 0..300 {
            let near = |rng: &mut Rng, psn: Psn| psn.add(rng.below(130) as u32).sub(rng.below(130) as u32);
            let cumulative = near(&mut rng, window.first_unacknowledged());
            let sack = near(&mut rng, window.next_to_send());
            match rng.below(6) {
                0 => drop(window.on_ack(cumulative)),
                1 => drop(window.on_nack(cumulative, sack, rng.below(300) as u32)),
                2 => drop(window.on_nack(Psn::new(rng.next_u32()), Psn::new(rng.next_u32()), rng.next_u32())),
                3 => drop(window.on_timeout()),
                _ if window.can_send_new() => drop(window.on_send_new()),
                _ => {}
            }
            assert!(window.in_flight() <= plan.config.cap, "{window} {plan:?}");
            if let Some(psn) = window.poll_retransmit() {
                let offset = psn.distance_from(window.first_unacknowledged());
                assert!((0..window.in_flight() as i32).contains(&offset), "{psn} of {window} {plan:?}");
            }
        }
    }
}

/// A rule that names packets around everything that was sent, one after the other.
#[derive(Clone, Debug)]
struct Wild(u32);

static WILD: RecoveryAlgorithm = RecoveryAlgorithm { name: "wild", start: &|_| Box::new(Wild(0)) };

impl RecoveryRule for Wild {
    fn on_ack(&mut self, _account: &Account<'_>, _news: News) -> bool {
        false
    }
    fn on_timeout(&mut self, _account: &Account<'_>) {}
    fn next(&mut self, account: &Account<'_>) -> Option<Psn> {
        self.0 += 1;
        Some(account.first_unacknowledged.sub(4).add(self.0))
    }
    fn on_resent(&mut self, _account: &Account<'_>, _psn: Psn) {}
}

#[test]
fn of_what_another_crates_rule_names_only_missing_packets_leave() {
    let choice = RecoveryChoice::register(&WILD).expect("the name is free");
    let config = IrnConfig::default().with_recovery(LossRecovery::Own(choice));
    let mut window = SenderWindow::new(Psn::new(10), config);
    for _ in 0..5 {
        window.on_send_new();
    }
    // 10 has arrived; of 11 to 14, which are in flight, 12 and 13 have.
    window.on_nack(Psn::new(11), Psn::new(13), 2);
    // The rule names 8 to 19.
    let left: Vec<u32> = (0..12).filter_map(|_| window.poll_retransmit()).map(Psn::value).collect();
    assert_eq!(left, [11, 14]);
}

#[test]
fn every_rule_tolerates_packets_that_overtake_each_other() {
    for recovery in [LossRecovery::SelectiveRepeat, LossRecovery::SelectiveWithoutSack, LossRecovery::GoBackN]
    {
        let config = IrnConfig::default().with_recovery(recovery).with_reordering(3);
        let mut window = SenderWindow::new(Psn::new(0), config);
        for _ in 0..6 {
            window.on_send_new();
        }
        let outcome = window.on_nack(Psn::new(0), Psn::new(3), 1);
        assert!(!outcome.loss_detected && window.peek_retransmit().is_none(), "{recovery:?}: {window}");
        let outcome = window.on_nack(Psn::new(0), Psn::new(4), 1);
        assert!(outcome.loss_detected, "{recovery:?}: {window}");
        assert_eq!(window.poll_retransmit(), Some(Psn::new(0)), "{recovery:?}");
    }
}
