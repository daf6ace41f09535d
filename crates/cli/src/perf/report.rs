//! The report of a measurement: a table for people, one document for programs.

use anyhow::Result;
use hdrhistogram::Histogram;
use highwire_stdx::words::{counted, verb};
use serde::Serialize;

use crate::console::{Console, Tone};
use crate::values::{show_count, show_ns};

use super::bandwidth::Bandwidth;
use super::echo::Echo;
use super::endpoint::LinkUsed;
use super::floor::Floor;
use super::latency::Latency;
use super::local::Counters;
use super::plan::Plan;

fn never_answered(lost: u64) -> String {
    format!("{} {} never answered", counted(lost, "message"), verb(lost, "was", "were"))
}

/// The active end's measurement.
pub(crate) enum Measured {
    Latency(Latency),
    Bandwidth(Bandwidth),
    Echo(Echo),
}

/// Everything known after a test.
pub(crate) struct Report {
    pub(crate) plan: Plan,
    pub(crate) link: LinkUsed,
    /// The same kind of exchange without Highwire, measured in the same run.
    pub(crate) floor: Option<Floor>,
    pub(crate) measured: Measured,
    /// Messages that the passive end received, if it counts them.
    pub(crate) received: Option<u64>,
    pub(crate) counters_here: Counters,
    pub(crate) counters_there: Counters,
}

/// Nanoseconds of one distribution.
#[derive(Debug, Serialize)]
struct Distribution {
    min: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Distribution {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            min: histogram.min(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }

    fn row(&self, title: &str, scale: f64) -> String {
        let columns = [self.min, self.p50, self.p90, self.p99, self.p999, self.max];
        columns
            .iter()
            .fold(format!("{title:<24}"), |row, ns| format!("{row}{:>10}", show_ns(*ns as f64 * scale)))
    }
}

/// The result for programs; every field's unit is in its name.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Json<'a> {
    Latency {
        plan: &'a Plan,
        link: LinkUsed,
        #[serde(skip_serializing_if = "Option::is_none")]
        floor: Option<&'a Floor>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ratio_to_floor: Option<f64>,
        samples: u64,
        lost: u64,
        round_trip_ns: DistributionJson,
        counters_here: &'a Counters,
        counters_there: &'a Counters,
    },
    Echo {
        plan: &'a Plan,
        link: LinkUsed,
        /// Messages that came back with every byte right.
        messages: u64,
        lost: u64,
        seconds: f64,
        counters_here: &'a Counters,
        counters_there: &'a Counters,
    },
    Bandwidth {
        plan: &'a Plan,
        link: LinkUsed,
        #[serde(skip_serializing_if = "Option::is_none")]
        floor: Option<&'a Floor>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ratio_to_floor: Option<f64>,
        messages: u64,
        received: Option<u64>,
        seconds: f64,
        messages_per_second: f64,
        goodput_gbps: f64,
        counters_here: &'a Counters,
        counters_there: &'a Counters,
    },
}

/// A [`Distribution`] from outside.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct DistributionJson(Distribution);

