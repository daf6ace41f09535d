//! Several devices at one address, as several processes have them, with a broker that runs in a thread of the test.

mod common;

use common::{End, Setup, next, next_ok, until};
use highwire_host::broker::{Broker, Mad, PortSpace, ServiceIds, sharers};
use highwire_host::verbs::{
    Address, CompletionStatus, Datagram, Operation, QpCaps, Recovery, SendWr, Service,
};
use highwire_host::{
    Device, DeviceConfig, EMPTY_COMPLETION, Engine, Gsi, GsiError, LinkChoice, OpenError, QueuePairConfig,
    ReceivedMad, Sharing, running_brokers, running_devices,
};
use highwire_link::shm::{EngineName, Registry};
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::Duration;

/// A shared address, for as long as this lives.
struct House {
    address: IpAddr,
    registry: Registry,
    broker: JoinHandle<()>,
    /// The broker ends with the last device.
    keeper: Device,
}

impl House {
    /// Every test has an address of its own, so tests run side by side.
    fn new(last: u8) -> House {
        let [.., c, d] = std::process::id().to_be_bytes();
        House::at(IpAddr::from([127, 192 | last & 31, c, d.clamp(1, 254)]))
    }

    /// At an address that another run of the tests may have for the moment.
    fn at(address: IpAddr) -> House {
        let registry = Registry::open().expect("a registry");
        let broker =
            until("an address", || Broker::open(&registry, address).ok()).with_linger(Duration::ZERO);
        let broker = std::thread::spawn(move || broker.run().expect("serves"));
        let keeper = Device::open(&shared(address)).expect("a part of the address");
        House { address, registry, broker, keeper }
    }

    fn device(&self) -> Device {
        Device::open(&shared(self.address)).expect("a part of the address")
    }

    fn setup(&self, service: Service, link: LinkChoice) -> Setup {
        let mut setup = Setup::new(service, link);
        (setup.config.address, setup.config.sharing) = (Some(self.address), Sharing::Shared);
        setup
    }

