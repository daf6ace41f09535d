//! Options of sockets, and their meaning here.

use libc::c_int;

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
    /// Options that are kept without effect: keep-alive, linger, Nagle's algorithm and the like.
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
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                self.keep(level, name, value);
                return Ok(number()? != 0);
            }
            (
                libc::SOL_SOCKET,
                libc::SO_KEEPALIVE | libc::SO_LINGER | libc::SO_OOBINLINE | libc::SO_REUSEPORT,
            )
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
            (libc::SOL_SOCKET, libc::SO_LINGER) => return Ok(vec![0; size_of::<libc::linger>()]),
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
    }
}
