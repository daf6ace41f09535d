//! The table of programs that wait, and the aims that were reached.

use std::fmt::Write as _;

use crate::measure::Spread;
use crate::table::Table;

use super::super::case::Link;
use super::programs::Program;
use super::{Cell, Mode, Others};

/// The mode whose figures are compared with the aims: programs get it by default.
const HELD: &str = "balanced";

/// A row for each program and link; a column for each mode, alone and beside hogs.
pub(super) fn of(programs: &[Program], modes: &[Mode], cells: &[Cell]) -> Table {
    let mut headings = vec!["program".to_string(), "over".into(), "what takes so long".into()];
    for company in ["", ", hogs"] {
        headings.extend(modes.iter().map(|mode| format!("`{}`{company}", mode.name)));
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings);
    for (number, program) in programs.iter().enumerate() {
        let over = match program.case.link {
            Link::Shm => "shared memory",
            Link::Udp => "UDP",
            Link::Auto => "TCP",
        };
        let mut row = vec![format!("`{}`", program.case.title), over.into(), program.per.into()];
        for others in [Others::Idle, Others::Hogs] {
            row.extend(modes.iter().map(|mode| show(find(cells, number, mode.name, others))));
        }
        table.row(row);
    }
    table
}

fn find(cells: &[Cell], program: usize, mode: &str, others: Others) -> Option<Spread> {
    let cell = cells
        .iter()
        .find(|cell| cell.program == program && cell.mode.name == mode && cell.others == others)?;
    Spread::of(cell.values.clone())
}

fn show(spread: Option<Spread>) -> String {
    let number = |value: f64| if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") };
    match spread {
        None => "–".into(),
        Some(Spread { median, low, high }) if low == high => number(median),
        Some(Spread { median, low, high }) => {
            format!("{} ({} to {})", number(median), number(low), number(high))
        }
    }
}

/// Each aim with the programs that reach it and those that do not.
pub(super) fn verdicts(programs: &[Program], cells: &[Cell]) -> String {
    let mut text = format!("Aims, for the medians under `{HELD}`:\n\n");
    for (link, over) in [(Link::Shm, "shared memory"), (Link::Udp, "UDP")] {
        for (others, company) in [(Others::Idle, "alone"), (Others::Hogs, "beside hogs")] {
            for (number, program) in programs.iter().enumerate().filter(|(_, one)| one.case.link == link) {
                let aim = program.aim.and_then(|aim| match others {
                    Others::Idle => Some(aim.idle),
                    Others::Hogs => aim.hog,
                });
                let Some((aim, spread)) = aim.zip(find(cells, number, HELD, others)) else { continue };
                let verdict = if spread.median <= aim { "reached" } else { "**missed**" };
                let _ = writeln!(
                    text,
                    "- `{}`, {over}, {company}: at most {aim} µs: {verdict}, {}",
                    program.case.title,
                    show(Some(spread))
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::case::Case;
    use super::super::super::judge;
    use super::super::MODES;
    use super::super::programs::{Aim, Figure};
    use super::*;

    fn sample() -> (Vec<Program>, Vec<Cell>) {
        let program = Program {
            case: Case::two("waiting", "ib_send_lat -e", Link::Shm, judge::perftest),
            figure: Figure::Elapsed(1),
            per: "half a round trip",
            aim: Some(Aim { idle: 4.0, hog: Some(10.0) }),
        };
        let cell = |mode: usize, others, values: &[f64]| Cell {
            program: 0,
            mode: MODES[mode],
            others,
            values: values.to_vec(),
        };
        let cells = vec![
            cell(0, Others::Idle, &[60.0, 50.0, 70.0]),
            cell(1, Others::Idle, &[2.4]),
            cell(0, Others::Hogs, &[120.4]),
            cell(1, Others::Hogs, &[]),
        ];
        (vec![program], cells)
    }

    #[test]
    fn a_row_has_every_mode_alone_and_beside_hogs_and_a_hole_where_nothing_was_measured() {
        let (programs, cells) = sample();
        let table = of(&programs, &MODES[..2], &cells);
        let expected = [
            "`ib_send_lat -e`",
            "shared memory",
            "half a round trip",
            "60.00 (50.00 to 70.00)",
            "2.40",
            "120",
            "–",
        ];
        assert_eq!(table.rows(), [expected.map(String::from)]);
    }

    #[test]
    fn an_aim_is_held_against_the_default_mode_and_only_where_it_was_measured() {
        let (programs, mut cells) = sample();
        let reached = "- `ib_send_lat -e`, shared memory, alone: at most 4 µs: reached, 2.40\n";
        let text = verdicts(&programs, &cells);
        assert!(text.ends_with(reached) && !text.contains("beside hogs"), "{text}");
        cells[1].values = vec![4.1];
        cells[3].values = vec![10.0];
        let text = verdicts(&programs, &cells);
        assert!(text.contains("alone: at most 4 µs: **missed**, 4.10\n"), "{text}");
        assert!(text.contains("beside hogs: at most 10 µs: reached, 10.00\n"), "{text}");
    }
}
