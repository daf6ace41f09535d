//! What two captures say together: when each packet left, when it arrived, and which never did.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use highwire_wire::{Line, pcap};

/// One packet, as its sender's capture has it, and the time of its arrival in the receiver's.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    /// Since the first packet of the conversation.
    pub(super) sent_ns: u64,
    /// `None`: it was lost.
    pub(super) arrived_ns: Option<u64>,
    /// From the active end to the passive one.
    pub(super) is_outward: bool,
    pub(super) payload_bytes: usize,
    psn: u32,
    /// As `highwire pcap` prints it, from the opcode on.
    pub(super) text: String,
}

impl Packet {
    fn is_data(&self) -> bool {
        self.payload_bytes > 0
    }

    /// Not the first copy.
    pub(super) fn is_again(&self) -> bool {
        self.text.split(' ').any(|word| word == "again")
    }
}

/// A conversation that both ends have captured.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// In the order in which they were sent.
    pub(super) packets: Vec<Packet>,
    /// Records of both captures.
    pub(super) records: u64,
    pub(super) icrc_wrong: u64,
}

/// One capture's record.
struct Seen {
    time_ns: u64,
    source: IpAddr,
    psn: u32,
    payload_bytes: usize,
    text: String,
}

impl Trace {
    /// Reads the active end's capture and the passive end's.
    ///
    /// # Errors
    /// A file cannot be read, or is no capture.
    pub(super) fn read(near: &Path, far: &Path) -> Result<Trace> {
        let mut trace = Trace::default();
        let (near, far) = (trace.records_of(near)?, trace.records_of(far)?);
        // Who speaks first is the active end.
        let Some((active, origin)) = near.first().map(|seen| (seen.source, seen.time_ns)) else {
            return Ok(trace);
        };
        for (is_outward, sender, receiver) in [(true, &near, &far), (false, &far, &near)] {
            let is_of_sender = |seen: &&Seen| (seen.source == active) == is_outward;
            let sent: Vec<&Seen> = sender.iter().filter(is_of_sender).collect();
            let mut arrivals = arrivals(&sent, receiver.iter().filter(is_of_sender));
            trace.packets.extend(sent.iter().enumerate().map(|(place, seen)| Packet {
                sent_ns: seen.time_ns.saturating_sub(origin),
                arrived_ns: arrivals.remove(&place).map(|time| time.saturating_sub(origin)),
                is_outward,
                payload_bytes: seen.payload_bytes,
                psn: seen.psn,
                text: seen.text.clone(),
            }));
        }
        trace.packets.sort_by_key(|packet| packet.sent_ns);
        Ok(trace)
    }

    fn records_of(&mut self, file: &Path) -> Result<Vec<Seen>> {
        let name = file.display();
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
        let mut reader = pcap::Reader::new(&bytes).with_context(|| format!("{name} is no capture"))?;
        let link = reader.link_type();
        let mut records = Vec::new();
        for record in &mut reader {
            let record = record.with_context(|| format!("{name} is damaged"))?;
            let line = Line::new(record.time, link, &record);
            self.records += 1;
            self.icrc_wrong += u64::from(!line.is_sound());
            let Ok(frame) = &line.frame else { continue };
            let text = line.to_string();
            // Time, source, `>`, destination: what differs between the two captures is not in the rest.
            let text = text.splitn(5, ' ').nth(4).unwrap_or_default().to_string();
            records.push(Seen {
                time_ns: record.time.as_nanos(),
                source: frame.ip.source(),
                psn: frame.headers.bth.psn.value(),
                payload_bytes: frame.payload.len(),
                text,
            });
        }
        Ok(records)
    }

    /// Forgets what was sent later: when the ends part, the last packets are not waited for.
    pub(super) fn end_at(&mut self, end_ns: u64) {
        self.packets.retain(|packet| packet.sent_ns <= end_ns);
    }

    /// Copies of data that were sent after the first.
    pub(super) fn sent_again(&self) -> usize {
        self.packets.iter().filter(|packet| packet.is_data() && packet.is_again()).count()
    }

    pub(super) fn lost(&self) -> usize {
        self.packets.iter().filter(|packet| packet.arrived_ns.is_none()).count()
    }

    /// The time of each message's journey there and back, in order: from its first packet's departure until all packets of
    /// the answer have come.
    pub(super) fn round_trips(&self, packets_per_message: usize) -> Vec<RoundTrip> {
        let mut begun = BTreeMap::new();
        let mut answers: BTreeMap<usize, BTreeMap<u32, u64>> = BTreeMap::new();
        let first = |is_outward: bool| {
            let mut data = self.packets.iter().filter(|packet| packet.is_data());
            data.find(|packet| packet.is_outward == is_outward).map(|packet| packet.psn)
        };
        let (Some(asked), Some(answered)) = (first(true), first(false)) else { return Vec::new() };
        for packet in self.packets.iter().filter(|packet| packet.is_data()) {
            let origin = if packet.is_outward { asked } else { answered };
            let place = (packet.psn.wrapping_sub(origin) & 0xff_ffff) as usize;
            let message = place / packets_per_message;
            if packet.is_outward {
                begun.entry(message).or_insert(packet.sent_ns);
            } else if let Some(arrived) = packet.arrived_ns {
                answers.entry(message).or_default().entry(packet.psn).or_insert(arrived);
            }
        }
        let complete = |(message, begun_ns): (usize, u64)| {
            let packets = answers.get(&message).filter(|packets| packets.len() == packets_per_message)?;
            let ended_ns = packets.values().copied().max()?;
            (ended_ns >= begun_ns).then_some(RoundTrip { begun_ns, ended_ns })
        };
        begun.into_iter().filter_map(complete).collect()
    }

