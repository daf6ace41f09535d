//! Packets on their way out: written once, in place, in the buffer that the kernel reads them from.
//!
//! Each destination of a batch has two staging buffers, one for packets whose order matters and one for those that may
//! travel at any place. Packets lie end to end, so a run of equal-sized ones already is a GSO train and nothing is ever
//! copied or moved to build it.
//!
//! A batch is filled (`reserve`, `commit`), handed to [`Link::transmit`](crate::Link::transmit), and comes back empty.
//! Invariant: once laid out into trains, a batch takes no packet before it is empty.

use super::path::{Order, Path};
use super::stage::{FREE_BYTES, Slot, Stage};
use super::train::{Train, TrainLimits, lay_out};
use crate::{Place, Seal};
use std::net::SocketAddr;

/// The longest datagram a batch takes.
pub const PACKET_BYTES_MAX: usize = 65_000;

/// Destinations in one batch, each with its buffers; a caller with more of them flushes in between.
const PATHS_MAX: usize = 64;

/// Why no room could be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveError {
    /// The batch has no room: transmit it and ask again.
    Full,
    /// No batch ever has room for a datagram that long.
    TooLong,
}

impl std::fmt::Display for ReserveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReserveError::Full => f.write_str("the batch is full and must be transmitted first"),
            ReserveError::TooLong => write!(f, "a datagram holds at most {PACKET_BYTES_MAX} bytes"),
        }
    }
}

impl std::error::Error for ReserveError {}

/// Packets for one [`transmit`](crate::Link::transmit), per destination and in order.
#[derive(Default)]
pub struct TxBatch {
    /// The stages in use come first; the others keep their memory for later.
    stages: Vec<Stage>,
    in_use: usize,
    recent: usize,
    trains: Vec<Planned>,
    departed: usize,
    is_planned: bool,
}

#[derive(Clone, Copy)]
struct Planned {
    stage: usize,
    train: Train,
    is_sealed: bool,
}

impl TxBatch {
    /// An empty batch. Memory comes with the first packet to each destination and stays.
    pub fn new() -> TxBatch {
        TxBatch::default()
    }

