//! The demo's page: one file, without scripts and without anything from elsewhere.

use std::fmt::Write as _;

use highwire_program::values::show_ns;

use super::trace::Packet;
use super::{Demo, MESSAGE_BYTES, Run, share, shown};

const STYLE: &str = include_str!("page.css");
/// The picture's units; it scales with the page.
const WIDTH: f64 = 480.0;

pub(super) fn html(demo: &Demo) -> String {
    let Demo { clean, lossy, .. } = demo;
    let verdict = if demo.is_sound() { "every byte arrived" } else { "something is wrong" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>highwire demo</title>\n<style>\n{STYLE}</style>\n<main>\n<h1>RDMA without a card: {verdict}</h1>\n\
         <p>Two processes of this machine sent each other messages of {MESSAGE_BYTES} bytes over RoCEv2 on plain UDP, \
         first without loss, then with {} on purpose in each direction (seed {}). Both ends kept a capture; this page is made from the two.</p>\n",
        share(lossy.loss),
        demo.seed
    );
    let cards = [
        ((clean.messages + lossy.messages).to_string(), "messages came back, every byte right"),
        ((clean.lost_messages + lossy.lost_messages).to_string(), "messages lost"),
        (lossy.lost_packets.to_string(), "packets lost on the way"),
        (lossy.sent_again.to_string(), "packets sent again"),
        (show_ns(lossy.round_trip_ns.p50 as f64), "median round trip under loss"),
    ];
    page += "<div class=\"cards\">\n";
    for (value, what) in cards {
        let _ = writeln!(page, "<div class=\"card\"><b>{value}</b><span>{what}</span></div>");
    }
    page += "</div>\n<h2>What a loss costs</h2>\n<p>Each point is a message's way there and back. Most do not meet a loss; those that do wait for the missing packet alone. On a busy machine, messages also wait for a processor.</p>\n";
    let _ = writeln!(page, "<figure>{}{}</figure>", points(clean, lossy), key(clean, lossy));
    page += "<h2>One loss, packet by packet</h2>\n";
    if lossy.story.is_empty() {
        page += "<p>No message of this run met a loss; <code>--loss 5%</code> shows one.</p>\n";
    } else {
        page += "<p>One message and its answer, from the top to the bottom. The receiver keeps what arrives and says what is missing; only that is sent again.</p>\n";
        let _ = writeln!(page, "<figure>{}</figure>", ladder(&lossy.story));
        let lines: Vec<String> = lossy.story.iter().map(line).collect();
        let _ = writeln!(
            page,
            "<details><summary>The same packets as <code>highwire pcap</code> prints them</summary><pre>{}</pre></details>",
            escaped(&lines.join("\n"))
        );
    }
    let _ = writeln!(
        page,
        "<h2>Next</h2>\n<pre>{}</pre>\n</main>\n</html>",
        escaped(&format!(
            "highwire pcap {} | less\nhighwire run -- ibv_devinfo\nhighwire run --loss 1% --seed 7 -- ./my_rdma_test",
            shown(&lossy.captures[0])
        ))
    );
    page
}

fn key(clean: &Run, lossy: &Run) -> String {
    let entry = |run: &Run, class: &str, name: &str| {
        let [p50, p99] = [run.round_trip_ns.p50, run.round_trip_ns.p99].map(|ns| show_ns(ns as f64));
        format!("<span><i style=\"background:var(--{class})\"></i>{name}: median {p50}, p99 {p99}</span>")
    };
    format!(
        "<div class=\"key\">{}{}</div>",
        entry(clean, "clean", "no loss"),
        entry(lossy, "lossy", &share(lossy.loss))
    )
}

/// Round trips by message, on a logarithmic scale: losses take hundreds of times as long as the rest.
fn points(clean: &Run, lossy: &Run) -> String {
    const HEIGHT: f64 = 230.0;
    const LEFT: f64 = 58.0;
    const BOTTOM: f64 = 24.0;
    let all = || clean.round_trips.iter().chain(&lossy.round_trips).map(|&ns| ns.max(1) as f64);
    let low = all().fold(f64::MAX, f64::min).min(1e12).log10().floor();
    let high = all().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let count = clean.round_trips.len().max(lossy.round_trips.len()).max(2) as f64;
    let x = |index: usize| LEFT + 8.0 + (WIDTH - LEFT - 16.0) * index as f64 / (count - 1.0);
    let y = |ns: f64| 8.0 + (HEIGHT - BOTTOM - 8.0) * (high - ns.max(1.0).log10()) / (high - low);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Round trips of each message\">"
    );
    for decade in low as i32..=high as i32 {
        let value = 10f64.powi(decade);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/><text class=\"axis\" x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>",
            y(value),
            LEFT - 6.0,
            y(value) + 4.0,
            decade_name(decade)
        );
    }
    for (run, class) in [(clean, "clean"), (lossy, "lossy")] {
        for (index, &ns) in run.round_trips.iter().enumerate() {
            let _ = write!(
                svg,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.4\" fill-opacity=\".75\"/>",
                x(index),
                y(ns as f64)
            );
        }
    }
    let _ = write!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">message by message</text></svg>",
        (WIDTH + LEFT) / 2.0,
        HEIGHT - 6.0
    );
    svg
}

