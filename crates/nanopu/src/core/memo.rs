//! Remembered cycles: the pipeline's state before, the questions it asked, the answers it got, and its state
//! after.
//!
//! The [`Pipeline`](super::pipeline::Pipeline) holds no data: in the same state and with the same answers, it
//! does the same. So a cycle that has been worked out once is a list of questions with the answers that were
//! given, and doing it again is to ask the [`World`](super::world::World) those questions. As soon as an
//! answer is new, the pipeline itself works the cycle out, from its state at the beginning and with the
//! answers so far, and the list becomes a tree. FastSim did so for an out-of-order processor (Schnarr and
//! Larus, ASPLOS 1998).
//!
//! Invariant: no result depends on what is remembered, only the time that it takes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::pipeline::{Pipeline, Turn};
use super::world::{Answer, Ask, Log, Question, Since, World, prediction};
use crate::port::Port;
use crate::predict::{bias_packet, change_set};

/// After so many steps, some tens of megabytes, the memo forgets everything.
const STEPS_MAX: usize = 1 << 19;

/// Stands for no step.
const NONE: u32 = 0;
/// In place of the next step: the cycle ends. The other bits are the place reached and what happened.
const END: u32 = 1 << 31;
const TURN: u32 = 29;
const PLACE: u32 = (1 << TURN) - 1;
/// Stands for no place.
const NOWHERE: u32 = u32::MAX;

/// A question with one of its answers; fills one line of the host's cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Step {
    question: Question,
    answer: Answer,
    /// The step that follows this answer.
    next: u32,
    /// The step of the same question with another answer.
    other: u32,
    /// The step before.
    before: u32,
    /// For [`Ask::Fetch`]: the fetch packet as the history table knows it.
    packet: u16,
    /// The history table's bias for the packet.
    bias: bool,
    /// The set of packets whose changes the target buffer counts together with this one's.
    set: u8,
    /// The version for which the answer holds: see [`World::version`].
    version: u64,
}

impl Step {
    fn new(question: Question, answer: Answer, before: u32) -> Step {
        let (packet, set) = (bias_packet(question.x), change_set(question.x));
        let bias = prediction(&answer).bias();
        Step { question, answer, next: NONE, other: NONE, before, packet, bias, set, version: 0 }
    }
}

/// A state that the pipeline can have at the beginning of a cycle.
#[derive(Clone, Debug)]
struct Place {
    pipeline: Box<Pipeline>,
    /// The next place with the same hash.
    same: Option<u32>,
}

/// The remembered cycles of one core.
#[derive(Clone, Debug)]
pub(super) struct Memo {
    /// Whether cycles are to be remembered.
    pub(super) is_on: bool,
    steps: Vec<Step>,
    places: Vec<Place>,
    /// For each place, the step of the cycle's first question.
    firsts: Vec<u32>,
    by_hash: BTreeMap<u64, u32>,
    /// The place of the pipeline's state; [`NOWHERE`] while the core itself holds the state.
    at: u32,
    /// The new answer of the last question.
    news: Answer,
    /// Cycles that the pipeline worked out.
    pub(super) worked_out: u64,
}

/// A hash that is quick to calculate; places with the same hash are compared.
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// Compares word by word. Compared as arrays, answers are loaded as sixteen bytes at once, and the host has
/// to wait until both halves of the new answer, just written, are in its cache.
#[inline(always)]
fn is_same(a: &Answer, b: &Answer) -> bool {
    (a[0] ^ b[0]) | (a[1] ^ b[1]) == 0
}

impl Memo {
    pub(super) fn new(is_on: bool) -> Memo {
        // Stands before the first step of every place, and matches no answer.
        let nothing = Question { ask: Ask::Nothing, a: 0, b: 0, c: 0, x: 0, y: 0 };
        Memo {
            is_on,
            steps: vec![Step::new(nothing, [u64::MAX; 2], NONE)],
            places: Vec::new(),
            firsts: Vec::new(),
            by_hash: BTreeMap::new(),
            at: NOWHERE,
            news: [0; 2],
            worked_out: 0,
        }
    }

    /// Whether the memo holds the pipeline's state.
    #[inline(always)]
    pub(super) fn is_used(&self) -> bool {
        self.at != NOWHERE
    }

    /// The pipeline's state, with all numbers counted from the current cycle.
    pub(super) fn pipeline(&self) -> Option<&Pipeline> {
        Some(&self.places.get(self.at as usize)?.pipeline)
    }

