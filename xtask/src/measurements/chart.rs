//! Horizontal bars as an SVG file, which shows itself light or dark as its reader's page does.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 400.0;
const VALUES: f64 = 100.0;
const ROW: f64 = 18.0;
const TITLE: f64 = 26.0;
const LEGEND: f64 = 20.0;
/// From the end of one group of bars to the next.
const GAP: f64 = 6.0;
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600}.a{fill:#2f6fbd}.b{fill:#c9762b}\
@media(prefers-color-scheme:dark){text{fill:#d0d7de}.a{fill:#5b9be6}.b{fill:#e0a060}}";
const THIRD: &str = ".c{fill:#8b949e}";

/// Bars in groups: a label, and a bar for each series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) is_logarithmic: bool,
    /// Their names, if there are several, up to three.
    pub(super) series: Vec<&'static str>,
    pub(super) groups: Vec<Group>,
}

/// What is shown of a row of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) label: String,
    /// The quantity, and the text that the table has for it.
    pub(super) bars: Vec<(f64, String)>,
}

impl Chart {
    pub(super) fn to_svg(&self) -> String {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let head = if self.series.is_empty() { TITLE } else { TITLE + LEGEND };
        let height = head + ROW * bars as f64 + GAP * self.groups.len() as f64;
        let scale = if self.is_logarithmic { "; logarithmic: equal lengths are equal factors" } else { "" };
        let title = escape(&format!("{}{scale}", self.title));
        let third = if self.series.len() > 2 { THIRD } else { "" };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{STYLE}{third}</style>\n<text class=\"title\" x=\"0\" y=\"15\">{title}</text>\n"
        );
        for (index, name) in self.series.iter().enumerate() {
            let x = LABELS + 150.0 * index as f64;
            let _ = writeln!(
                svg,
                "<rect class=\"{}\" x=\"{x}\" y=\"25\" width=\"11\" height=\"11\"/><text x=\"{}\" y=\"35\">{}</text>",
                class(index),
                x + 16.0,
                escape(name)
            );
        }
        let mut top = head;
        for group in &self.groups {
            let _ = writeln!(svg, "<text x=\"0\" y=\"{}\">{}</text>", top + 13.0, escape(&group.label));
            for (index, (value, text)) in group.bars.iter().enumerate() {
                let length = self.length(*value);
                let _ = writeln!(
                    svg,
                    "<rect class=\"{}\" x=\"{LABELS}\" y=\"{top}\" width=\"{length:.1}\" height=\"{}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
                    class(index),
                    ROW - 3.0,
                    LABELS + length + 6.0,
                    top + 13.0,
                    escape(text)
                );
                top += ROW;
            }
            top += GAP;
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn length(&self, value: f64) -> f64 {
        let room = WIDTH - LABELS - VALUES;
        let values = || self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.0);
        let most = values().fold(f64::MIN_POSITIVE, f64::max);
        if !self.is_logarithmic {
            return (room * value / most).max(1.0);
        }
        // From half of the least, so that its bar can be seen.
        let least = values().filter(|value| *value > 0.0).fold(most, f64::min) / 2.0;
        if value <= 0.0 { 1.0 } else { room * (value / least).ln() / (most / least).ln() }
    }
}

fn class(series: usize) -> &'static str {
    ["a", "b", "c"][series % 3]
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(is_logarithmic: bool) -> Chart {
        let group =
            |label: &str, value: f64| Group { label: label.into(), bars: vec![(value, format!("{value}"))] };
        Chart {
            title: "how <long>".into(),
            is_logarithmic,
            series: Vec::new(),
            groups: vec![group("a", 1.0), group("b", 10.0), group("c", 100.0)],
        }
    }

    #[test]
    fn the_greatest_value_has_the_whole_room_and_lengths_are_as_values() {
        let room = WIDTH - LABELS - VALUES;
        assert_eq!(chart(false).length(100.0), room);
        assert!((chart(false).length(10.0) - room / 10.0).abs() < 1e-9);
    }

    #[test]
    fn equal_factors_are_equal_steps_of_a_logarithmic_chart() {
        let [a, b, c] = [1.0, 10.0, 100.0].map(|value| chart(true).length(value));
        assert!((c - b - (b - a)).abs() < 1e-9 && a > 0.0);
    }

    #[test]
    fn text_cannot_become_markup() {
        assert!(chart(false).to_svg().contains("how &lt;long&gt;"));
    }
}
