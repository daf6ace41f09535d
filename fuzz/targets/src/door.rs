//! A program behind the door that sends any bytes and writes any bytes into its mapped memory.
//!
//! The engine, its door and two well-behaved programs live as long as the process. Each input is a program of
//! its own: it connects, does what the input decides, and goes. Then the others still converse, no thread of
//! the engine has panicked, and no trace of the program is left.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use highwire_host::door::{Door, VERSION};
use highwire_host::{Device, DeviceConfig, Engine};
use highwire_rings::{CompletionQueueConsumer, ReceiveQueueProducer, SendQueueProducer};
use highwire_shmem::{DoorbellBoard, Segment, Window};
use highwire_verbs::{
    Completion, CompletionStatus, LocalKey, Operation, RecvWr, Remote, RemoteKey, SendWr, Sge,
};

use crate::ops::Decisions;

const MAGIC: u64 = u64::from_le_bytes(*b"HWDOOR\0\0");
const PATIENCE: Duration = Duration::from_secs(60);
const ARENA_BYTES: u64 = 1 << 14;
/// The bytes of a board's magic number and size; programs that connect later have to be able to read them.
const BOARD_HEADER_BYTES: u64 = 16;
/// Ringing again helps if a hostile program has wiped a bell away.
const RING_AGAIN: Duration = Duration::from_millis(2);

/// How often a thread of the engine's has panicked.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// The engine, and the programs that must not notice anything.
struct Stage {
    _device: Device,
    door: Door,
    programs: [Program; 2],
    pairs: [Pair; 2],
    rounds: u64,
    files: usize,
}

struct Program {
    socket: UnixStream,
    directory: PathBuf,
    board: DoorbellBoard,
    board_window: Window,
    gid: [u64; 2],
    waker: UdpSocket,
}

/// A queue pair with all objects that it needs.
struct Pair {
    handle: u64,
    qpn: u64,
    psn: u64,
    key: u32,
    iova: u64,
    bells: [u32; 2],
    /// The send ring, the receive ring, the completion ring, registered memory.
    windows: [Window; 4],
}

/// One input.
pub(crate) fn door(input: &[u8]) {
    static STAGE: OnceLock<Mutex<Stage>> = OnceLock::new();
    let stage = STAGE.get_or_init(|| Mutex::new(Stage::open()));
    // A finding leaves the stage as it is, so that the next input may reveal more.
    let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
    vandalise(&stage.door, &mut Decisions::new(input));
    stage.converse();
    check_threads();
    stage.until("the end of the session", |stage| stage.door.sessions() == 2);
    stage.until("the end of its files", |stage| files(&stage.door) == stage.files);
}

/// A panic in a thread of the engine ends it, or a session, even if everything else seems to work.
fn check_threads() {
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a thread of the engine has panicked");
}

fn files(door: &Door) -> usize {
    let directory = door.path().parent().expect("the device's directory");
    std::fs::read_dir(directory).expect("is there").count()
}

impl Stage {
    fn open() -> Stage {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name().is_some_and(|name| name.starts_with("highwire")) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            told(info);
        }));
        let config = DeviceConfig { has_door: true, engine: Engine::Background, ..DeviceConfig::default() };
        let device = Device::open(&config).expect("a device");
        let door = Door::open(&device).expect("a door");
        let mut programs = [Program::connect(&door), Program::connect(&door)];
        let pairs = [programs[0].pair(2).expect("a pair"), programs[1].pair(2).expect("a pair")];
        assert!(programs[0].connect_to(&pairs[0], &pairs[1]), "they connect");
        assert!(programs[1].connect_to(&pairs[1], &pairs[0]), "they connect");
        let mut stage = Stage { _device: device, door, programs, pairs, rounds: 0, files: 0 };
        // The first packet between the two leaves a file, too.
        stage.converse();
        stage.files = files(&stage.door);
        stage
    }

    fn until(&self, what: &str, mut is_so: impl FnMut(&Stage) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            check_threads();
            assert!(start.elapsed() < PATIENCE, "{what} did not come to pass");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// A SEND and a READ between the two.
    fn converse(&mut self) {
        self.rounds += 1;
        let [here, there] = &self.pairs;
        let mut receives = ReceiveQueueProducer::attach(&there.windows[1]).expect("a sound ring");
        let receive = RecvWr { wr_id: self.rounds, sges: &[there.sge(0, 64)] };
        receives.post(&receive).expect("room");
        receives.publish_release();
        here.windows[3].u64_at(0).store(self.rounds, Ordering::Relaxed);
        let remote = Remote { va: there.iova, rkey: RemoteKey(there.key) };
        let mut sends = SendQueueProducer::attach(&here.windows[0]).expect("a sound ring");
        for (wr_id, operation, sge) in [
            (self.rounds, Operation::Send, here.sge(0, 16)),
            (self.rounds + 1, Operation::Read(remote), here.sge(64, 16)),
        ] {
            sends.post(&SendWr::new(wr_id, operation, &[sge])).expect("room");
        }
        sends.publish_release();
        for (at, wr_id) in [(1, self.rounds), (0, self.rounds), (0, self.rounds + 1)] {
            let found = self.completion(at);
            assert_eq!((found.wr_id, found.status), (wr_id, CompletionStatus::Success), "the others work on");
        }
        let brought = self.pairs[0].windows[3].u64_at(64).load(Ordering::Relaxed);
        assert_eq!(brought, self.rounds, "what was sent was read back");
    }

    fn completion(&self, at: usize) -> Completion {
        let mut consumer = CompletionQueueConsumer::attach(&self.pairs[at].windows[2]).expect("a sound ring");
        let start = Instant::now();
        let mut rung = None;
        loop {
            if let Some(found) = consumer.poll().expect("a sound ring") {
                return found.completion;
            }
            if rung.is_none_or(|rung: Instant| rung.elapsed() > RING_AGAIN) {
                self.programs[0].ring(self.pairs[0].bells[0]);
                self.programs[1].ring(self.pairs[1].bells[1]);
                rung = Some(Instant::now());
            }
            check_threads();
            assert!(start.elapsed() < PATIENCE, "no completion came");
            std::thread::yield_now();
        }
    }
}