    /// One cycle.
    #[inline(always)]
    pub(super) fn advance<B: Port>(&mut self, world: &mut World<'_, B>) -> Turn {
        let mut place = self.firsts[self.at as usize];
        loop {
            let mut step = &mut self.steps[place as usize];
            if step.question.ask == Ask::Fetch {
                let (head, said, version) = (place, world.bias(step.packet), world.version(step.set));
                while (step.version, step.bias) != (version, said) && step.other != NONE {
                    place = step.other;
                    step = &mut self.steps[place as usize];
                }
                let is_known = (step.version, step.bias) == (version, said);
                if !is_known || !world.confirm(&step.question, &step.answer) {
                    place = head;
                    let Some(known) = self.hear(&mut place, world) else {
                        return self.work_out(place, world);
                    };
                    step = known;
                }
            } else {
                let answer = world.answer(&step.question);
                while !is_same(&step.answer, &answer) {
                    if step.other == NONE {
                        self.news = answer;
                        return self.work_out(place, world);
                    }
                    place = step.other;
                    step = &mut self.steps[place as usize];
                }
            }
            place = step.next;
            if place & END != 0 {
                self.at = place & PLACE;
                return Turn::of(place >> TURN);
            }
        }
    }

    /// Asks the question of the step at `place`, and finds the step with the answer. `None` if the answer is
    /// new.
    #[inline(never)]
    fn hear<B: Port>(&mut self, place: &mut u32, world: &mut World<'_, B>) -> Option<&mut Step> {
        let answer = world.answer(&self.steps[*place as usize].question);
        while !is_same(&self.steps[*place as usize].answer, &answer) {
            match self.steps[*place as usize].other {
                NONE => {
                    self.news = answer;
                    return None;
                }
                other => *place = other,
            }
        }
        let step = &mut self.steps[*place as usize];
        step.version = world.version_of(&answer, step.set);
        Some(step)
    }

    /// Lets the pipeline work out the rest of a cycle, or all of it if `step` is none. `self.news` holds the
    /// last answer, which is new to `step`'s question.
    #[inline(never)]
    fn work_out<B: Port>(&mut self, step: u32, world: &mut World<'_, B>) -> Turn {
        let answer = (step != NONE).then_some(self.news);
        let at = self.at as usize;
        let mut asked = Vec::new();
        let before = self.steps[step as usize].before;
        if let Some(answer) = answer {
            asked.push((self.steps[step as usize].question, answer));
            let mut earlier = before;
            while earlier != NONE {
                let Step { question, answer, before, .. } = &self.steps[earlier as usize];
                asked.push((*question, *answer));
                earlier = *before;
            }
            asked.reverse();
        }
        let known = asked.len();
        let since = world.side.before(&asked, world.cycle);
        let mut pipeline = (*self.places[at].pipeline).clone();
        pipeline.resume(&since);
        world.side.log = Log { is_on: true, asked, known, next: 0 };
        let turn = pipeline.advance(world);
        let asked = std::mem::take(&mut world.side.log).asked;
        self.worked_out += 1;

        // The new answer becomes one more answer to the last question, or the first step of this place.
        let first = known.saturating_sub(1);
        let mut last = before;
        for (number, &(question, answer)) in asked.iter().enumerate().skip(first) {
            let new = self.steps.len() as u32;
            self.steps.push(Step::new(question, answer, last));
            if number > first {
                self.steps[last as usize].next = new;
            } else if step == NONE {
                self.firsts[at] = new;
            } else {
                self.steps[step as usize].other = new;
            }
            last = new;
        }
        if self.steps.len() > STEPS_MAX {
            *self = Memo { worked_out: self.worked_out, ..Memo::new(true) };
            self.stand(pipeline, turn, world);
            return turn;
        }
        let place = self.place_of(pipeline, &world.side.next(turn != Turn::BUBBLE, world.cycle));
        self.steps[last as usize].next = END | turn.number() << TURN | place;
        self.at = place;
        turn
    }

    /// Takes the pipeline's state over, from the next cycle on.
    pub(super) fn stand<B: Port>(&mut self, pipeline: Pipeline, turn: Turn, world: &mut World<'_, B>) {
        self.at = self.place_of(pipeline, &world.side.next(turn != Turn::BUBBLE, world.cycle));
    }

    /// Gives the pipeline's state back, as it is at the beginning of the cycle that `since` counts to.
    pub(super) fn leave(&mut self, since: &Since) -> Option<Pipeline> {
        let at = std::mem::replace(&mut self.at, NOWHERE);
        let mut pipeline = (*self.places.get(at as usize)?.pipeline).clone();
        pipeline.resume(since);
        Some(pipeline)
    }

    fn place_of(&mut self, mut pipeline: Pipeline, since: &Since) -> u32 {
        pipeline.settle(since);
        let mut hasher = Mixer(0);
        pipeline.hash(&mut hasher);
        let hash = hasher.finish();
        let first = self.by_hash.get(&hash).copied();
        let mut next = first;
        while let Some(place) = next {
            if *self.places[place as usize].pipeline == pipeline {
                return place;
            }
            next = self.places[place as usize].same;
        }
        let place = self.places.len() as u32;
        debug_assert!(place < PLACE, "there are fewer places than steps");
        self.places.push(Place { pipeline: Box::new(pipeline), same: first });
        self.firsts.push(NONE);
        self.by_hash.insert(hash, place);
        place
    }
}
