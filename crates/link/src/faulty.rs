//! A link that misbehaves on purpose, the same way every time.
//!
//! A [`Rule`] passes a [`Verdict`] on every packet that leaves. Arriving packets are left alone, so that each
//! packet suffers once when both ends are decorated. Verdicts depend on the packet's number in its stream and
//! not on time, so a run can be repeated as far as its packets repeat. Requests and acknowledgements
//! (`Order::Strict` and `Order::Free`) to each peer are streams of their own: how many acknowledgements there
//! are depends on timing, and must not move losses from one request to another.
//!
//! A packet that is held back is sealed only when it leaves, in the place that it then has.

mod config;
mod rates;

pub use config::{ConfigError, FaultConfig, parse_duration, parse_rate};
pub use rates::Rates;

use crate::batch::{Order, Path, RxBatch, TrainLimits, TxBatch};
use crate::{Link, Seal, Transmitted};
use highwire_stdx::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Packets held back at most; more are dropped, as by a queue that is full.
const HELD_MAX: usize = 65_536;
/// How long a packet waits for others to overtake it when no others come.
const REORDER_PATIENCE: Duration = Duration::from_millis(1);

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves as it is.
    Pass,
    /// It is lost.
    Drop,
    /// It leaves twice.
    Duplicate,
    /// It leaves that much later.
    Delay(Duration),
    /// It leaves after the next so many packets of its stream, or after a millisecond.
    Reorder(u32),
    /// One bit flips after the ICRC was computed.
    Corrupt {
        /// Which, counted from the lowest of the first byte and round again past the end.
        bit: u32,
    },
}

/// A packet before its verdict.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Streams are numbered as they first appear: one per path and order.
    pub stream: u64,
    /// The packet's number in its stream, from 0.
    pub ordinal: u64,
    /// Whether its place among others matters.
    pub order: Order,
    /// When it is judged.
    pub now: Instant,
    /// Where it goes.
    pub path: Path,
    /// Its bytes, not sealed yet.
    pub bytes: &'a [u8],
}

/// Judges packets: [`Rates`] by chance, a closure by any rule of a test.
pub trait Rule {
    /// The verdict on one packet.
    fn judge(&mut self, packet: &Subject<'_>) -> Verdict;

    /// Whether all packets that arrive get through.
    fn hears_all(&self) -> bool {
        true
    }

    /// Whether a packet that arrives gets through, by its bytes from the BTH on.
    fn hears(&self, _bytes: &[u8]) -> bool {
        true
    }
}

impl<F: FnMut(&Subject<'_>) -> Verdict> Rule for F {
    fn judge(&mut self, packet: &Subject<'_>) -> Verdict {
        self(packet)
    }
}

/// A link whose outgoing packets suffer its rule's verdicts.
pub struct Faulty<L, R = Rates> {
    inner: L,
    rule: R,
    latency: Duration,
    streams: BTreeMap<(Path, bool), Stream>,
    /// Packets on their way, by the time they leave and then by age.
    delayed: BTreeMap<(Instant, u64), Held>,
    /// Packets that others shall overtake.
    overtaken: Vec<Overtaken>,
    out: TxBatch,
    next_age: u64,
    counters: FaultCounters,
}

#[derive(Default)]
struct Stream {
    number: u64,
    packets: u64,
}

/// A packet on its way through, its bytes borrowed until it is held back.
#[derive(Clone, Copy)]
struct Passing<'a> {
    path: Path,
    order: Order,
    bytes: &'a [u8],
    damage: Option<u32>,
}

struct Held {
    path: Path,
    order: Order,
    bytes: Vec<u8>,
    damage: Option<u32>,
}

impl Held {
    fn passing(&self) -> Passing<'_> {
        Passing { path: self.path, order: self.order, bytes: &self.bytes, damage: self.damage }
    }
}

impl Passing<'_> {
    fn hold(self) -> Held {
        Held { path: self.path, order: self.order, bytes: self.bytes.to_vec(), damage: self.damage }
    }
}

