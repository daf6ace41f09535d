//! Programs behind the door: the files that they map work, their objects go with them, and nothing that they
//! write there stops the engine.

mod door_client;

use door_client::{Client, PATIENCE, RawQueuePair, status};
use highwire_host::door::{Door, VERSION};
use highwire_host::{Device, DeviceConfig, Engine, FaultConfig, LinkChoice};
use highwire_shmem::offset;
use highwire_stdx::Rng;
use highwire_verbs::{
    Address, CompletionStatus, Datagram, Gid, LocalKey, Operation, Remote, RemoteKey, SendWr, Sge,
};
use highwire_wire::Qpn;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn open() -> (Device, Door) {
    open_as(DeviceConfig::default())
}

fn open_as(config: DeviceConfig) -> (Device, Door) {
    let config = DeviceConfig { has_door: true, engine: Engine::Background, ..config };
    let device = Device::open(&config).expect("a device");
    let door = Door::open(&device).expect("a door");
    (device, door)
}

fn files(door: &Door) -> usize {
    let directory = door.path().parent().expect("the device's directory");
    std::fs::read_dir(directory).expect("is there").count()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come to pass");
        std::thread::yield_now();
    }
}

#[test]
fn two_programs_send_write_and_read_through_what_they_map() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (mut qa, mut qb) = (a.queue_pair(2), b.queue_pair(2));
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);

    qb.post_receive(&b, 7, 0, 64);
    qa.memory.write(0, b"through the door");
    qa.post(&a, &SendWr::new(8, Operation::Send, &[qa.sge(0, 16)]));
    let received = qb.completion();
    assert_eq!((received.wr_id, received.status, received.byte_len), (7, CompletionStatus::Success, 16));
    assert_eq!(qb.memory.read(0, 16), b"through the door");
    assert_eq!(qa.completion().wr_id, 8);

    let remote = Remote { va: qb.iova + 512, rkey: RemoteKey(qb.key) };
    qa.post(&a, &SendWr::new(9, Operation::Write(remote), &[qa.sge(0, 16)]));
    assert_eq!(qa.completion().status, CompletionStatus::Success);
    assert_eq!(qb.memory.read(512, 16), b"through the door");
    qa.post(&a, &SendWr::new(10, Operation::Read(remote), &[qa.sge(1024, 7)]));
    assert_eq!(qa.completion().status, CompletionStatus::Success);
    assert_eq!(qa.memory.read(1024, 7), b"through");
}

/// How many receives were taken out of the ring.
fn taken(qp: &RawQueuePair) -> u64 {
    qp.rq_window.u64_at(offset::HEAD).load(Ordering::SeqCst)
}

/// Whether the engine wants to be rung for receives.
fn wanted(qp: &RawQueuePair) -> u64 {
    qp.rq_window.u64_at(offset::WANTED).load(Ordering::SeqCst)
}

/// Whether the engine holds a receive, so that no peer may take a later one.
fn held(qp: &RawQueuePair) -> u64 {
    qp.rq_window.u64_at(offset::HELD).load(Ordering::SeqCst)
}

#[test]
fn receives_on_demand_stay_in_their_ring_until_a_message_wants_one() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (mut qa, mut qb) = (a.queue_pair_on_demand(), b.queue_pair_on_demand());
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);

    for wr_id in 1..=4 {
        qb.leave_receive(wr_id, 0, 64);
    }
    for wr_id in [1, 2] {
        qa.post(&a, &SendWr::new(8, Operation::Send, &[qa.sge(0, 16)]));
        assert_eq!(qb.completion().wr_id, wr_id);
        assert_eq!(qa.completion().status, CompletionStatus::Success);
        assert_eq!(taken(&qb), wr_id, "one for each message");
        until("a word that peers may take the next one", || held(&qb) == 0);
    }
    // A peer takes the third; the next message gets the fourth.
    qb.rq_window.u64_at(offset::HEAD).store(3, Ordering::SeqCst);
    qa.post(&a, &SendWr::new(8, Operation::Send, &[qa.sge(0, 16)]));
    assert_eq!(qb.completion().wr_id, 4);
    assert_eq!((taken(&qb), wanted(&qb)), (4, 0));

    // In the error state all receives come back, and so do later ones, for which the program must ring the
    // engine.
    qb.leave_receive(5, 0, 64);
    qb.leave_receive(6, 0, 64);
    b.modify(&qb, 1, &[(1, 6)]);
    for wr_id in [5, 6] {
        let flushed = qb.completion();
        assert_eq!((flushed.wr_id, flushed.status), (wr_id, CompletionStatus::Flushed));
    }
    assert_eq!((taken(&qb), wanted(&qb)), (6, 1));
    qb.post_receive(&b, 7, 0, 64);
    assert_eq!(qb.completion().wr_id, 7);
    // A queue pair that begins anew has no receives.
    qb.leave_receive(8, 0, 64);
    b.modify(&qb, 1, &[(1, 0)]);
    assert_eq!((taken(&qb), wanted(&qb)), (8, 0));
}

