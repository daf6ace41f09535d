//! The cost of waiting, by place: each channel and each completion queue has an account of its own.

use highwire_link::shm::stats::ChannelFigures;
use highwire_wake::{Account, Figures};
use std::cmp::Reverse;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where threads wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A completion channel, by its descriptor.
    Channel(RawFd),
    /// A completion queue. They are told apart by the order in which they were made.
    Queue,
}

/// The accounts of a device.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    books: Mutex<Books>,
    told: Mutex<Told>,
    /// Figures of no particular place.
    of_device: Account,
}

#[derive(Debug, Default)]
struct Books {
    open: Vec<(Name, Arc<Account>)>,
    /// The figures of closed accounts.
    closed: Figures,
    queues: u32,
    /// How often an account was opened or closed.
    changes: u64,
}

/// The figures that other programs have seen last.
#[derive(Debug, Default)]
struct Told {
    /// The waits and the changes of the books until then.
    as_of: Option<(u64, u64)>,
    sum: Figures,
    /// When that was.
    at_ns: u64,
}

/// The figures for other programs to see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct News {
    /// All places together.
    pub(crate) sum: Figures,
    /// The busiest places, and how many others there are; `None` if they were told already.
    pub(crate) busiest: Option<(Vec<ChannelFigures>, usize)>,
}

/// So often all accounts are read although no wait has begun or ended: one that goes on for long counts its sleeps.
const READING_INTERVAL_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Name {
    Channel(RawFd),
    Queue(u32),
}

impl Accounts {
    /// A new account.
    pub(super) fn open(&self, place: Place) -> Arc<Account> {
        let mut books = self.books();
        let name = match place {
            Place::Channel(fd) => Name::Channel(fd),
            Place::Queue => {
                books.queues += 1;
                Name::Queue(books.queues)
            }
        };
        books.changes += 1;
        let account = Arc::<Account>::default();
        books.open.push((name, Arc::clone(&account)));
        account
    }

    /// No thread waits at this place any more.
    pub(super) fn close(&self, account: &Arc<Account>) {
        let mut books = self.books();
        if let Some(at) = books.open.iter().position(|(_, open)| Arc::ptr_eq(open, account)) {
            let (_, account) = books.open.swap_remove(at);
            books.closed += account.figures();
            books.changes += 1;
        }
    }

    pub(super) fn of_device(&self) -> &Account {
        &self.of_device
    }

    /// All of them together, closed ones with them, by name.
    pub(crate) fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.sum(&self.books()).each(each);
    }

    fn sum(&self, books: &Books) -> Figures {
        let mut sum = books.closed;
        sum += self.of_device.figures();
        books.open.iter().for_each(|(_, account)| sum += account.figures());
        sum
    }

    /// What is to be told of them now, of `most_places` at most. `waits` is another number whenever a wait has begun or ended: hundreds of
    /// accounts are not read over and over while hundreds of threads do nothing.
    pub(super) fn news(&self, now_ns: u64, waits: u64, most_places: usize) -> News {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let books = self.books();
        let as_of = Some((waits, books.changes));
        if told.as_of == as_of && now_ns.saturating_sub(told.at_ns) < READING_INTERVAL_NS {
            return News { sum: told.sum, busiest: None };
        }
        *told = Told { as_of, sum: self.sum(&books), at_ns: now_ns };
        News { sum: told.sum, busiest: Some(busiest(&books, most_places)) }
    }

    /// Those where a thread has waited.
    pub(crate) fn by_place(&self) -> Vec<ChannelFigures> {
        busiest(&self.books(), usize::MAX).0
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As many places as are wanted of those where a thread has waited, the ones that have counted most, and how many were left out. Only what is
/// wanted is put into words.
fn busiest(books: &Books, wanted: usize) -> (Vec<ChannelFigures>, usize) {
    let most = |figures: &Figures| figures.values().iter().max().copied().unwrap_or(0);
    let figures = books.open.iter().map(|(name, account)| (name, account.figures()));
    let mut used: Vec<_> = figures.filter(|(_, figures)| most(figures) > 0).collect();
    let left_out = used.len().saturating_sub(wanted);
    if left_out > 0 {
        used.select_nth_unstable_by_key(wanted, |(_, figures)| Reverse(most(figures)));
        used.truncate(wanted);
    }
    let named = |(name, figures): (&Name, Figures)| {
        let by_name = Figures::NAMES.iter().map(ToString::to_string).zip(figures.values().iter().copied());
        ChannelFigures { name: name.to_string(), figures: by_name.collect() }
    };
    (used.into_iter().map(named).collect(), left_out)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Channel(fd) => write!(f, "channel {fd}"),
            Name::Queue(number) => write!(f, "queue {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_wake::Kind;
    use std::time::Duration;

    fn wait(account: &Account, times: usize) {
        (0..times).for_each(|_| account.note(Kind::Own, 0, Duration::ZERO));
    }

    fn sum_of(news: &News) -> u64 {
        news.sum.waits()
    }

    #[test]
    fn accounts_are_read_when_a_wait_has_begun_or_ended_and_else_now_and_then() {
        let accounts = Accounts::default();
        let account = accounts.open(Place::Queue);
        let (mut waits, mut now) = (0, 7);
        let first = accounts.news(now, waits, 8);
        assert_eq!((sum_of(&first), first.busiest), (0, Some((Vec::new(), 0))), "nothing was told yet");
        for _ in 0..3 {
            // No wait begins or ends, but one that is under way counts something all the same.
            wait(&account, 1);
            for later in [0, READING_INTERVAL_NS - 1] {
                let news = accounts.news(now + later, waits, 8);
                assert_eq!((sum_of(&news), news.busiest), (waits, None), "{later}");
            }
            now += READING_INTERVAL_NS;
            let news = accounts.news(now, waits, 8);
            assert_eq!(sum_of(&news), waits + 1);
            assert_eq!(news.busiest.map(|(busiest, _)| busiest.len()), Some(1));
            wait(&account, 1);
            waits += 2;
            let news = accounts.news(now, waits, 8);
            assert_eq!((sum_of(&news), news.busiest.is_some()), (waits, true), "a wait has ended");
        }
        let other = accounts.open(Place::Queue);
        assert!(accounts.news(now, waits, 8).busiest.is_some(), "a place has come");
        accounts.close(&account);
        let news = accounts.news(now, waits, 8);
        assert_eq!((sum_of(&news), news.busiest), (waits, Some((Vec::new(), 0))), "a place has gone");
        drop(other);
    }

    #[test]
    fn the_busiest_places_are_told_and_the_others_counted() {
        let accounts = Accounts::default();
        let open: Vec<_> = (0..10).map(|_| accounts.open(Place::Queue)).collect();
        for (times, account) in open.iter().enumerate() {
            wait(account, times);
        }
        let (busiest, left_out) = accounts.news(0, 1, 4).busiest.expect("nothing was told yet");
        let mut names: Vec<_> = busiest.iter().map(|place| place.name.as_str()).collect();
        names.sort_unstable();
        // The first has never seen a wait.
        assert_eq!((names, left_out), (vec!["queue 10", "queue 7", "queue 8", "queue 9"], 5));
        assert_eq!(accounts.by_place().len(), 9);
    }
}