struct Overtaken {
    remaining: u32,
    patience_ends: Instant,
    packet: Held,
}

#[derive(Default)]
struct FaultCounters {
    passed: u64,
    dropped: u64,
    duplicated: u64,
    delayed: u64,
    reordered: u64,
    corrupted: u64,
    overflow: u64,
    unheard: u64,
}

impl<L: Link> Faulty<L> {
    /// A link with the faults of `config`, by chance but repeatable.
    pub fn new(inner: L, config: &FaultConfig) -> Faulty<L> {
        Faulty::with_rule(inner, Rates::new(config), config.delay)
    }
}

impl<L: Link, R: Rule> Faulty<L, R> {
    /// A link with the faults of `rule`, and `latency` added to every packet.
    pub fn with_rule(inner: L, rule: R, latency: Duration) -> Faulty<L, R> {
        Faulty {
            inner,
            rule,
            latency,
            streams: BTreeMap::new(),
            delayed: BTreeMap::new(),
            overtaken: Vec::new(),
            out: TxBatch::new(),
            next_age: 0,
            counters: FaultCounters::default(),
        }
    }

    /// The link inside.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Passes the verdict on one packet and carries it out.
    fn suffer(&mut self, now: Instant, packet: Passing<'_>, seal: &mut Seal<'_>) {
        let number = self.streams.len() as u64;
        let key = (packet.path, packet.order == Order::Free);
        let stream = self.streams.entry(key).or_insert(Stream { number, packets: 0 });
        let subject = Subject {
            stream: stream.number,
            ordinal: stream.packets,
            order: packet.order,
            now,
            path: packet.path,
            bytes: packet.bytes,
        };
        stream.packets += 1;
        let verdict = self.rule.judge(&subject);
        let counters = &mut self.counters;
        match verdict {
            Verdict::Pass => counters.passed += 1,
            Verdict::Drop => counters.dropped += 1,
            Verdict::Duplicate => counters.duplicated += 1,
            Verdict::Delay(_) => counters.delayed += 1,
            Verdict::Reorder(_) => counters.reordered += 1,
            Verdict::Corrupt { .. } => counters.corrupted += 1,
        }
        self.carry_out(now, verdict, packet, seal);
        if !matches!(verdict, Verdict::Reorder(1..)) {
            self.overtake(now, key, seal);
        }
    }

    fn carry_out(&mut self, now: Instant, verdict: Verdict, packet: Passing<'_>, seal: &mut Seal<'_>) {
        match verdict {
            Verdict::Drop => {}
            Verdict::Pass | Verdict::Reorder(0) => self.emit(now, Duration::ZERO, packet, seal),
            Verdict::Delay(extra) => self.emit(now, extra, packet, seal),
            Verdict::Corrupt { bit } => {
                self.emit(now, Duration::ZERO, Passing { damage: Some(bit), ..packet }, seal);
            }
            Verdict::Duplicate => {
                self.emit(now, Duration::ZERO, packet, seal);
                self.emit(now, Duration::ZERO, packet, seal);
            }
            Verdict::Reorder(remaining) if self.has_room() => {
                let patience_ends = now + REORDER_PATIENCE;
                self.overtaken.push(Overtaken { remaining, patience_ends, packet: packet.hold() });
            }
            Verdict::Reorder(_) => self.counters.overflow += 1,
        }
    }

    /// One packet of the stream `key` has gone by: packets that have now been overtaken by as many as they
    /// should follow it.
    fn overtake(&mut self, now: Instant, key: (Path, bool), seal: &mut Seal<'_>) {
        for held in &mut self.overtaken {
            if (held.packet.path, held.packet.order == Order::Free) == key {
                held.remaining -= 1;
            }
        }
        while let Some(index) = self.overtaken.iter().position(|o| o.remaining == 0) {
            let held = self.overtaken.remove(index);
            self.emit(now, Duration::ZERO, held.packet.passing(), seal);
        }
    }

