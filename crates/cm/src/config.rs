//! The configuration.

use highwire_stdx::Duration;

/// How one connection manager behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// GUID of the channel adapter, as peers see it.
    pub ca_guid: u64,
    /// The low eight bits of every identifier chosen here: by them a broker finds the process.
    pub shard: u8,
    /// The time in which peers are asked to answer, and in which they may expect answers, as an exponent:
    /// 4.096 µs · 2^n.
    pub response_timeout: u8,
    /// How long until a message is first repeated. The pause doubles from there on.
    pub repeat_after: Duration,
    /// The longest pause between repetitions.
    pub repeat_after_max: Duration,
    /// How long until a request is repeated after a refusal by a server that may only pause. It was not lost,
    /// so there is no reason to wait longer each time.
    pub ask_again_after: Duration,
    /// How many such refusals are disregarded before one is believed.
    pub ask_again_max: u32,
    /// How often a message is repeated before the peer counts as gone, at most 15.
    pub retries_max: u8,
    /// The time that an MRA asks for while the application decides, as an exponent.
    pub service_timeout: u8,
    /// How long a connection that ended is remembered, so that late messages do not look new.
    pub timewait: Duration,
    /// How long requests for a service that has lost its listener are ignored instead of refused: a server
    /// that makes a listener for each connection pauses between them, and a client repeats an ignored
    /// request.
    pub grace: Duration,
    /// Requests that may wait for the application; further ones are dropped, and their senders repeat them.
    pub pending_max: usize,
}

impl Config {
    /// The values that peers expect of a connection manager: 4.3 s to answer, 15 retries.
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