#[test]
fn a_receive_that_a_packet_did_not_use_is_announced_until_a_message_does() {
    // The second copy of a packet is no message: the engine fetches a receive for it and keeps that for the next one.
    let faults = Some(FaultConfig { duplicate: 1.0, ..FaultConfig::default() });
    let (_device, door) = open_as(DeviceConfig { link: LinkChoice::Shm, faults, ..DeviceConfig::default() });
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (mut qa, mut qb) = (a.queue_pair_on_demand(), b.queue_pair_on_demand());
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);
    for wr_id in [1, 2] {
        qb.leave_receive(wr_id, 0, 64);
    }
    qa.post(&a, &SendWr::new(8, Operation::Send, &[qa.sge(0, 16)]));
    assert_eq!(qb.completion().wr_id, 1);
    until("a receive for the second copy", || taken(&qb) == 2);
    assert_eq!(held(&qb), 1, "a peer that took a third would overtake the second");
    assert_eq!(qa.completion().status, CompletionStatus::Success);
    qa.post(&a, &SendWr::new(8, Operation::Send, &[qa.sge(0, 16)]));
    assert_eq!(qb.completion().wr_id, 2);
    until("a word that peers may take the next one", || held(&qb) == 0);
}

#[test]
fn a_key_of_another_program_is_no_key_for_local_memory() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (mut qa, qb) = (a.queue_pair(2), b.queue_pair(2));
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);
    let foreign = Sge { addr: qb.iova, length: 8, lkey: LocalKey(qb.key) };
    let remote = Remote { va: qb.iova, rkey: RemoteKey(qb.key) };
    qa.post(&a, &SendWr::new(1, Operation::Write(remote), &[foreign]));
    assert_eq!(qa.completion().status, CompletionStatus::LocalProtection);
}

#[test]
fn everything_goes_with_the_program_wherever_it_stopped() {
    let (_device, door) = open();
    let before = files(&door);
    for steps in 0..6 {
        let mut client = Client::connect(&door);
        if steps > 0 {
            let mut pair = client.queue_pair([2, 3, 4][steps % 3]);
            if steps > 3 {
                // In the middle of a direct operation on itself, and with a bell that it has rung without waking the engine.
                pair.sq_window.u64_at(offset::IN_USE).store(1 << 63 | u64::from(pair.key), Ordering::SeqCst);
                client.board.ring_seqcst(pair.send_bell);
                pair.post_receive(&client, 1, 0, 8);
            }
        }
        drop(client);
        until("the end of the session", || door.sessions() == 0);
        until("the end of its files", || files(&door) == before);
    }
}

#[test]
fn a_door_closes_behind_its_last_program_and_not_before() {
    let (_device, door) = open();
    let at_once = Duration::ZERO;
    assert!(door.close_if_idle(Duration::MAX).is_some(), "it has not been idle for so long");
    let client = Client::connect(&door);
    assert_eq!(door.close_if_idle(at_once), Some(at_once), "a session keeps it open");
    drop(client);
    // A program that has said nothing yet may be about to.
    let newcomer = UnixStream::connect(door.path()).expect("it is open");
    until("the end of the session", || door.sessions() == 0);
    let again = Client::connect(&door);
    assert_eq!(door.close_if_idle(at_once), Some(at_once), "a newcomer and a session keep it open");
    drop(again);
    until("the end of the second session", || door.sessions() == 0);
    assert_eq!(door.close_if_idle(at_once), Some(at_once), "a newcomer keeps it open");
    assert!(door.path().exists());
    drop(newcomer);
    until("its closing", || door.close_if_idle(at_once).is_none());
    assert!(!door.path().exists(), "the next program finds no door");
}

