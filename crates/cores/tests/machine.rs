//! A machine and its threads: which thread runs when, where and for how long, and the costs.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use highwire_cores::{Costs, Ended, Machine};

/// Costs of no real machine: each can be told from the others in a sum.
const COSTS: Costs = Costs {
    relax_ns: 1,
    turn_ns: 1,
    event_ns: 0,
    fetch_ns: 1,
    clock_ns: 1,
    call_ns: 3,
    census_ns: 1,
    spawn_ns: 1,
    move_ns: 1,
    wake_idle_ns: 1_000,
    wake_busy_ns: 500,
    wake_here_ns: 70,
    sleep_ns: 20,
    from_idle_ns: 0,
    from_busy_ns: 0,
    switch_ns: 200,
    idle_exit_ns: 10_000,
    interrupt_ns: 4_000,
    slice_ns: 1_000_000,
    tick_ns: 1_000_000,
};
const WORD: usize = 8;

type Log = Rc<RefCell<Vec<(&'static str, u64)>>>;

/// A machine, and a log in which its threads write events and times.
fn machine(cores: usize) -> (Machine, Log) {
    (Machine::new(cores, COSTS), Log::default())
}

/// Starts a thread on a core, where it stays.
fn start(machine: &Machine, core: usize, body: impl FnOnce(&Machine) + 'static) {
    let own = machine.clone();
    let thread = machine.spawn(core, move || {
        assert!(own.pin(core), "the core is there");
        body(&own);
    });
    thread.expect("there is room for it");
}

fn note(log: &Log, machine: &Machine, what: &'static str) {
    log.borrow_mut().push((what, machine.now_ns()));
}

fn sleep(machine: &Machine) -> Ended {
    machine.sleep(WORD, &|| true, None)
}

/// The body of a thread that makes way for all others.
fn humble(machine: &Machine) {
    machine.run_only_when_idle();
    machine.spend(3_000_000);
}

fn at(log: &Log, what: &str) -> u64 {
    log.borrow().iter().find(|(name, _)| *name == what).expect("it happened").1
}

#[test]
fn threads_of_two_cores_compute_at_the_same_time_and_of_one_by_turns() {
    for (cores, expected) in [([0, 1], 5_000_000..5_000_001), ([0, 0], 10_000_000..10_010_000)] {
        let (machine, log) = machine(2);
        for core in cores {
            let log = Rc::clone(&log);
            start(&machine, core, move |machine| {
                machine.spend(5_000_000);
                note(&log, machine, "end");
            });
        }
        machine.run().expect("nobody sleeps");
        let ends: Vec<u64> = log.borrow().iter().map(|(_, time)| *time).collect();
        assert!(expected.contains(&ends[1]), "cores {cores:?}: {ends:?}");
        let apart = ends[1] - ends[0];
        assert!(apart <= 2 * COSTS.slice_ns, "cores {cores:?}: {ends:?}: one waited for all of the other");
    }
}

#[test]
fn a_thread_that_is_woken_runs_after_what_the_way_to_it_costs() {
    const STAYS_NS: u64 = 5_000;
    // The waker's time, and the time from then until the other runs.
    let elsewhere = (COSTS.wake_idle_ns, COSTS.idle_exit_ns + COSTS.sleep_ns);
    let busy = (COSTS.wake_busy_ns, COSTS.interrupt_ns + COSTS.switch_ns + COSTS.sleep_ns);
    let here = (COSTS.wake_here_ns, STAYS_NS + COSTS.switch_ns + COSTS.sleep_ns);
    for (what, waker, hog, (call, until_it_runs)) in [
        ("an idle core", 0, false, elsewhere),
        ("a busy core", 0, true, busy),
        ("its own core", 1, false, here),
    ] {
        let (machine, log) = machine(2);
        let own = Rc::clone(&log);
        start(&machine, 1, move |machine| {
            assert_eq!(sleep(machine), Ended::Woken);
            note(&own, machine, "runs");
        });
        if hog {
            start(&machine, 1, humble);
        }
        let own = Rc::clone(&log);
        start(&machine, waker, move |machine| {
            machine.spend(100_000);
            note(&own, machine, "wakes");
            assert_eq!(machine.wake(WORD, false), 1);
            note(&own, machine, "has woken");
            // No thread takes the core from it because it has woken one.
            machine.spend(STAYS_NS);
        });
        machine.run().expect("everybody is woken");
        let begin = at(&log, "wakes");
        assert_eq!(at(&log, "has woken") - begin, call, "{what}");
        assert_eq!(at(&log, "runs") - begin, call + until_it_runs, "{what}");
    }
}

#[test]
fn sleepers_are_woken_in_the_order_of_their_coming_one_by_one_or_all() {
    for all in [false, true] {
        let (machine, log) = machine(4);
        for (core, name) in [(1, "first"), (2, "second"), (3, "third")] {
            let log = Rc::clone(&log);
            start(&machine, core, move |machine| {
                machine.spend(core as u64);
                sleep(machine);
                note(&log, machine, name);
            });
        }
        start(&machine, 0, move |machine| {
            machine.spend(1_000_000);
            let woken = machine.wake(WORD, all);
            assert_eq!(woken, if all { 3 } else { 1 });
            (woken..3).for_each(|_| assert_eq!(machine.wake(WORD, false), 1));
            assert_eq!(machine.wake(WORD, true), 0, "nobody is left");
        });
        machine.run().expect("everybody is woken");
        let names: Vec<&str> = log.borrow().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["first", "second", "third"]);
    }
}

