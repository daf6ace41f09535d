//! Instruction fetch: two stages in front of a queue of five packets, and the buffer that takes instructions out of them.
//!
//! A packet is four aligned bytes. The first stage looks up the branch predictor and the cache tags; the second has the
//! bytes, finds jumps and predicted branches that the target buffer did not know, and redirects the first. Everything
//! here runs ahead on a guess; the core says when it was wrong.

mod buffer;
mod queue;
mod scan;

use highwire_riscv::{Bus, is_compressed};

use crate::cache::{LINE_BYTES, LINE_WORDS, Tags, share_bus};
use crate::config::INSTRUCTION_MISS_CYCLES;
use crate::decode::{Decoder, NO_NEEDS, Needs};
use crate::predict::{Flow, NEW, Prediction, Predictor, Update};
use queue::{QUEUE_PACKETS, Queue};
use scan::Scan;

/// The last word of a line of which nobody knows yet when it comes; far from overflow.
const UNKNOWN: u64 = u64::MAX / 2;

/// What the core tells the frontend in one cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// Go on here instead.
    pub(crate) redirect: Option<u64>,
    pub(crate) update: Option<Update>,
    /// The instruction buffer's head is taken.
    pub(crate) takes: bool,
    /// Forget cached instructions.
    pub(crate) flushes_cache: bool,
}

/// The instruction at the head of the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    pub(crate) pc: u64,
    pub(crate) bits: u32,
    pub(crate) entry: u8,
    pub(crate) history: u8,
    flags: u8,
    /// What the bits need, if they are an instruction.
    pub(crate) needs: Needs,
}

mod flag {
    /// There is something at all.
    pub(super) const LIVE: u8 = 1 << 0;
    /// Memory is there.
    pub(super) const PRESENT: u8 = 1 << 1;
    /// The predictor mistook the middle of an instruction for its end: fetch it again.
    pub(super) const REPLAYS: u8 = 1 << 2;
    /// Half of the bits are a guess: the rest has not arrived. It cannot go on, but it can wait.
    pub(super) const HALF: u8 = 1 << 3;
    /// The bits are an instruction.
    pub(super) const KNOWN: u8 = 1 << 4;
}

impl Fetched {
    const NONE: Fetched = Fetched { pc: 0, bits: 0, entry: 0, history: 0, flags: 0, needs: NO_NEEDS };

    /// Whether all of it is there, so that it can leave decode.
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        self.flags & (flag::LIVE | flag::HALF) == flag::LIVE
    }

    /// Whether the bits, as far as they are there, are an instruction.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.flags & flag::KNOWN != 0
    }

    /// Whether it must be fetched again.
    #[inline(always)]
    pub(crate) fn replays(&self) -> bool {
        self.flags & flag::REPLAYS != 0
    }
}

/// Four aligned bytes, or their second half.
#[derive(Clone, Copy, Debug)]
struct Packet {
    pc: u64,
    word: u32,
    /// The last half-word that belongs to it: nothing behind a taken jump does.
    last: u8,
    entry: u8,
    history: u8,
    flags: u8,
}

impl Packet {
    const NONE: Packet = Packet { pc: 0, word: 0, last: 1, entry: 0, history: 0, flags: 0 };

    #[inline(always)]
    fn half(&self, index: u8) -> u16 {
        (self.word >> (16 * u32::from(index & 1))) as u16
    }

    #[inline(always)]
    fn first(&self) -> u8 {
        (self.pc >> 1 & 1) as u8
    }
}

/// A half-word that waits for its other half.
#[derive(Clone, Copy, Debug)]
struct Partial {
    pc: u64,
    half: u16,
    entry: u8,
    history: u8,
    flags: u8,
}

impl Partial {
    const NONE: Partial = Partial { pc: 0, half: 0, entry: 0, history: 0, flags: 0 };

    #[inline(always)]
    fn is_live(&self) -> bool {
        self.flags & flag::LIVE != 0
    }