#[test]
fn what_is_used_stays_and_what_was_never_made_is_not_there() {
    let (_device, door) = open();
    let mut client = Client::connect(&door);
    let pair = client.queue_pair(2);
    let codes = [
        client.ask(4, &[pair.pd]).expect_err("the domain is used").0,
        client.ask(6, &[pair.arena]).expect_err("the arena is registered").0,
        client.ask(10, &[pair.cq]).expect_err("the queue is used").0,
        client.ask(14, &[999]).expect_err("no such queue pair").0,
        client.ask(7, &[pair.pd, pair.arena, 0, 1 << 40, 0, 1]).expect_err("beyond the arena").0,
        client.ask(99, &[]).expect_err("no such request").0,
        client.ask(14, &[1, 2, 3]).expect_err("too many words").0,
    ];
    use status::{IN_USE, MALFORMED, NO_SUCH_OBJECT, REFUSED};
    let expected = [IN_USE, IN_USE, IN_USE, NO_SUCH_OBJECT, REFUSED, MALFORMED, MALFORMED];
    assert_eq!(codes, expected);
    // A queue that is used for one direction alone is used.
    let cqs = [0; 2].map(|_| client.ask(9, &[8, 0]).expect("a completion queue")[0]);
    let of_two =
        client.ask(13, &[pair.pd, 2, cqs[0], cqs[1], 0, 4, 4, 1 | 1 << 32, 0, 0, 0]).expect("a queue pair");
    for cq in cqs {
        assert_eq!(client.ask(10, &[cq]).expect_err("the queue is used").0, IN_USE);
    }
    assert_eq!(client.ask(14, &of_two[..1]), Ok(vec![]));
    for cq in cqs {
        assert_eq!(client.ask(10, &[cq]), Ok(vec![]));
    }
    for (kind, handle) in [(14, pair.handle), (8, pair.region), (10, pair.cq), (6, pair.arena), (4, pair.pd)]
    {
        assert_eq!(client.ask(kind, &[handle]), Ok(vec![]), "in the right order everything goes");
    }
}

#[test]
fn sizes_end_where_the_arena_and_the_limits_end() {
    let (device, door) = open();
    let mut client = Client::connect(&door);
    let pd = client.ask(3, &[]).expect("a domain")[0];
    let arena = client.ask(5, &[1 << 16]).expect("an arena");
    let (handle, bytes) = (arena[0], arena[2]);
    let mut register = |offset, length| {
        client
            .ask(7, &[pd, handle, offset, length, 0x7000_0000_0000, 0b1111])
            .map(drop)
            .map_err(|(code, _)| code)
    };
    assert_eq!(register(0, bytes), Ok(()));
    assert_eq!(register(bytes - 8, 8), Ok(()));
    for (offset, length) in [(0, bytes + 1), (8, bytes - 7), (bytes, 8), (1, u64::MAX)] {
        assert_eq!(register(offset, length), Err(status::REFUSED), "{offset} {length}");
    }
    let limits = device.limits();
    let (max_cqe, max_wr) = (u64::from(limits.max_cqe), u64::from(limits.max_wr));
    assert_eq!(client.ask(9, &[max_cqe + 1, 0]).expect_err("too long").0, status::REFUSED);
    let cq = client.ask(9, &[8, 0]).expect("a completion queue")[0];
    for (sends, receives) in [(max_wr + 1, 1), (1, max_wr + 1)] {
        let words = [pd, 2, cq, cq, 0, sends, receives, 1 | 1 << 32, 0, 0, 0];
        assert_eq!(client.ask(13, &words).expect_err("too long").0, status::REFUSED);
    }
    assert_eq!(client.ask(11, &[pd, max_wr + 1, 1]).expect_err("too long").0, status::REFUSED);
}

#[test]
fn receives_of_a_shared_queue_are_not_on_demand_whatever_is_asked_for() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (mut qa, mut qb) = (a.queue_pair(2), b.queue_pair_that_shares());
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);
    qb.post_receive(&b, 5, 0, 64);
    qa.memory.write(0, b"shared");
    qa.post(&a, &SendWr::new(8, Operation::Send, &[qa.sge(0, 6)]));
    assert_eq!(qb.completion().wr_id, 5);
    assert_eq!(qb.memory.read(0, 6), b"shared");
    assert_eq!(qa.completion().status, CompletionStatus::Success);
    assert_eq!(b.ask(12, &[qb.srq]).expect_err("the queue is used").0, status::IN_USE);
}