#[test]
fn a_sleep_ends_at_its_time_and_a_wake_up_that_comes_later_is_for_others() {
    let (machine, log) = machine(2);
    let own = Rc::clone(&log);
    start(&machine, 1, move |machine| {
        note(&own, machine, "begins");
        assert_eq!(machine.sleep(WORD, &|| true, Some(50_000)), Ended::TimedOut);
        note(&own, machine, "ends");
        assert_eq!(
            machine.sleep(WORD, &|| true, Some(5_000_000)),
            Ended::Woken,
            "not by the first one's time"
        );
        assert_eq!(machine.sleep(WORD, &|| false, None), Ended::Woken, "there is no reason to sleep");
    });
    start(&machine, 0, |machine| {
        machine.spend(500_000);
        assert_eq!(machine.wake(WORD, true), 1);
        assert_eq!(machine.wake(WORD, true), 0);
    });
    machine.run().expect("nobody sleeps for ever");
    let slept = at(&log, "ends") - at(&log, "begins");
    assert_eq!(slept, COSTS.call_ns + 50_000 + COSTS.idle_exit_ns + COSTS.sleep_ns);
}

#[test]
fn a_thread_that_runs_only_when_nothing_else_does_makes_way_at_once_and_has_the_rest() {
    let (machine, log) = machine(2);
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    start(&machine, 1, move |machine| {
        machine.run_only_when_idle();
        while !over.get() {
            machine.spend(10);
        }
        // All but the other's 200 × 1 µs, its wake-ups, and the switches.
        assert!(machine.thread_ns() > 1_500_000, "{} ns", machine.thread_ns());
    });
    let own = Rc::clone(&log);
    start(&machine, 1, move |machine| {
        for _ in 0..200 {
            assert_eq!(machine.sleep(WORD, &|| true, Some(9_000)), Ended::TimedOut);
            note(&own, machine, "runs");
            machine.spend(1_000);
        }
        is_over.set(true);
    });
    machine.run().expect("nobody sleeps");
    let times: Vec<u64> = log.borrow().iter().map(|(_, time)| *time).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    let expected = 1_000 + COSTS.call_ns + 9_000 + COSTS.switch_ns + COSTS.sleep_ns;
    assert_eq!(longest, Some(expected), "it never waits for the core");
}

#[test]
fn a_yield_goes_to_whoever_waits_and_costs_a_call_if_nobody_does() {
    let (machine, log) = machine(1);
    for name in ["a", "b"] {
        let log = Rc::clone(&log);
        start(&machine, 0, move |machine| {
            for _ in 0..3 {
                note(&log, machine, name);
                machine.yield_core();
            }
        });
    }
    machine.run().expect("nobody sleeps");
    let names: Vec<&str> = log.borrow().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["a", "b", "a", "b", "a", "b"]);

    let alone = Machine::new(1, COSTS);
    start(&alone, 0, |machine| (0..5).for_each(|_| machine.yield_core()));
    alone.run().expect("nobody sleeps");
    assert_eq!(alone.now_ns(), 5 * COSTS.call_ns);
}

