//! Runs that outlive a campaign, so that one that is interrupted goes on where it was.

use crate::report::Measures;

/// Keeps what runs have brought. A key names everything that a run follows from but the program, which is the archive's to know.
pub trait Archive: Sync + std::fmt::Debug {
    /// What was kept under a key.
    fn find(&self, key: &str) -> Option<Measures>;

    /// Keeps it. An archive that cannot, need not: the run is then played again another time.
    fn keep(&self, key: &str, measures: &Measures);
}

/// Keeps nothing.
impl Archive for () {
    fn find(&self, _key: &str) -> Option<Measures> {
        None
    }

    fn keep(&self, _key: &str, _measures: &Measures) {}
}