    /// No file may be left once the last device is closed.
    fn close(self) {
        drop(self.keeper);
        self.broker.join().expect("the broker ends by itself");
        assert!(!self.registry.is_shared(self.address));
        let address = self.address.to_string();
        let left: Vec<_> = std::fs::read_dir(self.registry.root())
            .expect("a directory")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.contains(&address))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn shared(address: IpAddr) -> DeviceConfig {
    DeviceConfig {
        address: Some(address),
        sharing: Sharing::Shared,
        engine: Engine::Inline,
        ..DeviceConfig::default()
    }
}

fn converse([a, b]: &[End; 2], what: &str) {
    for (from, to) in [(a, b), (b, a)] {
        let bytes = from.fill(0, 5000, 3);
        to.receive(1, 8192, 8192);
        from.post(2, Operation::Send, 0, 5000);
        next_ok(from, to);
        next_ok(to, from);
        assert_eq!(to.buffer.to_vec(8192, 5000), bytes, "{what}");
        from.post(3, Operation::Write(to.buffer.remote(20_000)), 0, 5000);
        from.post(4, Operation::Read(to.buffer.remote(20_000)), 30_000, 5000);
        assert_eq!([next_ok(from, to).wr_id, next_ok(from, to).wr_id], [3, 4], "{what}");
        assert_eq!(from.buffer.to_vec(30_000, 5000), bytes, "{what}");
    }
}

/// Each has a socket of its own at the common address, and the broker keeps the sockets of processes that have gone.
#[test]
fn at_a_shared_address_who_lives_and_does_not_run_is_not_given_up_and_who_has_gone_is() {
    let house = House::new(13);
    for recovery in [Recovery::GoBackN, Recovery::Irn] {
        let mut setup = house.setup(Service::Rc, LinkChoice::Udp).recovery(recovery);
        (setup.options.timeout, setup.options.retry_count) = (1, 1);
        let [a, b] = setup.pair();
        b.receive(1, 0, 64);
        a.post(2, Operation::Send, 0, 64);
        next_ok(&a, &b);
        next_ok(&b, &a);
        // From here on no thread polls the neighbour's engine, and hundreds of timeouts pass.
        b.receive(3, 0, 64);
        a.post(4, Operation::Send, 0, 64);
        for _ in 0..100_000 {
            assert_eq!(a.cq.poll_one(), None, "{recovery:?}");
        }
        next_ok(&a, &b);
        assert_eq!(next_ok(&b, &a).wr_id, 3, "{recovery:?}");
        drop(b);
        // It goes on sending, so that the socket is hardly ever empty.
        let sges = [a.buffer.sge(0, 64)];
        let ended = until("the end", || {
            let _ = a.qp.post_send(&[SendWr::new(5, Operation::Send, &sges)]);
            a.cq.poll_one()
        });
        assert_eq!((ended.wr_id, ended.status), (5, CompletionStatus::RetryExceeded), "{recovery:?}");
        // A neighbour that runs and has no answer to give.
        let [a, End { qp, cq, .. }] = setup.pair();
        drop(qp);
        a.post(6, Operation::Send, 0, 64);
        let ended = until("the end", || {
            cq.poll_one();
            a.cq.poll_one()
        });
        assert_eq!((ended.wr_id, ended.status), (6, CompletionStatus::RetryExceeded), "{recovery:?}");
    }
    house.close();
}

#[test]
fn devices_at_one_address_reach_each_other_over_both_links() {
    let house = House::new(1);
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        for recovery in [Recovery::GoBackN, Recovery::Irn] {
            let setup = house.setup(Service::Rc, link).recovery(recovery);
            let ends = setup.pair();
            let what = setup.label();
            for end in &ends {
                assert_eq!(end.device.gid().to_ip(), house.address);
                let shard = end.device.shard().expect("a part of the address");
                assert_eq!(end.qp.qpn().value() as u8, shard, "{what}");
            }
            assert_ne!(ends[0].device.shard(), ends[1].device.shard());
            converse(&ends, &what);
            let irn = ends[0].qp.query().recovery;
            assert_eq!(irn, recovery, "{what}: each asked the other, and not somebody else");
            let direct = ends[0].device.counters().value("direct");
            assert_eq!(direct > 0, link == LinkChoice::Auto, "{what}: {direct}");
            assert_eq!(ends[0].device.counters().value("dropped_unknown_qp"), 0, "{what}");
        }
    }
    house.close();
}

#[test]
fn an_address_of_ipv6_is_shared_as_well() {
    // There is just one that every machine has.
    let house = House::at(std::net::Ipv6Addr::LOCALHOST.into());
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        let setup = house.setup(Service::Rc, link).recovery(Recovery::Irn);
        let ends = setup.pair();
        assert!(ends.iter().all(|end| end.device.gid().to_ip() == house.address));
        converse(&ends, &setup.label());
        assert_eq!(ends[0].qp.query().recovery, Recovery::Irn, "each asked the other");
    }
    let devices = [house.device(), house.device()];
    let [a, b] = devices.each_ref().map(|device| device.gsi().expect("an interface"));
    let service = 0x0106_1D2F;
    b.listen(ServiceIds::one(service)).expect("listens");
    a.send(house.address, &request_for(service, u32::from(a.shard()))).expect("sends");
    let heard = hear(&b);
    assert_eq!((heard.source, *heard.mad), (house.address, request_for(service, u32::from(a.shard()))));
    drop((a, b, devices));
    house.close();
}

#[test]
fn a_device_of_its_own_reaches_one_that_shares_its_address() {
    let house = House::new(9);
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        for recovery in [Recovery::GoBackN, Recovery::Irn] {
            let setup = house.setup(Service::Rc, link).recovery(recovery);
            let alone = Setup::new(Service::Rc, link).recovery(recovery);
            let ends = [alone.end(), setup.end()];
            setup.connect(&ends);
            converse(&ends, &setup.label());
            assert_eq!(ends[0].qp.query().recovery, recovery);
            for end in &ends {
                let direct = end.device.counters().value("direct");
                assert_eq!(direct > 0, link == LinkChoice::Auto, "{}: {direct}", setup.label());
            }
        }
    }
    house.close();
}

