//! The page: one file with its data, its style and its script; no address but its own, readable in light and in the dark.

use highwire_stdx::words::counted;
use serde::Serialize;

use super::verdict::cells;
use super::{Cell, Film, Measures, Metric, Verdict, judge};
use crate::plan::{Params, Plan, Run};

const STYLE: &str = include_str!("assets/page.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 7] = [
    include_str!("assets/base.js"),
    include_str!("assets/bars.js"),
    include_str!("assets/lines.js"),
    include_str!("assets/film.js"),
    include_str!("assets/storms.js"),
    include_str!("assets/save.js"),
    include_str!("assets/main.js"),
];

/// The data that the script draws.
#[derive(Serialize)]
struct Data<'a> {
    figure: &'a str,
    title: &'a str,
    claim: &'a str,
    facts: Vec<String>,
    schemes: Vec<&'a str>,
    axis: Option<&'a str>,
    points: Vec<String>,
    metrics: Vec<MetricData>,
    cells: Vec<CellData>,
    panels: Vec<Panel<'a>>,
    failures: &'a [String],
    films: Vec<FilmData<'a>>,
    choices: Vec<[&'a str; 2]>,
    explanation: String,
    shares: &'static [f64],
    command: String,
}

#[derive(Serialize)]
struct MetricData {
    name: &'static str,
    title: &'static str,
}

/// All seeds of a scheme at a point.
#[derive(Serialize)]
struct CellData {
    scheme: usize,
    point: usize,
    /// By metric: mean, its interval of confidence, and the mean in words.
    values: Vec<Option<(f64, f64, f64, String)>>,
    /// Mean over seeds of the tail of single packets, in seconds.
    tail: Vec<f64>,
    /// Largest size, median and 99 % slowdown, of the first seed that has flows of the size.
    sizes: Vec<(u64, f64, f64)>,
    /// Milliseconds, flows under way, mean FCT of those that arrived, of the first seed.
    history: Vec<(f64, u64, f64)>,
}

/// An expectation with all its metrics.
#[derive(Serialize)]
struct Panel<'a> {
    claim: &'a str,
    paper: &'a str,
    /// Where nothing has changed: 1 for ratios, 0 for differences.
    neutral: Option<f64>,
    /// What the numbers are.
    unit: &'static str,
    band: (Option<f64>, Option<f64>),
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    metric: &'static str,
    point: String,
    value: Option<f64>,
    /// The interval of confidence; none from one seed.
    low: Option<f64>,
    high: Option<f64>,
    text: String,
    /// `inside`, `outside` or `undecided`.
    standing: &'static str,
}

#[derive(Serialize)]
struct FilmData<'a> {
    scheme: usize,
    film: &'a Film,
}

/// A plan's results as a page for a browser; `failures` says why other runs have none.
pub fn page(plan: &Plan, runs: &[Run], measures: &[Measures], failures: &[String]) -> String {
    let json = serde_json::to_string(&data(plan, runs, measures, failures)).expect("numbers and text");
    document(&format!("{}: {}", plan.figure, plan.title), &json, &SCRIPTS)
}

/// A page of the same look for other data, JSON: `script` builds it in the element `page`, out of what `base.js` and `lines.js` offer.
pub fn page_with(title: &str, json: &str, script: &str) -> String {
    document(title, json, &[SCRIPTS[0], SCRIPTS[2], script])
}

fn document(title: &str, json: &str, scripts: &[&str]) -> String {
    let title = escape(title);
    // In a script element only `<` could end the data early.
    let json = json.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main id=\"page\">\n\
         <noscript>This page draws its charts with a script.</noscript>\n</main>\n\
         <script id=\"data\" type=\"application/json\">{json}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
        scripts.concat()
    )
}

fn data<'a>(plan: &'a Plan, runs: &[Run], measures: &'a [Measures], failures: &'a [String]) -> Data<'a> {
    let combinations = plan.combinations();
    let cells = cells(plan, runs, measures);
    let films = runs
        .iter()
        .zip(measures)
        .filter_map(|(run, measures)| Some(FilmData { scheme: run.scheme, film: measures.film.as_ref()? }));
    Data {
        figure: &plan.figure,
        title: &plan.title,
        claim: &plan.claim,
        facts: facts(plan, measures),
        schemes: plan.schemes.iter().map(|scheme| scheme.name.as_str()).collect(),
        axis: plan.axes.first().map(|axis| axis.name.as_str()),
        points: combinations.iter().map(|points| plan.point_name(points)).collect(),
        metrics: Metric::ALL.iter().map(|m| MetricData { name: m.name(), title: m.title() }).collect(),
        cells: cells.iter().map(|cell| cell_data(cell, &combinations)).collect(),
        panels: panels(plan, runs, measures),
        failures,
        films: films.collect(),
        choices: plan.choices.iter().map(|c| [c.question.as_str(), c.answer.as_str()]).collect(),
        explanation: plan.explain(),
        shares: &Measures::TAIL,
        command: plan.command(),
    }
}

