//! The target buffer: entries that know a packet by the low bits of its address, and a few pages for the bits above them.
//!
//! An entry names its page and its target's page by number. When a page makes room for another, the entries that name it
//! stay, and then stand for packets and targets that never existed, as on Rocket.

use super::tree::Tree;
use super::{Flow, Prediction, UNUSED, Update, bit};

pub(super) const ENTRIES: usize = 28;
const PAGES: usize = 6;

/// Bits of an address below its page.
const PAGE_BITS: u32 = 14;
const LOW: u64 = (1 << PAGE_BITS) - 1;

/// Sets of packets that have their candidates in common.
const CANDIDATES: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    half: u8,
    flow: Flow,
    /// The low bits of the target.
    target: u16,
    /// Numbers of pages, counted from one.
    page: u8,
    target_page: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Targets {
    /// The low bits of the packets that the entries stand for.
    packets: [u16; ENTRIES],
    /// Which entries count, by bit.
    valid: u32,
    /// The entries that a packet may have, by bit, by a few bits of its address: most packets have none.
    candidates: [u32; CANDIDATES],
    /// For the same sets of packets, how often the entries' answers may have changed.
    changes: [u64; CANDIDATES],
    entries: [Entry; ENTRIES],
    pages: [u64; PAGES],
    /// Which of the pages are known, by bit.
    known_pages: u8,
    next_page: u8,
    recency: Tree,
}

impl Targets {
    pub(super) fn new() -> Targets {
        let empty = Entry { half: 0, flow: Flow::Branch, target: 0, page: 0, target_page: 0 };
        let mut targets = Targets {
            packets: [0; ENTRIES],
            valid: 0,
            candidates: [0; CANDIDATES],
            changes: [0; CANDIDATES],
            entries: [empty; ENTRIES],
            pages: [0; PAGES],
            known_pages: 0,
            next_page: 0,
            recency: Tree::new(ENTRIES),
        };
        targets.candidates[candidate_set(0)] = (1 << ENTRIES) - 1;
        targets
    }

    /// The entries' answer for the packet of `pc`, added to `bits`.
    #[inline(always)]
    pub(super) fn look_up(&self, pc: u64, bits: u32, bias: bool, return_address: Option<u64>) -> Prediction {
        match self.matching(pc) {
            0 => Prediction { target: 0, bits },
            matching => self.answer(pc, matching, bits, bias, return_address),
        }
    }

    /// The answer of these entries. Two jumps in a packet can leave several entries that match; their answers
    /// are then mixed bit by bit, as the hardware's encoders do.
    #[inline(always)]
    fn answer(
        &self,
        pc: u64,
        mut matching: u32,
        mut bits: u32,
        bias: bool,
        return_address: Option<u64>,
    ) -> Prediction {
        if matching.count_ones() > 1 {
            bits |= bit::AMBIGUOUS;
        }
        let (mut low, mut page, mut target_page) = (0, 0, 0);
        let mut is_return = false;
        while matching != 0 {
            let index = matching.trailing_zeros();
            matching &= matching - 1;
            let entry = &self.entries[index as usize % ENTRIES];
            bits |= (u32::from(entry.half != 0) * bit::HALF) | (index << bit::ENTRY);
            low |= entry.target;
            page |= entry.page;
            target_page |= entry.target_page;
            if entry.flow == Flow::Branch && !bias {
                bits &= !bit::TAKEN;
            }
            is_return |= entry.flow == Flow::Return;
        }
        if self.page(page) == Some(pc >> PAGE_BITS) {
            bits |= bit::HIT;
        }
        let target = match return_address {
            Some(address) if is_return => address,
            _ => self.target_page(target_page) << PAGE_BITS | u64::from(low),
        };
        Prediction { target, bits }
    }

    #[inline(always)]
    /// The page of this number, counted from one, if it is known.
    fn page(&self, number: u8) -> Option<u64> {
        let index = usize::from(number).wrapping_sub(1);
        let page = *self.pages.get(index)?;
        (self.known_pages >> index & 1 != 0).then_some(page)
    }

    /// A target's page. There is no page seven, and the hardware's selector takes the last page for it.
    fn target_page(&self, number: u8) -> u64 {
        self.page(number.min(PAGES as u8)).unwrap_or(0)
    }

    /// The entries whose low bits are those of `pc`, by bit.
    #[inline(always)]
    fn matching(&self, pc: u64) -> u32 {
        let key = low_bits(pc);
        let mut candidates = self.candidates[candidate_set(key)] & self.valid;
        let mut found = 0;
        while candidates != 0 {
            let index = candidates.trailing_zeros();
            candidates &= candidates - 1;
            found |= u32::from(self.packets[index as usize] == key) << index;
        }
        found
    }

