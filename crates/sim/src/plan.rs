//! Experiments as files.
//!
//! A plan is a TOML file: a figure's claim, the paper's band, a base scenario, schemes and axes that change
//! it, seeds, and the choices that the paper leaves open. [`Plan::read`] checks every word of it and says
//! where it is wrong; [`Plan::runs`] lists the runs; [`Run::scenario`] makes a [`crate::Scenario`] of each.
//! `docs/experiments.md` is the reference.

mod error;
mod expect;
mod explain;
mod lower;
mod params;
mod read;
mod review;
mod schema;
mod shipped;
mod table;
mod value;

use std::collections::BTreeMap;
use std::ops::Range;

use highwire_fabric::Span;
use serde::{Deserialize, Serialize};

pub use error::PlanError;
pub use expect::{Expectation, Quantity};
pub use explain::reference;
pub use params::Params;
pub use read::{Loader, Scale};
pub use review::Finding;
pub(crate) use review::is_used;
pub use schema::{PARAMETERS, Parameter};
pub use shipped::{Shipped, shipped};
pub use value::{Unit, Value};

/// An experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file's name without its ending, which is also the results' name.
    pub name: String,
    /// The figure or section, as in `IRN Figure 1`.
    pub figure: String,
    /// The figure's subject, in a line.
    pub title: String,
    /// The paper's claim, in our own words.
    pub claim: String,
    /// How often each combination is played, with seeds from `first_seed` on.
    pub seeds: u32,
    /// The first seed.
    pub first_seed: u64,
    /// The parameters, unless a scheme or a point changes them.
    pub base: Params,
    /// The schemes to compare.
    pub schemes: Vec<Scheme>,
    /// The axes to vary; every combination of their points is played.
    pub axes: Vec<Axis>,
    /// The paper's findings.
    pub expectations: Vec<Expectation>,
    /// Links that fail, in every run.
    pub link_failures: Vec<LinkFailure>,
    /// Questions that the paper leaves open.
    pub choices: Vec<Choice>,
    /// Whether and how the network is filmed.
    pub film: Option<Filming>,
    /// The text that it was read from.
    pub(crate) source: Origin,
}

/// The text of a plan and its files, so that it can be read again elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The file, as errors call it.
    pub(crate) file: String,
    /// Its text.
    pub(crate) text: String,
    /// Files that it names, with their text.
    pub(crate) files: BTreeMap<String, String>,
    /// How much of it is played.
    pub(crate) scale: Scale,
}

/// One of the things compared.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheme {
    /// Its name in tables.
    pub name: String,
    /// The parameters that it sets.
    pub settings: Vec<Setting>,
}

/// One of the things varied.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// What it is called.
    pub name: String,
    /// The points on it.
    pub points: Vec<Point>,
}

/// A place on an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// What it is called.
    pub name: String,
    /// The parameters that it sets; a scheme's own settings come later and prevail.
    pub settings: Vec<Setting>,
}

/// A parameter, by its place in [`PARAMETERS`], and its value.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// Which.
    pub parameter: usize,
    /// Its new value.
    pub value: Value,
    /// Where the plan's text says so.
    pub place: Range<usize>,
}

/// A link that fails in every run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkFailure {
    /// One end, by its name.
    pub from: String,
    /// The other.
    pub to: String,
    /// When.
    pub at: Span,
    /// When it comes back; never without.
    pub until: Option<Span>,
    /// Where the plan's text says so.
    pub(crate) place: Range<usize>,
}

/// A question that the paper leaves open, and our answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The open question.
    pub question: String,
    /// Our answer.
    pub answer: String,
}

/// The network is filmed: queues and pauses over time, of the first seed at the first point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filming {
    /// Schemes by their place.
    pub schemes: Vec<usize>,
    /// Time between two pictures.
    pub every: Span,
    /// Until when; the whole run without.
    pub until: Option<Span>,
}

/// One run of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// Its place among the plan's runs.
    pub index: usize,
    /// The scheme's place.
    pub scheme: usize,
    /// The place of a point for each axis.
    pub points: Vec<usize>,
    /// The seed.
    pub seed: u64,
    /// Every parameter.
    pub params: Params,
    /// Time between two pictures, and until when, if it is filmed.
    pub film: Option<(Span, Option<Span>)>,
}

impl Plan {
    /// The runs, by point, scheme and seed: a list that depends on nothing but the plan.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for points in self.combinations() {
            for (scheme, chosen) in self.schemes.iter().enumerate() {
                let mut params = self.base.clone();
                let at = self.axes.iter().zip(&points).flat_map(|(axis, &p)| &axis.points[p].settings);
                for setting in at.chain(&chosen.settings) {
                    params.set(setting);
                }
                let is_first_point = points.iter().all(|&point| point == 0);
                for seed in self.first_seed..self.first_seed + u64::from(self.seeds) {
                    let film = self.film.as_ref().filter(|film| {
                        is_first_point && seed == self.first_seed && film.schemes.contains(&scheme)
                    });
                    runs.push(Run {
                        index: runs.len(),
                        scheme,
                        points: points.clone(),
                        seed,
                        params: params.clone(),
                        film: film.map(|film| (film.every, film.until)),
                    });
                }
            }
        }
        runs
    }

    /// The run of a scheme at a point with a seed, each by its name; the first of those that are not named.
    ///
    /// # Errors
    /// There is no such scheme or point; the message has those that there are.
    pub fn find_run(
        &self,
        scheme: Option<&str>,
        point: Option<&str>,
        seed: Option<u64>,
    ) -> Result<Run, String> {
        let schemes: Vec<&str> = self.schemes.iter().map(|scheme| scheme.name.as_str()).collect();
        let points: Vec<String> = self.combinations().iter().map(|points| self.point_name(points)).collect();
        if let Some(name) = scheme.filter(|name| !schemes.contains(name)) {
            return Err(format!(
                "{}: there is no scheme {name:?}; there are {}",
                self.name,
                schemes.join(", ")
            ));
        }
        if let Some(name) = point.filter(|name| points.iter().all(|point| point != name)) {
            return Err(match &points[..] {
                [only] if only.is_empty() => {
                    format!("{}: nothing is varied, so there is no point {name:?}", self.name)
                }
                _ => format!("{}: there is no point {name:?}; there are: {}", self.name, points.join("; ")),
            });
        }
        let is_wanted = |run: &Run| {
            scheme.is_none_or(|name| schemes[run.scheme] == name)
                && point.is_none_or(|name| self.point_name(&run.points) == name)
        };
        let found =
            self.runs().into_iter().find(is_wanted).ok_or_else(|| format!("{}: no runs", self.name))?;
        // A run depends on its seed alone, so any will do.
        Ok(Run { seed: seed.unwrap_or(found.seed), ..found })
    }

    /// Every combination of points, the last axis fastest; one empty combination without axes.
    pub fn combinations(&self) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for axis in &self.axes {
            let longer = |before: &Vec<usize>| {
                let before = before.clone();
                (0..axis.points.len()).map(move |point| [before.as_slice(), &[point]].concat())
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    /// The command line that plays it again.
    pub fn command(&self) -> String {
        let full = if self.source.scale == Scale::Full { " --full" } else { "" };
        format!("highwire sim run {}{full} --seeds {}", self.source.file, self.seeds)
    }

    /// The name of a combination of points: `40Gbps, 0.7`; empty without axes.
    pub fn point_name(&self, points: &[usize]) -> String {
        let names = self.axes.iter().zip(points).map(|(axis, &point)| axis.points[point].name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}