fn decade_name(decade: i32) -> String {
    let unit = ["ns", "us", "ms", "s"];
    let group = (decade.max(0) as usize / 3).min(3);
    format!("{} {}", 10u64.pow(decade.max(0) as u32 - 3 * group as u32), unit[group])
}

/// A ladder: each end is a vertical line, each packet an arrow between them, in the order of the departures.
fn ladder(story: &[Packet]) -> String {
    const STEP: f64 = 24.0;
    const TOP: f64 = 34.0;
    let (left, right) = (76.0, WIDTH - 76.0);
    let height = TOP + STEP * story.len() as f64 + 16.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Packets between the two ends\">\
         <text class=\"label\" x=\"{left}\" y=\"16\" text-anchor=\"middle\">asks</text><text class=\"label\" x=\"{right}\" y=\"16\" text-anchor=\"middle\">answers</text>\
         <line class=\"grid\" x1=\"{left}\" x2=\"{left}\" y1=\"24\" y2=\"{0}\"/><line class=\"grid\" x1=\"{right}\" x2=\"{right}\" y1=\"24\" y2=\"{0}\"/>",
        height - 4.0
    );
    let origin = story.first().map_or(0, |packet| packet.sent_ns);
    for (index, packet) in story.iter().enumerate() {
        let y = TOP + STEP * index as f64;
        let is_lost = packet.arrived_ns.is_none();
        let class = match (is_lost, packet.is_again(), packet.payload_bytes) {
            (true, ..) => "gone",
            (false, true, _) => "again",
            (false, false, 0) => "ack",
            (false, false, _) => "way",
        };
        let (from, to) = if packet.is_outward { (left, right) } else { (right, left) };
        let end = if is_lost { from + (to - from) * 0.62 } else { to };
        let down = if is_lost { 8.0 } else { 12.0 };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{from}\" y1=\"{y}\" x2=\"{end:.1}\" y2=\"{:.1}\"/>",
            y + down
        );
        if is_lost {
            let (x, y) = (end, y + down);
            let _ =
                write!(svg, "<path class=\"cross\" d=\"M{:.1} {:.1}l10 10m0-10l-10 10\"/>", x - 5.0, y - 5.0);
        } else {
            let back = if packet.is_outward { -7.0 } else { 7.0 };
            let _ = write!(
                svg,
                "<path class=\"{class}\" d=\"M{:.1} {:.1}L{to} {:.1}L{:.1} {:.1}\"/>",
                to + back,
                y + down - 5.0,
                y + down,
                to + back,
                y + down + 3.5
            );
        }
        // At the sender's side: what left, and when.
        let (at, anchor) = if packet.is_outward { (left - 8.0, "end") } else { (right + 8.0, "start") };
        let _ = write!(
            svg,
            "<text class=\"axis\" x=\"{at}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            y + 4.0,
            show_ns((packet.sent_ns - origin) as f64)
        );
        let class = if is_lost { "bad" } else { "label" };
        let middle = from + (to - from) * 0.25;
        let _ = write!(
            svg,
            "<text class=\"{class}\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y - 1.0,
            escaped(&name(packet))
        );
    }
    svg + "</svg>"
}

/// Few words: the opcode, which part of the message, and whether it is a copy.
fn name(packet: &Packet) -> String {
    let mut words = packet.text.split(' ');
    let opcode = words.next().unwrap_or_default().trim_start_matches("IRN_").replace('_', " ");
    let mut name = opcode.to_lowercase();
    let words: Vec<&str> = words.collect();
    let part = words.windows(2).find(|pair| pair[0] == "offset").and_then(|pair| pair[1].parse::<u32>().ok());
    if let Some(part) = part {
        let _ = write!(name, " {}", part + 1);
    }
    if packet.is_again() {
        name += ", again";
    }
    name
}

fn line(packet: &Packet) -> String {
    let way = if packet.is_outward { "→" } else { "←" };
    let fate = if packet.arrived_ns.is_none() { "   LOST" } else { "" };
    format!("{way} {}{fate}", packet.text)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_have_names() {
        let names: Vec<String> = (0..=10).map(decade_name).collect();
        assert_eq!(names[..6], ["1 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us"]);
        assert_eq!(names[6..], ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
    }

    #[test]
    fn what_a_user_has_typed_stays_text() {
        assert_eq!(escaped("<b> & co"), "&lt;b&gt; &amp; co");
    }
}