    /// Whether it needs no other half.
    #[inline(always)]
    fn is_single(&self) -> bool {
        self.flags & flag::PRESENT == 0 || self.flags & flag::REPLAYS != 0 || is_compressed(self.half)
    }
}

/// The frontend.
#[derive(Clone, Debug)]
pub(crate) struct Frontend {
    pub(crate) predictor: Predictor,
    tags: Tags,
    /// The cycle in which the last word of the missing line arrives.
    refill: Option<u64>,
    refill_address: u64,
    invalidated: bool,
    s1_valid: bool,
    s1_pc: u64,
    s1_was_valid: bool,
    s2_valid: bool,
    s2_pc: u64,
    s2_hit: bool,
    s2_cache_valid: bool,
    s2_may_refill: bool,
    s2_prediction: Prediction,
    s2_partial: Option<u16>,
    /// The packet whose bytes the cache shows; they stay while nothing else is looked up.
    shown: Option<u64>,
    /// The predictor mistook the middle of an instruction for its end.
    is_mistaken: bool,
    replay_pending: bool,
    wrong_path: bool,
    queue: Queue,
    partial: Partial,
    /// The packet in the second stage enters the queue in this cycle.
    fires: bool,
    arriving: Packet,
    /// What the head of the buffer was when it was last looked at, while it stays.
    head: Fetched,
    is_head_known: bool,
    pub(crate) decoder: Decoder,
}

impl Frontend {
    pub(crate) fn new(pc: u64) -> Frontend {
        Frontend {
            predictor: Predictor::new(),
            tags: Tags::new(),
            refill: None,
            refill_address: 0,
            invalidated: false,
            s1_valid: false,
            s1_pc: pc,
            s1_was_valid: false,
            s2_valid: false,
            s2_pc: pc,
            s2_hit: false,
            s2_cache_valid: false,
            s2_may_refill: false,
            s2_prediction: Prediction::default(),
            s2_partial: None,
            shown: None,
            is_mistaken: false,
            replay_pending: true,
            wrong_path: false,
            queue: Queue::new(),
            partial: Partial::NONE,
            fires: false,
            arriving: Packet::NONE,
            head: Fetched::NONE,
            is_head_known: false,
            decoder: Decoder::new(),
        }
    }

    /// Fetches from `pc` on, as after reset, with what caches and predictor know.
    pub(crate) fn restart_at(&mut self, pc: u64) {
        self.queue.clear();
        (self.partial, self.fires, self.is_head_known) = (Partial::NONE, false, false);
        (self.s1_valid, self.s2_valid, self.s1_was_valid) = (false, false, false);
        (self.s1_pc, self.s2_pc, self.s2_partial) = (pc, pc, None);
        (self.replay_pending, self.wrong_path) = (true, false);
    }

    /// The first half of a cycle: what the second stage delivers, and so what the core can decode.
    #[inline(always)]
    pub(crate) fn deliver<B: Bus>(&mut self, bus: &mut B) {
        let has_packet = self.s1_was_valid && self.s2_valid && self.s2_hit;
        self.fires = has_packet && self.queue.len() < QUEUE_PACKETS;
        if self.fires {
            self.arriving = self.second_stage(bus);
        }
        self.is_mistaken = self.s2_prediction.hit && self.s2_valid && self.is_middle(bus);
        if !self.is_head_known {
            self.look_at_head();
        }
    }

    /// What the core can decode in this cycle.
    #[inline(always)]
    pub(crate) fn fetched(&self) -> &Fetched {
        &self.head
    }

    #[inline(always)]
    fn second_stage<B: Bus>(&self, bus: &mut B) -> Packet {
        let word = bus.fetch_word(self.s2_pc & !3);
        let p = &self.s2_prediction;
        Packet {
            pc: self.s2_pc,
            word: word.unwrap_or(0),
            last: if p.hit && p.taken { p.half } else { 1 },
            entry: p.entry,
            history: p.history,
            flags: if word.is_ok() { flag::LIVE | flag::PRESENT } else { flag::LIVE },
        }
    }