impl Report {
    pub(crate) fn to_json(&self) -> Json<'_> {
        let Self { plan, counters_here, counters_there, .. } = self;
        let (link, floor, ratio_to_floor) = (self.link, self.floor.as_ref(), self.ratio_to_floor());
        match &self.measured {
            Measured::Latency(latency) => Json::Latency {
                plan,
                link,
                floor,
                ratio_to_floor,
                samples: latency.round_trips_ns.len(),
                lost: latency.lost,
                round_trip_ns: DistributionJson(Distribution::of(&latency.round_trips_ns)),
                counters_here,
                counters_there,
            },
            Measured::Echo(echo) => Json::Echo {
                plan,
                link,
                messages: echo.messages,
                lost: echo.lost,
                seconds: echo.time.as_secs_f64(),
                counters_here,
                counters_there,
            },
            Measured::Bandwidth(bandwidth) => Json::Bandwidth {
                plan,
                link,
                floor,
                ratio_to_floor,
                messages: bandwidth.messages,
                received: self.received,
                seconds: bandwidth.time.as_secs_f64(),
                messages_per_second: self.messages_per_second(bandwidth),
                goodput_gbps: self.goodput_gbps(bandwidth),
                counters_here,
                counters_there,
            },
        }
    }

    pub(crate) fn show(&self, console: &mut Console) -> Result<()> {
        console.line(console.paint(Tone::Heading, &format!("{}, over {}", self.plan, self.link)))?;
        match &self.measured {
            Measured::Latency(latency) => self.show_latency(latency, console)?,
            Measured::Bandwidth(bandwidth) => self.show_bandwidth(bandwidth, console)?,
            Measured::Echo(echo) => self.show_echo(echo, console)?,
        }
        if let (Some(floor), Some(ratio)) = (&self.floor, self.ratio_to_floor()) {
            let ratio = match self.measured {
                Measured::Latency(_) | Measured::Echo(_) => format!("{ratio:.2} x"),
                Measured::Bandwidth(_) => format!("{:.0} % of", ratio * 100.0),
            };
            let ratio = console.paint(Tone::Good, &ratio);
            console.line(format!("{ratio} the floor: {}, {}", floor.what, floor.show_value()))?;
        }
        self.show_counters(console)
    }

    /// Median time over the floor's, or goodput over the floor's.
    fn ratio_to_floor(&self) -> Option<f64> {
        let floor = self.floor.as_ref()?;
        let ours = match &self.measured {
            Measured::Latency(latency) => latency.round_trips_ns.value_at_quantile(0.5) as f64,
            Measured::Bandwidth(bandwidth) => self.goodput_gbps(bandwidth) * 1e9 / 8.0,
            Measured::Echo(echo) => echo.round_trip_ns(),
        };
        Some(ours / floor.value)
    }

    fn show_latency(&self, latency: &Latency, console: &mut Console) -> Result<()> {
        let titles = ["min", "p50", "p90", "p99", "p99.9", "max"];
        let header =
            titles.iter().fold(format!("{:<24}", ""), |header, title| format!("{header}{title:>10}"));
        let distribution = Distribution::of(&latency.round_trips_ns);
        console.line(console.paint(Tone::Faint, &header))?;
        if self.plan.is_ping_pong() {
            console.line(distribution.row("round trip", 1.0))?;
            console.line(distribution.row("one way (half of it)", 0.5))?;
        } else {
            console.line(distribution.row("posted to completed", 1.0))?;
        }
        if latency.lost > 0 {
            console.line(console.paint(Tone::Bad, &never_answered(latency.lost)))?;
        }
        Ok(())
    }

    fn show_bandwidth(&self, bandwidth: &Bandwidth, console: &mut Console) -> Result<()> {
        console.line(format!(
            "{:.2} Gb/s, {} messages per second ({} in {:.2} s)",
            self.goodput_gbps(bandwidth),
            show_count(self.messages_per_second(bandwidth)),
            bandwidth.messages,
            bandwidth.time.as_secs_f64()
        ))?;
        if let Some(received) = self.received
            && received < bandwidth.messages
        {
            let missing = bandwidth.messages - received;
            console
                .line(console.paint(Tone::Bad, &format!("{} did not arrive", counted(missing, "message"))))?;
        }
        Ok(())
    }

    /// In the words of `ping`.
    fn show_echo(&self, echo: &Echo, console: &mut Console) -> Result<()> {
        let bytes = echo.messages * 2 * u64::from(self.plan.size_bytes);
        let seconds = echo.time.as_secs_f64();
        let megabits = bytes as f64 * 8.0 / seconds / 1e6;
        console.line(format!("{bytes} bytes in {seconds:.2} seconds = {megabits:.2} Mbit/sec"))?;
        let per_iteration = show_ns(echo.round_trip_ns());
        console.line(format!("{} iters in {seconds:.2} seconds = {per_iteration}/iter", echo.messages))?;
        let verdict = format!("every byte of {} came back right", counted(echo.messages, "message"));
        console.line(console.paint(Tone::Good, &verdict))?;
        if echo.lost > 0 {
            console.line(console.paint(Tone::Bad, &never_answered(echo.lost)))?;
        }
        Ok(())
    }

    /// The counters for people; bytes and the link's own counters are for programs.
    fn show_counters(&self, console: &mut Console) -> Result<()> {
        let is_shown = |name: &str| !name.starts_with("udp_") && !name.starts_with("bytes_");
        for (side, counters) in [("here", &self.counters_here), ("there", &self.counters_there)] {
            let shown: Vec<String> = counters
                .iter()
                .filter(|(name, _)| is_shown(name))
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            if !shown.is_empty() {
                console.line(console.paint(Tone::Faint, &format!("{side}: {}", shown.join(", "))))?;
            }
        }
        Ok(())
    }

    /// For an unreliable service only messages that arrived count.
    fn delivered(&self, bandwidth: &Bandwidth) -> u64 {
        self.received.map_or(bandwidth.messages, |received| received.min(bandwidth.messages))
    }

    fn messages_per_second(&self, bandwidth: &Bandwidth) -> f64 {
        self.delivered(bandwidth) as f64 / bandwidth.time.as_secs_f64()
    }

    fn goodput_gbps(&self, bandwidth: &Bandwidth) -> f64 {
        self.messages_per_second(bandwidth) * f64::from(self.plan.size_bytes) * 8.0 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_a_distribution_is_its_own() {
        let mut histogram = Histogram::new(3).expect("three digits");
        for (value, times) in [(10, 1), (100, 5990), (200, 3050), (300, 900), (500, 50), (700, 8), (900, 1)] {
            histogram.record_n(value, times).expect("in range");
        }
        let Distribution { min, mean, p50, p90, p99, p999, max } = Distribution::of(&histogram);
        assert_eq!([min, p50, p90, p99, p999, max], [10, 100, 200, 300, 500, 900]);
        assert!((mean - 151.05).abs() < 0.5, "{mean}");
        let row = Distribution::of(&histogram).row("round trip", 1.0);
        let columns: Vec<&str> = row.split_whitespace().collect();
        let shown = [10, 100, 200, 300, 500, 900].map(|ns| show_ns(f64::from(ns)));
        assert_eq!(columns.join(" "), format!("round trip {}", shown.join(" ")));
    }
}