/// A few words under the title.
fn facts(plan: &Plan, measures: &[Measures]) -> Vec<String> {
    let hops: f64 = measures.iter().filter_map(|m| m.get(Metric::PacketHops)).sum();
    let flows: f64 = measures.iter().filter_map(|m| m.get(Metric::Flows)).sum();
    let value = |name: &str| plan.base.value(name).to_string();
    let defaults = Params::default();
    let mut facts = vec![format!("{} at {}", value("network.shape"), value("network.rate"))];
    if plan.base.value("workload.pattern") == defaults.value("workload.pattern") {
        facts.push(format!("load {}", value("workload.load")));
    } else {
        facts.push(value("workload.pattern"));
    }
    let (runs, seeds) = (measures.len() as u64, plan.seeds.into());
    facts.push(format!("{}, {} each", counted(runs, "run"), counted(seeds, "seed")));
    facts.push(format!("{} flows", Metric::Flows.show(flows)));
    facts.push(format!("{} packet-hops", Metric::PacketHops.show(hops)));
    facts
}

fn cell_data(cell: &Cell<'_>, combinations: &[Vec<usize>]) -> CellData {
    let values = Metric::ALL.iter().map(|&metric| {
        let mean = Some(cell.mean(metric)).filter(|mean| mean.is_finite())?;
        let (low, high) = cell.interval(metric).unwrap_or((mean, mean));
        Some((mean, low, high, metric.show(mean)))
    });
    let tails: Vec<&Vec<f64>> =
        cell.measures.iter().map(|measures| &measures.tail).filter(|tail| !tail.is_empty()).collect();
    let places = 0..tails.first().map_or(0, |tail| tail.len());
    let tail = places.map(|place| tails.iter().map(|t| t[place]).sum::<f64>() / tails.len() as f64);
    let first = cell.measures.first();
    let sizes = first.map_or(&[][..], |measures| &measures.by_size);
    let history = first.map_or(&[][..], |measures| &measures.history);
    CellData {
        scheme: cell.scheme,
        point: combinations.iter().position(|points| *points == cell.points).unwrap_or(0),
        values: values.collect(),
        tail: tail.collect(),
        sizes: sizes.iter().map(|c| (c.bytes_max, c.slowdown_p50, c.slowdown_p99)).collect(),
        history: history.iter().map(|s| (s.end_us as f64 / 1e3, s.under_way, s.fct_mean_s)).collect(),
    }
}

fn panels<'a>(plan: &'a Plan, runs: &[Run], measures: &[Measures]) -> Vec<Panel<'a>> {
    use crate::plan::Quantity::{Increase, Ratio, Reduction, Value};
    let verdicts = judge(plan, runs, measures);
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    let mut panels: Vec<Panel<'a>> = Vec::new();
    let mut last = std::ptr::null();
    for verdict in &verdicts {
        let expectation = verdict.expectation;
        if !std::ptr::eq(last, expectation) {
            last = expectation;
            panels.push(Panel {
                claim: &expectation.claim,
                paper: &expectation.paper,
                neutral: match expectation.quantity {
                    Value => None,
                    Ratio => Some(1.0),
                    Reduction | Increase => Some(0.0),
                },
                unit: match expectation.quantity {
                    Value => verdict.metric.unit(),
                    Ratio => "times",
                    Reduction => "% less",
                    Increase => "% more",
                },
                band: (finite(expectation.band.0), finite(expectation.band.1)),
                rows: Vec::new(),
            });
        }
        if let Some(panel) = panels.last_mut() {
            panel.rows.extend(rows(verdict));
        }
    }
    panels
}

fn rows(verdict: &Verdict<'_>) -> Vec<Row> {
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    let row = |here: &super::Here| Row {
        metric: verdict.metric.title(),
        point: here.points.clone(),
        value: finite(here.value),
        low: here.interval.and_then(|interval| finite(interval.0)),
        high: here.interval.and_then(|interval| finite(interval.1)),
        text: verdict.expectation.quantity.show(here.value, verdict.metric),
        standing: here.standing.name(),
    };
    verdict.here.iter().map(row).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
