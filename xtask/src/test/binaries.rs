//! Runs the test binaries of the workspace, in two lanes.
//!
//! Cargo runs one binary after the other, and those that open devices mostly wait. So these run one after the other in
//! a lane of their own, beside those that only compute, which leave them the cores. The log reads as cargo's.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::guard::{self, End};
use crate::shell::{Line, Log, root, target_dir};

use super::tally::Tally;

/// Crates whose tests open no device, no socket and no shared memory. A crate that is not named runs beside no other device.
const COMPUTE: &[&str] = &[
    "highwire-cm",
    "highwire-cores",
    "highwire-fabric",
    "highwire-nanopu",
    "highwire-riscv",
    "highwire-rnic",
    "highwire-sim",
    "highwire-stdx",
    "highwire-transport",
    "highwire-txn",
    "highwire-verbs",
];

/// The priority of binaries that compute: those that open devices get a core when they want one.
const PRIORITY: &str = "10";
/// A guard against hangs: the longest binary takes minutes.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// An executable with tests.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    package: String,
    /// As cargo chooses it: `--lib`, `--test waiting`.
    choice: String,
    /// As cargo calls it: `unittests src/lib.rs`, `tests/waiting.rs`.
    title: String,
    executable: PathBuf,
    /// Where its tests are run.
    folder: PathBuf,
}

/// Builds what `line` (a `cargo test`) chooses, and runs it with `variable` set.
pub(super) fn run(log: &Log, line: Line, variable: (&str, &Path)) -> Result<Tally> {
    let line = line.words("--no-run --message-format=json-render-diagnostics");
    log.note(&format!("$ {line}"))?;
    let built = line.capture()?;
    log.note(&built.stderr)?;
    if !built.success {
        return Ok(Tally::failure());
    }
    let binaries = parse(&built.stdout)?;
    if binaries.is_empty() {
        bail!("cargo names no test binary");
    }
    let (compute, devices): (Vec<_>, Vec<_>) =
        binaries.iter().partition(|binary| COMPUTE.contains(&binary.package.as_str()));
    let writing = Mutex::new(());
    let failed = std::thread::scope(|scope| {
        let lanes = [compute, devices].map(|lane| scope.spawn(|| run_lane(log, &writing, lane, variable)));
        let mut failed = Vec::new();
        for lane in lanes {
            failed.extend(lane.join().expect("a lane does not panic")?);
        }
        anyhow::Ok(failed)
    })?;
    if !failed.is_empty() {
        log.note(&format!("error: {} targets failed:", failed.len()))?;
        for binary in &failed {
            log.note(&format!("    `-p {} {}`", binary.package, binary.choice))?;
        }
        let Binary { package, choice, .. } = failed[0];
        let again = Line::cargo("test --package").arg(package).words(choice).env(variable.0, variable.1);
        log.note(&format!("$ {again}"))?;
    }
    Ok(Tally::from_cargo_test(&log.text()?, failed.is_empty()))
}

/// Runs one after the other; returns those that failed.
fn run_lane<'a>(
    log: &Log,
    writing: &Mutex<()>,
    lane: Vec<&'a Binary>,
    variable: (&str, &Path),
) -> Result<Vec<&'a Binary>> {
    let mut failed = Vec::new();
    for binary in lane {
        let (text, success) = run_one(binary, variable)?;
        let shown = binary.executable.strip_prefix(root()).unwrap_or(&binary.executable);
        let _alone = writing.lock().expect("no writer panics");
        log.note(&format!("     Running {} ({})\n{text}", binary.title, shown.display()))?;
        if !success {
            failed.push(binary);
        }
    }
    Ok(failed)
}

/// The output of a binary, both streams as they were written, and whether it succeeded.
fn run_one(binary: &Binary, variable: (&str, &Path)) -> Result<(String, bool)> {
    let folder = target_dir().join("xtask");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let path = folder.join(format!("{}.output", name(&binary.executable)));
    let mut output = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    // It has no name from here on: nothing is left behind.
    std::fs::remove_file(&path)?;
    let computes = COMPUTE.contains(&binary.package.as_str());
    let line = if computes { Line::new("nice").arg("-n").arg(PRIORITY) } else { Line::new("env") };
    let line = line.arg(&binary.executable).arg("--show-output").dir(&binary.folder);
    let mut command = line.env(variable.0, variable.1).env("CARGO_MANIFEST_DIR", &binary.folder).command();
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", binary.executable.display()))?;
    let end = guard::wait(&mut child, Some(Instant::now() + PATIENCE))?;
    let mut bytes = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(match end {
        End::Hung(report) => {
            text.push_str(&format!("{report}it did not end within {} s\n", PATIENCE.as_secs()));
            (text, false)
        }
        End::ByItself(status) => {
            if !status.success() && !text.contains("test result: FAILED") {
                text.push_str(&format!("it ended with {status}\n"));
            }
            (text, status.success())
        }
    })
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The test binaries among cargo's messages, in cargo's order.
fn parse(messages: &str) -> Result<Vec<Binary>> {
    let mut binaries = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("a message of cargo is not JSON")?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        if let (true, Some(executable)) = (is_test, message["executable"].as_str()) {
            binaries.push(binary(&message, executable).with_context(|| format!("cargo says {line}"))?);
        }
    }
    binaries.sort_by(|a, b| (&a.package, &a.title).cmp(&(&b.package, &b.title)));
    Ok(binaries)
}

