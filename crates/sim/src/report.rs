//! From outcomes to reports for people and programs: measures, comparisons, tables, CSV, Parquet, a page.

mod columns;
mod film;
mod history;
mod measures;
mod metric;
mod page;
mod parquet;
mod text;
mod verdict;

pub use columns::{Column, Values, flow_columns, flow_columns_of, run_columns, to_csv, to_json_lines};
pub use film::Film;
pub use history::Stretch;
pub use measures::{Curve, Measures};
pub use metric::Metric;
pub use page::{page, page_with};
pub use parquet::{ParquetProblem, to_parquet};
pub use text::{align, table, verdicts};
pub use verdict::{Cell, Here, Standing, Verdict, judge};

use crate::plan::{Plan, Run};

/// All runs as CSV: see [`run_columns`]. An empty field was not measured.
pub fn csv(plan: &Plan, runs: &[Run], measures: &[Measures]) -> String {
    to_csv(&run_columns(plan, runs, measures))
}

/// All runs as a Parquet file: see [`run_columns`].
///
/// # Errors
/// Only if Parquet has limits that a plan exceeds.
pub fn parquet(plan: &Plan, runs: &[Run], measures: &[Measures]) -> Result<Vec<u8>, ParquetProblem> {
    to_parquet(&run_columns(plan, runs, measures))
}
