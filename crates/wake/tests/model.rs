//! Interleavings of the wake-up protocols, with up to two preemptions, under loom's memory model: `cargo test -p highwire-wake --features model`.
//!
//! A lost wake-up leaves a model thread asleep for ever, which loom reports as a deadlock. The last tests
//! plant the mistakes that the protocol prevents, and expect loom to report them.

use highwire_stdx::Instant;
use highwire_wake::duty::{Duty, Happened, Stance, Waiter};
use highwire_wake::{Choice, Leading, Notice, Rest, Scope, Seat, Slept, WakeWord};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

/// Look, arm, look, sleep, until `events` shows something to take.
fn take_one(word: &WakeWord, events: &AtomicUsize) {
    loop {
        let posts = word.posts();
        let there = events.load(Ordering::Relaxed);
        if there > 0 {
            if events.compare_exchange(there, there - 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
            continue;
        }
        word.sleep(posts, None);
    }
}

/// Expects loom to find a wake-up that this model loses. Runs in a process of its own, which loom's report
/// may end.
fn loses_a_wake_up(test: &str, model: impl Fn() + Sync + Send + 'static) {
    const ITSELF: &str = "HIGHWIRE_WAKE_PLANTED";
    if std::env::var_os(ITSELF).is_some() {
        return explore(model);
    }
    let program = std::env::current_exe().expect("this program has a name");
    let mut child = std::process::Command::new(program);
    let child = child.args([test, "--exact", "--nocapture"]).env(ITSELF, "1").env("RUST_BACKTRACE", "0");
    let output = child.output().expect("it runs again");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("deadlock"), "nothing was lost:\n{said}");
}

/// Explores every interleaving of a model with up to two preemptions.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut explorer = loom::model::Builder::new();
    explorer.preemption_bound = Some(2);
    explorer.check(model);
}

#[test]
fn an_event_reaches_the_thread_that_waits() {
    explore(|| {
        let word = Arc::new(WakeWord::new(Scope::Process));
        let events = Arc::new(AtomicUsize::new(0));
        let waiting = {
            let (word, events) = (Arc::clone(&word), Arc::clone(&events));
            thread::spawn(move || take_one(&word, &events))
        };
        // Relaxed: the post alone makes it visible.
        events.fetch_add(1, Ordering::Relaxed);
        word.post();
        waiting.join().expect("no panic");
    });
}

