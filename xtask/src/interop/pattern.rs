//! The test data that both ends can make from a seed, so that no payload travels beside the packets under
//! test.

/// The first `length` bytes of a seed's pattern; the agent's `fill` and `check` use the same ones (`interop/guest/work.c`).
pub(super) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let words = (0u64..)
        .map(|index| mix(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index)));
    words.flat_map(u64::to_le_bytes).take(length).collect()
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
