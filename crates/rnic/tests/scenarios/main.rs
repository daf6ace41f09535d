//! Conversations of two RNICs, one timeline each.

#[path = "../common/mod.rs"]
mod common;
mod operations;
