//! The picture of README.md: goodput over loss with both ways of recovery, drawn from the golden table of `rnic`'s
//! tests.

use std::fmt::Write as _;

const TABLE: &str = "crates/rnic/tests/golden/goodput.txt";
const PICTURE: &str = "docs/images/goodput.svg";
const WIDTH: f64 = 720.0;
const BASE: f64 = 240.0;
const TOP: f64 = 84.0;
const LEFT: f64 = 56.0;
const BAR: f64 = 52.0;
const IRN: &str = "#1f6feb";
const GO_BACK_N: &str = "#9aa4b2";

/// One bar: how much is lost, and what arrives in spite of it.
#[derive(Debug, PartialEq)]
struct Row {
    recovery: String,
    loss: String,
    gbps: f64,
}

/// The rows of WRITEs in a network that marks nothing.
fn rows(table: &str) -> Vec<Row> {
    let plain = table.split("\n\nWith").next().unwrap_or_default();
    let words = plain.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter_map(|words| match words[..] {
            [recovery, "WRITE", loss, "%", _, "%", gbps, ..] => {
                Some(Row { recovery: recovery.into(), loss: loss.into(), gbps: gbps.parse().ok()? })
            }
            _ => None,
        })
        .collect()
}

fn svg(table: &str) -> String {
    let rows = rows(table);
    let most = rows.iter().map(|row| row.gbps).fold(1.0, f64::max);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 290\" font-family=\"system-ui, sans-serif\" font-size=\"14\" role=\"img\" \
         aria-label=\"Goodput of RDMA WRITE over loss, IRN beside go-back-N\">\n\
         <rect width=\"{WIDTH}\" height=\"290\" rx=\"8\" fill=\"#ffffff\"/>\n\
         <text x=\"24\" y=\"32\" font-size=\"17\" font-weight=\"600\" fill=\"#1f2328\">RDMA WRITE over a network that loses packets</text>\n\
         <text x=\"24\" y=\"54\" fill=\"#59636e\">Gb/s on a simulated 40 Gb/s link, 10 µs each way</text>\n"
    );
    for (x, colour, name) in [(500.0, IRN, "IRN"), (570.0, GO_BACK_N, "go-back-N")] {
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"21\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"32\" fill=\"#1f2328\">{name}</text>", x + 18.0);
    }
    let mut losses: Vec<&str> = Vec::new();
    for row in &rows {
        if !losses.contains(&row.loss.as_str()) {
            losses.push(&row.loss);
        }
    }
    let step = (WIDTH - 2.0 * LEFT) / losses.len().max(1) as f64;
    for (index, loss) in losses.iter().enumerate() {
        let middle = LEFT + step * (index as f64 + 0.5);
        for row in rows.iter().filter(|row| row.loss == *loss) {
            let (x, colour) =
                if row.recovery == "IRN" { (middle - BAR - 2.0, IRN) } else { (middle + 2.0, GO_BACK_N) };
            let height = (BASE - TOP) * row.gbps / most;
            let top = BASE - height;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{BAR}\" height=\"{height:.1}\" rx=\"2\" fill=\"{colour}\"/>"
            );
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#1f2328\">{:.1}</text>",
                x + BAR / 2.0,
                top - 6.0,
                row.gbps
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#59636e\">{loss} % lost</text>",
            BASE + 24.0
        );
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{LEFT}\" y1=\"{BASE}\" x2=\"{}\" y2=\"{BASE}\" stroke=\"#d1d9e0\"/>\n</svg>",
        WIDTH - LEFT
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    #[test]
    fn only_rows_of_writes_without_marks_are_drawn() {
        let table = "recovery what loss marks Gb/s packets\nIRN WRITE 1.0 % 0.0 % 23.98 9 9 9\nIRN READ 1.0 % 0.0 % 1.00 9 9 9\n\nWith DCQCN\n\nIRN WRITE 5.0 % 5.0 % 2.00 9 9 9\n";
        assert_eq!(rows(table), [Row { recovery: "IRN".into(), loss: "1.0".into(), gbps: 23.98 }]);
    }

    /// `HIGHWIRE_BLESS=1 cargo test -p xtask picture` draws it anew.
    #[test]
    fn the_picture_shows_the_golden_table() {
        let table = std::fs::read_to_string(root().join(TABLE)).expect("the table is in the repository");
        let drawn = svg(&table);
        if std::env::var_os("HIGHWIRE_BLESS").is_some() {
            std::fs::write(root().join(PICTURE), &drawn).expect("the folder is in the repository");
        }
        let picture =
            std::fs::read_to_string(root().join(PICTURE)).expect("the picture is in the repository");
        assert!(
            picture == drawn,
            "{PICTURE} shows another table: HIGHWIRE_BLESS=1 cargo test -p xtask picture"
        );
    }
}
