//! Where packets wait for an output: one list per output, priority and row.
//!
//! A row is an input of an input-queued switch (its virtual output queue), or the only one of an output-queued switch.
//! The rows of an output take turns, one packet each. Everything lies in flat tables by port, so that a part of the
//! network is a range of each of them.

use crate::packet::{Fifo, Packet, Store};

/// The queues in front of all outputs.
pub(crate) struct Queues {
    priorities: usize,
    outputs: Vec<Output>,
    lanes: Vec<Lane>,
    /// Which rows of a lane hold packets, 64 to a word.
    occupied: Vec<u64>,
    lists: Vec<Fifo>,
}

/// Where an output's tables begin.
#[derive(Clone, Copy)]
struct Output {
    lists: u32,
    words: u32,
    rows: u16,
}

/// What waits for one output at one priority.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lane {
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    packets: u32,
    /// The row whose turn it is.
    turn: u32,
}

impl Queues {
    /// Queues for ports with this many rows each.
    pub(crate) fn new(priorities: u8, rows_of: impl Iterator<Item = u16>) -> Queues {
        let priorities = usize::from(priorities);
        let (mut lists, mut words, mut outputs) = (0usize, 0usize, Vec::new());
        for rows in rows_of {
            outputs.push(Output { lists: lists as u32, words: words as u32, rows });
            lists += usize::from(rows) * priorities;
            words += usize::from(rows).div_ceil(64) * priorities;
        }
        assert!(u32::try_from(lists).is_ok(), "a network of more than 2^32 queues");
        Queues {
            priorities,
            lanes: vec![Lane::default(); outputs.len() * priorities],
            outputs,
            occupied: vec![0; words],
            lists: vec![Fifo::EMPTY; lists],
        }
    }

    #[inline]
    pub(crate) fn lane(&self, output: u32, priority: u8) -> &Lane {
        &self.lanes[output as usize * self.priorities + usize::from(priority)]
    }

    /// A packet passed from `row` to the output without waiting: the next row has its turn.
    #[inline]
    pub(crate) fn pass(&mut self, output: u32, priority: u8, row: u16) {
        self.lanes[output as usize * self.priorities + usize::from(priority)].turn = u32::from(row) + 1;
    }

    #[inline]
    pub(crate) fn push<P: Packet>(&mut self, store: &mut Store<P>, output: u32, row: u16, index: u32) {
        let record = &store.records[index as usize];
        let (bytes, priority) = (record.bytes, usize::from(record.priority));
        let Output { lists, words, rows } = self.outputs[output as usize];
        let (row, rows) = (usize::from(row), usize::from(rows));
        let lane = &mut self.lanes[output as usize * self.priorities + priority];
        lane.bytes += u64::from(bytes);
        lane.bytes_max = lane.bytes_max.max(lane.bytes);
        lane.packets += 1;
        self.occupied[words as usize + priority * rows.div_ceil(64) + row / 64] |= 1 << (row % 64);
        store.push_back(&mut self.lists[lists as usize + priority * rows + row], index);
    }

    /// The next packet for `output` of a priority for which one waits, and whether it was the last.
    #[inline]
    pub(crate) fn pop<P: Packet>(&mut self, store: &Store<P>, output: u32, priority: u8) -> (u32, bool) {
        let Output { lists, words, rows } = self.outputs[output as usize];
        let (priority, rows) = (usize::from(priority), usize::from(rows));
        let count = rows.div_ceil(64);
        let first = words as usize + priority * count;
        let lane = &mut self.lanes[output as usize * self.priorities + priority];
        let words = &mut self.occupied[first..first + count];
        let row = next_turn(words, lane.turn as usize);
        let list = &mut self.lists[lists as usize + priority * rows + row];
        let index = store.pop_front(list).expect("an occupied row holds a packet");
        if list.is_empty() {
            words[row / 64] &= !(1 << (row % 64));
        }
        lane.turn = row as u32 + 1;
        lane.bytes -= u64::from(store.records[index as usize].bytes);
        lane.packets -= 1;
        (index, lane.packets == 0)
    }

    /// Bytes and packets in the lists of one lane, counted one by one.
    pub(crate) fn count<P: Packet>(&self, store: &Store<P>, output: u32, priority: u8) -> (u64, u64) {
        let Output { lists, rows, .. } = self.outputs[output as usize];
        let first = lists as usize + usize::from(priority) * usize::from(rows);
        let lists = &self.lists[first..first + usize::from(rows)];
        let records = lists.iter().flat_map(|list| store.iter(list));
        records.fold((0, 0), |(bytes, packets), r| (bytes + u64::from(r.bytes), packets + 1))
    }
}

/// The first occupied row at or after `turn`, going around.
#[inline]
fn next_turn(words: &[u64], turn: usize) -> usize {
    if let [word] = words {
        let after = word.checked_shr(turn as u32).map_or(0, |w| w << turn);
        return (if after != 0 { after } else { *word }).trailing_zeros() as usize;
    }
    let (start, bit) = (turn / 64, turn % 64);
    let after = words.get(start).map_or(0, |w| w & (u64::MAX << bit));
    if after != 0 {
        return start * 64 + after.trailing_zeros() as usize;
    }
    let around = (start + 1..words.len()).chain(0..words.len());
    let found = around.into_iter().find(|&w| words[w] != 0).expect("an occupied lane has an occupied row");
    found * 64 + words[found].trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_around() {
        assert_eq!(next_turn(&[0b1010], 0), 1);
        assert_eq!(next_turn(&[0b1010], 2), 3);
        assert_eq!(next_turn(&[0b1010], 4), 1);
        assert_eq!(next_turn(&[1 << 63], 64), 63);
        assert_eq!(next_turn(&[0, 1, 0], 0), 64);
        assert_eq!(next_turn(&[2, 1, 0], 65), 1);
        assert_eq!(next_turn(&[0, 0, 1 << 9], 192), 137);
    }
}
