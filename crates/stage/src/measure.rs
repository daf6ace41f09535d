//! The constants of the model, each from a loop of the operation that it stands for. Medians, or the best of
//! a few means: other programs only add.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::hands::STACK_BYTES;
use crate::{Care, Modelled, Real, Scene, Seats, Until, play};
use hdrhistogram::Histogram;
use highwire_cores::{Costs, Machine};
use highwire_wake::{
    Account, Core, Figures, LeaderFollower, Station, Strategy, Turn, Wait, WakeStrategy, WakeWord, Work,
    machine_cores, pin, run_only_when_idle, runnable_threads, thread_time, yield_core,
};
use std::io;

/// Repetitions of a measurement by median: this many, or those of a given time, but a few at least.
const ROUNDS: u64 = 600;
const ROUNDS_MIN: u64 = 20;
const LONG: Duration = Duration::from_millis(300);
/// Sweeps through all constants. A machine's pace changes: related constants are measured together, and the
/// median sweep counts.
const SWEEPS: usize = 5;
/// Tells the thread that answers that there are no more.
const OVER: u64 = u64::MAX;
/// How long a thread is left alone: it is asleep by then.
const PAUSE: Duration = Duration::from_micros(12);

/// The costs of this machine's two cores.
///
/// # Errors
/// This process may not use one of the cores.
pub fn costs(cores: [Core; 2]) -> io::Result<Costs> {
    thread::spawn(move || {
        pin(&[cores[0]])?;
        let sweeps = (0..SWEEPS).map(|_| measure(cores)).collect::<io::Result<Vec<Costs>>>()?;
        Costs::median(&sweeps).ok_or_else(|| io::Error::other("nothing was measured"))
    })
    .join()
    .unwrap_or_else(|_| Err(io::Error::other("a measurement panicked")))
}

fn measure(cores: [Core; 2]) -> io::Result<Costs> {
    let looked = AtomicU64::new(0);
    let relax_ns = mean(20_000, || {
        looked.load(Ordering::Acquire);
        std::hint::spin_loop();
    });
    let clock_ns = mean(20_000, || _ = std::hint::black_box(Instant::now()));
    let call_ns = mean(5000, yield_core);
    let census_ns = mean(500, || _ = std::hint::black_box((runnable_threads(), machine_cores())));
    let turn_ns = turn().saturating_sub(clock_ns / 16).max(1);
    let line = bounce(cores, std::hint::spin_loop)?;
    let fetch_ns = line.saturating_sub(relax_ns / 2).max(1);
    let yielded = bounce([cores[0]; 2], yield_core)?;
    let switch_ns = yielded.saturating_sub(call_ns).max(1);
    let Woken { call: wake_here_ns, .. } = wake([cores[0]; 2], true, false)?;
    // The rest of a round for the thread that wakes and for the one that sleeps; only together are they free
    // of the cost of measuring one.
    let both = sleep(cores[0], call_ns)?.saturating_sub(2 * switch_ns + call_ns).max(1);
    let wake_here_ns = wake_here_ns.min(both);
    let sleep_ns = both - wake_here_ns;
    let Woken { call: wake_idle_ns, answer: idle, cpu: idle_cpu } = wake(cores, false, false)?;
    let Woken { call: wake_busy_ns, answer: busy, cpu: busy_cpu } = wake(cores, false, true)?;
    let own_cpu = sleep_ns + call_ns + fetch_ns;
    let costs = Costs {
        event_ns: 0,
        spawn_ns: spawn()?,
        move_ns: moving(cores)?,
        from_idle_ns: idle_cpu.saturating_sub(own_cpu),
        from_busy_ns: busy_cpu.saturating_sub(own_cpu + switch_ns),
        relax_ns,
        turn_ns,
        fetch_ns,
        clock_ns,
        call_ns,
        census_ns,
        wake_idle_ns,
        wake_busy_ns,
        wake_here_ns,
        sleep_ns,
        switch_ns,
        idle_exit_ns: idle.saturating_sub(wake_idle_ns + sleep_ns + fetch_ns),
        interrupt_ns: busy.saturating_sub(wake_busy_ns + switch_ns + sleep_ns + fetch_ns),
        slice_ns: stint(cores[1], || _ = thread_time())?,
        tick_ns: stint(cores[1], || {})?,
    };
    Ok(Costs { event_ns: polling(cores, None)?.saturating_sub(polling([0, 1], Some(costs))?), ..costs })
}

