//! The load generator as a host of the fabric.

use std::collections::VecDeque;

use highwire_fabric::{Host, HostId, Priorities, Time};

use super::dock::may_leave;
use super::frame::{Carrier, Frame};
use super::{address, cycle_of, time_of};
use crate::client::{Answer, Client, Request, Strays};

/// Sends each request when it is due, acknowledges the answers, and takes the time until an answer's first word is there.
#[derive(Clone, Debug)]
pub struct Generator {
    client: Client,
    /// The number, the node and the request, in order of `sent`.
    requests: VecDeque<(usize, HostId, Request)>,
    count: usize,
    /// Up to which cycle the port knows that packets are due.
    announced: u64,
}

impl Generator {
    /// A generator on host `host`, for requests to the hosts named; they are sorted by when they are sent.
    pub fn new(host: HostId, mut requests: Vec<(HostId, Request)>) -> Generator {
        requests.sort_by_key(|(_, request)| request.sent);
        let count = requests.len();
        let mut client = Client::new(address(host), 0, 0);
        client.expect(count);
        let numbered = requests.into_iter().enumerate();
        let requests = numbered.map(|(number, (node, request))| (number, node, request)).collect();
        Generator { client, requests, count, announced: 0 }
    }

    /// The answers so far, by request in the order of sending.
    pub fn answers(&self) -> &[Option<Answer>] {
        self.client.answers()
    }

    /// Whether every request has its answer.
    pub fn is_done(&self) -> bool {
        self.client.answers().iter().filter(|answer| answer.is_some()).count() == self.count
    }

    /// Packets that this generator did not ask for.
    pub fn strays(&self) -> Strays {
        self.client.strays()
    }

    fn send_due(&mut self, cycle: u64) {
        while self.requests.front().is_some_and(|(_, _, request)| request.sent <= cycle) {
            let (number, node, request) = self.requests.pop_front().expect("there is a first");
            self.client.send(address(node), number, &request);
        }
    }
}

impl<P: Carrier> Host<P> for Generator {
    fn handle_packet(&mut self, now: Time, packet: P) {
        let Some(packet) = packet.frame().map(Frame::packet) else { return };
        let first = cycle_of(now).saturating_sub(packet.wire_words());
        self.client.take(first, &packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.announced = cycle_of(now);
        self.send_due(self.announced);
    }

    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<P> {
        let frame = Frame::new(self.client.peek_packet(cycle_of(now))?);
        if frame.is_some_and(|frame| !may_leave::<P>(&frame, open)) {
            return None;
        }
        self.client.poll_packet(cycle_of(now));
        frame.map(P::from_frame)
    }

    fn poll_timeout(&self) -> Time {
        let request = self.requests.front().map(|(_, _, request)| request.sent);
        let packet = self.client.next_packet().filter(|&due| due > self.announced);
        let next = request.into_iter().chain(packet).min();
        next.map_or(Time::NEVER, time_of)
    }
}
