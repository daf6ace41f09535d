//! Where packets wait for an output: one list per output, priority and row.
//!
//! A row is an input of an input-queued switch (its virtual output queue), or the only one of an output-queued switch.
//! The rows of an output take turns, one packet each. Everything lies in flat tables by port, so that a part of the
//! network is a range of each of them.

use crate::packet::{Fifo, Packet, Store};

/// The queues in front of all outputs.
pub(crate) struct Queues {
    priorities: usize,
    lanes: Vec<Lane>,
    /// For lanes of more than 64 rows: which of them hold packets, 64 to a word.
    words: Vec<u64>,
    lists: Vec<Fifo>,
}

/// The packets that wait for one output at one priority.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    /// Which of up to 64 rows hold packets.
    occupied: u64,
    packets: u32,
    /// Where its lists begin, and its words if it has more than 64 rows.
    lists: u32,
    words: u32,
    rows: u16,
    /// The row whose turn it is.
    turn: u16,
}

const WORD: usize = 64;

impl Queues {
    /// Queues for ports with this many rows each.
    pub(crate) fn new(priorities: u8, rows_of: impl Iterator<Item = u16>) -> Queues {
        let priorities = usize::from(priorities);
        let (mut lists, mut words, mut lanes) = (0, 0, Vec::new());
        for rows in rows_of {
            for _ in 0..priorities {
                let (first, word) = (lists as u32, words as u32);
                let counts = Lane {
                    bytes: 0,
                    bytes_max: 0,
                    occupied: 0,
                    packets: 0,
                    turn: 0,
                    lists: 0,
                    words: 0,
                    rows,
                };
                lanes.push(Lane { lists: first, words: word, ..counts });
                lists += usize::from(rows);
                words += if usize::from(rows) > WORD { usize::from(rows).div_ceil(WORD) } else { 0 };
            }
        }
        assert!(u32::try_from(lists).is_ok(), "a network of more than 2^32 queues");
        Queues { priorities, lanes, words: vec![0; words], lists: vec![Fifo::EMPTY; lists] }
    }

    #[inline]
    pub(crate) fn lane(&self, output: u32, priority: u8) -> &Lane {
        &self.lanes[output as usize * self.priorities + usize::from(priority)]
    }

    #[inline]
    fn lane_mut(&mut self, output: u32, priority: u8) -> &mut Lane {
        &mut self.lanes[output as usize * self.priorities + usize::from(priority)]
    }

    /// Notes that a packet passed from `row` to the output without waiting, so it is the next row's turn.
    #[inline]
    pub(crate) fn pass(&mut self, output: u32, priority: u8, row: u16) {
        self.lane_mut(output, priority).turn = row + 1;
    }

    #[inline]
    pub(crate) fn push<P: Packet>(&mut self, store: &mut Store<P>, output: u32, row: u16, index: u32) {
        let record = &store.records[index as usize];
        let (bytes, priority) = (u64::from(record.bytes), record.priority);
        let lane = self.lane_mut(output, priority);
        lane.bytes += bytes;
        lane.bytes_max = lane.bytes_max.max(lane.bytes);
        lane.packets += 1;
        let row = usize::from(row);
        let list = lane.lists as usize + row;
        if usize::from(lane.rows) <= WORD {
            lane.occupied |= 1 << row;
        } else {
            let word = lane.words as usize + row / WORD;
            self.words[word] |= 1 << (row % WORD);
        }
        store.push_back(&mut self.lists[list], index);
    }

    /// The next packet for `output` of a priority for which one waits, and whether it was the last.
    #[inline]
    pub(crate) fn pop<P: Packet>(&mut self, store: &Store<P>, output: u32, priority: u8) -> (u32, bool) {
        let lane = &mut self.lanes[output as usize * self.priorities + usize::from(priority)];
        let words = match usize::from(lane.rows) {
            rows if rows <= WORD => std::slice::from_mut(&mut lane.occupied),
            rows => &mut self.words[lane.words as usize..lane.words as usize + rows.div_ceil(WORD)],
        };
        let row = next_turn(words, usize::from(lane.turn));
        let list = &mut self.lists[lane.lists as usize + row];
        let index = store.pop_front(list).expect("an occupied row holds a packet");
        if list.is_empty() {
            words[row / WORD] &= !(1 << (row % WORD));
        }
        lane.turn = row as u16 + 1;
        lane.bytes -= u64::from(store.records[index as usize].bytes);
        lane.packets -= 1;
        (index, lane.packets == 0)
    }

    /// Bytes and packets in the lists of one lane, counted one by one.
    pub(crate) fn count<P: Packet>(&self, store: &Store<P>, output: u32, priority: u8) -> (u64, u64) {
        let lane = self.lane(output, priority);
        let lists = &self.lists[lane.lists as usize..lane.lists as usize + usize::from(lane.rows)];
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
    let (start, bit) = (turn / WORD, turn % WORD);
    let after = words.get(start).map_or(0, |w| w & (u64::MAX << bit));
    if after != 0 {
        return start * WORD + after.trailing_zeros() as usize;
    }
    let around = (start + 1..words.len()).chain(0..words.len());
    let found = around.into_iter().find(|&w| words[w] != 0).expect("an occupied lane has an occupied row");
    found * WORD + words[found].trailing_zeros() as usize
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