#[test]
fn a_program_that_never_reads_its_events_holds_up_nobody() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let events = b.events(&door);
    let (mut qa, mut qb) = (a.queue_pair(2), b.queue_pair_with_channel(2, 1));
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);
    // More than any socket takes.
    for wr_id in 0..3000 {
        qb.post_receive(&b, wr_id, 0, 64);
        qb.arm();
        qa.post(&a, &SendWr::new(wr_id, Operation::Send, &[]));
        assert_eq!((qb.completion().wr_id, qa.completion().wr_id), (wr_id, wr_id));
    }
    drop(events);
}

#[test]
fn no_socket_of_a_program_that_has_gone_stays_open() {
    let (_device, door) = open();
    let path = door.path().to_str().expect("a path").to_owned();
    // The door's name belongs to the listening socket, and to one socket for each accepted connection.
    let sockets = || {
        let open = std::fs::read_to_string("/proc/self/net/unix").expect("the kernel's list");
        open.lines().filter(|line| line.ends_with(&path)).count()
    };
    assert_eq!(sockets(), 1);
    for _ in 0..5 {
        let mut client = Client::connect(&door);
        let events = client.events(&door);
        client.ask(3, &[]).expect("a domain");
        assert!(sockets() >= 3);
        drop((client, events));
        until("the end of its sockets", || sockets() == 1);
    }
}

#[test]
fn another_version_is_refused_in_words() {
    let (_device, door) = open();
    let (code, text) = Client::greet(&door, &[door_client::MAGIC, VERSION + 1]).expect_err("another version");
    assert_eq!(code, status::VERSION);
    let (serves, wants) = (format!("version {VERSION}"), format!("wants {}", VERSION + 1));
    assert!(text.contains(&serves) && text.contains(&wants), "{text}");
    assert_eq!(Client::greet(&door, &[1, 1]).expect_err("no magic").0, status::MALFORMED);
    assert_eq!(Client::greet(&door, &[]).expect_err("no words").0, status::MALFORMED);
}

/// Two programs whose queue pairs are connected; the first says that it works on the other's region.
fn works_on_the_other(door: &Door) -> [(Client, RawQueuePair); 2] {
    let (mut a, mut b) = (Client::connect(door), Client::connect(door));
    let (qa, qb) = (a.queue_pair(2), b.queue_pair(2));
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);
    let word = 1 << 63 | u64::from(qb.qpn) << 32 | u64::from(qb.key);
    qa.sq_window.u64_at(offset::IN_USE).store(word, Ordering::SeqCst);
    [(a, qa), (b, qb)]
}

#[test]
fn a_region_that_a_program_works_on_is_not_given_back_before_it_is_done_or_gone() {
    let (_device, door) = open();
    let [(a, qa), (mut b, qb)] = works_on_the_other(&door);
    assert_eq!(b.ask(8, &[qb.region]).expect_err("a is at it").0, status::IN_USE);
    drop((a, qa));
    until("the end of a's session", || door.sessions() == 1);
    assert_eq!(b.ask(8, &[qb.region]), Ok(vec![]), "nobody waits for the dead");
}

#[test]
fn a_queue_pair_that_is_destroyed_works_on_nothing_any_more() {
    let (_device, door) = open();
    let [(mut a, qa), (mut b, qb)] = works_on_the_other(&door);
    assert_eq!(a.ask(14, &[qa.handle]), Ok(vec![]));
    assert_eq!(b.ask(8, &[qb.region]), Ok(vec![]), "the program still runs, and its queue pair has gone");
}

#[test]
fn an_armed_queue_tells_its_channel() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let mut events = b.events(&door);
    let (mut qa, mut qb) = (a.queue_pair(4), b.queue_pair_with_channel(4, 1));
    a.activate(&qa);
    b.activate(&qb);
    qb.post_receive(&b, 7, 0, 128);
    qb.arm();
    let address = Address { gid: Gid(a.gid), hop_limit: 64, ..Address::default() };
    let datagram = Some(Datagram { address, qpn: Qpn::new(qb.qpn), qkey: door_client::QKEY });
    qa.post(&a, &SendWr { datagram, ..SendWr::new(8, Operation::Send, &[qa.sge(0, 16)]) });
    let mut event = [0; 8];
    std::io::Read::read_exact(&mut events, &mut event).expect("an event");
    assert_eq!(u64::from_le_bytes(event), qb.cq);
    assert_eq!(qb.completion().wr_id, 7);
    assert_eq!(qa.completion().wr_id, 8);
}

