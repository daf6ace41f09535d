//! Tables, for a terminal and for Markdown.

use std::fmt::Write;

/// Rows of text under headings; the first column is aligned to the left, the others to the right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { headings: headings.iter().map(|heading| heading.to_string()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        assert_eq!(row.len(), self.headings.len(), "a row has a cell per heading: {row:?}");
        self.rows.push(row);
    }

    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    pub(crate) fn headings(&self) -> &[String] {
        &self.headings
    }

    pub(crate) fn to_text(&self) -> String {
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| self.all_rows().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in self.all_rows() {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let line = cells.collect::<Vec<_>>().join("   ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// As Markdown that a reader unfolds.
    pub(crate) fn to_folded_markdown(&self, summary: &str) -> String {
        format!("<details><summary>{summary}</summary>\n\n{}\n</details>\n", self.to_markdown())
    }

    pub(crate) fn to_markdown(&self) -> String {
        let mut text = String::new();
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text.push_str(&line(&self.headings));
        text.push_str("|---|");
        for _ in 1..self.headings.len() {
            text.push_str("---:|");
        }
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "{}", line(row));
        }
        text
    }

    fn all_rows(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.headings).chain(&self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&["loss", "IRN"]);
        table.row(["0 %".into(), "9.1 Gb/s".into()]);
        table.row(["0.1 %".into(), "9 Gb/s".into()]);
        table
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(sample().to_text(), "loss         IRN\n0 %     9.1 Gb/s\n0.1 %     9 Gb/s\n");
    }

    #[test]
    fn markdown_aligns_numbers_to_the_right() {
        let expected = "| loss | IRN |\n|---|---:|\n| 0 % | 9.1 Gb/s |\n| 0.1 % | 9 Gb/s |\n";
        assert_eq!(sample().to_markdown(), expected);
    }
}