    /// Whether the half-word that the predictor took for the end of a jump or branch begins a longer instruction. Where the
    /// second stage has no packet of its own, it looks at the bytes of an earlier one, as the hardware does.
    fn is_middle<B: Bus>(&self, bus: &mut B) -> bool {
        let word = self.shown.and_then(|pc| bus.fetch_word(pc & !3).ok()).unwrap_or(0);
        let is_long = [word as u16, (word >> 16) as u16].map(|half| !is_compressed(half));
        let begins_first = self.s2_pc & 2 == 0 && self.s2_partial.is_none();
        match self.s2_prediction.half {
            0 => begins_first && is_long[0],
            _ => !(begins_first && is_long[0]) && is_long[1],
        }
    }

    /// The second half of a cycle: everything moves. True if a line is missing that was not before.
    #[inline(always)]
    pub(crate) fn tick(&mut self, cycle: u64, request: &Request) -> bool {
        let seen = self.predictor.lookup(self.s1_pc);
        let fires = self.fires;
        let redirected = request.redirect.is_some();
        let known = self.s2_prediction.hit && self.s2_prediction.taken;
        let queued = self.queue.len();
        let sequential = (self.s1_pc & !3).wrapping_add(4);
        let predicted = if seen.hit && seen.taken { seen.target } else { sequential };

        let mut guess = predicted;
        let mut scan_redirects = false;
        let mut own_update = None;
        let mut partial = None;
        if fires {
            let glance = self.glance();
            partial = glance.partial;
            if glance.may_turn {
                let scan = self.scan();
                partial = scan.partial;
                scan_redirects = !known && scan.taken;
                if !known && self.s2_valid {
                    guess = self.guess(&scan, predicted);
                }
                own_update = self.own_update(&scan, known, queued);
                self.follow(&scan, known, redirected);
            }
            if self.is_mistaken {
                self.arriving.flags |= flag::REPLAYS;
            }
        }
        let replays = (self.s2_valid && !fires) || self.replay_pending;
        let has_space = queued <= 2
            || (queued <= 3 && !(self.s1_valid && self.s2_valid))
            || (queued <= 4 && !self.s1_valid && !self.s2_valid);
        let s0_valid = redirected || has_space;
        let next = if replays { self.s2_pc } else { guess };
        self.move_queue(request);
        self.predictor.tick(self.s1_pc, &seen, request.update.or(own_update), self.is_mistaken);
        self.wrong_path = !redirected && (self.wrong_path || self.is_mistaken);

        // The cache looks up the first stage's tags while it is not being redirected.
        let s1_killed = redirected || scan_redirects || replays;
        let misses = self.refill_cache(cycle, request, s1_killed);

        if redirected || scan_redirects || (fires && known) {
            self.s2_partial = None;
        } else if fires {
            self.s2_partial = partial;
        }
        self.replay_pending = replays && !s0_valid;
        self.s1_was_valid = self.s1_valid;
        self.s2_valid = !replays && !redirected && !scan_redirects;
        if !replays {
            self.s2_pc = self.s1_pc;
            self.s2_prediction = seen;
        }
        self.s1_valid = s0_valid;
        self.s1_pc = request.redirect.unwrap_or(next) & !1;
        misses
    }

    /// Where fetch goes on if a jump or branch in the second stage says so.
    fn guess(&self, scan: &Scan, predicted: u64) -> u64 {
        let target = if scan.uses_stack { self.predictor.return_address() } else { scan.target };
        target.unwrap_or(predicted)
    }

    /// What the predictor learns from the second stage, without the core.
    fn own_update(&self, scan: &Scan, known: bool, queued: usize) -> Option<Update> {
        let likely_bubble = queued <= 1;
        let learns = !self.wrong_path && likely_bubble && !known && scan.taken && !scan.is_known;
        learns.then_some(Update {
            entry: NEW,
            packet: self.s2_pc & !3,
            half: scan.half,
            flow: scan.flow,
            is_valid: true,
        })
    }

