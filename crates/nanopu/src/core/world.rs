//! Everything that the pipeline asks or tells: the program, the predictor's tables, the caches' tags, the
//! bus.
//!
//! The pipeline itself knows neither a register's value nor the address of an access. It names things by
//! numbers relative to the current cycle and asks questions with small answers, so in the same state and with
//! the same answers it does the same. That is what lets [`Memo`](super::memo::Memo) repeat a cycle without
//! it.

mod fetch;
mod overlap;

use highwire_riscv::Hart;

use super::banks::Banks;
use super::record::Records;
use super::stalls::Stalls;
use crate::cache::{LINE_BYTES, Tags};
use crate::decode::Decoder;
use crate::port::{Port, SWITCH_THREAD};
use crate::predict::{Flow, Predictor, Resolution, Update};
use crate::shared_cache::Asker;
pub(crate) use fetch::{fetched, prediction};

/// What the pipeline asks or tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Ask {
    /// No question; the pipeline never asks it.
    Nothing,
    /// Is the hart asleep?
    Asleep,
    /// Does the cycle counter end decode's pause?
    Wakes,
    /// Does a read of x30 at `x` wait for a word? `a` if nothing is in the pipeline before it.
    WordWaits,
    /// Does the scheduler ask for the thread of another bank? The answer is that thread's pc, and the bank,
    /// counted from one.
    Turns,
    /// The thread of bank `a` leaves the core to that of bank `b`. The answer is how many executed
    /// instructions come back with the new thread, and how many leave with the old one.
    ChangeBanks,
    /// Execute the program's next instruction, if it is the one at `x`.
    Execute,
    /// What did the instruction behind `a` others do when it executed, if it is the one at `x`?
    Again,
    /// The first instruction commits, and the network shall know.
    Act,
    /// The multiplier and divider takes the value of the instruction behind `a` others.
    KeepLong,
    /// The multiplier and divider writes its value to x31.
    SendLong,
    /// The first instruction commits; it is a load for x31, and a device is asked for its word.
    KeepLoad,
    /// The device's word is written to x31.
    SendLoad,

    /// What is known of the fetch packet `x`? The bits of `a` say what else is wanted: bit 0, that its
    /// history is kept; bit 1, whether its line is cached; bit 2, the four bytes at `y`. The predictor's
    /// entry `b` was used in the cycle before. The answer is a target and [`fetched`].
    Fetch,
    /// The four bytes at `x`.
    Word,
    /// The top of the return stack.
    Return,
    Push,
    Pop,
    /// A branch is expected to be taken, or not.
    Speculate,
    /// All targets are forgotten.
    Forget,
    /// All targets of the packet `x` are forgotten.
    ForgetPacket,
    /// The target `y` of the packet `x` is learnt.
    Learn,
    /// What became of a branch, or of an instruction that was followed wrongly.
    Resolve,

    FillCode,
    DrawCode,
    ClearCode,
    /// Cycles to the first word of a line of instructions.
    CodeCycles,

    /// An access behind `a` others enters the data cache.
    Enter,
    /// Can an access be served? `x` if it needs the right to write.
    HoldsData,
    /// An access writes to its line: had it been written to before?
    MarkDirty,
    /// Whether the access `a` touches one of the accesses in `x`.
    Overlaps,
    /// The line of an access is to be brought in: does another line have to be written back, and how long
    /// does memory take?
    Replace,
    /// Would another line have to be written back?
    WouldReplace,
    /// The line that would make room for an access's line is dropped, although the access's line is not asked
    /// for.
    Strike,
    FillData,
    DataCycles,
    /// Is the line of `x` the one that the data cache asked for last?
    IsTransfer,
    /// Cycles to a device's answer.
    DeviceCycles,
    /// A probe takes the line of `x` for reading. Was it there, was it dirty, and how long does memory take?
    Probe,
}

/// A question and its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    pub(crate) ask: Ask,
    pub(crate) a: u8,
    pub(crate) b: u8,
    pub(crate) c: u8,
    pub(crate) x: u64,
    pub(crate) y: u64,
}

/// The answer; zeroes where a question has none.
pub(crate) type Answer = [u64; 2];

