//! Engines of one user in shared memory: which engines find each other, which packets arrive, which
//! operations are allowed, and the state after a crash.

#[path = "shm/channel.rs"]
mod channel;
#[path = "shm/direct.rs"]
mod direct;
#[path = "shm/processes.rs"]
mod processes;
#[path = "shm/registry.rs"]
mod registry;
#[path = "shm/roster.rs"]
mod roster;
#[path = "shm/support.rs"]
mod support;
