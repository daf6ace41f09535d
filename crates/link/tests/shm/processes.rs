//! Real second processes, and the state that they leave behind when they are killed.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use highwire_link::shm::{
    Access, ChannelConfig, DirectError, EngineConfig, Inbox, Life, LocalEngine, LookupError,
    PACKET_MAX_BYTES, PublishedQueuePair, PublishedRegion, Registry, SendError,
};
use highwire_shmem::SharedBuffer;

use crate::support::{House, Second, address, connect, gid_bytes};

const PARENT: &str = "127.5.0.1";
const CHILD: &str = "127.5.0.2";
const RKEY: u32 = 42;
const ADDS: u64 = 20_000;

/// The code of the second process; in the first one this test does nothing.
#[test]
fn child() {
    let (Ok(role), Ok(root)) = (std::env::var("HIGHWIRE_TEST_ROLE"), std::env::var("HIGHWIRE_TEST_ROOT"))
    else {
        return;
    };
    let registry = Registry::open_at(Path::new(&root)).unwrap();
    if role == "poll" {
        crate::roster::poll_as_second(&registry);
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let engine = Arc::new(registry.claim(address(CHILD), &EngineConfig::default()).unwrap());
    match role.as_str() {
        "exist" => println!("ready"),
        "echo" => echo(&engine),
        "three" => {
            let mut sender = connect(&engine, address(PARENT), &ChannelConfig::default());
            for number in 0..3 {
                sender.try_send(1, |buffer| buffer[0] = number).unwrap();
            }
            std::mem::forget(sender);
            println!("ready");
        }
        "target" => std::mem::forget(target(&engine, address(PARENT))),
        "named" => {
            // A thread of its own, as a device's is.
            let life = Arc::clone(&engine);
            let (named, is_named) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let _life = Life::begin(&life).expect("Linux has robust lists");
                named.send(()).expect("it is waited for");
                std::thread::park();
            });
            is_named.recv().expect("no panic");
            std::mem::forget(target(&engine, address(PARENT)));
        }
        "add" => {
            println!("ready");
            let mut sender = connect(&engine, address(PARENT), &ChannelConfig::default());
            let mut direct = sender.direct(2, 1);
            for _ in 0..ADDS {
                direct.fetch_add(RKEY, 0, 1).unwrap();
            }
            println!("added");
        }
        other => panic!("no such role: {other}"),
    }
    // Lives until the first process closes our input or kills us.
    let _ = std::io::stdin().read(&mut [0]);
}

fn echo(engine: &Arc<LocalEngine>) {
    let mut inbox = Inbox::new(engine, 0);
    let mut sender = connect(engine, address(PARENT), &ChannelConfig::default());
    println!("ready");
    let mut going = true;
    while going {
        let mut answers = Vec::new();
        let count =
            inbox.receive(8, |_, packet| answers.push(packet.copied(&mut [0; PACKET_MAX_BYTES]).to_vec()));
        for answer in answers {
            going &= !answer.is_empty();
            while sender.try_send(answer.len(), |buffer| buffer.copy_from_slice(&answer))
                == Err(SendError::Full)
            {
                std::thread::yield_now();
            }
        }
        if count == 0 {
            std::thread::yield_now();
        }
    }
}

/// Publishes one page at virtual address 0 for QP 1 (peer's QP 2, and the other way round).
fn target(engine: &LocalEngine, peer: std::net::IpAddr) -> SharedBuffer {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = engine.pool().allocate(4096, 4096).unwrap();
    let region = PublishedRegion {
        pd: 1,
        access,
        iova: 0,
        length: 4096,
        segment: memory.segment_id(),
        offset: memory.offset() as u64,
        bound_qpn: 0,
        before: 0,
        behind: 0,
    };
    engine.publish_region(RKEY, &region).unwrap();
    let queue_pair = PublishedQueuePair {
        pd: 1,
        access,
        peer_qpn: 2,
        peer_gid: gid_bytes(peer),
        ready: true,
        receives: Default::default(),
    };
    engine.publish_queue_pair(1, &queue_pair).unwrap();
    println!("ready");
    memory
}

