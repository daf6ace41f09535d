//! Comparing a block's outputs with the model's.

use std::fmt::Write;

use crate::bench::{Bench, Ports, words_of};

/// How long random runs are, in cycles, unless `HIGHWIRE_RTL_CYCLES` says otherwise.
pub(crate) fn cycles() -> usize {
    const NAME: &str = "HIGHWIRE_RTL_CYCLES";
    match std::env::var(NAME) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{NAME}={text} is no number")),
        Err(_) => 20_000,
    }
}

/// The inputs of each cycle, and the outputs expected in it.
#[derive(Clone, Debug)]
pub(crate) struct Run<I, O> {
    pub(crate) lines: Vec<(I, O)>,
}

impl<I: Ports, O: Ports> Run<I, O> {
    pub(crate) fn new() -> Self {
        Run { lines: Vec::new() }
    }

    pub(crate) fn push(&mut self, inputs: I, outputs: O) {
        self.lines.push((inputs, outputs));
    }

    /// How often `what` is seen in the outputs.
    pub(crate) fn count(&self, what: impl Fn(&O) -> bool) -> usize {
        self.lines.iter().filter(|(_, outputs)| what(outputs)).count()
    }

    /// The first difference between the block and the model, in words.
    pub(crate) fn difference(&self, bench: &Bench, source: &str) -> Option<String> {
        let mut stimulus = Vec::with_capacity(self.lines.len() * words_of::<I>());
        self.lines.iter().for_each(|(inputs, _)| inputs.words(&mut stimulus));
        let (response, complaint) = bench.run(&stimulus);
        let mut expected = Vec::new();
        let lines = response.chunks_exact(words_of::<O>());
        let found = lines.len();
        for (cycle, (line, (_, outputs))) in lines.zip(&self.lines).enumerate() {
            expected.clear();
            outputs.words(&mut expected);
            if line != expected {
                return Some(self.describe(source, cycle, line, &expected));
            }
        }
        if found < self.lines.len() || !complaint.is_empty() {
            return Some(format!("{source}: it stopped in cycle {found}: {complaint}"));
        }
        None
    }

    /// # Panics
    /// If they differ.
    pub(crate) fn check(&self, bench: &Bench, source: &str) {
        if let Some(difference) = self.difference(bench, source) {
            panic!("{difference}");
        }
        println!("{source}: {} cycles, {} output ports each, equal", self.lines.len(), O::PORTS.len());
    }

    fn describe(&self, source: &str, cycle: usize, line: &[u64], expected: &[u64]) -> String {
        let mut text = format!("{source}, cycle {cycle}:");
        let mut at = 0;
        for &(name, words) in O::PORTS {
            let (here, model) = (&line[at..at + words], &expected[at..at + words]);
            if here != model {
                let _ = write!(text, "\n  port {name}: {here:x?} in the RTL, {model:x?} in the model");
            }
            at += words;
        }
        for before in cycle.saturating_sub(5)..=cycle {
            let _ = write!(text, "\n  inputs in cycle {before}:");
            let mut values = Vec::new();
            self.lines[before].0.words(&mut values);
            let mut rest = &values[..];
            for &(name, words) in I::PORTS {
                let (value, behind) = rest.split_at(words);
                rest = behind;
                if value.iter().any(|&word| word != 0) {
                    let _ = write!(text, " {name}={value:x?}");
                }
            }
        }
        text
    }
}