#[test]
fn threads_that_may_run_anywhere_spread_and_those_that_wait_move_to_a_core_that_is_idle() {
    let machine = Machine::new(2, COSTS);
    // Every other thread starts on the second core, which would be left with all the long ones.
    for spends in [1_000_000, 9_000_000, 1_000_000, 9_000_000] {
        let own = machine.clone();
        machine.spawn(0, move || own.spend(spends)).expect("there is room for it");
    }
    machine.run().expect("nobody sleeps");
    let took = machine.now_ns();
    assert!((10_000_000..12_000_000).contains(&took), "{took} ns for 20 ms of work on two cores");
    assert!((20_000_000..20_100_000).contains(&machine.process_ns()), "{} ns", machine.process_ns());
}

#[test]
fn a_thread_that_moves_is_neither_ahead_nor_behind_where_it_comes() {
    let (machine, log) = machine(2);
    let own = Rc::clone(&log);
    // This thread has had a core for itself for long; the others have had half a core each.
    start(&machine, 0, move |machine| {
        machine.spend(50_000_000);
        assert!(machine.pin(1));
        note(&own, machine, "moves");
        machine.spend(5_000_000);
        note(&own, machine, "ends");
    });
    for _ in 0..2 {
        start(&machine, 1, |machine| machine.spend(60_000_000));
    }
    machine.run().expect("nobody sleeps");
    let took = at(&log, "ends") - 50_000_000;
    assert!(took < 20_000_000, "{took} ns for a third of a core");
}

#[test]
fn threads_that_nobody_wakes_are_counted() {
    let (machine, _) = machine(2);
    (0..2).for_each(|core| start(&machine, core, |machine| _ = sleep(machine)));
    start(&machine, 1, |machine| machine.spend(70_000));
    let stuck = machine.run().expect_err("two sleep");
    assert_eq!(stuck.threads, 2);
    assert!(stuck.at_ns >= 70_000, "{stuck}");
}

#[test]
fn a_thread_that_panics_ends_the_run_and_the_next_machine_is_none_the_worse() {
    let run = || {
        let machine = Machine::new(1, COSTS);
        start(&machine, 0, |_| panic!("on purpose"));
        _ = machine.run();
    };
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    let machine = Machine::new(1, COSTS);
    // The caller is no thread of the machine, so the call takes no time.
    machine.spend(7);
    assert_eq!(machine.now_ns(), 0);
    start(&machine, 0, |machine| machine.spend(7));
    machine.run().expect("nobody sleeps");
    assert_eq!(machine.now_ns(), 7);
}

/// The scheduler looks at a core with every tick, and whenever a thread asks it for the time of the thread that runs there.
#[test]
fn a_slice_ends_with_a_tick_or_when_the_thread_asks_for_its_time() {
    let costs = Costs { slice_ns: 1_000_000, tick_ns: 4_000_000, switch_ns: 0, ..COSTS };
    for (asks, expected) in [(false, 4_000_000), (true, 1_000_000)] {
        let (machine, log) = (Machine::new(1, costs), Log::default());
        for name in ["a", "b"] {
            let log = Rc::clone(&log);
            start(&machine, 0, move |machine| {
                for _ in 0..1000 {
                    machine.spend(20_000);
                    note(&log, machine, name);
                    if asks {
                        machine.thread_ns();
                    }
                }
            });
        }
        machine.run().expect("nobody sleeps");
        let log = log.borrow();
        let turns: Vec<u64> =
            log.windows(2).filter(|pair| pair[0].0 != pair[1].0).map(|pair| pair[1].1).collect();
        // Without the first turn, since new threads have half a slice, and without those at the end.
        for pair in turns[1..turns.len() / 2].windows(2) {
            let turn = pair[1] - pair[0];
            assert!(turn.abs_diff(expected) <= 40_000, "asks {asks}: {turn} ns");
        }
    }
}

