//! Packets through a channel.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwire_link::shm::{
    AttachError, ChannelConfig, EngineConfig, Inbox, PACKET_MAX_BYTES, RawSlice, Received, Receiver,
    SendError, ShmSender,
};
use highwire_shmem::{Segment, Window};
use highwire_stdx::Rng;

use crate::support::{House, address, connect};

const SMALL: ChannelConfig = ChannelConfig { slots: 8, data_bytes: 0 };

/// Offsets of the documented layout.
const CHANNEL_SLOTS: usize = 512;
const CHANNEL_HEAD: usize = 256;
const ENGINE_CHANNELS: usize = 512;

fn packet(rng: &mut Rng) -> Vec<u8> {
    let longest = *rng.pick(&[0, 1, 55, 56, 57, 112, 113, 224, 225, 1024, 4160, PACKET_MAX_BYTES]);
    let mut bytes = vec![0; rng.between(longest as u64 / 2, longest as u64) as usize];
    rng.fill(&mut bytes);
    bytes
}

fn send(sender: &mut ShmSender, bytes: &[u8], rng: &mut Rng) -> Result<(), SendError> {
    if rng.chance(0.5) {
        return sender.try_send(bytes.len(), |buffer| buffer.copy_from_slice(bytes));
    }
    let (front, back) = bytes.split_at(rng.between(0, bytes.len() as u64) as usize);
    let parts = [front, &[], back].map(|part| RawSlice { address: part.as_ptr(), len: part.len() });
    // SAFETY: the pieces are parts of `bytes`.
    unsafe { sender.try_send_parts(&parts) }
}

fn copied(packet: &Received<'_>) -> Vec<u8> {
    packet.copied(&mut [0; PACKET_MAX_BYTES]).to_vec()
}

fn channel_file(house: &House, sender: &str) -> Window {
    let directory: PathBuf = house.registry.root().join(sender);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("chan-"))
        .collect();
    files.sort();
    Window::whole(&Arc::new(Segment::open(files.last().unwrap()).unwrap()))
}

#[test]
fn a_channel_behaves_like_a_queue_through_many_laps() {
    let house = House::new("queue");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    for (seed, config) in [(1, SMALL), (2, ChannelConfig { slots: 256, data_bytes: 1 << 16 })] {
        let mut sender = connect(&a, b.gid(), &config);
        let mut inbox = Inbox::new(&b, 0);
        let mut model = VecDeque::new();
        let mut rng = Rng::new(seed);
        let mut full = 0;
        for step in 0..20_000 {
            // Floods and ebbs.
            if rng.chance(if step / 500 % 2 == 0 { 0.95 } else { 0.4 }) {
                let bytes = packet(&mut rng);
                let room = sender.can_send(bytes.len());
                let sent = send(&mut sender, &bytes, &mut rng);
                assert_eq!(sent, room);
                match sent {
                    Ok(()) => model.push_back(bytes),
                    Err(SendError::Full) => full += 1,
                    Err(other) => panic!("{other}"),
                }
                assert!(full == 0 || !model.is_empty(), "full, though nothing is in flight");
            } else {
                let budget = rng.between(1, 6) as usize;
                let expected: Vec<_> = model.drain(..budget.min(model.len())).collect();
                let mut received = Vec::new();
                let count = inbox.receive(budget, |source, packet| {
                    assert_eq!(source, a.gid());
                    received.push(copied(&packet));
                });
                assert_eq!(count, received.len());
                assert!(received == expected, "seed {seed}: {} packets differ", expected.len());
            }
        }
        assert!(full > 100, "the ring was never full");
        assert_eq!(inbox.rejected(), 0);
    }
}

#[test]
fn packets_that_are_too_long_are_refused() {
    let house = House::new("long");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut sender = connect(&a, b.gid(), &SMALL);
    assert_eq!(sender.try_send(PACKET_MAX_BYTES + 1, |_| panic!("not called")), Err(SendError::TooLong));
    let huge = RawSlice { address: std::ptr::null(), len: usize::MAX };
    // SAFETY: refused by its length, never read.
    assert_eq!(unsafe { sender.try_send_parts(&[huge, huge]) }, Err(SendError::TooLong));
}

