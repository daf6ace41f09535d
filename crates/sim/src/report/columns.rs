//! Tables for other programs: columns with a name and a kind, as CSV, JSON lines or Parquet.

use std::fmt::Write;

use super::{Measures, Metric};
use crate::plan::{PARAMETERS, Parameter, Plan, Run};
use crate::{FlowRecord, Outcome, Scenario};

/// A column of a table. All columns of a table are equally long.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name; seconds, percent and bytes say so at its end.
    pub name: String,
    /// By row.
    pub values: Values,
}

/// The values of a column, by row; none where there is nothing to say.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Text.
    Text(Vec<String>),
    /// Whole numbers.
    Whole(Vec<Option<u64>>),
    /// Others.
    Double(Vec<Option<f64>>),
}

impl Column {
    fn text(name: impl Into<String>, values: Vec<String>) -> Column {
        Column { name: name.into(), values: Values::Text(values) }
    }

    fn whole(name: impl Into<String>, values: impl IntoIterator<Item = Option<u64>>) -> Column {
        Column { name: name.into(), values: Values::Whole(values.into_iter().collect()) }
    }

    fn double(name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Column {
        Column { name: name.into(), values: Values::Double(values.into_iter().collect()) }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Text(values) => values.len(),
            Values::Whole(values) => values.len(),
            Values::Double(values) => values.len(),
        }
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The name of a run: plan, point, scheme, seed.
fn leading(plan: &Plan, runs: &[&Run]) -> Vec<Column> {
    let text = |name: &str, of: &dyn Fn(&Run) -> String| {
        Column::text(name, runs.iter().map(|run| of(run)).collect())
    };
    vec![
        text("plan", &|_| plan.name.clone()),
        text("point", &|run| plan.point_name(&run.points)),
        text("scheme", &|run| plan.schemes[run.scheme].name.clone()),
        Column::whole("seed", runs.iter().map(|run| Some(run.seed))),
    ]
}

/// A parameter's column: its name with an underscore for the dot.
fn named(parameter: &Parameter) -> String {
    parameter.name.replace('.', "_")
}

/// A row per run: its name, every parameter as a plan would write it, every measure, the run's fingerprint.
pub fn run_columns(plan: &Plan, runs: &[Run], measures: &[Measures]) -> Vec<Column> {
    let mut columns = leading(plan, &runs.iter().collect::<Vec<_>>());
    for (place, parameter) in PARAMETERS.iter().enumerate() {
        let values = runs.iter().map(|run| run.params.values()[place].to_string());
        columns.push(Column::text(named(parameter), values.collect()));
    }
    for metric in Metric::ALL {
        columns.push(Column::double(metric.name(), measures.iter().map(|measures| measures.get(metric))));
    }
    let fingerprints = measures.iter().map(|measures| format!("{:016x}", measures.fingerprint));
    columns.push(Column::text("fingerprint", fingerprints.collect()));
    columns
}

/// A row per flow of a scenario, in the order of their numbers.
pub fn flow_columns(scenario: &Scenario, outcome: &Outcome) -> Vec<Column> {
    let flows = &outcome.flows;
    let given = |flow: &FlowRecord| &scenario.flows[flow.id.0 as usize];
    let whole =
        |name: &str, of: &dyn Fn(&FlowRecord) -> Option<u64>| Column::whole(name, flows.iter().map(of));
    let double =
        |name: &str, of: &dyn Fn(&FlowRecord) -> Option<f64>| Column::double(name, flows.iter().map(of));
    vec![
        whole("flow", &|flow| Some(u64::from(flow.id.0))),
        whole("source", &|flow| Some(u64::from(given(flow).source.0))),
        whole("destination", &|flow| Some(u64::from(given(flow).destination.0))),
        whole("bytes", &|flow| Some(flow.bytes)),
        whole("class", &|flow| Some(u64::from(flow.class))),
        whole("group", &|flow| given(flow).group.map(u64::from)),
        double("start_s", &|flow| Some(flow.start?.as_secs_f64())),
        double("received_s", &|flow| Some(flow.received?.as_secs_f64())),
        double("acknowledged_s", &|flow| Some(flow.acknowledged?.as_secs_f64())),
        double("fct_s", &|flow| Some(flow.fct()?.as_secs_f64())),
        double("ideal_s", &|flow| Some(flow.ideal.as_secs_f64())),
        double("slowdown", &|flow| flow.slowdown()),
        whole("packets", &|flow| Some(u64::from(flow.packets))),
        whole("sent_packets", &|flow| Some(u64::from(flow.sent))),
    ]
}

/// The same for one run of a plan; each row begins with the run's name.
pub fn flow_columns_of(plan: &Plan, run: &Run, scenario: &Scenario, outcome: &Outcome) -> Vec<Column> {
    let mut columns = leading(plan, &vec![run; outcome.flows.len()]);
    columns.extend(flow_columns(scenario, outcome));
    columns
}

/// CSV (RFC 4180) with a line of names; an empty field has no value.
pub fn to_csv(columns: &[Column]) -> String {
    let mut text = line(columns.iter().map(|column| column.name.clone()));
    for row in 0..columns.first().map_or(0, Column::len) {
        text.push_str(&line(columns.iter().map(|column| match &column.values {
            Values::Text(values) => values[row].clone(),
            Values::Whole(values) => values[row].map_or_else(String::new, |value| value.to_string()),
            Values::Double(values) => values[row].map_or_else(String::new, |value| value.to_string()),
        })));
    }
    text
}

/// An object per line; a field without a value is left out.
pub fn to_json_lines(columns: &[Column]) -> String {
    let mut text = String::new();
    for row in 0..columns.first().map_or(0, Column::len) {
        let mut separator = '{';
        for column in columns {
            let value = match &column.values {
                Values::Text(values) => Some(serde_json::Value::from(values[row].as_str()).to_string()),
                Values::Whole(values) => values[row].map(|value| value.to_string()),
                Values::Double(values) => values[row].map(|value| serde_json::Value::from(value).to_string()),
            };
            if let Some(value) = value {
                let _ = write!(text, "{separator}{}:{value}", serde_json::Value::from(column.name.as_str()));
                separator = ',';
            }
        }
        text.push_str(if separator == '{' { "{}\n" } else { "}\n" });
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

    fn table() -> Vec<Column> {
        vec![
            Column::text("name", ["a", "b, c", "\"d\""].map(String::from).to_vec()),
            Column::whole("count", [Some(1), None, Some(u64::MAX)]),
            Column::double("share", [Some(0.1), Some(3.0), None]),
        ]
    }

    #[test]
    fn fields_of_csv_are_quoted_where_they_must_be() {
        let expected = "name,count,share\na,1,0.1\n\"b, c\",,3\n\"\"\"d\"\"\",18446744073709551615,\n";
        assert_eq!(to_csv(&table()), expected);
    }

    #[test]
    fn lines_of_json_leave_out_what_has_no_value() {
        let expected = "{\"name\":\"a\",\"count\":1,\"share\":0.1}\n{\"name\":\"b, c\",\"share\":3.0}\n\
            {\"name\":\"\\\"d\\\"\",\"count\":18446744073709551615}\n";
        assert_eq!(to_json_lines(&table()), expected);
    }
}
