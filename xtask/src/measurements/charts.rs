//! The charts of the pages of measurements. Each is drawn from a table of a section, as the page has it.

use anyhow::{Context, Result};

use super::chart::{Chart, Group};
use super::{
    CORES, FAULTS, FIGURES, FIGURES_AT_FULL_SCALE, GOODPUT_OVER_LOSS, JAVA, NANOPU_SIMULATOR, PROGRAMS, RPC,
    RPC_BESIDE_OTHERS, SIMULATOR, SPEED, STORE, Section, WAKE,
};
use crate::shell::root;

const FOLDER: &str = "docs/measurements/charts";

/// Which rows and columns of which table.
struct Plan {
    /// Its name, without the ending.
    file: &'static str,
    title: &'static str,
    section: Section,
    /// The first heading of the table.
    table: &'static str,
    /// The label of a row, if the chart shows it.
    label: fn(&Row<'_>) -> Option<String>,
    bars: Bars,
    is_logarithmic: bool,
}

enum Bars {
    /// What each bar is, and the heading of its column.
    Columns(&'static [(&'static str, &'static str)]),
    /// How many rows with the same label have each of these words, of which one counts, in the column of this heading.
    Count { heading: &'static str, words: &'static [(&'static str, &'static str)] },
}

/// A row under its headings.
struct Row<'a> {
    headings: &'a [&'a str],
    cells: Vec<&'a str>,
}

impl Row<'_> {
    fn cell(&self, heading: &str) -> &str {
        let column = self.headings.iter().position(|it| *it == heading);
        column.and_then(|column| self.cells.get(column)).copied().unwrap_or_default()
    }

    /// The first cell and another as a label.
    fn first_and(&self, heading: &str) -> String {
        format!("{}, {}", self.cells[0], self.cell(heading))
    }
}

fn first(row: &Row<'_>) -> Option<String> {
    Some(row.cells[0].to_string())
}

/// Tables of single seeds say yes and no.
const VERDICTS: &[(&str, &str)] =
    &[("inside", "inside|yes"), ("outside", "outside|no"), ("undecided", "undecided")];

