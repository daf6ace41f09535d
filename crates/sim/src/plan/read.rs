//! From TOML to a [`Plan`]. Every word is checked; the first wrong one is the error.

use std::collections::BTreeMap;
use std::ops::Range;

use highwire_fabric::{Span, Topology, parse_span};
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::params::{self, Params};
use super::schema::{PARAMETERS, index_of};
use super::table::{Source, Table, raw, unknown};
use super::{
    Axis, Choice, Expectation, Filming, LinkFailure, Origin, Plan, PlanError, Point, Quantity, Scheme,
    Setting, Value,
};
use crate::report::Metric;
use crate::workload::{SizeDistribution, Trace};

const SECTIONS: [&str; 3] = ["network", "transport", "workload"];

/// Seeds of a plan that does not say how many: enough for an interval of confidence.
const SEEDS: u32 = 10;

/// How much of a plan is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// As it stands: minutes on two cores.
    #[default]
    Small,
    /// With the settings of its `[full]`.
    Full,
}

/// Gives the text of a file beside the plan.
pub type Loader<'a> = &'a dyn Fn(&str) -> Result<String, String>;

impl Plan {
    /// Reads a plan. `file` is what errors call it; its last part without ending is the plan's name.
    ///
    /// # Errors
    /// The first thing that is wrong: file, line, key and what would be right.
    pub fn read(file: &str, text: &str, scale: Scale, load: Loader<'_>) -> Result<Plan, PlanError> {
        let source = Source { file, text };
        let document = DeTable::parse(text)
            .map_err(|error| PlanError::new(file, text, error.span(), "", error.message()))?;
        let table = Table { source, inner: document.get_ref(), span: document.span() };
        let mut reader = Reader { load, files: BTreeMap::new(), scale };
        let mut plan = reader.plan(&table)?;
        plan.name = stem(file);
        plan.source.files = reader.files;
        Ok(plan)
    }

    /// The plan that another one was read as.
    pub(crate) fn again(origin: &Origin) -> Result<Plan, PlanError> {
        let load = |name: &str| origin.files.get(name).cloned().ok_or_else(|| format!("no file {name}"));
        Plan::read(&origin.file, &origin.text, origin.scale, &load)
    }
}

fn stem(file: &str) -> String {
    let last = file.rsplit(['/', '\\']).next().unwrap_or(file);
    last.strip_suffix(".toml").unwrap_or(last).into()
}

struct Reader<'l> {
    load: Loader<'l>,
    files: BTreeMap<String, String>,
    scale: Scale,
}

