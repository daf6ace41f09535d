//! A record as its processes leave it, and as damage does.

use highwire_record::{
    About, Event, HEADER_BYTES, OpenError, PARTS_MAX, Packet, PacketFate, Part, ReadError, Reader, Recorder,
    Shape, create,
};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::{Completion, CompletionOp, CompletionStatus, Gid};
use highwire_wire::Qpn;
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("highwire-record-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn record(&self) -> PathBuf {
        let path = self.0.join("r.hwr");
        create(&path, Shape::of_bytes(0)).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gid() -> Gid {
    Gid::from_ip([127, 0, 0, 9].into())
}

fn packet(psn: u32) -> Packet {
    Packet {
        fate: PacketFate::Sent,
        qpn: 7,
        to_qpn: 8,
        opcode: 4,
        psn,
        length: 64,
        syndrome: None,
        peer: gid(),
        management: None,
    }
}

fn parts(bytes: &[u8]) -> Vec<Part> {
    let mut reader = Reader::new(Cursor::new(bytes)).expect("it is a record");
    std::iter::from_fn(|| reader.next_part().expect("memory can be read")).collect()
}

fn failure(wr_id: u64) -> Completion {
    Completion::new(wr_id, CompletionStatus::RemoteAccess, CompletionOp::Write, Qpn::new(7))
}

/// Whatever was written is there although nothing was closed, and the first cause outlives any traffic.
#[test]
fn the_first_cause_is_there_after_any_traffic() {
    let folder = Folder::new("traffic");
    let path = folder.record();
    let recorder = Arc::new(Recorder::open(&path).expect("a part"));
    let tap = recorder.device(gid(), "hw0", Instant::ZERO);
    let at = Instant::from_nanos;
    tap.completed(at(5), &failure(1));
    tap.text(at(6), About::Denial, 7, &format!("{}é", "a".repeat(300)));
    for psn in 0..10_000 {
        tap.packet(at(u64::from(psn) + 10), packet(psn));
    }
    // Not closed: as after SIGKILL.
    let bytes = fs::read(&path).expect("it is there");
    let [part] = &parts(&bytes)[..] else { panic!("one process") };
    assert_eq!((part.process, part.has_ended, part.damaged), (std::process::id(), false, 0));
    assert_eq!(part.dropped, 10_000 - Shape::of_bytes(0).ring_entries());
    let kept: Vec<_> = part.entries.iter().take(3).map(|entry| &entry.event).collect();
    assert!(matches!(kept[0], Event::Device { name, .. } if name == "hw0"));
    assert!(matches!(kept[1], Event::Completed { wr_id: 1, status: CompletionStatus::RemoteAccess, .. }));
    assert!(
        matches!(kept[2], Event::Text { about: About::Denial, qpn: 7, text } if text.len() == 302 && text.ends_with('é'))
    );
    let psns: Vec<u32> = part
        .entries
        .iter()
        .filter_map(|entry| match entry.event {
            Event::Packet(packet) => Some(packet.psn),
            _ => None,
        })
        .collect();
    let expected: Vec<u32> = (part.dropped as u32..10_000).collect();
    assert_eq!(psns, expected, "the last of the traffic, in order");
    recorder.note_end();
    assert!(parts(&fs::read(&path).expect("it is there"))[0].has_ended);
}

/// Each process has a part, up to the last; the others are counted. Here they are recorders of one process.
#[test]
fn parts_are_taken_until_there_are_no_more() {
    let folder = Folder::new("parts");
    let path = folder.record();
    let all: Vec<_> = (0..PARTS_MAX).map(|_| Recorder::open(&path).expect("a part")).collect();
    all.iter().for_each(|recorder| recorder.text(About::Trouble, 0, "x"));
    assert!(matches!(Recorder::open(&path), Err(OpenError::Full)));
    let bytes = fs::read(&path).expect("it is there");
    assert_eq!(Reader::new(Cursor::new(&bytes)).expect("a record").left_out(), 1);
    let parts = parts(&bytes);
    assert_eq!(parts.len() as u64, PARTS_MAX);
    assert!(parts.iter().all(|part| part.entries.len() == 1 && part.damaged == 0));
    fs::write(&path, vec![1; 8192]).expect("a file");
    assert!(matches!(Recorder::open(&path), Err(OpenError::NotARecord)));
}

/// Many lines fill what is kept; the next go on in the ring, and threads do not mix theirs.
#[test]
fn lines_of_several_threads_are_whole() {
    let folder = Folder::new("lines");
    let path = folder.record();
    let recorder = Recorder::open(&path).expect("a part");
    let line = |thread: usize, number: usize| format!("{thread} {number} {}", "x".repeat(37 * (number % 9)));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = &recorder;
            scope.spawn(move || {
                (0..400).for_each(|number| recorder.text(About::Refusal, 0, &line(thread, number)))
            });
        }
    });
    let parts = parts(&fs::read(&path).expect("it is there"));
    let part = &parts[0];
    assert_eq!(part.damaged, 0);
    assert!(part.dropped > 0, "the ring has overflown as well");
    for entry in &part.entries {
        let Event::Text { text, .. } = &entry.event else { panic!("{entry:?}") };
        let numbers: Vec<usize> = text.split(' ').take(2).filter_map(|word| word.parse().ok()).collect();
        assert_eq!(*text, line(numbers[0], numbers[1]));
    }
}

