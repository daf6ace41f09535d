//! The target buffer: entries that know a packet by the low bits of its address, and a few pages for the bits above them.
//!
//! An entry names its page and its target's page by number. When a page makes room for another, the entries that name it
//! stay, and then stand for packets and targets that nobody ever saw, as on Rocket.

use super::tree::Tree;
use super::{Flow, Prediction, Update};

pub(super) const ENTRIES: usize = 28;
const PAGES: usize = 6;

/// Bits of an address below its page.
const PAGE_BITS: u32 = 14;
const LOW: u64 = (1 << PAGE_BITS) - 1;

/// Sets of packets that have their candidates in common.
const CANDIDATES: usize = 128;

#[derive(Clone, Copy, Debug)]
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
    entries: [Entry; ENTRIES],
    pages: [u64; PAGES],
    /// Which of the pages are known, by bit.
    known_pages: u8,
    next_page: u8,
    recency: Tree,
    /// An update takes effect a cycle later, when the target stands at the lookup port.
    pending: Option<Update>,
    /// A lookup counts as a use a cycle later.
    used: Option<u8>,
}

impl Targets {
    pub(super) fn new() -> Targets {
        let empty = Entry { half: 0, flow: Flow::Branch, target: 0, page: 0, target_page: 0 };
        let mut targets = Targets {
            packets: [0; ENTRIES],
            valid: 0,
            candidates: [0; CANDIDATES],
            entries: [empty; ENTRIES],
            pages: [0; PAGES],
            known_pages: 0,
            next_page: 0,
            recency: Tree::new(ENTRIES),
            pending: None,
            used: None,
        };
        targets.candidates[candidate_set(0)] = (1 << ENTRIES) - 1;
        targets
    }

    /// Fills in what the entries say of the packet of `pc`. Several can speak at once, as two jumps in a packet can leave
    /// behind; like the hardware's encoders, what they say is then mixed bit by bit.
    #[inline]
    pub(super) fn look_up(&self, pc: u64, bias: bool, return_address: Option<u64>, seen: &mut Prediction) {
        let mut matching = self.matching(pc);
        if matching == 0 {
            return;
        }
        seen.is_ambiguous = matching.count_ones() > 1;
        let (mut low, mut page, mut target_page) = (0, 0, 0);
        let (mut is_branch, mut is_return) = (false, false);
        while matching != 0 {
            let index = matching.trailing_zeros();
            matching &= matching - 1;
            let entry = &self.entries[index as usize];
            seen.half |= entry.half;
            seen.entry |= index as u8;
            low |= entry.target;
            page |= entry.page;
            target_page |= entry.target_page;
            is_branch |= entry.flow == Flow::Branch;
            is_return |= entry.flow == Flow::Return;
        }
        seen.hit = self.page(page) == Some(pc >> PAGE_BITS);
        seen.taken = !is_branch || bias;
        seen.target = match return_address {
            Some(address) if is_return => address,
            _ => self.target_page(target_page) << PAGE_BITS | u64::from(low),
        };
    }

    /// The page of this number, counted from one, if it is known.
    fn page(&self, number: u8) -> Option<u64> {
        let index = usize::from(number).wrapping_sub(1);
        let page = *self.pages.get(index)?;
        (self.known_pages >> index & 1 != 0).then_some(page)
    }

    /// A target's page. Seven is no page, and the hardware's selector takes it for the last.
    fn target_page(&self, number: u8) -> u64 {
        self.page(number.min(PAGES as u8)).unwrap_or(0)
    }

    /// The entries whose low bits are those of `pc`, by bit.
    #[inline]
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

    /// The end of a cycle in which the lookup was for `pc` and answered `seen`; `update` arrives, and everything is
    /// forgotten if it `flushes`.
    #[inline]
    pub(super) fn tick(&mut self, pc: u64, seen: &Prediction, update: Option<Update>, flushes: bool) {
        // Entries that spoke at once are forgotten, and whatever an update makes of the others in the same cycle is lost,
        // but for its contents: one register holds all valid bits.
        let kept = if seen.is_ambiguous { Some(self.valid & !self.matching(pc)) } else { None };
        let mut touched = self.used.take();
        if let Some(update) = self.pending.take() {
            touched = Some(self.write(pc, &update));
        }
        if let Some(kept) = kept {
            self.valid = kept;
        }
        if flushes {
            self.valid = 0;
        }
        if let Some(index) = touched {
            let index = usize::from(index);
            // A mixture of entries can be the number of none; the tree then goes by its low bits.
            self.recency.touch(if index < ENTRIES { index } else { index - 4 });
        }
        self.used = (seen.hit && seen.taken).then_some(seen.entry);
        self.pending = update;
    }

    /// Writes an entry whose target is `target`, and says which.
    fn write(&mut self, target: u64, update: &Update) -> u8 {
        let known = usize::from(update.entry);
        let index = if known < ENTRIES { known } else { self.recency.oldest() };
        let packet = low_bits(update.packet);
        self.candidates[candidate_set(self.packets[index])] &= !(1 << index);
        self.candidates[candidate_set(packet)] |= 1 << index;
        self.packets[index] = packet;
        let (page, target_page) = self.find_pages(update.packet >> PAGE_BITS, target >> PAGE_BITS);
        let target = low_bits(target);
        self.entries[index] = Entry { half: update.half, flow: update.flow, target, page, target_page };
        self.valid = self.valid & !(1 << index) | u32::from(update.is_valid) << index;
        index as u8
    }

    /// The numbers of two pages, which are taken in if they are not known.
    fn find_pages(&mut self, page: u64, target_page: u64) -> (u8, u8) {
        let find = |wanted| (0..PAGES).find(|&index| self.page(index as u8 + 1) == Some(wanted));
        let after = |index: usize| (index + 1) % PAGES;
        let (of_packet, of_target) = (find(page), find(target_page));
        let index = of_packet.unwrap_or_else(|| of_target.map_or(self.next_page.into(), after));
        let target_index =
            of_target.unwrap_or_else(|| if page == target_page { index } else { after(index) });
        let replaces_target = of_target.is_none() && page != target_page;
        let replaced = u8::from(of_packet.is_none()) + u8::from(replaces_target);
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

fn candidate_set(packet: u16) -> usize {
    usize::from(packet >> 2) % CANDIDATES
}
