//! Loops of clients: closed, where each begins its next transaction when the last one has ended, and open,
//! where a Poisson process says when transactions begin and a latency counts from then.

use std::num::NonZeroU64;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use hdrhistogram::Histogram;
use highwire_stdx::Rng;
use highwire_txn::workloads::Workload;
use serde::Serialize;

use crate::cpu::Trees;
use crate::{Ended, Session, Target};

/// The first pause after a conflict; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// A transaction that is tried for longer voids the run.
const PATIENCE: Duration = Duration::from_secs(30);

/// The load.
pub(crate) struct Load {
    pub(crate) seconds: Duration,
    pub(crate) seed: u64,
    /// Transactions per second of all clients, in an open loop.
    pub(crate) rate: Option<f64>,
    pub(crate) clients: u64,
}

/// The result of a load.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    /// Of this program and of all processes of the system.
    pub(crate) cpu_seconds: f64,
    /// Of this program alone.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) commits: u64,
    pub(crate) refusals: u64,
    pub(crate) conflicts: u64,
    pub(crate) committed_per_second: f64,
    pub(crate) committed_per_cpu_second: f64,
    /// The share of attempts that met another transaction.
    pub(crate) abort_rate: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) offered_per_second: Option<f64>,
    /// Transactions of an open loop that had not ended when no further one began.
    pub(crate) behind: u64,
    pub(crate) money: i64,
}

impl Outcome {
    /// Transactions that ended for good.
    pub(crate) fn finished_per_second(&self) -> f64 {
        (self.commits + self.refusals) as f64 / self.seconds
    }
}

/// The state that the clients of a load share.
struct Book {
    workload: Box<dyn Workload + Send>,
    rng: Rng,
    rate: Option<f64>,
    length: Duration,
    next: Duration,
    commits: u64,
    refusals: u64,
    conflicts: u64,
    behind: u64,
    money: i64,
    latencies: Histogram<u64>,
}

impl Book {
    /// When the next transaction must begin, counted from the beginning, and its seed.
    fn next(&mut self, now: Duration) -> Option<(Duration, u64)> {
        let at = match self.rate {
            None => now,
            Some(rate) => {
                self.next += Duration::from_secs_f64(-(1.0 - self.rng.unit()).ln() / rate);
                self.next
            }
        };
        (at < self.length).then(|| (at, self.rng.next_u64()))
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays it.
pub(crate) fn play(target: &Target, trees: &Trees, load: &Load) -> Result<Outcome> {
    let book = Mutex::new(Book {
        workload: target.benchmark(),
        rng: Rng::new(load.seed),
        rate: load.rate,
        length: load.seconds,
        next: Duration::ZERO,
        commits: 0,
        refusals: 0,
        conflicts: 0,
        behind: 0,
        money: 0,
        latencies: Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?,
    });
    let own = Trees::of(&[]);
    // All clients are connected before the first begins, and none has gone when the last one ends.
    let (ready, go, done) = (barrier(load), barrier(load), barrier(load));
    let began = Mutex::new(Instant::now());
    let (cpu_seconds, client_cpu_seconds, seconds) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|number| {
                let (book, ready, go, done, began) = (&book, &ready, &go, &done, &began);
                scope.spawn(move || {
                    let session = target.session(number);
                    ready.wait();
                    go.wait();
                    let began = *began.lock().unwrap_or_else(PoisonError::into_inner);
                    let result = match session {
                        Ok(mut session) => work(&mut *session, book, began, number).map(|()| Some(session)),
                        Err(error) => Err(error),
                    };
                    done.wait();
                    result.map(drop)
                })
            })
            .collect();
        ready.wait();
        let before = trees.ticks().and_then(|all| Ok((all, own.ticks()?)));
        *began.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        go.wait();
        done.wait();
        let seconds = began.lock().unwrap_or_else(PoisonError::into_inner).elapsed().as_secs_f64();
        let before = before?;
        let cpu = (trees.seconds_since(before.0)?, own.seconds_since(before.1)?);
        for client in clients {
            client.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        anyhow::Ok((cpu.0, cpu.1, seconds))
    })?;
    let book = book.into_inner().unwrap_or_else(PoisonError::into_inner);
    let attempts = book.commits + book.refusals + book.conflicts;
    let at = |quantile| book.latencies.value_at_quantile(quantile);
    Ok(Outcome {
        seconds,
        cpu_seconds,
        client_cpu_seconds,
        commits: book.commits,
        refusals: book.refusals,
        conflicts: book.conflicts,
        committed_per_second: book.commits as f64 / seconds,
        committed_per_cpu_second: book.commits as f64 / cpu_seconds.max(0.01),
        abort_rate: book.conflicts as f64 / attempts.max(1) as f64,
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        offered_per_second: load.rate,
        behind: book.behind,
        money: book.money,
    })
}

/// For all clients and the measuring thread.
fn barrier(load: &Load) -> Barrier {
    Barrier::new(load.clients as usize + 1)
}

fn work(session: &mut dyn Session, book: &Mutex<Book>, began: Instant, number: u64) -> Result<()> {
    // Otherwise a sleeping thread is woken 50 µs late, which would count as latency.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).context("the timers' slack")?;
    let mut rng = Rng::new(number);
    loop {
        let Some((at, seed)) = lock(book).next(began.elapsed()) else { return Ok(()) };
        std::thread::sleep(at.saturating_sub(began.elapsed()));
        let mut pause = PAUSE_MIN;
        loop {
            let mut transaction = lock(book).workload.draw(&mut Rng::new(seed), &|_, _| false);
            let ended = session.attempt(&mut *transaction)?;
            let now = began.elapsed();
            let mut book = lock(book);
            match ended {
                Ended::Committed(money) => {
                    book.commits += 1;
                    book.money += money;
                }
                Ended::Refused => book.refusals += 1,
                Ended::Conflict => {
                    book.conflicts += 1;
                    if now > at + PATIENCE {
                        bail!("{} in conflict for {PATIENCE:?}", transaction.name());
                    }
                    drop(book);
                    std::thread::sleep(pause.mul_f64(rng.unit()));
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            }
            book.latencies.saturating_record((now - at).as_nanos() as u64);
            book.behind += u64::from(book.rate.is_some() && now > book.length);
            break;
        }
    }
}