/// Places for the addresses of loads and of stores, by number. Never more are under way.
pub(crate) const LOADS: u8 = 4;
pub(crate) const STORES: u8 = 8;
/// A pause ends when the cycle counter is a multiple of this.
const PAUSE_CYCLES: u64 = 32;
/// Histories of fetch packets that can still matter.
const HISTORIES: usize = 64;

/// The state that the pipeline uses and does not hold itself.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) records: Records,
    pub(crate) predictor: Predictor,
    pub(crate) decoder: Decoder,
    code: Tags,
    data: Tags,
    /// The history that each fetch packet's prediction used, by its number.
    histories: [u8; HISTORIES],
    pub(crate) packets: u8,
    /// The addresses of accesses in the data cache.
    load_addresses: [u64; LOADS as usize],
    store_addresses: [u64; STORES as usize],
    pub(crate) loads: u8,
    pub(crate) stores: u8,
    /// The address of the line on its way.
    transfer: u64,
    /// The value that the multiplier and divider has taken, and the address of its instruction.
    long: (u64, u64),
    /// The same for a word for x31 that a device was asked for.
    load: (u64, u64),
    memory_cycles: u64,
    /// Threads that do not run, on a core that has banks for them.
    pub(super) banks: Option<Box<Banks>>,
    /// Counts how often the instruction cache changed, from one on.
    pub(crate) version: u64,
    pub(crate) log: Log,
    /// The account of the cycles, if it is kept.
    pub(super) stalls: Option<Box<Stalls>>,
}

impl Side {
    pub(crate) fn new(memory_cycles: u64) -> Side {
        Side {
            records: Records::new(),
            predictor: Predictor::new(),
            decoder: Decoder::new(),
            code: Tags::new(),
            data: Tags::new(),
            histories: [0; HISTORIES],
            packets: 0,
            load_addresses: [0; LOADS as usize],
            store_addresses: [0; STORES as usize],
            loads: 0,
            stores: 0,
            transfer: 0,
            long: (0, 0),
            load: (0, 0),
            memory_cycles,
            banks: None,
            version: 1,
            log: Log::default(),
            stalls: None,
        }
    }
}

/// Everything that the pipeline can ask, for one cycle.
pub(crate) struct World<'a, B> {
    pub(crate) hart: &'a mut Hart,
    pub(crate) side: &'a mut Side,
    pub(crate) bus: &'a mut B,
    pub(crate) cycle: u64,
}

/// The questions of this cycle, for the memo to repeat them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) is_on: bool,
    pub(crate) asked: Vec<(Question, Answer)>,
    /// How many of `asked` were asked before the pipeline began; it gets their answers from here.
    pub(crate) known: usize,
    pub(crate) next: usize,
}