/// The first thread has slept since it began and is owed nothing. The second has waited for the core until
/// the tick, slept at once, and is owed half of that wait, because the third has had more than its part.
#[test]
fn a_thread_that_wakes_displaces_whoever_has_had_more_than_its_part_and_nobody_else() {
    for (is_first, wakes_at, is_soon) in [(true, 300_000, false), (false, 1_300_000, true)] {
        let (machine, log) = machine(2);
        let compute = |is_wanted: bool| {
            if is_wanted {
                start(&machine, 1, |machine| machine.spend(3_000_000));
            }
        };
        compute(!is_first);
        let own = Rc::clone(&log);
        start(&machine, 1, move |machine| {
            sleep(machine);
            note(&own, machine, "runs");
        });
        compute(is_first);
        let own = Rc::clone(&log);
        start(&machine, 0, move |machine| {
            machine.spend(wakes_at);
            note(&own, machine, "wakes");
            assert_eq!(machine.wake(WORD, false), 1);
        });
        machine.run().expect("everybody is woken");
        let (wakes_at, waited) = (at(&log, "wakes"), at(&log, "runs") - at(&log, "wakes"));
        let way = COSTS.wake_busy_ns + COSTS.interrupt_ns + COSTS.switch_ns + COSTS.sleep_ns;
        let until_the_tick = COSTS.tick_ns - wakes_at % COSTS.tick_ns;
        let expected = if is_soon { way } else { until_the_tick + COSTS.switch_ns + COSTS.sleep_ns };
        assert_eq!(waited, expected, "first: {is_first}");
    }
}

#[test]
fn short_steps_are_spent_together_and_before_anything_else() {
    let (machine, log) = machine(1);
    let own = Rc::clone(&log);
    start(&machine, 0, move |machine| {
        let begin = machine.now_ns();
        machine.spend_soon(10);
        assert_eq!(machine.now_ns() - begin, 0, "put off");
        machine.spend_soon(20);
        assert_eq!(machine.now_ns() - begin, 30, "together enough");
        machine.spend_soon(10);
        machine.spend(5);
        assert_eq!(machine.now_ns() - begin, 45);
        assert_eq!(machine.thread_ns(), 45);
        note(&own, machine, "ends");
    });
    machine.run().expect("nobody sleeps");
    assert_eq!(at(&log, "ends"), 45);
}

#[test]
fn threads_begin_when_they_are_to_and_pay_for_going_elsewhere() {
    let costs = Costs { move_ns: 700, ..COSTS };
    let (machine, log) = (Machine::new(2, costs), Log::default());
    let (own, noted) = (machine.clone(), Rc::clone(&log));
    let thread = machine.spawn_in(5_000, 0, move || {
        note(&noted, &own, "begins");
        assert!(own.pin(1));
        note(&noted, &own, "is there");
        assert!(own.pin(1), "it is there already");
        note(&noted, &own, "stays");
        assert_eq!(own.thread_ns(), 700);
    });
    thread.expect("there is room for it");
    machine.run().expect("nobody sleeps");
    let expected = [("begins", 5_000), ("is there", 5_700), ("stays", 5_700)];
    assert_eq!(*log.borrow(), expected);
}

#[test]
fn a_wake_up_from_another_core_takes_the_thread_time_that_delays_nobody() {
    let costs = Costs { from_idle_ns: 9_000, from_busy_ns: 2_000, ..COSTS };
    for (is_busy, takes) in [(false, 9_000), (true, 2_000)] {
        let (machine, log) = (Machine::new(2, costs), Log::default());
        let own = Rc::clone(&log);
        start(&machine, 1, move |machine| {
            let before = machine.thread_ns();
            sleep(machine);
            own.borrow_mut().push(("took", machine.thread_ns() - before));
            own.borrow_mut().push(("runs", machine.now_ns()));
        });
        if is_busy {
            start(&machine, 1, humble);
        }
        start(&machine, 0, |machine| {
            machine.spend(100_000);
            machine.wake(WORD, false);
        });
        machine.run().expect("everybody is woken");
        let own = COSTS.call_ns + COSTS.sleep_ns + if is_busy { COSTS.switch_ns } else { 0 };
        assert_eq!(at(&log, "took"), takes + own, "busy: {is_busy}");
        assert!(at(&log, "runs") < 120_000, "busy: {is_busy}");
    }
}
