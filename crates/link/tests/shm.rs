//! Engines of one user in shared memory: which engines find each other, what arrives, what is allowed, and what a crash leaves
//! behind.

#[path = "shm/channel.rs"]
mod channel;
#[path = "shm/direct.rs"]
mod direct;
#[path = "shm/processes.rs"]
mod processes;
#[path = "shm/registry.rs"]
mod registry;
#[path = "shm/support.rs"]
mod support;
