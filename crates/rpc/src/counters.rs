//! The counters of an endpoint: one number per optimisation and per repair.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The work of an endpoint so far.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64),+
        }

        impl Counters {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }
    };
}

counters! {
    /// Requests of workers that were sent.
    requests,
    /// Datagrams of these requests: fewer, where requests were coalesced.
    request_datagrams,
    /// Requests handled here.
    handled,
    /// Datagrams of responses.
    response_datagrams,
    /// Datagrams received.
    received,
    /// Times that the driver asked for datagrams to send and got some: doorbells, if it rings one for each
    /// such time.
    transmissions,
    /// Datagrams handed to the driver.
    transmitted,
    /// Times that a worker was resumed.
    resumed,
    /// Batches that waited for a slot of their destination.
    waited_for_slot,
    /// Requests to this very node, which never saw a network.
    local,
    /// Parts of long batches sent.
    parts,
    /// Batches, or parts of them, sent again.
    resent,
    /// Batches that arrived again and were not executed again.
    duplicates,
    /// Responses that were kept and sent again.
    repeated_responses,
    /// Responses that no worker waited for any longer.
    stale_responses,
    /// Batches given up by their caller: dropped, or past their deadline.
    cancelled,
    /// Batches that failed because their peer was silent.
    silent,
    /// Batches refused because the peer had been another incarnation.
    refused,
    /// Requests that carried another configuration id and were not executed.
    fenced,
    /// Datagrams that could not be parsed.
    malformed,
    /// Datagrams that no member of the cluster has made.
    forged,
    /// Datagrams of members that had been here before.
    replayed,
    /// Datagrams of unknown nodes or queue pairs.
    strangers,
    /// Greetings that were asked to prove that they came from where they said.
    challenged,
}
