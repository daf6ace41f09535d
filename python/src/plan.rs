//! A plan that has been read, and what can be done with it.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use highwire_sim::campaign::{Campaign, CampaignError, Played, Shard, Status};
use highwire_sim::plan::{Plan as Read, PlanError, Scale};
use highwire_sim::report;

use crate::table::columns;

/// A plan without mistakes.
#[pyclass(frozen)]
pub(crate) struct Plan {
    read: Read,
}

/// A plan's error in Python's words; a plan that was a dictionary has no lines.
fn raise(py: Python<'_>, error: &PlanError, has_lines: bool) -> PyErr {
    let place = |number: usize| Some(number).filter(|number| has_lines && *number > 0);
    let message = if has_lines {
        error.to_string()
    } else if error.key.is_empty() {
        error.problem.clone()
    } else {
        format!("`{}`: {}", error.key, error.problem)
    };
    let words = (message, &error.file, place(error.line), place(error.column), &error.key, &error.problem);
    made(py, words)
}

/// An exception of the package's own; it is written in Python, with its fields.
fn made<'py>(py: Python<'py>, words: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let class = py.import("highwire.sim._errors").and_then(|module| module.getattr("PlanError"));
    class.and_then(|class| class.call1(words)).map_or_else(|error| error, PyErr::from_value)
}

#[pymethods]
impl Plan {
    /// Reads a plan; also returns what is odd about it.
    #[staticmethod]
    fn read(
        py: Python<'_>,
        file: &str,
        text: &str,
        full: bool,
        seeds: Option<u32>,
        load: &Bound<'_, PyAny>,
        is_dictionary: bool,
    ) -> PyResult<(Plan, Vec<String>)> {
        let scale = if full { Scale::Full } else { Scale::Small };
        let load = |name: &str| {
            let read = load.call1((name,)).and_then(|text| text.extract::<String>());
            read.map_err(|error| format!("cannot read {name}: {}", error.value(py)))
        };
        let has_lines = !is_dictionary;
        let mut read = Read::read(file, text, scale, &load).map_err(|error| raise(py, &error, has_lines))?;
        if seeds == Some(0) {
            return Err(PyValueError::new_err("each combination is played at least once: seeds=0"));
        }
        read.seeds = seeds.unwrap_or(read.seeds);
        let mut oddities = Vec::new();
        for finding in read.review() {
            let error = raise(py, &finding.about, has_lines);
            if finding.is_error {
                return Err(error);
            }
            oddities.push(error.value(py).to_string());
        }
        Ok((Plan { read }, oddities))
    }

    /// How many runs it has.
    #[getter]
    fn run_count(&self) -> usize {
        self.read.runs().len()
    }

    /// The plan in words.
    fn explain(&self) -> String {
        self.read.explain()
    }

    /// Builds every run.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let plans = std::slice::from_ref(&self.read);
        let mut campaign = Campaign::new(plans, Shard::WHOLE);
        py.detach(|| campaign.check()).map_err(|error| impossible(py, &error))
    }

    /// One run as a scenario in JSON.
    fn scenario(
        &self,
        py: Python<'_>,
        scheme: Option<&str>,
        point: Option<&str>,
        seed: Option<u64>,
    ) -> PyResult<String> {
        let run = self.read.find_run(scheme, point, seed).map_err(PyValueError::new_err)?;
        let built = py.detach(|| run.scenario(&self.read));
        let built = built.map_err(|error| PyValueError::new_err(error.to_string()))?;
        serde_json::to_string(&built).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Plays the runs of a shard: columns, the runs' places, and failures.
    fn play<'py>(
        &self,
        py: Python<'py>,
        threads: usize,
        shard: Option<&str>,
        observe: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyList>, Vec<usize>, Vec<String>)> {
        let shard = shard.map_or(Ok(Shard::WHOLE), str::parse).map_err(PyValueError::new_err)?;
        let plans = std::slice::from_ref(&self.read);
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let mut campaign = Campaign::new(plans, shard);
        let (mut played, mut interrupted) = (None::<Played>, None::<PyErr>);
        py.detach(|| {
            let goes_on = || {
                interrupted = Python::attach(|py| py.check_signals()).err();
                interrupted.is_none()
            };
            let checked = campaign.check_while(goes_on);
            checked.map_err(|error| Python::attach(|py| impossible(py, &error)))?;
            if interrupted.is_some() {
                return Ok(());
            }
            let campaign = campaign;
            let total = campaign.job_count();
            let watch = |status: Status| {
                let seen = Python::attach(|py| {
                    py.check_signals()?;
                    let Some(observe) = &observe else { return Ok(()) };
                    let share = status.done as f64 / status.total.max(1) as f64;
                    observe.call1(py, (share, status.runs, total)).map(drop)
                });
                interrupted = seen.err();
                interrupted.is_none()
            };
            campaign.play_while(threads, watch, |_, result| played = Some(result));
            Ok::<(), PyErr>(())
        })?;
        if let Some(error) = interrupted {
            return Err(error);
        }
        let played = played.ok_or_else(|| PyRuntimeError::new_err("the plan was not played to its end"))?;
        let table = report::run_columns(&self.read, &played.runs, &played.measures);
        let places = played.runs.iter().map(|run| run.index).collect();
        let failures = played.failures.iter().map(|(_, error)| error.to_string()).collect();
        Ok((columns(py, table)?, places, failures))
    }
}

/// A run that cannot be built is a mistake in the plan.
fn impossible(py: Python<'_>, error: &CampaignError) -> PyErr {
    let message = error.to_string();
    made(py, (message.clone(), &error.plan, None::<usize>, None::<usize>, "", message))
}
