//! The page: one file, no address but its own, readable in light and in the dark.

use std::fmt::Write;

use crate::table::Table;

use super::{IN_SUM, Stop};

/// Bars under one title.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
    /// For values that differ by orders of magnitude.
    pub(crate) is_logarithmic: bool,
}

/// One bar.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// The value as a person reads it.
    pub(crate) text: String,
    /// The place of a value to compare with, on the same scale.
    pub(crate) mark: Option<f64>,
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fbfaf7; --faint: #6b7885; --rule: #d9d5cc; --bar: #2f6f8f; --mark: #c2571a; --code: #f0ede6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #14191f; --faint: #93a0ac; --rule: #323b45; --bar: #5fa8c9; --mark: #f0965a; --code: #1d242c; } }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.9rem; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 .4rem; }
p { margin: .4rem 0 .9rem; }
.faint { color: var(--faint); }
pre { background: var(--code); padding: .8rem 1rem; overflow-x: auto; border-radius: .4rem; font: 13px/1.5 ui-monospace, monospace; }
pre.command { color: var(--mark); font-weight: 600; white-space: pre-wrap; overflow-wrap: anywhere; margin-bottom: 0; border-radius: .4rem .4rem 0 0; }
pre.command + pre { margin-top: 0; padding-top: 0; border-radius: 0 0 .4rem .4rem; }
a { color: var(--bar); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .38rem .6rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; min-width: 9rem; }
th { font-weight: 600; color: var(--faint); font-size: .85rem; }
.scroll { overflow-x: auto; }
.bars div { position: relative; display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; margin: .55rem 0; font-size: .87rem; }
.bars b { font-weight: 600; font-variant-numeric: tabular-nums; }
.bars div::after { content: ''; flex-basis: 100%; height: .6rem; order: 3; }
.bars i { position: absolute; left: 0; bottom: 0; height: .5rem; border-radius: 2px; background: var(--bar); }
.bars u { position: absolute; bottom: -.15rem; height: .8rem; width: 3px; background: var(--mark); }
@media (max-width: 40rem) { body { padding: 1rem .8rem 3rem; } h1 { font-size: 1.5rem; } th, td { padding: .3rem .3rem; font-size: .8rem; white-space: normal; } th:first-child, td:first-child { min-width: 7rem; } td:last-child { white-space: nowrap; } }
";

