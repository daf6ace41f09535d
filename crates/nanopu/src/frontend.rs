//! Instruction fetch: two stages in front of a queue of five packets, and the buffer that takes instructions out of them.
//!
//! A packet is four aligned bytes. The first stage looks up the branch predictor and the cache tags; the second has the
//! bytes, finds jumps and predicted branches that the target buffer did not know, and redirects the first. Everything
//! here runs ahead on a guess; the core says when it was wrong.

mod buffer;
mod learn;
mod lines;
mod queue;
mod scan;

use highwire_riscv::is_compressed;

use crate::cache::UNKNOWN;
use crate::core::{Ask, Since, World, fetched};
use crate::decode::{NO_NEEDS, Needs};
use crate::port::Port;
use crate::predict::{HISTORIES, NEW, Prediction, UNUSED, Update};
pub(crate) use lines::CodeLine;
use lines::Place;
use queue::{QUEUE_PACKETS, Queue};
use scan::Scan;

/// What the core tells the frontend in one cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// Fetch goes on here instead.
    pub(crate) redirect: Option<u64>,
    /// Write-back redirects, so the instruction at `redirect` will be executed.
    pub(crate) is_certain: bool,
    pub(crate) update: Option<Update>,
    /// Decode takes the buffer's head.
    pub(crate) takes: bool,
    /// The instruction cache is to be emptied.
    pub(crate) flushes_cache: bool,
    /// The bus takes the data cache's request.
    pub(crate) waits_for_bus: bool,
}

/// The instruction at the head of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Fetched {
    pub(crate) pc: u64,
    pub(crate) bits: u32,
    pub(crate) entry: u8,
    /// The number of its packet.
    pub(crate) number: u8,
    flags: u8,
    /// What the bits need, if they are an instruction.
    pub(crate) needs: Needs,
}

mod flag {
    /// The buffer is not empty.
    pub(super) const LIVE: u8 = 1 << 0;
    /// Memory is there.
    pub(super) const PRESENT: u8 = 1 << 1;
    /// The predictor mistook the middle of an instruction for its end: fetch it again.
    pub(super) const REPLAYS: u8 = 1 << 2;
    /// Half of the bits are a guess, because the rest has not arrived. The instruction cannot leave decode,
    /// but decode can already see what it must wait for.
    pub(super) const HALF: u8 = 1 << 3;
    /// The bits are an instruction.
    pub(super) const KNOWN: u8 = 1 << 4;
}

impl Fetched {
    const NONE: Fetched = Fetched { pc: 0, bits: 0, entry: 0, number: 0, flags: 0, needs: NO_NEEDS };

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

    /// Whether it is two bytes long; an instruction that could not be fetched counts as such.
    #[inline(always)]
    pub(crate) fn is_short(&self) -> bool {
        self.flags & flag::PRESENT == 0 || is_compressed(self.bits as u16)
    }

    /// Whether decode pauses behind it.
    #[inline(always)]
    pub(crate) fn pauses(&self) -> bool {
        self.needs.pauses() && !self.replays()
    }

    /// Whether it must be fetched again.
    #[inline(always)]
    pub(crate) fn replays(&self) -> bool {
        self.flags & flag::REPLAYS != 0
    }
}

/// Four aligned bytes, or their second half.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Packet {
    pc: u64,
    word: u32,
    /// The last half-word that belongs to the packet: the halves behind a taken jump do not.
    last: u8,
    entry: u8,
    number: u8,
    flags: u8,
}

impl Packet {
    const NONE: Packet = Packet { pc: 0, word: 0, last: 1, entry: 0, number: 0, flags: 0 };

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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Partial {
    pc: u64,
    half: u16,
    entry: u8,
    number: u8,
    flags: u8,
}

impl Partial {
    const NONE: Partial = Partial { pc: 0, half: 0, entry: 0, number: 0, flags: 0 };

    #[inline(always)]
    fn is_live(&self) -> bool {
        self.flags & flag::LIVE != 0
    }

