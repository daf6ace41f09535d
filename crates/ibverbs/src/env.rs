//! The environment, read once.
