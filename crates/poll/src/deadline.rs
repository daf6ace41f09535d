//! The end of a wait that is done in parts.

use libc::{c_int, timespec, timeval};

/// When a call's time is up, in nanoseconds of the clock that only moves forward; `None`: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Deadline(Option<i64>);

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;
const MICROSECOND: i64 = 1_000;

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

    /// The same for `select`. The C library takes a million microseconds and more for seconds; that is left to it, too.
    pub(crate) fn after_timeval(now: i64, timeout: Option<&timeval>) -> Option<Deadline> {
        let Some(timeout) = timeout else { return Some(Deadline(None)) };
        let is_usual = (0..SECOND / MICROSECOND).contains(&timeout.tv_usec);
        let time = timespec { tv_sec: timeout.tv_sec, tv_nsec: timeout.tv_usec.wrapping_mul(MICROSECOND) };
        if is_usual { Deadline::after(now, Some(&time)) } else { None }
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

    /// The same for `select`: never shorter, either.
    pub(crate) fn left_as_timeval(self, now: i64) -> Option<timeval> {
        self.left(now).map(|left| {
            let micros = (left as u64).div_ceil(MICROSECOND as u64) as i64;
            timeval { tv_sec: micros / (SECOND / MICROSECOND), tv_usec: micros % (SECOND / MICROSECOND) }
        })
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

    #[test]
    fn select_counts_microseconds_and_is_never_asked_for_fewer() {
        let time = |tv_sec, tv_usec| timeval { tv_sec, tv_usec };
        let at = Deadline::after_timeval(10, Some(&time(1, 999_999))).expect("a usual time");
        let left = |now| at.left_as_timeval(now).map(|left| (left.tv_sec, left.tv_usec));
        assert_eq!((left(10), left(11)), (Some((1, 999_999)), Some((1, 999_999))));
        assert_eq!((left(10 + SECOND), left(i64::MAX)), (Some((0, 999_999)), Some((0, 0))));
        assert_eq!(Deadline::after_timeval(10, None).map(|at| at.left(99)), Some(None));
        for unusual in [time(-1, 0), time(0, -1), time(0, 1_000_000), time(0, i64::MAX)] {
            assert_eq!(Deadline::after_timeval(10, Some(&unusual)), None);
        }
    }
}
