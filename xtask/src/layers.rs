//! The layering law: dependencies point down, to a strictly lower layer, and the two worlds do not know each other.

use anyhow::{Context, Result, bail};

use crate::shell::{Line, Log, root};
use crate::test::Tally;

/// The place of a crate. Laws of absence follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum World {
    Foundation,
    Protocol,
    Real,
    Simulated,
    Face,
}

/// The house, as ARCHITECTURE.md draws it: crate, layer, world.
const HOUSE: &[(&str, u8, World)] = &[
    ("stdx", 0, World::Foundation),
    ("wire", 1, World::Protocol),
    ("riscv", 1, World::Protocol),
    ("fabric", 1, World::Simulated),
    ("cores", 1, World::Simulated),
    ("verbs", 2, World::Protocol),
    ("link", 2, World::Real),
    ("nanopu", 2, World::Simulated),
    ("broker", 3, World::Real),
    ("transport", 3, World::Protocol),
    ("faults", 3, World::Protocol),
    ("cm", 3, World::Protocol),
    ("wake", 3, World::Real),
    ("shmem", 1, World::Real),
    ("rings", 3, World::Real),
    ("record", 3, World::Real),
    ("rnic", 4, World::Protocol),
    ("rpc", 4, World::Protocol),
    ("txn", 4, World::Protocol),
    ("host", 5, World::Real),
    ("sim", 5, World::Simulated),
    ("store", 6, World::Real),
    ("ibverbs", 6, World::Face),
    ("preload", 5, World::Face),
    ("paths", 6, World::Face),
    ("poll", 6, World::Face),
    ("stage", 6, World::Face),
    ("program", 6, World::Face),
    ("lab", 7, World::Face),
    ("cli", 7, World::Face),
    ("python", 7, World::Face),
];

/// The only crate that plays threads in a model of a machine.
const STAGE: &str = "stage";

/// One edge of the dependency graph, without the `highwire-` prefix.
#[derive(Debug)]
struct Dependency {
    from: String,
    to: String,
    /// It wants to let a model answer for `to` in the system's place.
    enters_models: bool,
}

/// Checks every dependency between the repository's crates, and that protocol crates carry the lints that
/// keep the world out.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    let metadata = Line::cargo("metadata --format-version 1 --no-deps");
    log.note(&format!("$ {metadata}"))?;
    let output = metadata.capture()?;
    if !output.success {
        bail!("cargo metadata: {}", output.stderr);
    }
    let (crates, dependencies) = parse(&output.stdout)?;
    let mut problems: Vec<String> = dependencies.iter().filter_map(problem).collect();
    problems.extend(crates.iter().filter_map(|name| missing_guard(name)));
    for problem in &problems {
        log.note(problem)?;
    }
    log.note(&format!("{} crates, {} dependencies between them", crates.len(), dependencies.len()))?;
    Ok(Tally::counts(dependencies.len().saturating_sub(problems.len()), problems.len()))
}

/// The repository's crates and the edges between them; dependencies of tests may point anywhere.
fn parse(metadata: &str) -> Result<(Vec<String>, Vec<Dependency>)> {
    let json: serde_json::Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let ours = |value: &serde_json::Value| {
        // The package of the program bears the bare name; its folder is `cli`.
        let name = value["name"].as_str()?;
        (name == "highwire").then_some("cli").or_else(|| name.strip_prefix("highwire-")).map(String::from)
    };
    let mut crates = Vec::new();
    let mut dependencies = Vec::new();
    for package in json["packages"].as_array().context("cargo metadata lists no packages")? {
        let Some(from) = ours(package).filter(|name| !name.starts_with("fuzz")) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["kind"] != "dev"
                && let Some(to) = ours(dependency)
            {
                let features = dependency["features"].as_array().into_iter().flatten();
                let enters_models = features.into_iter().any(|feature| feature == "world");
                dependencies.push(Dependency { from: from.clone(), to, enters_models });
            }
        }
        crates.push(from);
    }
    Ok((crates, dependencies))
}

fn place(name: &str) -> Option<(u8, World)> {
    HOUSE.iter().find(|(known, ..)| *known == name).map(|(_, layer, world)| (*layer, *world))
}

/// The fault of one dependency, if it has one.
fn problem(dependency: &Dependency) -> Option<String> {
    let Dependency { from, to, enters_models } = dependency;
    let Some((from_layer, from_world)) = place(from) else {
        return Some(format!(
            "{from} has no place in the house: add it to xtask/src/layers.rs and ARCHITECTURE.md"
        ));
    };
    let Some((to_layer, to_world)) = place(to) else {
        return Some(format!(
            "{to} has no place in the house: add it to xtask/src/layers.rs and ARCHITECTURE.md"
        ));
    };
    if to_layer >= from_layer {
        return Some(format!(
            "{from} (layer {from_layer}) depends on {to} (layer {to_layer}): not downwards"
        ));
    }
    match (from_world, to_world) {
        (World::Protocol | World::Foundation, World::Real | World::Simulated) => {
            Some(format!("{from} is protocol and depends on {to}: the protocol knows no world"))
        }
        (World::Real, World::Simulated) | (World::Simulated, World::Real) => {
            Some(format!("{from} depends on {to}: the two worlds do not know each other"))
        }
        // The libraries that programs load would check whether they are in a model, at every wait. A test of `host` asks by its command.
        _ if *enters_models && from != STAGE => {
            Some(format!("{from} asks {to} for its feature `world`, which is for {STAGE} alone"))
        }
        _ => None,
    }
}

/// Protocol crates forbid unsafe code and link to the lints that ban clocks, sockets and unordered maps.
fn missing_guard(name: &str) -> Option<String> {
    let (_, World::Protocol | World::Foundation) = place(name)? else { return None };
    let folder = root().join("crates").join(name);
    if !folder.join("clippy.toml").exists() {
        return Some(format!("{name} lacks clippy.toml, a link to ../protocol.clippy.toml"));
    }
    let source = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap_or_default();
    let forbids = source.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
    (!forbids).then(|| format!("{name} lacks #![forbid(unsafe_code)]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &str, to: &str, expected: Option<&str>) {
        check_with(from, to, false, expected);
    }

    fn check_with(from: &str, to: &str, enters_models: bool, expected: Option<&str>) {
        let found = problem(&Dependency { from: from.into(), to: to.into(), enters_models });
        match (found, expected) {
            (Some(found), Some(expected)) => assert!(found.contains(expected), "{found}"),
            (found, expected) => assert_eq!(found.as_deref(), expected),
        }
    }

    #[test]
    fn down_is_right_and_up_is_wrong() {
        check("rnic", "transport", None);
        check("cli", "host", None);
        check("wire", "verbs", Some("not downwards"));
        check("verbs", "verbs", Some("not downwards"));
    }

    #[test]
    fn the_protocol_knows_no_world() {
        check("transport", "link", Some("knows no world"));
        check("rnic", "shmem", Some("knows no world"));
    }

    #[test]
    fn the_worlds_do_not_know_each_other() {
        check("host", "fabric", Some("two worlds"));
        check("sim", "link", Some("two worlds"));
    }

    #[test]
    fn only_the_stage_leads_into_a_model() {
        check_with("stage", "wake", true, None);
        check_with("host", "wake", true, Some("which is for stage alone"));
        check_with("ibverbs", "wake", true, Some("which is for stage alone"));
        check_with("host", "wake", false, None);
    }

    #[test]
    fn a_new_crate_needs_a_place() {
        check("teapot", "stdx", Some("no place in the house"));
    }
}
