//! Every task of the repository, for people and CI alike.
fn main() {}
