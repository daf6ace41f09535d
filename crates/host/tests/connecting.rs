//! Connections by address and port between two devices of one process that share an address each.

mod common;

use common::PATIENCE;
use highwire_host::broker::Broker;
use highwire_host::cm::{CmError, Connection, DisconnectCause, Listener, RejectReason, Request, Terms};
use highwire_host::verbs::{Access, CompletionStatus, Mtu, Operation, QpState, RecvWr, SendWr, Service};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, FaultConfig, LinkChoice, ProtectionDomain,
    QueuePair, QueuePairConfig, Sharing, WaitFor,
};
use highwire_link::shm::Registry;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// A device with the objects that a queue pair needs.
struct End {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    buffer: Buffer,
}

/// A device at an address of its own, with a broker that runs in a thread of the test and ends with its last device.
fn config(link: LinkChoice) -> DeviceConfig {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    let address = [127, 88, process as u8 ^ (process >> 8) as u8, last].into();
    let registry = Registry::open().expect("a registry");
    let broker = Broker::open(&registry, address).expect("an address that nobody has");
    thread::spawn(move || broker.run().expect("serves"));
    at(address, link)
}

fn at(address: IpAddr, link: LinkChoice) -> DeviceConfig {
    DeviceConfig { address: Some(address), sharing: Sharing::Shared, link, ..DeviceConfig::default() }
}

impl End {
    fn new(config: &DeviceConfig) -> End {
        let device = Device::open(config).expect("a device that shares its address");
        let (pd, cq) = (device.protection_domain(), device.completion_queue(64).expect("a completion queue"));
        let buffer = pd.allocate(4096, Access::ALL).expect("a buffer");
        End { device, pd, cq, buffer }
    }

    fn queue_pair(&self, service: Service) -> QueuePair {
        self.pd.queue_pair(&QueuePairConfig::new(service, &self.cq)).expect("a queue pair")
    }

    fn next(&self) -> highwire_host::verbs::Completion {
        assert!(self.cq.wait(WaitFor::Any, PATIENCE), "no completion");
        self.cq.poll_one().expect("it waited for one")
    }
}

fn terms(private_data: &[u8]) -> Terms<'_> {
    Terms { private_data, patience: PATIENCE, ..Terms::default() }
}

/// Two ends with a connection; `service` of the one that asks.
fn connected(
    [client, server]: [&End; 2],
    listener: &Listener,
    service: Service,
    asked: &Terms<'_>,
    answered: &Terms<'_>,
) -> [Connection; 2] {
    thread::scope(|threads| {
        let accepting = threads.spawn(|| {
            let request = listener.request(PATIENCE).expect("a request");
            let queue_pair = server.queue_pair(service);
            request.accept(queue_pair, answered).expect("it accepts")
        });
        let queue_pair = client.queue_pair(service);
        let connection = client.device.connect(listener.address(), queue_pair, asked).expect("it connects");
        [connection, accepting.join().expect("the server")]
    })
}

fn say(from: (&End, &Connection), to: (&End, &Connection), text: &[u8]) {
    to.1.queue_pair().post_recv(&RecvWr { wr_id: 7, sges: &[to.0.buffer.sge(0, 64)] }).expect("a receive");
    from.0.buffer.write(100, text);
    let sges = [from.0.buffer.sge(100, text.len() as u32)];
    from.1.queue_pair().post_send(&[SendWr::new(1, Operation::Send, &sges)]).expect("a send");
    let (sent, received) = (from.0.next(), to.0.next());
    assert_eq!((sent.wr_id, sent.status), (1, CompletionStatus::Success));
    assert_eq!((received.wr_id, received.status), (7, CompletionStatus::Success));
    assert_eq!(to.0.buffer.to_vec(0, text.len()), text);
}

#[test]
fn messages_go_both_ways_over_what_was_listened_to_connected_and_accepted() {
    for link in [LinkChoice::Shm, LinkChoice::Udp] {
        for service in [Service::Rc, Service::Uc] {
            let (client, server) = (End::new(&config(link)), End::new(&config(link)));
            let listener = server.device.listen(0).expect("a listener");
            assert!(listener.port() >= 32768, "{}", listener.port());
            let [asked, accepted] =
                connected([&client, &server], &listener, service, &terms(b"ask"), &terms(b"answer"));
            assert_eq!(&asked.private_data()[..7], b"answer\0");
            assert_eq!(&accepted.private_data()[..4], b"ask\0");
            assert_eq!((asked.private_data().len(), accepted.private_data().len()), (196, 56));
            assert_eq!(asked.peer(), listener.address());
            assert_eq!(accepted.peer().ip(), client.device.gid().to_ip());
            assert!(accepted.peer().port() >= 32768, "{}", accepted.peer());
            say((&client, &asked), (&server, &accepted), b"hello");
            say((&server, &accepted), (&client, &asked), b"and to you");
        }
    }
}

