//! Experiments as files.
