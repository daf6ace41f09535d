//! `--transport`: what NICs speak.

use highwire_nanopu::nic::{Homa, HomaConfig, Ndp, Transport};

/// One of the transports.
pub(super) type AnyTransport = Box<dyn Transport + Send>;

/// What NICs speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(super) enum TransportKind {
    /// Receivers pull at the pace of their link; switches trim.
    #[default]
    Ndp,
    /// Receivers grant to whom has least left; switches have priorities.
    Homa,
}

impl TransportKind {
    /// Such a transport, set as on the prototype.
    pub(super) fn make(self, rtt_packets: u16) -> AnyTransport {
        match self {
            TransportKind::Ndp => Box::new(Ndp { rtt_packets }),
            TransportKind::Homa => Box::new(Homa::new(HomaConfig { rtt_packets, ..HomaConfig::default() })),
        }
    }
}
