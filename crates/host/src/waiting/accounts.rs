//! What waiting has cost, by place: each channel and each completion queue has an account of its own.

use highwire_link::shm::stats::ChannelFigures;
use highwire_wake::{Account, Figures};
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
    /// What concerns no place of its own.
    of_device: Account,
}

#[derive(Debug, Default)]
struct Books {
    open: Vec<(Name, Arc<Account>)>,
    /// What those held that are closed.
    closed: Figures,
    queues: u32,
}

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
        let account = Arc::<Account>::default();
        books.open.push((name, Arc::clone(&account)));
        account
    }

    /// Nobody waits there any more.
    pub(super) fn close(&self, account: &Arc<Account>) {
        let mut books = self.books();
        if let Some(at) = books.open.iter().position(|(_, open)| Arc::ptr_eq(open, account)) {
            let (_, account) = books.open.swap_remove(at);
            books.closed += account.figures();
        }
    }

    pub(super) fn of_device(&self) -> &Account {
        &self.of_device
    }

    /// All of them together, closed ones with them, by name.
    pub(crate) fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let books = self.books();
        let mut sum = books.closed;
        sum += self.of_device.figures();
        books.open.iter().for_each(|(_, account)| sum += account.figures());
        sum.each(each);
    }

    /// Those where a thread has waited.
    pub(crate) fn by_place(&self) -> Vec<ChannelFigures> {
        let books = self.books();
        let figures = books.open.iter().map(|(name, account)| (name, account.figures()));
        let used = figures
            .filter(|(_, figures)| figures.waits() > 0 || figures.values().iter().any(|value| *value > 0));
        let named = |(name, figures): (&Name, Figures)| {
            let by_name =
                Figures::NAMES.iter().map(ToString::to_string).zip(figures.values().iter().copied());
            ChannelFigures { name: name.to_string(), figures: by_name.collect() }
        };
        used.map(named).collect()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Channel(fd) => write!(f, "channel {fd}"),
            Name::Queue(number) => write!(f, "queue {number}"),
        }
    }
}
