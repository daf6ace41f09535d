//! The timeline as a page: one file, without scripts and without anything from elsewhere.

use std::fmt::Write as _;
use std::path::PathBuf;

use highwire_stdx::words::{counted, named, show_number, verb};

use super::{Process, Timeline};
use crate::recorded::events::Subject;
use crate::recorded::show_time;
use crate::report::escaped;

const STYLE: &str = include_str!("../demo/page.css");
const OWN: &str = include_str!("page.css");
/// So many queue pairs, and so many entries of each: the first, and the last.
const PAIRS_MAX: usize = 200;
const FIRST_MAX: usize = 400;
const LAST_MAX: usize = 600;
/// The picture's units.
const WIDTH: f64 = 704.0;
const LEFT: f64 = 120.0;
const LANE: f64 = 24.0;
/// Marks of one lane; more would lie on each other.
const COLUMNS: usize = 600;

const SUBJECTS: [(Subject, &str); 6] = [
    (Subject::States, "states"),
    (Subject::Requests, "requests"),
    (Subject::Completions, "completions"),
    (Subject::Packets, "packets"),
    (Subject::Faults, "faults"),
    (Subject::Lines, "lines"),
];

/// A page that grows process by process.
#[derive(Default)]
pub(super) struct Page {
    body: String,
    processes: usize,
    pairs: usize,
    entries: usize,
    bad: usize,
    left_out: usize,
}

impl Page {
    pub(super) fn add(&mut self, process: &Process) {
        self.processes += 1;
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(&process.heading));
        for note in &process.notes {
            let _ = writeln!(self.body, "<p>{}</p>", escaped(note));
        }
        for (&(_, qpn), pair) in &process.pairs {
            self.entries += pair.told.len();
            self.bad += pair.told.iter().filter(|(_, told)| told.is_bad).count();
            self.pairs += usize::from(qpn != 0);
            if self.pairs > PAIRS_MAX {
                self.left_out += 1;
                continue;
            }
            self.add_pair(pair);
        }
    }

    fn add_pair(&mut self, pair: &Timeline) {
        let _ =
            writeln!(self.body, "<h3>{}</h3>\n<figure>{}</figure>", escaped(&pair.heading), picture(pair));
        self.body +=
            "<div class=\"wide\"><table><tr><th>time</th><th class=\"kind\">what</th><th></th></tr>\n";
        let all = &pair.told;
        let is_cut = all.len() > FIRST_MAX + LAST_MAX;
        let (first, last) = if is_cut { (FIRST_MAX, all.len() - LAST_MAX) } else { (all.len(), all.len()) };
        for (index, (time_ns, told)) in all.iter().enumerate() {
            if is_cut && index == first {
                let between = counted((last - first) as u64, "entry");
                let _ = writeln!(
                    self.body,
                    "<tr><td></td><td class=\"kind\"></td><td class=\"words\">… {between} between, which <code>highwire replay</code> prints …</td></tr>"
                );
            }
            if (first..last).contains(&index) {
                continue;
            }
            let class = if told.is_bad { " class=\"bad\"" } else { "" };
            let kind =
                SUBJECTS.iter().find(|(subject, _)| *subject == told.subject).map_or("", |(_, name)| name);
            let _ = writeln!(
                self.body,
                "<tr{class}><td class=\"time\">{}</td><td class=\"kind\">{kind}</td><td class=\"words\">{}</td></tr>",
                show_time(*time_ns),
                escaped(&told.words)
            );
        }
        self.body += "</table></div>\n";
    }

    pub(super) fn finish(self, files: &[PathBuf], left_out: u64) -> String {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let title = escaped(&names.join(", "));
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>highwire replay</title>\n<style>\n{STYLE}{OWN}</style>\n<main>\n<h1>{title}</h1>\n\
             <p>What the devices did, by queue pair. Times count from the beginning of the first process.</p>\n<div class=\"cards\">\n"
        );
        for (value, what) in [
            (self.processes, named(self.processes as u64, "process")),
            (self.pairs, named(self.pairs as u64, "queue pair")),
            (self.entries, named(self.entries as u64, "entry")),
            (
                self.bad,
                verb(self.bad as u64, "of them tells of trouble", "of them tell of trouble").to_string(),
            ),
        ] {
            let value = show_number(value as u64);
            let _ = writeln!(page, "<div class=\"card\"><b>{value}</b><span>{what}</span></div>");
        }
        page += "</div>\n";
        page += &self.body;
        if self.left_out > 0 {
            let _ = writeln!(page, "<p>And {}.</p>", counted(self.left_out as u64, "more queue pair"));
        }
        if left_out > 0 {
            let _ = writeln!(
                page,
                "<p>And {}, for which there was no room.</p>",
                counted(left_out, "more process")
            );
        }
        page + "</main>\n</html>\n"
    }
}

