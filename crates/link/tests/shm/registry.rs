//! Which engines find each other.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwire_link::shm::{
    ChannelConfig, ClaimError, EngineConfig, EngineName, Inbox, LookupError, Receiver, Registry,
    RegistryError,
};
use highwire_shmem::{Segment, Window};
use highwire_stdx::Rng;

use crate::support::{House, address};

#[test]
fn an_engine_is_found_while_it_lives_and_leaves_nothing_behind() {
    let house = House::new("found");
    let gid = address("127.9.8.7");
    assert!(matches!(house.registry.lookup(gid), Err(LookupError::Absent)));
    let engine = house.engine("127.9.8.7");
    let peer = house.registry.lookup(gid).unwrap();
    assert_eq!((peer.gid(), peer.lanes(), peer.generation()), (gid, 1, engine.generation()));
    assert_eq!(peer.pid(), std::process::id());
    assert!(peer.check_alive());
    assert_eq!(house.registry.list().unwrap(), [gid]);
    drop(engine);
    assert!(peer.is_gone() && !peer.check_alive());
    assert!(matches!(house.registry.lookup(gid), Err(LookupError::Absent)));
    assert!(!house.registry.directory(gid).exists());
}

#[test]
fn a_gid_belongs_to_one_engine_at_a_time() {
    let house = House::new("taken");
    let first = house.engine("127.9.8.7");
    let claim = || house.registry.claim(address("127.9.8.7"), &EngineConfig::default());
    let refused = claim().unwrap_err();
    assert!(
        matches!(refused, ClaimError::Taken { pid: Some(pid), .. } if pid == std::process::id()),
        "{refused}"
    );
    // An IPv4 address and its mapped form are one GID.
    let mapped = house.registry.claim(address("::ffff:127.9.8.7"), &EngineConfig::default());
    assert!(matches!(mapped, Err(ClaimError::Taken { .. })));
    let generation = first.generation();
    drop(first);
    assert_ne!(claim().unwrap().generation(), generation);
}

#[test]
fn engines_that_share_a_gid_are_told_apart_by_their_shard() {
    let house = House::new("shards");
    let gid = address("127.9.8.7");
    let claim = |shard| house.registry.claim(EngineName::shared(gid, shard), &EngineConfig::default());
    let (two, three) = (Arc::new(claim(2).unwrap()), Arc::new(claim(3).unwrap()));
    assert!(matches!(claim(2), Err(ClaimError::Taken { name, .. }) if name.to_string() == "127.9.8.7@2"));
    assert!(matches!(house.registry.lookup(gid), Err(LookupError::Absent)));
    let peer = Arc::new(house.registry.lookup(EngineName::shared(gid, 3)).unwrap());
    assert_eq!((peer.gid(), peer.generation()), (gid, three.generation()));
    // A channel leads back to the shard that announced it, whose directory holds the ring.
    let mut sender = peer.attach(&two, 0, 0, &ChannelConfig::default()).unwrap();
    let mut inbox = Inbox::new(&three, 0);
    sender.try_send(3, |out| out.copy_from_slice(b"hey")).unwrap();
    assert_eq!(sender.flush(), Receiver::Awake, "nobody sleeps");
    let mut seen = Vec::new();
    inbox.receive(8, |source, packet| seen.push((source, packet.len())));
    assert_eq!((seen, inbox.rejected()), (vec![(gid, 3)], 0));
    assert_eq!(house.registry.list().unwrap(), [two.name(), three.name()]);
    assert!(two.is_ours());
}

#[test]
fn engines_of_different_network_namespaces_are_no_neighbours() {
    let house = House::new("namespaces");
    let of = |namespace| house.registry.clone().of_namespace(namespace).unwrap();
    let (first, second) = (of("net-1"), of("net-2"));
    assert_eq!(first.root(), house.registry.root(), "the first one has the directory itself");
    assert_eq!(of("net-2").root(), second.root());
    assert_ne!(first.root(), second.root());
    let gid = address("127.9.8.7");
    let one = first.claim(gid, &EngineConfig::default()).unwrap();
    assert!(matches!(second.lookup(gid), Err(LookupError::Absent)), "it answers in another network");
    let other = second.claim(gid, &EngineConfig::default()).expect("an address is a network's own");
    assert_eq!(first.lookup(gid).unwrap().generation(), one.generation());
    assert_eq!(second.lookup(gid).unwrap().generation(), other.generation());
    assert_ne!(first.broker_socket(gid), second.broker_socket(gid));
    assert_eq!((first.list().unwrap(), second.list().unwrap()), (vec![one.name()], vec![other.name()]));
    assert!(
        first.reap_stale().unwrap().is_empty() && first.lookup(gid).is_ok() && second.lookup(gid).is_ok()
    );
}

