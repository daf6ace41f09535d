//! The sleeps of a lane's threads, and the bell by which neighbours end them.
//!
//! A lane says in shared memory that it sleeps, and a neighbour that sends rings its bell. One rule spares a sleeper a wake-up: it is not
//! woken by acknowledgements alone ([`Keep::AcksAndBells`](super::ways::Keep)) while this side's answer is near, which rings; the time for
//! that is bounded ([`Deferral`](super::deferral::Deferral)).
//!
//! A thread that takes a packet spares the sleeper nothing: it may not call in again, and then the next packet is the sleeper's. So the
//! bell is silenced only by a thread that was a sleeper itself, and that thread announces the other one anew.
//!
//! Invariant: while a thread sleeps, the lane is announced as asleep, or its bell is readable, or a neighbour is about to ring, or the
//! thread that has silenced the bell has yet to look for packets.

use super::Engine;
use highwire_stdx::Duration;
use highwire_wake::world::may_switch;

/// Threads that sleep on what a lane receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleeper {
    /// The background thread, or a thread that runs the device in its stead.
    Thread,
    /// The waiting thread that leads.
    Leader,
}

/// Which threads sleep, and whether they are to be rung for.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    /// Which of the sleepers sleeps until a peer rings.
    asleep: [bool; 2],
    /// A sleep is over, and the bell was not looked at since.
    may_have_rung: bool,
}

impl Engine {
    /// Gets ready for a sleep: from now on, neighbours and threads with work for the lane wake the sleeper.
    /// Returns how long the sleep may last, or `None` if there is work already.
    pub(crate) fn prepare_sleep(&mut self, who: Sleeper) -> Option<Duration> {
        self.sleep.asleep[who as usize] = true;
        may_switch();
        self.time.pass();
        let now = self.now();
        let left = self.deadline().map_or(Duration::MAX, |at| at.saturating_since(now));
        may_switch();
        let may_sleep = self.board.prepare_sleep_seqcst()
            && self.ways.shm.as_mut().is_none_or(|shm| {
                // While many packets are held, those in the rings are to stay there.
                self.arrivals.held.is_full() || shm.rings.inbox.prepare_sleep()
            })
            && self.arrivals.mailboxes[self.lane as usize].is_empty()
            && left > Duration::ZERO;
        may_switch();
        if !may_sleep {
            self.awake(who);
        }
        may_sleep.then_some(left)
    }

    /// The sleep is over. While another thread sleeps here, peers go on ringing.
    pub(crate) fn awake(&mut self, who: Sleeper) {
        self.sleep.asleep[who as usize] = false;
        // A packet in the socket may have ended the sleep, or a neighbour's bell.
        self.sleep.may_have_rung = true;
        if self.sleep.asleep.contains(&true) {
            return;
        }
        self.board.awake();
        if let Some(shm) = &self.ways.shm {
            shm.rings.inbox.awake();
        }
    }

    /// Whether a sleep that its time has ended, and no bell, leaves packets of neighbours to be found. That should never be.
    pub(crate) fn has_overslept(&mut self) -> bool {
        !self.arrivals.held.is_full()
            && self.ways.shm.as_mut().is_some_and(|shm| shm.rings.inbox.has_packets())
    }

    /// From now on no neighbour rings, although a thread sleeps: a bell that is lost.
    #[cfg(test)]
    pub(crate) fn lose_bells(&self) {
        if let Some(shm) = &self.ways.shm {
            shm.rings.inbox.awake();
        }
    }

    /// The leader is awake. It may have been kept from saying so at once.
    #[inline]
    pub(crate) fn awake_from_rest(&mut self) {
        if self.sleep.asleep[Sleeper::Leader as usize] {
            self.awake(Sleeper::Leader);
        }
    }

    /// At the beginning of a turn: if it is the first one after a sleep, the socket will be looked at, unless it was a neighbour's bell that
    /// ended the sleep.
    #[inline]
    pub(super) fn hear_bell(&mut self) {
        if self.sleep.may_have_rung {
            self.silence_after_sleep();
        }
    }

