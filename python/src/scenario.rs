//! A scenario in JSON, played.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use highwire_sim::{RunError, Scenario, Tick, report, run};

use crate::table::columns;

/// Plays a scenario and gives a row per flow.
#[pyfunction]
pub(crate) fn play_scenario<'py>(
    py: Python<'py>,
    file: &str,
    text: &str,
    observe: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let scenario: Scenario =
        serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("{file}: {error}")))?;
    let mut interrupted = None::<PyErr>;
    let outcome = py.detach(|| {
        let mut watch = |tick: &Tick| {
            let seen = Python::attach(|py| {
                py.check_signals()?;
                let Some(observe) = &observe else { return Ok(()) };
                observe.call1(py, (tick.received as f64 / tick.flows.max(1) as f64,)).map(drop)
            });
            interrupted = seen.err();
            interrupted.is_none()
        };
        run(&scenario, &mut watch)
    });
    if let Some(error) = interrupted {
        return Err(error);
    }
    let outcome = outcome.map_err(|error| raise(py, file, &error))?;
    columns(py, report::flow_columns(&scenario, &outcome))
}

fn raise(py: Python<'_>, file: &str, error: &RunError) -> PyErr {
    let message = format!("{file}: {error}");
    if matches!(error, RunError::Scenario(_)) {
        return PyValueError::new_err(message);
    }
    let made = py
        .import("highwire.sim._errors")
        .and_then(|module| module.getattr("SimulationError"))
        .and_then(|class| class.call1((message.clone(), vec![message])));
    made.map_or_else(|error| error, PyErr::from_value)
}