/// The median time from event to answer if one thread polls for itself: here, or in a model.
fn polling(cores: [Core; 2], model: Option<Costs>) -> io::Result<u64> {
    let (strategy, seats) = (Strategy::BusyPoll, Seats::Core);
    let scene = Scene { seats, ..Scene::of(strategy) };
    let time = Until::Time(Duration::from_millis(10));
    let outcome = match model {
        None => play(&mut Real::default(), scene, &cores, time, 0, Care::default()),
        Some(costs) => {
            play(&mut Modelled::new(Machine::new(2, costs)), scene, &cores, time, 0, Care::default())
        }
    };
    Ok(outcome.map_err(io::Error::other)?.times.value_at_quantile(0.5))
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are few enough")
}

/// The best of ten means.
fn mean(count: u32, mut what: impl FnMut()) -> u64 {
    let once = |_| {
        let begin = Instant::now();
        (0..count).for_each(|_| what());
        begin.elapsed().as_nanos() as u64 / u64::from(count)
    };
    (0..10).map(once).min().unwrap_or_default().max(1)
}

/// A leader's turn without work.
fn turn() -> u64 {
    struct Nothing(AtomicU64);
    impl Work for Nothing {
        fn turn(&self) -> Turn {
            if self.0.load(Ordering::Relaxed) == 0 { Turn::Idle } else { Turn::Worked }
        }
        fn hand_over(&self) {}
    }
    let once = |_| {
        let (station, word, account) = (Station::new(), WakeWord::default(), Account::default());
        let wait = Wait {
            word: &word,
            place: None,
            account: &account,
            is_over: &|| false,
            work: &Nothing(AtomicU64::new(0)),
            deadline: Some(Instant::now() + Duration::from_millis(5)),
        };
        LeaderFollower { budget: Duration::from_secs(1) }.wait(&station, &wait);
        let figures = account.figures();
        let of = |name| {
            Figures::NAMES.iter().position(|known| *known == name).map_or(0, |at| figures.values()[at])
        };
        1000 * of("wake_polled_us") / of("wake_polls").max(1)
    };
    (0..10).map(once).min().unwrap_or_default()
}

/// Whether the measurement has been repeated often enough.
fn is_enough(rounds: u64, begin: Instant) -> bool {
    rounds >= ROUNDS || (rounds >= ROUNDS_MIN && begin.elapsed() > LONG)
}

/// Half of a round trip between two threads that poll for each other's word, median.
fn bounce(cores: [Core; 2], meanwhile: fn()) -> io::Result<u64> {
    let ball = AtomicU64::new(0);
    thread::scope(|threads| {
        threads.spawn(|| {
            drop(pin(&[cores[1]]));
            let mut expected = 1;
            loop {
                match ball.load(Ordering::Acquire) {
                    OVER => break,
                    seen if seen == expected => {
                        ball.store(expected + 1, Ordering::Release);
                        expected += 2;
                    }
                    _ => meanwhile(),
                }
            }
        });
        let (mut times, mut round, all) = (histogram(), 0, Instant::now());
        while !is_enough(round, all) {
            let begin = Instant::now();
            ball.store(2 * round + 1, Ordering::Release);
            while ball.load(Ordering::Acquire) != 2 * round + 2 {
                meanwhile();
            }
            times.record(begin.elapsed().as_nanos() as u64).expect("it grows");
            round += 1;
        }
        ball.store(OVER, Ordering::Release);
        Ok(times.value_at_quantile(0.5) / 2)
    })
}

/// The median time until a thread that sleeps on the same core has been woken, has run, and sleeps again,
/// without the yields that let it.
fn sleep(core: Core, yield_ns: u64) -> io::Result<u64> {
    let (word, asked, answered) = (WakeWord::default(), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|threads| {
        threads.spawn(|| {
            drop(pin(&[core]));
            loop {
                let posts = word.posts();
                match asked.load(Ordering::Acquire) {
                    OVER => break,
                    seen if answered.swap(seen, Ordering::AcqRel) == seen => _ = word.sleep(posts, None),
                    _ => {}
                }
            }
        });
        let (mut times, mut round, all) = (histogram(), 0, Instant::now());
        while !is_enough(round, all) {
            round += 1;
            while word.sleepers() == 0 {
                yield_core();
            }
            let (begin, mut yields) = (Instant::now(), 0);
            asked.store(round, Ordering::Release);
            word.post();
            while answered.load(Ordering::Acquire) != round || word.sleepers() == 0 {
                yield_core();
                yields += 1;
            }
            let took = begin.elapsed().as_nanos() as u64;
            times.record(took.saturating_sub(yields * yield_ns)).expect("it grows");
        }
        asked.store(OVER, Ordering::Release);
        word.post();
        Ok(times.value_at_quantile(0.5))
    })
}

