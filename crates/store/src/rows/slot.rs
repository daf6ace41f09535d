//! The slots of Redis's clusters: a key's is the CRC of its bytes, or of those between its first braces.

/// Slots are numbers of so many bits.
pub(crate) const BITS: u32 = 14;
pub(crate) const COUNT: u16 = 1 << BITS;

/// A key's slot.
pub(crate) fn of(key: &[u8]) -> u16 {
    crc(tag(key)) % COUNT
}

/// The part of a key that decides: what stands between its first `{` and the next `}`, if that is anything.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let behind = &key[open + 1..];
    match behind.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &behind[..close],
    }
}

/// The CRC of 16 bits that Redis takes (XMODEM: polynomial 0x1021, begun with 0).
fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of this CRC, and slots that a Redis 7 has given.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc(b"123456789"), 0x31C3);
        for (key, slot) in
            [("foo", 12182), ("", 0), ("somekey", 11058), ("foo{hash_tag}", 2515), ("bar{hash_tag}", 2515)]
        {
            assert_eq!(of(key.as_bytes()), slot, "{key}");
        }
        for (key, same) in [
            ("{user1000}.following", "user1000"),
            ("x{user1000}{other}", "user1000"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
        ] {
            assert_eq!(of(key.as_bytes()), crc(same.as_bytes()) % COUNT, "{key}");
        }
        for whole in ["foo{}{bar}", "foo{bar", "}foo{"] {
            assert_eq!(of(whole.as_bytes()), crc(whole.as_bytes()) % COUNT, "{whole}");
        }
    }
}
