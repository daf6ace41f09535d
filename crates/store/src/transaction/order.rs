//! The keys of ordered tables, in the order's tree: see [`crate::order`].

use super::{Found, Transaction};
use crate::error::StoreError;
use crate::order::{self, TreeNode};
use crate::rows;
use crate::session::{ORDER, Stop};
use highwire_txn::{Key, Mode, Version};

/// No tree is so high; one that seems to be was read while it changed.
const HEIGHT_MAX: usize = 24;
/// Nodes that are read at once.
const NODES_AT_ONCE: usize = 64;
/// Keys that one range gives at most.
pub(crate) const RANGE_KEYS_MAX: usize = 4096;

/// A node of a tree, as this transaction sees it.
pub(super) struct CachedNode {
    table: Vec<u8>,
    version: Version,
    is_present: bool,
    node: TreeNode,
    is_changed: bool,
}

impl CachedNode {
    /// How the row is locked, and its new bytes. `None`: it stays as it is.
    pub(super) fn change(&self) -> Option<(Mode, Vec<u8>)> {
        let mode = match (self.is_present, self.node.is_empty()) {
            _ if !self.is_changed => return None,
            (false, true) => return None,
            (true, true) => return Some((Mode::Delete, Vec::new())),
            (true, false) => Mode::Update,
            (false, false) => Mode::Insert,
        };
        Some((mode, self.node.to_bytes(&self.table)))
    }
}

/// A node on the way to a leaf: its place, and which child the way goes to.
type Step = (Key, usize);

/// Keys of a range, in their order.
pub(crate) struct Range {
    pub(crate) found: Vec<Found>,
    /// Nodes that say so, and their versions.
    pub(crate) nodes: Vec<(Key, Version)>,
}

