//! Columns for Python: name, kind as pandas spells it, values.

use pyo3::prelude::*;
use pyo3::types::PyList;

use highwire_sim::report::{Column, Values};

pub(crate) fn columns<'py>(py: Python<'py>, table: Vec<Column>) -> PyResult<Bound<'py, PyList>> {
    let made = PyList::empty(py);
    for Column { name, values } in table {
        match values {
            Values::Text(values) => made.append((name, "object", values))?,
            Values::Whole(values) if values.iter().all(Option::is_some) => {
                made.append((name, "uint64", values))?
            }
            Values::Whole(values) => made.append((name, "UInt64", values))?,
            Values::Double(values) => made.append((name, "float64", values))?,
        }
    }
    Ok(made)
}