impl Reader<'_> {
    fn plan(&mut self, table: &Table<'_>) -> Result<Plan, PlanError> {
        let own = ["figure", "title", "claim", "seeds", "first_seed", "full", "scheme", "axis", "expect"];
        table.only(&[&own[..], &["open", "film", "link_failures"], &SECTIONS].concat())?;
        let mut base = Params::default();
        let mut seeds = table.whole("seeds")?.unwrap_or((SEEDS, 0..0));
        apply(&mut base, self.settings(table)?);
        if let Some(full) = table.table("full")? {
            full.only(&[&["seeds"][..], &SECTIONS].concat())?;
            let settings = self.settings(&full)?;
            let full_seeds = full.whole("seeds")?;
            if self.scale == Scale::Full {
                apply(&mut base, settings);
                seeds = full_seeds.unwrap_or(seeds);
            }
        }
        if seeds.0 == 0 {
            return Err(table.source.error(seeds.1, "seeds", "a plan has one seed at least"));
        }
        let mut plan = Plan {
            name: String::new(),
            figure: table.required("figure")?.0.into(),
            title: table.required("title")?.0.into(),
            claim: table.required("claim")?.0.into(),
            seeds: seeds.0,
            first_seed: table.whole("first_seed")?.map_or(1, |(seed, _)| u64::from(seed)),
            base,
            schemes: Vec::new(),
            axes: Vec::new(),
            expectations: Vec::new(),
            link_failures: Vec::new(),
            choices: Vec::new(),
            film: None,
            source: Origin {
                file: table.source.file.into(),
                text: table.source.text.into(),
                files: BTreeMap::new(),
                scale: self.scale,
            },
        };
        self.schemes(table, &mut plan)?;
        plan.axes = table.tables("axis")?.iter().map(|axis| self.axis(axis)).collect::<Result<_, _>>()?;
        for open in table.tables("open")? {
            open.only(&["question", "choice"])?;
            let (question, answer) = (open.required("question")?.0.into(), open.required("choice")?.0.into());
            plan.choices.push(Choice { question, answer });
        }
        for failure in table.tables("link_failures")? {
            plan.link_failures.push(link_failure(&failure)?);
        }
        for expect in table.tables("expect")? {
            plan.expectations.push(expectation(&expect, &plan)?);
        }
        plan.film = table.table("film")?.map(|film| filming(&film, &plan)).transpose()?;
        Ok(plan)
    }

    fn schemes(&mut self, table: &Table<'_>, plan: &mut Plan) -> Result<(), PlanError> {
        for scheme in table.tables("scheme")? {
            scheme.only(&[&["name"][..], &SECTIONS].concat())?;
            let (name, span) = scheme.required("name")?;
            if plan.schemes.iter().any(|other| other.name == name) {
                return Err(table.source.error(span, "name", format!("there are two schemes `{name}`")));
            }
            plan.schemes.push(Scheme { name: name.into(), settings: self.settings(&scheme)? });
        }
        if plan.schemes.is_empty() {
            let problem = "a plan compares schemes: add `[[scheme]]` with a `name` and what it sets";
            return Err(table.source.whole(problem));
        }
        Ok(())
    }

    /// The settings in the sections of a table.
    fn settings(&mut self, table: &Table<'_>) -> Result<Vec<Setting>, PlanError> {
        let mut settings = Vec::new();
        for section in SECTIONS {
            let Some(inner) = table.table(section)? else { continue };
            for (key, span, value) in inner.entries() {
                let name = format!("{section}.{key}");
                let Some(parameter) = index_of(&name) else {
                    let keys =
                        PARAMETERS.iter().filter_map(|p| p.name.strip_prefix(section)?.strip_prefix('.'));
                    return Err(table.source.error(span, &name, unknown(key, keys, "key")));
                };
                let place = value.span();
                let value = self.value(table.source, parameter, value.get_ref(), place.clone())?;
                settings.push(Setting { parameter, value, place });
            }
        }
        Ok(settings)
    }

    fn value(
        &mut self,
        source: Source<'_>,
        parameter: usize,
        value: &DeValue<'_>,
        span: Range<usize>,
    ) -> Result<Value, PlanError> {
        let row = &PARAMETERS[parameter];
        let wrong = |problem: String| source.error(span.clone(), row.name, problem);
        let found = raw(value).ok_or_else(|| wrong("expected a single value".into()))?;
        let value = params::check(row, &found).map_err(wrong)?;
        if let Value::Word(word) = &value {
            self.look_at_file(row.name, word).map_err(wrong)?;
        }
        Ok(value)
    }

    /// Reads what a parameter names, so that a wrong file is an error of the plan.
    fn look_at_file(&mut self, parameter: &str, name: &str) -> Result<(), String> {
        match parameter {
            "workload.sizes" if SizeDistribution::named(name).is_none() => {
                let text = self.load_file(name).map_err(|error| {
                    let near = unknown(name, SizeDistribution::names(), "distribution");
                    format!("{error}, and {near}")
                })?;
                SizeDistribution::parse(&text).map(drop).map_err(|error| format!("{name}: {error}"))
            }
            "workload.trace" if name != "none" => {
                let text = self.load_file(name)?;
                Trace::parse(name, &text).map(drop).map_err(|error| error.to_string())
            }
            "network.graph" if name != "none" => {
                let text = self.load_file(name)?;
                Topology::parse(&text).map(drop).map_err(|error| format!("{name}: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn load_file(&mut self, name: &str) -> Result<String, String> {
        let text = (self.load)(name)?;
        self.files.insert(name.into(), text.clone());
        Ok(text)
    }

    fn axis(&mut self, axis: &Table<'_>) -> Result<Axis, PlanError> {
        axis.only(&["name", "key", "values", "full_values", "point"])?;
        let points = axis.tables("point")?;
        let points = if points.is_empty() { self.values(axis)? } else { self.points(axis, &points)? };
        let name = match (axis.text("name")?, axis.text("key")?) {
            (Some((name, _)), _) => name,
            (None, Some((key, _))) => key.rsplit('.').next().unwrap_or(key),
            (None, None) => axis.required("name")?.0,
        };
        if points.is_empty() {
            let problem = "an axis has one point at least";
            return Err(axis.source.error(axis.span.clone(), "axis", problem));
        }
        Ok(Axis { name: name.into(), points })
    }

    fn points(&mut self, axis: &Table<'_>, points: &[Table<'_>]) -> Result<Vec<Point>, PlanError> {
        if let Some((_, span)) = axis.text("key")? {
            let problem = "an axis has either `key` and `values`, or `[[axis.point]]`";
            return Err(axis.source.error(span, "key", problem));
        }
        let mut all = Vec::new();
        for point in points {
            point.only(&[&["name"][..], &SECTIONS].concat())?;
            let name = point.required("name")?.0.into();
            all.push(Point { name, settings: self.settings(point)? });
        }
        Ok(all)
    }

    fn values(&mut self, axis: &Table<'_>) -> Result<Vec<Point>, PlanError> {
        let (key, span) = axis.required("key")?;
        let Some(parameter) = index_of(key) else {
            let names = PARAMETERS.iter().map(|parameter| parameter.name);
            return Err(axis.source.error(span, key, unknown(key, names, "parameter")));
        };
        let full = axis.array("full_values")?;
        let Some(small) = axis.array("values")? else {
            return Err(axis.source.error(
                axis.span.clone(),
                "values",
                "is missing: add `values = […]` here",
            ));
        };
        let (chosen, _) = if self.scale == Scale::Full { full.unwrap_or(small) } else { small };
        let mut points = Vec::new();
        for value in chosen {
            let place = value.span();
            let value = self.value(axis.source, parameter, value.get_ref(), place.clone())?;
            points
                .push(Point { name: value.to_string(), settings: vec![Setting { parameter, value, place }] });
        }
        Ok(points)
    }
}

fn apply(params: &mut Params, settings: Vec<Setting>) {
    settings.iter().for_each(|setting| params.set(setting));
}

fn scheme_named(
    source: Source<'_>,
    plan: &Plan,
    key: &str,
    name: &str,
    span: Range<usize>,
) -> Result<usize, PlanError> {
    let names = plan.schemes.iter().map(|scheme| scheme.name.as_str());
    let found = plan.schemes.iter().position(|scheme| scheme.name == name);
    found.ok_or_else(|| source.error(span, key, format!("`{name}`: {}", unknown(name, names, "scheme"))))
}

fn expectation(table: &Table<'_>, plan: &Plan) -> Result<Expectation, PlanError> {
    let own = ["claim", "paper", "metric", "scheme", "over", "as", "band", "at_least", "at_most", "at"];
    table.only(&own)?;
    let source = table.source;
    let mut metrics = Vec::new();
    for (name, span) in table.texts("metric")? {
        let names = Metric::ALL.iter().map(|metric| metric.name());
        let found = Metric::ALL.iter().copied().find(|metric| metric.name() == name);
        metrics.push(found.ok_or_else(|| source.error(span, "metric", unknown(name, names, "metric")))?);
    }
    if metrics.is_empty() {
        return Err(source.error(
            table.span.clone(),
            "metric",
            "is missing: add `metric = [\"fct_mean\"]` here",
        ));
    }
    let (scheme, span) = table.required("scheme")?;
    let scheme = scheme_named(source, plan, "scheme", scheme, span)?;
    let over = table.text("over")?;
    let over = over.map(|(name, span)| scheme_named(source, plan, "over", name, span)).transpose()?;
    let mut at = Vec::new();
    for (name, span) in table.texts("at")? {
        let points = plan.axes.first().map_or(&[][..], |axis| &axis.points);
        let names = points.iter().map(|point| point.name.as_str());
        let found = points.iter().position(|point| point.name == name);
        at.push(
            found.ok_or_else(|| source.error(span, "at", unknown(name, names, "point of the first axis")))?,
        );
    }
    Ok(Expectation {
        claim: table.required("claim")?.0.into(),
        paper: table.required("paper")?.0.into(),
        metrics,
        scheme,
        over,
        quantity: quantity(table, over.is_some())?,
        band: band(table)?,
        at,
    })
}

fn quantity(table: &Table<'_>, is_relative: bool) -> Result<Quantity, PlanError> {
    let Some((word, span)) = table.text("as")? else {
        return Ok(if is_relative { Quantity::Ratio } else { Quantity::Value });
    };
    let found = Quantity::NAMES.iter().find(|(name, _)| *name == word).map(|(_, quantity)| *quantity);
    match found {
        Some(Quantity::Value) if is_relative => {
            Err(table.source.error(span, "as", "a `value` is not relative: leave out `over`"))
        }
        Some(quantity) if quantity != Quantity::Value && !is_relative => {
            Err(table.source.error(span, "as", format!("a {word} is relative: add `over = \"SCHEME\"`")))
        }
        Some(quantity) => Ok(quantity),
        None => {
            let names = Quantity::NAMES.iter().map(|(name, _)| *name);
            Err(table.source.error(span, "as", unknown(word, names, "quantity")))
        }
    }
}

fn band(table: &Table<'_>) -> Result<(f64, f64), PlanError> {
    match (table.pair("band")?, table.number("at_least")?, table.number("at_most")?) {
        (Some((band, _)), None, None) => Ok(band),
        (None, None, None) => {
            let problem = "is missing: add `band = [LOW, HIGH]`, `at_least` or `at_most` here";
            Err(table.source.error(table.span.clone(), "band", problem))
        }
        (None, low, high) => {
            Ok((low.map_or(f64::NEG_INFINITY, |(n, _)| n), high.map_or(f64::INFINITY, |(n, _)| n)))
        }
        (Some((_, span)), ..) => {
            Err(table.source.error(span, "band", "says it all: leave out `at_least` and `at_most`"))
        }
    }
}

fn link_failure(table: &Table<'_>) -> Result<LinkFailure, PlanError> {
    table.only(&["from", "to", "at", "until"])?;
    let span = |key: &str| -> Result<Option<(Span, Range<usize>)>, PlanError> {
        let Some((text, at)) = table.text(key)? else { return Ok(None) };
        let wrong = || table.source.error(at.clone(), key, "expected a time, like \"50us\"");
        Ok(Some((parse_span(text).ok_or_else(wrong)?, at)))
    };
    let Some((at, _)) = span("at")? else {
        let problem = "is missing: add `at = \"1ms\"` here";
        return Err(table.source.error(table.span.clone(), "at", problem));
    };
    let until = span("until")?;
    if let Some((_, place)) = until.clone().filter(|(until, _)| *until <= at) {
        return Err(table.source.error(place, "until", "it comes after `at`"));
    }
    let ((from, place), (to, _)) = (table.required("from")?, table.required("to")?);
    Ok(LinkFailure { from: from.into(), to: to.into(), at, until: until.map(|(until, _)| until), place })
}

fn filming(table: &Table<'_>, plan: &Plan) -> Result<Filming, PlanError> {
    table.only(&["schemes", "every", "until"])?;
    let span = |key: &str| -> Result<Option<Span>, PlanError> {
        let Some((text, at)) = table.text(key)? else { return Ok(None) };
        let span = parse_span(text).filter(|span| *span > Span::ZERO);
        let wrong = || table.source.error(at, key, "expected a time, like \"50us\"");
        Ok(Some(span.ok_or_else(wrong)?))
    };
    let mut schemes = Vec::new();
    for (name, at) in table.texts("schemes")? {
        schemes.push(scheme_named(table.source, plan, "schemes", name, at)?);
    }
    Ok(Filming { schemes, every: span("every")?.unwrap_or(Span::from_us(50)), until: span("until")? })
}
