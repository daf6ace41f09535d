//! What a thread does about a device's lanes, as one state machine.
//!
//! The background thread and the thread that leads have a [`Duty`] each. An [`Event`] gives the next one. A thread that sleeps says which
//! duty it sleeps on, and until when ([`Said`]); its [`Rules`] say which other threads end that sleep. This module reads no clock, has no
//! thread and no atomics: times and counts are arguments. [`Notice`](crate::Notice) is the word in which a thread says what it does.
//!
//! Invariant: each sleep has an end by time, and every duty has a way back to [`Duty::Polling`].

mod attendance;
mod background;
mod lane;
mod leader;
mod said;
mod stance;
mod vigil;
mod waiter;

pub use background::{Background, Ended, Next, Prepared};
pub use lane::{Charge, Found, LaneWatch};
pub use leader::{Leader, Sight};
pub use said::{Misses, Said};
pub use stance::{Happened, Manner, SleepsOn, Stance, Told, render_stances};
pub use vigil::Vigil;
pub use waiter::{Courtesy, Finish, Lesson, Waiter};

use highwire_stdx::Duration;
use std::fmt::Write as _;

/// What a thread does about the lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Duty {
    /// It makes turns.
    Polling,
    /// Another thread makes them, at least for one lane. It sleeps for a moment, and looks again.
    Checking,
    /// It sleeps on the lanes' descriptors.
    Watching,
    /// The same, for longer: nothing has happened for a while.
    LongWatch,
    /// A leader rests on the descriptors. It sleeps until that leader goes.
    Standby,
    /// Nothing has happened for a while: it sleeps until the leader goes, and on the descriptors as well.
    LongStandby,
    /// It leads, and sleeps on the descriptors.
    Resting,
}

/// What may happen to such a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// A turn has found work.
    Worked,
    /// A turn has found nothing, and the next one may.
    Idle,
    /// It has patience no more, and no thread leads.
    Unled,
    /// The same, and its last sleeps have ended by time alone.
    UnledForLong,
    /// It has patience no more, and a leader polls; or one has begun to while this thread was going to sleep.
    Led,
    /// It has patience no more, and a leader rests.
    Relieved,
    /// The same, and its last sleeps have ended by time alone.
    RelievedForLong,
    /// It has patience no more, and leads itself.
    Leads,
    /// The leader that it wanted to rely on does not rest any more.
    LeaderGone,
    /// Another thread runs a lane, or polls for what is in it.
    LaneTaken,
    /// Another thread has something for it.
    Called,
    /// A descriptor is readable: there is a packet.
    Packet,
    /// The sleep is as long as it may be, or a lane's timer is due.
    Time,
}

/// What a duty's sleep rests on, and what ends it besides a call and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The longest sleep; `None`: the thread is awake.
    pub longest: Option<Duration>,
    /// It sleeps on the descriptors of all lanes, and until the first timer of all lanes.
    pub watches: bool,
    /// A thread that has run a lane and goes on to something else ends it.
    pub ends_by_visit: bool,
    /// The leader that leaves its seat empty ends it.
    pub relies: bool,
}

/// Between two looks at lanes that other threads run. Each look costs them a few microseconds on a machine of two cores.
const CHECK: Duration = Duration::from_micros(400);
/// Counters are written and dead peers noticed at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The same where nothing has happened for a while.
const LONG_SLEEP_MAX: Duration = Duration::from_secs(1);

impl Duty {
    /// Every duty, in the table's order.
    pub const ALL: [Duty; 7] = [
        Duty::Polling,
        Duty::Checking,
        Duty::Watching,
        Duty::LongWatch,
        Duty::Standby,
        Duty::LongStandby,
        Duty::Resting,
    ];

    /// The next duty after an event, or `None` where this event does not happen.
    pub const fn next(self, event: Event) -> Option<Duty> {
        use Duty as D;
        use Event as E;
        Some(match (self, event) {
            (D::Polling, E::Worked | E::Idle) => D::Polling,
            (D::Polling, E::Unled) => D::Watching,
            (D::Polling, E::UnledForLong) => D::LongWatch,
            (D::Polling, E::Relieved) => D::Standby,
            (D::Polling, E::RelievedForLong) => D::LongStandby,
            (D::Polling, E::Leads) => D::Resting,
            (D::Polling | D::Watching | D::LongWatch, E::Led) => D::Checking,
            (D::Standby | D::LongStandby, E::LeaderGone) => D::Checking,
            (D::Checking | D::Watching | D::LongWatch | D::LongStandby | D::Resting, E::LaneTaken) => {
                D::Checking
            }
            (D::Polling, _) => return None,
            (_, E::Called | E::Packet | E::Time) => D::Polling,
            _ => return None,
        })
    }

