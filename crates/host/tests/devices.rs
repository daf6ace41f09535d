//! Opening and closing devices, and other processes' view of them.

mod common;

use common::{End, QKEY, Setup, next_ok, until};
use highwire_host::verbs::{
    Address, CompletionOp, CompletionStatus, Datagram, Operation, Recovery, SendWr, Service,
};
use highwire_host::{Device, DeviceConfig, Engine, LinkChoice, OpenError, running_devices};
use std::net::UdpSocket;

fn error_of(config: &DeviceConfig) -> OpenError {
    match Device::open(config) {
        Ok(device) => panic!("{} opened", device.gid()),
        Err(error) => error,
    }
}

#[test]
fn an_address_of_another_machine_is_refused_with_those_of_this_one() {
    let config = DeviceConfig { address: Some([203, 0, 113, 77].into()), ..DeviceConfig::default() };
    let text = error_of(&config).to_string();
    assert!(text.contains("203.0.113.77") && text.contains("127.0.0.1"), "{text}");
}

#[test]
fn a_port_that_is_taken_names_its_holder_and_the_ways_out() {
    let _holder = UdpSocket::bind("127.77.1.1:4791").expect("a socket");
    let config = DeviceConfig { address: Some([127, 77, 1, 1].into()), ..DeviceConfig::default() };
    let text = error_of(&config).to_string();
    assert!(text.contains(&std::process::id().to_string()) && text.contains("HIGHWIRE_ADDR"), "{text}");
}

#[test]
fn an_address_has_one_device() {
    let config = DeviceConfig { address: Some([127, 77, 1, 2].into()), ..DeviceConfig::default() };
    let first = Device::open(&config).expect("a device");
    let text = error_of(&config).to_string();
    assert!(text.contains("127.77.1.2"), "{text}");
    drop(first);
    Device::open(&config).expect("the address is free again");
}

#[test]
fn numbers_out_of_range_are_refused() {
    for lanes in [0, 65] {
        let error = error_of(&DeviceConfig { lanes, ..DeviceConfig::default() });
        assert!(matches!(error, OpenError::BadLanes(_)), "{error}");
    }
}

#[test]
fn devices_without_an_address_get_different_ones() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let config = DeviceConfig { link, engine: Engine::Inline, ..DeviceConfig::default() };
        let devices: Vec<_> = (0..8).map(|_| Device::open(&config).expect("a device")).collect();
        let mut gids: Vec<_> = devices.iter().map(Device::gid).collect();
        gids.sort();
        gids.dedup();
        assert_eq!(gids.len(), 8);
    }
}

#[test]
fn a_running_device_shows_its_counters_to_other_processes() {
    let [a, b] = &Setup::new(Service::Rc, LinkChoice::Udp).engine(Engine::Both).pair();
    b.receive(1, 0, 8);
    a.post(2, Operation::Send, 0, 8);
    next_ok(b, a);
    let shown = until("the counters to be written", || {
        let running = running_devices().expect("the directory can be read");
        let ours = running.into_iter().find(|device| device.address == a.device.gid().to_ip())?;
        let sent = ours.counters.iter().find(|(name, _)| name == "packets_sent")?.1;
        (sent > 0).then_some(ours)
    });
    assert_eq!(shown.pid, std::process::id());
}

#[test]
fn a_peer_that_closes_is_noticed_and_harms_nobody() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let mut setup = Setup::new(Service::Rc, link).recovery(Recovery::GoBackN);
        (setup.options.timeout, setup.options.retry_count) = (8, 2);
        let [a, b] = setup.pair();
        b.receive(1, 0, 8);
        a.post(1, Operation::Send, 0, 8);
        next_ok(&b, &a);
        next_ok(&a, &b);
        drop(b);
        a.post(2, Operation::Send, 0, 8);
        let completion = until("the end of all retries", || a.cq.poll_one());
        assert_eq!(completion.status, CompletionStatus::RetryExceeded, "{link}");
        // The survivor goes on with others.
        let [c, d] = &setup.pair();
        d.receive(1, 0, 8);
        c.post(1, Operation::Send, 0, 8);
        next_ok(d, c);
    }
}