fn small_record(folder: &Folder) -> Vec<u8> {
    let path = folder.record();
    let recorder = Arc::new(Recorder::open(&path).expect("a part"));
    let tap = recorder.device(gid(), "hw0", Instant::ZERO);
    for number in 0..1500 {
        let now = Instant::from_nanos(number);
        tap.packet(now, packet(number as u32));
        if number % 100 == 0 {
            tap.completed(now, &failure(number));
            tap.text(now, About::Trouble, 7, &"a line that is longer than one entry ".repeat(4));
        }
    }
    fs::read(&path).expect("it is there")
}

/// An entry that was begun and not ended is left out, and its neighbours are not.
#[test]
fn a_torn_entry_is_left_out() {
    let folder = Folder::new("torn");
    let mut bytes = small_record(&folder);
    let whole = parts(&bytes)[0].entries.len();
    let last = bytes.len() - 64;
    bytes[last..last + 8].fill(0);
    let torn = &parts(&bytes)[0];
    assert_eq!((torn.entries.len(), torn.damaged), (whole - 1, 1));
    // A place that was taken and not yet written has the entry of a round before.
    let stamp = 5u64 | 7 << 48;
    bytes[last..last + 8].copy_from_slice(&stamp.to_le_bytes());
    let stale = &parts(&bytes)[0];
    assert_eq!((stale.entries.len(), stale.damaged), (whole - 1, 1));
}

/// Cut off anywhere, with any bytes changed: entries or an error, and never more of them than there is room for.
#[test]
fn no_damage_is_too_strange() {
    let folder = Folder::new("damage");
    let bytes = small_record(&folder);
    let whole = parts(&bytes)[0].entries.len();
    let mut rng = Rng::new(9);
    for round in 0..400 {
        let mut damaged = bytes.clone();
        for _ in 0..rng.between(1, 40) {
            // Mostly where counts and stamps are.
            let most = if round % 2 == 0 { HEADER_BYTES * 2 + 512 } else { bytes.len() as u64 };
            let at = rng.between(8, most - 1) as usize;
            damaged[at] = rng.next_u32() as u8;
        }
        damaged.truncate(rng.between(0, bytes.len() as u64) as usize);
        let Ok(mut reader) = Reader::new(Cursor::new(&damaged)) else { continue };
        while let Some(part) = reader.next_part().expect("memory can be read") {
            assert!(part.entries.len() < 4 * whole, "{}", part.entries.len());
        }
    }
    let other = [&bytes[..8], &[9, 0, 0, 0], &bytes[12..]].concat();
    assert!(matches!(Reader::new(Cursor::new(&other)), Err(ReadError::OtherVersion(9))));
    assert!(matches!(Reader::new(Cursor::new(b"pcap")), Err(ReadError::NotARecord)));
    assert!(matches!(Reader::new(Cursor::new(&bytes[..20])), Err(ReadError::BadHeader)));
}