/// The median time to start a thread.
fn spawn() -> io::Result<u64> {
    const THREADS: usize = 24;
    let mut times = Vec::new();
    for _ in 0..THREADS {
        let begin = Instant::now();
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {})?;
        times.push(begin.elapsed().as_nanos() as u64);
        thread.join().map_err(|_| io::Error::other("an empty thread panicked"))?;
    }
    times.sort_unstable();
    Ok(times[THREADS / 2])
}

/// The mean time that a thread itself spends to move to another core.
fn moving(cores: [Core; 2]) -> io::Result<u64> {
    const MOVES: u32 = 100;
    let thread = thread::spawn(move || {
        pin(&[cores[1]])?;
        let before = thread_time();
        for _ in 0..MOVES / 2 {
            pin(&[cores[0]])?;
            pin(&[cores[1]])?;
        }
        Ok((thread_time() - before).as_nanos() as u64 / u64::from(MOVES))
    });
    thread.join().map_err(|_| io::Error::other("a measurement panicked"))?
}

/// The time that waking a thread took the waker, when the woken thread had answered, and the time that it
/// took the woken one; medians and a mean.
struct Woken {
    call: u64,
    answer: u64,
    cpu: u64,
}

/// Wakes a thread on the second core. `makes_way`: the thread runs only when no other does, so it does not
/// interrupt its waker. `is_busy`: another such thread keeps its core busy.
fn wake(cores: [Core; 2], makes_way: bool, is_busy: bool) -> io::Result<Woken> {
    let (word, asked, answered) = (WakeWord::default(), AtomicU64::new(0), AtomicU64::new(0));
    let (is_over, cpu) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        let sleeper = threads.spawn(|| {
            drop(pin(&[cores[1]]));
            if makes_way {
                drop(run_only_when_idle());
            }
            let before = thread_time();
            while !is_over.load(Ordering::Acquire) {
                let posts = word.posts();
                let seen = asked.load(Ordering::Acquire);
                if answered.swap(seen, Ordering::AcqRel) == seen {
                    word.sleep(posts, None);
                }
            }
            cpu.store((thread_time() - before).as_nanos() as u64, Ordering::Release);
        });
        if is_busy {
            threads.spawn(|| {
                drop(pin(&[cores[1]]));
                drop(run_only_when_idle());
                while !is_over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
        }
        let (mut calls, mut answers) = (histogram(), histogram());
        let (mut round, all) = (0, Instant::now());
        while !is_enough(2 * round, all) {
            round += 1;
            while word.sleepers() == 0 {
                yield_core();
            }
            let begin = Instant::now();
            while begin.elapsed() < PAUSE {
                if makes_way { yield_core() } else { std::hint::spin_loop() }
            }
            asked.store(round, Ordering::Release);
            let begin = Instant::now();
            word.post();
            calls.record(begin.elapsed().as_nanos() as u64).expect("it grows");
            while answered.load(Ordering::Acquire) != round {
                if makes_way { thread::sleep(PAUSE) } else { std::hint::spin_loop() }
            }
            answers.record(begin.elapsed().as_nanos() as u64).expect("it grows");
        }
        is_over.store(true, Ordering::Release);
        word.post_all();
        sleeper.join().map_err(|_| io::Error::other("a measurement panicked"))?;
        let cpu = cpu.load(Ordering::Acquire) / round;
        Ok(Woken { call: calls.value_at_quantile(0.5), answer: answers.value_at_quantile(0.5), cpu })
    })
}

/// How long one of two threads that compute keeps the core if each calls `now_and_then`, which may make the
/// scheduler look, median.
fn stint(core: Core, now_and_then: fn()) -> io::Result<u64> {
    const SPAN: Duration = Duration::from_millis(100);
    /// Shorter absences are interrupts.
    const ABSENCE: Duration = Duration::from_micros(500);
    let compute = move || {
        drop(pin(&[core]));
        let mut slices = Vec::new();
        let begin = Instant::now();
        let (mut since, mut last) = (begin, begin);
        while last - begin < SPAN {
            now_and_then();
            let now = Instant::now();
            if now - last > ABSENCE {
                slices.push((last - since).as_nanos() as u64);
                since = now;
            }
            last = now;
        }
        slices
    };
    let mut slices = thread::scope(|threads| {
        let both = [threads.spawn(compute), threads.spawn(compute)];
        both.map(|thread| thread.join().unwrap_or_default()).concat()
    });
    slices.sort_unstable();
    slices
        .get(slices.len() / 2)
        .copied()
        .ok_or_else(|| io::Error::other("two threads on one core never took turns"))
}