/// The whole page.
pub(super) fn render(stops: &[Stop], results: &Table, machine: &str) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let _ = write!(html, "<title>Highwire: the tour</title>\n<style>{STYLE}</style>\n</head>\n<body>\n");
    html.push_str("<h1>Highwire: the tour</h1>\n");
    html.push_str(
        "<p>RDMA on any Linux machine: no card, no kernel module, no root, no lossless network.</p>\n",
    );
    let _ = writeln!(html, "<p class=\"faint\">Measured on {}.</p>", escape(machine.trim()));
    html.push_str(&table(results));
    for (index, stop) in stops.iter().enumerate() {
        let _ = writeln!(
            html,
            "<h2>{}. {}</h2>\n<p>{}</p>",
            index + 1,
            escape(&stop.title),
            in_code(&escape(&stop.meaning))
        );
        if let Some(chart) = &stop.chart {
            html.push_str(&bars(chart));
        }
        let _ = writeln!(html, "<pre class=\"command\">$ {}</pre>", escape(&stop.command));
        if !stop.output.is_empty() {
            let _ = writeln!(html, "<pre>{}</pre>", escape(stop.output.trim_end()));
        }
        if let Some(sum) = &stop.sum {
            let _ = write!(html, "<p class=\"faint\">{IN_SUM}</p>\n{}", table(sum));
        }
        for (what, name) in &stop.links {
            let _ = writeln!(html, "<p><a href=\"{name}\">{}</a></p>", escape(what));
        }
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn table(table: &Table) -> String {
    let mut html = String::from("<div class=\"scroll\"><table>\n<tr>");
    for heading in table.headings() {
        let _ = write!(html, "<th>{}</th>", escape(heading));
    }
    html.push_str("</tr>\n");
    for row in table.rows() {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}

/// Horizontal bars: label, bar with its mark, value. Each is a line of text and a line with the bar, so that a phone has room.
fn bars(chart: &Chart) -> String {
    let mut html = format!("<p class=\"faint\">{}</p>\n<div class=\"bars\">\n", escape(&caption(chart)));
    let scale = Scale::of(chart);
    for bar in &chart.bars {
        let _ = write!(
            html,
            "<div><span>{}</span><b>{}</b><i style=\"width:{:.2}%\"></i>",
            escape(&bar.label),
            escape(&bar.text),
            scale.percent(bar.value).max(0.3)
        );
        if let Some(mark) = bar.mark.filter(|mark| *mark > 0.0) {
            let _ = write!(html, "<u style=\"left:{:.2}%\"></u>", scale.percent(mark));
        }
        html.push_str("</div>\n");
    }
    html.push_str("</div>\n");
    html
}

/// A bar's length deceives unless its scale is known.
fn caption(chart: &Chart) -> String {
    let note = if chart.is_logarithmic { "; logarithmic scale: equal steps are equal factors" } else { "" };
    format!("{}{note}", chart.title)
}

/// From values to lengths.
struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let values =
            || chart.bars.iter().flat_map(|bar| [Some(bar.value), bar.mark]).flatten().filter(|v| *v > 0.0);
        let high = values().fold(f64::MIN_POSITIVE, f64::max);
        // A logarithmic bar begins a little below the smallest value, so that this has a length as well.
        let low = if chart.is_logarithmic { values().fold(high, f64::min) / 3.0 } else { 0.0 };
        Self { low, high, is_logarithmic: chart.is_logarithmic }
    }

    /// Of the whole width.
    fn percent(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        share * 100.0
    }
}

/// Words between backticks as code.
fn in_code(html: &str) -> String {
    let parts = html.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 1 { format!("<code>{part}</code>") } else { part.into() })
        .collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(is_logarithmic: bool) -> Chart {
        let bar = |value: f64, mark| Bar { label: "a < b".into(), value, text: value.to_string(), mark };
        Chart { title: "bars".into(), bars: vec![bar(10.0, Some(5.0)), bar(1_000.0, None)], is_logarithmic }
    }

    #[test]
    fn the_longest_bar_has_the_whole_width() {
        for is_logarithmic in [false, true] {
            let scale = Scale::of(&chart(is_logarithmic));
            assert!((scale.percent(1_000.0) - 100.0).abs() < 1e-6);
            assert!(scale.percent(10.0) > 0.0 && scale.percent(10.0) < scale.percent(1_000.0));
        }
    }

    #[test]
    fn nothing_in_a_label_is_markup() {
        let html = bars(&chart(false));
        assert!(html.contains("a &lt; b") && !html.contains("a < b"), "{html}");
    }

    #[test]
    fn a_logarithmic_scale_is_said_to_be_one() {
        assert!(bars(&chart(true)).contains("bars; logarithmic scale"));
        assert!(!bars(&chart(false)).contains("logarithmic"));
    }

    #[test]
    fn the_page_fetches_nothing() {
        let mut stop = Stop::new("t", "m", "c").showing("o");
        stop.chart = Some(chart(true));
        let html = render(&[stop], &Table::new(&["what"]), "a machine");
        assert!(!html.contains("http") && !html.contains("src="), "{html}");
    }

    #[test]
    fn what_a_stop_leaves_is_linked_and_its_words_are_no_markdown() {
        let mut stop = Stop::new("t", "see `highwire sim list`", "c");
        stop.sum = Some(Table::new(&["what"]));
        stop.links.push(("the trace", "loopback.html"));
        let html = render(&[stop], &Table::new(&["what"]), "a machine");
        assert!(html.contains("<a href=\"loopback.html\">the trace</a>"), "{html}");
        assert!(html.contains("<code>highwire sim list</code>") && !html.contains('`'), "{html}");
        assert!(html.contains(IN_SUM), "{html}");
    }
}
