//! Counts of tests that passed, failed or were skipped, and why.

/// The outcome of one step, in tests.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skips: Vec<Skip>,
}

/// A test or step that did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) what: String,
    pub(crate) reason: String,
}

impl Tally {
    /// One check, which succeeded or did not.
    pub(crate) fn one(success: bool) -> Self {
        Self { passed: usize::from(success), failed: usize::from(!success), skips: Vec::new() }
    }

    pub(crate) fn failure() -> Self {
        Self::one(false)
    }

    pub(crate) fn counts(passed: usize, failed: usize) -> Self {
        Self { passed, failed, skips: Vec::new() }
    }

    /// No test ran, for this reason.
    pub(crate) fn skipped(what: &str, reason: &str) -> Self {
        Self::default().with_skip(what, reason)
    }

    pub(crate) fn with_skip(mut self, what: &str, reason: &str) -> Self {
        self.skips.push(Skip { what: what.into(), reason: reason.into() });
        self
    }

    /// Reads the output of `cargo test … -- --show-output`. A test that finds that it cannot run prints `skipped: <reason>`
    /// on a line of its own and returns: it counts as skipped. `success` is the exit status, so that a build that fails is
    /// a failure even though it ran no test.
    pub(crate) fn from_cargo_test(output: &str, success: bool) -> Self {
        let mut tally = Self::default();
        let mut test_name = "";
        for line in output.lines() {
            if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
            {
                test_name = name;
            } else if let Some(reason) = line.strip_prefix("skipped: ") {
                tally.skips.push(Skip { what: test_name.into(), reason: reason.into() });
            } else if let Some(result) = line.strip_prefix("test result: ") {
                tally.passed += number_before(result, " passed");
                tally.failed += number_before(result, " failed");
                let ignored = number_before(result, " ignored");
                if ignored > 0 {
                    tally = tally.with_skip(&format!("{ignored} tests"), "marked as ignored");
                }
            }
        }
        let skipped_while_passing =
            tally.skips.iter().filter(|skip| skip.reason != "marked as ignored").count();
        tally.passed = tally.passed.saturating_sub(skipped_while_passing);
        if !success && tally.failed == 0 {
            tally.failed = 1;
        }
        tally
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skips.extend(other.skips);
    }

    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    pub(crate) fn skips(&self) -> &[Skip] {
        &self.skips
    }

    pub(crate) fn is_only_skips(&self) -> bool {
        self.passed == 0 && self.failed == 0 && !self.skips.is_empty()
    }

    /// One word for a table.
    pub(crate) fn verdict(&self) -> &'static str {
        match self {
            _ if self.failed > 0 => "FAILED",
            _ if self.is_only_skips() => "skipped",
            _ => "ok",
        }
    }
}

/// The number that stands before `label` in cargo's result line.
fn number_before(line: &str, label: &str) -> usize {
    let Some(end) = line.find(label) else { return 0 };
    let digits = line[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_the_results_of_several_binaries() {
        let output = "\
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";
        assert_eq!(Tally::from_cargo_test(output, false), Tally::counts(15, 2));
    }

    #[test]
    fn a_test_that_skips_itself_is_no_pass() {
        let output = "\
successes:

---- irn_trace stdout ----
skipped: no trace

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";
        let expected = Tally::counts(1, 0).with_skip("irn_trace", "no trace");
        assert_eq!(Tally::from_cargo_test(output, true), expected);
    }

    #[test]
    fn a_build_that_fails_is_a_failure() {
        assert_eq!(Tally::from_cargo_test("error: could not compile", false), Tally::failure());
    }
}