    /// The packets of one round trip that met a loss, of data if there is one: the shortest such story.
    pub(super) fn story(&self, round_trips: &[RoundTrip]) -> Vec<Packet> {
        let within = |trip: &RoundTrip| {
            let packets = self.packets.iter();
            packets
                .filter(|packet| (trip.begun_ns..=trip.ended_ns).contains(&packet.sent_ns))
                .cloned()
                .collect()
        };
        let is_lost = |packet: &Packet| packet.arrived_ns.is_none();
        let stories = round_trips.iter().map(within);
        let with_loss = stories.filter(|story: &Vec<Packet>| story.iter().any(is_lost));
        let has_no_lost_data =
            |story: &Vec<Packet>| !story.iter().any(|packet| packet.is_data() && is_lost(packet));
        with_loss.min_by_key(|story| (has_no_lost_data(story), story.len())).unwrap_or_default()
    }
}

/// From a message's first departure until its answer is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoundTrip {
    pub(super) begun_ns: u64,
    pub(super) ended_ns: u64,
}

impl RoundTrip {
    pub(super) fn ns(self) -> u64 {
        self.ended_ns - self.begun_ns
    }
}

/// When the packets at these places of `sent` arrived. Copies look alike: an arrival is of the last one that had been sent.
fn arrivals<'a>(sent: &[&Seen], received: impl Iterator<Item = &'a Seen>) -> HashMap<usize, u64> {
    let mut copies: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, seen) in sent.iter().enumerate() {
        copies.entry(&seen.text).or_default().push(place);
    }
    let mut arrivals = HashMap::new();
    for seen in received {
        let places = copies.get(seen.text.as_str()).map(Vec::as_slice).unwrap_or_default();
        let free = places
            .iter()
            .rev()
            .find(|&&place| sent[place].time_ns <= seen.time_ns && !arrivals.contains_key(&place));
        // The clocks of the two captures are read a moment apart.
        let free = free.or_else(|| places.iter().find(|&place| !arrivals.contains_key(place)));
        if let Some(&place) = free {
            arrivals.insert(place, seen.time_ns.max(sent[place].time_ns));
        }
    }
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(time_ns: u64, text: &str) -> Seen {
        let source = IpAddr::from([127, 0, 0, 1]);
        Seen { time_ns, source, psn: 0, payload_bytes: 1, text: text.into() }
    }

    fn check(sent: &[(u64, &str)], received: &[(u64, &str)], expected: &[Option<u64>]) {
        let both =
            |list: &[(u64, &str)]| list.iter().map(|(time, text)| seen(*time, text)).collect::<Vec<_>>();
        let (sent, received) = (both(sent), both(received));
        let found = arrivals(&sent.iter().collect::<Vec<_>>(), received.iter());
        let found: Vec<_> = (0..sent.len()).map(|place| found.get(&place).copied()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_packet_that_never_arrived_was_lost() {
        check(&[(1, "a"), (2, "b"), (3, "c")], &[(5, "a"), (6, "c")], &[Some(5), None, Some(6)]);
        check(&[(1, "a"), (9, "a again")], &[(10, "a again")], &[None, Some(10)]);
    }

    #[test]
    fn an_arrival_is_of_the_last_copy_that_had_left() {
        check(&[(1, "x"), (4, "x"), (9, "x")], &[(5, "x")], &[None, Some(5), None]);
        check(&[(1, "x"), (4, "x")], &[(2, "x"), (5, "x")], &[Some(2), Some(5)]);
        check(&[(5, "x")], &[(4, "x")], &[Some(5)]);
    }

    fn packet(sent_ns: u64, arrived_ns: Option<u64>, is_outward: bool, psn: u32) -> Packet {
        Packet { sent_ns, arrived_ns, is_outward, payload_bytes: 8, psn, text: "IRN_SEND".into() }
    }

    /// Two messages of two packets each; numbers wrap, and the second answer's first packet is lost once.
    #[test]
    fn a_round_trip_ends_when_its_answer_is_whole() {
        let packets = vec![
            packet(0, Some(1), true, 0xff_ffff),
            packet(0, Some(2), true, 0),
            packet(3, Some(5), false, 7),
            packet(3, Some(4), false, 8),
            packet(10, Some(11), true, 1),
            packet(10, Some(11), true, 2),
            packet(12, None, false, 9),
            packet(12, Some(13), false, 10),
            packet(20, Some(22), false, 9),
        ];
        let trace = Trace { packets, ..Trace::default() };
        let trips = trace.round_trips(2);
        assert_eq!(trips.iter().map(|trip| trip.ns()).collect::<Vec<_>>(), [5, 12]);
        assert_eq!(trace.lost(), 1);
        assert_eq!(trace.story(&trips).len(), 5, "the second message's");
        assert!(trace.story(&trips[..1]).is_empty(), "the first met no loss");
    }

    /// The loss of an acknowledgement is a shorter story, and teaches less.
    #[test]
    fn a_story_is_of_lost_data_where_there_is_one() {
        let acknowledgement = Packet { payload_bytes: 0, ..packet(1, None, false, 7) };
        let packets = vec![
            packet(0, Some(1), true, 0),
            acknowledgement,
            packet(2, Some(3), false, 7),
            packet(10, Some(11), true, 1),
            packet(12, None, false, 8),
            packet(13, None, false, 8),
            packet(14, Some(15), false, 8),
        ];
        let trace = Trace { packets, ..Trace::default() };
        let trips = trace.round_trips(1);
        assert_eq!((trips.len(), trace.story(&trips).len()), (2, 4));
        assert_eq!(trace.story(&trips[..1]).len(), 3, "without another, the acknowledgement's");
    }
}