#[test]
fn the_smaller_of_what_both_ends_say_holds_for_both() {
    let (client, server) = (End::new(&config(LinkChoice::Udp)), End::new(&config(LinkChoice::Udp)));
    let listener = server.device.listen(0).expect("a listener");
    let few = ConnectOptions {
        max_rd_atomic: 3,
        mtu: Some(Mtu::B512),
        retry_count: 5,
        ..ConnectOptions::default()
    };
    let many = ConnectOptions { max_rd_atomic: 9, rnr_retry: 2, ..ConnectOptions::default() };
    let ends = [&client, &server];
    let [asked, accepted] = connected(
        ends,
        &listener,
        Service::Rc,
        &Terms { options: few, ..terms(b"") },
        &Terms { options: many, ..terms(b"") },
    );
    let (asked, accepted) = (asked.queue_pair().query(), accepted.queue_pair().query());
    for now in [&asked, &accepted] {
        assert_eq!((now.max_rd_atomic, now.max_dest_rd_atomic), (3, 3));
        assert_eq!((now.mtu, now.retry_count, now.state), (Mtu::B512, 5, QpState::Rts));
    }
    // Each end says how often the other is to try again when no receive is there.
    assert_eq!((asked.rnr_retry, accepted.rnr_retry), (2, 7));
}

#[test]
fn a_connection_that_ends_is_over_at_both_ends_and_flushes_what_was_posted() {
    let (client, server) = (End::new(&config(LinkChoice::Shm)), End::new(&config(LinkChoice::Shm)));
    let listener = server.device.listen(0).expect("a listener");
    let ends = [&client, &server];
    let [asked, accepted] = connected(ends, &listener, Service::Rc, &terms(b""), &terms(b""));
    assert_eq!((asked.ended(), accepted.ended()), (None, None));
    assert_eq!(accepted.wait_ended(Duration::from_millis(1)), None);
    asked.queue_pair().post_recv(&RecvWr { wr_id: 9, sges: &[] }).expect("a receive");
    asked.disconnect(PATIENCE).expect("the peer answers");
    assert_eq!(accepted.wait_ended(PATIENCE), Some(DisconnectCause::Peer));
    let flushed = client.next();
    assert_eq!((flushed.wr_id, flushed.status), (9, CompletionStatus::Flushed));

    // Dropping a connection tells its peer as well, and the port and the address are free again.
    let [asked, accepted] = connected(ends, &listener, Service::Rc, &terms(b""), &terms(b""));
    drop(accepted);
    assert_eq!(asked.wait_ended(PATIENCE), Some(DisconnectCause::Peer));
}

