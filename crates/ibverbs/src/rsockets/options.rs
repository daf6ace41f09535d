//! Options of sockets, and their meaning here.

use std::time::Duration;

use libc::{c_int, timeval};

/// Options that can be set before a connection is made.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) send_queue: u32,
    pub(super) receive_queue: u32,
    pub(super) inline: u32,
    pub(super) iomap_entries: u16,
    pub(super) send_bytes: usize,
    pub(super) receive_bytes: usize,
    pub(super) is_nonblocking: bool,
    /// How long calls that send and calls that receive wait at most.
    pub(super) send_timeout: Option<Duration>,
    pub(super) receive_timeout: Option<Duration>,
    /// How long `rclose` waits for the peer to have everything, if the program says so.
    pub(super) linger: Option<Duration>,
    /// Options that are kept without effect: keep-alive, Nagle's algorithm and the like.
    kept: Vec<((c_int, c_int), Vec<u8>)>,
}

/// `SOL_RDMA` and its options (`<rdma/rsocket.h>`).
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// The answer for programs that ask for TCP's segment size.
const MAXSEG: u32 = 4096;

impl Default for Options {
    fn default() -> Options {
        Options {
            send_queue: 384,
            receive_queue: 384,
            inline: 64,
            iomap_entries: 0,
            send_bytes: 1 << 17,
            receive_bytes: 1 << 17,
            is_nonblocking: false,
            send_timeout: None,
            receive_timeout: None,
            linger: None,
            kept: Vec::new(),
        }
    }
}

impl Options {
    /// Sets an option; `Ok(true)` if it is one for the identifier's address to be used again.
    ///
    /// # Errors
    /// EINVAL for an invalid value, ENOTSUP for an unknown option.
    pub(super) fn set(&mut self, level: c_int, name: c_int, value: &[u8]) -> Result<bool, c_int> {
        let number = || value.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes)).ok_or(libc::EINVAL);
        let size = |min: u32, max: u32| -> Result<u32, c_int> {
            let asked = u32::try_from(number()?).map_err(|_| libc::EINVAL)?;
            Ok(asked.clamp(min, max))
        };
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => self.send_bytes = buffer_bytes(size(1, 1 << 26)?),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => self.receive_bytes = buffer_bytes(size(1, 1 << 26)?),
            (SOL_RDMA, RDMA_SQSIZE) => self.send_queue = size(8, 8192)?,
            (SOL_RDMA, RDMA_RQSIZE) => self.receive_queue = size(8, 8192)?,
            (SOL_RDMA, RDMA_INLINE) => self.inline = size(24, 256)?,
            (SOL_RDMA, RDMA_IOMAPSIZE) => self.iomap_entries = size(0, 32_768)? as u16,
            // There is one route to every destination.
            (SOL_RDMA, RDMA_ROUTE) => {}
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => self.send_timeout = timeout(value)?,
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => self.receive_timeout = timeout(value)?,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let [is_on, seconds] = numbers(value).ok_or(libc::EINVAL)?;
                self.linger = (is_on != 0).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
            }
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                self.keep(level, name, value);
                return Ok(number()? != 0);
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE | libc::SO_OOBINLINE | libc::SO_REUSEPORT)
            | (libc::IPPROTO_TCP, _)
            | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.keep(level, name, value),
            _ => return Err(libc::ENOTSUP),
        }
        Ok(false)
    }

    fn keep(&mut self, level: c_int, name: c_int, value: &[u8]) {
        self.kept.retain(|(key, _)| *key != (level, name));
        self.kept.push(((level, name), value.to_vec()));
    }

    /// The value of an option.
    ///
    /// # Errors
    /// ENOTSUP for an option that is not known.
    pub(super) fn value(&self, level: c_int, name: c_int) -> Result<Vec<u8>, c_int> {
        if let Some((_, value)) = self.kept.iter().find(|(key, _)| *key == (level, name)) {
            return Ok(value.clone());
        }
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => self.send_bytes as u32,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => self.receive_bytes as u32,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM as u32,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Ok(timeout_bytes(self.send_timeout)),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Ok(timeout_bytes(self.receive_timeout)),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let seconds = self.linger.map_or(0, |linger| linger.as_secs() as c_int);
                return Ok([c_int::from(self.linger.is_some()), seconds].map(c_int::to_ne_bytes).concat());
            }
            (
                libc::SOL_SOCKET,
                libc::SO_KEEPALIVE | libc::SO_OOBINLINE | libc::SO_REUSEADDR | libc::SO_REUSEPORT,
            ) => 0,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => 1,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => MAXSEG,
            (libc::IPPROTO_TCP, _) | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => 0,
            (SOL_RDMA, RDMA_SQSIZE) => self.send_queue,
            (SOL_RDMA, RDMA_RQSIZE) => self.receive_queue,
            (SOL_RDMA, RDMA_INLINE) => self.inline,
            (SOL_RDMA, RDMA_IOMAPSIZE) => u32::from(self.iomap_entries),
            _ => return Err(libc::ENOTSUP),
        };
        Ok(number.to_ne_bytes().to_vec())
    }
}