impl Program {
    fn connect(door: &Door) -> Program {
        let mut socket = UnixStream::connect(door.path()).expect("the door is open");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let words = ask(&mut socket, 1, &[MAGIC, VERSION]).expect("welcome");
        let directory = door.path().parent().expect("a directory").to_path_buf();
        let board_window = map(&directory, words[5], words[6]).expect("a board");
        let board = DoorbellBoard::attach(&board_window).expect("a board");
        let waker = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let gid = [words[3], words[4]];
        let bytes: [u8; 16] = std::array::from_fn(|at| gid[at / 8].to_le_bytes()[at % 8]);
        waker.connect((Ipv6Addr::from(bytes).to_canonical(), words[7] as u16)).expect("an address");
        Program { socket, directory, board, board_window, gid, waker }
    }

    fn ask(&mut self, kind: u16, words: &[u64]) -> Option<Vec<u64>> {
        ask(&mut self.socket, kind, words)
    }

    fn ring(&self, bell: u32) {
        self.board.ring_seqcst(bell);
        let _ = self.waker.send(&[]);
    }

    /// A queue pair and its objects; `None` if the engine refuses any of them.
    fn pair(&mut self, service: u64) -> Option<Pair> {
        let pd = self.ask(3, &[])?[0];
        let arena = self.ask(5, &[ARENA_BYTES])?;
        let iova = 0x7000_0000_0000 + (arena[0] << 32);
        let region = self.ask(7, &[pd, arena[0], 0, ARENA_BYTES, iova, 0b1111])?;
        let cq = self.ask(9, &[16, 0])?;
        // Those of RC leave their receives in the ring.
        let takes = u64::from(service == 2);
        let qp = self.ask(13, &[pd, service, cq[0], cq[0], 0, 8, 8, 2 | 2 << 32, 32, 0, takes])?;
        let files = [(qp[3], qp[4]), (qp[6], qp[7]), (cq[1], cq[2]), (arena[1], arena[2])];
        let windows = files.map(|(segment, bytes)| map(&self.directory, segment, bytes));
        let [Some(sq), Some(rq), Some(cq), Some(memory)] = windows else { return None };
        Some(Pair {
            handle: qp[0],
            qpn: qp[1],
            psn: qp[2],
            key: region[1] as u32,
            iova,
            bells: [qp[5] as u32, qp[8] as u32],
            windows: [sq, rq, cq, memory],
        })
    }

    fn modify(&mut self, pair: &Pair, mask: u64, set: &[(usize, u64)]) -> bool {
        let mut words = [0; 19];
        (words[0], words[1]) = (pair.handle, mask);
        set.iter().for_each(|&(at, word)| words[1 + at] = word);
        self.ask(15, &words).is_some()
    }

    /// From RESET to RTS (the numbers are those of `ibv_qp_attr_mask`).
    fn connect_to(&mut self, pair: &Pair, peer: &Pair) -> bool {
        let path = [(1, 2), (4, self.gid[0]), (5, self.gid[1]), (6, 64), (7, peer.qpn), (8, 1024)];
        let rtr = [&path[..], &[(9, peer.psn), (11, 16), (13, 12)]].concat();
        let rts = [(1, 3), (10, pair.psn), (12, 16), (14, 14), (15, 7), (16, 7)];
        self.modify(pair, 1 | 8, &[(1, 1), (2, 0b1111)])
            && self.modify(pair, 1 | 1 << 7 | 1 << 20 | 1 << 8 | 1 << 12 | 1 << 17 | 1 << 15, &rtr)
            && self.modify(pair, 1 | 1 << 16 | 1 << 13 | 1 << 9 | 1 << 10 | 1 << 11, &rts)
    }
}

