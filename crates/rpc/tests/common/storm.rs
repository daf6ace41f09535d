//! One storm for every world: many workers on every node send numbered requests to all other nodes, some of
//! them longer than a datagram, and a table counts how often each was executed. Worlds differ in the carrier
//! of the datagrams and in its faults.

#![allow(unreachable_pub, reason = "each test binary of three crates has a copy")]

use highwire_rpc::{CallError, Endpoint, Node, RequestType, Running};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const NUMBERED: RequestType = RequestType(200);

/// A storm over some nodes.
pub struct Storm {
    nodes: u16,
    workers: u64,
    rounds: u64,
    running: Vec<Running<Result<u64, String>>>,
    executed: Rc<RefCell<BTreeMap<u64, u32>>>,
}

impl Storm {
    pub fn new(nodes: u16, workers: u64, rounds: u64) -> Storm {
        Storm { nodes, workers, rounds, running: Vec::new(), executed: Rc::default() }
    }

    /// Gives a node its handler and its workers.
    pub fn prepare(&mut self, endpoint: &mut Endpoint) {
        let executed = Rc::clone(&self.executed);
        endpoint.register(NUMBERED, move |request, response| {
            let number = u64::from_be_bytes(request.bytes[..8].try_into().expect("a number"));
            *executed.borrow_mut().entry(number).or_default() += 1;
            response.write(&(!number).to_be_bytes());
            response.reserve(if number % 7 == 0 { 20_000 } else { number as usize % 50 });
        });
        let (nodes, rounds, own) = (self.nodes, self.rounds, endpoint.node().0);
        for worker_index in 0..self.workers {
            let work = move |worker: highwire_rpc::Worker| async move {
                let mut answered = 0u64;
                for round in 0..rounds {
                    let mut batch = worker.batch();
                    let mut numbers = Vec::new();
                    for i in 0..1 + (round + worker_index) % 5 {
                        let number = u64::from(own) << 32 | worker_index << 16 | round << 8 | i;
                        let long = if number % 11 == 0 { 9000 } else { 0 };
                        let to = Node((own + i as u16 + 1) % nodes);
                        batch.add_pieces(to, NUMBERED, &[&number.to_be_bytes(), &vec![7; long]]);
                        numbers.push(number);
                    }
                    let replies = batch.send().await;
                    for (number, reply) in numbers.iter().zip(replies.iter()) {
                        let reply =
                            reply.map_err(|error: CallError| format!("request {number:x}: {error}"))?;
                        if reply[..8] != (!number).to_be_bytes() {
                            return Err(format!("request {number:x} got another one's response"));
                        }
                        answered += 1;
                    }
                }
                Ok(answered)
            };
            self.running.push(endpoint.spawn(work).expect("room for a worker"));
        }
    }

    /// Whether every worker has ended.
    pub fn is_over(&self) -> bool {
        self.running.iter().all(Running::is_done)
    }

    /// Asserts that every request was answered and executed exactly once; returns their number.
    #[track_caller]
    pub fn check(&self, label: &str) -> u64 {
        let answered: u64 = self
            .running
            .iter()
            .map(|running| {
                running.take().expect("it is over").unwrap_or_else(|error| panic!("{label}: {error}"))
            })
            .sum();
        let executed = self.executed.borrow();
        assert!(answered > 0 && executed.len() as u64 == answered, "{label}: {answered} answered");
        let twice: Vec<_> = executed.iter().filter(|&(_, &times)| times != 1).collect();
        assert!(twice.is_empty(), "{label}: executed more than once: {twice:x?}");
        answered
    }
}
