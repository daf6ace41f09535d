//! Segments that two parties map, and the allocator over them.
#![cfg(not(miri))] // Mappings are the kernel's.

use std::path::PathBuf;
use std::sync::Arc;

use highwire_shmem::*;
use highwire_stdx::Rng;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = PathBuf::from(format!("/dev/shm/highwire-shmem-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_memory_file_can_be_passed_on_and_not_be_shrunk() {
    let first = Segment::anonymous_shared(5000).unwrap();
    assert_eq!(first.len(), 8192);
    let file = std::fs::File::from(first.file().unwrap().try_clone_to_owned().unwrap());
    assert!(file.set_len(0).is_err());
    let second = Window::whole(&Arc::new(Segment::from_file(file).unwrap()));
    let first = Window::whole(&Arc::new(first.without_file()));
    first.copy_in(4990, b"shared");
    let mut seen = [0; 6];
    second.copy_out(4990, &mut seen);
    assert_eq!(&seen, b"shared");
}

#[test]
fn what_is_no_segment_is_not_mapped() {
    let scratch = Scratch::new("no-segment");
    let empty = scratch.0.join("empty");
    std::fs::write(&empty, "").unwrap();
    let link = scratch.0.join("link");
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    for path in [&empty, &link, &scratch.0, &scratch.0.join("absent")] {
        assert!(Segment::open(path).is_err(), "{}", path.display());
    }
    assert!(Segment::create_file(&scratch.0.join("huge"), usize::MAX - 5000, 0o600).is_err());
    assert!(!scratch.0.join("huge").exists(), "a half-made file is removed");
}

fn check_pool(pool: &SharedPool, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut buffers: Vec<(SharedBuffer, u8)> = Vec::new();
    for _ in 0..3_000 {
        if rng.chance(0.55) || buffers.is_empty() {
            let longest = *rng.pick(&[1, 100, 5000, 300_000]);
            let len = rng.between(1, longest) as usize;
            let align = 1 << rng.below(14);
            let buffer = pool.allocate(len, align).unwrap();
            assert_eq!(buffer.as_ptr().addr() % align.max(64), 0);
            assert_eq!(buffer.len(), len);
            assert_eq!(pool.locate(buffer.as_ptr(), len), Some((buffer.segment_id(), buffer.offset())));
            let mark = rng.next_u32() as u8;
            buffer.write(0, &vec![mark; len]).unwrap();
            buffers.push((buffer, mark));
        } else {
            let (buffer, mark) = buffers.swap_remove(rng.below(buffers.len() as u64) as usize);
            let mut bytes = vec![0; buffer.len()];
            buffer.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == mark), "buffers overlap");
        }
        if buffers.len() > 60 {
            buffers.drain(..30);
        }
    }
    buffers.clear();
    assert!(pool.mapped_bytes() <= 64 << 20, "one segment is kept, the rest goes");
}

#[test]
fn buffers_never_overlap_and_segments_go_when_empty() {
    check_pool(&SharedPool::anonymous(), 1);
    let scratch = Scratch::new("pool");
    let pool = SharedPool::in_directory(&scratch.0);
    check_pool(&pool, 2);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    drop(pool);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn wrong_requests_and_ranges_are_errors() {
    let pool = SharedPool::anonymous();
    for (len, align) in [(0, 1), (1, 3), (1, 0x30), (usize::MAX, 1), (isize::MAX as usize, 1), (1, 1 << 40)] {
        assert!(matches!(pool.allocate(len, align), Err(PoolError::Invalid)), "{len} {align}");
    }
    let buffer = pool.allocate(100, 0x10000).unwrap();
    assert_eq!(buffer.as_ptr().addr() % 0x10000, 0);
    assert!(buffer.write(99, &[1]).is_ok());
    assert!(buffer.write(100, &[1]).is_err() && buffer.read(usize::MAX, &mut [0]).is_err());
}

/// A peer may still write to what is given back in a retired segment.
#[test]
fn nothing_is_cut_from_a_retired_segment_and_it_goes_with_its_last_buffer() {
    let scratch = Scratch::new("retired");
    let pool = SharedPool::in_directory(&scratch.0);
    let (first, second) = (pool.allocate(4096, 4096).unwrap(), pool.allocate(4096, 4096).unwrap());
    let retired = first.segment_id();
    assert_eq!(second.segment_id(), retired, "there is room for both");
    pool.retire(first.as_ptr());
    let others: Vec<_> = (0..64).map(|_| pool.allocate(4096, 4096).unwrap()).collect();
    assert!(others.iter().all(|other| other.segment_id() != retired), "there was room, but not for this");
    drop(first);
    let again = pool.allocate(4096, 4096).unwrap();
    assert_ne!(again.segment_id(), retired, "nor is there where one was given back");
    let files = || std::fs::read_dir(&scratch.0).unwrap().count();
    let before = files();
    assert_eq!(pool.locate(second.as_ptr(), 1).map(|(id, _)| id), Some(retired));
    drop(second);
    assert_eq!(files(), before - 1, "it has gone with its last buffer");
    assert!(again.write(0, &[1]).is_ok());
}
