//! Commands of the debug build that share what they compile.
//!
//! Cargo chooses the features of every crate by all packages that a command names, and compiles a crate again for another
//! choice. The laboratory has each feature that any package of the workspace wants, so these commands name it too, and
//! build nothing of it that they do not ask for.

use crate::shell::Line;

/// `cargo build` of targets of one package.
pub(crate) fn build(package: &str, targets: &str) -> Line {
    of("build", package).words(targets)
}

/// The program of the product.
pub(crate) fn program() -> Line {
    build("highwire", "--bin highwire")
}

/// `cargo test` of some of a package's files of tests.
pub(crate) fn test(package: &str, files: &[&str]) -> Line {
    files.iter().fold(of("test", package), |line, file| line.arg("--test").arg(file))
}

fn of(command: &str, package: &str) -> Line {
    Line::cargo(command).arg("--package").arg(package).words("--package highwire-lab")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Crates of the tree of these packages, each with its features; what build scripts use is compiled with features of its own.
    fn features(packages: &str) -> BTreeMap<String, BTreeSet<String>> {
        let line = Line::cargo("tree --offline --prefix none --edges normal,build --format {p}|{f}");
        let output = line.words(packages).capture().unwrap();
        assert!(output.success, "{}", output.stderr);
        let lines = output.stdout.lines().map(|line| line.trim_end_matches(" (*)"));
        let mut features = BTreeMap::<String, BTreeSet<String>>::new();
        for (package, chosen) in lines.filter_map(|line| line.split_once('|')) {
            features.entry(package.to_owned()).or_default().insert(chosen.to_owned());
        }
        features
    }

    /// Otherwise a first run of the tests compiles most crates two or three times.
    #[test]
    fn commands_of_the_steps_choose_the_same_features_of_every_crate() {
        // The module for Python is built by its own tools.
        let whole = features("--workspace --exclude highwire-python");
        assert!(whole.len() > 100, "{}", whole.len());
        let without_programs =
            "--workspace --exclude highwire --exclude highwire-lab --exclude highwire-python";
        for packages in [
            "--package highwire-lab",
            "--package highwire --package highwire-lab",
            "--package highwire-ibverbs --package highwire-lab",
            without_programs,
        ] {
            for (package, chosen) in features(packages) {
                let others = &whole[&package];
                assert!(chosen.is_subset(others), "{package} with {packages}: {chosen:?}, and {others:?}");
            }
        }
    }
}
