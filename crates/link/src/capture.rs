//! Records a link's packets in a pcap file that tcpdump, Wireshark and `highwire pcap` read.
//!
//! A socket sees only payloads, so the frames around them are rebuilt: Ethernet with addresses made from the IP addresses,
//! IP with the identification that the ICRC says, UDP with its checksum. An outgoing packet is recorded
//! sealed, as it will be on the wire; the decorator's place decides whether faults come before or after it
//! (crate docs).
//!
//! A packet is in the file before it leaves, and before the program receives it, so a program that ends at
//! once, or is killed, leaves a capture up to its last turn behind. This costs one system call for each
//! batch.
//!
//! A capture never disturbs traffic: when its file cannot be written, it stops and counts.

mod frame;

use self::frame::{build_frame, solve_ip_id};
use crate::batch::{Ecn, RxBatch, TrainLimits, TxBatch};
use crate::{Link, Seal, Transmitted};
use highwire_stdx::{Duration, Instant};
use highwire_wire::{LinkType, pcap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pcap file that any number of links write to.
#[derive(Clone)]
pub struct CaptureFile {
    sink: Arc<Mutex<Sink>>,
}

struct Sink {
    writer: BufWriter<Box<dyn Write + Send>>,
    origin: Duration,
    error: Option<io::Error>,
    /// Room for packets that come without a link.
    frame: Vec<u8>,
}

impl CaptureFile {
    /// Creates the file, or empties it. `origin` is the time since 1970 at which the links' clock stood at zero.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &std::path::Path, origin: Duration) -> io::Result<CaptureFile> {
        CaptureFile::to(File::create(path)?, origin)
    }

    /// Writes to anything else, a pipe for instance.
    ///
    /// # Errors
    /// Those of `writer` for the first bytes.
    pub fn to(writer: impl Write + Send + 'static, origin: Duration) -> io::Result<CaptureFile> {
        let mut writer = BufWriter::with_capacity(1 << 18, Box::new(writer) as Box<dyn Write + Send>);
        writer.write_all(&pcap::file_header(LinkType::Ethernet))?;
        writer.flush()?;
        let sink = Sink { writer, origin, error: None, frame: Vec::new() };
        Ok(CaptureFile { sink: Arc::new(Mutex::new(sink)) })
    }

    /// Hands everything recorded so far to the file.
    ///
    /// # Errors
    /// The error that made the capture stop, now or earlier; an earlier error is reported once.
    pub fn flush(&self) -> io::Result<()> {
        let mut sink = self.lock();
        match sink.error.take() {
            Some(error) => {
                // It stays stopped: the file may end in half a record.
                sink.error = Some(io::Error::other("the capture has stopped"));
                Err(error)
            }
            None => sink.writer.flush(),
        }
    }

    /// Records a packet, BTH to ICRC, that no link carries, as one that goes from the first to the second of `path` with
    /// identification 0 and the traffic class. False if the capture has stopped or the two are of different families.
    pub fn record(
        &self,
        now: Instant,
        path: (SocketAddr, SocketAddr),
        traffic_class: u8,
        packet: &[u8],
    ) -> bool {
        let mut sink = self.lock();
        let mut frame = std::mem::take(&mut sink.frame);
        let is_framed = build_frame(&mut frame, path, 0, traffic_class, packet);
        let is_recorded = is_framed && sink.record(now, &frame) && sink.hand_over();
        sink.frame = frame;
        is_recorded
    }

    fn lock(&self) -> MutexGuard<'_, Sink> {
        // Records are written whole, or the sink keeps the error, so it stays usable after a panic elsewhere.
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    /// Writes one frame; false if the capture has stopped.
    fn record(&mut self, now: Instant, frame: &[u8]) -> bool {
        if self.error.is_some() {
            return false;
        }
        let header = pcap::record_header(now + self.origin, frame.len() as u32);
        let written = self.writer.write_all(&header).and_then(|()| self.writer.write_all(frame));
        self.error = written.err();
        self.error.is_none()
    }

    /// Hands the recorded bytes to the file; false if the capture has stopped.
    fn hand_over(&mut self) -> bool {
        if self.error.is_none() {
            self.error = self.writer.flush().err();
        }
        self.error.is_none()
    }
}

/// A link that records its packets in both directions.
pub struct Capture<L> {
    inner: L,
    file: CaptureFile,
    frame: Vec<u8>,
    recorded: u64,
    lost: u64,
}

impl<L: Link> Capture<L> {
    /// A link that records into `file`.
    pub fn new(inner: L, file: CaptureFile) -> Capture<L> {
        Capture { inner, file, frame: Vec::new(), recorded: 0, lost: 0 }
    }

    /// The link inside.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    fn count(&mut self, is_recorded: bool) {
        if is_recorded {
            self.recorded += 1;
        } else {
            self.lost += 1;
        }
    }
}