    /// Sends a packet, after the link's latency and `extra`.
    fn emit(&mut self, now: Instant, extra: Duration, packet: Passing<'_>, seal: &mut Seal<'_>) {
        let wait = self.latency.as_nanos().saturating_add(extra.as_nanos());
        if wait == 0 {
            self.append(now, packet, seal);
        } else if self.has_room() {
            self.next_age += 1;
            self.delayed.insert((now + Duration::from_nanos(wait), self.next_age), packet.hold());
        } else {
            self.counters.overflow += 1;
        }
    }

    fn append(&mut self, now: Instant, packet: Passing<'_>, seal: &mut Seal<'_>) {
        if !self.try_append(packet) {
            // Full: a flush makes room, unless the link is blocked.
            let _ = self.inner.transmit(now, &mut self.out, seal);
            if !self.try_append(packet) {
                self.counters.overflow += 1;
            }
        }
    }

    fn try_append(&mut self, packet: Passing<'_>) -> bool {
        let bytes = packet.bytes.len();
        let Ok(mut slot) = self.out.reserve(packet.path, bytes, packet.order) else {
            return false;
        };
        slot.copy_from_slice(packet.bytes);
        match packet.damage {
            Some(bit) => slot.commit_damaged(bytes, bit),
            None => slot.commit(bytes),
        }
        true
    }

    /// Lets go of packets that have waited long enough.
    fn release(&mut self, now: Instant, seal: &mut Seal<'_>) {
        while let Some(index) = self.overtaken.iter().position(|o| o.patience_ends <= now) {
            let held = self.overtaken.remove(index);
            self.emit(now, Duration::ZERO, held.packet.passing(), seal);
        }
        while let Some(entry) = self.delayed.first_entry().filter(|e| e.key().0 <= now) {
            let packet = entry.remove();
            self.append(now, packet.passing(), seal);
        }
    }

    fn has_room(&self) -> bool {
        self.delayed.len() + self.overtaken.len() < HELD_MAX
    }
}

impl<L: Link, R: Rule> Link for Faulty<L, R> {
    fn local(&self) -> SocketAddr {
        self.inner.local()
    }

    fn train_limits(&self) -> TrainLimits {
        self.inner.train_limits()
    }

    fn transmit(&mut self, now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
        // Packets that an earlier call left behind go first, and the new batch waits for them.
        if self.out.is_blocked() && self.inner.transmit(now, &mut self.out, seal) == Transmitted::Blocked {
            return if batch.is_empty() { Transmitted::All } else { Transmitted::Blocked };
        }
        self.release(now, seal);
        batch.for_each(|path, order, bytes| {
            self.suffer(now, Passing { path, order, bytes, damage: None }, seal);
        });
        batch.clear();
        // This link, not the caller, offers a blocked remainder again; `poll_timeout` asks to be called for
        // that.
        let _ = self.inner.transmit(now, &mut self.out, seal);
        Transmitted::All
    }