#[test]
fn a_shard_is_not_given_again_at_once() {
    let house = House::new(10);
    let shards: Vec<_> = (0..8).map(|_| house.device().shard().expect("a part")).collect();
    let different: std::collections::BTreeSet<_> = shards.iter().collect();
    assert_eq!(different.len(), shards.len(), "{shards:?}");
    // But in the end the part is given out again.
    let mut more = (0..64).map(|_| house.device().shard().expect("a part"));
    assert!(more.any(|shard| shard == shards[0]));
    drop(more);
    house.close();
}

#[test]
fn two_queue_pairs_of_one_shared_device_reach_each_other() {
    let house = House::new(2);
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        let setup = house.setup(Service::Rc, link).recovery(Recovery::Irn);
        let first = setup.end();
        let cq = first.device.completion_queue(64).expect("a queue");
        let config = highwire_host::QueuePairConfig::new(Service::Rc, &cq);
        let second = End {
            qp: first.pd.queue_pair(&config).expect("a queue pair"),
            buffer: first
                .pd
                .allocate(common::BUFFER_BYTES, highwire_host::verbs::Access::ALL)
                .expect("memory"),
            cq,
            pd: first.pd.clone(),
            device: first.device.clone(),
        };
        let ends = [first, second];
        setup.connect(&ends);
        converse(&ends, &setup.label());
    }
    house.close();
}

#[test]
fn faults_and_captures_work_at_a_shared_address() {
    let house = House::new(3);
    let path = std::env::temp_dir().join(format!("highwire-sharing-{}.pcap", std::process::id()));
    for link in [LinkChoice::Auto, LinkChoice::Shm] {
        let mut setup = house.setup(Service::Rc, link).faults("loss=0.05,seed=7");
        setup.config.capture = Some(path.clone());
        let ends = [setup.end(), house.setup(Service::Rc, link).faults("loss=0.01").end()];
        setup.connect(&ends);
        for _ in 0..20 {
            converse(&ends, &setup.label());
        }
        let counters = ends[0].device.counters();
        assert!(counters.value("fault_dropped") > 0, "{link}");
        assert_eq!(counters.value("direct"), 0, "{link}: nothing gets around them");
        // Packets from and to queue pair 1 are in the capture, too.
        let recorded = ends[0].device.counters().value("capture_recorded");
        let [a, b] = [&ends[0], &ends[1]].map(|end| end.device.gsi().expect("an interface"));
        for _ in 0..20 {
            a.send(house.address, &to_id(u32::from(b.shard()))).expect("sends");
        }
        hear(&b);
        let after = ends[0].device.counters().value("capture_recorded");
        assert!(after >= recorded + 20, "{link}: {recorded} and then {after}");
    }
    let _ = std::fs::remove_file(path);
    house.close();
}

#[test]
fn a_busy_neighbour_at_the_same_address_gets_none_of_ours() {
    // Small messages of one sender to two receivers at one address would share trains if the sender did not keep them apart.
    let house = House::new(4);
    let setup = house.setup(Service::Ud, LinkChoice::Udp);
    let sender = setup.end();
    let receivers = [setup.end(), setup.end()];
    for end in receivers.iter().chain([&sender]) {
        end.qp.activate(common::QKEY).expect("activates");
    }
    for receiver in &receivers {
        (0..64).for_each(|n| receiver.receive(n, n * 128, 128));
    }
    sender.fill(0, 64, 9);
    let sges = [sender.buffer.sge(0, 64)];
    let mut chain = Vec::new();
    for n in 0..64u64 {
        let to = &receivers[n as usize % 2];
        let mut wr = highwire_host::verbs::SendWr::new(n, Operation::Send, &sges);
        wr.datagram =
            Some(Datagram { address: Address::new(to.device.gid()), qpn: to.qp.qpn(), qkey: common::QKEY });
        chain.push(wr);
    }
    sender.qp.post_send(&chain).expect("posts");
    for n in 0..64 {
        let receiver = &receivers[n % 2];
        assert_eq!(next(receiver, &sender).status, CompletionStatus::Success);
    }
    for receiver in &receivers {
        assert_eq!(receiver.device.counters().value("dropped_unknown_qp"), 0);
    }
    drop((sender, receivers));
    house.close();
}