const PLANS: [Plan; 16] = [
    Plan {
        file: "speed",
        title: "A message of 32 bytes beside the floor",
        section: SPEED,
        table: "what",
        label: |row| {
            (row.cell("floor").ends_with('s') && !row.cell("floor").ends_with("/s"))
                .then(|| row.cells[0].into())
        },
        bars: Bars::Columns(&[("Highwire", "here"), ("the floor", "floor")]),
        is_logarithmic: true,
    },
    Plan {
        file: "programs",
        title: "Half a round trip of 8 bytes, programs of others",
        section: PROGRAMS,
        table: "8 bytes, half a round trip",
        label: |row| {
            let program = row.cells[0]
                .trim_start_matches("UCX_TLS=rc_verbs,ud_verbs ")
                .trim_start_matches("UCX_TLS=tcp ");
            let program = program.split(" -F").next()?.split(": datagrams").next()?;
            Some(format!("{program}, {}", row.cell("over").trim_start_matches("Highwire, ")))
        },
        bars: Bars::Columns(&[("median", "median")]),
        is_logarithmic: false,
    },
    Plan {
        file: "loss",
        title: "Goodput of 64 KiB WRITEs over UDP, by packets lost",
        section: GOODPUT_OVER_LOSS,
        table: "loss",
        label: |row| Some(format!("{} lost", row.cells[0])),
        bars: Bars::Columns(&[("IRN", "IRN"), ("go-back-N", "go-back-N")]),
        is_logarithmic: false,
    },
    Plan {
        file: "rpc",
        title: "Millions of RPCs per second",
        section: RPC,
        table: "RPCs per second",
        label: |row| Some(format!("{}, batches of {}", row.cell("link"), row.cell("batch"))),
        bars: Bars::Columns(&[("M/s", "M/s")]),
        is_logarithmic: false,
    },
    Plan {
        file: "rpc-beside-others",
        title: "32 bytes there and back, one at a time: median",
        section: RPC_BESIDE_OTHERS,
        table: "32 B and back",
        label: |row| {
            let system = row.cells[0].split(" (").next()?;
            Some(format!("{system}, {}", row.cell("carried by")))
        },
        bars: Bars::Columns(&[("p50", "p50")]),
        is_logarithmic: true,
    },
    Plan {
        file: "store-tatp",
        title: "TATP: transactions per CPU-second, by copies",
        section: STORE,
        table: "tatp",
        label: |row| Some(row.first_and("copies")),
        bars: Bars::Columns(&[("committed", "per CPU-second")]),
        is_logarithmic: false,
    },
    Plan {
        file: "store-smallbank",
        title: "SmallBank: transactions per CPU-second, by copies",
        section: STORE,
        table: "smallbank",
        label: |row| Some(row.first_and("copies")),
        bars: Bars::Columns(&[("committed", "per CPU-second")]),
        is_logarithmic: false,
    },
    Plan {
        file: "faults",
        title: "Milliseconds without a commit after a fault, copies in memory",
        section: FAULTS,
        table: "milliseconds from the fault until",
        label: first,
        bars: Bars::Columns(&[("pause", "pause")]),
        is_logarithmic: false,
    },
    Plan {
        file: "java",
        title: "4 bytes there and back between two JVMs that poll, µs: median",
        section: JAVA,
        table: "p50 / p99 / p99.9 in µs",
        label: |row| (row.cell("waits") == "polling").then(|| row.first_and("over")),
        bars: Bars::Columns(&[("p50", "4 B")]),
        is_logarithmic: true,
    },
    Plan {
        file: "wake",
        title: "Until a waiting thread has its event, two idle cores, µs: median",
        section: WAKE,
        table: "threads",
        label: waiting,
        bars: Bars::Columns(&[("p50", "p50 µs")]),
        is_logarithmic: false,
    },
    Plan {
        file: "wake-cpu",
        title: "CPU seconds for a million events, two idle cores",
        section: WAKE,
        table: "threads",
        label: waiting,
        bars: Bars::Columns(&[("CPU seconds", "CPU s per 10⁶")]),
        is_logarithmic: false,
    },
    Plan {
        file: "cores",
        title: "Simulated: 4096 threads that wait, µs until the event: median",
        section: CORES,
        table: "simulated cores",
        label: |row| {
            let seat = match row.cell("seat for") {
                "-" => String::new(),
                seat => format!(", one poller per {seat}"),
            };
            (row.cell("threads") == "4096" && row.cell("hogs") == "0")
                .then(|| format!("{} cores, {}{seat}", row.cells[0], row.cell("strategy")))
        },
        bars: Bars::Columns(&[("p50", "p50 µs")]),
        is_logarithmic: true,
    },
    Plan {
        file: "nanopu-simulator",
        title: "Millions of simulated core cycles per second",
        section: NANOPU_SIMULATOR,
        table: "program",
        label: first,
        bars: Bars::Columns(&[("as run", "M core cycles/s"), ("no cycle repeated", "all worked out, M/s")]),
        is_logarithmic: false,
    },
    Plan {
        file: "irn",
        title: "Figures inside and outside the paper's band, small scale",
        section: FIGURES,
        table: "figure · claim",
        label: figure,
        bars: Bars::Count { heading: "inside the band?", words: VERDICTS },
        is_logarithmic: false,
    },
    Plan {
        file: "irn-full",
        title: "Figures inside and outside the paper's band, the paper's scale",
        section: FIGURES_AT_FULL_SCALE,
        table: "figure · claim",
        label: figure,
        bars: Bars::Count { heading: "inside the band?", words: VERDICTS },
        is_logarithmic: false,
    },
    Plan {
        file: "simulator",
        title: "Millions of packet-hops per second of CPU time",
        section: SIMULATOR,
        table: "case",
        label: first,
        bars: Bars::Columns(&[("Mhops", "Mhops per CPU second")]),
        is_logarithmic: false,
    },
];

/// The figure that a claim is from; none for a plan that has not been run.
fn figure(row: &Row<'_>) -> Option<String> {
    row.cells[0].split_once(" · ").map(|(figure, _)| figure.to_string())
}

/// Events for a thread drawn at random; the core is idle and there are two.
fn waiting(row: &Row<'_>) -> Option<String> {
    let is_shown = row.cell("event") == "other" && row.cell("core") == "idle" && row.cell("cores") == "2";
    is_shown.then(|| format!("{} threads, {}", row.cells[0], row.cell("strategy")))
}

/// Draws the charts of these sections, and gives their files.
pub(super) fn draw(is_wanted: impl Fn(Section) -> bool) -> Result<Vec<String>> {
    let folder = root().join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut files = Vec::new();
    for plan in PLANS.iter().filter(|plan| is_wanted(plan.section)) {
        let name = format!("{}.svg", plan.file);
        std::fs::write(folder.join(&name), plan.drawn()?).with_context(|| name.clone())?;
        files.push(format!("{FOLDER}/{name}"));
    }
    Ok(files)
}

impl Plan {
    fn drawn(&self) -> Result<String> {
        let page = self.section.read()?;
        let (begin, end) = (
            format!("<!-- begin: {} -->", self.section.name),
            format!("<!-- end: {} -->", self.section.name),
        );
        let text = page.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
        let text = text.with_context(|| format!("there is no section {}", self.section.name))?.0;
        let chart = self.chart(text);
        let chart = chart.with_context(|| format!("no rows for the chart {}", self.file))?;
        Ok(chart.to_svg())
    }