#[test]
fn an_engine_that_was_killed_is_gone_and_its_gid_is_free() {
    let house = House::new("killed");
    let mut second = Second::spawn("exist", house.registry.root());
    second.wait_for("ready");
    let gid = address(CHILD);
    let peer = house.registry.lookup(gid).unwrap();
    assert!(peer.check_alive() && peer.pid() != std::process::id());
    second.kill();
    assert!(!peer.is_gone(), "memory alone does not tell");
    assert!(!peer.check_alive());
    assert!(peer.is_gone());
    assert!(matches!(house.registry.lookup(gid), Err(LookupError::Gone)));
    assert!(house.registry.list().unwrap().is_empty());
    assert!(house.registry.directory(gid).exists());
    assert_eq!(house.registry.reap_stale().unwrap(), [gid]);
    assert!(!house.registry.directory(gid).exists());

    let mut second = Second::spawn("exist", house.registry.root());
    second.wait_for("ready");
    second.kill();
    // Claiming clears away by itself.
    assert_eq!(house.engine(CHILD).gid(), gid);
}

#[test]
fn an_engine_that_ends_in_order_leaves_no_directory() {
    let house = House::new("in-order");
    let mut second = Second::spawn("exist", house.registry.root());
    second.wait_for("ready");
    second.finish();
    assert!(!house.registry.directory(address(CHILD)).exists());
}

#[test]
fn packets_go_to_another_process_and_come_back() {
    let house = House::new("echo");
    let engine = house.engine(PARENT);
    let mut second = Second::spawn("echo", house.registry.root());
    second.wait_for("ready");
    let mut inbox = Inbox::new(&engine, 0);
    let mut sender = connect(&engine, address(CHILD), &ChannelConfig::default());
    for number in 0..2_000u32 {
        let length = [44, 200, 4140][number as usize % 3];
        let fill = |buffer: &mut [u8]| {
            buffer.fill(number as u8);
            buffer[..4].copy_from_slice(&number.to_le_bytes());
        };
        sender.try_send(length, fill).unwrap();
        let check = |source, packet: highwire_link::shm::Received<'_>| {
            let mut buffer = [0; PACKET_MAX_BYTES];
            let bytes = packet.copied(&mut buffer);
            assert_eq!(
                (source, bytes.len(), &bytes[..4]),
                (address(CHILD), length, &number.to_le_bytes()[..])
            );
            assert!(bytes[4..].iter().all(|&byte| byte == number as u8));
        };
        while inbox.receive(1, check) == 0 {
            std::thread::yield_now();
        }
    }
    sender.try_send(0, |_| ()).unwrap();
    second.finish();
}

#[test]
fn what_a_killed_process_had_sent_still_arrives_before_its_channel_closes() {
    let house = House::new("three");
    let engine = house.engine(PARENT);
    let mut inbox = Inbox::new(&engine, 0);
    let mut second = Second::spawn("three", house.registry.root());
    second.wait_for("ready");
    let mut seen = Vec::new();
    inbox.receive(1, |_, packet| seen.push(packet.copied(&mut [0; PACKET_MAX_BYTES])[0]));
    assert_eq!(inbox.reap(), 0);
    second.kill();
    assert_eq!(inbox.reap(), 1);
    while inbox.receive(1, |_, packet| seen.push(packet.copied(&mut [0; PACKET_MAX_BYTES])[0])) > 0 {}
    assert_eq!((seen, inbox.channels()), (vec![0, 1, 2], 0));
}

#[test]
fn memory_of_another_process_is_read_and_written() {
    let house = House::new("remote");
    let engine = house.engine(PARENT);
    let mut second = Second::spawn("target", house.registry.root());
    second.wait_for("ready");
    let mut sender = connect(&engine, address(CHILD), &ChannelConfig::default());
    let mut direct = sender.direct(2, 1);
    direct.write(RKEY, 100, b"over the wire that is not there").unwrap();
    let mut back = [0; 31];
    direct.read(RKEY, 100, &mut back).unwrap();
    assert_eq!(&back, b"over the wire that is not there");
    second.kill();
    // Its memory is still mapped here: writing does no harm, and the next check finds that the process is dead.
    direct.write(RKEY, 100, b"too late").unwrap();
    assert!(!sender.peer().check_alive());
    assert!(sender.direct(2, 1).write(RKEY, 100, b"later").is_err());
}

