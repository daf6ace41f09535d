//! The highwire program.
fn main() {}
