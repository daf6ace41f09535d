//! The strategies as programs run them, played by a model of cores: laws that hold for any constants.

use std::time::Duration;

use highwire_cores::{Costs, Machine};
use highwire_stage::{Care, Modelled, Outcome, PlayError, Scene, Seats, Until, play};
use highwire_wake::Strategy;

/// The costs of no real machine: plausible, but with coarse looks and short slices, so that a run takes few
/// steps.
const COSTS: Costs = Costs {
    relax_ns: 100,
    turn_ns: 50,
    event_ns: 0,
    fetch_ns: 80,
    clock_ns: 30,
    call_ns: 300,
    census_ns: 12_000,
    spawn_ns: 20_000,
    move_ns: 5_000,
    wake_idle_ns: 4_000,
    wake_busy_ns: 2_000,
    wake_here_ns: 700,
    sleep_ns: 400,
    from_idle_ns: 0,
    from_busy_ns: 0,
    switch_ns: 700,
    idle_exit_ns: 8_000,
    interrupt_ns: 1_500,
    slice_ns: 200_000,
    tick_ns: 200_000,
};

const SLEEPERS: [Strategy; 5] =
    [Strategy::Event, Strategy::Dispatcher, Strategy::LeaderFollower, Strategy::Affine, Strategy::Adaptive];

fn scene(strategy: Strategy, lanes: u32, threads: u32) -> Scene {
    Scene { threads, is_own: false, lanes, ..Scene::of(strategy) }
}

fn played(scene: Scene, costs: Costs, until: Until, seed: u64, care: Care) -> Result<Outcome, PlayError> {
    let count = if scene.is_apart { 2 * scene.lanes } else { scene.lanes };
    let cores: Vec<u32> = (0..count).collect();
    play(&mut Modelled::new(Machine::new(count as usize, costs)), scene, &cores, until, seed, care)
}

/// With a pause after each event, in which threads fall asleep.
fn outcome(scene: Scene) -> Outcome {
    let time = Until::Time(Duration::from_millis(4));
    played(scene, COSTS, time, 1, Care::default()).expect("no event is lost")
}

fn p(outcome: &Outcome, quantile: f64) -> u64 {
    outcome.times.value_at_quantile(quantile)
}

#[test]
fn a_thread_is_in_a_model_as_long_as_it_has_hands_of_it_and_others_never_are() {
    // No thread runs in a model that is only being built; inside it at least this one does.
    let is_inside = || highwire_wake::runnable_threads() == Some(0);
    assert!(!is_inside());
    let hands = Modelled::new(Machine::new(1, COSTS));
    assert!(is_inside());
    assert!(!std::thread::spawn(is_inside).join().expect("no panic"));
    drop(Modelled::new(Machine::new(1, COSTS)));
    assert!(is_inside(), "it is where it was before");
    drop(hands);
    assert!(!is_inside());
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    for strategy in SLEEPERS {
        let scene = Scene { hogs: 2, ..scene(strategy, 4, 64) };
        let run =
            |seed| played(scene, COSTS, Until::Events(50), seed, Care::default()).expect("no event is lost");
        assert_eq!(run(7), run(7), "{strategy}");
        // With the other strategies a dispatcher or a source runs between two events, so that it does not
        // matter whose they are.
        if [Strategy::Event, Strategy::LeaderFollower].contains(&strategy) {
            assert!(
                [8, 9, 10].into_iter().any(|seed| run(seed) != run(7)),
                "{strategy}: the seed says nothing"
            );
        }
    }
}

#[test]
fn every_event_is_answered_under_every_strategy() {
    for strategy in SLEEPERS {
        for (lanes, threads) in [(1, 1), (1, 16), (16, 512)] {
            let outcome =
                played(scene(strategy, lanes, threads), COSTS, Until::Events(20), 3, Care::default());
            assert_eq!(outcome.expect("no event is lost").times.len(), 20 * u64::from(lanes), "{strategy}");
        }
    }
}

#[test]
fn an_event_that_nobody_is_told_of_is_found_to_be_lost() {
    for strategy in [Strategy::Event, Strategy::Dispatcher, Strategy::Affine] {
        let care = Care { patience: Duration::from_millis(50), untold: 30 };
        let outcome = played(scene(strategy, 1, 4), COSTS, Until::Events(100), 3, care);
        assert!(matches!(outcome, Err(PlayError::Lost(_))), "{strategy}: {outcome:?}");
    }
}

