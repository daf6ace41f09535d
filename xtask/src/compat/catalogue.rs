//! The catalogue: every program and suite, with its arguments.

mod built;
mod descriptors;
mod diagnosis;
mod examples;
mod middleware;
mod perftest;
mod rdmacm;
mod storage;
mod wheels;

use super::case::{Case, Link};

/// Links over which programs with two ends run.
const LINKS: [Link; 2] = [Link::Shm, Link::Udp];

/// Every case, in the order of the page.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    diagnosis::add(&mut cases);
    examples::add(&mut cases);
    descriptors::add(&mut cases);
    perftest::add(&mut cases);
    rdmacm::add(&mut cases);
    middleware::add(&mut cases);
    storage::add(&mut cases);
    wheels::add(&mut cases);
    built::add(&mut cases);
    super::valkey::add(&mut cases);
    super::suite::add(&mut cases);
    super::measured::add(&mut cases);
    cases
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn every_case_has_a_line_of_its_own() {
        let mut lines: Vec<String> = all().iter().map(|case| case.line()).collect();
        lines.sort();
        let count = lines.len();
        lines.dedup();
        assert_eq!(lines.len(), count);
    }
}