    /// The chart of the first such table in `text`.
    fn chart(&self, text: &str) -> Option<Chart> {
        let mut lines = text.lines().skip_while(|line| cells(line).first() != Some(&self.table));
        let headings = cells(lines.next()?);
        let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
        let mut groups: Vec<Group> = Vec::new();
        for cells in rows.map(cells) {
            let row = Row { headings: &headings, cells };
            let Some(label) = (self.label)(&row) else { continue };
            self.bars.add(&mut groups, label.replace("**", "").replace('`', ""), &row);
        }
        let names = match self.bars {
            Bars::Columns(columns) => columns,
            Bars::Count { words, .. } => words,
        };
        let series: Vec<&'static str> = names.iter().map(|(name, _)| *name).collect();
        let is_empty = groups.iter().all(|group| group.bars.is_empty());
        let series = if series.len() > 1 { series } else { Vec::new() };
        (!is_empty).then(|| Chart {
            title: self.title.into(),
            is_logarithmic: self.is_logarithmic,
            series,
            groups,
        })
    }
}

impl Bars {
    /// Adds what a row has to show.
    fn add(&self, groups: &mut Vec<Group>, label: String, row: &Row<'_>) {
        match self {
            Self::Columns(columns) => {
                let bars = columns.iter().filter_map(|(_, heading)| quantity(row.cell(heading)));
                groups.push(Group { label, bars: bars.collect() });
            }
            Self::Count { heading, words } => {
                if groups.iter().all(|group| group.label != label) {
                    let none = words.iter().map(|_| (0.0, "0".to_string()));
                    groups.push(Group { label: label.clone(), bars: none.collect() });
                }
                let group = groups.iter_mut().find(|group| group.label == label).expect("it was added");
                let place =
                    words.iter().position(|(_, any)| any.split('|').any(|word| word == row.cell(heading)));
                if let Some(bar) = place.map(|place| &mut group.bars[place]) {
                    bar.0 += 1.0;
                    bar.1 = format!("{}", bar.0);
                }
            }
        }
    }
}

fn cells(line: &str) -> Vec<&str> {
    let inside = line.strip_prefix('|').and_then(|line| line.trim_end().strip_suffix('|'));
    inside
        .map(|inside| inside.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .unwrap_or_default()
}

/// The first quantity of a cell in its base unit, and its text; a spread or percentiles behind it are left out.
fn quantity(cell: &str) -> Option<(f64, String)> {
    let text = [" (", " / ", ", "]
        .into_iter()
        .filter_map(|cut| cell.split(cut).next())
        .min_by_key(|text| text.len())?;
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "ns" => 1e-9,
        "µs" | "us" => 1e-6,
        "ms" => 1e-3,
        "k" | "k/s" => 1e3,
        "M/s" | "Mb/s" => 1e6,
        "Gb/s" => 1e9,
        _ => 1.0,
    };
    Some((number.parse::<f64>().ok()? * factor, text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chart_shows_what_its_table_says() {
        for plan in &PLANS {
            let file = root().join(FOLDER).join(format!("{}.svg", plan.file));
            let there = std::fs::read_to_string(&file).unwrap_or_default();
            let drawn = plan.drawn().expect("the page has the table");
            assert!(there == drawn, "{} is not its table's; `cargo xtask charts` draws it", file.display());
        }
    }

    #[test]
    fn every_chart_stands_in_its_page() {
        for plan in &PLANS {
            let page = plan.section.read().expect("the page is in the repository");
            assert!(page.contains(&format!("](charts/{}.svg)", plan.file)), "no page shows {}", plan.file);
        }
    }

    #[test]
    fn rows_of_one_figure_are_counted_by_their_verdict() {
        let plan = PLANS.iter().find(|plan| plan.file == "irn").expect("there is one");
        let rows = "| 1 · a | inside |\n| 1 · b | outside |\n| 1 · c | inside |\n| fig03 | – |\n\
            | 2 · a | undecided |\n| 2 · b | no |\n";
        let text = format!("| figure · claim | inside the band? |\n|---|---:|\n{rows}\n");
        let chart = plan.chart(&text).expect("there are rows");
        let counts: Vec<_> = chart
            .groups
            .iter()
            .map(|group| (group.label.as_str(), group.bars.iter().map(|bar| bar.0).collect::<Vec<_>>()))
            .collect();
        assert_eq!(counts, [("1", vec![2.0, 1.0, 0.0]), ("2", vec![0.0, 1.0, 1.0])]);
    }

    #[test]
    fn quantities_are_read_in_their_base_unit() {
        assert_eq!(quantity("213 ns"), Some((213.0 * 1e-9, "213 ns".into())));
        assert_eq!(quantity("10.41 µs (8.57 µs to 11.46 µs)").map(|it| it.1).as_deref(), Some("10.41 µs"));
        assert_eq!(quantity("0.42 / 0.54 / 1.03"), Some((0.42, "0.42".into())));
        assert_eq!(quantity("796 Mb/s"), Some((796.0 * 1e6, "796 Mb/s".into())));
        assert_eq!(quantity("–"), None);
    }
}