/// The time of `Event`, in a scene where nothing else happens, is the sum of the constants on its way.
#[test]
fn an_event_takes_what_its_steps_take() {
    let outcome = outcome(Scene { is_own: true, ..scene(Strategy::Event, 1, 1) });
    let costs = COSTS;
    let sum = costs.turn_ns + costs.wake_idle_ns + costs.idle_exit_ns + costs.sleep_ns + 2 * costs.fetch_ns;
    let (low, high) = (sum - costs.fetch_ns, sum + 3 * costs.relax_ns + 2 * costs.clock_ns + costs.fetch_ns);
    let p50 = p(&outcome, 0.5);
    assert!((low..=high).contains(&p50), "{p50} ns, expected {low} to {high}");
}

#[test]
fn a_dispatcher_beats_events_by_what_a_wake_up_of_another_core_costs() {
    let (event, dispatcher) =
        (outcome(scene(Strategy::Event, 1, 16)), outcome(scene(Strategy::Dispatcher, 1, 16)));
    // Both switch to another thread than the one that ran there last.
    let spared = COSTS.wake_idle_ns + COSTS.idle_exit_ns - COSTS.wake_here_ns;
    let difference = p(&event, 0.5) - p(&dispatcher, 0.5);
    assert!(difference.abs_diff(spared) < spared / 5, "{difference} ns, expected about {spared}");
    // If waking another core were free, nothing of that time would be left.
    let free = Costs { wake_idle_ns: 1, idle_exit_ns: 1, ..COSTS };
    let of = |strategy| {
        let time = Until::Time(Duration::from_millis(4));
        let outcome = played(scene(strategy, 1, 16), free, time, 1, Care::default());
        p(&outcome.expect("no event is lost"), 0.5)
    };
    assert!(of(Strategy::Event) < of(Strategy::Dispatcher));
}

/// A thread that runs on another core is no crowd on this one, however often the waiting thread looks for one.
#[test]
fn a_thread_kept_on_one_core_polls_while_another_core_has_work() {
    let of = |strategy| {
        let scene = Scene { is_own: true, is_apart: true, ..scene(strategy, 1, 1) };
        let outcome = played(scene, COSTS, Until::Time(Duration::from_millis(150)), 1, Care::default());
        p(&outcome.expect("no event is lost"), 0.5)
    };
    let (adaptive, event) = (of(Strategy::Adaptive), of(Strategy::Event));
    assert!(3 * adaptive < event, "{adaptive} ns, where a sleeper takes {event}");
}

#[test]
fn a_thread_that_leads_has_its_event_sooner_than_any_sleeper() {
    let own = |strategy| p(&outcome(Scene { is_own: true, ..scene(strategy, 1, 1) }), 0.5);
    let leader = own(Strategy::LeaderFollower);
    for other in [Strategy::Event, Strategy::Dispatcher, Strategy::Affine] {
        assert!(4 * leader < own(other), "{other}: {} against {leader} ns", own(other));
    }
}

/// The scheduler prefers a thread that sleeps to one that computes; one that polls it does not.
#[test]
fn more_hogs_make_events_later_where_threads_poll() {
    for strategy in [Strategy::Dispatcher, Strategy::LeaderFollower] {
        let mean = |hogs| outcome(Scene { hogs, ..scene(strategy, 4, 64) }).times.mean();
        let means = [0, 2, 4].map(mean);
        assert!(means[0] < means[1] && means[1] < means[2], "{strategy}: {means:?}");
    }
}

#[test]
fn nothing_starves_beside_hogs() {
    for strategy in SLEEPERS {
        let outcome = outcome(Scene { hogs: 4, ..scene(strategy, 4, 64) });
        let worst = outcome.times.max();
        assert!(worst < 8 * COSTS.slice_ns, "{strategy}: {worst} ns");
    }
}

/// Whichever thread leads when the first event comes, it leaves the seat to the thread for which the events are, and that polls for itself.
#[test]
fn own_events_cost_what_polling_costs_whichever_thread_leads_from_the_start() {
    let run = |threads, seed| {
        let scene = Scene { is_own: true, ..scene(Strategy::LeaderFollower, 1, threads) };
        let mut hands = Modelled::new(Machine::new(2, COSTS)).one_by_one(seed);
        let time = Until::Time(Duration::from_millis(4));
        let outcome = play(&mut hands, scene, &[0, 1], time, seed, Care::default());
        p(&outcome.expect("no event is lost"), 0.5)
    };
    let polls = run(1, 0);
    for seed in 0..12 {
        let p50 = run(16, seed);
        assert!(p50 < polls + COSTS.wake_here_ns / 2, "{p50} ns for {polls}, seed {seed}");
    }
}

#[test]
fn one_seat_for_all_cores_costs_wake_ups_of_other_cores() {
    let of = |seats| p(&outcome(Scene { seats, ..scene(Strategy::LeaderFollower, 16, 512) }), 0.5);
    let (core, machine) = (of(Seats::Core), of(Seats::Machine));
    assert!(2 * core < machine, "{core} ns with a seat for each core, {machine} with one");
}