    /// A jump or branch enters the queue.
    fn follow(&mut self, scan: &Scan, known: bool, redirected: bool) {
        if !self.wrong_path {
            self.train_speculatively(scan);
        }
        if !known && scan.taken {
            (self.arriving.last, self.arriving.entry) = (scan.half, NEW);
        }
        let lost = !known && scan.taken && scan.target.is_none() && !scan.uses_stack;
        self.wrong_path = !redirected && (self.wrong_path || lost);
    }

    fn train_speculatively(&mut self, scan: &Scan) {
        if scan.has_branch {
            self.predictor.advance_history(self.s2_prediction.bias);
        }
        match scan.stack {
            Some((Flow::Call, address)) => self.predictor.push_return(address),
            Some((Flow::Return, _)) => self.predictor.pop_return(),
            _ => {}
        }
    }

    #[inline(always)]
    fn refill_cache(&mut self, cycle: u64, request: &Request, s1_killed: bool) -> bool {
        let missed = self.s2_cache_valid && !self.s2_hit;
        if missed || self.refill.is_some() || request.flushes_cache {
            return self.refill_slowly(cycle, request, s1_killed);
        }
        let is_looking = self.s1_valid;
        if is_looking {
            self.refill_address = self.s1_pc & !(LINE_BYTES - 1);
            self.s2_hit = self.tags.holds(self.s1_pc);
            self.shown = if self.s2_hit { Some(self.s1_pc) } else { None };
        } else {
            self.s2_hit = false;
        }
        self.s2_cache_valid = is_looking && !s1_killed;
        self.s2_may_refill = true;
        false
    }

    #[inline(never)]
    fn refill_slowly(&mut self, cycle: u64, request: &Request, s1_killed: bool) -> bool {
        let missed = self.s2_cache_valid && !self.s2_hit;
        let can_request = !(missed || self.refill.is_some());
        let begins = missed && self.s2_may_refill && self.refill.is_none();
        if begins {
            self.refill = Some(UNKNOWN);
            self.invalidated = false;
        }
        self.invalidated |= request.flushes_cache;
        // While a line arrives, its words take the array's only port, and nothing can be looked up.
        let is_writing = self.refill.is_some_and(|last| cycle + LINE_WORDS >= last + 2 && cycle <= last + 1);
        let is_looking = self.s1_valid && !is_writing;
        let hit = is_looking && self.tags.holds(self.s1_pc);
        if is_looking {
            self.shown = hit.then_some(self.s1_pc);
        }
        if is_looking && can_request && self.refill.is_none() {
            self.refill_address = self.s1_pc & !(LINE_BYTES - 1);
        }
        if self.refill.is_some_and(|last| last < cycle) {
            self.refill = None;
            if !self.invalidated {
                self.tags.fill(self.refill_address, false);
            }
        }
        if request.flushes_cache {
            self.tags.clear();
        }
        self.s2_cache_valid = is_looking && !s1_killed;
        self.s2_hit = hit;
        self.s2_may_refill = can_request;
        begins
    }

    /// The missing line comes from memory, since the data cache was asked in this cycle. `data_line` is when a line of
    /// that cache is complete, `line_cycles` how long the line at an address takes.
    pub(crate) fn expect_line(
        &mut self,
        cycle: u64,
        data_line: Option<&mut u64>,
        line_cycles: impl FnOnce(u64) -> u64,
    ) {
        if self.refill.is_some() {
            let last = cycle + INSTRUCTION_MISS_CYCLES + line_cycles(self.refill_address);
            self.refill = Some(share_bus(last, data_line));
        }
    }

    /// Whether a line is on its way.
    pub(crate) fn is_refilling(&self) -> bool {
        self.refill.is_some()
    }

    /// The cycle in which the last word of a line arrives, if one is on its way.
    pub(crate) fn incoming_line(&mut self) -> Option<&mut u64> {
        self.refill.as_mut()
    }
}