#[test]
fn two_events_reach_two_threads_on_one_word() {
    explore(|| {
        let word = Arc::new(WakeWord::new(Scope::Process));
        let events = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let (word, events) = (Arc::clone(&word), Arc::clone(&events));
                thread::spawn(move || take_one(&word, &events))
            })
            .collect();
        for _ in 0..2 {
            events.fetch_add(1, Ordering::Relaxed);
            word.post();
        }
        waiting.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

/// A thread waits for an event that does not come, until it has the seat.
fn follow_until_it_leads(seat: &Seat, word: &WakeWord, place: usize) {
    let mut waiter = Waiter::new(SOON, None);
    let mut posts = 0;
    loop {
        let happened = match waiter.stance() {
            Stance::Arriving => {
                posts = word.posts();
                match seat.try_take() {
                    Some(_) => Happened::SeatTaken,
                    None if seat.follow(place) => Happened::Led,
                    None => Happened::SeatLeft,
                }
            }
            Stance::Following => {
                word.sleep(posts, None);
                Happened::Woken
            }
            Stance::Seated => return,
            other => unreachable!("{other:?}"),
        };
        waiter.on(happened, SOON);
        if happened == Happened::SeatLeft {
            thread::yield_now();
        }
    }
}

/// The leader leaves while another thread is about to follow: the seat does not stay empty with a thread asleep beside it.
#[test]
fn a_follower_takes_the_seat_that_is_left() {
    explore(|| {
        let seat = Arc::new(Seat::default());
        let word = Arc::new(WakeWord::new(Scope::Process));
        let place = seat.enroll(&word).expect("a place");
        let leading = seat.try_take().expect("it is free");
        let follower = {
            let (seat, word) = (Arc::clone(&seat), Arc::clone(&word));
            thread::spawn(move || follow_until_it_leads(&seat, &word, place))
        };
        leading.pass_on();
        follower.join().expect("no panic");
    });
}

/// A leader that sleeps elsewhere, on a bell that stands for a descriptor; `tell` posts to its word.
fn rest_elsewhere(tell: impl Fn(&Rest, &WakeWord, &WakeWord)) {
    let parts = Arc::new((Rest::default(), WakeWord::new(Scope::Process), WakeWord::new(Scope::Process)));
    let events = Arc::new(AtomicUsize::new(0));
    let resting = {
        let (parts, events) = (Arc::clone(&parts), Arc::clone(&events));
        thread::spawn(move || {
            let (rest, word, bell) = &*parts;
            let mut waiter = Waiter::new(SOON, None);
            waiter.lead(SOON);
            waiter.choose(Choice::Sleep);
            waiter.on(Happened::Vain, SOON);
            while waiter.stance() != Stance::Done {
                let happened = match waiter.stance() {
                    Stance::Resting => {
                        let posts = word.posts();
                        if events.load(Ordering::Relaxed) > 0 {
                            Happened::Own
                        } else {
                            let rings = bell.posts();
                            rest.sleep(word, posts, || bell.sleep(rings, None));
                            Happened::Woken
                        }
                    }
                    Stance::Serving => Happened::Nothing,
                    other => unreachable!("{other:?}"),
                };
                waiter.on(happened, SOON);
            }
        })
    };
    events.fetch_add(1, Ordering::Relaxed);
    let (rest, word, bell) = &*parts;
    tell(rest, word, bell);
    resting.join().expect("no panic");
}

#[test]
fn a_post_rings_for_the_leader_that_rests() {
    explore(|| {
        rest_elsewhere(|rest, word, bell| {
            if rest.is_to_be_rung(word, word.post()) {
                bell.post();
            }
        });
    });
}

/// Later than all else in these models, and sooner.
const LATER: Instant = Instant::from_nanos(1 << 40);
const SOON: Instant = Instant::from_nanos(1 << 10);

/// A leader rests and goes, as `go` does it, while another thread sleeps because one rests.
fn rely_on_a_leader(go: fn(Leading<'_>, &Seat, &Notice, &WakeWord)) {
    let parts =
        Arc::new((Seat::default(), Rest::default(), Notice::default(), WakeWord::new(Scope::Process)));
    let leader = {
        let parts = Arc::clone(&parts);
        thread::spawn(move || {
            let (seat, rest, notice, bell) = &*parts;
            let word = WakeWord::new(Scope::Process);
            let leading = seat.try_take().expect("it is free");
            rest.sleep(&word, word.posts(), || Slept::Posted);
            go(leading, seat, notice, bell);
        })
    };
    let (_, rest, notice, bell) = &*parts;
    let rings = bell.posts();
    let announced = notice.announce(Duty::Standby, LATER);
    if rest.is_taken() && notice.settle(announced, Duty::Standby, LATER) {
        bell.sleep(rings, None);
    }
    notice.end();
    leader.join().expect("no panic");
}

#[test]
fn who_relies_on_a_leader_is_woken_when_it_goes() {
    explore(|| {
        rely_on_a_leader(|leading, seat, notice, bell| {
            leading.pass_on();
            if notice.call_if_forsaken(seat) {
                bell.post();
            }
        });
    });
}

/// Planted: the leader looks whether a thread relies on it before it leaves the seat.
#[test]
fn looking_who_relies_before_leaving_loses_a_wake_up() {
    loses_a_wake_up("looking_who_relies_before_leaving_loses_a_wake_up", || {
        rely_on_a_leader(|leading, seat, notice, bell| {
            if notice.call_if_forsaken(seat) {
                bell.post();
            }
            leading.pass_on();
        });
    });
}

/// A thread sleeps on the work, first until a time and then for long; `leave` leaves it work that is due at that time. `looks_first`: before
/// it announces its sleep.
fn watch_the_work(looks_first: bool, leave: impl Fn(&AtomicUsize, &Notice, &WakeWord)) {
    let parts = Arc::new((Notice::default(), WakeWord::new(Scope::Process)));
    let left = Arc::new(AtomicUsize::new(0));
    let watching = {
        let (parts, left) = (Arc::clone(&parts), Arc::clone(&left));
        thread::spawn(move || {
            let (notice, bell) = &*parts;
            // One that looks first has no timer to help it.
            for until in [SOON, LATER].into_iter().skip(looks_first.into()) {
                let rings = bell.posts();
                // SeqCst, as the token of the work is.
                let look = || left.load(Ordering::SeqCst) > 0;
                let early = looks_first && look();
                let announced = notice.announce(Duty::Watching, LATER);
                if early || (!looks_first && look()) {
                    return;
                }
                if notice.settle(announced, Duty::Watching, until) {
                    match until {
                        // The timer wakes the thread without another thread's help.
                        SOON => thread::yield_now(),
                        _ => drop(bell.sleep(rings, None)),
                    }
                }
                notice.end();
            }
        })
    };
    let (notice, bell) = &*parts;
    leave(&left, notice, bell);
    watching.join().expect("no panic");
}

/// Leaves work, and wakes the thread if it does not wake by itself before that is due.
fn leave_in_order(left: &AtomicUsize, notice: &Notice, bell: &WakeWord) {
    left.fetch_add(1, Ordering::SeqCst);
    if !notice.said_after().wakes_before(Some(SOON)) && notice.call() {
        bell.post();
    }
}

#[test]
fn work_that_is_left_is_done_when_it_is_due() {
    explore(|| watch_the_work(false, leave_in_order));
}

#[test]
fn a_call_ends_a_sleep_or_forbids_it() {
    explore(|| {
        watch_the_work(false, |left, notice, bell| {
            left.fetch_add(1, Ordering::SeqCst);
            if notice.call() {
                bell.post();
            }
        });
    });
}

/// Two threads call; the one that rings does so for both.
#[test]
fn one_ring_is_enough_for_two_calls() {
    explore(|| {
        let parts = Arc::new((Notice::default(), WakeWord::new(Scope::Process), AtomicUsize::new(0)));
        let call = |parts: &(Notice, WakeWord, AtomicUsize)| {
            let (notice, bell, left) = parts;
            // Relaxed: the call alone makes it visible.
            left.fetch_add(1, Ordering::Relaxed);
            if notice.call() {
                bell.post();
            }
        };
        let calling = {
            let parts = Arc::clone(&parts);
            thread::spawn(move || call(&parts))
        };
        let sleeping = {
            let parts = Arc::clone(&parts);
            thread::spawn(move || {
                let (notice, bell, left) = &*parts;
                loop {
                    let rings = bell.posts();
                    let announced = notice.announce(Duty::Watching, LATER);
                    if left.load(Ordering::Relaxed) == 2 {
                        return;
                    }
                    if notice.settle(announced, Duty::Watching, LATER) {
                        bell.sleep(rings, None);
                    }
                    notice.end();
                }
            })
        };
        call(&parts);
        calling.join().expect("no panic");
        sleeping.join().expect("no panic");
    });
}

/// Planted: the thread asks who watches before it leaves the work.
#[test]
fn asking_who_watches_before_the_work_is_left_loses_a_wake_up() {
    loses_a_wake_up("asking_who_watches_before_the_work_is_left_loses_a_wake_up", || {
        watch_the_work(false, |left, notice, bell| {
            let is_watched = notice.said_after().wakes_before(Some(SOON));
            left.fetch_add(1, Ordering::SeqCst);
            if !is_watched && notice.call() {
                bell.post();
            }
        });
    });
}

/// Planted: the thread calls before it leaves the work.
#[test]
fn calling_before_the_work_is_left_loses_a_wake_up() {
    loses_a_wake_up("calling_before_the_work_is_left_loses_a_wake_up", || {
        watch_the_work(false, |left, notice, bell| {
            let must_ring = notice.call();
            left.fetch_add(1, Ordering::SeqCst);
            if must_ring {
                bell.post();
            }
        });
    });
}

/// Planted: the sleeper looks for work before it announces its sleep.
#[test]
fn looking_before_the_sleep_is_announced_loses_a_wake_up() {
    loses_a_wake_up("looking_before_the_sleep_is_announced_loses_a_wake_up", || {
        watch_the_work(true, leave_in_order);
    });
}

/// Planted: the poster looks for a resting leader before it posts.
#[test]
fn asking_who_rests_before_the_post_loses_a_wake_up() {
    loses_a_wake_up("asking_who_rests_before_the_post_loses_a_wake_up", || {
        rest_elsewhere(|rest, word, bell| {
            let is_resting = rest.is_taken();
            word.post();
            if is_resting {
                bell.post();
            }
        });
    });
}

/// Planted: the thread reads the count of posts after it has looked.
#[test]
fn looking_before_arming_loses_a_wake_up() {
    loses_a_wake_up("looking_before_arming_loses_a_wake_up", || {
        let word = Arc::new(WakeWord::new(Scope::Process));
        let events = Arc::new(AtomicUsize::new(0));
        let waiting = {
            let (word, events) = (Arc::clone(&word), Arc::clone(&events));
            thread::spawn(move || {
                while events.load(Ordering::Relaxed) == 0 {
                    word.sleep(word.posts(), None);
                }
            })
        };
        events.fetch_add(1, Ordering::Relaxed);
        word.post();
        waiting.join().expect("no panic");
    });
}

/// Planted: the poster posts before the event is visible.
#[test]
fn posting_before_the_event_is_visible_loses_a_wake_up() {
    loses_a_wake_up("posting_before_the_event_is_visible_loses_a_wake_up", || {
        let word = Arc::new(WakeWord::new(Scope::Process));
        let events = Arc::new(AtomicUsize::new(0));
        let waiting = {
            let (word, events) = (Arc::clone(&word), Arc::clone(&events));
            thread::spawn(move || take_one(&word, &events))
        };
        word.post();
        events.fetch_add(1, Ordering::Relaxed);
        waiting.join().expect("no panic");
    });
}

/// Planted: the leader leaves without a look for followers.
#[test]
fn leaving_without_a_look_leaves_a_follower_asleep() {
    loses_a_wake_up("leaving_without_a_look_leaves_a_follower_asleep", || {
        let seat = Arc::new(Seat::default());
        let word = Arc::new(WakeWord::new(Scope::Process));
        let place = seat.enroll(&word).expect("a place");
        let leading = seat.try_take().expect("it is free");
        let follower = {
            let (seat, word) = (Arc::clone(&seat), Arc::clone(&word));
            thread::spawn(move || follow_until_it_leads(&seat, &word, place))
        };
        drop(leading);
        follower.join().expect("no panic");
    });
}
