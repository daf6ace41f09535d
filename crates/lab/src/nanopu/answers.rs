//! The answer to each message, and its time, beside a recorded one.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use highwire_nanopu::client::{Answer, Request};
use highwire_nanopu::queueing::percentile;
use serde::Serialize;

/// A message and what became of it.
#[derive(Debug, Serialize)]
pub(super) struct Answered {
    /// The cycle in which it was sent.
    sent: u64,
    context: u16,
    /// Cycles until the answer's first word; nothing without an answer.
    response_cycles: Option<u64>,
    /// The words of the answer, in hexadecimal; the last is filled up with zeroes.
    words: Option<Vec<String>>,
}

/// Each message, in the order of sending.
pub(super) fn of(requests: &[Request], answers: &[Option<Answer>]) -> Vec<Answered> {
    let one = |(request, answer): (&Request, &Option<Answer>)| Answered {
        sent: request.sent,
        context: request.context,
        response_cycles: answer.as_ref().map(|answer| answer.received - request.sent),
        words: answer.as_ref().map(|answer| words(&answer.payload)),
    };
    requests.iter().zip(answers).map(one).collect()
}

/// The words of a payload, in hexadecimal; the last is filled up with zeroes.
pub(super) fn words(payload: &[u8]) -> Vec<String> {
    let word = |bytes: &[u8]| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        format!("{:#x}", u64::from_be_bytes(whole))
    };
    payload.chunks(8).map(word).collect()
}

/// The lines for people.
pub(super) fn lines(answered: &[Answered]) -> impl Iterator<Item = String> + '_ {
    answered.iter().enumerate().map(|(number, one)| {
        let head = format!("message {number}, sent in cycle {}, context {}", one.sent, one.context);
        match (&one.response_cycles, &one.words) {
            (Some(cycles), Some(words)) => format!("{head}: {cycles} cycles, {}", words.join(" ")),
            _ => format!("{head}: no answer"),
        }
    })
}

/// Writes a line per message.
pub(super) fn write(path: &Path, answered: &[Answered]) -> Result<()> {
    let mut text = String::from("sent,context,response_cycles,words\n");
    for one in answered {
        let cycles = one.response_cycles.map_or(String::new(), |cycles| cycles.to_string());
        let words = one.words.as_ref().map_or(String::new(), |words| words.join(" "));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{},{},{cycles},{words}", one.sent, one.context);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The times of one context here and in the file.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    context: u16,
    requests: usize,
    /// In cycles: median, 90th and 99th percentile; nothing where it is an unanswered one.
    here: [Option<f64>; 3],
    recorded: [Option<f64>; 3],
    unanswered_here: usize,
    unanswered_recorded: usize,
    /// Requests with an answer on one side only.
    differently_answered: usize,
    /// Ours minus the recorded, of those with answers on both sides: the median, and the size that half and 90 % do not exceed.
    median_off: Option<f64>,
    half_within: Option<f64>,
    most_within: Option<f64>,
}

/// The times here against the recorded ones, by context.
pub(super) fn compare(answered: &[Answered], recorded: &[f64]) -> Vec<Compared> {
    let mut contexts: Vec<u16> = answered.iter().map(|one| one.context).collect();
    contexts.sort_unstable();
    contexts.dedup();
    contexts.into_iter().map(|context| of_context(context, answered, recorded)).collect()
}

fn of_context(context: u16, answered: &[Answered], recorded: &[f64]) -> Compared {
    let pairs: Vec<(f64, f64)> = answered
        .iter()
        .zip(recorded)
        .filter(|(one, _)| one.context == context)
        .map(|(one, &there)| (one.response_cycles.map_or(f64::INFINITY, |cycles| cycles as f64), there))
        .collect();
    let side = |pick: fn(&(f64, f64)) -> f64| pairs.iter().map(pick).collect::<Vec<f64>>();
    let tails = |times: &[f64]| {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        [0.5, 0.9, 0.99].map(|share| Some(percentile(&sorted, share)).filter(|time| time.is_finite()))
    };
    let lost = |times: &[f64]| times.iter().filter(|time| time.is_infinite()).count();
    let (here, there) = (side(|pair| pair.0), side(|pair| pair.1));
    let both = pairs.iter().filter(|(here, there)| here.is_finite() && there.is_finite());
    let mut off: Vec<f64> = both.map(|(here, there)| here - there).collect();
    off.sort_by(f64::total_cmp);
    let mut sizes: Vec<f64> = off.iter().map(|off| off.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], share| (!sorted.is_empty()).then(|| percentile(sorted, share));
    Compared {
        context,
        requests: pairs.len(),
        here: tails(&here),
        recorded: tails(&there),
        unanswered_here: lost(&here),
        unanswered_recorded: lost(&there),
        differently_answered: pairs
            .iter()
            .filter(|(here, there)| here.is_finite() != there.is_finite())
            .count(),
        median_off: at(&off, 0.5),
        half_within: at(&sizes, 0.5),
        most_within: at(&sizes, 0.9),
    }
}

impl Compared {
    /// A line for people.
    pub(super) fn line(&self) -> String {
        let cell = |time: &Option<f64>| time.map_or("none".to_string(), |time| format!("{time:.0}"));
        let row = |times: &[Option<f64>; 3]| times.iter().map(cell).collect::<Vec<_>>().join(" / ");
        format!(
            "context {}: p50 / p90 / p99 in cycles {} here, {} recorded; of {} requests {} and {} have no answer, {} on one side only; ours \
             minus the record: median {}, half within {}, 90 % within {}",
            self.context,
            row(&self.here),
            row(&self.recorded),
            self.requests,
            self.unanswered_here,
            self.unanswered_recorded,
            self.differently_answered,
            cell(&self.median_off),
            cell(&self.half_within),
            cell(&self.most_within),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_words_and_times() {
        let request = |sent| Request { sent, context: 2, payload: vec![] };
        let answer = Answer { received: 700, payload: vec![0, 0, 0, 0, 0, 0, 0, 9, 1] };
        let answered = of(&[request(400), request(500)], &[Some(answer), None]);
        let text: Vec<String> = lines(&answered).collect();
        assert_eq!(
            text,
            [
                "message 0, sent in cycle 400, context 2: 300 cycles, 0x9 0x100000000000000",
                "message 1, sent in cycle 500, context 2: no answer"
            ]
        );
    }

    #[test]
    fn recorded_times_are_compared_by_context() {
        let one = |context, cycles| Answered { sent: 0, context, response_cycles: cycles, words: None };
        let answered = [one(0, Some(100)), one(1, Some(900)), one(0, None), one(0, Some(110))];
        let compared = compare(&answered, &[90.0, 1000.0, 120.0, f64::INFINITY]);
        assert_eq!(compared.len(), 2);
        let urgent = &compared[0];
        assert_eq!((urgent.requests, urgent.unanswered_here, urgent.unanswered_recorded), (3, 1, 1));
        assert_eq!((urgent.differently_answered, urgent.median_off), (2, Some(10.0)));
        assert_eq!((compared[1].here[0], compared[1].median_off), (Some(900.0), Some(-100.0)));
    }
}
