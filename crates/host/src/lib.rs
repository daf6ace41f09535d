//! Drives RNICs over links on a real machine; the Rust API for applications.
