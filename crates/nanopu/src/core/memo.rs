//! Cycles that have been seen before: where the pipeline stood, what it asked, what it heard, and where it stood then.
//!
//! The [`Pipeline`](super::pipeline::Pipeline) is a machine without data: standing the same and hearing the same, it does the same. So a
//! cycle that has been worked out once is a list of questions with the answers that were given, and doing it again is to ask the
//! [`World`](super::world::World) those questions. As soon as an answer is new, the pipeline itself works the cycle out, from
//! where it stood and with the answers so far, and the list becomes a tree. FastSim did so for an out-of-order processor
//! (Schnarr and Larus, ASPLOS 1998).
//!
//! Invariant: nothing depends on what is remembered.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::pipeline::{Pipeline, Turn};
use super::world::{Answer, Ask, Log, Question, Since, World};
use crate::port::Port;

/// After so many steps everything is forgotten: some tens of megabytes.
const STEPS_MAX: usize = 1 << 19;

/// In place of a step: none.
const NONE: u32 = 0;
/// In place of the next step: the cycle ends. The rest is a place and what happened.
const END: u32 = 1 << 31;
const TRAP: u32 = 1 << 30;
const COMMIT: u32 = 1 << 29;
const PLACE: u32 = COMMIT - 1;

/// A question with one of its answers, in a line of the host's cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Step {
    question: Question,
    answer: Answer,
    /// What follows.
    next: u32,
    /// The same question with another answer.
    other: u32,
    /// What was asked before.
    before: u32,
    /// When the answer was this one: see [`World::confirm`].
    version: u64,
}

/// Where the pipeline can stand at the beginning of a cycle.
#[derive(Clone, Debug)]
struct Place {
    pipeline: Box<Pipeline>,
    /// The first question of the cycle.
    first: u32,
    /// Another place with the same hash.
    same: Option<u32>,
}

/// What is remembered of one core.
#[derive(Clone, Debug)]
pub(super) struct Memo {
    steps: Vec<Step>,
    places: Vec<Place>,
    by_hash: BTreeMap<u64, u32>,
    /// Where the pipeline stands; nothing while it stands in the core itself.
    at: Option<u32>,
    /// Cycles that were worked out.
    pub(super) worked_out: u64,
}

/// A hash that is short to calculate; places with the same one are compared.
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

/// Compares word by word. Compared as arrays, they are loaded as sixteen bytes at once, and the host has to wait until both halves of the
/// new answer, just written, are in its cache.
#[inline(always)]
fn is_same(a: &Answer, b: &Answer) -> bool {
    (a[0] ^ b[0]) | (a[1] ^ b[1]) == 0
}

/// What a repeated cycle came to.
enum Repeated {
    Done(Turn),
    /// The answer to this step, or to the first of the place, is new.
    New(u32, Option<Answer>),
}

impl Memo {
    pub(super) fn new() -> Memo {
        let nothing = Question { ask: Ask::Fetch, a: 0, b: 0, c: 0, x: 0, y: 0 };
        let nothing =
            Step { question: nothing, answer: [0; 2], next: NONE, other: NONE, before: NONE, version: 0 };
        Memo { steps: vec![nothing], places: Vec::new(), by_hash: BTreeMap::new(), at: None, worked_out: 0 }
    }

    /// Whether the pipeline stands somewhere here.
    #[inline(always)]
    pub(super) fn is_used(&self) -> bool {
        self.at.is_some()
    }

    /// The pipeline where it stands, with all numbers counted from there.
    pub(super) fn pipeline(&self) -> Option<&Pipeline> {
        Some(&self.places[self.at? as usize].pipeline)
    }

    /// One cycle.
    #[inline(always)]
    pub(super) fn advance<B: Port>(&mut self, world: &mut World<'_, B>) -> Turn {
        match self.repeat(world) {
            Repeated::Done(turn) => turn,
            Repeated::New(step, answer) => self.work_out(step, answer, world),
        }
    }

    #[inline(always)]
    fn repeat<B: Port>(&mut self, world: &mut World<'_, B>) -> Repeated {
        let at = self.at.expect("the pipeline stands somewhere") as usize;
        let mut place = self.places[at].first;
        if place == NONE {
            return Repeated::New(NONE, None);
        }
        loop {
            let mut step = &mut self.steps[place as usize];
            if step.question.ask != Ask::Fetch || !world.confirm(&step.question, &step.answer, step.version) {
                let answer = world.answer(&step.question);
                while !is_same(&step.answer, &answer) {
                    if step.other == NONE {
                        return Repeated::New(place, Some(answer));
                    }
                    place = step.other;
                    step = &mut self.steps[place as usize];
                }
                step.version = world.side.version;
            }
            place = step.next;
            if place & END != 0 {
                self.at = Some(place & PLACE);
                return Repeated::Done(match place & (TRAP | COMMIT) {
                    0 => Turn::Bubble,
                    COMMIT => Turn::Commit,
                    _ => Turn::Trap,
                });
            }
        }
    }

    /// The pipeline works the rest of a cycle out. `answer` is what was heard last, and not known to follow `step`'s question.
    #[inline(never)]
    fn work_out<B: Port>(&mut self, step: u32, answer: Option<Answer>, world: &mut World<'_, B>) -> Turn {
        let at = self.at.expect("the pipeline stands somewhere") as usize;
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
        *world.log = Log { is_on: true, asked, known, next: 0 };
        let turn = pipeline.advance(world);
        let asked = std::mem::take(world.log).asked;
        self.worked_out += 1;

        // The new answer is one more to the last question, or what follows is new altogether.
        let first = known.saturating_sub(1);
        let mut last = before;
        for (number, &(question, answer)) in asked.iter().enumerate().skip(first) {
            let new = self.steps.len() as u32;
            self.steps.push(Step { question, answer, next: NONE, other: NONE, before: last, version: 0 });
            if number > first {
                self.steps[last as usize].next = new;
            } else if step == NONE {
                self.places[at].first = new;
            } else {
                self.steps[step as usize].other = new;
            }
            last = new;
        }
        if self.steps.len() > STEPS_MAX {
            *self = Memo { worked_out: self.worked_out, ..Memo::new() };
            self.stand(pipeline, turn, world);
            return turn;
        }
        let place = self.place_of(pipeline, &world.side.next(turn != Turn::Bubble, world.cycle));
        let happened = match turn {
            Turn::Bubble => 0,
            Turn::Commit => COMMIT,
            Turn::Trap => TRAP,
        };
        self.steps[last as usize].next = END | happened | place;
        self.at = Some(place);
        turn
    }

    /// From the next cycle on, the pipeline stands here.
    pub(super) fn stand<B: Port>(&mut self, pipeline: Pipeline, turn: Turn, world: &mut World<'_, B>) {
        self.at = Some(self.place_of(pipeline, &world.side.next(turn != Turn::Bubble, world.cycle)));
    }

    /// Gives the pipeline back, as it stands at the beginning of the cycle that `since` counts to.
    pub(super) fn leave(&mut self, since: &Since) -> Option<Pipeline> {
        let at = self.at.take()? as usize;
        let mut pipeline = (*self.places[at].pipeline).clone();
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
        self.places.push(Place { pipeline: Box::new(pipeline), first: NONE, same: first });
        self.by_hash.insert(hash, place);
        place
    }
}
