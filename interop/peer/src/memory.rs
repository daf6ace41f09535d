//! Patterns, and looking at memory.

use highwire_host::Buffer;

use super::objects::Objects;
use super::request::{Answer, EINVAL, ERANGE, Refusal, Request};

/// A stretch of a registered buffer, within its bounds.
struct Stretch<'o> {
    buffer: &'o Buffer,
    offset: usize,
    length: usize,
}

/// The memory that `mr=`, `offset=` and `length=` name.
fn stretch<'o>(objects: &'o Objects, request: &Request<'_>) -> Answer<Stretch<'o>> {
    let buffer = request.object("mr", &objects.buffers)?;
    let size = usize::try_from(buffer.len())?;
    let offset: usize = request.number_or("offset", 0)?;
    let length = request.number_or("length", size.saturating_sub(offset))?;
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(Refusal::new(ERANGE, format!("{length} bytes at {offset} are outside the MR")));
    }
    Ok(Stretch { buffer, offset, length })
}

pub(crate) fn fill(objects: &Objects, request: &Request<'_>) -> Answer {
    let Stretch { buffer, offset, length } = stretch(objects, request)?;
    buffer.write(offset, &pattern(request.number("seed")?, length));
    Ok(String::new())
}

pub(crate) fn check(objects: &Objects, request: &Request<'_>) -> Answer {
    let Stretch { buffer, offset, length } = stretch(objects, request)?;
    let wanted = pattern(request.number("seed")?, length);
    let found = buffer.to_vec(offset, length);
    Ok(match found.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
        None => "match=1".into(),
        Some(at) => format!("match=0 at={at}"),
    })
}

pub(crate) fn poke(objects: &Objects, request: &Request<'_>) -> Answer {
    let Stretch { buffer, offset, length } = stretch(objects, request)?;
    let hex = request.text("hex")?;
    let byte = |at: usize| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    let bytes = bytes.ok_or_else(|| Refusal::new(EINVAL, format!("{hex} is not hexadecimal")))?;
    if bytes.len() > length {
        return Err(Refusal::new(ERANGE, format!("{} bytes do not fit", bytes.len())));
    }
    buffer.write(offset, &bytes);
    Ok(String::new())
}

pub(crate) fn peek(objects: &Objects, request: &Request<'_>) -> Answer {
    let Stretch { buffer, offset, length } = stretch(objects, request)?;
    let digits: String = buffer.to_vec(offset, length).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("hex={digits}"))
}

/// The first `length` bytes of a seed's pattern, as the guest's agent makes them (`interop/guest/work.c`).
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let start = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0u64..).flat_map(|index| mix(start.wrapping_add(index)).to_le_bytes()).take(length).collect()
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