    /// Whether the target of this entry is what is on top of the return stack.
    #[inline(always)]
    pub(super) fn is_return(&self, entry: u8) -> bool {
        self.entries[usize::from(entry) % ENTRIES].flow == Flow::Return
    }

    /// How often the entries' answers for a set of packets may have changed; see [`change_set`].
    #[inline(always)]
    pub(super) fn changes(&self, set: u8) -> u64 {
        self.changes[usize::from(set) % CANDIDATES]
    }

    /// Forgets everything.
    pub(super) fn flush(&mut self) {
        self.keep(0);
    }

    /// Forgets all entries that match the packet of `pc`.
    pub(super) fn forget(&mut self, pc: u64) {
        self.keep(!self.matching(pc));
    }

    /// Invalidates all entries but these.
    fn keep(&mut self, kept: u32) {
        let mut lost = self.valid & !kept;
        self.valid &= kept;
        while lost != 0 {
            self.change(self.packets[lost.trailing_zeros() as usize]);
            lost &= lost - 1;
        }
    }

    /// Notes that the answers for the packets with these bits may change.
    fn change(&mut self, packet: u16) {
        self.changes[candidate_set(packet)] += 1;
    }

    /// Takes an update over, with the target at the lookup port. If the lookup there is ambiguous, its entries are forgotten, and
    /// the update's change to the valid bits is lost, but not its contents: one register holds all valid bits.
    pub(super) fn learn(&mut self, update: &Update, target: u64, is_ambiguous: bool) {
        let valid = self.valid;
        let ambiguous = if is_ambiguous { self.matching(target) } else { 0 };
        let index = self.write(target, update);
        if is_ambiguous {
            self.valid = valid;
            self.keep(!ambiguous);
        }
        self.touch(index);
    }

    /// Counts a use of `entry`, which may be [`UNUSED`].
    #[inline(always)]
    pub(super) fn touch(&mut self, entry: u8) {
        if entry != UNUSED {
            self.recency.touch(entry.into());
        }
    }

    /// Writes an entry whose target is `target`, and returns its number.
    fn write(&mut self, target: u64, update: &Update) -> u8 {
        let known = usize::from(update.entry);
        let index = if known < ENTRIES { known } else { self.recency.oldest() };
        let packet = low_bits(update.packet);
        self.candidates[candidate_set(self.packets[index])] &= !(1 << index);
        self.candidates[candidate_set(packet)] |= 1 << index;
        let before = (self.packets[index], self.entries[index], self.valid);
        self.packets[index] = packet;
        let (page, target_page) = self.find_pages(update.packet >> PAGE_BITS, target >> PAGE_BITS);
        let target = low_bits(target);
        self.entries[index] = Entry { half: update.half, flow: update.flow, target, page, target_page };
        self.valid = self.valid & !(1 << index) | u32::from(update.is_valid) << index;
        if before != (packet, self.entries[index], self.valid) {
            self.change(before.0);
            self.change(packet);
        }
        index as u8
    }

    /// The numbers of two pages, which are added if they are not known.
    fn find_pages(&mut self, page: u64, target_page: u64) -> (u8, u8) {
        let find = |wanted| (0..PAGES).find(|&index| self.page(index as u8 + 1) == Some(wanted));
        let after = |index: usize| (index + 1) % PAGES;
        let (of_packet, of_target) = (find(page), find(target_page));
        let index = of_packet.unwrap_or_else(|| of_target.map_or(self.next_page.into(), after));
        let target_index =
            of_target.unwrap_or_else(|| if page == target_page { index } else { after(index) });
        let replaces_target = of_target.is_none() && page != target_page;
        let replaced = u8::from(of_packet.is_none()) + u8::from(replaces_target);
        if replaced > 0 {
            self.changes.iter_mut().for_each(|changes| *changes += 1);
        }
        if of_packet.is_none() {
            (self.pages[index], self.known_pages) = (page, self.known_pages | 1 << index);
        }
        if replaces_target {
            self.pages[target_index] = target_page;
            self.known_pages |= 1 << target_index;
        }
        let next = self.next_page + replaced;
        // Past the end, only the lowest bit is kept.
        self.next_page = if usize::from(next) < PAGES { next } else { next & 1 };
        (index as u8 + 1, target_index as u8 + 1)
    }
}

fn low_bits(address: u64) -> u16 {
    (address & LOW & !1) as u16
}

/// The set of packets that share their candidates with the packet of `pc`.
pub(crate) fn change_set(pc: u64) -> u8 {
    candidate_set(low_bits(pc)) as u8
}

fn candidate_set(packet: u16) -> usize {
    usize::from(packet >> 2) % CANDIDATES
}
