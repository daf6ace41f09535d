//! One ring in a file that two parties map.
#![cfg(not(miri))] // Mappings are the kernel's.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use highwire_rings::*;
use highwire_shmem::*;
use highwire_verbs::{Operation, SendWr};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = PathBuf::from(format!("/dev/shm/highwire-rings-{}-{name}", std::process::id()));
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
fn two_mappings_of_one_file_are_one_ring() {
    let scratch = Scratch::new("two");
    let path = scratch.0.join("ring");
    let layout = RingLayout::new(SEND_RING, 8, 128).unwrap();
    let ours = Window::whole(&Arc::new(Segment::create_file(&path, layout.bytes(), 0o600).unwrap()));
    layout.create(&ours).unwrap();
    let theirs = Window::whole(&Arc::new(Segment::open(&path).unwrap()));
    let mut producer = SendQueueProducer::attach(&ours).unwrap();
    let mut consumer = SendQueueConsumer::attach(&theirs).unwrap();
    producer.post_inline(&SendWr::new(5, Operation::Send, &[]), b"hello").unwrap();
    assert!(consumer.peek().unwrap().is_none(), "not published yet");
    assert!(producer.publish_release() && !producer.publish_release());
    let slot = consumer.peek().unwrap().unwrap();
    let found = slot.request(&[]).unwrap();
    assert_eq!((found.wr_id, found.operation), (5, Operation::Send));
    assert_eq!(slot.inline(&mut [0; 256]), b"hello");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Segment::create_file(&path, 1, 0o600).is_err(), "it exists");
}
