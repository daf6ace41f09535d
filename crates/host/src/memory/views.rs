//! Memory that peers reach through another mapping than the program's.
//!
//! Registered memory that is held is mapped a second time, for the driver alone. All accesses go there, so a program
//! that unmaps its own mapping, or maps something else in its place, neither stops them nor gets their bytes: as with a
//! card, the region's pages stay what they were until it is deregistered. Parts that could not be held are still
//! reached through the program's own addresses.

use highwire_shmem::Segment;
use highwire_verbs::{MemoryLost, NULL_ADDR};
use std::collections::VecDeque;
use std::sync::Arc;

/// The first driver's address that stands for a place in a view. Programs have no memory so high.
pub(super) const VIEWS_ADDR: u64 = 1 << 62;
/// The length of each view's own range of addresses.
const STRIDE_LOG: u32 = 40;
const VIEWS_MAX: usize = ((NULL_ADDR - VIEWS_ADDR) >> STRIDE_LOG) as usize;

/// The longest region that a view can show, the pages at its ends included.
pub(crate) const VIEW_BYTES_MAX: u64 = 1 << STRIDE_LOG;

/// One region's memory: parts elsewhere, the rest at the program's own addresses.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The address of the first page in the program.
    pub(crate) first_page: u64,
    /// In order, and apart.
    pub(crate) parts: Arc<[ViewPart]>,
}

#[derive(Clone, Debug)]
pub(crate) struct ViewPart {
    /// As an offset from the view's first page.
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// The second mapping, and where the part begins in it.
    pub(crate) mapping: Arc<Segment>,
    pub(crate) offset: u64,
}

#[derive(Debug)]
pub(super) struct Views {
    list: Vec<Option<View>>,
    /// Free places, longest free first: an address of a view that is gone finds nothing for as long as possible.
    free: VecDeque<usize>,
}

impl Views {
    pub(super) const fn new() -> Views {
        Views { list: Vec::new(), free: VecDeque::new() }
    }

    pub(super) fn add(&mut self, view: View) -> Option<u64> {
        let at = match self.free.pop_front() {
            Some(at) => at,
            None if self.list.len() < VIEWS_MAX => {
                self.list.push(None);
                self.list.len() - 1
            }
            None => return None,
        };
        self.list[at] = Some(view);
        Some(VIEWS_ADDR + ((at as u64) << STRIDE_LOG))
    }

    pub(super) fn remove(&mut self, addr: u64) {
        if !(VIEWS_ADDR..NULL_ADDR).contains(&addr) {
            return;
        }
        let at = ((addr - VIEWS_ADDR) >> STRIDE_LOG) as usize;
        if self.list.get_mut(at).and_then(Option::take).is_some() {
            self.free.push_back(at);
        }
    }

    /// The pieces of a range, in order. The range lies within the region, or the tables would have refused it.
    pub(super) fn each_piece(
        &self,
        addr: u64,
        len: usize,
        mut each: impl FnMut(*mut u8, usize) -> Result<(), MemoryLost>,
    ) -> Result<(), MemoryLost> {
        let place = addr - VIEWS_ADDR;
        let view =
            self.list.get((place >> STRIDE_LOG) as usize).and_then(Option::as_ref).ok_or(MemoryLost)?;
        let (mut at, mut left) = (place & (VIEW_BYTES_MAX - 1), len as u64);
        while left > 0 {
            let next = view.parts.partition_point(|part| part.start + part.length <= at);
            let (piece, room) = match view.parts.get(next) {
                Some(part) if part.start <= at => {
                    let into = at - part.start;
                    let start = part.mapping.as_ptr().wrapping_add((part.offset + into) as usize);
                    (start, part.length - into)
                }
                Some(part) => ((view.first_page + at) as *mut u8, part.start - at),
                None => ((view.first_page + at) as *mut u8, left),
            };
            let length = room.min(left);
            each(piece, length as usize)?;
            at += length;
            left -= length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_falls_into_pieces_at_the_ends_of_what_was_moved() {
        let mapping = Arc::new(Segment::heap(3 * 4096));
        let elsewhere = mapping.as_ptr().addr() as u64 + 4096;
        let part = |start, length, offset| ViewPart { start, length, mapping: Arc::clone(&mapping), offset };
        // The third part follows the second at once.
        let parts = Arc::new([part(4096, 8192, 4096), part(16384, 100, 0), part(16484, 100, 500)]);
        let view = View { first_page: 0x10_0000, parts };
        let mut views = Views::new();
        let first = views.add(view.clone()).expect("room");
        let second = views.add(view).expect("room");
        let pieces = |views: &Views, addr, len| {
            let mut found = Vec::new();
            let result = views.each_piece(addr, len, |piece, len| {
                found.push((piece.addr() as u64, len));
                Ok(())
            });
            result.map(|()| found)
        };
        for base in [first, second] {
            assert_eq!(pieces(&views, base + 5, 4), Ok(vec![(0x10_0005, 4)]));
            assert_eq!(pieces(&views, base + 5000, 100), Ok(vec![(elsewhere + 904, 100)]));
            let all = [(0x10_0010, 4080), (elsewhere, 8192), (0x10_3000, 7)];
            assert_eq!(pieces(&views, base + 16, 4080 + 8192 + 7), Ok(all.to_vec()));
            let behind =
                [(0x10_3000, 4096), (elsewhere - 4096, 100), (elsewhere - 3596, 100), (0x10_40C8, 5)];
            assert_eq!(pieces(&views, base + 0x3000, 4096 + 205), Ok(behind.to_vec()));
        }
        views.remove(first + 77);
        assert_eq!(pieces(&views, first, 1), Err(MemoryLost));
        assert_eq!(pieces(&views, second, 1), Ok(vec![(0x10_0000, 1)]));
        assert_eq!(pieces(&views, second + VIEW_BYTES_MAX, 1), Err(MemoryLost));
    }
}
