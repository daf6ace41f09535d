//! From outcomes to reports for people and programs: measures, comparisons, tables, CSV, Parquet, a page.

mod csv;
mod film;
mod history;
mod measures;
mod metric;
mod page;
mod parquet;
mod text;
mod verdict;

pub use csv::csv;
pub use film::Film;
pub use history::Stretch;
pub use measures::{Curve, Measures};
pub use metric::Metric;
pub use page::{page, page_with};
pub use parquet::{ParquetProblem, parquet};
pub use text::{align, table, verdicts};
pub use verdict::{Cell, Here, Standing, Verdict, judge};
