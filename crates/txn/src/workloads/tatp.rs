//! TATP: the transactions of a telephone network's home location register (FaSST §6.3). Many look for rows
//! that are absent; that they abort is part of the benchmark.

use highwire_stdx::Rng;

use super::{Access, Procedure, Put, Step, View, Workload, lock, pick, read};
use crate::id::{Key, TableId};
use crate::settings::TableKind;
use crate::table::Mode;

const SUBSCRIBER: TableId = TableId(0);
/// From the number that is dialled to the subscriber.
const SEC_SUBSCRIBER: TableId = TableId(1);
const ACCESS_INFO: TableId = TableId(2);
const SPECIAL_FACILITY: TableId = TableId(3);
const CALL_FORWARDING: TableId = TableId(4);
const MIX: [(&str, u64); 7] = [
    ("GET_SUBSCRIBER_DATA", 35),
    ("GET_ACCESS_DATA", 35),
    ("GET_NEW_DESTINATION", 10),
    ("UPDATE_SUBSCRIBER_DATA", 2),
    ("UPDATE_LOCATION", 14),
    ("INSERT_CALL_FORWARDING", 2),
    ("DELETE_CALL_FORWARDING", 2),
];
const START_TIMES: [u64; 3] = [0, 8, 16];
const ACTIVE_PERCENT: u64 = 85;

/// A million subscribers for each machine in the paper.
#[derive(Clone, Debug)]
pub struct Tatp {
    /// How many.
    pub subscribers: u64,
}

struct Transaction {
    name: &'static str,
    subscriber: u64,
    /// Of access data or of a facility, 1 to 4.
    kind: u64,
    start: u64,
    end: u64,
    random: u64,
    step: u8,
}

fn typed(subscriber: u64, kind: u64) -> Key {
    subscriber | kind << 32
}

fn forwarding(subscriber: u64, kind: u64, start: u64) -> Key {
    typed(subscriber, kind) | start << 40
}

/// One to four different numbers out of 1 to 4.
fn kinds(rng: &mut Rng) -> Vec<u64> {
    let mut all = vec![1, 2, 3, 4];
    let count = rng.between(1, 4) as usize;
    (0..count).map(|_| all.swap_remove(rng.below(all.len() as u64) as usize)).collect()
}

impl Tatp {
    fn rows_of(&self, subscriber: u64) -> Vec<Put> {
        let mut rng = Rng::new(subscriber ^ 0x7A79);
        let bytes =
            |rng: &mut Rng, count: usize| -> Vec<u8> { (0..count).map(|_| rng.next_u32() as u8).collect() };
        let mut rows = vec![
            Put { table: SUBSCRIBER, key: subscriber, value: bytes(&mut rng, 40) },
            Put { table: SEC_SUBSCRIBER, key: subscriber, value: subscriber.to_le_bytes().to_vec() },
        ];
        for kind in kinds(&mut rng) {
            rows.push(Put { table: ACCESS_INFO, key: typed(subscriber, kind), value: bytes(&mut rng, 16) });
        }
        for kind in kinds(&mut rng) {
            let mut value = bytes(&mut rng, 8);
            value[0] = u8::from(rng.below(100) < ACTIVE_PERCENT);
            rows.push(Put { table: SPECIAL_FACILITY, key: typed(subscriber, kind), value });
            for start in START_TIMES {
                // As after a long run, when as many rows have been deleted as inserted.
                if rng.chance(0.5) {
                    let mut value = bytes(&mut rng, 16);
                    value[0] = (start + rng.between(1, 8)) as u8;
                    rows.push(Put {
                        table: CALL_FORWARDING,
                        key: forwarding(subscriber, kind, start),
                        value,
                    });
                }
            }
        }
        rows
    }

    /// The benchmark's distribution, in which some subscribers are asked for more often.
    fn subscriber(&self, rng: &mut Rng) -> u64 {
        let a = match self.subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        (rng.below(self.subscribers) | (rng.next_u64() & a)) % self.subscribers
    }
}

/// How many of the transactions that look for a destination find one: there is a facility, it is active, and a call forwarding covers the time.
fn destinations() -> f64 {
    let mut found = 0.0;
    for asked in START_TIMES {
        for end in 1..=24u64 {
            let misses = START_TIMES.iter().filter(|&&start| start <= asked).map(|&start| {
                let covering = (1..=8).filter(|length| start + length > end).count();
                1.0 - 0.5 * covering as f64 / 8.0
            });
            found += 1.0 - misses.product::<f64>();
        }
    }
    0.625 * ACTIVE_PERCENT as f64 / 100.0 * found / (3.0 * 24.0)
}

impl Workload for Tatp {
    fn tables(&self) -> Vec<TableKind> {
        vec![TableKind::Hash; 5]
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Put> + '_> {
        Box::new((0..self.subscribers).flat_map(|subscriber| self.rows_of(subscriber)))
    }

    fn draw(&mut self, rng: &mut Rng, _: &dyn Fn(TableId, Key) -> bool) -> Box<dyn Procedure> {
        Box::new(Transaction {
            name: pick(rng, &MIX),
            subscriber: self.subscriber(rng),
            kind: rng.between(1, 4),
            start: *rng.pick(&START_TIMES),
            end: rng.between(1, 24),
            random: rng.next_u64(),
            step: 0,
        })
    }