    #[cold]
    fn silence_after_sleep(&mut self) {
        self.sleep.may_have_rung = false;
        let has_rung = self.ways.shm.as_ref().is_some_and(|shm| shm.rings.inbox.silence());
        if self.sleep.asleep.contains(&true) {
            // The bell was the other sleeper's as well, which may not have heard it. What came before is this turn's, which looks now.
            self.board.announce_sleep_seqcst();
            if let Some(shm) = &self.ways.shm {
                shm.rings.inbox.announce_sleep();
            }
        }
        if !has_rung {
            self.ways.udp.pace.hurry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use crate::{Device, DeviceConfig, LinkChoice, QueuePairConfig};
    use highwire_verbs::{Operation, SendWr, Service};
    use std::os::fd::AsFd;

    /// Two devices that only the test runs; the first one's lane, a look at its bell, and a datagram from the second.
    fn play(scene: impl FnOnce(&crate::lane::Lane, &dyn Fn() -> bool, &dyn Fn())) {
        let config =
            DeviceConfig { link: LinkChoice::Auto, engine: crate::Engine::Inline, ..DeviceConfig::default() };
        let ends = [(); 2].map(|()| {
            let device = Device::open(&config).expect("a device");
            let (pd, cq) = (device.protection_domain(), device.completion_queue(64).expect("a queue"));
            let qp = pd.queue_pair(&QueuePairConfig::new(Service::Ud, &cq)).expect("a queue pair");
            qp.activate(1).expect("activates");
            (device, pd, cq, qp)
        });
        let [(device, .., qp), (.., sender)] = &ends;
        let handle = highwire_verbs::Datagram {
            address: highwire_verbs::Address::new(device.gid()),
            qpn: qp.qpn(),
            qkey: 1,
        };
        let request = SendWr { datagram: Some(handle), ..SendWr::new(1, Operation::Send, &[]) };
        let send = || sender.post_send(&[request]).expect("posts");
        let shared = device.inner();
        let is_rung = || {
            let fds: Vec<_> = shared.lane_fds[0].iter().map(AsFd::as_fd).collect();
            sys::wait_readable(&fds, Some(Duration::ZERO))
        };
        // The first packet announces the sender.
        send();
        shared.lanes[0].control(|engine| engine.pump());
        scene(&shared.lanes[0], &is_rung, &send);
    }

    fn sleep(lane: &crate::lane::Lane, who: Sleeper) {
        assert!(lane.control(|engine| engine.prepare_sleep(who)).is_some());
    }

    #[test]
    fn a_thread_that_takes_a_packet_leaves_the_sleeper_its_bell() {
        play(|lane, is_rung, send| {
            sleep(lane, Sleeper::Thread);
            assert!(!is_rung());
            send();
            assert!(is_rung(), "it sleeps");
            // A thread polls before the sleeper has woken, and never again.
            lane.control(|engine| engine.pump());
            assert!(is_rung(), "the sleeper wakes for the next one at the latest");
            send();
            assert!(is_rung());
            lane.control(|engine| engine.awake(Sleeper::Thread));
            assert_eq!(lane.control(|engine| engine.pump()).packets, 1);
            assert!(!is_rung());
        });
    }

    #[test]
    fn a_sleeper_that_wakes_and_silences_the_bell_announces_the_other_one_anew() {
        for (first, other) in [(Sleeper::Leader, Sleeper::Thread), (Sleeper::Thread, Sleeper::Leader)] {
            play(|lane, is_rung, send| {
                [first, other].iter().for_each(|&who| sleep(lane, who));
                send();
                assert!(is_rung(), "both sleep");
                lane.control(|engine| engine.awake(first));
                assert_eq!(lane.control(|engine| engine.pump()).packets, 1);
                assert!(!is_rung(), "the first one has heard it");
                send();
                assert!(is_rung(), "{other:?} sleeps still");
            });
            // One that wakes for another reason, and makes no turn.
            play(|lane, is_rung, send| {
                [first, other].iter().for_each(|&who| sleep(lane, who));
                lane.control(|engine| engine.awake(first));
                send();
                assert!(is_rung(), "{other:?} sleeps still");
            });
        }
    }

    #[test]
    fn a_thread_that_finds_a_packet_as_it_goes_to_sleep_leaves_the_other_one_its_bell() {
        play(|lane, is_rung, send| {
            sleep(lane, Sleeper::Leader);
            send();
            assert!(lane.control(|engine| engine.prepare_sleep(Sleeper::Thread)).is_none(), "a packet waits");
            assert_eq!(lane.control(|engine| engine.pump()).packets, 1);
            send();
            assert!(is_rung(), "the leader sleeps still");
        });
    }

    /// A device that only the test runs, with a queue pair for datagrams.
    fn datagrams(faults: Option<&str>) -> (Device, crate::QueuePair, [Box<dyn std::any::Any>; 2]) {
        let faults = faults.map(|text| text.parse().expect("faults"));
        let engine = crate::Engine::Inline;
        let config = DeviceConfig { link: LinkChoice::Shm, engine, faults, ..DeviceConfig::default() };
        let device = Device::open(&config).expect("a device");
        let (pd, cq) = (device.protection_domain(), device.completion_queue(4096).expect("a queue"));
        let qp = pd.queue_pair(&QueuePairConfig::new(Service::Ud, &cq)).expect("a queue pair");
        qp.activate(1).expect("activates");
        (device, qp, [Box::new(pd), Box::new(cq)])
    }

    fn send_to(qp: &crate::QueuePair, (device, to): (&Device, &crate::QueuePair)) {
        let address = highwire_verbs::Address::new(device.gid());
        let handle = highwire_verbs::Datagram { address, qpn: to.qpn(), qkey: 1 };
        qp.post_send(&[SendWr { datagram: Some(handle), ..SendWr::new(1, Operation::Send, &[]) }])
            .expect("posts");
    }

    #[test]
    fn nobody_sleeps_over_a_backlog_and_that_of_a_neighbour_that_has_gone_goes_with_it() {
        let (device, sender, _objects) = datagrams(None);
        let (other, receiver, objects) = datagrams(None);
        let lane = &device.inner().lanes[0];
        let has_backlog =
            || lane.control(|engine| engine.ways.shm.as_ref().is_some_and(|shm| shm.rings.has_backlog()));
        let mut sent = 0;
        while !has_backlog() {
            send_to(&sender, (&other, &receiver));
            sent += 1;
            assert!(sent < 100_000, "a ring has an end");
        }
        let prepare = || lane.control(|engine| engine.prepare_sleep(Sleeper::Thread));
        assert_eq!(prepare(), None, "nothing would wake it when there is room");
        // Its process is killed: nothing of it closes in order.
        drop((receiver, objects, other));
        lane.control(|engine| {
            engine.reap();
            engine.pump();
        });
        assert!(!has_backlog(), "it waits for nobody");
        lane.control(|engine| engine.pump());
        assert!(prepare().is_some());
        let (next, receiver, _objects) = datagrams(None);
        send_to(&sender, (&next, &receiver));
        assert_eq!(next.inner().lanes[0].control(|engine| engine.pump()).packets, 1, "others are served");
    }

    #[test]
    fn packets_that_a_fault_holds_back_end_a_sleep() {
        let (device, sender, _objects) = datagrams(Some("delay=3s"));
        let (other, receiver, _others) = datagrams(None);
        let lane = &device.inner().lanes[0];
        lane.control(|engine| engine.pump());
        let prepare = || lane.control(|engine| engine.prepare_sleep(Sleeper::Thread));
        let before = prepare().expect("there is nothing to do");
        assert!(before > Duration::from_millis(3_000), "{before:?}");
        send_to(&sender, (&other, &receiver));
        let left = prepare().expect("not yet");
        assert!(left <= Duration::from_millis(3_000), "{left:?}");
    }

    #[test]
    fn a_group_that_nobody_is_in_is_left() {
        let (device, qp, _objects) = datagrams(None);
        let groups = || device.inner().lanes[0].control(|engine| !engine.ways.udp.groups.is_empty());
        let group = "::ffff:239.1.2.3".parse::<std::net::Ipv6Addr>().expect("an address");
        let group = highwire_verbs::Gid::from_ip(group.into());
        assert!(!groups());
        qp.attach_multicast(group).expect("joins");
        assert!(groups());
        assert!(qp.detach_multicast(group), "it was in it");
        assert!(!groups(), "its socket is closed");
        qp.attach_multicast(group).expect("joins");
        drop(qp);
        assert!(!groups(), "nor does one stay that was in it at its end");
    }
}
