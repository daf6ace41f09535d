//! The ranges of the numbers that `highwire nanopu` takes.
//!
//! Within them no sum of cycles overflows, and no run asks for more memory than a small machine has.

use std::ops::RangeInclusive;

/// The most cycles of a single wait: a third of a second.
pub(super) const CYCLES_MAX: u64 = 1_000_000_000;
/// The most cycles between the first request and the last, or of patience behind it: five minutes.
pub(super) const SPAN_MAX: u64 = 1_000_000_000_000;
/// The most messages of one run.
const MESSAGES_MAX: u64 = 1_000_000;
/// The most bytes that all messages of one run have together.
pub(super) const PAYLOAD_BYTES_MAX: u64 = 256 << 20;

/// A parser of numbers in `range`, which says what they may be.
pub(super) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("{text} is not in {}..={}", range.start(), range.end()))
    }
}

/// A number of messages: there is at least one.
pub(super) fn messages() -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    whole(1..=MESSAGES_MAX)
}

/// Cycles of a wait, from `least` on.
pub(super) fn cycles(least: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    whole(least..=CYCLES_MAX)
}

/// Cycles of a run.
pub(super) fn span() -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    whole(1..=SPAN_MAX)
}

/// Threads of this machine.
pub(super) fn threads() -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    whole(1..=256)
}

/// Whether so many messages of so many bytes fit; if not, why.
pub(super) fn check_payload(count: u64, bytes: usize) -> Result<(), String> {
    let most = PAYLOAD_BYTES_MAX / (bytes as u64).max(1);
    match count <= most {
        true => Ok(()),
        false => Err(format!(
            "{count} messages of {bytes} bytes: all messages of a run have at most {PAYLOAD_BYTES_MAX} bytes, so at most {most} of them"
        )),
    }
}