    fn success(&self, name: &str) -> f64 {
        match name {
            "GET_ACCESS_DATA" | "UPDATE_SUBSCRIBER_DATA" => 0.625,
            "GET_NEW_DESTINATION" => destinations(),
            "INSERT_CALL_FORWARDING" | "DELETE_CALL_FORWARDING" => 0.3125,
            _ => 1.0,
        }
    }

    fn mix(&self) -> &'static [(&'static str, u64)] {
        &MIX
    }
}

impl Transaction {
    fn first(&self) -> Vec<Access> {
        let (subscriber, facility) = (self.subscriber, typed(self.subscriber, self.kind));
        match self.name {
            "GET_SUBSCRIBER_DATA" => vec![read(SUBSCRIBER, subscriber)],
            "GET_ACCESS_DATA" => vec![read(ACCESS_INFO, facility)],
            "GET_NEW_DESTINATION" => vec![read(SPECIAL_FACILITY, facility)],
            "UPDATE_SUBSCRIBER_DATA" => vec![
                lock(SUBSCRIBER, subscriber, Mode::Update),
                lock(SPECIAL_FACILITY, facility, Mode::Update),
            ],
            "INSERT_CALL_FORWARDING" => {
                vec![read(SEC_SUBSCRIBER, subscriber), read(SPECIAL_FACILITY, facility)]
            }
            _ => vec![read(SEC_SUBSCRIBER, subscriber)],
        }
    }

    fn second(&self, view: &dyn View) -> Step {
        let (subscriber, facility) = (self.subscriber, typed(self.subscriber, self.kind));
        let found = |table, key| view.value(table, key).is_some();
        let forwarded = forwarding(subscriber, self.kind, self.start);
        let only_if = |there: bool, then: Step| if there { then } else { Step::Abort };
        match self.name {
            "GET_SUBSCRIBER_DATA" => only_if(found(SUBSCRIBER, subscriber), Step::Commit(Vec::new())),
            "GET_ACCESS_DATA" => only_if(found(ACCESS_INFO, facility), Step::Commit(Vec::new())),
            "GET_NEW_DESTINATION" => {
                let is_active =
                    view.value(SPECIAL_FACILITY, facility).is_some_and(|value| value.first() == Some(&1));
                let starts = START_TIMES.iter().filter(|&&start| start <= self.start);
                let wanted =
                    starts.map(|&start| read(CALL_FORWARDING, forwarding(subscriber, self.kind, start)));
                only_if(is_active, Step::Execute(wanted.collect()))
            }
            "UPDATE_SUBSCRIBER_DATA" => Step::Commit(vec![
                self.changed(view, SUBSCRIBER, subscriber, 8),
                self.changed(view, SPECIAL_FACILITY, facility, 2),
            ]),
            "UPDATE_LOCATION" => Step::Execute(vec![lock(SUBSCRIBER, subscriber, Mode::Update)]),
            "INSERT_CALL_FORWARDING" => only_if(
                found(SPECIAL_FACILITY, facility),
                Step::Execute(vec![lock(CALL_FORWARDING, forwarded, Mode::Insert)]),
            ),
            _ => Step::Execute(vec![lock(CALL_FORWARDING, forwarded, Mode::Delete)]),
        }
    }

    fn third(&self, view: &dyn View) -> Step {
        let key = |start| forwarding(self.subscriber, self.kind, start);
        match self.name {
            "GET_NEW_DESTINATION" => {
                let covers = |start: &u64| {
                    let value = view.value(CALL_FORWARDING, key(*start));
                    *start <= self.start && value.is_some_and(|value| u64::from(value[0]) > self.end)
                };
                if START_TIMES.iter().any(covers) { Step::Commit(Vec::new()) } else { Step::Abort }
            }
            "UPDATE_LOCATION" => Step::Commit(vec![self.changed(view, SUBSCRIBER, self.subscriber, 36)]),
            "INSERT_CALL_FORWARDING" => {
                let mut value = self.random.to_le_bytes().repeat(2);
                value[0] = (self.start + 1 + self.random % 8) as u8;
                Step::Commit(vec![Put { table: CALL_FORWARDING, key: key(self.start), value }])
            }
            _ => Step::Commit(Vec::new()),
        }
    }

    /// A row with one byte changed.
    fn changed(&self, view: &dyn View, table: TableId, key: Key, place: usize) -> Put {
        let mut value = view.value(table, key).unwrap_or_default().to_vec();
        if let Some(byte) = value.get_mut(place) {
            *byte = self.random as u8;
        }
        Put { table, key, value }
    }
}

impl Procedure for Transaction {
    fn name(&self) -> &'static str {
        self.name
    }

    fn arguments(&self) -> Vec<i64> {
        [self.subscriber, self.kind, self.start, self.end, self.random].map(|number| number as i64).to_vec()
    }

    fn step(&mut self, view: &dyn View) -> Step {
        self.step += 1;
        match self.step {
            1 => Step::Execute(self.first()),
            2 => self.second(view),
            _ => self.third(view),
        }
    }
}
