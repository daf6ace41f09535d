//! Conversations of two RNICs, one timeline each.

#[path = "../common/mod.rs"]
mod common;

mod congestion;
mod datagrams;
mod exact;
mod frames;
mod guards;
mod long;
mod operations;
mod order;
mod recovery;
mod refusals;
mod states;
mod tags;
mod windows;
mod xrc;

use highwire_verbs::Recovery;

const RECOVERIES: [Recovery; 2] = [Recovery::GoBackN, Recovery::Irn];