#[test]
fn the_last_message_of_a_peer_that_closes_completes() {
    for service in [Service::Ud, Service::Uc, Service::Rc] {
        let [a, b] = Setup::new(service, LinkChoice::Auto).pair();
        let send = |from: &End, to: &End| {
            let sges = [from.buffer.sge(0, 8)];
            let address = Address::new(to.device.gid());
            let handle = Datagram { address, qpn: to.qp.qpn(), qkey: QKEY };
            let datagram = (service == Service::Ud).then_some(handle);
            let request = SendWr { datagram, ..SendWr::new(1, Operation::Send, &sges) };
            from.qp.post_send(&[request]).expect("posts");
        };
        let receives = |end: &End| next_ok(end, end).operation == CompletionOp::Receive;
        for end in [&a, &b] {
            (0..2).for_each(|_| end.receive(2, 0, 64));
        }
        // Each end has a channel to the other afterwards.
        for (from, to) in [(&a, &b), (&b, &a)] {
            send(from, to);
            while !receives(to) {}
        }
        send(&b, &a);
        drop(b);
        // Nothing comes after it that would show it, too.
        while !receives(&a) {}
    }
}

#[test]
fn a_seed_decides_every_number() {
    let config = DeviceConfig { seed: Some(7), engine: Engine::Inline, ..DeviceConfig::default() };
    let numbers = |config: &DeviceConfig| {
        let device = Device::open(config).expect("a device");
        let cq = device.completion_queue(8).expect("a CQ");
        let pd = device.protection_domain();
        let config = highwire_host::QueuePairConfig::new(Service::Rc, &cq);
        let endpoint = pd.queue_pair(&config).expect("a QP").endpoint();
        (endpoint.qpn, endpoint.psn)
    };
    let fixed = DeviceConfig { address: Some([127, 77, 1, 3].into()), ..config };
    assert_eq!(numbers(&fixed), numbers(&fixed));
    assert_ne!(numbers(&fixed), numbers(&DeviceConfig { seed: Some(8), ..fixed.clone() }));
}

/// The lines that the library has written.
static LINES: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

#[test]
fn a_queue_that_overflows_says_so_and_stops_its_users() {
    highwire_host::log_to(|line| LINES.lock().expect("no test fails with it").push(line.to_string()));
    use highwire_host::QueuePairConfig;
    use highwire_host::verbs::{AsyncEvent, QpState};
    let setup = Setup::new(Service::Rc, LinkChoice::Udp);
    let [a, b] = &[setup.end(), setup.end()];
    let small = b.device.completion_queue(4).expect("a CQ");
    let config = QueuePairConfig { recv_cq: &small, ..QueuePairConfig::new(Service::Rc, &b.cq) };
    let qp = b.pd.queue_pair(&config).expect("a QP");
    a.qp.connect(&qp.endpoint(), &setup.options).expect("connects");
    qp.connect(&a.qp.endpoint(), &setup.options).expect("connects");
    let sges = [b.buffer.sge(0, 8)];
    for wr_id in 0..8 {
        qp.post_recv(&highwire_host::verbs::RecvWr { wr_id, sges: &sges }).expect("posts");
        a.post(wr_id, Operation::Send, 0, 8);
    }
    let event = until("the event", || {
        let _ = [a, b].map(|end| end.cq.poll_one());
        b.device.async_event().filter(|event| matches!(event, AsyncEvent::CqError(_)))
    });
    assert!(matches!(event, AsyncEvent::CqError(_)));
    assert_eq!(qp.state(), QpState::Error);
    assert!(small.overruns() > 0);
    assert!(b.device.counters().value("cq_overruns") > 0);
    let lines = LINES.lock().expect("no test fails with it");
    assert!(lines.iter().any(|line| line.contains("was full: a completion is lost")), "{lines:?}");
}

#[test]
fn a_broken_queue_pair_is_closed_to_neighbours() {
    let mut setup = Setup::new(Service::Rc, LinkChoice::Auto);
    (setup.options.timeout, setup.options.retry_count) = (8, 1);
    let [a, b] = &setup.pair();
    a.post(1, Operation::Write(b.buffer.remote(0)), 0, 8);
    next_ok(a, b);
    assert_eq!(a.device.counters().value("direct"), 1);
    b.qp.modify(&highwire_host::verbs::QpAttr::to_state(highwire_host::verbs::QpState::Error))
        .expect("breaks");
    a.post(2, Operation::Write(b.buffer.remote(0)), 0, 8);
    let completion = until("the end of all retries", || {
        b.cq.poll_one();
        a.cq.poll_one()
    });
    assert_eq!(completion.status, CompletionStatus::RetryExceeded);
}
