//! The seam: deadlines come when they should, cancelled ones do not, and the port asks when it is idle.

use highwire_fabric::{
    Fabric, FabricConfig, Host, HostId, LinkSpec, Packet, Priorities, Rate, Span, Time, Topology,
    ViolationKind,
};

#[derive(Clone, Copy)]
struct Ping;

impl Packet for Ping {
    fn wire_bytes(&self) -> u32 {
        1000
    }
    fn destination(&self) -> HostId {
        HostId(1)
    }
    fn flow_hash(&self) -> u64 {
        0
    }
}

/// Does what it is told through `with_host`, and keeps a diary.
#[derive(Clone, Default)]
struct Diarist {
    to_send: u32,
    /// The deadline; none if empty.
    deadline: Option<Time>,
    /// Never lets go of a deadline.
    is_stubborn: bool,
    packets: Vec<Time>,
    timeouts: Vec<Time>,
    asked: Vec<Time>,
}

impl Host<Ping> for Diarist {
    fn handle_packet(&mut self, now: Time, _packet: Ping) {
        self.packets.push(now);
        // A packet postpones the deadline, as an acknowledgement does.
        self.deadline = Some(now + Span::from_us(5));
    }
    fn handle_timeout(&mut self, now: Time) {
        if !self.is_stubborn {
            self.timeouts.push(now);
            self.deadline = None;
        }
    }
    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<Ping> {
        assert_eq!(open, Priorities::ALL);
        self.asked.push(now);
        self.to_send = self.to_send.checked_sub(1)?;
        Some(Ping)
    }
    fn poll_timeout(&self) -> Time {
        self.deadline.unwrap_or(Time::NEVER)
    }
}

fn pair() -> Fabric<Ping, Diarist> {
    let link = LinkSpec { rate: Rate::from_gbps(40), delay: Span::from_us(1) };
    let topology = Topology::star(2, link).expect("two hosts");
    Fabric::new(topology, FabricConfig::default(), vec![Diarist::default(); 2]).expect("the parts fit")
}

#[test]
fn a_deadline_comes_to_the_picosecond_and_once() {
    let mut net = pair();
    net.with_host(HostId(0), |host, _| host.deadline = Some(Time::from_ps(1_234_567)));
    net.run_to_rest().expect("no invariant breaks");
    assert_eq!(net.host(HostId(0)).timeouts, [Time::from_ps(1_234_567)]);
    assert_eq!(net.event_count(), 1);
}

#[test]
fn a_postponed_deadline_does_not_come_early() {
    let mut net = pair();
    net.with_host(HostId(1), |host, _| host.deadline = Some(Time::from_us(3)));
    net.with_host(HostId(0), |host, _| host.to_send = 3);
    net.run_to_rest().expect("no invariant breaks");
    let host = net.host(HostId(1));
    // Packets at 2.4, 2.6 and 2.8 us.
    assert_eq!(host.packets, [2400, 2600, 2800].map(Time::from_ns));
    assert_eq!(host.timeouts, [Time::from_ns(7800)]);
}

#[test]
fn an_advanced_deadline_is_not_missed_and_a_cancelled_one_never_comes() {
    let mut net = pair();
    net.with_host(HostId(0), |host, _| host.deadline = Some(Time::from_us(50)));
    net.with_host(HostId(0), |host, _| host.deadline = Some(Time::from_us(20)));
    net.with_host(HostId(1), |host, _| host.deadline = Some(Time::from_us(30)));
    net.run_until(Time::from_us(10)).expect("no invariant breaks");
    net.with_host(HostId(1), |host, now| {
        assert_eq!(now, Time::from_us(10));
        host.deadline = None;
    });
    net.run_to_rest().expect("no invariant breaks");
    assert_eq!(net.host(HostId(0)).timeouts, [Time::from_us(20)]);
    assert!(net.host(HostId(1)).timeouts.is_empty());
}

#[test]
fn the_port_asks_when_it_is_idle_and_after_what_happens() {
    let mut net = pair();
    net.with_host(HostId(0), |host, _| host.to_send = 2);
    net.run_to_rest().expect("no invariant breaks");
    // The port asks at the start, after the caller's change, when the first packet has left, and when the
    // second has left.
    assert_eq!(net.host(HostId(0)).asked, [0, 0, 200, 400].map(Time::from_ns));
}

#[test]
fn a_deadline_that_does_not_advance_is_named() {
    let mut net = pair();
    net.with_host(HostId(0), |host, _| {
        host.is_stubborn = true;
        host.deadline = Some(Time::from_us(1));
    });
    let violation = net.run_to_rest().expect_err("it would spin for ever");
    assert_eq!((violation.kind, violation.place.as_str()), (ViolationKind::HostSpins, "host h0"));
    assert_eq!(violation.time, Time::from_us(1));
}
