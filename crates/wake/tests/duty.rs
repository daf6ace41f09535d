//! The state machine of duties: its table is the documentation's, every duty has a way back, and in random sequences of events of several
//! threads no packet and no timer is forgotten. Planted mistakes in what threads tell each other have to be found.

mod world;

use highwire_stdx::Duration;
use highwire_wake::duty::{Duty, Event, Happened, Leader, Sight, Stance, render, render_stances};
use world::{Planted, World};

const PAGE: &str = include_str!("../../../docs/wake-duties.md");

#[test]
fn the_page_shows_the_tables_that_the_code_has() {
    let text = format!("{}\n{}", render(), render_stances());
    assert!(
        text.split("\n\n").all(|table| PAGE.contains(table.trim())),
        "docs/wake-duties.md lacks:\n{text}"
    );
}

#[test]
fn every_sleep_has_an_end_by_time_and_by_a_call() {
    for duty in Duty::ALL {
        let longest = duty.rules().longest;
        assert_eq!(longest.is_none(), duty == Duty::Polling);
        if let Some(longest) = longest {
            assert!(longest <= Duration::from_secs(1));
            for end in [Event::Time, Event::Called, Event::Packet] {
                assert_eq!(duty.next(end), Some(Duty::Polling), "{duty:?}");
            }
        }
        let from_polling = Event::ALL.iter().filter_map(|&event| Duty::Polling.next(event));
        assert!(from_polling.into_iter().any(|next| next == duty), "{duty:?} is reached");
    }
}

#[test]
fn every_stance_is_reached_and_ends_and_no_sleep_is_kept_from_those_who_work_for_it() {
    let follows = |from: Stance| Happened::ALL.into_iter().filter_map(move |happened| from.next(happened));
    // From each stance one gets to the end, and from the first to each.
    let reach = |from: Stance| {
        let mut reached = std::collections::BTreeSet::from([from]);
        for _ in Stance::ALL {
            let next: Vec<_> = reached.iter().flat_map(|&stance| follows(stance)).collect();
            reached.extend(next);
        }
        reached
    };
    for stance in Stance::ALL {
        assert!(reach(Stance::Arriving).contains(&stance), "{stance:?} is reached");
        assert!(reach(stance).contains(&Stance::Done), "{stance:?} ends");
        let manner = stance.manner();
        let is_asleep = manner.sleeps_on.is_some();
        for end in [Happened::Woken, Happened::Own, Happened::Late, Happened::Signal] {
            assert!(!is_asleep || stance.next(end).is_some(), "{end:?} ends the sleep of {stance:?}");
        }
        // A thread that sleeps leads, or has told the one that works for it.
        assert_eq!(is_asleep && !manner.leads, manner.tells.is_some(), "{stance:?}");
        // Nobody begins to lead but by the seat.
        for next in follows(stance).filter(|next| next.manner().leads && !manner.leads) {
            assert_eq!((stance, next), (Stance::Arriving, Stance::Seated));
        }
    }
}

#[test]
fn one_that_relies_on_a_leader_hears_of_its_end_and_one_that_sleeps_long_of_visits() {
    for duty in Duty::ALL {
        let rules = duty.rules();
        assert_eq!(rules.relies, duty.next(Event::LeaderGone).is_some(), "{duty:?}");
        let is_long = rules.longest.is_some_and(|longest| longest > Duration::from_millis(100));
        // The leader that rests sleeps long as well, and the background thread tells it.
        assert_eq!(is_long && duty != Duty::Resting, rules.ends_by_visit, "{duty:?}");
    }
}

#[test]
fn a_leader_that_does_not_run_and_one_that_starves_take_no_packets() {
    let resting = Sight { rests: true, ..Sight::default() };
    let once = Leader::None.see(0, resting, || unreachable!("it has just begun to rest"));
    assert_eq!(once, Leader::Rests);
    assert_eq!(once.see(0, resting, || true), Leader::Starved);
    assert_eq!(Leader::Starved.see(0, resting, || false), Leader::Rests);
    assert_eq!(Leader::Starved.see(0, Sight { beats: 1, ..resting }, || true), Leader::Runs);
    assert_eq!(
        Leader::Runs.see(1, Sight { beats: 1, is_taken: true, ..Sight::default() }, || true),
        Leader::None
    );
    assert!(!Leader::Starved.leads() && !Leader::None.leads());
}

/// Steps of a world.
const STEPS: u32 = 1_000;
const SEEDS: u64 = 3_000;

fn play(seed: u64, planted: Option<Planted>) -> Result<World, String> {
    let mut world = World::new(seed, planted);
    (0..STEPS).try_for_each(|_| world.step())?;
    world.settle_down()?;
    Ok(world)
}

#[test]
fn no_packet_and_no_timer_is_forgotten_and_nothing_is_rescued() {
    let mut duties = std::collections::BTreeMap::<Duty, u32>::new();
    for seed in 0..SEEDS {
        let world = play(seed, None).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        for duty in Duty::ALL {
            *duties.entry(duty).or_default() += world.times(duty);
        }
    }
    assert!(Duty::ALL.iter().all(|duty| duties[duty] > 100), "each was played: {duties:?}");
}

#[test]
fn every_planted_mistake_is_found() {
    for planted in Planted::ALL {
        let found =
            (0..SEEDS).find_map(|seed| play(seed, Some(planted)).err().map(|problem| (seed, problem)));
        let (seed, problem) = found.unwrap_or_else(|| panic!("{planted:?} was not found in {SEEDS} worlds"));
        println!("{planted:?}: seed {seed}: {problem}");
    }
}