    /// Whether the half-word is a whole instruction.
    #[inline(always)]
    fn is_single(&self) -> bool {
        self.flags & flag::PRESENT == 0 || self.flags & flag::REPLAYS != 0 || is_compressed(self.half)
    }
}

/// The first half's findings, for the second half of the cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    /// What is known of the packet in the first stage.
    seen: Prediction,
    /// Its line is in the cache.
    is_held: bool,
    place: Place,
    /// The second stage's packet goes back to the first.
    replays: bool,
    /// The half of an instruction at its end.
    partial: Option<u16>,
    /// Its jumps and branches, if it has any.
    scan: Option<Scan>,
}

/// The frontend.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Frontend {
    /// An update takes effect a cycle later, when the target stands at the lookup port.
    pending: Option<Update>,
    /// A lookup counts as a use a cycle later: the entry, or [`UNUSED`].
    used: u8,
    /// After reset the history table is cleared entry by entry, and learns nothing until that is done.
    clearing_cycles: u32,
    /// Fetch packets so far, modulo 256: the key of their histories.
    packets: u8,
    /// The cycle in which the last word of the missing line arrives.
    refill: Option<u64>,
    refill_address: u64,
    invalidated: bool,
    s1_valid: bool,
    s1_pc: u64,
    s1_was_valid: bool,
    /// The packet in the first stage may turn out not to be executed.
    s1_is_guess: bool,
    s2_valid: bool,
    s2_is_guess: bool,
    s2_place: Place,
    s2_pc: u64,
    s2_hit: bool,
    s2_cache_valid: bool,
    s2_may_refill: bool,
    s2_prediction: Prediction,
    s2_number: u8,
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
    /// The head of the buffer, as long as it stays the same.
    head: Fetched,
    is_head_known: bool,
}

impl Frontend {
    pub(crate) fn new(pc: u64) -> Frontend {
        Frontend {
            pending: None,
            used: UNUSED,
            clearing_cycles: HISTORIES as u32,
            packets: 0,
            refill: None,
            refill_address: 0,
            invalidated: false,
            s1_valid: false,
            s1_pc: pc,
            s1_was_valid: false,
            s1_is_guess: false,
            s2_valid: false,
            s2_is_guess: false,
            s2_place: Place::Memory,
            s2_pc: pc,
            s2_hit: false,
            s2_cache_valid: false,
            s2_may_refill: false,
            s2_prediction: Prediction::default(),
            s2_number: u8::MAX,
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
        }
    }

    /// Fetches from `pc` on, as after reset, with what caches and predictor know.
    pub(crate) fn restart_at(&mut self, pc: u64) {
        self.queue.clear();
        (self.partial, self.fires, self.is_head_known) = (Partial::NONE, false, false);
        (self.s1_valid, self.s2_valid, self.s1_was_valid) = (false, false, false);
        (self.s1_pc, self.s2_pc, self.s2_partial) = (pc, pc, None);
        (self.s1_is_guess, self.s2_is_guess) = (false, false);
        (self.replay_pending, self.wrong_path) = (true, false);
    }

    /// Brings the state into its normal form: as in cycle 0 and before any packet, without what no longer
    /// matters.
    pub(crate) fn settle(&mut self, since: &Since) {
        (self.fires, self.arriving, self.is_mistaken) = (false, Packet::NONE, false);
        if !self.is_head_known {
            self.head = Fetched::NONE;
        }
        if !self.partial.is_live() {
            self.partial = Partial::NONE;
        }
        if !self.s2_valid {
            (self.s2_prediction, self.s2_number) = (Prediction::default(), since.packets);
            self.s2_place = Place::Memory;
        }
        self.invalidated &= self.refill.is_some();
        self.queue.settle();
        self.count_from(since.packets.wrapping_neg(), since.cycle.wrapping_neg());
    }

    /// The opposite of [`Frontend::settle`]: counts numbers on from `since`.
    pub(crate) fn resume(&mut self, since: &Since) {
        self.count_from(since.packets, since.cycle);
    }

