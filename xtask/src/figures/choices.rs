//! A plan point by point: what each open choice makes of each result.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::results::document;
use crate::table::Table;

/// A row per point of a plan, a column per expectation and measure; none if the plan has not been played.
///
/// A cell has the value, half of its interval of confidence, and the difference to the first row if the intervals have
/// nothing in common: then the choice moves the result.
pub(super) fn choices(folder: &Path, plan: &str) -> Result<Option<Table>> {
    document(folder, plan)?.map(|document| table(&document)).transpose()
}

fn table(document: &Value) -> Result<Table> {
    let verdicts = document["verdicts"].as_array().context("a result has verdicts")?;
    let mut headings = vec!["choice".to_string(), "seeds".into()];
    headings.extend(verdicts.iter().map(heading));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings);
    let mut points: Vec<&str> = Vec::new();
    // A plan that is not yet played whole lacks points of some verdicts.
    for here in verdicts.iter().filter_map(|verdict| verdict["here"].as_array()).flatten() {
        let name = here["points"].as_str().unwrap_or_default();
        if !points.contains(&name) {
            points.push(name);
        }
    }
    for name in &points {
        let here: Vec<&Value> = verdicts.iter().map(|verdict| at(verdict, name)).collect();
        let seeds = here.iter().map(|here| here["seeds"].as_u64().unwrap_or(0)).min();
        let cells = verdicts.iter().zip(&here).map(|(verdict, here)| cell(here, at(verdict, points[0])));
        let lead = [(*name).to_string(), seeds.unwrap_or(0).to_string()];
        table.row(lead.into_iter().chain(cells));
    }
    Ok(table)
}

/// The verdict's result at a point; null if it has none.
fn at<'a>(verdict: &'a Value, point: &str) -> &'a Value {
    let all = verdict["here"].as_array();
    all.into_iter().flatten().find(|here| here["points"] == point).unwrap_or(&Value::Null)
}

fn heading(verdict: &Value) -> String {
    let text = |name: &str| verdict[name].as_str().unwrap_or_default();
    match verdict["over"].as_str() {
        Some(over) => format!("{} ÷ {over}: {}", text("scheme"), text("measure")),
        None => format!("{}: {}", text("scheme"), text("measure")),
    }
}

fn cell(here: &Value, first: &Value) -> String {
    let shown = here["shown"].as_str().unwrap_or("–").to_string();
    let Some((low, high)) = interval(here) else { return shown };
    let mut text = format!("{shown} ± {:.2}", (high - low) / 2.0);
    if let (Some((first_low, first_high)), Some(value), Some(before)) =
        (interval(first), here["value"].as_f64(), first["value"].as_f64())
        && (low > first_high || high < first_low)
    {
        text += &format!(" (moves it by {:+.2})", value - before);
    }
    text
}

fn interval(here: &Value) -> Option<(f64, f64)> {
    Some((here["interval"][0].as_f64()?, here["interval"][1].as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_choice_that_moves_a_result_is_told_from_one_that_does_not() {
        let here = |points: &str, value: f64, interval: Value| {
            json!({ "points": points, "value": value, "shown": format!("{value:.2}×"), "interval": interval,
                "seeds": 10 })
        };
        let document = json!({ "verdicts": [{
            "scheme": "RoCE", "over": "IRN", "measure": "average slowdown",
            "here": [
                here("as chosen", 2.6, json!([2.4, 2.8])),
                here("near", 2.7, json!([2.5, 2.9])),
                here("far", 3.6, json!([3.3, 3.9])),
                here("one seed", 9.0, json!(null)),
            ],
        }, {
            "scheme": "IRN", "measure": "dropped", "here": [here("far", 1.5, json!([1.0, 2.0]))],
        }] });
        let text = table(&document).expect("it is a result").to_markdown();
        let expected = "| choice | seeds | RoCE ÷ IRN: average slowdown | IRN: dropped |\n|---|---:|---:|---:|\n\
            | as chosen | 0 | 2.60× ± 0.20 | – |\n\
            | near | 0 | 2.70× ± 0.20 | – |\n\
            | far | 10 | 3.60× ± 0.30 (moves it by +1.00) | 1.50× ± 0.50 |\n\
            | one seed | 0 | 9.00× | – |\n";
        assert_eq!(text, expected);
    }
}
