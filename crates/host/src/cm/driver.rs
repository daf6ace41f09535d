//! Runs a connection manager over a device's queue pair 1: a thread takes arriving messages and watches the
//! clock.
//!
//! One lock guards the manager and the application's books: nothing here is on the data path. A call of the application
//! changes the manager under the lock and then calls [`Driver::flush`].

use crate::gsi::{Gsi, GsiError};
use crate::in_place::OwnThread;
use crate::sys::{EventFd, wait_readable};
use highwire_cm::{ConnectionManager, Event};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::Gid;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// The state under a driver's lock: a connection manager, and an application that handles its events.
pub trait Application: Send + 'static {
    /// The manager.
    fn manager(&mut self) -> &mut ConnectionManager;

    /// Takes an event, under the lock: notes it, and may give the manager an answer.
    fn on_event(&mut self, gsi: &Gsi, event: Event);

    /// Called by the driver's thread, under the lock, each time it wakes: [`look_again`](Driver::look_again) wakes it.
    fn on_turn(&mut self, _gsi: &Gsi) {}

    /// A message to `to` could not be sent. It counts as lost on the network, and is repeated.
    fn on_unsent(&mut self, _to: Gid, _error: &GsiError) {}
}

/// A connection manager that runs.
pub struct Driver<A> {
    gsi: Gsi,
    application: Mutex<A>,
    changed: Condvar,
    /// When its thread looks at the clock again, in nanoseconds; 0 while it does not sleep. Changed under the lock.
    asleep_until: AtomicU64,
    wake: EventFd,
    is_closing: AtomicBool,
}

/// The time that connection managers of this process are driven with.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let nanos = ORIGIN.get_or_init(std::time::Instant::now).elapsed().as_nanos();
    // 64 bits of nanoseconds last 584 years.
    Instant::from_nanos(nanos as u64)
}

impl<A: Application> Driver<A> {
    /// Starts the thread. It runs until [`close`](Driver::close).
    ///
    /// # Errors
    /// No thread or no descriptor is left.
    pub fn start(gsi: Gsi, application: A) -> io::Result<(Arc<Driver<A>>, JoinHandle<()>)> {
        let driver = Arc::new(Driver {
            gsi,
            application: Mutex::new(application),
            changed: Condvar::new(),
            asleep_until: AtomicU64::new(0),
            wake: EventFd::new()?,
            is_closing: AtomicBool::new(false),
        });
        let run = Arc::clone(&driver);
        let thread = OwnThread::spawn("highwire-cm", move || run.run())?;
        Ok((driver, thread))
    }

    /// Asks the thread to end.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.wake.signal();
    }

    /// Has the thread call [`Application::on_turn`] soon. It takes no lock, so it may be called anywhere.
    pub fn look_again(&self) {
        self.wake.signal();
    }

    /// The device's general services.
    pub fn gsi(&self) -> &Gsi {
        &self.gsi
    }

    /// The manager and the books.
    pub fn lock(&self) -> MutexGuard<'_, A> {
        self.application.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_done` returns true, or until `deadline`; returns the books either way.
    pub fn wait_until<'a>(
        &'a self,
        mut books: MutexGuard<'a, A>,
        deadline: Instant,
        mut is_done: impl FnMut(&mut A) -> bool,
    ) -> MutexGuard<'a, A> {
        loop {
            let left = deadline.saturating_since(now());
            if is_done(&mut books) || left == Duration::ZERO {
                return books;
            }
            let left = std::time::Duration::from_nanos(left.as_nanos());
            books = self.changed.wait_timeout(books, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends pending messages, hands out events, and makes sure that the thread wakes in time. To be called
    /// after every call of the manager, before the lock is released.
    pub fn flush(&self, application: &mut A) {
        let mut has_news = false;
        loop {
            while let Some(transmit) = application.manager().poll_transmit() {
                if let Err(error) = self.gsi.send(transmit.to.to_ip(), &transmit.mad) {
                    application.on_unsent(transmit.to, &error);
                }
            }
            // Taking an event may lead to a refusal, which is sent in the next round.
            let Some(event) = application.manager().poll_event() else { break };
            application.on_event(&self.gsi, event);
            has_news = true;
        }
        if has_news {
            self.changed.notify_all();
        }
        if next_timeout(application) < self.asleep_until.load(Ordering::Relaxed) {
            self.wake.signal();
        }
    }

    fn run(&self) {
        while !self.is_closing.load(Ordering::SeqCst) {
            let deadline = {
                let mut application = self.lock();
                while let Some(received) = self.gsi.try_receive() {
                    let from = Gid::from_ip(received.source);
                    application.manager().handle_mad(now(), from, received.mad.as_slice());
                }
                application.manager().handle_timeout(now());
                application.on_turn(&self.gsi);
                self.flush(&mut application);
                let next = next_timeout(&mut *application);
                self.asleep_until.store(next, Ordering::Relaxed);
                next
            };
            let left = (deadline != u64::MAX)
                .then(|| Duration::from_nanos(deadline.saturating_sub(now().as_nanos())));
            wait_readable(&[self.gsi.fd(), self.wake.fd()], left);
            let _awake = self.lock();
            self.asleep_until.store(0, Ordering::Relaxed);
            self.wake.clear();
        }
    }
}

/// When the manager wants to look at the clock, in nanoseconds.
fn next_timeout(application: &mut impl Application) -> u64 {
    application.manager().poll_timeout().map_or(u64::MAX, |at| at.as_nanos())
}