#[test]
fn an_unreliable_burst_leaves_at_the_pace_of_its_receiver() {
    const MESSAGES: u32 = 512;
    const BYTES: u32 = 1 << 16;
    let house = House::new(11);
    let setup = house.setup(Service::Uc, LinkChoice::Udp);
    let ends = [(); 2].map(|()| {
        let end = setup.end();
        let config = QueuePairConfig {
            caps: QpCaps { max_send_wr: MESSAGES, max_recv_wr: MESSAGES, ..QpCaps::default() },
            ..QueuePairConfig::new(Service::Uc, &end.cq)
        };
        End { qp: end.pd.queue_pair(&config).expect("a queue pair"), ..end }
    });
    setup.connect(&ends);
    let [from, to] = &ends;
    for n in 0..MESSAGES {
        to.receive(n.into(), 0, BYTES);
        from.post(n.into(), Operation::Send, 0, BYTES);
    }
    // Several times what a socket holds, and the sender comes by far more often than the receiver.
    let (mut sent, mut received, mut found) = (0, 0, [EMPTY_COMPLETION; 64]);
    until("the last message", || {
        for _ in 0..8 {
            sent += from.cq.poll(&mut found);
        }
        received += to.cq.poll(&mut found);
        (received == MESSAGES as usize).then_some(())
    });
    assert_eq!(sent, received);
    let counters = [from, to].map(|end| end.device.counters());
    assert!(counters[0].value("waited_for_room") > 0, "the burst was too short to say anything");
    assert_eq!(counters[1].value("rx_overflow"), 0);
    drop(ends);
    house.close();
}

#[test]
fn a_broker_ends_without_its_registry() {
    let root = std::env::temp_dir().join(format!("highwire-registry-{}", std::process::id()));
    let registry = Registry::open_at(&root).expect("a registry");
    let [.., c, d] = std::process::id().to_be_bytes();
    let address = IpAddr::from([127, 191, c, d.clamp(1, 254)]);
    let broker = Broker::open(&registry, address).expect("an address").with_linger(Duration::from_secs(3600));
    let broker = std::thread::spawn(move || broker.run().expect("serves"));
    // The process that asks counts as a visitor, too.
    assert_eq!(sharers(&registry, address), Some(Vec::new()));
    // In one step: a broker that is about to end would make the lock again.
    let gone = root.with_extension("gone");
    std::fs::rename(&root, &gone).expect("it is ours");
    broker.join().expect("it ends");
    std::fs::remove_dir_all(gone).expect("it is ours");
}

#[test]
fn the_broker_knows_who_is_there() {
    let house = House::new(5);
    let devices = [house.device(), house.device()];
    let seen = sharers(&house.registry, house.address).expect("a broker");
    let all = [&house.keeper, &devices[0], &devices[1]].map(Device::shard);
    assert_eq!(seen.iter().map(|sharer| Some(sharer.shard)).collect::<Vec<_>>(), all);
    assert!(seen.iter().all(|sharer| sharer.pid == std::process::id()));
    let name = EngineName::shared(house.address, seen[0].shard);
    assert!(house.registry.directory(name).exists());
    let exclusive = DeviceConfig { address: Some(house.address), ..DeviceConfig::default() };
    let Err(error) = Device::open(&exclusive) else { panic!("the address is taken") };
    assert!(error.to_string().contains("is taken, by process"), "{error}");
    let two_lanes = DeviceConfig { lanes: 2, ..shared(house.address) };
    assert!(matches!(Device::open(&two_lanes), Err(OpenError::SharedLanes(2))));
    drop(devices);
    house.close();
}

