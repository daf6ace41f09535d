//! Measures that outlive a campaign, so that an interrupted campaign can go on.

use crate::report::Measures;

/// Keeps the measures of runs. A key names everything that a run depends on, except the program; the archive
/// must tell programs apart itself.
pub trait Archive: Sync + std::fmt::Debug {
    /// The measures kept under a key.
    fn find(&self, key: &str) -> Option<Measures>;

    /// Keeps the measures under a key. An archive may fail to do so; the run is then played again.
    fn keep(&self, key: &str, measures: &Measures);
}

/// Keeps nothing.
impl Archive for () {
    fn find(&self, _key: &str) -> Option<Measures> {
        None
    }

    fn keep(&self, _key: &str, _measures: &Measures) {}
}
