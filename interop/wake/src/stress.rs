//! Many events in little time: a dispatcher that switches and a thread of another core that posts, to the same threads, without waiting for answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use highwire_stdx::Rng;
use highwire_wake::{pin, yield_core};

use crate::device::{Counts, Group};

/// All events are answered within this, or some are lost.
const PATIENCE: Duration = Duration::from_secs(120);
const SWITCH_PATIENCE_US: u32 = 10_000;

/// Sends `events` to this many threads, half by each of the two, and returns the module's counts.
///
/// # Errors
/// An event was lost or answered twice, or the device refused something.
pub(crate) fn run(events: u64, threads: u32, cores: [u32; 2]) -> Result<Counts> {
    let group = Group::with_slots(threads)?;
    let sent: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let answered: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let total = |counts: &[AtomicU64]| counts.iter().map(|count| count.load(Ordering::Acquire)).sum::<u64>();
    thread::scope(|scope| {
        let (group, sent, answered) = (&group, &sent, &answered);
        let waiting: Vec<_> = (0..threads)
            .map(|slot| {
                scope.spawn(move || -> Result<()> {
                    pin(&[cores[1]]).context("a waiting thread cannot be pinned")?;
                    loop {
                        match group.wait(slot) {
                            Ok(posts) => answered[slot as usize].fetch_add(posts.into(), Ordering::Release),
                            Err(error) if error.raw_os_error() == Some(libc::ESHUTDOWN) => return Ok(()),
                            Err(error) => return Err(error).context("a thread cannot wait at its slot"),
                        };
                    }
                })
            })
            .collect();
        let sender = |core: u32, seed: u64, is_dispatcher: bool| {
            scope.spawn(move || -> Result<()> {
                pin(&[core]).context("a sender cannot be pinned")?;
                let mut rng = Rng::new(seed);
                for number in 0..events / 2 {
                    let slot = (rng.next_u64() % u64::from(threads)) as u32;
                    sent[slot as usize].fetch_add(1, Ordering::Release);
                    if is_dispatcher {
                        group.switch(slot, SWITCH_PATIENCE_US)?;
                    } else {
                        group.post(slot)?;
                        // Not all at once: threads are to be found asleep, awake and in between.
                        (0..number % 64).for_each(|_| std::hint::spin_loop());
                    }
                }
                Ok(())
            })
        };
        let senders = [sender(cores[1], 1, true), sender(cores[0], 2, false)];
        let sending = senders.map(|sender| sender.join().unwrap_or_else(|_| bail!("a sender panicked")));
        let begin = Instant::now();
        while total(answered) < total(sent) && begin.elapsed() < PATIENCE {
            yield_core();
        }
        // Before the group is closed: that wakes every thread, and each would find an event for which no
        // thread has woken it.
        let (sent, answered) = (total(sent), total(answered));
        group.close()?;
        for thread in waiting {
            thread.join().unwrap_or_else(|_| bail!("a waiting thread panicked"))?;
        }
        for sending in sending {
            sending.context("a sender")?;
        }
        ensure!(sent == answered, "{sent} events were sent, and {answered} answered before the end");
        Ok::<(), anyhow::Error>(())
    })?;
    for (slot, (sent, answered)) in sent.iter().zip(&answered).enumerate() {
        let (sent, answered) = (sent.load(Ordering::Acquire), answered.load(Ordering::Acquire));
        ensure!(sent == answered, "slot {slot} was sent {sent} events and has answered {answered}");
    }
    Ok(group.counts()?)
}
