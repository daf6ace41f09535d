//! What a thread that waits does, as a table: it leads, or follows, or sleeps while no thread leads.
//!
//! Invariant: one thread at most has a stance that leads, each stance has a way to [`Stance::Done`], and a thread that sleeps has told the
//! thread that works for it, or leads itself.

use crate::payoff::TRIAL_BUDGETS;
use std::fmt::Write as _;

/// What a thread that waits does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stance {
    /// It looks for its event, and whether another thread leads.
    Arriving,
    /// It has begun to lead, and chooses how.
    Seated,
    /// It leads, and chooses anew.
    Choosing,
    /// It leads, and polls while there is work soon enough.
    Polling,
    /// It leads, and polls for longer, for one event.
    Trying,
    /// It leads, and makes one turn before it rests.
    Glancing,
    /// It leads, and sleeps on the work's descriptors.
    Resting,
    /// It leads, and makes a turn because a rest has ended.
    Serving,
    /// It leaves the seat to threads that are away with an event, and sleeps on its word until one of them has its event.
    Deferring,
    /// It sleeps on its word while another thread leads.
    Following,
    /// It sleeps on its word, and the background thread works: no thread can sleep on this work.
    Sleeping,
    /// Its wait is over.
    Done,
}

/// What may happen to such a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Happened {
    /// It has taken the seat.
    SeatTaken,
    /// Another thread leads, and knows that this one follows.
    Led,
    /// The leader went while this thread entered its name.
    SeatLeft,
    /// It chooses to poll.
    PollPays,
    /// It chooses to try a longer poll.
    TrialPays,
    /// It chooses to sleep.
    SleepPays,
    /// Its event is there.
    Own,
    /// It has found an event of another thread, and woken that.
    Other,
    /// There was no work for as long as it polls in vain.
    Vain,
    /// Another thread had its core for a while.
    Crowded,
    /// More threads want to run than there are cores.
    Full,
    /// Threads on its core are away with events, and will lead when they are back.
    Relieved,
    /// The turn after a rest had no event for a thread.
    Nothing,
    /// The sleep ended, perhaps for its event or for work.
    Woken,
    /// No thread can sleep on this work.
    CannotRest,
    /// Where the thread would sleep on its word, its caller sleeps on something else.
    Elsewhere,
    /// The deadline has passed.
    Late,
    /// A signal was handled.
    Signal,
}

/// What a sleep is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SleepsOn {
    /// The thread's word.
    Word,
    /// The work's descriptors.
    Descriptors,
}

/// Whom a thread tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The leader, if that rests.
    Leader,
    /// The background thread.
    Background,
    /// The background thread, if that relies on a leader.
    Relying,
}

/// What a stance means for other threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// The thread has the leader's seat. When it goes from there it calls a follower, unless it is about to be back.
    pub leads: bool,
    /// How many budgets it polls in vain; `None`: it does not poll.
    pub polls: Option<u64>,
    /// What it sleeps on.
    pub sleeps_on: Option<SleepsOn>,
    /// Whom it tells before it sleeps.
    pub tells: Option<Told>,
}

impl Stance {
    /// Every stance, in the table's order.
    pub const ALL: [Stance; 12] = [
        Stance::Arriving,
        Stance::Seated,
        Stance::Choosing,
        Stance::Polling,
        Stance::Trying,
        Stance::Glancing,
        Stance::Resting,
        Stance::Serving,
        Stance::Deferring,
        Stance::Following,
        Stance::Sleeping,
        Stance::Done,
    ];

    /// The next stance, or `None` where this does not happen.
    pub const fn next(self, happened: Happened) -> Option<Stance> {
        use Happened as H;
        use Stance as R;
        Some(match (self, happened) {
            (R::Arriving, H::SeatTaken) => R::Seated,
            (R::Arriving, H::SeatLeft) => R::Arriving,
            (R::Arriving, H::Led) => R::Following,
            (R::Seated | R::Choosing, H::PollPays) => R::Polling,
            (R::Seated | R::Choosing, H::TrialPays) => R::Trying,
            (R::Seated, H::SleepPays) => R::Glancing,
            (R::Choosing, H::SleepPays) => R::Resting,
            (R::Polling | R::Trying | R::Glancing, H::Vain | H::Crowded | H::Full) => R::Resting,
            (R::Trying | R::Serving, H::Other) => R::Choosing,
            (R::Choosing | R::Polling | R::Glancing, H::Relieved) => R::Deferring,
            (R::Deferring, H::SeatLeft | H::Woken) => R::Arriving,
            (R::Deferring, H::Led) => R::Following,
            (R::Resting, H::Woken) => R::Serving,
            (R::Resting, H::CannotRest) => R::Sleeping,
            (R::Serving, H::Nothing) => R::Resting,
            (R::Following, H::Woken) => R::Arriving,
            (R::Sleeping, H::Woken) => R::Sleeping,
            (R::Following | R::Sleeping, H::Elsewhere) => R::Done,
            (R::Resting | R::Deferring | R::Following | R::Sleeping, H::Late | H::Signal) => R::Done,
            (R::Polling | R::Trying | R::Glancing, H::Late) => R::Done,
            (R::Seated | R::Choosing | R::Done, H::Own) => return None,
            (_, H::Own) => R::Done,
            _ => return None,
        })
    }