    fn receive(&mut self, now: Instant, batch: &mut RxBatch) -> usize {
        loop {
            let count = self.inner.receive(now, batch);
            if count == 0 || self.rule.hears_all() {
                return count;
            }
            self.counters.unheard += batch.retain(|bytes| self.rule.hears(bytes)) as u64;
            if !batch.is_empty() {
                return batch.len();
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let blocked = self.out.is_blocked().then_some(Instant::ZERO);
        let delayed = self.delayed.first_key_value().map(|(key, _)| key.0);
        let overtaken = self.overtaken.iter().map(|o| o.patience_ends).min();
        [blocked, delayed, overtaken, self.inner.poll_timeout()].into_iter().flatten().min()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let counters = &self.counters;
        each("fault_passed", counters.passed);
        each("fault_dropped", counters.dropped);
        each("fault_duplicated", counters.duplicated);
        each("fault_delayed", counters.delayed);
        each("fault_reordered", counters.reordered);
        each("fault_corrupted", counters.corrupted);
        each("fault_overflow", counters.overflow);
        each("fault_unheard", counters.unheard);
        self.inner.counters(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryLink, memory_pair};

    const A: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1)), 1);
    const B: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2)), 2);

    /// A link under test, its far end, and a time.
    struct Bench<R> {
        link: Faulty<MemoryLink, R>,
        far: MemoryLink,
        now: Instant,
    }

    impl<R: Rule> Bench<R> {
        fn new(rule: R, latency: Duration) -> Bench<R> {
            let (near, far) = memory_pair(A, B);
            Bench { link: Faulty::with_rule(near, rule, latency), far, now: Instant::ZERO }
        }

        /// Sends one packet per byte and returns what has arrived by now, as bytes too.
        fn send(&mut self, packets: &[u8]) -> Vec<u8> {
            let mut tx = TxBatch::new();
            for &tag in packets {
                tx.push(B, &[tag, 0], Order::Strict).unwrap();
            }
            let done = self.link.transmit(self.now, &mut tx, &mut |packet, _| packet[1] = !packet[0]);
            assert_eq!((done, tx.is_empty()), (Transmitted::All, true));
            let mut rx = RxBatch::new();
            let mut seen = Vec::new();
            while self.far.receive(self.now, &mut rx) > 0 {
                seen.extend(rx.packets().map(|p| if p.bytes[1] == !p.bytes[0] { p.bytes[0] } else { b'!' }));
            }
            seen
        }

        fn wait(&mut self, nanos: u64) -> Vec<u8> {
            self.now += Duration::from_nanos(nanos);
            self.send(b"")
        }
    }

    /// Condemns the packet with the tag `x` and lets the others pass.
    fn check(verdict: Verdict, expected: &[u8]) {
        let rule = |p: &Subject<'_>| if p.bytes[0] == b'x' { verdict } else { Verdict::Pass };
        let mut bench = Bench::new(rule, Duration::ZERO);
        let seen = bench.send(b"abxcd");
        assert_eq!(seen.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{verdict:?}");
    }

    #[test]
    fn every_verdict_is_carried_out() {
        check(Verdict::Pass, b"abxcd");
        check(Verdict::Drop, b"abcd");
        check(Verdict::Duplicate, b"abxxcd");
        check(Verdict::Reorder(1), b"abcxd");
        check(Verdict::Reorder(2), b"abcdx");
        check(Verdict::Reorder(3), b"abcd");
        check(Verdict::Reorder(0), b"abxcd");
        check(Verdict::Corrupt { bit: 8 }, b"ab!cd");
        check(Verdict::Corrupt { bit: 1 << 20 }, b"ab!cd");
        check(Verdict::Delay(Duration::from_nanos(1)), b"abcd");
        check(Verdict::Delay(Duration::ZERO), b"abxcd");
    }

    #[test]
    fn a_delayed_packet_leaves_at_its_time_and_asks_for_it() {
        let rule = |p: &Subject<'_>| match p.bytes[0] {
            b'x' => Verdict::Delay(Duration::from_nanos(50)),
            _ => Verdict::Pass,
        };
        let mut bench = Bench::new(rule, Duration::from_nanos(100));
        assert_eq!(bench.send(b"axb"), b"");
        assert_eq!(bench.link.poll_timeout(), Some(Instant::from_nanos(100)));
        assert_eq!(bench.wait(99), b"");
        assert_eq!(bench.wait(1), b"ab");
        assert_eq!(bench.link.poll_timeout(), Some(Instant::from_nanos(150)));
        assert_eq!(bench.wait(1000), b"x");
        assert_eq!(bench.link.poll_timeout(), None);
    }

    #[test]
    fn a_packet_that_nobody_overtakes_does_not_wait_for_ever() {
        let mut bench = Bench::new(|_: &Subject<'_>| Verdict::Reorder(5), Duration::ZERO);
        assert_eq!(bench.send(b"x"), b"");
        assert_eq!(bench.link.poll_timeout(), Some(Instant::ZERO + REORDER_PATIENCE));
        assert_eq!(bench.wait(REORDER_PATIENCE.as_nanos()), b"x");
    }

    /// A link whose device is busy for the first so many calls.
    struct Busy {
        inner: MemoryLink,
        calls: u32,
    }

    impl Link for Busy {
        fn local(&self) -> SocketAddr {
            self.inner.local()
        }

        fn train_limits(&self) -> TrainLimits {
            self.inner.train_limits()
        }

        fn transmit(&mut self, now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
            if self.calls > 0 {
                self.calls -= 1;
                batch.plan(TrainLimits::GSO);
                batch.prepare(self.local(), 1, seal);
                return Transmitted::Blocked;
            }
            self.inner.transmit(now, batch, seal)
        }

        fn receive(&mut self, now: Instant, batch: &mut RxBatch) -> usize {
            self.inner.receive(now, batch)
        }

        fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
            self.inner.counters(each);
        }
    }

    #[test]
    fn a_busy_device_loses_nothing_and_judges_nothing_twice() {
        let (near, mut far) = memory_pair(A, B);
        let mut verdicts = 0;
        let rule = |_: &Subject<'_>| {
            verdicts += 1;
            Verdict::Pass
        };
        let mut link = Faulty::with_rule(Busy { inner: near, calls: 2 }, rule, Duration::ZERO);
        let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
        let send = |link: &mut Faulty<Busy, _>, tx: &mut TxBatch| {
            link.transmit(Instant::ZERO, tx, &mut |packet, _| packet[1] += 1)
        };
        tx.push(B, &[1, 0], Order::Strict).unwrap();
        assert_eq!((send(&mut link, &mut tx), link.poll_timeout()), (Transmitted::All, Some(Instant::ZERO)));
        tx.push(B, &[2, 0], Order::Strict).unwrap();
        assert_eq!((send(&mut link, &mut tx), tx.len()), (Transmitted::Blocked, 1));
        assert_eq!((send(&mut link, &mut tx), tx.len(), link.poll_timeout()), (Transmitted::All, 0, None));
        let mut seen = Vec::new();
        while far.receive(Instant::ZERO, &mut rx) > 0 {
            seen.extend(rx.packets().map(|p| p.bytes.to_vec()));
        }
        assert_eq!(seen, [[1, 1], [2, 1]]);
        drop(link);
        assert_eq!(verdicts, 2);
    }

    #[test]
    fn one_seed_gives_the_same_faults_however_packets_are_batched() {
        let run = |seed: u64, batch: usize| {
            let config: FaultConfig =
                format!("loss=10%,duplicate=5%,reorder=5%,corrupt=5%,seed={seed}").parse().unwrap();
            let mut bench = Bench::new(Rates::new(&config), Duration::ZERO);
            let packets: Vec<u8> = (0..200).collect();
            packets.chunks(batch).flat_map(|chunk| bench.send(chunk)).collect::<Vec<u8>>()
        };
        assert_eq!(run(7, 1), run(7, 200));
        assert_eq!(run(7, 3), run(7, 200));
        assert_ne!(run(7, 10), run(8, 10));
    }

    #[test]
    fn acknowledgements_do_not_move_faults_between_requests() {
        let run = |acks: usize| {
            let config: FaultConfig = "loss=20%,seed=3".parse().unwrap();
            let mut fates = Vec::new();
            let mut rates = Rates::new(&config);
            let rule = |p: &Subject<'_>| {
                let verdict = rates.judge(p);
                if p.order == Order::Strict {
                    fates.push(verdict);
                }
                verdict
            };
            let (near, _far) = memory_pair(A, B);
            let mut link = Faulty::with_rule(near, rule, Duration::ZERO);
            let mut tx = TxBatch::new();
            for _ in 0..100 {
                tx.push(B, &[0; 48], Order::Strict).unwrap();
                for _ in 0..acks {
                    tx.push(B, &[0; 20], Order::Free).unwrap();
                }
                let _ = link.transmit(Instant::ZERO, &mut tx, &mut |_, _| {});
            }
            drop(link);
            fates
        };
        assert_eq!(run(0), run(3));
    }
}