/// Slots, cursors and headers of every ring, and the board, filled with anything.
fn scribble(rng: &mut Rng, client: &Client, pair: &RawQueuePair) {
    for window in [&pair.sq_window, &pair.rq_window, &pair.cq_window] {
        for _ in 0..rng.between(1, 40) {
            let at = if rng.chance(0.3) { 8 * rng.below(64) } else { 8 * rng.below(window.len() as u64 / 8) };
            let value = match rng.below(4) {
                0 => rng.next_u64(),
                1 => rng.below(64),
                2 => u64::MAX - rng.below(64),
                _ => window.u64_at(at as usize).load(Ordering::Relaxed) ^ 1 << rng.below(64),
            };
            window.u64_at(at as usize).store(value, Ordering::Relaxed);
        }
    }
    client.board.ring_seqcst(pair.send_bell);
    client.board.ring_seqcst(pair.receive_bell);
}

#[test]
fn nothing_that_a_program_writes_there_stops_the_engine() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (mut qa, mut qb) = (a.queue_pair(2), b.queue_pair(2));
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);
    let mut rng = Rng::new(16);
    for round in 0..60 {
        let (mut vandal, mut other) = (Client::connect(&door), Client::connect(&door));
        let (pair, peer) = (vandal.queue_pair(2), other.queue_pair(2));
        vandal.connect_to(&pair, &peer);
        other.connect_to(&peer, &pair);
        for _ in 0..8 {
            scribble(&mut rng, &vandal, &pair);
            vandal.wake();
            assert!(vandal.ask(16, &[pair.handle]).is_ok(), "round {round}: the engine answers");
        }
        qb.post_receive(&b, round, 0, 64);
        qa.post(&a, &SendWr::new(round, Operation::Send, &[qa.sge(0, 16)]));
        assert_eq!((qb.completion().wr_id, qa.completion().wr_id), (round, round), "the others work on");
    }
}

#[test]
fn requests_of_any_bytes_are_answered_or_end_the_session() {
    use std::io::Write;
    let (_device, door) = open();
    let mut rng = Rng::new(17);
    for _ in 0..300 {
        let mut client = Client::connect(&door);
        client.queue_pair(2);
        for _ in 0..20 {
            let words: Vec<u64> = (0..rng.below(20))
                .map(|_| if rng.chance(0.7) { rng.below(8) } else { rng.next_u64() })
                .collect();
            // Every request gets an answer.
            let _ = client.ask(rng.between(3, 18) as u16, &words);
        }
        let mut noise = vec![0; rng.below(40) as usize];
        rng.fill(&mut noise);
        let _ = client.socket.write_all(&noise);
    }
    until("the end of the sessions", || door.sessions() == 0);
    let mut client = Client::connect(&door);
    let mut pair = client.queue_pair(3);
    pair.post_receive(&client, 1, 0, 8);
    assert!(client.ask(16, &[pair.handle]).is_ok());
}

/// A program's mistake does not keep the others out: each has its share, over all of its sessions, and gets it back.
#[test]
fn each_program_has_a_share_of_the_queue_pairs() {
    let (_device, door) = open_as(DeviceConfig { door_share: 3, ..DeviceConfig::default() });
    // Two sessions of one process.
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let qa = a.queue_pair(2);
    let _qb = b.queue_pair(2);
    let srq = b.ask(11, &[_qb.pd, 4, 1]).expect("the third");
    let words = [qa.pd, 2, qa.cq, qa.cq, 0, 4, 4, 1 | 1 << 32, 0, 0, 0];
    let (refused, text) = a.ask(13, &words).expect_err("a fourth");
    assert_eq!(refused, status::NO_MEMORY);
    assert!(text.contains("has 3 queue pairs") && text.contains("--share"), "{text}");
    assert!(b.ask(11, &[_qb.pd, 4, 1]).is_err(), "nor a shared receive queue");
    b.ask(12, &srq[..1]).expect("goes");
    let made = a.ask(13, &words).expect("there is room again");
    a.ask(14, &made[..1]).expect("goes");
    // What a session had comes back with its end.
    drop(b);
    until("the end of the session", || door.sessions() == 1);
    let again: Vec<_> = (0..2).map(|_| a.ask(13, &words).expect("the other session's")).collect();
    assert!(a.ask(13, &words).is_err());
    assert_eq!(again.len(), 2);
}

