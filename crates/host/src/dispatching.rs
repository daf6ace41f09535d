//! The dispatcher: a thread that polls the lanes for all threads that wait, on the core where they sleep.
//!
//! It leads (see the wake crate) while threads wait and something happens, so the background thread checks on it as on any leader, and serves
//! in its place if it gets no core. After every turn in vain its core is free for any thread that wants it. It keeps the usual
//! priority: one that ran only on an idle core would hold a lane's token for as long as others compute there.

use crate::device::Shared;
use crate::error::OpenError;
use crate::following::{Account, Following, follow};
use crate::helper::Helper;
use crate::sys;
use crate::waiting::Lanes;
use highwire_wake::{Core, Dispatcher, Slept, Turn, WakeWord, Work};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

/// Turns between two looks at where threads sleep.
const TURNS_PER_MOVE: u32 = 16;

pub(crate) fn spawn(device: Arc<Shared>, dispatcher: Arc<Dispatcher>) -> Result<Helper, OpenError> {
    Helper::spawn("highwire-poll", move || {
        sys::be_quick_to_run();
        dispatcher.serve_for(device.waiting.station(), &Dispatched::new(&device));
    })
    .map_err(|error| OpenError::System("start the dispatcher's thread", error))
}

/// The lanes, run on the core of the threads that wait for them.
struct Dispatched<'a> {
    device: &'a Shared,
    lanes: Lanes<'a>,
    turns: Cell<u32>,
    following: RefCell<Following>,
    account: Account,
    /// The cores that this process may use.
    cores: Vec<Core>,
}

impl<'a> Dispatched<'a> {
    fn new(device: &'a Shared) -> Dispatched<'a> {
        Dispatched {
            device,
            lanes: Lanes::new(device),
            turns: Cell::new(0),
            following: RefCell::default(),
            account: Account::of_this_thread(),
            cores: crate::following::allowed_cores(),
        }
    }
}

impl Work for Dispatched<'_> {
    fn turn(&self) -> Turn {
        let turns = self.turns.get();
        self.turns.set(turns.wrapping_add(1));
        if turns.is_multiple_of(TURNS_PER_MOVE)
            && let Some(core) = self.device.waiting.slept_on()
        {
            let now = self.device.clock.now();
            follow(&mut self.following.borrow_mut(), core, now, &self.account, &self.cores);
        }
        self.lanes.turn()
    }

    fn hand_over(&self) {
        self.device.company.leave(self.device.waiting.look());
        self.lanes.hand_over();
    }

    fn leave_to_leader(&self) {
        self.lanes.leave_to_leader();
    }

    fn shares_core(&self) -> bool {
        self.lanes.shares_core()
    }

    fn make_way(&self) {
        self.lanes.make_way();
    }

    // It polls, or leaves the work to the background thread.
    fn rest(&self, _word: &WakeWord, _seen: u32, _deadline: Option<Instant>) -> Option<Slept> {
        None
    }
}