    /// Room for one packet of up to `bytes_max` bytes, to be written and then [committed](Slot::commit).
    ///
    /// # Errors
    /// [`ReserveError`], without effect.
    #[inline]
    pub fn reserve(
        &mut self,
        path: impl Into<Path>,
        bytes_max: usize,
        order: Order,
    ) -> Result<Slot<'_>, ReserveError> {
        let limit = match order {
            Order::Strict => PACKET_BYTES_MAX,
            Order::Free => FREE_BYTES,
        };
        if bytes_max > limit {
            return Err(ReserveError::TooLong);
        }
        if self.is_planned {
            return Err(ReserveError::Full);
        }
        let stage = self.stage_of(path.into()).ok_or(ReserveError::Full)?;
        let behind = (order == Order::Free).then_some(stage.strict.sizes.len() as u32);
        let buffer = stage.buffer_mut(order);
        Slot::new(buffer, bytes_max, behind).ok_or(ReserveError::Full)
    }

    /// Appends a copy of `packet`.
    ///
    /// # Errors
    /// [`ReserveError`], without effect.
    pub fn push(&mut self, path: impl Into<Path>, packet: &[u8], order: Order) -> Result<(), ReserveError> {
        let mut slot = self.reserve(path, packet.len(), order)?;
        slot.copy_from_slice(packet);
        slot.commit(packet.len());
        Ok(())
    }

    /// Packets not yet sent.
    pub fn len(&self) -> usize {
        if self.is_planned {
            return self.trains[self.departed..].iter().map(|t| t.train.segments()).sum();
        }
        self.stages[..self.in_use].iter().map(|s| s.strict.sizes.len() + s.free.sizes.len()).sum()
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a link has laid the batch out and could not send all of it.
    pub fn is_blocked(&self) -> bool {
        self.is_planned
    }

    /// Forgets every packet.
    pub fn clear(&mut self) {
        for stage in &mut self.stages[..self.in_use] {
            stage.strict.clear();
            stage.free.clear();
        }
        self.in_use = 0;
        self.trains.clear();
        self.departed = 0;
        self.is_planned = false;
    }

    /// Seals every packet as one that travels alone, hands it to `each` with its destination and traffic class, in the order of departure,
    /// and empties the batch. For links whose trains are [`TrainLimits::SINGLE`].
    pub fn take_each(
        &mut self,
        source: SocketAddr,
        seal: &mut Seal<'_>,
        mut each: impl FnMut(SocketAddr, u8, &[u8]),
    ) {
        self.plan(TrainLimits::SINGLE);
        while self.prepare(source, 1, seal) > 0 {
            for train in self.ready(1) {
                // One of the train's two parts is empty.
                each(
                    train.destination,
                    train.traffic_class,
                    if train.head.is_empty() { train.tail } else { train.head },
                );
            }
            self.depart(1);
        }
    }

    /// Lays the packets out into trains, once; until the batch is empty again, later calls change nothing.
    pub(crate) fn plan(&mut self, limits: TrainLimits) {
        if self.is_planned {
            return;
        }
        for (index, stage) in self.stages[..self.in_use].iter().enumerate() {
            lay_out(&stage.strict.sizes, &stage.free.sizes, &stage.free.behind, limits, |train| {
                self.trains.push(Planned { stage: index, train, is_sealed: false });
            });
        }
        self.is_planned = !self.trains.is_empty();
    }

    /// Seals the next trains, `trains_max` at most, and returns how many are ready to be sent. None means that all have
    /// departed, and empties the batch.
    pub(crate) fn prepare(&mut self, source: SocketAddr, trains_max: usize, seal: &mut Seal<'_>) -> usize {
        if self.departed >= self.trains.len() {
            self.clear();
            return 0;
        }
        let ready = trains_max.min(self.trains.len() - self.departed);
        for planned in &mut self.trains[self.departed..self.departed + ready] {
            // A train that was blocked is sealed already, and damage must not be sealed over.
            if !std::mem::replace(&mut planned.is_sealed, true) {
                let stage = &mut self.stages[planned.stage];
                let mut place = stage.path.place_from(source);
                stage.strict.seal(planned.train.strict, &mut place, seal);
                stage.free.seal(planned.train.free, &mut place, seal);
            }
        }
        ready
    }

    /// The next trains, as many as were prepared.
    pub(crate) fn ready(&self, trains: usize) -> impl Iterator<Item = TrainView<'_>> {
        self.trains[self.departed..self.departed + trains].iter().map(|planned| {
            let (stage, train) = (&self.stages[planned.stage], planned.train);
            TrainView {
                destination: stage.path.peer,
                traffic_class: stage.path.traffic_class,
                segment_bytes: train.segment_bytes,
                segments: train.segments(),
                head: stage.strict.run(train.strict),
                tail: stage.free.run(train.free),
            }
        })
    }

    /// The next `trains` of the batch are gone.
    pub(crate) fn depart(&mut self, trains: usize) {
        self.departed += trains;
    }

    /// The kernel does not take the next train: its packets leave one by one, sealed anew because their places changed.
    #[cold]
    pub(crate) fn split_train(&mut self) {
        let Planned { stage, train, .. } = self.trains[self.departed];
        let buffers = &self.stages[stage];
        let mut singles = Vec::new();
        lay_out(buffers.strict.sizes_of(train.strict), &[], &[], TrainLimits::SINGLE, |t| {
            singles.push(Train { strict: t.strict.shifted(train.strict), ..t });
        });
        lay_out(&[], buffers.free.sizes_of(train.free), &[], TrainLimits::SINGLE, |t| {
            singles.push(Train { free: t.free.shifted(train.free), ..t });
        });
        let singles = singles.into_iter().map(|train| Planned { stage, train, is_sealed: false });
        self.trains.splice(self.departed..=self.departed, singles);
    }

    /// Shows every packet as it will look on the wire, sealed on a copy, in the order of departure.
    pub(crate) fn for_each_sealed_copy(
        &self,
        source: SocketAddr,
        seal: &mut Seal<'_>,
        mut each: impl FnMut(&Place, u8, &[u8]),
    ) {
        let mut copy = Vec::new();
        for planned in &self.trains[self.departed..] {
            let stage = &self.stages[planned.stage];
            let mut place = stage.path.place_from(source);
            for (buffer, run) in [(&stage.strict, planned.train.strict), (&stage.free, planned.train.free)] {
                let mut start = run.start;
                for index in run.first..run.first + run.count {
                    let bytes = usize::from(buffer.sizes[index]);
                    copy.clear();
                    copy.extend_from_slice(&buffer.bytes[start..start + bytes]);
                    seal(&mut copy, &place);
                    buffer.harm(index, &mut copy);
                    each(&place, stage.path.traffic_class, &copy);
                    place.train_index += 1;
                    start += bytes;
                }
            }
        }
    }

    /// Shows every packet as it was appended, per destination: strict ones in order, then free ones.
    pub(crate) fn for_each(&self, mut each: impl FnMut(Path, Order, &[u8])) {
        for stage in &self.stages[..self.in_use] {
            for (buffer, order) in [(&stage.strict, Order::Strict), (&stage.free, Order::Free)] {
                let mut start = 0;
                for &size in &buffer.sizes {
                    let end = start + usize::from(size);
                    each(stage.path, order, &buffer.bytes[start..end]);
                    start = end;
                }
            }
        }
    }

    #[inline]
    fn stage_of(&mut self, path: Path) -> Option<&mut Stage> {
        if self.recent >= self.in_use || self.stages[self.recent].path != path {
            self.recent = match self.stages[..self.in_use].iter().position(|s| s.path == path) {
                Some(index) => index,
                None => self.open_stage(path)?,
            };
        }
        Some(&mut self.stages[self.recent])
    }

    fn open_stage(&mut self, path: Path) -> Option<usize> {
        let index = self.in_use;
        if index == PATHS_MAX {
            return None;
        }
        match self.stages.get_mut(index) {
            Some(spare) => spare.path = path,
            None => self.stages.push(Stage::new(path)),
        }
        self.in_use += 1;
        Some(index)
    }
}