fn binary(message: &Value, executable: &str) -> Option<Binary> {
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = &message["target"];
    let source = Path::new(target["src_path"].as_str()?);
    let source = source.strip_prefix(folder).unwrap_or(source).display();
    let (choice, title) = match (target["kind"][0].as_str()?, target["name"].as_str()?) {
        ("test", name) => (format!("--test {name}"), source.to_string()),
        ("bin", name) => (format!("--bin {name}"), format!("unittests {source}")),
        _ => ("--lib".into(), format!("unittests {source}")),
    };
    Some(Binary {
        package: package(message["package_id"].as_str()?).into(),
        choice,
        title,
        executable: executable.into(),
        folder: folder.into(),
    })
}

/// The name in `path+file:///folder/stdx#highwire-stdx@0.1.0`; where folder and package are called alike, the folder's.
fn package(id: &str) -> &str {
    let (source, rest) = id.split_once('#').unwrap_or(("", id));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None if rest.starts_with(|first: char| first.is_ascii_digit()) => {
            source.rsplit('/').next().unwrap_or_default()
        }
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_package_is_in_its_identity() {
        assert_eq!(package("path+file:///a/stdx#highwire-stdx@0.1.0"), "highwire-stdx");
        assert_eq!(package("path+file:///a/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn only_binaries_with_tests_run() {
        let message = |kind: &str, name: &str, source: &str, test: bool| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///w/link#highwire-link@0.1.0\",\
                 \"manifest_path\":\"/w/link/Cargo.toml\",\"profile\":{{\"test\":{test}}},\"executable\":\"/t/{name}-1\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"{name}\",\"src_path\":\"/w/link/{source}\"}}}}"
            )
        };
        let messages = [
            message("test", "waiting", "tests/waiting.rs", true),
            message("lib", "highwire_link", "src/lib.rs", true),
            message("bin", "tool", "src/main.rs", false),
            "{\"reason\":\"build-finished\",\"success\":true}".into(),
        ];
        let found = parse(&messages.join("\n")).unwrap();
        let shown: Vec<_> =
            found.iter().map(|binary| (binary.choice.as_str(), binary.title.as_str())).collect();
        assert_eq!(shown, [("--test waiting", "tests/waiting.rs"), ("--lib", "unittests src/lib.rs")]);
        assert_eq!(found[0].package, "highwire-link");
        assert_eq!(found[0].folder, Path::new("/w/link"));
    }

    fn shell(package: &str, script: &str) -> (String, bool) {
        let folder = std::env::temp_dir();
        let file = folder.join(format!("xtask-binary-{}-{package}-{}", std::process::id(), script.len()));
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let binary = Binary {
            package: package.into(),
            choice: "--lib".into(),
            title: "t".into(),
            executable: file.clone(),
            folder,
        };
        let ran = run_one(&binary, ("TOLD", Path::new("/told"))).unwrap();
        std::fs::remove_file(file).unwrap();
        ran
    }

    #[test]
    fn both_streams_of_a_binary_are_kept_and_its_end_is_said() {
        let (text, success) = shell("p", "echo $TOLD $1; echo err >&2");
        assert!(success && text == "/told --show-output\nerr\n", "{text}");
        let (text, success) = shell("p", "echo last words; kill -SEGV $$");
        assert!(!success && text.contains("last words\n") && text.contains("signal: 11"), "{text}");
    }

    #[test]
    fn binaries_that_compute_leave_the_cores_to_others() {
        let niceness = |package: &str| shell(package, "nice").0.trim().parse::<i32>().unwrap();
        let usual = niceness("highwire-host");
        assert_eq!(niceness("highwire-txn"), (usual + 10).min(19));
    }

    #[test]
    fn crates_that_compute_exist_and_have_no_link() {
        for name in COMPUTE {
            let folder = name.strip_prefix("highwire-").expect("ours");
            let manifest = root().join("crates").join(folder).join("Cargo.toml");
            let manifest =
                std::fs::read_to_string(&manifest).unwrap_or_else(|_| panic!("no folder of {name}"));
            for real in ["highwire-link", "highwire-host", "highwire-shmem"] {
                assert!(!manifest.contains(real), "{name} has {real}");
            }
        }
    }
}