#[test]
fn access_bits_that_mean_nothing_are_refused() {
    let (_device, door) = open();
    let mut a = Client::connect(&door);
    let qp = a.queue_pair(2);
    for bit in 0..64 {
        let access = 1_u64 << bit | 1;
        let registered = a.ask(7, &[qp.pd, qp.arena, 0, 64, 4096, access]);
        let modified = a.ask(15, &modify_access(qp.handle, access));
        if bit < 4 {
            registered.expect("a permission");
        } else {
            assert_eq!(registered.expect_err("no permission").0, status::REFUSED, "bit {bit}");
            assert_eq!(modified.expect_err("no permission").0, status::REFUSED, "bit {bit}");
        }
    }
}

/// A change to INIT with this access.
fn modify_access(handle: u64, access: u64) -> Vec<u64> {
    let mut words = vec![handle, 1 | 1 << 3, 1, access];
    words.resize(19, 0);
    words
}

/// Channels whose program has closed them hold no descriptor for as long as the session lives.
#[test]
fn a_channel_ends_with_its_connection() {
    let (_device, door) = open();
    let a = Client::connect(&door);
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("is there").count();
    for _ in 0..20 {
        drop(a.another_channel(&door));
    }
    let before = descriptors();
    let first = a.another_channel(&door).0;
    for _ in 0..300 {
        drop(a.another_channel(&door));
    }
    let (last, _kept) = a.another_channel(&door);
    assert_eq!(last, first + 301, "numbers are not used again");
    until("the end of the channels", || descriptors() < before + 40);
}

/// Whether the pipe has a byte that nobody has read.
#[allow(unsafe_code)]
fn is_readable(pipe: &std::fs::File) -> bool {
    let mut polled = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives until the call returns.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

#[test]
fn a_program_wakes_the_engine_by_its_pipe_and_the_engine_empties_it() {
    let (_device, door) = open();
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (mut qa, mut qb) = (a.queue_pair_on_demand(), b.queue_pair_on_demand());
    let pipe = a.pipe();
    let ring = || (&pipe).write_all(&[1]).expect("room");
    // No engine, itself included, has sent it a packet that would have it expect rings.
    for _ in 0..20 {
        until("its sleep", || a.board.ring_seqcst(qa.send_bell));
        ring();
        until("the end of the ring", || !is_readable(&pipe));
    }
    a.connect_to(&qa, &qb);
    b.connect_to(&qb, &qa);
    let mut rings = 0;
    for wr_id in 0..1000 {
        qb.leave_receive(wr_id, 0, 64);
        qa.leave(&SendWr::new(wr_id, Operation::Send, &[]));
        if a.board.ring_seqcst(qa.send_bell) {
            ring();
            rings += 1;
        }
        assert_eq!((qb.completion().wr_id, qa.completion().wr_id), (wr_id, wr_id));
        until("the end of the ring", || !is_readable(&pipe));
        if rings == 20 {
            return;
        }
    }
    panic!("the engine slept {rings} times");
}

#[test]
fn the_file_of_a_bell_goes_with_the_bell_or_with_its_program() {
    let (_device, door) = open();
    let directory = door.path().parent().expect("the device's directory").to_path_buf();
    let listen = |client: &mut Client| {
        let [handle, number] = client.ask(17, &[]).expect("a bell").try_into().expect("two words");
        let path = directory.join(format!("wake-{number}"));
        (handle, number, UnixListener::bind(&path).expect("its name is free"), path)
    };
    let (mut a, mut b) = (Client::connect(&door), Client::connect(&door));
    let (first, number, _listener, path) = listen(&mut a);
    let (_, other, _others, others) = listen(&mut b);
    assert!(number > 0 && number != other, "numbers are the device's");
    assert_eq!(b.ask(18, &[first + 100]).expect_err("no such bell").0, status::NO_SUCH_OBJECT);
    assert_eq!(a.ask(18, &[first]), Ok(vec![]));
    assert!(!path.exists() && others.exists());
    assert!(listen(&mut a).1 > other, "a number is not used again");
    drop(b);
    until("the end of its bell", || !others.exists());
    // The session has its share, and no more.
    let refused = (0..2000).find_map(|_| a.ask(17, &[]).err()).expect("a bound");
    assert_eq!(refused.0, status::NO_MEMORY);
    assert!(refused.1.contains("1024 bells"), "{}", refused.1);
}
