//! How a thread waits for a completion (FastWake).
//!
//! Polling is quick and takes a core for each thread; sleeping shares cores, and costs a wake-up from one
//! core to another. Between the two lies a family of strategies behind one trait, [`WakeStrategy`]. They
//! share a word that a thread sleeps on ([`WakeWord`]), the seat of the thread that polls for all others
//! ([`Seat`]), and the order in which a thread goes to sleep: look, arm, look again, sleep.
//!
//! This crate knows no completion queue. Its user says how to look ([`Work`]), and posts to the word of the
//! thread that an event concerns. Everything that it asks of the system, a model of a machine can answer
//! instead ([`world`]).

mod account;
pub mod duty;
mod notice;
mod payoff;
mod rest;
mod seat;
mod strategy;
mod sync;
mod sys;
mod word;
pub mod world;

pub use account::{Account, Figures, Kind};
pub use notice::{Announced, Notice};
pub use payoff::{Choice, Payoff, Polled, Restraint, Terms};
pub use rest::Rest;
pub use seat::{Leading, Seat};
pub use strategy::{
    Adaptive, Affine, BusyPoll, Dispatcher, Event, LeaderFollower, Mode, Outcome, Station, Strategy, Turn,
    Wait, WakeStrategy, Work,
};
pub use sys::{
    Core, Priority, current_core, machine_cores, pin, process_switches, process_time, run_only_when_idle,
    run_urgently, runnable_threads, thread_time, yield_core,
};
pub use word::{Posted, Scope, Slept, WakeWord};
