//! Records of what devices did, as damage may leave them.

use std::io::Cursor;
use std::sync::{Arc, OnceLock};

use highwire_record::{
    About, Event, HEADER_BYTES, Packet, PacketFate, Part, Reader, Recorder, Request, Shape, create,
};
use highwire_stdx::Instant;
use highwire_verbs::{Completion, CompletionOp, CompletionStatus, Gid, QpState, Service};
use highwire_wire::cm::CmAttribute;
use highwire_wire::{Qpn, Syndrome};

const ENTRY_BYTES: usize = 64;
/// In the header of a part: how many entries are kept, and how many the ring has had.
const KEPT: usize = HEADER_BYTES as usize + 128;
const WRITTEN: usize = HEADER_BYTES as usize + 256;
/// Where the kept entries begin, and the ring behind them.
const ENTRIES: usize = 2 * HEADER_BYTES as usize;
const KEPT_MAX: usize = 4096;
/// In front of an input's entries: how many of them are kept, the two counts, and how much of the file is cut off.
const HEAD_BYTES: usize = 1 + 2 + 8 + 2;

/// A record of one process with one of each kind of entry, and how many of them are kept.
struct Whole {
    file: Vec<u8>,
    kept: usize,
    written: usize,
}

fn whole() -> &'static Whole {
    static WHOLE: OnceLock<Whole> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("highwire-fuzz-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("r.hwr");
        create(&path, Shape::of_bytes(0)).expect("a file");
        let recorder = Arc::new(Recorder::open(&path).expect("a part"));
        write(&recorder);
        let mut file = std::fs::read(&path).expect("it is there");
        // A file is as long as what was written last; a reader may find all of it.
        file.resize(ENTRIES + (KEPT_MAX + Shape::of_bytes(0).ring_entries() as usize) * ENTRY_BYTES, 0);
        std::fs::remove_dir_all(&folder).expect("it is there");
        let count = |at: usize| {
            usize::try_from(u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes")))
                .expect("a few entries")
        };
        let (kept, written) = (count(KEPT), count(WRITTEN));
        assert!(kept > 3 && written > 3 && kept + written < 40, "the counts are where the format has them");
        Whole { file, kept, written }
    })
}

/// One of each kind.
fn write(recorder: &Arc<Recorder>) {
    let gid = Gid::from_ip([127, 0, 0, 9].into());
    let tap = recorder.device(gid, "mlx5_0", Instant::ZERO);
    let at = Instant::from_nanos;
    tap.keep(
        at(1),
        &Event::State {
            qpn: 17,
            service: Service::Rc,
            from: QpState::Init,
            to: QpState::Rtr,
            peer_qpn: 18,
            peer: gid,
            retry_count: 7,
            rnr_retry: 7,
            timeout: 14,
        },
    );
    tap.posted(
        at(2),
        Request {
            qpn: 17,
            wr_id: u64::MAX,
            operation: CompletionOp::Write,
            length: 4096,
            signaled: true,
            direct: false,
            va: 0x7F00_0000_0000,
            rkey: 0x1234,
            to_qpn: 0,
        },
    );
    tap.receive_posted(at(3), 17, 5, 64);
    for (fate, syndrome) in [
        (PacketFate::Sent, None),
        (PacketFate::Received, Some(Syndrome::Rnr { timer: 3 })),
        (PacketFate::FaultLost, None),
    ] {
        let packet = Packet {
            fate,
            qpn: 17,
            to_qpn: 18,
            opcode: 4,
            psn: 9,
            length: 64,
            syndrome,
            peer: gid,
            management: None,
        };
        tap.packet(at(4), packet);
    }
    tap.packet(
        at(5),
        Packet {
            fate: PacketFate::Received,
            qpn: 1,
            to_qpn: 1,
            opcode: 0x64,
            psn: 1,
            length: 256,
            syndrome: None,
            peer: gid,
            management: Some(CmAttribute::Rep),
        },
    );
    tap.completed(
        at(5),
        &Completion::new(1, CompletionStatus::RemoteAccess, CompletionOp::Write, Qpn::new(17)),
    );
    tap.text(
        at(6),
        About::Denial,
        17,
        "queue pair 0x12 refuses a peer's WRITE of 4096 bytes, and says why at length",
    );
    recorder.text(About::Trouble, 0, "short");
    tap.keep(at(7), &Event::Destroyed { qpn: 17 });
}

