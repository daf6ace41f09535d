//! The knobs.

use highwire_stdx::Duration;

/// How one connection manager behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// GUID of the channel adapter, as peers see it.
    pub ca_guid: u64,
    /// The low eight bits of every identifier chosen here: it is by them that a broker finds the process.
    pub shard: u8,
    /// The time that peers are asked to answer in, and told that they may expect, as an exponent: 4.096 µs · 2^n.
    pub response_timeout: u8,
    /// How long until a message is first repeated. It doubles from there on.
    pub repeat_after: Duration,
    /// The longest pause between repetitions.
    pub repeat_after_max: Duration,
    /// How long until a request is repeated that was refused by a server that may only pause. It was not lost, so there is
    /// no reason to wait longer each time.
    pub ask_again_after: Duration,
    /// How often that is done before the refusal is believed.
    pub ask_again_max: u32,
    /// How often a message is repeated before the peer counts as gone, at most 15.
    pub retries_max: u8,
    /// What an MRA asks for when the application takes its time, as an exponent.
    pub service_timeout: u8,
    /// How long a connection that ended is remembered, so that late messages do not look new.
    pub timewait: Duration,
    /// For how long a service that is no longer listened to is not refused but ignored: a server that makes a listener for each
    /// connection pauses between them, and a client that asks then repeats its request.
    pub grace: Duration,
    /// Requests that may wait for the application; more are dropped, and their senders repeat them.
    pub pending_max: usize,
}

impl Config {
    /// What peers expect of a connection manager: 4.3 s to answer, 15 retries.
    ///
    /// A message is repeated long before the time that the peer may take to answer it: duplicates cost little, and a
    /// lost message would cost seconds.
    pub fn new(ca_guid: u64, shard: u8) -> Config {
        Config {
            ca_guid,
            shard,
            response_timeout: 20,
            repeat_after: Duration::from_millis(100),
            repeat_after_max: Duration::from_millis(4_300),
            ask_again_after: Duration::from_millis(30),
            ask_again_max: 300,
            retries_max: 15,
            service_timeout: 24,
            timewait: Duration::from_secs(2),
            grace: Duration::from_secs(2),
            pending_max: 4096,
        }
    }
}

/// The time that an exponent of connection management stands for: 4.096 µs · 2^n (IBTA §12.7.34).
pub(crate) fn exponent(n: u8) -> Duration {
    Duration::from_nanos(4_096).saturating_mul(1 << n.min(31))
}
