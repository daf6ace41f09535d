//! Messages to the peer and back, of which every byte is checked.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::progress::Progress;

use super::endpoint::Endpoint;
use super::plan::{Length, Plan, Service};
use super::silence::Silence;

/// An unreliable service may lose a message for good; when this end has polled for so long, it counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
const POLLS_PER_LOOK: u32 = 4096;

/// The messages that came back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Echo {
    /// Messages that came back, every byte right.
    pub(crate) messages: u64,
    /// Messages that did not.
    pub(crate) lost: u64,
    pub(crate) time: Duration,
}

impl Echo {
    pub(crate) fn round_trip_ns(&self) -> f64 {
        self.time.as_nanos() as f64 / self.messages.max(1) as f64
    }
}

/// The active end: sends a new message each time, and compares the one that comes back.
pub(crate) fn measure(
    end: &mut impl Endpoint,
    plan: &Plan,
    mut check_peer: impl FnMut() -> Result<()>,
) -> Result<Echo> {
    let size = plan.size_bytes as usize;
    let (mut sent, mut came_back) = (vec![0; size], vec![0; size]);
    let (total, deadline) = match plan.length {
        Length::Iterations(iterations) => (iterations, None),
        Length::Time(time) => (u64::MAX, Some(Instant::now() + time)),
        Length::Within(iterations, time) => (iterations, Some(Instant::now() + time)),
    };
    let mut progress = Progress::new("bouncing", total);
    let (mut messages, mut lost) = (0, 0);
    end.post_receives(plan.receives())?;
    let started = Instant::now();
    for index in 0..total {
        fill(&mut sent, index);
        end.write_message(&sent);
        end.post(1, true)?;
        let is_back = loop {
            if !wait(end, plan, &mut check_peer)? {
                break false;
            }
            end.read_message(&mut came_back);
            // A message that was given up as lost may still come.
            if number(&came_back).is_none_or(|number| number >= index) {
                break true;
            }
        };
        if is_back {
            compare(index, &sent, &came_back)?;
            messages += 1;
        } else {
            lost += 1;
        }
        let now = Instant::now();
        progress.at(index, now);
        if deadline.is_some_and(|deadline| now > deadline) {
            break;
        }
    }
    Ok(Echo { messages, lost, time: started.elapsed() })
}

/// The passive end: sends back the messages that it receives.
pub(crate) fn answer(
    end: &mut impl Endpoint,
    plan: &Plan,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let mut message = vec![0; plan.size_bytes as usize];
    let mut polls = 0u32;
    loop {
        let received = end.poll()?.received;
        if received > 0 {
            end.read_message(&mut message);
            end.write_message(&message);
            end.post_receives(received)?;
            end.post(1, true)?;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK) && is_over()? {
            return Ok(());
        }
    }
}

/// Bytes that differ from message to message and from place to place; the first eight are the message's number.
fn fill(message: &mut [u8], index: u64) {
    for (at, byte) in message.iter_mut().enumerate() {
        *byte = (index.wrapping_mul(31) as usize).wrapping_add(at * 7 + at / 251) as u8;
    }
    if let Some(head) = message.first_chunk_mut() {
        *head = index.to_le_bytes();
    }
}

/// The number of a message that is long enough to have one.
fn number(message: &[u8]) -> Option<u64> {
    message.first_chunk().map(|head| u64::from_le_bytes(*head))
}

fn compare(index: u64, sent: &[u8], came_back: &[u8]) -> Result<()> {
    match sent.iter().zip(came_back).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => {
            let (was, is) = (sent[at], came_back[at]);
            bail!("byte {at} of message {index} came back as {is:#04x}, sent as {was:#04x}")
        }
    }
}

/// Polls until a message arrives; false if an unreliable service has lost it.
fn wait(end: &mut impl Endpoint, plan: &Plan, check_peer: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
    let mut silence = Silence::default();
    loop {
        let received = end.poll()?.received;
        if received > 0 {
            end.post_receives(received)?;
            return Ok(true);
        }
        let Some(waited) = silence.grows() else { continue };
        if plan.service != Service::Rc && waited > LOST_AFTER {
            return Ok(false);
        }
        silence.check(check_peer)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::endpoint::Polled;
    use crate::perf::options::plan_for_tests;
    use crate::perf::plan::{Metric, Operation};

    /// Sends every message back, the one with that number with a byte changed.
    struct Mirror {
        message: Vec<u8>,
        posted: u32,
        pending: Polled,
        spoiled: Option<u32>,
    }

    impl Endpoint for Mirror {
        fn post(&mut self, count: u32, _signaled: bool) -> Result<()> {
            self.posted += count;
            if self.spoiled == Some(self.posted) {
                self.message[9] ^= 1;
            }
            self.pending = Polled { sent: count, received: count };
            Ok(())
        }

        fn post_receives(&mut self, _count: u32) -> Result<()> {
            Ok(())
        }

        fn poll(&mut self) -> Result<Polled> {
            Ok(std::mem::take(&mut self.pending))
        }

        fn write_message(&mut self, bytes: &[u8]) {
            self.message = bytes.to_vec();
        }

        fn read_message(&self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.message);
        }

        fn mark(&mut self, _mark: u8) {}

        fn arrived(&self) -> u8 {
            0
        }
    }

    fn check(spoiled: Option<u32>) -> Result<Echo> {
        let plan = plan_for_tests(Operation::Send, Metric::PingPong, Length::Iterations(10));
        let mut mirror = Mirror { message: Vec::new(), posted: 0, pending: Polled::default(), spoiled };
        measure(&mut mirror, &plan, || Ok(()))
    }

    #[test]
    fn every_message_is_compared() {
        assert_eq!(check(None).expect("all come back").messages, 10);
        let error = check(Some(4)).expect_err("one is spoiled").to_string();
        assert!(error.contains("byte 9 of message 3"), "{error}");
    }

    #[test]
    fn no_message_is_like_the_one_before() {
        let (mut a, mut b) = ([0; 64], [0; 64]);
        fill(&mut a, 7);
        fill(&mut b, 8);
        assert_eq!((number(&a), number(&b)), (Some(7), Some(8)));
        assert!(a[8..].iter().zip(&b[8..]).all(|(a, b)| a != b));
    }
}