/// A sealed train, as the kernel takes it: the bytes of `head`, then those of `tail`.
pub(crate) struct TrainView<'a> {
    pub destination: SocketAddr,
    pub traffic_class: u8,
    pub segment_bytes: usize,
    pub segments: usize,
    pub head: &'a [u8],
    pub tail: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;
    use std::collections::BTreeMap;

    fn peer(n: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, n], 4791))
    }

    /// Sends everything into a list of trains, each a destination and its packets.
    fn departures(
        batch: &mut TxBatch,
        limits: TrainLimits,
        seal: &mut Seal<'_>,
    ) -> Vec<(SocketAddr, Vec<Vec<u8>>)> {
        let mut trains = Vec::new();
        batch.plan(limits);
        while batch.prepare(peer(1), 2, seal) > 0 {
            let train = batch.ready(1).next().expect("one is ready");
            let bytes = [train.head, train.tail].concat();
            let packets: Vec<Vec<u8>> = bytes.chunks(train.segment_bytes).map(<[u8]>::to_vec).collect();
            assert_eq!(packets.len(), train.segments);
            trains.push((train.destination, packets));
            batch.depart(1);
        }
        trains
    }

    #[test]
    fn a_request_and_an_acknowledgement_are_one_train() {
        let mut batch = TxBatch::new();
        batch.push(peer(2), &[1; 20], Order::Free).unwrap();
        batch.push(peer(2), &[2; 48], Order::Strict).unwrap();
        let trains = departures(&mut batch, TrainLimits::GSO, &mut |_, _| {});
        assert_eq!(trains, [(peer(2), vec![vec![2; 48], vec![1; 20]])]);
        assert!(batch.is_empty());
    }

    #[test]
    fn sealing_sees_the_index_in_the_train_and_damage_comes_after_it() {
        let mut batch = TxBatch::new();
        for n in 0..3 {
            batch.push(peer(2), &[n, 0, 0], Order::Strict).unwrap();
        }
        let mut slot = batch.reserve(peer(2), 8, Order::Free).unwrap();
        slot[..2].copy_from_slice(&[9, 0]);
        slot.commit_damaged(2, 9);
        let mut seal = |packet: &mut [u8], place: &Place| {
            assert_eq!((place.source, place.destination), (peer(1), peer(2)));
            packet[1] = 100 + place.train_index as u8;
        };
        let mut copies = Vec::new();
        batch.plan(TrainLimits::GSO);
        batch.for_each_sealed_copy(peer(1), &mut seal, |_, _, packet| copies.push(packet.to_vec()));
        let trains = departures(&mut batch, TrainLimits::GSO, &mut seal);
        assert_eq!(copies, [vec![0, 100, 0], vec![1, 101, 0], vec![2, 102, 0], vec![9, 103 ^ 2]]);
        assert_eq!(trains, [(peer(2), copies)]);
    }

    #[test]
    fn packets_are_taken_one_by_one_strict_ones_first() {
        let mut batch = TxBatch::new();
        batch.push(peer(2), &[1, 0, 0], Order::Free).unwrap();
        for n in 2..4 {
            batch.push(peer(2), &[n, 0], Order::Strict).unwrap();
        }
        let mut taken = Vec::new();
        let mut seal = |packet: &mut [u8], place: &Place| packet[1] = 100 + place.train_index as u8;
        batch.take_each(peer(1), &mut seal, |to, _, packet| taken.push((to, packet.to_vec())));
        assert_eq!(taken, [(peer(2), vec![2, 100]), (peer(2), vec![3, 100]), (peer(2), vec![1, 100, 0])]);
        assert!(batch.is_empty() && !batch.is_blocked());
    }

    #[test]
    fn a_blocked_batch_is_sealed_once_and_takes_nothing_until_it_is_empty() {
        let mut batch = TxBatch::new();
        batch.push(peer(2), &[0; 4], Order::Strict).unwrap();
        let mut seals = 0;
        batch.plan(TrainLimits::GSO);
        for _ in 0..2 {
            assert_eq!(batch.prepare(peer(1), 9, &mut |_, _| seals += 1), 1);
        }
        assert_eq!(batch.push(peer(2), &[0; 4], Order::Strict), Err(ReserveError::Full));
        assert_eq!((batch.len(), batch.is_blocked()), (1, true));
        batch.depart(1);
        assert_eq!(batch.prepare(peer(1), 9, &mut |_, _| seals += 1), 0);
        assert_eq!((seals, batch.is_blocked()), (1, false));
        batch.push(peer(2), &[0; 4], Order::Strict).unwrap();
    }

    #[test]
    fn a_refused_train_leaves_packet_by_packet_sealed_anew() {
        let mut batch = TxBatch::new();
        for n in 0..70 {
            batch.push(peer(2), &[n, 0, 0], Order::Strict).unwrap();
        }
        batch.push(peer(2), &[70, 0], Order::Free).unwrap();
        let mut seal = |packet: &mut [u8], place: &Place| packet[1] = place.train_index as u8;
        batch.plan(TrainLimits::GSO);
        assert_eq!(batch.prepare(peer(1), 9, &mut seal), 2);
        assert_eq!(batch.ready(2).map(|t| t.segments).collect::<Vec<_>>(), [64, 7]);
        batch.depart(1);
        batch.split_train();
        assert_eq!(batch.len(), 7);
        let trains = departures(&mut batch, TrainLimits::GSO, &mut seal);
        let expected = (64..70).map(|n| vec![vec![n, 0, 0]]).chain([vec![vec![70, 0]]]);
        assert_eq!(trains.into_iter().map(|t| t.1).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn reservations_end_where_the_buffers_do() {
        let mut batch = TxBatch::new();
        assert_eq!(
            batch.push(peer(2), &[0; PACKET_BYTES_MAX + 1], Order::Strict),
            Err(ReserveError::TooLong)
        );
        batch.push(peer(2), &[0; 60_000], Order::Strict).unwrap();
        assert_eq!(batch.push(peer(2), &[0; 6_000], Order::Strict), Err(ReserveError::Full));
        batch.push(peer(3), &[0; 6_000], Order::Strict).unwrap();
        assert!(batch.reserve(peer(3), 100, Order::Strict).is_ok(), "a slot that is not committed");
        batch.reserve(peer(3), 100, Order::Strict).unwrap().commit(0);
        assert_eq!(batch.len(), 2);
        for n in 0..PATHS_MAX as u8 - 2 {
            batch.push(peer(100 + n), &[0], Order::Free).unwrap();
        }
        assert_eq!(batch.push(peer(99), &[0], Order::Free), Err(ReserveError::Full));
        batch.clear();
        batch.push(peer(99), &[0], Order::Free).unwrap();
        assert_eq!(batch.len(), 1);
    }

    #[test]
    fn classes_do_not_share_trains() {
        let mut batch = TxBatch::new();
        for class in [0, 1, 0] {
            batch.push(Path { class, ..peer(2).into() }, &[class; 8], Order::Strict).unwrap();
        }
        let trains = departures(&mut batch, TrainLimits::GSO, &mut |_, _| {});
        assert_eq!(trains, [(peer(2), vec![vec![0; 8]; 2]), (peer(2), vec![vec![1; 8]])]);
    }

    #[test]
    fn random_batches_deliver_what_was_appended() {
        let mut rng = Rng::new(0xBA7C);
        let mut batch = TxBatch::new();
        for _ in 0..300 {
            let mut strict: BTreeMap<SocketAddr, Vec<Vec<u8>>> = BTreeMap::new();
            let mut free = strict.clone();
            for tag in 0..rng.below(120) {
                let to = peer(2 + rng.below(4) as u8);
                let mut packet = vec![tag as u8; *rng.pick(&[20, 48, 48, 48, 300])];
                let order = if rng.chance(0.3) { Order::Free } else { Order::Strict };
                packet[0] = u8::from(order == Order::Free);
                batch.push(to, &packet, order).unwrap();
                let model = if order == Order::Free { &mut free } else { &mut strict };
                model.entry(to).or_default().push(packet);
            }
            let mut sent: BTreeMap<(bool, SocketAddr), Vec<Vec<u8>>> = BTreeMap::new();
            for (to, packets) in departures(&mut batch, TrainLimits::GSO, &mut |_, _| {}) {
                for packet in packets {
                    sent.entry((packet[0] == 1, to)).or_default().push(packet);
                }
            }
            for (is_free, model) in [(false, strict), (true, free)] {
                for (to, packets) in model {
                    assert_eq!(sent.remove(&(is_free, to)), Some(packets));
                }
            }
            assert!(sent.is_empty());
        }
    }
}
