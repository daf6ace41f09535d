//! The socket on which devices ask each other whether they speak IRN.
//!
//! It is bound to the device's own address, so that a question cannot reach another device by mistake. A thread that serves it
//! takes its lock first and lanes after that, never the other way round.

use crate::device::Shared;
use crate::negotiate::{Action, Connection, Negotiator};
use highwire_link::{Ecn, Link, Order, RxBatch, Transmitted, TxBatch, UdpConfig, UdpLink};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::Gid;
use highwire_wake::world;
use highwire_wire::{NEGOTIATION_PORT, Qpn};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

pub(crate) struct SideBand {
    state: Mutex<State>,
    fd: OwnedFd,
    clock: crate::clock::Clock,
    /// The time of its next action by itself, in nanoseconds.
    deadline: AtomicU64,
}

struct State {
    negotiator: Negotiator,
    link: UdpLink,
    rx: RxBatch,
    tx: TxBatch,
}

impl SideBand {
    /// `None` if the port is taken: then this device speaks standard RoCEv2 only. `given` is a socket that is
    /// bound to the port already.
    pub(crate) fn open(
        gid: Gid,
        given: Option<OwnedFd>,
        rng: Rng,
        clock: crate::clock::Clock,
    ) -> Option<SideBand> {
        let config = UdpConfig {
            port: NEGOTIATION_PORT,
            receive_buffer_bytes: 1 << 18,
            send_buffer_bytes: 1 << 18,
            ecn: Ecn::NotCapable,
            gso: false,
            gro: false,
            ..UdpConfig::new(gid.to_ip())
        };
        let link = match given {
            Some(socket) => UdpLink::adopt(socket, &config),
            None => UdpLink::open(&config),
        };
        let link = link.ok()?;
        let fd = link.poll_fd()?.try_clone_to_owned().ok()?;
        let negotiator = Negotiator::new(gid, rng);
        let state = Mutex::new(State { negotiator, link, rx: RxBatch::new(), tx: TxBatch::new() });
        Some(SideBand { state, fd, clock, deadline: AtomicU64::new(u64::MAX) })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let nanos = self.deadline.load(Ordering::Relaxed);
        (nanos != u64::MAX).then(|| Instant::from_nanos(nanos))
    }

    /// A queue pair is connected, and questions about it can be answered.
    pub(crate) fn on_connected(&self, device: &Shared, connection: Connection) {
        let mut state = self.lock();
        state.negotiator.on_connected(connection);
        self.settle(device, state);
    }

    pub(crate) fn on_disconnected(&self, qpn: Qpn) {
        self.lock().negotiator.on_disconnected(qpn);
    }

    /// Asks about a queue pair whose requester waits.
    pub(crate) fn ask(&self, device: &Shared, qpn: Qpn) {
        let mut state = self.lock();
        state.negotiator.ask(self.clock.now(), qpn);
        self.settle(device, state);
    }

    /// Takes the messages that have arrived, and acts on timeouts.
    pub(crate) fn serve(&self, device: &Shared) {
        let mut state = self.lock();
        let now = self.clock.now();
        let State { negotiator, link, rx, .. } = &mut *state;
        while link.receive(now, rx) > 0 {
            for packet in rx.packets() {
                negotiator.handle_message(now, Gid::from_ip(packet.source.ip()), packet.bytes);
            }
        }
        if let Some(peer) = link.take_refused() {
            negotiator.handle_unreachable(now, Gid::from_ip(peer.ip()));
        }
        negotiator.handle_timeout(now);
        self.settle(device, state);
    }

    /// Carries out the negotiator's actions, in its order.
    fn settle(&self, device: &Shared, mut state: MutexGuard<'_, State>) {
        let State { negotiator, link, tx, .. } = &mut *state;
        let now = self.clock.now();
        while let Some(action) = negotiator.poll_action() {
            match action {
                Action::AcceptIrn(qpn) => {
                    device.lane_of(qpn).control(|engine| engine.rnic.set_irn_accepted(qpn, true));
                }
                Action::Release(qpn, recovery) => {
                    device.lane_of(qpn).control(|engine| engine.release(qpn, recovery));
                }
                Action::Send(peer, message) => {
                    let peer = SocketAddr::new(peer.to_ip(), NEGOTIATION_PORT);
                    let sent = tx.push(peer, &message, Order::Strict).is_ok()
                        && link.transmit(now, tx, &mut |_, _| {}) == Transmitted::All;
                    if !sent {
                        // The message counts as lost; the negotiator asks again after the usual wait.
                        tx.clear();
                    }
                }
            }
        }
        let deadline = negotiator.poll_timeout().map_or(u64::MAX, Instant::as_nanos);
        let is_sooner = deadline < self.deadline.swap(deadline, Ordering::Relaxed);
        drop(state);
        if is_sooner {
            device.waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        world::lock(&self.state)
    }
}