#[test]
fn two_threads_pass_every_packet_in_order() {
    let house = House::new("threads");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut sender = connect(&a, b.gid(), &ChannelConfig::default());
    let mut inbox = Inbox::new(&b, 0);
    const COUNT: u64 = 30_000;
    let length = |number: u64| [8, 44, 100, 224, 300, 4140][number as usize % 6];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                let fill = |buffer: &mut [u8]| {
                    buffer.fill(number as u8);
                    buffer[..8].copy_from_slice(&number.to_le_bytes());
                };
                while sender.try_send(length(number), fill) == Err(SendError::Full) {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            let count = inbox.receive(16, |_, packet| {
                let bytes = copied(&packet);
                assert_eq!(bytes.len(), length(expected));
                assert_eq!(bytes[..8], expected.to_le_bytes());
                assert!(bytes[8..].iter().all(|&byte| byte == expected as u8));
                expected += 1;
            });
            if count == 0 {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn lanes_have_inboxes_of_their_own() {
    let house = House::new("lanes");
    let a = house.engine("127.1.1.1");
    let config = EngineConfig { lanes: 3, ..EngineConfig::default() };
    let b = Arc::new(house.registry.claim(address("127.1.1.2"), &config).unwrap());
    let peer = Arc::new(house.registry.lookup(b.gid()).unwrap());
    let refused = peer.attach(&a, 0, 3, &SMALL).unwrap_err();
    assert!(matches!(refused, AttachError::Lane { lane: 3, lanes: 3 }), "{refused}");
    let mut inboxes: Vec<_> = (0..3).map(|lane| Inbox::new(&b, lane)).collect();
    for lane in [2, 0, 1] {
        let mut sender = peer.attach(&a, 0, lane, &SMALL).unwrap();
        sender.try_send(4, |buffer| buffer.copy_from_slice(&lane.to_le_bytes())).unwrap();
        for (at, inbox) in inboxes.iter_mut().enumerate() {
            let mut seen = Vec::new();
            inbox.receive(9, |_, packet| seen.push(copied(&packet)));
            assert_eq!(seen.len(), usize::from(at as u32 == lane));
        }
    }
}

#[test]
fn what_was_sent_before_closing_still_arrives_and_the_slot_is_free_again() {
    let house = House::new("closing");
    let a = house.engine("127.1.1.1");
    let config = EngineConfig { channel_slots: 2, ..EngineConfig::default() };
    let b = Arc::new(house.registry.claim(address("127.1.1.2"), &config).unwrap());
    let mut inbox = Inbox::new(&b, 0);
    let peer = Arc::new(house.registry.lookup(b.gid()).unwrap());
    for round in 0..10u8 {
        let mut sender = peer.attach(&a, 0, 0, &SMALL).unwrap();
        let other = peer.attach(&a, 0, 0, &SMALL).unwrap();
        assert!(matches!(peer.attach(&a, 0, 0, &SMALL), Err(AttachError::NoSlot)));
        sender.try_send(1, |buffer| buffer[0] = round).unwrap();
        drop((sender, other));
        let mut seen = Vec::new();
        let count = inbox.receive(9, |_, packet| seen.push(copied(&packet)));
        assert_eq!((count, seen, inbox.channels(), inbox.rejected()), (1, vec![vec![round]], 0, 0));
    }
    let files = std::fs::read_dir(a.directory()).unwrap().count();
    assert_eq!(files, 2, "channel files are removed, so that only `engine` and `bell-0` are left");
}

#[test]
fn a_sender_notices_that_its_receiver_is_gone() {
    let house = House::new("receiver-gone");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut sender = connect(&a, b.gid(), &SMALL);
    let mut inbox = Inbox::new(&b, 0);
    inbox.receive(1, |_, _| ());
    assert!(!sender.is_closed());
    drop((inbox, b));
    assert!(sender.is_closed());
    while sender.try_send(8, |_| ()).is_ok() {}
    assert_eq!(sender.try_send(8, |_| ()), Err(SendError::Closed));
}

/// Whether an inbox's bell rings.
fn is_rung(inbox: &Inbox) -> bool {
    let fd = inbox.bell().expect("a file system that has pipes").as_raw_fd();
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, and its count.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[test]
fn a_sleeper_is_woken_once_and_never_sleeps_over_a_packet() {
    let house = House::new("sleep");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    assert!(!inbox.silence() && !is_rung(&inbox));
    let mut sender = connect(&a, b.gid(), &SMALL);
    let mut flush = |inbox: &Inbox, sends: bool| {
        if sends {
            sender.try_send(1, |_| ()).unwrap();
        }
        let receiver = sender.flush();
        assert_eq!(receiver == Receiver::Rung, is_rung(inbox));
        receiver
    };
    assert_eq!(flush(&inbox, false), Receiver::Awake, "nothing was sent");
    assert_eq!(flush(&inbox, true), Receiver::Awake, "nobody sleeps");
    assert!(!inbox.prepare_sleep(), "a packet waits");
    assert_eq!(inbox.receive(9, |_, _| ()), 1);
    assert!(inbox.prepare_sleep());
    assert_eq!(flush(&inbox, true), Receiver::Rung, "the sender must wake the sleeper");
    assert!(inbox.silence() && !is_rung(&inbox));
    assert_eq!(flush(&inbox, true), Receiver::Awake, "once is enough");
    assert_eq!(inbox.receive(9, |_, _| ()), 2);
    assert!(inbox.prepare_sleep());
    inbox.awake();
    assert_eq!(flush(&inbox, true), Receiver::Awake, "it is awake already");
    assert!(!inbox.silence());
}

/// The two sides of a sleep: the sender sees that the lane sleeps, or the lane sees the packet. Both look once, at the same time.
#[test]
fn either_the_sender_sees_the_sleeper_or_the_sleeper_the_packet() {
    const ROUNDS: u64 = 20_000;
    let house = House::new("either");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    let mut sender = connect(&a, b.gid(), &SMALL);
    let [begun, ended, rung] = [const { AtomicU64::new(0) }; 3];
    let (mut lost, mut received) = (0, 0);
    let wait = |word: &AtomicU64, round| {
        let mut looks = 0u32;
        while word.load(Ordering::Acquire) < round {
            looks += 1;
            if looks.is_multiple_of(1 << 10) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    std::thread::scope(|scope| {
        let (begun, ended, rung) = (&begun, &ended, &rung);
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                wait(begun, round);
                sender.try_send(1, |_| ()).expect("there is room");
                rung.store(u64::from(sender.flush() != Receiver::Awake), Ordering::Relaxed);
                ended.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            begun.store(round, Ordering::Release);
            let may_sleep = inbox.prepare_sleep();
            wait(ended, round);
            let is_rung = rung.load(Ordering::Relaxed) == 1;
            lost += u64::from(may_sleep && !is_rung);
            inbox.awake();
            inbox.silence();
            received += inbox.receive(9, |_, _| ()) as u64;
        }
    });
    assert_eq!((lost, received), (0, ROUNDS), "it sleeps, and nobody wakes it");
}

#[test]
fn a_sender_that_closes_is_noticed_at_the_next_look() {
    let house = House::new("closes");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    let mut sender = connect(&a, b.gid(), &SMALL);
    sender.try_send(1, |_| ()).unwrap();
    assert_eq!((inbox.receive(9, |_, _| ()), inbox.channels()), (1, 1));
    sender.try_send(1, |_| ()).unwrap();
    drop(sender);
    // Its process lives on, so housekeeping would not find out.
    assert_eq!((inbox.receive(9, |_, _| ()), inbox.channels()), (1, 0), "its last packet, and its end");
    assert_eq!(inbox.rejected(), 0);
}

#[test]
fn a_sleeper_is_shown_acknowledgements_and_woken_only_later() {
    let house = House::new("shown");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    let mut sender = connect(&a, b.gid(), &SMALL);
    assert!(!sender.show(), "there is nothing to show");
    sender.try_send(1, |_| ()).unwrap();
    assert!(!sender.show(), "it is awake");
    assert_eq!(inbox.receive(9, |_, _| ()), 1);
    assert!(inbox.prepare_sleep());
    // The second one of a group is not seen before the group is shown.
    for _ in 0..2 {
        sender.begin_batch();
        sender.try_send(1, |_| ()).unwrap();
    }
    assert!(sender.show(), "it sleeps");
    assert!(sender.show(), "and still does");
    assert!(!is_rung(&inbox), "it was not woken");
    assert_eq!(inbox.receive(9, |_, _| ()), 2, "but would have seen both");
    assert!(sender.flush() == Receiver::Rung && is_rung(&inbox), "the bell rings once it is to be woken");
    inbox.awake();
    sender.begin_batch();
    sender.try_send(1, |_| ()).unwrap();
    assert!(!sender.show(), "it is awake");
    sender.try_send(1, |_| ()).unwrap();
    assert_eq!(inbox.receive(9, |_, _| ()), 2, "what follows is no batch any more");
}

#[test]
fn a_channel_that_the_peer_cannot_open_is_refused_and_its_sender_told() {
    let house = House::new("refused");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    let mut sender = connect(&a, b.gid(), &SMALL);
    // As for a process that has become another user's.
    std::fs::remove_file(a.directory().join("chan-1")).expect("the channel");
    sender.try_send(1, |_| ()).unwrap();
    assert_eq!((sender.flush(), sender.is_refused()), (Receiver::Awake, false), "it was not looked at yet");
    assert_eq!((inbox.receive(9, |_, _| ()), inbox.rejected()), (0, 1));
    sender.try_send(1, |_| ()).expect("not known yet");
    let _ = sender.flush();
    assert!(sender.is_refused() && sender.is_closed());
    assert_eq!(sender.try_send(1, |_| ()), Err(SendError::Closed), "no packet goes where nobody looks");
}

#[test]
fn a_neighbour_without_a_bell_is_woken_by_the_caller() {
    let house = House::new("bell-less");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    std::fs::remove_file(b.directory().join("bell-0")).expect("it has one");
    let mut sender = connect(&a, b.gid(), &SMALL);
    assert!(inbox.prepare_sleep());
    sender.try_send(1, |_| ()).unwrap();
    assert_eq!(sender.flush(), Receiver::Asleep, "a datagram must wake it");
    assert_eq!(sender.flush(), Receiver::Awake, "once is enough");
    assert_eq!(inbox.receive(9, |_, _| ()), 1);
}

#[test]
fn a_packet_that_is_being_written_is_no_other_processs_to_change() {
    let house = House::new("private");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    let mut sender = connect(&a, b.gid(), &SMALL);
    let window = channel_file(&house, "127.1.1.1");
    sender.begin_batch();
    for number in 1..=8u8 {
        let fill = |out: &mut [u8]| {
            out.fill(number);
            // The peer has the whole ring mapped, and keeps to no protocol.
            for at in (CHANNEL_SLOTS..window.len()).step_by(8) {
                if window.u64_at(at).load(Ordering::Relaxed) == u64::from_ne_bytes([number; 8]) {
                    window.u64_at(at).store(u64::MAX, Ordering::Relaxed);
                }
            }
            assert!(out.iter().all(|&byte| byte == number), "packet {number} was written in place");
        };
        sender.try_send(56, fill).unwrap();
    }
    let _ = sender.flush();
    let mut number = 0;
    inbox.receive(9, |_, packet| {
        number += 1;
        assert_eq!(packet.copied(&mut [0; PACKET_MAX_BYTES]), [number; 56]);
    });
    assert_eq!(number, 8);
}

#[test]
fn a_scribbled_ring_never_panics_and_costs_the_channel_at_most() {
    let house = House::new("scribbled-ring");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    let mut rng = Rng::new(4);
    for _ in 0..200 {
        let mut sender = connect(&a, b.gid(), &SMALL);
        let window = channel_file(&house, "127.1.1.1");
        for step in 0..40u64 {
            let bytes = packet(&mut rng);
            let _ = send(&mut sender, &bytes, &mut rng);
            let at = match rng.below(4) {
                0 => CHANNEL_HEAD + 8 * rng.below(2) as usize,
                1 => rng.below(window.len() as u64 / 8) as usize * 8,
                _ => CHANNEL_SLOTS + 64 * rng.below(8) as usize + 8 * rng.below(2) as usize,
            };
            let plausible = (step + 1) | rng.below(10_000) << 32 | rng.below(5) << 48;
            let value = if rng.chance(0.5) { rng.next_u64() } else { plausible };
            window.u64_at(at).store(value, Ordering::Relaxed);
            inbox.receive(5, |_, packet| assert!(copied(&packet).len() <= PACKET_MAX_BYTES));
        }
        drop(sender);
        inbox.receive(64, |_, _| ());
    }
    assert!(inbox.rejected() > 20, "only {} channels were found broken", inbox.rejected());
    // The next honest sender is not affected.
    let mut sender = connect(&a, b.gid(), &SMALL);
    sender.try_send(3, |buffer| buffer.copy_from_slice(b"new")).unwrap();
    let mut seen = Vec::new();
    while inbox.receive(9, |_, packet| seen.push(copied(&packet))) > 0 {}
    assert_eq!(seen.last().map(Vec::as_slice), Some(&b"new"[..]));
}

#[test]
fn announcements_of_nonsense_are_refused() {
    let house = House::new("nonsense");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let mut inbox = Inbox::new(&b, 0);
    let path = house.registry.directory(b.gid()).join("engine");
    let window = Window::whole(&Arc::new(Segment::open(&path).unwrap()));
    let mut rng = Rng::new(6);
    for _ in 0..300 {
        let slot = ENGINE_CHANNELS + 256 * rng.below(20) as usize;
        for word in 1..6 {
            window.u64_at(slot + 8 * word).store(rng.next_u64(), Ordering::Relaxed);
        }
        // The lanes: ours, or none.
        window.u64_at(slot + 32).store(rng.below(2) << 32, Ordering::Relaxed);
        window.u64_at(slot).store(rng.next_u64() << 8 | rng.below(5), Ordering::Release);
        window.u64_at(256).fetch_add(1, Ordering::Release);
        assert_eq!(inbox.receive(9, |_, _| ()), 0);
        assert_eq!(inbox.channels(), 0);
    }
    assert!(inbox.rejected() > 20);
    let mut sender = connect(&a, b.gid(), &SMALL);
    sender.try_send(1, |_| ()).unwrap();
    assert_eq!(inbox.receive(9, |_, _| ()), 1);
}
