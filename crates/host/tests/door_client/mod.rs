//! A program behind the door, as one in another language would be: a socket, and files that it maps.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use highwire_host::door::{Door, VERSION};
use highwire_rings::{Arm, CompletionQueueConsumer, ReceiveQueueProducer, SendQueueProducer};
use highwire_shmem::{DoorbellBoard, Segment, Window};
use highwire_verbs::{Completion, LocalKey, RecvWr, SendWr, Sge};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const MAGIC: u64 = u64::from_le_bytes(*b"HWDOOR\0\0");
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const QKEY: u32 = 0x1234_5678;

/// Numbers of refusals.
pub mod status {
    pub const VERSION: u16 = 1;
    pub const MALFORMED: u16 = 2;
    pub const NO_SUCH_OBJECT: u16 = 3;
    pub const IN_USE: u16 = 4;
    pub const REFUSED: u16 = 5;
    pub const NO_MEMORY: u16 = 6;
}

type Answer = Result<Vec<u64>, (u16, String)>;

pub struct Client {
    pub socket: UnixStream,
    pub board: DoorbellBoard,
    pub gid: [u8; 16],
    directory: PathBuf,
    token: u64,
    waker: UdpSocket,
}

/// A queue pair with all that it needs, as handles and mappings.
pub struct RawQueuePair {
    pub handle: u64,
    pub pd: u64,
    pub cq: u64,
    pub arena: u64,
    pub region: u64,
    pub key: u32,
    pub iova: u64,
    pub qpn: u32,
    /// Zero for none.
    pub srq: u64,
    pub send_bell: u32,
    pub receive_bell: u32,
    pub sq_window: Window,
    pub rq_window: Window,
    pub cq_window: Window,
    pub memory: Memory,
    psn: u64,
    sq: SendQueueProducer,
    rq: ReceiveQueueProducer,
    consumer: CompletionQueueConsumer,
}

pub struct Memory(Window);

impl Memory {
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.0.copy_in(at, bytes);
    }

    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.copy_out(at, &mut bytes);
        bytes
    }
}

impl Client {
    pub fn greet(door: &Door, words: &[u64]) -> Answer {
        let mut socket = UnixStream::connect(door.path()).expect("the door is open");
        ask(&mut socket, 1, words)
    }