impl<L: Link> Link for Capture<L> {
    fn local(&self) -> SocketAddr {
        self.inner.local()
    }

    fn train_limits(&self) -> TrainLimits {
        self.inner.train_limits()
    }

    fn transmit(&mut self, now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
        // A batch that was blocked has been recorded already.
        if !batch.is_blocked() && !batch.is_empty() {
            batch.plan(self.inner.train_limits());
            let file = self.file.clone();
            let mut sink = file.lock();
            batch.for_each_sealed_copy(self.inner.local(), seal, |place, traffic_class, packet| {
                let path = (place.source, place.destination);
                let is_framed =
                    build_frame(&mut self.frame, path, place.train_index, traffic_class & !Ecn::MASK, packet);
                let is_recorded = is_framed && sink.record(now, &self.frame);
                self.count(is_recorded);
            });
            if !sink.hand_over() {
                self.lost += 1;
            }
        }
        self.inner.transmit(now, batch, seal)
    }

    fn receive(&mut self, now: Instant, batch: &mut RxBatch) -> usize {
        let packets = self.inner.receive(now, batch);
        if packets == 0 {
            return 0;
        }
        let local = self.inner.local();
        let file = self.file.clone();
        let mut sink = file.lock();
        for packet in batch.packets() {
            let path = (packet.source, local);
            let ip_id = solve_ip_id(path, packet.train_index, packet.bytes);
            let is_framed = build_frame(&mut self.frame, path, ip_id, packet.traffic_class, packet.bytes);
            let is_recorded = is_framed && sink.record(now, &self.frame);
            self.count(is_recorded);
        }
        if !sink.hand_over() {
            self.lost += 1;
        }
        packets
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("capture_recorded", self.recorded);
        each("capture_lost", self.lost);
        self.inner.counters(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultConfig, Faulty, Order, Place, Subject, Verdict, memory_pair};
    use highwire_wire::{Ethernet, ICRC_LEN, Ip, PathIcrc, Udp, icrc};
    use std::net::IpAddr;

    /// A file that stays readable while it is written.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        /// Time, IP packet and whether its ICRC is right, of every frame.
        fn frames(&self) -> Vec<(u64, Ip, bool)> {
            let file = self.0.lock().unwrap().clone();
            let records = pcap::Reader::new(&file).unwrap().map(Result::unwrap);
            records
                .map(|r| {
                    let (ethernet, ip_start) = Ethernet::parse(r.bytes).unwrap();
                    assert!([Ethernet::IPV4, Ethernet::IPV6].contains(&ethernet.ethertype));
                    let packet = &r.bytes[ip_start..];
                    let (ip, ip_len) = Ip::parse(packet).unwrap();
                    let (header, payload) = packet[ip_len..].split_first_chunk().unwrap();
                    // A header with the right checksum sums up to zero, whose other form is this.
                    let sum = frame::udp_checksum(ip.source(), ip.destination(), header, payload);
                    assert_eq!(sum, 0xFFFF);
                    assert_eq!(usize::from(Udp::parse(header).unwrap().length), Udp::LEN + payload.len());
                    (r.time.as_nanos(), ip, icrc::verify_ip_packet(packet).unwrap())
                })
                .collect()
        }
    }

    fn seal(packet: &mut [u8], place: &Place) {
        let at = |a: SocketAddr| (a.ip(), a.port());
        let path = PathIcrc::between(at(place.source), at(place.destination)).unwrap();
        let (body, icrc) = packet.split_last_chunk_mut::<ICRC_LEN>().unwrap();
        *icrc = path.icrc(place.train_index, body).to_le_bytes();
    }

    fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
        let ip = |n: u8| match v6 {
            true => IpAddr::from([0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]),
            false => IpAddr::from([127, 0, 0, n]),
        };
        (SocketAddr::new(ip(1), 4791), SocketAddr::new(ip(2), 4791))
    }

    fn fill(batch: &mut TxBatch, to: SocketAddr, packets: u8) {
        for tag in 0..packets {
            batch.push(to, &[tag; 48], Order::Strict).unwrap();
        }
    }

    #[test]
    fn both_ends_record_frames_with_right_checksums() {
        for v6 in [false, true] {
            let (a, b) = ends(v6);
            let (near, far) = memory_pair(a, b);
            let (sent, arrived) = (Shared::default(), Shared::default());
            let origin = Duration::from_secs(1_000);
            let mut near = Capture::new(near, CaptureFile::to(sent.clone(), origin).unwrap());
            let mut far = Capture::new(far, CaptureFile::to(arrived.clone(), origin).unwrap());
            let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
            fill(&mut tx, b, 3);
            assert_eq!(near.transmit(Instant::from_nanos(5), &mut tx, &mut seal), Transmitted::All);
            assert_eq!(far.receive(Instant::from_nanos(7), &mut rx), 3);
            for (file, nanos) in [(&sent, 5), (&arrived, 7)] {
                let frames = file.frames();
                assert_eq!(frames.len(), 3);
                for (index, (time, ip, is_right)) in frames.into_iter().enumerate() {
                    assert_eq!((time, is_right), (1_000_000_000_000 + nanos, true), "v6 {v6}");
                    assert_eq!((ip.source(), ip.destination()), (a.ip(), b.ip()));
                    if let Ip::V4(v4) = ip {
                        assert_eq!(usize::from(v4.id), index);
                    }
                }
            }
        }
    }

    /// A link that looks at the capture's file at the moment in which packets leave.
    struct Witness<L>(L, Shared, Vec<usize>);

    impl<L: Link> Link for Witness<L> {
        fn local(&self) -> SocketAddr {
            self.0.local()
        }

        fn train_limits(&self) -> TrainLimits {
            self.0.train_limits()
        }

        fn transmit(&mut self, now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
            self.2.push(self.1.frames().len());
            self.0.transmit(now, batch, seal)
        }

        fn receive(&mut self, now: Instant, batch: &mut RxBatch) -> usize {
            self.0.receive(now, batch)
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.0.poll_timeout()
        }

        fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
            self.0.poll_fd()
        }

        fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
            self.0.counters(each);
        }
    }

    #[test]
    fn a_packet_is_in_the_file_before_it_leaves_and_before_the_program_hears_of_it() {
        let (a, b) = ends(false);
        let (near, far) = memory_pair(a, b);
        let (sent, arrived) = (Shared::default(), Shared::default());
        let file = |shared: &Shared| CaptureFile::to(shared.clone(), Duration::ZERO).unwrap();
        let mut near = Capture::new(Witness(near, sent.clone(), Vec::new()), file(&sent));
        let mut far = Capture::new(far, file(&arrived));
        let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
        for turn in 1..4 {
            fill(&mut tx, b, 3);
            assert_eq!(near.transmit(Instant::ZERO, &mut tx, &mut seal), Transmitted::All);
            assert_eq!(far.receive(Instant::ZERO, &mut rx), 3);
            assert_eq!(arrived.frames().len(), 3 * turn);
        }
        assert_eq!(near.inner().2, [3, 6, 9]);
        let lone = Shared::default();
        assert!(file(&lone).record(Instant::ZERO, (a, b), 0, &[0; 48]));
        assert_eq!(lone.frames().len(), 1);
    }

    /// Of five packets one is lost and one damaged.
    fn rule(packet: &Subject<'_>) -> Verdict {
        match packet.ordinal {
            1 => Verdict::Drop,
            3 => Verdict::Corrupt { bit: 8 * 30 },
            _ => Verdict::Pass,
        }
    }

    #[test]
    fn outside_of_the_faults_it_sees_what_was_sent_and_inside_what_the_wire_carries() {
        let (a, b) = ends(false);
        let (outside, inside) = (Shared::default(), Shared::default());
        let file = |shared: &Shared| CaptureFile::to(shared.clone(), Duration::ZERO).unwrap();
        let (near, mut far) = memory_pair(a, b);
        let near = Capture::new(near, file(&inside));
        let near = Faulty::with_rule(near, rule, Duration::ZERO);
        let mut near = Capture::new(near, file(&outside));
        let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
        fill(&mut tx, b, 5);
        assert_eq!(near.transmit(Instant::ZERO, &mut tx, &mut seal), Transmitted::All);
        assert_eq!((near.receive(Instant::ZERO, &mut rx), far.receive(Instant::ZERO, &mut rx)), (0, 4));
        let verdicts = |shared: &Shared| shared.frames().into_iter().map(|f| f.2).collect::<Vec<_>>();
        assert_eq!(verdicts(&outside), [true; 5]);
        assert_eq!(verdicts(&inside), [true, true, false, true]);
        let path = PathIcrc::between((a.ip(), a.port()), (b.ip(), b.port())).unwrap();
        let right: Vec<bool> = rx.packets().map(|p| path.verify(p.train_index, p.bytes)).collect();
        assert_eq!(right, [true, true, false, true]);
    }

    #[test]
    fn a_full_disk_stops_the_capture_and_not_the_traffic() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (a, b) = ends(false);
        let (near, mut far) = memory_pair(a, b);
        let file = CaptureFile::to(Full(100), Duration::ZERO).unwrap();
        let mut near = Capture::new(Faulty::new(near, &FaultConfig::default()), file.clone());
        let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
        for _ in 0..100 {
            for _ in 0..60 {
                tx.push(b, &[0; 1000], Order::Strict).unwrap();
            }
            assert_eq!(near.transmit(Instant::ZERO, &mut tx, &mut seal), Transmitted::All);
            assert_eq!(far.receive(Instant::ZERO, &mut rx), 60);
        }
        let mut lost = 0;
        near.counters(&mut |name, n| lost += if name == "capture_lost" { n } else { 0 });
        assert!(lost > 0 && file.flush().is_err());
    }
}
