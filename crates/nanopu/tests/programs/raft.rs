//! Raft: one leader per term, no answered write lost, and the same table everywhere once the faults are over.

use std::collections::BTreeMap;

use super::*;

const WRITE: u64 = 1;
const READ: u64 = 2;
const PEEK: u64 = 3;
const STATE: u64 = 4;
const CONFIGURE: u64 = 5;
const LEADER: u64 = 2;
const UNKNOWN: u64 = 6;
const SERVERS: usize = 3;
const ELECTION_CYCLES: u64 = 30_000;
/// Enough for a leader to be elected and to answer.
const RECOVERY_CYCLES: u64 = 40 * ELECTION_CYCLES;

fn write(key: u64, first: u64) -> Vec<u64> {
    [WRITE, key, !key].into_iter().chain((first..).take(8)).collect()
}

/// What a server says about itself.
#[derive(Clone, Copy, Debug)]
struct State {
    term: u64,
    is_leader: bool,
    last: u64,
    applied: u64,
}

struct Cluster {
    testbed: Testbed,
    /// The node to ask first.
    guess: usize,
    leaders: BTreeMap<u64, usize>,
}

impl Cluster {
    fn new() -> Option<Cluster> {
        let mut testbed = testbed(&["raft"; SERVERS], 1)?;
        let addresses = (0..SERVERS).map(|number| u64::from(address(number)));
        for number in 0..SERVERS {
            let mut words = vec![CONFIGURE, number as u64, SERVERS as u64];
            words.extend(addresses.clone());
            words.push(ELECTION_CYCLES);
            assert_eq!(ask_node(&mut testbed, number, &words), [status::OK]);
        }
        Some(Cluster { testbed, guess: 0, leaders: BTreeMap::new() })
    }

    fn state(&mut self, server: usize) -> State {
        let words = ask_node(&mut self.testbed, server, &[STATE]);
        assert_eq!((words[0], words.len()), (status::OK, 7));
        let state =
            State { term: words[1], is_leader: words[2] == LEADER, last: words[4], applied: words[6] };
        if state.is_leader {
            let known = *self.leaders.entry(state.term).or_insert(server);
            assert_eq!(known, server, "two leaders in term {}", state.term);
        }
        state
    }

    /// The server that leads the highest term.
    fn leader(&mut self) -> usize {
        let end = self.testbed.cycle() + RECOVERY_CYCLES;
        while self.testbed.cycle() < end {
            let states: Vec<State> = (0..SERVERS).map(|server| self.state(server)).collect();
            let highest = states.iter().map(|state| state.term).max();
            let found = states.iter().position(|state| state.is_leader && Some(state.term) == highest);
            if let Some(server) = found {
                return server;
            }
            self.testbed.run(ELECTION_CYCLES / 4).expect("no trap");
        }
        panic!("no leader by cycle {end}");
    }

    /// Asks for a while, and goes to the servers that answers name. `None` if the command may or may not have
    /// happened.
    fn submit(&mut self, words: &[u64], patience_cycles: u64) -> Option<Vec<u64>> {
        let end = self.testbed.cycle() + patience_cycles;
        while self.testbed.cycle() < end {
            let left = end - self.testbed.cycle();
            let answer = self.testbed.call(address(self.guess), 0, words, left).ok()?.words();
            match answer[0] {
                status::NOT_HERE => {
                    let known = (0..SERVERS).find(|&server| u64::from(address(server)) == answer[1]);
                    self.guess = known.unwrap_or((self.guess + 1) % SERVERS);
                    if known.is_none() {
                        self.testbed.run(ELECTION_CYCLES / 10).expect("no trap");
                    }
                }
                UNKNOWN => return None,
                _ => return Some(answer),
            }
        }
        None
    }

    /// Loses everything between these servers and the others; the host reaches all.
    fn cut_off(&mut self, server: usize) {
        let cut = address(server);
        let is_server = |address: u32| address != highwire_nanopu::testbed::HOST;
        self.testbed.lose(Some(Box::new(move |_, packet| {
            let is_between = is_server(packet.source) && is_server(packet.destination);
            is_between && (packet.source == cut || packet.destination == cut)
        })));
    }

    /// Runs without faults until all servers have applied everything, and compares what they hold.
    fn converge(&mut self, keys: u64) {
        self.testbed.lose(None);
        let end = self.testbed.cycle() + RECOVERY_CYCLES;
        loop {
            let states: Vec<State> = (0..SERVERS).map(|server| self.state(server)).collect();
            if states.iter().all(|state| state.last == states[0].last && state.applied == state.last) {
                break;
            }
            assert!(self.testbed.cycle() < end, "{states:?}");
            self.testbed.run(1_000).expect("no trap");
        }
        for key in 0..keys {
            let held: Vec<_> =
                (0..SERVERS).map(|server| ask_node(&mut self.testbed, server, &[PEEK, key, !key])).collect();
            assert!(held.iter().all(|words| *words == held[0]), "{held:?}");
        }
    }
}

#[test]
fn what_the_leader_answers_every_server_holds() {
    let Some(mut cluster) = Cluster::new() else { return };
    cluster.leader();
    let mut model = BTreeMap::new();
    let mut rng = Rng::new(12);
    for step in 1..=60 {
        let key = rng.below(10);
        if rng.chance(0.6) {
            assert_eq!(cluster.submit(&write(key, 100 * step), RECOVERY_CYCLES), Some(vec![status::OK]));
            model.insert(key, 100 * step);
        } else {
            let answer = cluster.submit(&[READ, key, !key], RECOVERY_CYCLES).expect("answered");
            let expected = model.get(&key).map_or(vec![status::NOT_FOUND], |&first| {
                [status::OK].into_iter().chain((first..).take(8)).collect()
            });
            assert_eq!(answer, expected);
        }
    }
    cluster.converge(10);
    assert_eq!(cluster.leaders.len(), 1, "nobody stood for election in between");
}

