//! How entries lie in files: length, checksum, number, the number up to which entries were durable, and the
//! entry.
//!
//! Reading stops at a frame that is not whole. Either its entries were never durable, so no node was told of them, or the file is damaged.
//! The frames behind it decide: each says up to which entry all were durable when it was written.

use crate::codec::Malformed;

const HEADER_BYTES: usize = 24;
/// Longer payloads are never written.
const PAYLOAD_BYTES_MAX: usize = 256 << 20;

pub(super) fn put(to: &mut Vec<u8>, number: u64, durable: u64, payload: &[u8]) {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "an entry is no longer than a message");
    let start = to.len();
    to.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&number.to_le_bytes());
    to.extend_from_slice(&durable.to_le_bytes());
    to.extend_from_slice(payload);
    let sum = checksum(&to[start..]);
    to[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// The checksum covers the whole frame but itself.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..4]);
    hasher.update(&frame[8..]);
    hasher.finalize()
}

/// Takes the frame of this number, and gives its entry.
pub(super) fn take<'a>(from: &mut &'a [u8], number: u64, is_checked: bool) -> Result<&'a [u8], Malformed> {
    let (length, sum, frame_number, _) = header(from).ok_or(Malformed)?;
    let whole = from.get(..HEADER_BYTES + length).ok_or(Malformed)?;
    if frame_number != number || is_checked && checksum(whole) != sum {
        return Err(Malformed);
    }
    *from = &from[HEADER_BYTES + length..];
    Ok(&whole[HEADER_BYTES..])
}

/// Looks anywhere for a whole frame that says that entry `lost` was durable. Returns its offset.
pub(super) fn find_later(bytes: &[u8], lost: u64) -> Option<usize> {
    let is_later = |&at: &usize| {
        let rest = &bytes[at..];
        // Bytes that are no frame nearly always fail here, before the checksum is computed.
        header(rest).is_some_and(|(length, sum, number, durable)| {
            durable > lost
                && number >= durable
                && rest.get(..HEADER_BYTES + length).is_some_and(|whole| checksum(whole) == sum)
        })
    };
    (0..bytes.len().saturating_sub(HEADER_BYTES - 1)).find(is_later)
}

/// Length, checksum, number, and the number up to which entries were durable.
fn header(bytes: &[u8]) -> Option<(usize, u32, u64, u64)> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let length = word(0) as usize;
    (length <= PAYLOAD_BYTES_MAX).then(|| (length, word(4), long(8), long(16)))
}