impl<B: Port> World<'_, B> {
    /// Raises an interrupt if the scheduler wishes for another thread, unless that thread has a bank of
    /// registers.
    #[inline(always)]
    pub(crate) fn hear_scheduler(&mut self) {
        if B::IS_NETWORK && (self.bus.wants_switch() || self.hart.csrs.is_pending(SWITCH_THREAD)) {
            let by_bank = self.side.banks.is_some() && self.bus.wanted_bank().is_some();
            self.hart.csrs.set_pending(SWITCH_THREAD, self.bus.wants_switch() && !by_bank);
        }
    }

    #[inline(always)]
    pub(crate) fn ask(&mut self, ask: Ask, [a, b, c]: [u8; 3], [x, y]: [u64; 2]) -> Answer {
        let question = Question { ask, a, b, c, x, y };
        if self.side.log.is_on {
            return self.ask_and_note(question);
        }
        self.answer(&question)
    }

    #[inline(never)]
    fn ask_and_note(&mut self, question: Question) -> Answer {
        let place = self.side.log.next;
        self.side.log.next += 1;
        if place < self.side.log.known {
            assert_eq!(self.side.log.asked[place].0, question, "the pipeline repeats itself");
            return self.side.log.asked[place].1;
        }
        let answer = self.answer(&question);
        self.side.log.asked.push((question, answer));
        answer
    }

    /// Answers a question, or does what it tells.
    #[inline(always)]
    pub(crate) fn answer(&mut self, q: &Question) -> Answer {
        let (cycle, side) = (self.cycle, &mut *self.side);
        let yes = |is: bool| [u64::from(is), 0];
        match q.ask {
            Ask::Nothing => [0; 2],
            Ask::Asleep => yes(self.hart.is_waiting()),
            Ask::Wakes => yes(side.records.counter(cycle) % PAUSE_CYCLES == 0),
            Ask::WordWaits => {
                let waits = self.bus.lacks_word() && !self.hart.is_interrupted();
                if waits && q.a != 0 && q.x == self.hart.pc {
                    self.bus.wait_for_word(cycle);
                }
                yes(waits)
            }
            Ask::Turns => match &mut side.banks {
                Some(banks) => banks.turns(self.hart, self.bus),
                None => [0; 2],
            },
            Ask::ChangeBanks => {
                let Some(banks) = &mut side.banks else { return [0; 2] };
                let counts = banks.change(q.a, q.b, self.hart, &mut side.records);
                self.bus.enter_bank(cycle, q.b.into());
                counts
            }
            Ask::Execute => side.records.execute(self.hart, &side.decoder, self.bus, cycle, q.x),
            Ask::Again => side.records.again(self.hart, cycle, q.a, q.x),
            Ask::Act => {
                side.records.act(self.hart, self.bus, cycle);
                [0; 2]
            }
            Ask::KeepLong => {
                side.long = side.records.value(q.a);
                [0; 2]
            }
            Ask::KeepLoad => {
                side.load = side.records.value(0);
                [0; 2]
            }
            Ask::SendLong | Ask::SendLoad => {
                let (value, pc) = if q.ask == Ask::SendLong { side.long } else { side.load };
                self.bus.by(pc);
                self.bus.put_late_word(cycle, value);
                [0; 2]
            }
            Ask::Fetch => {
                let word = if q.a & 4 != 0 { self.bus.fetch_word(q.y).ok() } else { None };
                let [target, mut rest] = side.fetch(q, word);
                // A held line is memory; of any other packet, fetch must know what is there.
                if q.a & 2 != 0 && rest & fetched::HELD == 0 {
                    if self.bus.is_device(q.x) {
                        rest |= fetched::DEVICE;
                    }
                    if self.bus.fetch_word(q.x & !3).is_err() {
                        rest |= fetched::NOWHERE;
                    }
                }
                [target, rest]
            }
            Ask::Word => [self.bus.fetch_word(q.x).unwrap_or(0).into(), 0],
            Ask::Return => match side.predictor.return_address() {
                Some(address) => [1, address],
                None => [0; 2],
            },
            Ask::Push => {
                side.predictor.push_return(q.x);
                [0; 2]
            }
            Ask::Pop => {
                side.predictor.pop_return();
                [0; 2]
            }
            Ask::Speculate => {
                side.predictor.advance_history(q.a != 0);
                [0; 2]
            }
            Ask::Forget => {
                side.predictor.flush();
                [0; 2]
            }
            Ask::ForgetPacket => {
                side.predictor.forget(q.x);
                [0; 2]
            }
            Ask::Learn => {
                let (half, is_valid, is_ambiguous) = (q.b & 1, q.b & 2 != 0, q.b & 4 != 0);
                let flow = Flow::of(q.c);
                let update = Update { entry: q.a, packet: q.x, half, flow, is_valid };
                side.predictor.learn(&update, q.y, is_ambiguous);
                [0; 2]
            }
            Ask::Resolve => {
                let history = side.histories[usize::from(side.packets.wrapping_sub(q.a)) % HISTORIES];
                let [is_branch, taken, is_wrong, learns] = [1, 2, 4, 8].map(|bit| q.b & bit != 0);
                let resolution = Resolution { packet: q.x, is_branch, taken, is_wrong, learns };
                side.predictor.resolve(&resolution, history);
                [0; 2]
            }
            Ask::FillCode => {
                side.code.fill(q.x, false);
                side.version += 1;
                [0; 2]
            }
            Ask::DrawCode => {
                side.code.draw();
                [0; 2]
            }
            Ask::ClearCode => {
                side.code.clear();
                side.version += 1;
                [0; 2]
            }
            Ask::CodeCycles => [self.bus.line_cycles(Asker::Code, q.x, side.memory_cycles), 0],
            Ask::Enter => {
                let address = side.records.address(q.a);
                if q.b != 0 {
                    side.store_addresses[usize::from(side.stores % STORES)] = address;
                    side.stores = (side.stores + 1) % STORES;
                } else {
                    side.load_addresses[usize::from(side.loads % LOADS)] = address;
                    side.loads = (side.loads + 1) % LOADS;
                }
                [0; 2]
            }
            Ask::HoldsData => {
                let address = side.address(q.a);
                yes(side.data.holds(address) && !(q.x != 0 && side.data.is_shared(address)))
            }
            Ask::MarkDirty => {
                let address = side.address(q.a);
                yes(side.data.mark_dirty(address))
            }
            Ask::Overlaps => yes(side.overlaps(q)),
            Ask::Replace => {
                side.transfer = side.address(q.a);
                [u64::from(side.data.drop_dirty(side.transfer)), side.memory_cycles]
            }
            Ask::FillData => {
                side.data.fill(side.transfer, q.a != 0);
                side.data.draw();
                [0; 2]
            }
            Ask::Strike => {
                let address = side.address(q.a);
                side.data.strike(address);
                [0; 2]
            }
            Ask::WouldReplace => yes(side.data.would_drop_dirty(side.address(q.a))),
            Ask::Probe => {
                let was_dirty = side.data.share(q.x);
                [was_dirty.map_or(0, |was_dirty| 1 + u64::from(was_dirty)), side.memory_cycles]
            }
            Ask::IsTransfer => yes(side.transfer / LINE_BYTES == q.x / LINE_BYTES),
            Ask::DeviceCycles => [self.bus.device_cycles(side.address(q.a)), 0],
            Ask::DataCycles => [self.bus.line_cycles(Asker::Data, side.address(q.a), side.memory_cycles), 0],
        }
    }

    /// A question whose answer is yes or no.
    #[inline(always)]
    pub(crate) fn is(&mut self, ask: Ask, a: u8, x: u64) -> bool {
        self.ask(ask, [a, 0, 0], [x, 0])[0] != 0
    }

    #[inline(always)]
    pub(crate) fn tell(&mut self, ask: Ask, a: u8, x: u64) {
        self.ask(ask, [a, 0, 0], [x, 0]);
    }
}

