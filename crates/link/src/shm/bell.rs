//! Bells: how a sender wakes the thread that sleeps on a lane of its neighbour.
//!
//! A bell is a named pipe in the engine's directory, `bell-0` for lane 0, with one byte in it for each time that it was rung. An
//! empty datagram to the lane's socket does the same, and is sent where there is no pipe; but it goes through the whole of the
//! network's code, and the thread that it wakes has to take it out of its socket.
//!
//! Both ends open the pipe for reading and writing: then it neither reports an end nor raises a signal when the other process has gone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys;

/// Bytes taken at once. There are more only if one process rings without need.
const RINGS_TAKEN: usize = 64;
/// Reads at most: a process that rings without pause must not keep the lane busy.
const READS_MAX: u32 = 16;

/// The end of a lane's bell that its threads listen to.
#[derive(Debug)]
pub(super) struct Bell(File);

/// A neighbour's end, which rings it.
#[derive(Debug)]
pub(super) struct BellPull(File);

/// Makes the bell of a lane.
///
/// # Errors
/// Those of the file system. The lane's socket serves as well.
pub(super) fn make(directory: &Path, lane: u32) -> io::Result<()> {
    sys::make_pipe(&path(directory, lane))
}

impl Bell {
    /// A lane's own bell.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn open(directory: &Path, lane: u32) -> io::Result<Bell> {
        open(&path(directory, lane)).map(Bell)
    }

    /// Readable from the time that a neighbour rings until [`silence`](Self::silence).
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes it unreadable; whether it had been rung.
    pub(super) fn silence(&self) -> bool {
        let mut has_rung = false;
        for _ in 0..READS_MAX {
            let mut rings = [0; RINGS_TAKEN];
            // An error: it is empty.
            let count = (&self.0).read(&mut rings).unwrap_or(0);
            has_rung |= count > 0;
            if count < RINGS_TAKEN {
                break;
            }
        }
        has_rung
    }
}

impl BellPull {
    /// The bell of a neighbour's lane.
    ///
    /// # Errors
    /// It has none, or none that this process may ring.
    pub(super) fn open(directory: &Path, lane: u32) -> io::Result<BellPull> {
        open(&path(directory, lane)).map(BellPull)
    }

    /// Wakes the thread that listens; false if that takes another way.
    pub(super) fn pull(&self) -> bool {
        match (&self.0).write(&[1]) {
            Ok(count) => count == 1,
            // It is full of rings that no thread has heard yet.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

fn path(directory: &Path, lane: u32) -> PathBuf {
    directory.join(format!("bell-{lane}"))
}

fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no pipe"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("highwire-bell-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn it_is_readable_from_the_first_ring_until_it_is_silenced() {
        let folder = folder("rung");
        make(&folder, 3).expect("a bell");
        let bell = Bell::open(&folder, 3).expect("its own end");
        let pulls = [(); 2].map(|()| BellPull::open(&folder, 3).expect("its other end"));
        assert!(!bell.silence(), "no neighbour has rung");
        let is_readable = || sys::wait_readable(bell.fd(), 0).expect("the descriptor is open");
        assert!(!is_readable());
        // More than one read takes, and more than the pipe holds: none of them blocks.
        for count in [1, RINGS_TAKEN / 2 + 1, 100_000] {
            for _ in 0..count {
                pulls.iter().for_each(|pull| assert!(pull.pull()));
            }
            assert!(is_readable());
            while bell.silence() {}
            assert!(!is_readable());
        }
        // Neither end's death ends or breaks the other.
        drop(pulls);
        assert!(!is_readable() && !bell.silence());
        let pull = BellPull::open(&folder, 3).expect("its other end");
        drop(bell);
        assert!(pull.pull(), "and no signal");
        let _ = std::fs::remove_dir_all(folder);
    }

    #[test]
    fn what_is_no_pipe_is_no_bell() {
        let folder = folder("none");
        assert!(BellPull::open(&folder, 0).is_err(), "there is nothing");
        std::fs::write(folder.join("bell-0"), "text").expect("a file");
        assert!(BellPull::open(&folder, 0).is_err(), "a file");
        assert!(make(&folder, 0).is_err(), "and its name is taken");
        make(&folder, 1).expect("a bell");
        std::os::unix::fs::symlink(folder.join("bell-1"), folder.join("bell-2")).expect("a link");
        assert!(BellPull::open(&folder, 2).is_err(), "a link");
        let _ = std::fs::remove_dir_all(folder);
    }
}
