//! The metrics of a run, by name.

/// A number that a run has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Metric {
    /// Mean of FCT over ideal FCT.
    SlowdownMean,
    /// Mean FCT.
    FctMean,
    /// 99 % FCT.
    FctP99,
    /// FCT of messages of one packet, which 90 % do not exceed.
    SingleP90,
    /// The same, 99 %.
    SingleP99,
    /// The same, 99.9 %.
    SingleP999,
    /// Request completion time: from the start of a group of flows to the end of its last.
    Rct,
    /// Data packets dropped by switches, of those sent.
    Dropped,
    /// Data packets that were repetitions, of those sent.
    Retransmitted,
    /// Timeouts of senders.
    Timeouts,
    /// Pause frames that told a port to stop.
    Pauses,
    /// Share of the time that ports were paused, of all ports.
    Paused,
    /// The most bytes that waited for one port.
    QueueMax,
    /// Data packets sent.
    DataPackets,
    /// Packets times links.
    PacketHops,
    /// When the run ended.
    End,
    /// Flows measured.
    Flows,
}

/// How a metric is written.
enum Form {
    Times,
    Seconds,
    Percent,
    Bytes,
    Count,
}

impl Metric {
    /// All, in the order of tables.
    pub const ALL: [Metric; 17] = [
        Metric::SlowdownMean,
        Metric::FctMean,
        Metric::FctP99,
        Metric::SingleP90,
        Metric::SingleP99,
        Metric::SingleP999,
        Metric::Rct,
        Metric::Dropped,
        Metric::Retransmitted,
        Metric::Timeouts,
        Metric::Pauses,
        Metric::Paused,
        Metric::QueueMax,
        Metric::DataPackets,
        Metric::PacketHops,
        Metric::End,
        Metric::Flows,
    ];

    /// As plans and columns spell it; seconds, percent, bytes and counts.
    pub fn name(self) -> &'static str {
        match self {
            Metric::SlowdownMean => "slowdown_mean",
            Metric::FctMean => "fct_mean_s",
            Metric::FctP99 => "fct_p99_s",
            Metric::SingleP90 => "single_p90_s",
            Metric::SingleP99 => "single_p99_s",
            Metric::SingleP999 => "single_p999_s",
            Metric::Rct => "rct_s",
            Metric::Dropped => "dropped_percent",
            Metric::Retransmitted => "retransmitted_percent",
            Metric::Timeouts => "timeouts",
            Metric::Pauses => "pauses",
            Metric::Paused => "paused_percent",
            Metric::QueueMax => "queue_bytes_max",
            Metric::DataPackets => "data_packets",
            Metric::PacketHops => "packet_hops",
            Metric::End => "end_s",
            Metric::Flows => "flows",
        }
    }

    /// Its title, for people.
    pub fn title(self) -> &'static str {
        match self {
            Metric::SlowdownMean => "average slowdown",
            Metric::FctMean => "average FCT",
            Metric::FctP99 => "99 % FCT",
            Metric::SingleP90 => "90 % FCT of single packets",
            Metric::SingleP99 => "99 % FCT of single packets",
            Metric::SingleP999 => "99.9 % FCT of single packets",
            Metric::Rct => "request completion time",
            Metric::Dropped => "dropped",
            Metric::Retransmitted => "sent again",
            Metric::Timeouts => "timeouts",
            Metric::Pauses => "pauses",
            Metric::Paused => "port time paused",
            Metric::QueueMax => "longest queue",
            Metric::DataPackets => "data packets",
            Metric::PacketHops => "packet-hops",
            Metric::End => "end",
            Metric::Flows => "flows",
        }
    }

    /// What its values are counted in.
    pub fn unit(self) -> &'static str {
        match self.form() {
            Form::Times => "times",
            Form::Seconds => "seconds",
            Form::Percent => "%",
            Form::Bytes => "bytes",
            Form::Count => "count",
        }
    }

    /// A value with its unit.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".into();
        }
        match self.form() {
            Form::Times => format!("{value:.2}"),
            Form::Seconds => show_seconds(value),
            Form::Percent => format!("{value:.2} %"),
            Form::Bytes if value >= 10_000.0 => format!("{:.0} KB", value / 1e3),
            Form::Bytes => format!("{value:.0} B"),
            Form::Count if value >= 1e7 => format!("{:.1} M", value / 1e6),
            Form::Count if value >= 1e4 => format!("{:.1} k", value / 1e3),
            Form::Count => format!("{value:.0}"),
        }
    }

    fn form(self) -> Form {
        match self {
            Metric::SlowdownMean => Form::Times,
            Metric::Dropped | Metric::Retransmitted | Metric::Paused => Form::Percent,
            Metric::QueueMax => Form::Bytes,
            Metric::Timeouts | Metric::Pauses | Metric::DataPackets | Metric::PacketHops | Metric::Flows => {
                Form::Count
            }
            _ => Form::Seconds,
        }
    }
}

fn show_seconds(value: f64) -> String {
    match value {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_there_in_order_under_different_names() {
        for (place, metric) in Metric::ALL.iter().enumerate() {
            assert_eq!(*metric as usize, place);
            assert!(Metric::ALL[place + 1..].iter().all(|other| other.name() != metric.name()));
        }
    }

    #[test]
    fn values_read_well() {
        assert_eq!(Metric::FctMean.show(0.000_312_4), "312.4 us");
        assert_eq!(Metric::Rct.show(0.0319), "31.900 ms");
        assert_eq!(Metric::Dropped.show(8.5), "8.50 %");
        assert_eq!(Metric::PacketHops.show(196e6), "196.0 M");
        assert_eq!(Metric::SlowdownMean.show(f64::NAN), "–");
    }
}
