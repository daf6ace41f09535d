//! The order of a table's keys: a tree whose nodes are rows.
//!
//! Keys of `txn` are eight bytes, and its ranges go by them; keys of the store are longer, and begin alike. So an ordered
//! table keeps its keys once more, in a B+ tree: a leaf is a row with keys in their order, an inner node a
//! row with the least key of each child and the child's place. Values stay with their keys, where those of other tables lie.
//!
//! The tree's rows are read and written in the transaction like all others. A range is what its leaves say,
//! and if a key comes or goes, a leaf changes, or is split and its parent changes: there are no phantoms. Reading
//! a key or replacing its value needs no node.
//!
//! A node is no longer than a datagram. Nodes are split when they are full, and go when they are empty; the
//! root always has the same place.

use crate::error::StoreError;
use crate::rows::{self, take};
use highwire_txn::Key;

/// The longest node. It holds several of the longest keys, so that two halves are both shorter.
pub(crate) const NODE_BYTES_MAX: usize = highwire_txn::VALUE_BYTES_MAX;
/// What makes a table ordered: its name begins so.
const ORDERED: &[u8] = b"ordered.";

const HEADER_BYTES: usize = 1 + 1;
const KEY_HEADER_BYTES: usize = 2;
const CHILD_BYTES: usize = 8;

/// Whether a table has an order.
pub(crate) fn is_ordered(table: &[u8]) -> bool {
    table.starts_with(ORDERED)
}

/// Whether a table has an order, as an error if not.
pub(crate) fn check(table: &[u8]) -> Result<(), StoreError> {
    rows::check_table(table)?;
    match is_ordered(table) {
        true => Ok(()),
        false => Err(StoreError::invalid(format!(
            "the table `{}` has no order: only tables whose names begin with `ordered.` have one",
            String::from_utf8_lossy(table)
        ))),
    }
}

/// The first key behind all that begin with `prefix`. `None`: there is none.
pub(crate) fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeNode {
    /// Keys in their order.
    Leaf(Vec<Vec<u8>>),
    /// The least key that each child may have, and its place. The first child's is not compared: it has all keys
    /// before the second's.
    Inner(Vec<(Vec<u8>, Key)>),
}

impl TreeNode {
    pub(crate) const EMPTY: TreeNode = TreeNode::Leaf(Vec::new());

    /// Parses a row. `None`: it is no node of this table.
    pub(crate) fn parse(mut row: &[u8], table: &[u8]) -> Option<TreeNode> {
        let header = take(&mut row, HEADER_BYTES)?;
        if take(&mut row, usize::from(header[1]))? != table {
            return None;
        }
        let key = |row: &mut &[u8]| {
            let length = take(row, KEY_HEADER_BYTES)?;
            Some(take(row, usize::from(u16::from_le_bytes([length[0], length[1]])))?.to_vec())
        };
        match header[0] {
            0 => {
                let mut keys = Vec::new();
                while !row.is_empty() {
                    keys.push(key(&mut row)?);
                }
                Some(TreeNode::Leaf(keys))
            }
            1 => {
                let mut children = Vec::new();
                while !row.is_empty() {
                    let least = key(&mut row)?;
                    let place = take(&mut row, CHILD_BYTES)?.try_into().ok()?;
                    children.push((least, Key::from_le_bytes(place)));
                }
                (!children.is_empty()).then_some(TreeNode::Inner(children))
            }
            _ => None,
        }
    }

