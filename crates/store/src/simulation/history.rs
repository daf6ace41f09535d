//! What clients saw, and what must hold of it.
//!
//! A key goes through one order of states: written for the first time, expired, written for the second time, and so on. A transaction that begins
//! after another has ended sees no earlier state of a key than the other left, whatever the clocks of their nodes say.

use super::clients::KEYS;
use crate::error::StoreError;
use std::collections::BTreeMap;

/// A key at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// How often it was written.
    pub(super) count: u64,
    pub(super) is_there: bool,
    /// Its entry is another one than was written last, or is there after its time.
    pub(super) is_wrong: bool,
}

impl State {
    /// Later states are greater.
    fn rank(self) -> u64 {
        2 * self.count + u64::from(!self.is_there)
    }

    /// As a writer saw it before.
    pub(super) fn before(self) -> State {
        State { count: self.count - 1, ..self }
    }

    pub(super) fn written(self) -> State {
        State { is_there: true, is_wrong: false, ..self }
    }
}

/// What a transaction saw of a key, and what it left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) key: u64,
    /// `None`: it changed nothing.
    pub(super) before: Option<State>,
    pub(super) after: State,
}

struct Observation {
    began_ns: u64,
    ended_ns: u64,
    seen: Vec<Seen>,
}

#[derive(Default)]
pub(super) struct History {
    committed: Vec<Observation>,
    /// Transactions that may have committed.
    unknown: usize,
    wrong: Option<String>,
}

impl History {
    pub(super) fn add(&mut self, began_ns: u64, ended_ns: u64, seen: Option<Result<Vec<Seen>, StoreError>>) {
        match seen {
            Some(Ok(seen)) => self.committed.push(Observation { began_ns, ended_ns, seen }),
            None | Some(Err(StoreError::Unknown(_) | StoreError::Conflict)) => self.unknown += 1,
            Some(Err(error)) => drop(self.wrong.get_or_insert_with(|| format!("an error: {error}"))),
        }
    }

    pub(super) fn committed(&self) -> usize {
        self.committed.len()
    }

    /// Transactions that found a key absent which had been written.
    pub(super) fn expired(&self) -> usize {
        let seen = self.committed.iter().flat_map(|one| &one.seen);
        seen.filter(|seen| {
            let found = seen.before.unwrap_or(seen.after);
            !found.is_there && found.count > 0
        })
        .count()
    }

    /// Keys that do not expire. Each may be in a row of its own.
    pub(super) fn lasting(&self) -> usize {
        KEYS as usize
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let mut writers: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        for one in &self.committed {
            for seen in &one.seen {
                let states = seen.before.into_iter().chain([seen.after]);
                if let Some(state) = states.into_iter().find(|state| state.is_wrong) {
                    return Err(format!("key {} has an entry that it must not have: {state:?}", seen.key));
                }
                let count = seen.after.count;
                if seen.before.is_some_and(|before| before.count < count) {
                    *writers.entry((seen.key, count)).or_default() += 1;
                }
            }
        }
        if let Some(((key, count), _)) = writers.iter().find(|(_, writers)| **writers > 1) {
            return Err(format!("key {key} was written twice for the {count}th time"));
        }
        self.check_order()
    }

    fn check_order(&self) -> Result<(), String> {
        let mut ended: Vec<&Observation> = self.committed.iter().collect();
        ended.sort_by_key(|one| one.ended_ns);
        let mut begun: Vec<&Observation> = self.committed.iter().collect();
        begun.sort_by_key(|one| one.began_ns);
        let mut latest: BTreeMap<u64, State> = BTreeMap::new();
        let mut ended = ended.into_iter().peekable();
        for one in begun {
            while let Some(before) = ended.next_if(|before| before.ended_ns < one.began_ns) {
                for seen in &before.seen {
                    let state = latest.entry(seen.key).or_insert(seen.after);
                    if seen.after.rank() > state.rank() {
                        *state = seen.after;
                    }
                }
            }
            for seen in &one.seen {
                let found = seen.before.unwrap_or(seen.after);
                let earlier = latest.get(&seen.key).filter(|latest| latest.rank() > found.rank());
                if let Some(earlier) = earlier {
                    return Err(format!("key {} was {earlier:?}, and later {found:?}", seen.key));
                }
            }
        }
        Ok(())
    }
}
