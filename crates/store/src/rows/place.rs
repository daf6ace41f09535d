//! Where rows lie: a table's keys in runs, and a key's chain of places.

use super::slot;
use highwire_txn::Key;

/// A table's rows lie in this many runs, which are spread over the regions.
const RUNS_PER_TABLE_LOG2: u32 = 4;
const KEY_BITS: u32 = 48;
/// The table whose keys lie by their slots: that of the Redis door. All keys of a slot have one primary.
pub(crate) const SLOTTED: &[u8] = b"redis";
/// Keys of a run.
pub(crate) const KEYS_PER_RUN: u64 = 1 << (KEY_BITS - RUNS_PER_TABLE_LOG2);

/// The `step`-th place of a key's chain.
pub(crate) fn place(table: &[u8], key: &[u8], step: u64) -> Key {
    // Tests make keys collide this way, which otherwise takes 2^48 of them.
    let hash = if cfg!(test) && table == b"collide" { 0 } else { hash(key) };
    let spread = mix(hash.wrapping_add(step.wrapping_mul(0x9E37_79B9_7F4A_7C15))) >> (64 - KEY_BITS);
    match table == SLOTTED {
        true => first(table) | (run_of(slot::of(key)) * KEYS_PER_RUN) | (spread % KEYS_PER_RUN),
        false => first(table) | spread,
    }
}

/// The run of the slotted table in which all keys of a slot lie.
fn run_of(slot: u16) -> u64 {
    u64::from(slot) >> (slot::BITS - RUNS_PER_TABLE_LOG2)
}

/// The slots of the table in which keys lie by their slots: the first and the last of those that share a run, and a row of that run.
pub(crate) fn slots() -> impl Iterator<Item = (u16, u16, Key)> {
    let per_run = 1 << (slot::BITS - RUNS_PER_TABLE_LOG2);
    let of_run = move |run: u16| {
        let low = run * per_run;
        (low, low + (per_run - 1), first(SLOTTED) | (u64::from(run) * KEYS_PER_RUN))
    };
    (0..1 << RUNS_PER_TABLE_LOG2).map(of_run)
}

/// The rows of a table: the first and the last key that they can have.
pub(crate) fn range(table: &[u8]) -> (Key, Key) {
    (first(table), first(table) | ((1 << KEY_BITS) - 1))
}

/// The place of the root of a table's order.
pub(crate) fn root(table: &[u8]) -> Key {
    place_of_node(table, mix(hash(table).wrapping_add(1)))
}

/// A place for a node of a table's order: any of the table's, as `random` says.
pub(crate) fn place_of_node(table: &[u8], random: u64) -> Key {
    first(table) | (random >> (64 - KEY_BITS))
}

fn first(table: &[u8]) -> Key {
    mix(hash(table)) >> KEY_BITS << KEY_BITS
}

/// FNV-1a. It decides where data lies, so it must never change; `std`'s hashers may.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Mixes all bits into all others (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