    fn count_from(&mut self, packets: u8, cycle: u64) {
        let count = |number: &mut u8| *number = number.wrapping_add(packets);
        count(&mut self.packets);
        count(&mut self.s2_number);
        if self.is_head_known {
            count(&mut self.head.number);
        }
        if self.partial.is_live() {
            count(&mut self.partial.number);
        }
        self.queue.packets().iter_mut().for_each(|packet| count(&mut packet.number));
        self.refill = self.refill.map(|last| if last == UNKNOWN { last } else { last.wrapping_add(cycle) });
    }

    /// Whether the history table is still being cleared, as after reset.
    pub(crate) fn is_clearing(&self) -> bool {
        self.clearing_cycles > 0
    }

    /// The first half of a cycle: what the second stage delivers, and so what the core can decode.
    #[inline(always)]
    pub(crate) fn deliver<B: Port>(&mut self, world: &mut World<'_, B>) -> Delivered {
        let has_packet = self.s1_was_valid && self.s2_valid && (self.s2_hit || self.is_unwanted());
        self.fires = has_packet && self.queue.len() < QUEUE_PACKETS;
        let replays = (self.s2_valid && !self.fires) || self.replay_pending;
        let wants = u8::from(!replays) | u8::from(self.s1_valid) << 1 | u8::from(self.fires) << 2;
        let used = if self.pending.is_none() { self.used } else { UNUSED };
        let [target, rest] = world.ask(Ask::Fetch, [wants, used, 0], [self.s1_pc, self.s2_pc & !3]);
        let bits = (rest & fetched::PREDICTION) as u32;
        let seen = Prediction { target, bits };
        let is_held = rest & fetched::HELD != 0;
        let place = Place::of(rest);
        let mut delivered = Delivered { seen, is_held, place, replays, partial: None, scan: None };
        if self.fires {
            self.arriving = self.second_stage(rest);
        }
        self.is_mistaken = self.s2_valid && self.s2_prediction.is_hit() && self.is_middle(rest, world);
        if self.fires {
            self.find_turn(&mut delivered, world);
        }
        if !self.is_head_known {
            self.look_at_head(&mut world.side.decoder);
        }
        delivered
    }

    /// Looks for a jump or branch in the packet that enters the queue. Decode can take an instruction out of
    /// the packet in the same cycle, and must know then that the target buffer has no entry for it or that it
    /// must be fetched again.
    #[inline(always)]
    fn find_turn<B: Port>(&mut self, delivered: &mut Delivered, world: &mut World<'_, B>) {
        let glance = self.glance();
        delivered.partial = glance.partial;
        if glance.may_turn {
            let scan = self.scan(world);
            delivered.partial = scan.partial;
            if scan.taken && !self.s2_prediction.turns() {
                (self.arriving.last, self.arriving.entry) = (scan.half, NEW);
            }
            delivered.scan = Some(scan);
        }
        if self.is_mistaken {
            self.arriving.flags |= flag::REPLAYS;
        }
    }

    /// The instruction that the core can decode in this cycle.
    #[inline(always)]
    pub(crate) fn fetched(&self) -> &Fetched {
        &self.head
    }

    #[inline(always)]
    fn second_stage(&self, fetched: u64) -> Packet {
        let p = &self.s2_prediction;
        let is_present = self.s2_place != Place::Nowhere && fetched & fetched::PRESENT != 0;
        // A packet that fetch did not ask memory for has no bytes.
        let comes_again = is_present && !self.s2_hit;
        Packet {
            pc: self.s2_pc,
            word: if self.s2_hit { (fetched >> fetched::WORD) as u32 } else { 0 },
            last: if p.turns() { p.half() } else { 1 },
            entry: p.entry(),
            number: self.s2_number,
            flags: flag::LIVE
                | if is_present { flag::PRESENT } else { 0 }
                | if comes_again { flag::REPLAYS } else { 0 },
        }
    }