    /// What its sleep rests on.
    pub const fn rules(self) -> Rules {
        let (longest, watches) = match self {
            Duty::Polling => (None, false),
            Duty::Checking => (Some(CHECK), false),
            Duty::Watching => (Some(SLEEP_MAX), true),
            Duty::Standby => (Some(SLEEP_MAX), false),
            Duty::LongWatch | Duty::LongStandby | Duty::Resting => (Some(LONG_SLEEP_MAX), true),
        };
        let ends_by_visit = matches!(self, Duty::LongWatch | Duty::LongStandby);
        let relies = matches!(self, Duty::Standby | Duty::LongStandby);
        Rules { longest, watches, ends_by_visit, relies }
    }

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Duty::Polling => "polling",
            Duty::Checking => "checking",
            Duty::Watching => "watching",
            Duty::LongWatch => "long watch",
            Duty::Standby => "standby",
            Duty::LongStandby => "long standby",
            Duty::Resting => "resting",
        }
    }
}

impl Event {
    /// Every event, in the table's order.
    pub const ALL: [Event; 13] = [
        Event::Worked,
        Event::Idle,
        Event::Unled,
        Event::UnledForLong,
        Event::Led,
        Event::Relieved,
        Event::RelievedForLong,
        Event::Leads,
        Event::LeaderGone,
        Event::LaneTaken,
        Event::Called,
        Event::Packet,
        Event::Time,
    ];

    /// What the table says of it.
    pub const fn text(self) -> &'static str {
        match self {
            Event::Worked => "a turn found work",
            Event::Idle => "a turn found nothing, the next may",
            Event::Unled => "no patience left, no leader",
            Event::UnledForLong => "the same, after a quiet second",
            Event::Led => "no patience left, a leader polls",
            Event::Relieved => "no patience left, a leader rests",
            Event::RelievedForLong => "the same, after a quiet second",
            Event::Leads => "no patience left, it leads itself",
            Event::LeaderGone => "the leader it relies on is gone",
            Event::LaneTaken => "another thread runs a lane",
            Event::Called => "another thread calls",
            Event::Packet => "a descriptor is readable",
            Event::Time => "time",
        }
    }
}

/// The tables of duties as text, for the documentation.
pub fn render() -> String {
    let mut text = String::from("| event |");
    for duty in Duty::ALL {
        let _ = write!(text, " {} |", duty.name());
    }
    text.push_str("\n|---|");
    Duty::ALL.iter().for_each(|_| text.push_str("---|"));
    for event in Event::ALL {
        let _ = write!(text, "\n| {} |", event.text());
        for duty in Duty::ALL {
            let _ = write!(text, " {} |", duty.next(event).map_or("·", Duty::name));
        }
    }
    text.push_str("\n\n| duty | sleeps for at most | on all lanes' descriptors, until their first timer | ended by a visit | ended by the leader that goes |\n");
    text.push_str("|---|---|---|---|---|\n");
    let mark = |is: bool| if is { "yes" } else { "·" };
    for duty in Duty::ALL {
        let Rules { longest, watches, ends_by_visit, relies } = duty.rules();
        let longest = longest.map_or("·".to_owned(), |longest| match longest.as_nanos() / 1000 {
            micros @ 0..1000 => format!("{micros} µs"),
            micros => format!("{} ms", micros / 1000),
        });
        let marks = [watches, ends_by_visit, relies].map(mark);
        let _ = writeln!(text, "| {} | {longest} | {} |", duty.name(), marks.join(" | "));
    }
    text.push_str("\n| of a leader, the background thread knew | it has run since | it rests | it rests, and packets lie there | neither | work was left |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for known in Leader::ALL {
        let sight = |beats, rests, is_left| Sight { beats, is_taken: true, rests, is_left };
        let sights = [
            (sight(1, false, false), false),
            (sight(0, true, false), false),
            (sight(0, true, false), true),
            (sight(0, false, false), false),
            (sight(1, true, true), false),
        ];
        let seen = sights.map(|(sight, packets)| known.see(0, sight, || packets).name());
        let _ = writeln!(text, "| {} | {} |", known.name(), seen.join(" | "));
    }
    text
}