fn mad(attribute: u16, words: [u32; 4]) -> Mad {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    for (word, at) in words.into_iter().zip((24..).step_by(4)) {
        mad[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    mad
}

fn request_for(service: u64, id: u32) -> Mad {
    mad(0x10, [id, 0, (service >> 32) as u32, service as u32])
}

/// A message that answers to an id.
fn to_id(id: u32) -> Mad {
    mad(0x14, [0, id, 0, 0])
}

#[track_caller]
fn hear(gsi: &Gsi) -> ReceivedMad {
    until("a datagram", || gsi.try_receive())
}

#[test]
fn datagrams_find_the_listener_and_answers_their_owner() {
    let house = House::new(6);
    let devices = [house.device(), house.device(), house.device()];
    let [a, b, c] = devices.each_ref().map(|device| device.gsi().expect("an interface"));
    let service = 0x0106_1D2F;
    b.listen(ServiceIds::one(service)).expect("listens");
    let all_of_tcp = ServiceIds { id: 0x0106_0000, mask: !0xFFFF };
    for other in [&a, &b, &c] {
        assert!(matches!(other.listen(all_of_tcp), Err(GsiError::InUse)));
    }
    a.send(house.address, &request_for(service, u32::from(a.shard()))).expect("sends");
    let heard = hear(&b);
    assert_eq!((heard.source, heard.source_qpn.value()), (house.address, 1));
    assert_eq!(*heard.mad, request_for(service, u32::from(a.shard())));
    b.send(heard.source, &to_id(0xABCD_EF00 | u32::from(a.shard()))).expect("sends");
    assert_eq!(*hear(&a).mad, to_id(0xABCD_EF00 | u32::from(a.shard())));
    // No process listens to that service.
    c.send(house.address, &request_for(service + 1, u32::from(c.shard()))).expect("sends");
    let rejected = hear(&c).mad;
    assert_eq!((rejected[16..18].to_vec(), rejected[34..36].to_vec()), (vec![0, 0x12], vec![0, 8]));
    b.unlisten(ServiceIds::one(service)).expect("stops");
    c.listen(all_of_tcp).expect("it is free again");
    a.send(house.address, &request_for(service, u32::from(a.shard()))).expect("sends");
    hear(&c);
    assert!([&a, &b, &c].iter().all(|gsi| gsi.try_receive().is_none()));
    drop((a, b, c, devices));
    house.close();
}

#[test]
fn what_queue_pair_1_drops_is_counted_by_reason_where_others_read_it() {
    let house = House::new(14);
    let (asking, stranger) = (house.device(), house.device());
    let gsi = asking.gsi().expect("an interface");
    let count = |name: &str| {
        let brokers = running_brokers().expect("a directory");
        let ours = brokers.iter().find(|broker| broker.address == house.address)?;
        assert_eq!(ours.pid, std::process::id(), "it runs in this test");
        ours.counters.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    };
    // A request without a listener is answered, a confirmation without a recipient is not.
    gsi.send(house.address, &request_for(0x0106_1D30, u32::from(gsi.shard()))).expect("sends");
    hear(&gsi);
    gsi.send(house.address, &to_id(0x1234_56FD)).expect("sends");
    until("the one for nobody", || (count("dropped_nobody") == Some(1)).then_some(()));
    assert_eq!((count("gsi_declined"), count("gsi_sent")), (Some(1), Some(1)));
    // Another user's program may send anything.
    let socket = std::net::UdpSocket::bind((house.address, 0)).expect("a socket");
    let mut packet = highwire_host::broker::gsi_packet(Default::default(), &to_id(1)).to_vec();
    packet[20] ^= 1;
    socket.send_to(&packet, (house.address, highwire_wire::UDP_PORT)).expect("sends");
    until("the damaged one", || (count("dropped_bad_icrc") == Some(1)).then_some(()));
    // The broker is no sharer and no device, and no process waits for it.
    let all = running_devices().expect("a directory");
    let shards: Vec<_> = all
        .iter()
        .filter(|device| device.address == house.address)
        .filter_map(|device| device.shard)
        .collect();
    assert_eq!(shards.len(), 3, "{shards:?}");
    assert!(!shards.contains(&1));
    drop((gsi, asking, stranger));
    house.close();
}

#[test]
fn a_request_waits_for_a_listener_that_is_about_to_come() {
    let house = House::new(12);
    let devices = [house.device(), house.device()];
    let [a, b] = devices.each_ref().map(|device| device.gsi().expect("an interface"));
    let service = |port: u16| 0x0106_0000 | u64::from(port);
    let ask = |port| a.send(house.address, &request_for(service(port), u32::from(a.shard()))).expect("sends");
    for port in [7001, 7002] {
        b.bind_port(PortSpace::TCP, port).expect("free");
    }
    // A process announces a listener before it listens, and then between two listeners.
    ask(7001);
    for _ in 0..2 {
        b.listen(ServiceIds::one(service(7001))).expect("listens");
        assert_eq!(*hear(&b).mad, request_for(service(7001), u32::from(a.shard())));
        b.unlisten(ServiceIds::one(service(7001))).expect("pauses");
        ask(7001);
    }
    // But if the process never listens, the broker declines for it.
    ask(7002);
    let rejected = [hear(&a).mad, hear(&a).mad];
    assert!(rejected.iter().all(|mad| (&mad[16..18], &mad[34..36]) == (&[0, 0x12][..], &[0, 8][..])));
    assert!(b.try_receive().is_none());
    drop((a, b, devices));
    house.close();
}

#[test]
fn ports_belong_to_one_process_and_come_back_with_its_end() {
    let house = House::new(7);
    let devices = [house.device(), house.device()];
    let [a, b] = devices.each_ref().map(|device| device.gsi().expect("an interface"));
    assert_eq!(a.bind_port(PortSpace::TCP, 7471).expect("free"), 7471);
    assert!(matches!(b.bind_port(PortSpace::TCP, 7471), Err(GsiError::InUse)));
    assert_eq!(b.bind_port(PortSpace::UDP, 7471).expect("another space"), 7471);
    let any = b.bind_port(PortSpace::TCP, 0).expect("any");
    assert!(any >= 32_768);
    assert!(matches!(a.bind_port(PortSpace::TCP, any), Err(GsiError::InUse)));
    // Only its owner can give a port back.
    a.release_port(PortSpace::TCP, any).expect("no error");
    assert!(matches!(a.bind_port(PortSpace::TCP, any), Err(GsiError::InUse)));
    b.release_port(PortSpace::TCP, any).expect("gives it back");
    assert_eq!(a.bind_port(PortSpace::TCP, any).expect("free"), any);
    let [first, second] = devices;
    drop((a, first));
    until("the end of the first process", || b.bind_port(PortSpace::TCP, 7471).ok());
    drop((b, second));
    house.close();
}

#[test]
fn a_last_will_is_sent_unless_it_was_revoked() {
    let house = House::new(8);
    let devices = [house.device(), house.device()];
    let [a, b] = devices.each_ref().map(|device| device.gsi().expect("an interface"));
    let message = |n: u32| to_id(n << 8 | u32::from(b.shard()));
    for n in 1..=3 {
        a.leave_last_message(n, house.address, &message(n)).expect("takes it");
    }
    a.leave_last_message(1, house.address, &message(9)).expect("replaces it");
    a.revoke_last_message(2).expect("takes it back");
    let [first, second] = devices;
    drop((a, first));
    let heard = [hear(&b).mad, hear(&b).mad];
    assert_eq!(heard.map(|mad| mad[30]), [9, 3]);
    assert!(b.try_receive().is_none());
    drop((b, second));
    house.close();
}

#[test]
fn a_device_of_its_own_has_no_queue_pair_1() {
    let device =
        Device::open(&DeviceConfig { engine: Engine::Inline, ..DeviceConfig::default() }).expect("opens");
    assert!(device.shard().is_none());
    assert!(matches!(device.gsi(), Err(GsiError::Exclusive)));
}