    pub fn connect(door: &Door) -> Client {
        let mut socket = UnixStream::connect(door.path()).expect("the door is open");
        let words = ask(&mut socket, 1, &[MAGIC, VERSION]).expect("welcome");
        let directory = door.path().parent().expect("a directory").to_path_buf();
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&words[3].to_le_bytes());
        gid[8..].copy_from_slice(&words[4].to_le_bytes());
        let board = DoorbellBoard::attach(&map(&directory, words[5], words[6])).expect("a board");
        let waker = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address: std::net::Ipv6Addr = gid.into();
        waker.connect((address.to_canonical(), words[7] as u16)).expect("an address");
        Client { socket, board, gid, directory, token: words[1], waker }
    }

    pub fn ask(&mut self, kind: u16, words: &[u64]) -> Answer {
        ask(&mut self.socket, kind, words)
    }

    pub fn wake(&self) {
        let _ = self.waker.send(&[]);
    }

    /// The engine's pipe, by which a program wakes it that took `sleeping` from the board.
    pub fn pipe(&self) -> std::fs::File {
        let options = std::fs::OpenOptions::new().read(true).write(true).open(self.directory.join("bell-0"));
        options.expect("the pipe of lane 0")
    }

    pub fn ring(&self, bell: u32) {
        if self.board.ring_seqcst(bell) {
            self.wake();
        }
    }

    /// A connection for events; it is channel 1 of the session.
    pub fn events(&self, door: &Door) -> UnixStream {
        let mut socket = UnixStream::connect(door.path()).expect("the door is open");
        assert_eq!(ask(&mut socket, 2, &[MAGIC, VERSION, self.token]), Ok(vec![1]));
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        socket
    }

    /// One more connection for events, and its number.
    pub fn another_channel(&self, door: &Door) -> (u64, UnixStream) {
        let mut socket = UnixStream::connect(door.path()).expect("the door is open");
        let words = ask(&mut socket, 2, &[MAGIC, VERSION, self.token]).expect("a channel");
        (words[0], socket)
    }

    pub fn queue_pair(&mut self, service: u64) -> RawQueuePair {
        self.queue_pair_with_channel(service, 0)
    }

    /// A queue pair whose receives stay in their ring until a message needs them.
    pub fn queue_pair_on_demand(&mut self) -> RawQueuePair {
        self.queue_pair_of(2, 0, 1)
    }

    pub fn queue_pair_with_channel(&mut self, service: u64, channel: u64) -> RawQueuePair {
        self.queue_pair_of(service, channel, 0)
    }

    /// A queue pair with a shared receive queue, whose ring and bell it then uses, that asks for receives on
    /// demand as well.
    pub fn queue_pair_that_shares(&mut self) -> RawQueuePair {
        self.queue_pair_with(2, 0, 1, true)
    }

    fn queue_pair_of(&mut self, service: u64, channel: u64, takes: u64) -> RawQueuePair {
        self.queue_pair_with(service, channel, takes, false)
    }

    fn queue_pair_with(&mut self, service: u64, channel: u64, takes: u64, shares: bool) -> RawQueuePair {
        let pd = self.ask(3, &[]).expect("a domain")[0];
        let arena = self.ask(5, &[1 << 16]).expect("an arena");
        // The program chooses the addresses; these are not mapped.
        let iova = 0x7000_0000_0000 + (arena[0] << 32);
        let region = self.ask(7, &[pd, arena[0], 0, 1 << 16, iova, 0b1111]).expect("a region");
        let cq = self.ask(9, &[64, channel]).expect("a completion queue");
        let shared = shares.then(|| self.ask(11, &[pd, 16, 2]).expect("a shared receive queue"));
        let srq = shared.as_ref().map_or(0, |shared| shared[0]);
        let qp = self
            .ask(13, &[pd, service, cq[0], cq[0], srq, 16, 16, 4 | 3 << 32, 64, 0, takes])
            .expect("a queue pair");
        let sq_window = map(&self.directory, qp[3], qp[4]);
        let receives = shared.map_or([qp[6], qp[7], qp[8]], |shared| [shared[1], shared[2], shared[3]]);
        let rq_window = map(&self.directory, receives[0], receives[1]);
        let cq_window = map(&self.directory, cq[1], cq[2]);
        RawQueuePair {
            handle: qp[0],
            pd,
            cq: cq[0],
            arena: arena[0],
            region: region[0],
            key: region[1] as u32,
            iova,
            qpn: qp[1] as u32,
            psn: qp[2],
            send_bell: qp[5] as u32,
            receive_bell: receives[2] as u32,
            srq,
            sq: SendQueueProducer::attach(&sq_window).expect("a ring"),
            rq: ReceiveQueueProducer::attach(&rq_window).expect("a ring"),
            consumer: CompletionQueueConsumer::attach(&cq_window).expect("a ring"),
            sq_window,
            rq_window,
            cq_window,
            memory: Memory(map(&self.directory, arena[1], arena[2])),
        }
    }

    pub fn modify(&mut self, qp: &RawQueuePair, mask: u64, set: &[(usize, u64)]) {
        let mut words = [0; 19];
        (words[0], words[1]) = (qp.handle, mask);
        set.iter().for_each(|&(at, word)| words[1 + at] = word);
        assert_eq!(self.ask(15, &words), Ok(vec![]));
    }

    /// From RESET to RTS (the numbers are those of `ibv_qp_attr_mask`).
    pub fn connect_to(&mut self, qp: &RawQueuePair, peer: &RawQueuePair) {
        self.connect_across(qp, peer, self.gid);
    }

    /// The same to a peer whose device has the address `gid`.
    pub fn connect_across(&mut self, qp: &RawQueuePair, peer: &RawQueuePair, gid: [u8; 16]) {
        let word = |range: std::ops::Range<usize>| u64::from_le_bytes(gid[range].try_into().expect("eight"));
        self.modify(qp, 1 | 8, &[(1, 1), (2, 0b1111)]);
        let path = [(1, 2), (4, word(0..8)), (5, word(8..16)), (6, 64), (7, u64::from(peer.qpn)), (8, 1024)];
        let rtr = [&path[..], &[(9, peer.psn), (11, 16), (13, 12)]].concat();
        self.modify(qp, 1 | 1 << 7 | 1 << 20 | 1 << 8 | 1 << 12 | 1 << 17 | 1 << 15, &rtr);
        let rts = [(1, 3), (10, qp.psn), (12, 16), (14, 14), (15, 7), (16, 7)];
        self.modify(qp, 1 | 1 << 16 | 1 << 13 | 1 << 9 | 1 << 10 | 1 << 11, &rts);
    }

    pub fn activate(&mut self, qp: &RawQueuePair) {
        self.modify(qp, 1 | 1 << 6, &[(1, 1), (3, u64::from(QKEY))]);
        self.modify(qp, 1, &[(1, 2)]);
        self.modify(qp, 1 | 1 << 16, &[(1, 3), (10, qp.psn)]);
    }
}

