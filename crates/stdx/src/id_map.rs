//! A map from random numbers to values: the numbers are their own hash.
//!
//! QPNs and memory keys are drawn at random so that attackers cannot guess them; an open-addressing table keyed by their own
//! bits then finds one in a cache line, with no hash function and no order that depends on one.

/// A map keyed by 32-bit identifiers that are already random.
#[derive(Clone, Debug)]
pub struct IdMap<T> {
    slots: Vec<Option<(u32, T)>>,
    len: usize,
    /// Bits of the identifier that are not random (a lane number, a tag) and are shifted away before hashing.
    shift: u32,
}

impl<T> IdMap<T> {
    /// An empty map that ignores the low `shift` bits of an identifier when it spreads them.
    pub fn new(shift: u32) -> IdMap<T> {
        IdMap { slots: (0..16).map(|_| None).collect(), len: 0, shift }
    }

    /// The number of identifiers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no identifier.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn home(&self, id: u32) -> usize {
        (id >> self.shift) as usize & (self.slots.len() - 1)
    }

    fn find(&self, id: u32) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut i = self.home(id);
        loop {
            match &self.slots[i] {
                None => return None,
                Some((key, _)) if *key == id => return Some(i),
                Some(_) => i = (i + 1) & mask,
            }
        }
    }

    /// The value of `id`.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.find(id).and_then(|i| self.slots[i].as_ref()).map(|(_, value)| value)
    }

    /// The value of `id`, mutably.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.find(id).and_then(|i| self.slots[i].as_mut()).map(|(_, value)| value)
    }

    /// Whether `id` is present.
    pub fn contains(&self, id: u32) -> bool {
        self.find(id).is_some()
    }

    /// Adds or replaces `id`; returns the former value.
    pub fn insert(&mut self, id: u32, value: T) -> Option<T> {
        if let Some(i) = self.find(id) {
            return self.slots[i].replace((id, value)).map(|(_, old)| old);
        }
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        self.place(id, value);
        self.len += 1;
        None
    }

    fn place(&mut self, id: u32, value: T) {
        let mask = self.slots.len() - 1;
        let mut i = self.home(id);
        while self.slots[i].is_some() {
            i = (i + 1) & mask;
        }
        self.slots[i] = Some((id, value));
    }

    fn grow(&mut self) {
        let doubled = (0..self.slots.len() * 2).map(|_| None).collect();
        for (id, value) in std::mem::replace(&mut self.slots, doubled).into_iter().flatten() {
            self.place(id, value);
        }
    }

    /// Removes `id`.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let mask = self.slots.len() - 1;
        let mut hole = self.find(id)?;
        let (_, value) = self.slots[hole].take()?;
        self.len -= 1;
        // Close the gap, so that a later probe does not stop early at it.
        let mut i = (hole + 1) & mask;
        while let Some((key, _)) = &self.slots[i] {
            let home = self.home(*key);
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.slots.swap(i, hole);
                hole = i;
            }
            i = (i + 1) & mask;
        }
        Some(value)
    }

    /// Every entry, in an order that depends only on the identifiers and the history of the map.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().flatten().map(|(id, value)| (*id, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_an_ordered_map() {
        let mut rng = Rng::new(1);
        for shift in [0, 2, 8] {
            let mut map = IdMap::new(shift);
            let mut naive = BTreeMap::new();
            for step in 0..20_000u32 {
                // A small range of identifiers, so that they collide and repeat.
                let id = rng.below(300) as u32 * 7;
                if rng.chance(0.55) {
                    assert_eq!(map.insert(id, step), naive.insert(id, step));
                } else {
                    assert_eq!(map.remove(id), naive.remove(&id));
                }
                assert_eq!(map.len(), naive.len());
                let probe = rng.below(300) as u32 * 7;
                assert_eq!(map.get(probe), naive.get(&probe));
            }
            let mut all: Vec<_> = map.iter().map(|(id, v)| (id, *v)).collect();
            all.sort_unstable();
            assert_eq!(all, naive.into_iter().collect::<Vec<_>>());
        }
    }
}