#[test]
fn a_leader_that_is_cut_off_is_replaced_and_follows_when_it_is_back() {
    let Some(mut cluster) = Cluster::new() else { return };
    let old = cluster.leader();
    cluster.guess = old;
    assert_eq!(cluster.submit(&write(1, 10), RECOVERY_CYCLES), Some(vec![status::OK]));
    cluster.cut_off(old);
    // The old leader still believes that it leads, and takes a write that no other node ever sees.
    let lost =
        cluster.testbed.send(Request::of_words(cluster.testbed.cycle(), address(old), 0, &write(1, 20)));
    cluster.testbed.run(4 * ELECTION_CYCLES).expect("no trap");
    assert!(cluster.testbed.answer(lost).is_none());
    let new =
        (0..SERVERS).find(|&server| server != old && cluster.state(server).is_leader).expect("another one");
    cluster.guess = new;
    assert_eq!(cluster.submit(&write(1, 30), RECOVERY_CYCLES), Some(vec![status::OK]));
    cluster.converge(2);
    assert_eq!(cluster.testbed.answer(lost).expect("in the end").words(), [UNKNOWN]);
    assert!(!cluster.state(old).is_leader);
    let answer = cluster.submit(&[READ, 1, !1], RECOVERY_CYCLES).expect("answered");
    assert_eq!(answer[1], 30);
}

#[test]
fn nothing_answered_is_lost_whatever_is_cut_off() {
    for seed in 0..3 {
        let Some(mut cluster) = Cluster::new() else { return };
        let mut rng = Rng::new(seed);
        // Of one key: the last value that was answered for, and those that may still come.
        let (mut current, mut pending) = (None, Vec::new());
        for step in 1..=40u64 {
            if rng.chance(0.3) {
                match rng.below(4) {
                    3 => cluster.testbed.lose(None),
                    server => cluster.cut_off(server as usize),
                }
            }
            if rng.chance(0.2) {
                cluster.guess = rng.below(SERVERS as u64) as usize;
            }
            if rng.chance(0.5) {
                match cluster.submit(&write(0, 100 * step), 3 * ELECTION_CYCLES) {
                    Some(answer) => {
                        assert_eq!(answer, [status::OK], "seed {seed}");
                        current = Some(100 * step);
                    }
                    None => pending.push(100 * step),
                }
            } else if let Some(answer) = cluster.submit(&[READ, 0, !0], 3 * ELECTION_CYCLES) {
                let found = answer.get(1).copied();
                let is_pending = found.is_some_and(|value| pending.contains(&value));
                assert!(
                    found == current || is_pending,
                    "seed {seed}: {found:?}, not {current:?} or {pending:?}"
                );
                pending.retain(|&value| Some(value) != found);
                current = found;
            }
            for server in 0..SERVERS {
                cluster.state(server);
            }
        }
        cluster.converge(1);
        println!("seed {seed}: {} terms with a leader", cluster.leaders.len());
        assert!(cluster.leaders.len() > 1, "seed {seed}: the faults did nothing");
    }
}

#[test]
fn the_log_goes_round_and_who_lags_behind_catches_up() {
    let Some(mut cluster) = Cluster::new() else { return };
    let leader = cluster.leader();
    let write_many = |cluster: &mut Cluster, count: u64| {
        let start = cluster.testbed.cycle();
        let requests =
            (0..count).map(|i| Request::of_words(start + 1_500 * i, address(leader), 0, &write(i % 7, i)));
        let times = cluster.testbed.play(requests.collect(), RECOVERY_CYCLES).expect("no trap");
        let unanswered = times.iter().filter(|time| time.is_none()).count();
        assert_eq!(unanswered, 0);
    };
    write_many(&mut cluster, 700);
    cluster.cut_off((leader + 1) % SERVERS);
    write_many(&mut cluster, 500);
    cluster.converge(7);
    assert!(cluster.state(leader).last > 1_200);
}

#[test]
fn servers_refuse_what_makes_no_sense() {
    let Some(mut testbed) = testbed(&["raft"], 1) else { return };
    assert_eq!(ask(&mut testbed, &write(1, 1)), [status::NOT_HERE, 0], "it is alone and knows nobody");
    for wrong in [
        vec![],
        vec![WRITE],
        vec![READ, 1],
        vec![99],
        vec![CONFIGURE, 0, 1, 5],
        vec![CONFIGURE, 3, 3, 1, 2, 3, 4],
    ] {
        assert_eq!(ask(&mut testbed, &wrong), [status::MALFORMED], "{wrong:?}");
    }
    for stranger in 16..=19 {
        let silent = testbed.call(address(0), 0, &[stranger, 1, 2, 3], 20_000);
        assert!(silent.is_err(), "strangers are no servers");
    }
    assert_eq!(ask(&mut testbed, &[CONFIGURE, 0, 1, address(0).into(), 5_000]), [status::OK]);
    testbed.run(20_000).expect("no trap");
    assert_eq!(ask(&mut testbed, &write(1, 7)), [status::OK], "alone it has the majority");
    assert_eq!(ask(&mut testbed, &[PEEK, 1, !1])[..2], [status::OK, 7]);
    throw_garbage(&mut testbed, 13, 5);
}