impl RawQueuePair {
    pub fn sge(&self, at: u64, length: u32) -> Sge {
        Sge { addr: self.iova + at, length, lkey: LocalKey(self.key) }
    }

    pub fn post(&mut self, client: &Client, wr: &SendWr<'_>) {
        self.leave(wr);
        client.ring(self.send_bell);
    }

    /// The same, without ringing the engine.
    pub fn leave(&mut self, wr: &SendWr<'_>) {
        self.sq.post(wr).expect("room");
        self.sq.publish_release();
    }

    pub fn post_receive(&mut self, client: &Client, wr_id: u64, at: u64, length: u32) {
        self.rq.post(&RecvWr { wr_id, sges: &[self.sge(at, length)] }).expect("room");
        self.rq.publish_release();
        client.ring(self.receive_bell);
    }

    /// The same, without ringing the engine.
    pub fn leave_receive(&mut self, wr_id: u64, at: u64, length: u32) {
        self.rq.post(&RecvWr { wr_id, sges: &[self.sge(at, length)] }).expect("room");
        self.rq.publish_release();
    }

    pub fn arm(&mut self) {
        assert_eq!(self.consumer.arm(Arm::Next), Ok(false), "nothing waits yet");
    }

    pub fn completion(&mut self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.consumer.poll().expect("a sound ring") {
                return cqe.completion;
            }
            assert!(start.elapsed() < PATIENCE, "no completion came");
            std::thread::yield_now();
        }
    }
}

fn map(directory: &std::path::Path, segment: u64, bytes: u64) -> Window {
    let segment = Segment::open(&directory.join(format!("mem-{segment}"))).expect("a file to map");
    assert_eq!(segment.len() as u64, bytes);
    Window::whole(&Arc::new(segment))
}

fn ask(socket: &mut UnixStream, kind: u16, words: &[u64]) -> Answer {
    let header = (words.len() * 8) as u64 | u64::from(kind) << 32;
    let mut frame = header.to_le_bytes().to_vec();
    words.iter().for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
    socket.write_all(&frame).expect("the door listens");
    let mut header = [0; 8];
    socket.read_exact(&mut header).expect("an answer");
    let header = u64::from_le_bytes(header);
    assert_eq!((header >> 32) as u16, kind, "the answer to this question");
    let mut body = vec![0; header as u32 as usize];
    socket.read_exact(&mut body).expect("all of it");
    match (header >> 48) as u16 {
        0 => {
            Ok(body.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect())
        }
        status => Err((status, String::from_utf8(body).expect("text"))),
    }
}