/// A time-out as setsockopt(2) has it: a `timeval`, and zero for none.
fn timeout(value: &[u8]) -> Result<Option<Duration>, c_int> {
    if value.len() < size_of::<timeval>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: so many bytes are there, and any bytes are a value.
    let time = unsafe { value.as_ptr().cast::<timeval>().read_unaligned() };
    if !(0..1_000_000).contains(&time.tv_usec) {
        return Err(libc::EDOM);
    }
    // A negative time is over before it begins.
    let seconds = u64::try_from(time.tv_sec);
    Ok(match seconds {
        Err(_) => Some(Duration::from_micros(1)),
        Ok(seconds) => Some(Duration::from_secs(seconds) + Duration::from_micros(time.tv_usec as u64))
            .filter(|t| !t.is_zero()),
    })
}

fn timeout_bytes(timeout: Option<Duration>) -> Vec<u8> {
    let timeout = timeout.unwrap_or_default();
    let (seconds, micros) =
        (timeout.as_secs() as libc::time_t, libc::suseconds_t::from(timeout.subsec_micros()));
    [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()
}

fn numbers(value: &[u8]) -> Option<[c_int; 2]> {
    let (first, rest) = value.split_first_chunk()?;
    Some([c_int::from_ne_bytes(*first), c_int::from_ne_bytes(*rest.first_chunk()?)])
}

/// A buffer has two halves, of whole pages.
fn buffer_bytes(asked: u32) -> usize {
    (asked as usize).next_multiple_of(8192)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_again() {
        let mut options = Options::default();
        let mut check = |level, name, value: u32, expected: Result<u32, c_int>| {
            let set = options.set(level, name, &value.to_ne_bytes());
            let read = set.and_then(|_| options.value(level, name));
            assert_eq!(read, expected.map(|value| value.to_ne_bytes().to_vec()), "{level} {name}");
        };
        check(SOL_RDMA, RDMA_SQSIZE, 512, Ok(512));
        check(SOL_RDMA, RDMA_INLINE, 1, Ok(24));
        check(libc::SOL_SOCKET, libc::SO_SNDBUF, 10_000, Ok(16_384));
        check(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, Ok(1));
        check(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, Ok(1));
        check(libc::SOL_SOCKET, 9999, 1, Err(libc::ENOTSUP));
        assert_eq!(options.set(SOL_RDMA, RDMA_SQSIZE, &[1]), Err(libc::EINVAL));
        let time = |seconds: i64, micros: i64| [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat();
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time(2, 5)), Ok(false));
        assert_eq!(options.receive_timeout, Some(Duration::new(2, 5_000)));
        assert_eq!(options.value(libc::SOL_SOCKET, libc::SO_RCVTIMEO), Ok(time(2, 5)));
        assert_eq!(options.value(libc::SOL_SOCKET, libc::SO_SNDTIMEO), Ok(time(0, 0)), "the other one");
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time(0, 0)), Ok(false));
        assert_eq!(options.receive_timeout, None, "zero is for ever");
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time(0, 1_000_000)), Err(libc::EDOM));
        let linger = |is_on: i32, seconds: i32| [is_on.to_ne_bytes(), seconds.to_ne_bytes()].concat();
        assert_eq!(options.value(libc::SOL_SOCKET, libc::SO_LINGER), Ok(linger(0, 0)));
        assert_eq!(options.set(libc::SOL_SOCKET, libc::SO_LINGER, &linger(1, 7)), Ok(false));
        assert_eq!(options.linger, Some(Duration::from_secs(7)));
        assert_eq!(options.value(libc::SOL_SOCKET, libc::SO_LINGER), Ok(linger(1, 7)));
    }
}