#[test]
fn one_at_a_time_looks_for_brokers() {
    let house = House::new("brokers");
    let lock = house.registry.lock_broker(address("127.9.8.7")).unwrap();
    assert!(house.registry.try_lock_broker(address("127.9.8.7")).unwrap().is_none());
    // It is not the lock of directories.
    house.engine("127.9.8.6");
    drop(lock);
    assert!(house.registry.try_lock_broker(address("127.9.8.7")).unwrap().is_some());
    assert!(!house.registry.is_shared(address("127.9.8.6")));
    std::fs::remove_dir_all(house.registry.root()).unwrap();
    let gone = house.registry.try_lock_broker(address("127.9.8.7")).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn unused_loopback_addresses_are_all_different() {
    let house = House::new("loopback");
    let config = EngineConfig { qp_slots: 1, mr_slots: 1, channel_slots: 1, lanes: 1 };
    // The same seed on purpose: the second engine must look further.
    let engines: Vec<_> =
        (0..20).map(|_| house.registry.claim_unused_loopback(1, &config).unwrap()).collect();
    let gids: BTreeSet<_> = engines.iter().map(|engine| engine.gid()).collect();
    assert_eq!(gids.len(), engines.len());
    assert!(gids.iter().all(|gid| gid.is_loopback() && *gid != address("127.0.0.1")));
}

#[test]
fn ipv6_engines_have_directories_too() {
    let house = House::new("ipv6");
    let engine = house.engine("fe80::1");
    assert_eq!(house.registry.lookup(address("fe80::1")).unwrap().gid(), engine.gid());
}

#[test]
fn a_directory_that_others_could_enter_is_refused() {
    let house = House::new("refused");
    let root = house.registry.root();
    let refusal = |path: &std::path::Path| match Registry::open_at(path) {
        Err(RegistryError::Unsafe { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    for mode in [0o755, 0o770, 0o701, 0o777] {
        let path = root.join(format!("mode-{mode:o}"));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        assert!(refusal(&path).contains("0700"));
    }
    let link = root.join("link");
    symlink(root, &link).unwrap();
    assert!(refusal(&link).contains("not a directory"));
    let file = root.join("file");
    std::fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("not a directory"));
}

#[test]
fn reaping_removes_what_is_stale_and_nothing_else() {
    let house = House::new("reap");
    let root = house.registry.root().to_path_buf();
    let living = house.engine("127.1.1.1");
    std::fs::create_dir(root.join("127.2.2.2")).unwrap();
    std::fs::create_dir(root.join("127.3.3.3")).unwrap();
    std::fs::write(root.join("127.3.3.3/engine"), [7; 9000]).unwrap();
    std::fs::write(root.join("127.3.3.3/mem-1"), [7; 9000]).unwrap();
    std::fs::create_dir(root.join("something-else")).unwrap();
    let gone = [address("127.2.2.2"), address("127.3.3.3")];
    assert!(matches!(house.registry.lookup(gone[1]), Err(LookupError::Gone)));
    assert_eq!(house.registry.reap_stale().unwrap(), gone);
    assert_eq!(house.registry.list().unwrap(), [living.gid()]);
    assert!(root.join("something-else").exists());
    assert!(house.registry.reap_stale().unwrap().is_empty());
}

#[test]
fn a_scribbled_engine_segment_is_an_error_and_no_panic() {
    let house = House::new("scribbled");
    let engine = house.engine("127.1.1.1");
    let path = house.registry.directory(engine.gid()).join("engine");
    let window = Window::whole(&std::sync::Arc::new(Segment::open(&path).unwrap()));
    let mut rng = Rng::new(8);
    let (mut refused, mut accepted) = (0, 0);
    let original = window.load_words_relaxed::<16>(0);
    for _ in 0..5_000 {
        window.store_words_relaxed(0, &original);
        let word = rng.below(10) as usize * 8;
        let value = if rng.chance(0.5) { rng.next_u64() } else { 1 << rng.below(64) };
        window.u64_at(word).store(value, Ordering::Relaxed);
        match house.registry.lookup(engine.gid()) {
            Err(LookupError::Layout(_) | LookupError::Gone) => refused += 1,
            Err(other) => panic!("{other}"),
            // The generation and the process's number may be anything.
            Ok(_) => accepted += 1,
        }
    }
    assert!(refused > 1_000 && accepted > 100, "{refused} refused, {accepted} accepted");
}

#[test]
fn folders_of_files_that_no_process_uses_are_swept() {
    let house = House::new("folders");
    let made =
        ["files-0123", "files-4567", "draft-17", "draft-18"].map(|name| house.registry.root().join(name));
    for folder in &made {
        std::fs::create_dir_all(folder.join("sys/class/infiniband")).unwrap();
        std::fs::write(folder.join("sys/class/infiniband/guid"), "1").unwrap();
    }
    // As a program that has looked holds it, or one that is just making it.
    let users = [&made[0], &made[2]].map(|folder| std::fs::File::open(folder).unwrap());
    users.iter().for_each(|user| user.try_lock_shared().unwrap());
    let left = || made.clone().map(|folder| folder.join("sys/class/infiniband/guid").exists());
    assert!(house.registry.reap_stale().unwrap().is_empty());
    assert_eq!(left(), [true, false, true, false]);
    drop(users);
    house.registry.reap_stale().unwrap();
    assert_eq!(left(), [false; 4]);
    let names = std::fs::read_dir(house.registry.root()).unwrap();
    let drafts =
        names.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("draft"));
    assert_eq!(drafts.count(), 0);
}