#[test]
fn memory_of_a_process_whose_end_is_known_answers_no_more() {
    for _ in 0..20 {
        let house = House::new("known");
        let engine = house.engine(PARENT);
        let mut second = Second::spawn("named", house.registry.root());
        second.wait_for("ready");
        let mut sender = connect(&engine, address(CHILD), &ChannelConfig::default());
        let mut back = [0; 8];
        sender.direct(2, 1).write(RKEY, 0, &[7; 8]).expect("it lives");
        sender.direct(2, 1).read(RKEY, 0, &mut back).expect("it lives");
        // Waits for its end, and nobody has looked for it yet.
        second.kill();
        assert_eq!(sender.direct(2, 1).read(RKEY, 0, &mut back), Err(DirectError::PeerGone));
        assert_eq!(sender.direct(2, 1).write(RKEY, 0, &[8; 8]), Err(DirectError::PeerGone));
        assert_eq!(sender.direct(2, 1).fetch_add(RKEY, 0, 1), Err(DirectError::PeerGone));
        assert!(sender.is_closed());
    }
}

#[test]
fn an_engine_outlives_the_thread_that_stood_for_it() {
    let house = House::new("stood");
    let (a, b) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
    let peer = a.registry().lookup(b.gid()).unwrap();
    let engine = Arc::clone(&b);
    std::thread::spawn(move || drop(Life::begin(&engine).expect("a list"))).join().unwrap();
    assert!(!peer.is_gone(), "it has taken its name back");
    let engine = Arc::clone(&b);
    // This thread dies with its name in the word, though its process lives and holds the lock.
    std::thread::spawn(move || std::mem::forget(Life::begin(&engine).expect("a list"))).join().unwrap();
    assert!(!peer.is_gone() && peer.check_alive());
    drop(b);
}

#[test]
fn two_processes_add_to_one_word_and_no_addition_is_lost() {
    let house = House::new("adding");
    let engine = house.engine(PARENT);
    let memory = target(&engine, address(CHILD));
    let mut second = Second::spawn("add", house.registry.root());
    second.wait_for("ready");
    for _ in 0..ADDS {
        memory.window().u64_at(0).fetch_add(1, Ordering::SeqCst);
    }
    second.wait_for("added");
    assert_eq!(memory.window().u64_at(0).load(Ordering::SeqCst), 2 * ADDS);
    second.finish();
}

#[test]
fn an_owner_waits_for_a_living_peer_but_not_for_a_dead_one() {
    let house = House::new("patience");
    let engine = house.engine(PARENT);
    let memory = target(&engine, address(CHILD));
    let mut second = Second::spawn("three", house.registry.root());
    second.wait_for("ready");
    // As if the child had been stopped in the middle of a copy: its slot is the first one; the word is documented.
    let path = house.registry.directory(engine.gid()).join("engine");
    let window = highwire_shmem::Window::whole(&Arc::new(highwire_shmem::Segment::open(&path).unwrap()));
    let in_use = window.u64_at(512 + 128);
    in_use.store(1 << 63 | 1 << 32 | u64::from(RKEY), Ordering::Release);
    let refused = engine.withdraw_region(RKEY, Duration::ZERO).unwrap_err();
    assert_eq!(refused.by, address(CHILD));
    assert!(engine.withdraw_queue_pair(1, Duration::ZERO).is_err());
    engine.withdraw_region(RKEY + 1, Duration::ZERO).expect("somebody else's key is not in use");
    second.kill();
    engine.withdraw_region(RKEY, Duration::ZERO).expect("the dead are not waited for");
    engine.withdraw_queue_pair(1, Duration::ZERO).expect("the dead are not waited for");
    drop(memory);
}
