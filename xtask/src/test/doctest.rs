//! Which packages have examples in their documentation.
//!
//! Cargo asks rustdoc to look at every crate for examples, which reads all of its sources, and few crates have any.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::shell::{Line, root};

/// The command that runs the examples of all packages, with the features that the other steps choose; `None` without any.
pub(super) fn command() -> Result<Option<Line>> {
    let mut packages = Vec::new();
    for folder in fs::read_dir(root().join("crates"))? {
        let folder = folder?.path();
        if folder.join("src").is_dir() && has_example(&folder.join("src"))? {
            packages.push(name(&folder)?);
        }
    }
    packages.sort();
    if packages.is_empty() {
        return Ok(None);
    }
    // The laboratory has no example; naming it chooses the features that are compiled already.
    let line = Line::cargo("test --doc --no-fail-fast --package highwire-lab");
    Ok(Some(packages.iter().fold(line, |line, package| line.arg("--package").arg(package))))
}

fn has_example(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let found = if path.is_dir() {
            has_example(&path)?
        } else {
            path.extension().is_some_and(|kind| kind == "rs") && examples(&fs::read_to_string(&path)?) > 0
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn name(folder: &Path) -> Result<String> {
    let path = folder.join("Cargo.toml");
    let manifest = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
    Ok(name.with_context(|| format!("no name in {}", path.display()))?.trim_matches('"').to_owned())
}

/// How many blocks of Rust the documentation of a source has.
fn examples(source: &str) -> usize {
    let (mut count, mut is_inside) = (0, false);
    for line in source.lines() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            // A block that nobody closes ends with its documentation.
            is_inside = false;
            continue;
        };
        let Some(words) = text.trim().strip_prefix("```") else { continue };
        is_inside = !is_inside;
        // Only these words name another language, as far as rustdoc is concerned.
        const NOT_RUST: &[&str] =
            &["text", "sh", "console", "toml", "c", "java", "json", "python", "asm", "ignore"];
        count += usize::from(is_inside && !NOT_RUST.contains(&words.split(',').next().unwrap_or("").trim()));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_a_block_of_rust() {
        for (source, expected) in [
            ("", 0),
            ("/// ```\n/// let a = 1;\n/// ```\nfn a() {}", 1),
            ("//! ```no_run\n//! a();\n//! ```\n//!\n//! ```rust,should_panic\n//! b();\n//! ```", 2),
            ("/// ```text\n/// a | b\n/// ```\n///\n/// ```\n/// b();\n/// ```", 1),
            ("/// ```text\nfn a() {}\n    /// ```\n    /// b();\n    /// ```", 1),
            ("// ```\n// no documentation\n// ```", 0),
        ] {
            assert_eq!(examples(source), expected, "{source}");
        }
    }

    #[test]
    fn packages_with_examples_are_found() {
        let line = command().unwrap().expect("some").to_string();
        assert!(line.contains("--package highwire-host") && !line.contains("highwire-wire"), "{line}");
    }
}