/// What the numbers of fetch packets, accesses, instructions and cycles count from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    pub(crate) packets: u8,
    pub(crate) loads: u8,
    pub(crate) stores: u8,
    pub(crate) serial: u64,
    pub(crate) cycle: u64,
}

impl Side {
    /// The counts at the beginning of `cycle`.
    pub(crate) fn since(&self, cycle: u64) -> Since {
        let (packets, loads, stores) = (self.packets, self.loads, self.stores);
        Since { packets, loads, stores, serial: self.records.first, cycle }
    }

    /// The counts behind `cycle`, in which an instruction `commits` or not.
    pub(crate) fn next(&self, commits: bool, cycle: u64) -> Since {
        let mut since = self.since(cycle + 1);
        since.serial += u64::from(commits);
        since
    }

    /// The counts at the beginning of `cycle`, in which the questions of `asked` have been answered so far.
    pub(crate) fn before(&self, asked: &[(Question, Answer)], cycle: u64) -> Since {
        let mut since = self.since(cycle);
        for (question, answer) in asked {
            match question.ask {
                Ask::Fetch => since.packets = since.packets.wrapping_sub(question.a & 1),
                Ask::ChangeBanks => since.serial -= answer[1],
                Ask::Enter if question.b != 0 => since.stores = since.stores.wrapping_sub(1) % STORES,
                Ask::Enter => since.loads = since.loads.wrapping_sub(1) % LOADS,
                _ => {}
            }
        }
        since
    }
}

/// Set in the number of an access that writes.
pub(crate) const STORE: u8 = 0x80;

impl Side {
    /// The data cache loses a line. Returns whether it was dirty, or `None` if it was not cached.
    pub(crate) fn take_line(&mut self, address: u64) -> Option<bool> {
        self.data.take(address)
    }

    /// The data cache keeps a line, but must ask before it writes to it. Returns whether it was dirty, or
    /// `None` if it was not cached.
    pub(crate) fn share_line(&mut self, address: u64) -> Option<bool> {
        self.data.share(address)
    }

    /// The address of an access, whose number counts back from the next access of its kind.
    #[inline(always)]
    fn address(&self, access: u8) -> u64 {
        if access & STORE != 0 {
            self.store_addresses[usize::from(self.stores.wrapping_sub(access & !STORE) % STORES)]
        } else {
            self.load_addresses[usize::from(self.loads.wrapping_sub(access) % LOADS)]
        }
    }
}
