//! Scenarios: what goes wrong on purpose, from one file and one seed.
//!
//! A [`Scenario`] is the file's content, read strictly. A [`Course`] plays it: the driver tells it of each call,
//! registration and completion, and of the time, and it answers what is to happen. A [`Traffic`] judges packets. All of
//! them are plain state machines: no clock, thread, file or socket.
//!
//! Invariant: an answer depends on the scenario, its seed, and the number of like questions before. Time decides about
//! events that the file gives a time, and about nothing else.
#![forbid(unsafe_code)]

mod course;
mod error;
mod read;
mod rules;
mod table;
mod traffic;
mod trigger;
mod units;
pub mod words;

pub use course::{Call, Course, Fate, Happening, Seen};
pub use error::ScenarioError;
pub use rules::{
    Announcement, CallRule, CompletionRule, Device, End, Event, EventRule, Misfortune, PathRule, Pattern,
    Port, RegistrationRule, Scenario, Start, address_after, address_of_port,
};
pub use traffic::{Packet, PacketFate, Traffic};
pub use trigger::{Times, Trigger};