/// The whole record's entries as an input.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let Whole { file, kept, written } = whole();
    let entries = |first: usize, count: usize| {
        let begin = ENTRIES + first * ENTRY_BYTES;
        &file[begin..begin + count * ENTRY_BYTES]
    };
    let head = |written: u64, cut: u16| {
        let mut head = vec![*kept as u8];
        head.extend((*kept as u16).to_le_bytes());
        head.extend(written.to_le_bytes());
        head.extend(cut.to_le_bytes());
        head
    };
    let both = [entries(0, *kept), entries(KEPT_MAX, *written)].concat();
    let ring = Shape::of_bytes(0).ring_entries();
    let counts = [(*written as u64, 0), (*written as u64 + ring, 0), (u64::MAX, 0), (*written as u64, 900)];
    counts.into_iter().map(|(written, cut)| [head(written, cut), both.clone()].concat()).collect()
}

/// Entries of any bytes in a record with any counts, cut off anywhere; and the input as a file of its own.
pub(crate) fn record(input: &[u8]) {
    drop(Reader::new(Cursor::new(input)).map(check));
    let Some((head, entries)) = input.split_at_checked(HEAD_BYTES) else { return };
    let mut file = whole().file.clone();
    file[ENTRIES..].fill(0);
    file[KEPT..KEPT + 2].copy_from_slice(&head[1..3]);
    file[WRITTEN..WRITTEN + 8].copy_from_slice(&head[3..11]);
    for (index, entry) in entries.chunks(ENTRY_BYTES).take(KEPT_MAX).enumerate() {
        let kept = usize::from(head[0]);
        let place = if index < kept { index } else { KEPT_MAX + index - kept };
        let begin = ENTRIES + place * ENTRY_BYTES;
        if let Some(to) = file.get_mut(begin..begin + entry.len()) {
            to.copy_from_slice(entry);
        }
    }
    let cut = usize::from(u16::from_le_bytes([head[11], head[12]])) * 8;
    file.truncate(file.len().saturating_sub(cut));
    let has_header = file.len() >= HEADER_BYTES as usize;
    match Reader::new(Cursor::new(file)) {
        Ok(reader) => check(reader),
        Err(error) => assert!(!has_header, "its header is whole: {error}"),
    }
}

fn check<S: std::io::Read + std::io::Seek>(mut reader: Reader<S>) {
    let begin = reader.begin_ns().expect("memory can be read");
    let mut parts = 0;
    while let Some(part) = reader.next_part().expect("memory can be read") {
        assert!(begin.is_some_and(|begin| begin <= part.origin_ns));
        check_part(&part);
        parts += 1;
    }
    assert!(parts <= highwire_record::PARTS_MAX);
}

fn check_part(part: &Part) {
    // What is whole, what is damaged and what is gone are the places that were written, of which a line takes several.
    let ring = Shape::of_bytes(u64::MAX).ring_entries() as usize;
    assert!(part.entries.len() + part.damaged as usize <= KEPT_MAX + ring);
    assert!(part.entries.is_sorted_by_key(|entry| entry.time_ns));
    assert!(!part.name.contains(char::is_control));
    for entry in &part.entries {
        if let Event::Text { text, .. } | Event::Device { name: text, .. } = &entry.event {
            assert!(!text.contains(char::is_control), "{text:?}");
        }
        if let Event::Packet(packet) = &entry.event {
            assert!(!packet.name().is_empty());
        }
    }
}