/// A lane for each subject, and a mark for each moment in which something happened; red where it tells of trouble.
fn picture(pair: &Timeline) -> String {
    let has = |wanted: Subject| pair.told.iter().any(|(_, told)| told.subject == wanted);
    let lanes: Vec<_> = SUBJECTS.iter().filter(|(subject, _)| has(*subject)).collect();
    let begin = pair.told.first().map_or(0, |(time, _)| *time);
    let end = pair.told.last().map_or(0, |(time, _)| *time).max(begin.saturating_add(1));
    let height = LANE * lanes.len() as f64 + 30.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"When things happened at {}\">",
        escaped(&pair.heading)
    );
    let share = |time: u64| time.saturating_sub(begin) as f64 / (end - begin).max(1) as f64;
    let column = |time: u64| ((share(time) * (COLUMNS - 1) as f64) as usize).min(COLUMNS - 1);
    let x = |column: usize| LEFT + 4.0 + (WIDTH - LEFT - 12.0) * column as f64 / (COLUMNS - 1) as f64;
    for (row, (subject, name)) in lanes.iter().enumerate() {
        let middle = LANE * row as f64 + LANE / 2.0;
        let _ = write!(
            svg,
            "<text class=\"axis\" x=\"{0}\" y=\"{1:.1}\" text-anchor=\"end\">{name}</text><line class=\"lane\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>",
            LEFT - 8.0,
            middle + 4.0
        );
        let mut marks = [None; COLUMNS];
        for (time, told) in pair.told.iter().filter(|(_, told)| told.subject == *subject) {
            let mark = &mut marks[column(*time)];
            *mark = Some(mark.unwrap_or(false) || told.is_bad);
        }
        for (at, is_bad) in marks.iter().enumerate().filter_map(|(at, mark)| Some((at, (*mark)?))) {
            let class = if is_bad { "badmark" } else { "mark" };
            let (top, bottom) = (middle - 8.0, middle + 8.0);
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>",
                x(at)
            );
        }
    }
    let base = height - 8.0;
    let _ = write!(
        svg,
        "<text class=\"axis\" x=\"{LEFT}\" y=\"{base:.1}\">{}</text><text class=\"axis\" x=\"{WIDTH}\" y=\"{base:.1}\" text-anchor=\"end\">{}</text></svg>",
        show_time(begin),
        show_time(end)
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::events::Told;

    fn told(words: &str) -> Told {
        Told { subject: Subject::Lines, qpn: 7, words: words.into(), is_bad: true, peer: None }
    }

    #[test]
    fn words_do_not_become_markup_and_a_long_timeline_is_cut_in_its_middle() {
        let mut pair = Timeline { heading: "<b>queue pair".into(), told: Vec::new() };
        pair.told.push((0, told("the <script>first</script>")));
        (1..5_000).for_each(|time| pair.told.push((time, told("between"))));
        pair.told.push((u64::MAX, told("the last")));
        let process =
            Process { heading: "a&b".into(), notes: vec!["<i>".into()], pairs: [((0, 7), pair)].into() };
        let mut page = Page::default();
        page.add(&process);
        let page = page.finish(&["<f>".into()], 3);
        for markup in ["<script", "<b>queue", "<f>", "<i>"] {
            assert!(!page.contains(markup), "{markup}");
        }
        assert!(
            page.contains("a&amp;b") && page.contains("the &lt;script&gt;first") && page.contains("the last")
        );
        assert!(page.contains("… 4,001 entries"), "{}", page.len());
        assert!(page.matches("<tr").count() < FIRST_MAX + LAST_MAX + 4, "it is bounded");
    }
}