impl Transaction {
    /// Versions of tree nodes as this transaction has read them: whether they are these.
    pub(crate) async fn has_nodes(&mut self, nodes: &[(Key, Version)]) -> Result<bool, Stop> {
        for some in nodes.chunks(NODES_AT_ONCE) {
            let keys: Vec<Key> = some.iter().map(|node| node.0).collect();
            for &key in &keys {
                self.session.add_read(ORDER, key)?;
            }
            self.session.execute().await?;
            for &(key, version) in some {
                if self.session.seen(ORDER, key).ok_or(Stop::Conflict)?.0 != version {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The first keys of an ordered table from `from` on and before `to`, with their entries.
    pub(crate) async fn range(
        &mut self,
        table: &[u8],
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Range, Stop> {
        let mut nodes = Vec::new();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        // Nodes that are still to be visited, the next one last.
        let mut ahead = vec![(rows::root(table), 0)];
        while let Some((place, height)) = ahead.pop() {
            if keys.len() >= limit {
                break;
            }
            if height > HEIGHT_MAX {
                return Err(Stop::Conflict);
            }
            // Most nodes are half full, so that this many are needed soon.
            let soon = NODES_AT_ONCE.min((limit - keys.len()) / 16);
            let mut some = vec![place];
            some.extend(ahead.iter().rev().take(soon).map(|node| node.0));
            if !self.nodes.contains_key(&place) {
                self.load_nodes(table, &some).await?;
            }
            let Some(cached) = self.node_at(table, place) else { return Err(Stop::Conflict) };
            nodes.push((place, cached.version));
            let is_before_end = |key: &[u8]| to.is_none_or(|to| key < to);
            match &cached.node {
                TreeNode::Leaf(all) => {
                    let ours = all.iter().skip_while(|key| key.as_slice() < from);
                    let ours = ours.take_while(|key| is_before_end(key)).take(limit - keys.len());
                    keys.extend(ours.cloned());
                }
                TreeNode::Inner(children) => {
                    let first = order::child_of(children, from);
                    let ours = children[first..].iter().enumerate();
                    // The first child's least key says nothing.
                    let ours = ours.take_while(|(at, (least, _))| *at == 0 || is_before_end(least));
                    let ours: Vec<Key> = ours.map(|(_, child)| child.1).collect();
                    ahead.extend(ours.iter().rev().map(|&child| (child, height + 1)));
                }
            }
        }
        self.prefetch(keys.iter().map(|key| (table, &key[..]))).await?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            // A key without an entry was deleted between the two reads.
            let cell = self.cell(table, &key).await?.ok_or(Stop::Conflict)?;
            let (kind, value) = (cell.kind, cell.value.clone());
            found.push(Found { key, kind, value });
        }
        Ok(Range { found, nodes })
    }

    /// Adds a new key to its table's order.
    pub(super) async fn add_to_order(&mut self, table: &[u8], key: &[u8]) -> Result<(), Stop> {
        let mut way = self.descend(table, key).await?;
        let Some((mut place, _)) = way.pop() else { return Err(Stop::Conflict) };
        let leaf = self.changed_node(place)?;
        let TreeNode::Leaf(keys) = leaf else { return Err(Stop::Conflict) };
        match keys.binary_search_by(|there| there.as_slice().cmp(key)) {
            // Read at two times, which the commit will find out.
            Ok(_) => return Ok(()),
            Err(at) => keys.insert(at, key.to_vec()),
        }
        while self.changed_node(place)?.is_too_long(table) {
            let (least, right) = self.changed_node(place)?.split();
            match way.pop() {
                Some((parent, at)) => {
                    let new = self.new_node(table, right).await?;
                    let TreeNode::Inner(children) = self.changed_node(parent)? else {
                        return Err(Stop::Conflict);
                    };
                    children.insert(at + 1, (least, new));
                    place = parent;
                }
                // The root stays where it is, and gets two children.
                None => {
                    let left = std::mem::replace(self.changed_node(place)?, TreeNode::EMPTY);
                    let left = self.new_node(table, left).await?;
                    let right = self.new_node(table, right).await?;
                    let children = vec![(Vec::new(), left), (least, right)];
                    *self.changed_node(place)? = TreeNode::Inner(children);
                }
            }
        }
        Ok(())
    }

    /// Takes a key out of its table's order.
    pub(super) async fn take_from_order(&mut self, table: &[u8], key: &[u8]) -> Result<(), Stop> {
        let mut way = self.descend(table, key).await?;
        let Some((mut place, _)) = way.pop() else { return Err(Stop::Conflict) };
        let TreeNode::Leaf(keys) = self.changed_node(place)? else { return Err(Stop::Conflict) };
        match keys.binary_search_by(|there| there.as_slice().cmp(key)) {
            Ok(at) => drop(keys.remove(at)),
            // Read at two times, which the commit will find out; or put before names made tables ordered.
            Err(_) => return Ok(()),
        }
        // Nodes that are empty go. An empty root is no row, and the order of a table without keys.
        while self.changed_node(place)?.is_empty() {
            *self.changed_node(place)? = TreeNode::EMPTY;
            let Some((parent, at)) = way.pop() else { return Ok(()) };
            let TreeNode::Inner(children) = self.changed_node(parent)? else {
                return Err(Stop::Conflict);
            };
            children.remove(at);
            place = parent;
        }
        self.lower_root(table).await
    }

    /// A root with a single child takes the child's place.
    async fn lower_root(&mut self, table: &[u8]) -> Result<(), Stop> {
        let root = rows::root(table);
        for _ in 0..HEIGHT_MAX {
            let Some(cached) = self.node_at(table, root) else { return Err(Stop::Conflict) };
            let TreeNode::Inner(children) = &cached.node else { return Ok(()) };
            let [(_, child)] = children[..] else { return Ok(()) };
            self.load_nodes(table, &[child]).await?;
            let node = std::mem::replace(self.changed_node(child)?, TreeNode::EMPTY);
            *self.changed_node(root)? = node;
        }
        Err(Stop::Conflict)
    }

    /// The way from the root to the leaf in which a key lies.
    async fn descend(&mut self, table: &[u8], key: &[u8]) -> Result<Vec<Step>, Stop> {
        let mut way = Vec::new();
        let mut place = rows::root(table);
        while way.len() < HEIGHT_MAX {
            self.load_nodes(table, &[place]).await?;
            match self.node_at(table, place).map(|cached| &cached.node) {
                Some(TreeNode::Leaf(_)) => {
                    way.push((place, 0));
                    return Ok(way);
                }
                Some(TreeNode::Inner(children)) => {
                    let at = order::child_of(children, key);
                    way.push((place, at));
                    place = children[at].1;
                }
                None => break,
            }
        }
        Err(Stop::Conflict)
    }

    /// A node that was loaded. Only the root is a node when it has no row.
    fn node_at(&self, table: &[u8], place: Key) -> Option<&CachedNode> {
        let is_node =
            |cached: &&CachedNode| place == rows::root(table) || cached.is_present || !cached.node.is_empty();
        self.nodes.get(&place).filter(is_node)
    }

    fn changed_node(&mut self, place: Key) -> Result<&mut TreeNode, Stop> {
        let cached = self.nodes.get_mut(&place).ok_or(Stop::Conflict)?;
        cached.is_changed = true;
        Ok(&mut cached.node)
    }

    /// Finds a place for a new node.
    async fn new_node(&mut self, table: &[u8], node: TreeNode) -> Result<Key, Stop> {
        // The second draw is never needed in practice.
        for _ in 0..8 {
            let place = rows::place_of_node(table, self.session.random());
            if self.nodes.contains_key(&place) {
                continue;
            }
            self.session.add_read(ORDER, place)?;
            self.session.execute().await?;
            let (version, row) = self.session.seen(ORDER, place).ok_or(Stop::Conflict)?;
            if row.is_none() {
                let cached =
                    CachedNode { table: table.to_vec(), version, is_present: false, node, is_changed: true };
                self.nodes.insert(place, cached);
                return Ok(place);
            }
        }
        Err(StoreError::Full.into())
    }

    async fn load_nodes(&mut self, table: &[u8], places: &[Key]) -> Result<(), Stop> {
        let absent: Vec<Key> =
            places.iter().copied().filter(|place| !self.nodes.contains_key(place)).collect();
        if absent.is_empty() {
            return Ok(());
        }
        for &place in &absent {
            self.session.add_read(ORDER, place)?;
        }
        self.session.execute().await?;
        for place in absent {
            let (version, row) = self.session.seen(ORDER, place).ok_or(Stop::Conflict)?;
            let is_present = row.is_some();
            let node = match row {
                Some(row) => TreeNode::parse(&row, table).ok_or_else(|| {
                    StoreError::invalid(
                        "a node of the table's order is damaged, is another table's, or is of another version of this program",
                    )
                })?,
                None => TreeNode::EMPTY,
            };
            let cached = CachedNode { table: table.to_vec(), version, is_present, node, is_changed: false };
            self.nodes.insert(place, cached);
        }
        Ok(())
    }
}