    /// Whether its thread has entered its name, so that a leader that goes may call it.
    pub(crate) const fn has_entered(self) -> bool {
        matches!(self, Stance::Deferring | Stance::Following)
    }

    /// What it means for other threads.
    pub const fn manner(self) -> Manner {
        use Stance as R;
        let leads = matches!(
            self,
            R::Seated | R::Choosing | R::Polling | R::Trying | R::Glancing | R::Resting | R::Serving
        );
        let polls = match self {
            R::Polling => Some(1),
            R::Trying => Some(TRIAL_BUDGETS),
            R::Glancing => Some(0),
            _ => None,
        };
        let (sleeps_on, tells) = match self {
            R::Resting => (Some(SleepsOn::Descriptors), None),
            R::Deferring => (Some(SleepsOn::Word), Some(Told::Relying)),
            R::Following => (Some(SleepsOn::Word), Some(Told::Leader)),
            R::Sleeping => (Some(SleepsOn::Word), Some(Told::Background)),
            _ => (None, None),
        };
        Manner { leads, polls, sleeps_on, tells }
    }

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Stance::Arriving => "arriving",
            Stance::Seated => "seated",
            Stance::Choosing => "choosing",
            Stance::Polling => "polling",
            Stance::Trying => "trying",
            Stance::Glancing => "glancing",
            Stance::Resting => "resting",
            Stance::Serving => "serving",
            Stance::Deferring => "deferring",
            Stance::Following => "following",
            Stance::Sleeping => "sleeping",
            Stance::Done => "done",
        }
    }
}

impl Happened {
    /// All that may happen, in the table's order.
    pub const ALL: [Happened; 18] = [
        Happened::SeatTaken,
        Happened::SeatLeft,
        Happened::Led,
        Happened::PollPays,
        Happened::TrialPays,
        Happened::SleepPays,
        Happened::Own,
        Happened::Other,
        Happened::Vain,
        Happened::Crowded,
        Happened::Full,
        Happened::Relieved,
        Happened::Nothing,
        Happened::Woken,
        Happened::CannotRest,
        Happened::Elsewhere,
        Happened::Late,
        Happened::Signal,
    ];

    /// What the table says of it.
    pub const fn text(self) -> &'static str {
        match self {
            Happened::SeatTaken => "it begins to lead",
            Happened::SeatLeft => "the leader goes meanwhile",
            Happened::Led => "another thread leads",
            Happened::PollPays => "polling pays",
            Happened::TrialPays => "a longer poll may pay",
            Happened::SleepPays => "sleep pays",
            Happened::Own => "its event is there",
            Happened::Other => "it wakes another thread",
            Happened::Vain => "no work for too long",
            Happened::Crowded => "another thread had its core",
            Happened::Full => "more threads than cores",
            Happened::Relieved => "threads away will lead",
            Happened::Nothing => "no event for a thread",
            Happened::Woken => "the sleep ends",
            Happened::CannotRest => "no thread can sleep on this work",
            Happened::Elsewhere => "its caller sleeps elsewhere",
            Happened::Late => "the deadline",
            Happened::Signal => "a signal",
        }
    }
}

/// The tables of stances as text, for the documentation.
pub fn render_stances() -> String {
    let mut text = String::from("| event |");
    let stances = || Stance::ALL.into_iter().filter(|&stance| stance != Stance::Done);
    stances().for_each(|stance| _ = write!(text, " {} |", stance.name()));
    text.push_str("\n|---|");
    stances().for_each(|_| text.push_str("---|"));
    for happened in Happened::ALL {
        let _ = write!(text, "\n| {} |", happened.text());
        for stance in stances() {
            let _ = write!(text, " {} |", stance.next(happened).map_or("·", Stance::name));
        }
    }
    text.push_str("\n\n| stance | leads | polls in vain for | sleeps on | tells before it sleeps |\n");
    text.push_str("|---|---|---|---|---|\n");
    for stance in stances() {
        let Manner { leads, polls, sleeps_on, tells } = stance.manner();
        let leads = if leads { "yes" } else { "·" };
        let polls = match polls {
            None => "·".to_owned(),
            Some(0) => "one turn".to_owned(),
            Some(1) => "its budget".to_owned(),
            Some(budgets) => format!("{budgets} budgets"),
        };
        let sleeps_on = match sleeps_on {
            None => "·",
            Some(SleepsOn::Word) => "its word",
            Some(SleepsOn::Descriptors) => "the lanes' descriptors",
        };
        let tells = match tells {
            None => "·",
            Some(Told::Leader) => "a leader that rests",
            Some(Told::Background) => "the background thread",
            Some(Told::Relying) => "a background thread that relies on it",
        };
        let _ = writeln!(text, "| {} | {leads} | {polls} | {sleeps_on} | {tells} |", stance.name());
    }
    text
}
