//! The end of a wait that is done in parts.

use libc::{c_int, timespec};

/// When a call's time is up, in nanoseconds of the clock that only moves forward; `None`: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Deadline(Option<i64>);

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

impl Deadline {
    /// After so many milliseconds; never if they are negative, as `poll` counts.
    pub(crate) fn after_ms(now: i64, timeout: c_int) -> Deadline {
        Deadline((timeout >= 0).then(|| now.saturating_add(i64::from(timeout) * MILLISECOND)))
    }

    /// After that time. Times that the kernel would refuse are left to it: `None`.
    pub(crate) fn after(now: i64, timeout: Option<&timespec>) -> Option<Deadline> {
        let Some(timeout) = timeout else { return Some(Deadline(None)) };
        let is_valid = timeout.tv_sec >= 0 && (0..SECOND).contains(&timeout.tv_nsec);
        is_valid.then(|| {
            let nanos = timeout.tv_sec.saturating_mul(SECOND).saturating_add(timeout.tv_nsec);
            Deadline(Some(now.saturating_add(nanos)))
        })
    }

    /// The time that is left, at least zero; `None`: for ever.
    pub(crate) fn left(self, now: i64) -> Option<i64> {
        self.0.map(|at| at.saturating_sub(now).max(0))
    }

    /// The same for `poll`: never shorter, so that no call ends before its time.
    pub(crate) fn left_ms(self, now: i64) -> c_int {
        let Some(left) = self.left(now) else { return -1 };
        c_int::try_from((left as u64).div_ceil(MILLISECOND as u64)).unwrap_or(c_int::MAX)
    }

    /// The same for `ppoll`.
    pub(crate) fn left_as_time(self, now: i64) -> Option<timespec> {
        self.left(now).map(|left| timespec { tv_sec: left / SECOND, tv_nsec: left % SECOND })
    }
}

/// The time now.
pub(crate) fn now() -> i64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time lives through the call, which every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * SECOND + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_never_shorter_than_what_was_asked() {
        let at = Deadline::after_ms(5, 3);
        assert_eq!(at.left_ms(5), 3);
        assert_eq!(at.left_ms(6), 3, "a part of a millisecond counts as one");
        assert_eq!(at.left_ms(5 + MILLISECOND), 2);
        assert_eq!((at.left_ms(5 + 3 * MILLISECOND), at.left_ms(i64::MAX)), (0, 0));
        assert_eq!(Deadline::after_ms(5, -1).left_ms(i64::MAX), -1);
        assert_eq!(Deadline::after_ms(i64::MAX, c_int::MAX).left_ms(0), c_int::MAX);
    }

    #[test]
    fn times_are_taken_as_the_kernel_takes_them() {
        let time = |tv_sec, tv_nsec| timespec { tv_sec, tv_nsec };
        let after = |time: &timespec| Deadline::after(10, Some(time)).map(|at| at.left(10));
        assert_eq!(after(&time(1, 5)), Some(Some(SECOND + 5)));
        assert_eq!(Deadline::after(10, None).map(|at| at.left(99)), Some(None));
        assert_eq!(after(&time(i64::MAX, 0)), Some(Some(i64::MAX - 10)));
        for refused in [time(-1, 0), time(0, SECOND), time(0, -1)] {
            assert_eq!(after(&refused), None);
        }
        let left = Deadline::after(10, Some(&time(2, 7))).and_then(|at| at.left_as_time(10));
        assert_eq!(left.map(|left| (left.tv_sec, left.tv_nsec)), Some((2, 7)));
    }
}