    /// Whether the half-word that the predictor took for the end of a jump or branch begins a longer instruction. Where the
    /// second stage has no packet of its own, it looks at the bytes of an earlier one, as the hardware does.
    fn is_middle<B: Port>(&self, fetched: u64, world: &mut World<'_, B>) -> bool {
        let word = match self.shown {
            Some(pc) if self.fires && pc & !3 == self.s2_pc & !3 => (fetched >> fetched::WORD) as u32,
            Some(pc) => world.ask(Ask::Word, [0; 3], [pc & !3, 0])[0] as u32,
            None => 0,
        };
        let is_long = [word as u16, (word >> 16) as u16].map(|half| !is_compressed(half));
        let begins_first = self.s2_pc & 2 == 0 && self.s2_partial.is_none();
        match self.s2_prediction.half() {
            0 => begins_first && is_long[0],
            _ => !(begins_first && is_long[0]) && is_long[1],
        }
    }

    /// The second half of a cycle: everything moves. True if the frontend asks for a missing line.
    #[inline(always)]
    pub(crate) fn tick<B: Port>(
        &mut self,
        delivered: Delivered,
        request: &Request,
        world: &mut World<'_, B>,
    ) -> bool {
        let fires = self.fires;
        let Delivered { seen, is_held, place, replays, partial, scan } = delivered;
        let redirected = request.redirect.is_some();
        let known = self.s2_prediction.turns();
        let queued = self.queue.len();
        let sequential = (self.s1_pc & !3).wrapping_add(4);
        let predicted = if seen.turns() { seen.target } else { sequential };

        let mut guess = predicted;
        let mut scan_redirects = false;
        let mut own_update = None;
        if let Some(scan) = &scan {
            scan_redirects = !known && scan.taken;
            if !known {
                guess = self.guess(scan, predicted, world);
            }
            own_update = self.own_update(scan, known, queued);
            self.follow(scan, known, redirected, world);
        }
        let has_space = queued <= 2
            || (queued <= 3 && !(self.s1_valid && self.s2_valid))
            || (queued <= 4 && !self.s1_valid && !self.s2_valid);
        let s0_valid = redirected || has_space;
        let next = if replays { self.s2_pc } else { guess };
        self.move_queue(request);
        self.teach(&seen, request.update.or(own_update), world);
        self.wrong_path = !redirected && (self.wrong_path || self.is_mistaken);

        // The cache looks up the first stage's tags while it is not being redirected.
        let s1_killed = redirected || scan_redirects || replays;
        let misses = self.refill_cache(is_held, request, s1_killed, world);

        if redirected || scan_redirects || (fires && known) {
            self.s2_partial = None;
        } else if fires {
            self.s2_partial = partial;
        }
        let follows_certain = self.s2_valid && !self.s2_is_guess;
        let next_is_guess = match (redirected, replays) {
            (true, _) => !request.is_certain,
            (_, true) => self.s2_is_guess,
            _ => self.s1_is_guess || follows_certain || seen.turns(),
        };
        self.replay_pending = replays && !s0_valid;
        self.s1_was_valid = self.s1_valid;
        self.s2_valid = !replays && !redirected && !scan_redirects;
        if !replays {
            (self.s2_pc, self.s2_is_guess, self.s2_place) = (self.s1_pc, self.s1_is_guess, place);
            self.s2_prediction = Prediction { target: 0, ..seen };
            self.s2_number = self.packets;
            self.packets = self.packets.wrapping_add(1);
        }
        self.s1_valid = s0_valid;
        self.s1_is_guess = next_is_guess;
        self.s1_pc = request.redirect.unwrap_or(next) & !1;
        misses
    }

    /// Where fetch goes on if the second stage has found a jump or branch.
    fn guess<B: Port>(&self, scan: &Scan, predicted: u64, world: &mut World<'_, B>) -> u64 {
        if !scan.uses_stack {
            return scan.target.unwrap_or(predicted);
        }
        match world.ask(Ask::Return, [0; 3], [0; 2]) {
            [0, _] => predicted,
            [_, address] => address,
        }
    }
}
