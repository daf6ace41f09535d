//! The page: one file, no address but its own, readable in light and in the dark.

use std::fmt::Write;

use crate::table::Table;

use super::Stop;

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
pre b { color: var(--mark); font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .38rem .6rem; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { font-weight: 600; color: var(--faint); font-size: .85rem; }
.scroll { overflow-x: auto; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
svg .value { font-variant-numeric: tabular-nums; }
svg rect { fill: var(--bar); }
svg line { stroke: var(--mark); stroke-width: 2.5; }
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
            escape(&stop.meaning)
        );
        if let Some(chart) = &stop.chart {
            html.push_str(&svg(chart));
        }
        let _ = writeln!(
            html,
            "<pre><b>$ {}</b>\n{}</pre>",
            escape(&stop.command),
            escape(stop.output.trim_end())
        );
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

const WIDTH: f64 = 900.0;
const LABELS: f64 = 330.0;
const VALUES: f64 = 110.0;
const ROW: f64 = 28.0;

/// Horizontal bars: label, bar with its mark, value.
fn svg(chart: &Chart) -> String {
    let height = ROW * chart.bars.len() as f64 + 8.0;
    let mut html = format!(
        "<p class=\"faint\">{}</p>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\">\n",
        escape(&caption(chart))
    );
    let scale = Scale::of(chart);
    for (index, bar) in chart.bars.iter().enumerate() {
        let top = index as f64 * ROW + 4.0;
        let text = top + 17.0;
        let _ = writeln!(html, "<text x=\"0\" y=\"{text}\">{}</text>", escape(&bar.label));
        let width = scale.width(bar.value).max(1.0);
        let _ =
            writeln!(html, "<rect x=\"{LABELS}\" y=\"{top}\" width=\"{width:.1}\" height=\"20\" rx=\"2\"/>");
        if let Some(mark) = bar.mark.filter(|mark| *mark > 0.0) {
            let x = LABELS + scale.width(mark);
            let bottom = top + 22.0;
            let _ =
                writeln!(html, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{bottom}\"/>", top - 2.0);
        }
        let x = LABELS + width + 8.0;
        let _ =
            writeln!(html, "<text class=\"value\" x=\"{x:.1}\" y=\"{text}\">{}</text>", escape(&bar.text));
    }
    html.push_str("</svg>\n");
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

    fn width(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        share * (WIDTH - LABELS - VALUES)
    }
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
    fn the_longest_bar_fills_the_width() {
        for is_logarithmic in [false, true] {
            let scale = Scale::of(&chart(is_logarithmic));
            assert!((scale.width(1_000.0) - (WIDTH - LABELS - VALUES)).abs() < 1e-6);
            assert!(scale.width(10.0) > 0.0 && scale.width(10.0) < scale.width(1_000.0));
        }
    }

    #[test]
    fn nothing_in_a_label_is_markup() {
        let html = svg(&chart(false));
        assert!(html.contains("a &lt; b") && !html.contains("a < b"), "{html}");
    }

    #[test]
    fn a_logarithmic_scale_is_said_to_be_one() {
        assert!(svg(&chart(true)).contains("bars; logarithmic scale"));
        assert!(!svg(&chart(false)).contains("logarithmic"));
    }

    #[test]
    fn the_page_fetches_nothing() {
        let stop = Stop {
            title: "t".into(),
            meaning: "m".into(),
            command: "c".into(),
            output: "o".into(),
            chart: Some(chart(true)),
        };
        let html = render(&[stop], &Table::new(&["what"]), "a machine");
        assert!(!html.contains("http") && !html.contains("src="), "{html}");
    }
}
