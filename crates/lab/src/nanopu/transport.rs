//! `--transport`: what NICs speak, by name.

use highwire_nanopu::nic::{Transport, TransportKind};

/// One of the transports.
pub(super) type AnyTransport = Box<dyn Transport + Send>;

/// The transport of that name.
pub(super) fn named(name: &str) -> Result<&'static TransportKind, String> {
    let known = || TransportKind::all().map(|kind| format!("\"{}\"", kind.name)).collect::<Vec<_>>();
    TransportKind::named(name).ok_or_else(|| format!("it is {}", known().join(" or ")))
}
