//! One row per run: its name, every parameter, every measure.

use super::{Measures, Metric};
use crate::plan::{PARAMETERS, Parameter, Plan, Run};

/// The columns before parameters and measures.
pub(super) const LEADING: [&str; 4] = ["plan", "point", "scheme", "seed"];

/// A parameter's column: its name with an underscore for the dot.
pub(super) fn column(parameter: &Parameter) -> String {
    parameter.name.replace('.', "_")
}

/// All runs as CSV (RFC 4180), with a line of names. Parameters are written as a plan would, measures in seconds, percent,
/// bytes and counts; an empty field was not measured.
pub fn csv(plan: &Plan, runs: &[Run], measures: &[Measures]) -> String {
    let names = LEADING.into_iter().map(String::from).chain(PARAMETERS.iter().map(column));
    let measured = Metric::ALL.iter().map(|metric| metric.name()).chain(["fingerprint"]);
    let mut text = line(names.chain(measured.map(String::from)));
    for (run, measures) in runs.iter().zip(measures) {
        let lead = [
            plan.name.clone(),
            plan.point_name(&run.points),
            plan.schemes[run.scheme].name.clone(),
            run.seed.to_string(),
        ];
        let params = run.params.values().iter().map(ToString::to_string);
        let values = Metric::ALL
            .iter()
            .map(|metric| measures.get(*metric).map_or_else(String::new, |value| value.to_string()));
        let fingerprint = format!("{:016x}", measures.fingerprint);
        text.push_str(&line(lead.into_iter().chain(params).chain(values).chain([fingerprint])));
    }
    text
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted = fields.map(|field| {
        if field.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field
        }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(line(["a", "b, c", "\"d\""].map(String::from).into_iter()), "a,\"b, c\",\"\"\"d\"\"\"\n");
    }
}