    pub(crate) fn to_bytes(&self, table: &[u8]) -> Vec<u8> {
        let mut bytes = vec![u8::from(matches!(self, TreeNode::Inner(_))), table.len() as u8];
        bytes.extend_from_slice(table);
        let put = |key: &[u8], bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
            bytes.extend_from_slice(key);
        };
        match self {
            TreeNode::Leaf(keys) => keys.iter().for_each(|key| put(key, &mut bytes)),
            TreeNode::Inner(children) => {
                for (least, place) in children {
                    put(least, &mut bytes);
                    bytes.extend_from_slice(&place.to_le_bytes());
                }
            }
        }
        bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            TreeNode::Leaf(keys) => keys.is_empty(),
            TreeNode::Inner(children) => children.is_empty(),
        }
    }

    fn lengths(&self) -> Vec<usize> {
        match self {
            TreeNode::Leaf(keys) => keys.iter().map(|key| KEY_HEADER_BYTES + key.len()).collect(),
            TreeNode::Inner(children) => {
                children.iter().map(|(least, _)| KEY_HEADER_BYTES + least.len() + CHILD_BYTES).collect()
            }
        }
    }

    /// Whether the node must be split.
    pub(crate) fn is_too_long(&self, table: &[u8]) -> bool {
        let lengths = self.lengths();
        lengths.len() > 1 && HEADER_BYTES + table.len() + lengths.iter().sum::<usize>() > NODE_BYTES_MAX
    }

    /// Takes the node's latter half out; returns it and a key that is greater than all that stay and no
    /// greater than any that went.
    pub(crate) fn split(&mut self) -> (Vec<u8>, TreeNode) {
        let lengths = self.lengths();
        let half = lengths.iter().sum::<usize>() / 2;
        let mut before = 0;
        let at = lengths.iter().position(|length| {
            before += length;
            before > half
        });
        let at = at.unwrap_or_default().clamp(1, lengths.len() - 1);
        match self {
            TreeNode::Leaf(keys) => {
                let right = keys.split_off(at);
                // The shortest such key makes inner nodes short.
                let common =
                    keys[at - 1].iter().zip(&right[0]).take_while(|(one, other)| one == other).count();
                (right[0][..=common].to_vec(), TreeNode::Leaf(right))
            }
            TreeNode::Inner(children) => {
                let right = children.split_off(at);
                (right[0].0.clone(), TreeNode::Inner(right))
            }
        }
    }
}

/// The child of an inner node in which a key lies.
pub(crate) fn child_of(children: &[(Vec<u8>, Key)], key: &[u8]) -> usize {
    children.partition_point(|(least, _)| least.as_slice() <= key).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn key(rng: &mut Rng) -> Vec<u8> {
        (0..rng.below(40)).map(|_| *rng.pick(b"abz\0\xff")).collect()
    }

    fn nodes(rng: &mut Rng) -> [TreeNode; 2] {
        let mut keys: Vec<Vec<u8>> = (0..rng.between(2, 30)).map(|_| key(rng)).collect();
        keys.extend([b"0".to_vec(), b"1".to_vec()]);
        keys.sort_unstable();
        keys.dedup();
        let children = keys.iter().map(|key| (key.clone(), rng.next_u64())).collect();
        [TreeNode::Leaf(keys), TreeNode::Inner(children)]
    }

    #[test]
    fn nodes_come_back_as_they_were_and_damaged_ones_never_panic() {
        let mut rng = Rng::new(7);
        for _ in 0..300 {
            for node in nodes(&mut rng) {
                let bytes = node.to_bytes(b"ordered.t");
                assert_eq!(TreeNode::parse(&bytes, b"ordered.t"), Some(node));
                assert_eq!(TreeNode::parse(&bytes, b"ordered.u"), None);
                let mut bent = bytes.clone();
                let at = rng.below(bent.len() as u64) as usize;
                bent[at] = rng.next_u32() as u8;
                bent.truncate(rng.below(bent.len() as u64 + 1) as usize);
                let _ = TreeNode::parse(&bent, b"ordered.t");
            }
        }
    }

    #[test]
    fn a_split_keeps_all_keys_on_their_sides() {
        let mut rng = Rng::new(8);
        for _ in 0..1000 {
            for mut node in nodes(&mut rng) {
                let before = node.clone();
                let (least, right) = node.split();
                assert!(!node.is_empty() && !right.is_empty());
                match (before, node, right) {
                    (TreeNode::Leaf(all), TreeNode::Leaf(left), TreeNode::Leaf(right)) => {
                        assert!(left.iter().all(|key| *key < least) && right.iter().all(|key| *key >= least));
                        assert_eq!([left, right].concat(), all);
                    }
                    (TreeNode::Inner(all), TreeNode::Inner(left), TreeNode::Inner(right)) => {
                        assert_eq!(least, right[0].0);
                        assert_eq!([left, right].concat(), all);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_node_of_the_longest_keys_has_room_for_several() {
        let table = [b"ordered.".as_slice(), &[b't'; 24]].concat();
        let long = |last: u8| [vec![7; rows::KEY_BYTES_MAX - 1], vec![last]].concat();
        let inner = TreeNode::Inner((0..7).map(|last| (long(last), 1)).collect());
        assert!(!inner.is_too_long(&table) && inner.to_bytes(&table).len() <= NODE_BYTES_MAX);
        // The longest that is written: one key more than fits, split.
        let mut longest = TreeNode::Inner((0..8).map(|last| (long(last), 1)).collect());
        assert!(longest.is_too_long(&table));
        let (_, right) = longest.split();
        assert!(!longest.is_too_long(&table) && !right.is_too_long(&table));
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_all_its_keys() {
        assert_eq!(behind_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!((behind_prefix(b""), behind_prefix(b"\xff\xff")), (None, None));
    }
}
