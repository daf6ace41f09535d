//! A plan in words.

use std::fmt::Write;

use highwire_rnic::CongestionChoice;
use highwire_stdx::words::counted;

use super::{PARAMETERS, Plan, Setting, Unit};
use crate::plan::Params;

impl Plan {
    /// The plan in words: the claim, the runs, the open questions.
    pub fn explain(&self) -> String {
        let mut text = format!("{}: {}\n{}\n", self.figure, self.title, self.claim);
        let runs = self.runs();
        let points = self.combinations().len();
        let _ = writeln!(
            text,
            "\n{}: {}, {}, seeds {} to {}",
            counted(runs.len() as u64, "run"),
            counted(self.schemes.len() as u64, "scheme"),
            counted(points as u64, "point"),
            self.first_seed,
            self.first_seed + u64::from(self.seeds) - 1
        );
        for (section, title) in [("network", "Network"), ("transport", "Transport"), ("workload", "Workload")]
        {
            let _ = writeln!(text, "\n{title}");
            self.section(section, &mut text);
        }
        text.push_str("\nSchemes\n");
        for scheme in &self.schemes {
            let _ = writeln!(text, "  {:<32} {}", scheme.name, settings(&scheme.settings));
        }
        for axis in &self.axes {
            let _ = writeln!(text, "\nVaried: {}", axis.name);
            for point in &axis.points {
                let _ = writeln!(text, "  {:<32} {}", point.name, settings(&point.settings));
            }
        }
        if !self.expectations.is_empty() {
            text.push_str("\nThe paper\n");
        }
        for expectation in &self.expectations {
            let metrics: Vec<&str> = expectation.metrics.iter().map(|metric| metric.title()).collect();
            let _ = writeln!(text, "  {}: {} ({})", expectation.claim, expectation.paper, metrics.join(", "));
        }
        if !self.choices.is_empty() {
            text.push_str("\nWhat the paper leaves open, and what is done here\n");
        }
        for choice in &self.choices {
            let _ = writeln!(text, "  {}\n    {}", choice.question, choice.answer);
        }
        text
    }

    /// The important parameters of a section: those that are not the default, and those that always matter.
    fn section(&self, section: &str, text: &mut String) {
        const ALWAYS: [&str; 8] = [
            "network.shape",
            "network.k",
            "network.rate",
            "network.delay",
            "network.buffer",
            "workload.pattern",
            "transport.protocol",
            "transport.congestion",
        ];
        let defaults = Params::default();
        let is_set_by_a_scheme = |place: usize| {
            self.schemes.iter().any(|scheme| scheme.settings.iter().any(|setting| setting.parameter == place))
        };
        for (place, parameter) in PARAMETERS.iter().enumerate() {
            let is_here = parameter.name.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
            let value = &self.base.values()[place];
            let matters = ALWAYS.contains(&parameter.name) || *value != defaults.values()[place];
            if is_here && matters && !is_set_by_a_scheme(place) {
                let _ =
                    writeln!(text, "  {:<26} {:<16} {}", parameter.name, value.to_string(), parameter.about);
            }
        }
    }
}

/// `transport.protocol = irn, network.pfc = false`
pub(crate) fn settings(settings: &[Setting]) -> String {
    let shown = settings.iter().map(|s| format!("{} = {}", PARAMETERS[s.parameter].name, s.value));
    shown.collect::<Vec<_>>().join(", ")
}

/// Every parameter as the table of `docs/experiments.md`.
pub fn reference() -> String {
    let mut text = String::from("| parameter | default | values | what |\n|---|---|---|---|\n");
    for parameter in PARAMETERS {
        let built_in = CongestionChoice::NAMED.iter().map(|choice| choice.name());
        let words: Vec<&str> = match parameter.unit {
            Unit::Congestion => built_in.collect(),
            _ => parameter.words.to_vec(),
        };
        let words = words.iter().map(|word| format!("`{word}`"));
        let unit = Some(parameter.unit.example().to_owned()).filter(|example| !example.is_empty());
        let values = unit.into_iter().chain(words).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {values} | {} |",
            parameter.name, parameter.default, parameter.about
        );
    }
    text
}