#[test]
fn every_way_to_be_refused_has_an_error_that_says_so() {
    let (client, server) = (End::new(&config(LinkChoice::Udp)), End::new(&config(LinkChoice::Udp)));
    let listener = server.device.listen(0).expect("a listener");
    let connect = |to: SocketAddr, service, terms: &Terms<'_>| {
        client.device.connect(to, client.queue_pair(service), terms).map(drop)
    };
    let (is_refused_with, request) = thread::scope(|threads| {
        let refusing = threads.spawn(|| listener.request(PATIENCE).expect("a request").refuse(b"not today"));
        let refused = connect(listener.address(), Service::Rc, &terms(b""));
        (refused, refusing.join().expect("the server"))
    });
    request.expect("it refuses");
    match is_refused_with {
        Err(CmError::Refused { reason: RejectReason::CONSUMER, private_data }) => {
            assert_eq!(&private_data[..10], b"not today\0");
        }
        other => panic!("{other:?}"),
    }

    let nobody = SocketAddr::new(server.device.gid().to_ip(), 9);
    let refused = connect(nobody, Service::Rc, &terms(b""));
    let is_absent = matches!(&refused, Err(CmError::Refused { reason, .. }) if *reason == RejectReason::INVALID_SERVICE_ID);
    assert!(is_absent, "{refused:?}");

    let text = |result: Result<(), CmError>| result.expect_err("an error").to_string();
    assert!(text(connect(nobody, Service::Ud, &terms(b""))).contains("cannot be connected to one other"));
    assert_eq!(
        text(connect(nobody, Service::Rc, &terms(&[0; 57]))),
        "57 bytes of private data, and room for 56"
    );
    let elsewhere = "192.0.2.1:9".parse().expect("an address");
    assert!(
        text(connect(elsewhere, Service::Rc, &terms(b"")))
            .starts_with("192.0.2.1 cannot be reached from 127.")
    );

    // A request whose private data is too big ends at once; one that the listener does not take ends in time.
    thread::scope(|threads| {
        let slow = Terms { patience: Duration::from_millis(50), ..terms(b"") };
        assert!(matches!(connect(listener.address(), Service::Rc, &slow), Err(CmError::TimedOut(_))));
        let dropping = threads.spawn(|| {
            // The listener may take the request that was given up before it learns of that.
            let is_second = |request: &Request| request.private_data().starts_with(b"second");
            while !is_second(&listener.request(PATIENCE).expect("another request")) {}
        });
        let refused = connect(listener.address(), Service::Rc, &terms(b"second"));
        let is_refused =
            matches!(&refused, Err(CmError::Refused { reason, .. }) if *reason == RejectReason::CONSUMER);
        assert!(is_refused, "{refused:?}");
        dropping.join().expect("the server");
    });
    assert!(listener.request(Duration::from_millis(1)).is_none());
}

#[test]
fn a_port_has_one_listener_until_it_goes() {
    let config = config(LinkChoice::Udp);
    let (first, second) = (End::new(&config), End::new(&config));
    let listener = first.device.listen(0).expect("a listener");
    let port = listener.port();
    for device in [&first.device, &second.device] {
        assert!(matches!(device.listen(port), Err(CmError::Services(highwire_host::GsiError::InUse))));
    }
    drop(listener);
    let again = second.device.listen(port).expect("the port is free");
    let ends = [&first, &second];
    let [asked, accepted] = connected(ends, &again, Service::Rc, &terms(b""), &terms(b""));
    say((&first, &asked), (&second, &accepted), b"one address, two devices");

    let alone = End::new(&DeviceConfig::default());
    assert!(matches!(alone.device.listen(0), Err(CmError::Services(highwire_host::GsiError::Exclusive))));
}

#[test]
fn what_the_network_loses_of_a_handshake_is_repeated() {
    let mut config = config(LinkChoice::Udp);
    let server = End::new(&config);
    config.address = self::config(LinkChoice::Udp).address;
    config.faults = Some("loss=30%,seed=11".parse::<FaultConfig>().expect("faults"));
    let client = End::new(&config);
    let listener = server.device.listen(0).expect("a listener");
    for _ in 0..8 {
        let ends = [&client, &server];
        let [asked, accepted] = connected(ends, &listener, Service::Rc, &terms(b""), &terms(b""));
        asked.disconnect(PATIENCE).expect("the peer answers in the end");
        assert!(accepted.wait_ended(PATIENCE).is_some());
    }
}

/// Set in the process that is going to be killed: where its peer listens.
const TO: &str = "HIGHWIRE_TEST_CONNECT_TO";

#[test]
fn a_process_that_is_killed_ends_its_connections() {
    let server = End::new(&config(LinkChoice::Udp));
    let listener = server.device.listen(0).expect("a listener");
    let mut child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "the_other_process", "--nocapture", "--test-threads=1"])
        .env(TO, listener.address().to_string())
        .spawn()
        .expect("it starts");
    let request = listener.request(PATIENCE).expect("a request");
    let accepted = request.accept(server.queue_pair(Service::Rc), &terms(b"")).expect("it accepts");
    assert_eq!(accepted.ended(), None);
    child.kill().expect("it waits to be killed");
    child.wait().expect("it has ended");
    assert_eq!(accepted.wait_ended(PATIENCE), Some(DisconnectCause::Peer));
}

#[test]
fn the_other_process() {
    let Ok(to) = std::env::var(TO) else { return };
    let to: SocketAddr = to.parse().expect("an address");
    // A broker that this process started would be killed with it.
    let end = End::new(&at(to.ip(), LinkChoice::Udp));
    let _connection = end.device.connect(to, end.queue_pair(Service::Rc), &terms(b"")).expect("it connects");
    loop {
        thread::park();
    }
}
