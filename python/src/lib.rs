//! The simulator as a Python module.
//!
//! This is the part that Python cannot do: reading plans, playing runs, naming columns. What its users see is Python, in
//! `highwire/sim`. While runs are played, other Python threads go on; signals are looked for whenever there is progress.

mod plan;
mod scenario;
mod table;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use highwire_sim::plan::{Plan as Read, Scale, Shipped, shipped};

/// The text of a plan that comes with the package, and what errors call it.
#[pyfunction(name = "shipped")]
fn find(word: &str) -> PyResult<(&'static str, &'static str)> {
    let is_meant = |plan: &&Shipped| plan.path == word || plan.name() == word;
    if let Some(plan) = shipped().iter().find(is_meant) {
        return Ok((plan.path, plan.text));
    }
    let names: Vec<&str> = shipped().iter().map(Shipped::name).collect();
    Err(PyValueError::new_err(format!(
        "there is no file {word}, and no experiment of that name comes with the package; there are {}",
        names.join(", ")
    )))
}

/// Names and titles of the plans that come with the package.
#[pyfunction]
fn plans() -> PyResult<Vec<(&'static str, String)>> {
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    let titled = |plan: &Shipped| {
        let read = Read::read(plan.path, plan.text, Scale::Small, &nothing);
        let read = read.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((plan.name(), read.title))
    };
    shipped().iter().map(titled).collect()
}

/// The module `highwire.sim._sim`.
#[pymodule]
fn _sim(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<plan::Plan>()?;
    module.add_function(wrap_pyfunction!(find, module)?)?;
    module.add_function(wrap_pyfunction!(plans, module)?)?;
    module.add_function(wrap_pyfunction!(scenario::play_scenario, module)?)
}