impl Pair {
    fn sge(&self, at: u64, length: u32) -> Sge {
        Sge { addr: self.iova + at, length, lkey: LocalKey(self.key) }
    }

    /// A correct request, which bytes written into the ring meanwhile may spoil.
    fn post(&self, choice: u8) {
        let remote = Remote { va: self.iova + 256, rkey: RemoteKey(self.key) };
        let operation = match choice % 4 {
            0 => Operation::Send,
            1 => Operation::Write(remote),
            2 => Operation::Read(remote),
            _ => Operation::FetchAdd { remote, add: 1 },
        };
        if let Ok(mut sends) = SendQueueProducer::attach(&self.windows[0]) {
            let _ = sends.post(&SendWr::new(u64::from(choice), operation, &[self.sge(0, 8)]));
            sends.publish_release();
        }
        if let Ok(mut receives) = ReceiveQueueProducer::attach(&self.windows[1]) {
            let _ = receives.post(&RecvWr { wr_id: u64::from(choice), sges: &[self.sge(0, 64)] });
            receives.publish_release();
        }
    }
}

/// Connects, does what the input decides, and goes.
fn vandalise(door: &Door, decisions: &mut Decisions<'_>) {
    let mut program = Program::connect(door);
    let mut pairs: Vec<Pair> = Vec::new();
    while step(&mut program, &mut pairs, decisions).is_some() {}
}

fn step(program: &mut Program, pairs: &mut Vec<Pair>, decisions: &mut Decisions<'_>) -> Option<()> {
    let choice = decisions.byte()?;
    let which = usize::from(choice >> 4);
    let pair = pairs.get(which % pairs.len().max(1));
    match (choice % 16, pair) {
        (0, _) | (4..=12, None) => {
            let made = program.pair([2, 2, 3, 4][which % 4])?;
            let peer = pairs.last().unwrap_or(&made);
            program.connect_to(&made, peer);
            pairs.push(made);
        }
        (1..=3, _) => {
            let kind = u16::from(decisions.byte()? % 20);
            let count = decisions.byte()? % 20;
            let words = (0..count).map(|_| word(decisions)).collect::<Option<Vec<u64>>>()?;
            program.ask(kind, &words);
        }
        (4..=8, Some(pair)) => {
            let window = &pair.windows[usize::from(decisions.byte()? % 3)];
            let at = usize::from(decisions.short()?) * 8 % window.len();
            window.u64_at(at).store(word(decisions)?, Ordering::SeqCst);
        }
        (9 | 10, Some(pair)) => pair.post(decisions.byte()?),
        (11 | 12, Some(pair)) => {
            pair.bells.iter().for_each(|bell| program.ring(*bell));
            std::thread::yield_now();
        }
        (13, _) => {
            let words = program.board_window.len() as u64 - BOARD_HEADER_BYTES;
            let at = BOARD_HEADER_BYTES + u64::from(decisions.short()?) * 8 % words;
            program.board_window.u64_at(at as usize).store(word(decisions)?, Ordering::SeqCst);
        }
        (14, _) => program.ring(u32::from(decisions.short()?)),
        _ if which > 0 => drop(program.waker.send(&[])),
        _ => {
            // Bytes that are no frame end the conversation.
            let bytes: Vec<u8> = (0..decisions.byte()? % 64).map_while(|_| decisions.byte()).collect();
            let _ = program.socket.write_all(&bytes);
            return None;
        }
    }
    Some(())
}

/// A small number, one near the largest, or any.
fn word(decisions: &mut Decisions<'_>) -> Option<u64> {
    Some(match decisions.byte()? % 8 {
        0..=3 => u64::from(decisions.byte()?),
        4 => u64::MAX - u64::from(decisions.byte()?),
        5 => 1 << (decisions.byte()? % 64),
        6 => u64::from(decisions.wide()?),
        _ => {
            u64::from(decisions.wide()?) << 40
                | u64::from(decisions.wide()?) << 16
                | u64::from(decisions.short()?)
        }
    })
}

/// Sends a request. A well-formed one is always answered; `None` is a refusal.
fn ask(socket: &mut UnixStream, kind: u16, words: &[u64]) -> Option<Vec<u64>> {
    let mut frame = ((words.len() * 8) as u64 | u64::from(kind) << 32).to_le_bytes().to_vec();
    words.iter().for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
    socket.write_all(&frame).expect("the door listens");
    let mut header = [0; 8];
    socket.read_exact(&mut header).expect("an answer");
    let header = u64::from_le_bytes(header);
    assert_eq!((header >> 32) as u16, kind, "the answer to this question");
    let mut body = vec![0; header as u32 as usize];
    socket.read_exact(&mut body).expect("all of it");
    let (words, _) = body.as_chunks::<8>();
    ((header >> 48) as u16 == 0).then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn map(directory: &Path, segment: u64, bytes: u64) -> Option<Window> {
    let segment = Segment::open(&directory.join(format!("mem-{segment}"))).ok()?;
    (segment.len() as u64 == bytes).then(|| Window::whole(&Arc::new(segment)))
}
