//! Options of the NIC of `highwire nanopu run` that go beyond the prototype.

use highwire_nanopu::nic::{CutThrough, LongMessages, NicConfig, Selection, TreeShape};
use highwire_nanopu::packet::{MESSAGE_BYTES_MAX, SEGMENT_BYTES};

use super::{NODE, limits};

/// See the module.
#[derive(Debug, clap::Args)]
pub(super) struct NicArgs {
    /// How messages find their cores: jbsq:N, rss, or tree:CORES, groups of so many cores behind a level that gives messages to groups.
    #[arg(long, visible_alias = "selection", default_value = "jbsq:2", value_parser = parse_selection)]
    select: Selection,
    /// Let core selection take as long as it would for so many cores (an estimate), and not as long as for the prototype's four.
    #[arg(long)]
    selection_delays: bool,
    /// Let packets reach their core while they come in, and leave while they are written.
    #[arg(long)]
    cut_through: bool,
    /// How many receive buffers one context may hold.
    #[arg(long, value_name = "BUFFERS", value_parser = limits::whole::<u16>(1..=65_535))]
    quota: Option<u16>,
    /// Take messages of more than 2,048 bytes, up to so many; memory is then segments of 1 KiB.
    #[arg(long, value_name = "BYTES", value_parser = limits::whole::<u16>(1..=65_535))]
    message_bytes_max: Option<u16>,
    /// Memory for messages, in KiB of each direction; needs --message-bytes-max.
    #[arg(long, value_name = "KIB", default_value_t = 192, requires = "message_bytes_max", value_parser = limits::whole::<u16>(1..=65_535))]
    message_memory: u16,
    /// Let messages of several packets reach their core as the packets come in; needs --blocking-reads.
    #[arg(long, requires_all = ["message_bytes_max", "blocking_reads"])]
    stream_messages: bool,
    /// Let a message that waits for a send buffer be passed by those of other contexts.
    #[arg(long)]
    send_by_context: bool,
}

impl NicArgs {
    /// The NIC's configuration from these options.
    pub(super) fn config(&self) -> NicConfig {
        let long_messages = |bytes_max| LongMessages {
            bytes_max,
            segments: self.message_memory.into(),
            streams: self.stream_messages,
        };
        NicConfig {
            address: NODE,
            selection: self.select,
            selection_slows: self.selection_delays,
            cut_through: self.cut_through.then(CutThrough::default),
            buffers_per_context: self.quota.map(usize::from),
            long_messages: self.message_bytes_max.map(long_messages),
            sends_by_context: self.send_by_context,
            ..NicConfig::default()
        }
    }

    /// The longest message, in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        match self.message_bytes_max {
            Some(bytes) => usize::from(bytes).min(usize::from(self.message_memory) * SEGMENT_BYTES),
            None => MESSAGE_BYTES_MAX,
        }
    }

    /// The name of an option that differs from the prototype.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let flags = [
            ("--select", self.select != Selection::Jbsq(2)),
            ("--selection-delays", self.selection_delays),
            ("--cut-through", self.cut_through),
            ("--quota", self.quota.is_some()),
            ("--message-bytes-max", self.message_bytes_max.is_some()),
            ("--send-by-context", self.send_by_context),
        ];
        flags.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}

fn parse_selection(text: &str) -> Result<Selection, String> {
    match text.split_once(':') {
        None if text == "rss" => Ok(Selection::Rss),
        Some(("jbsq", bound)) => match bound.parse() {
            Ok(bound @ 1..) => Ok(Selection::Jbsq(bound)),
            _ => Err(format!("{bound} is no bound: it is 1 to {}", u32::MAX)),
        },
        Some(("tree", cores)) => match cores.parse() {
            // Each group has one message in hand, which hides the way to it.
            Ok(cores_per_group @ 1..=256) => {
                Ok(Selection::Tree(TreeShape { cores_per_group, per_core: 1, per_group: 1 }))
            }
            _ => Err(format!("{cores} is no size of a group: it is 1 to 256")),
        },
        _ => Err(format!("{text} is none of jbsq:N, rss and tree:CORES")),
    }
}
