//! Next hops.
//!
//! An address is pod (10 bits), edge (10), slot (12). A switch of a tree knows the part of the address space below it: if
//! a destination lies there, one field of the address is the port; otherwise any port upwards will do.

use super::Tables;

pub(crate) const SLOT_BITS: u32 = 12;
pub(crate) const EDGE_BITS: u32 = 10;
pub(crate) const POD_SHIFT: u32 = SLOT_BITS + EDGE_BITS;
pub(crate) const EDGES_MAX: u32 = 1 << EDGE_BITS;
pub(crate) const SLOTS_MAX: u32 = 1 << SLOT_BITS;
pub(crate) const PODS_MAX: u32 = 1 << 10;

/// The address of the host in `slot` of `edge` in `pod`.
pub(crate) const fn address(pod: u32, edge: u32, slot: u32) -> u32 {
    pod << POD_SHIFT | edge << SLOT_BITS | slot
}

/// How a switch finds its next hops.
#[derive(Clone, Debug)]
pub(crate) enum Router {
    Tree(TreeRouter),
    /// By [`Tables`].
    Table,
}

/// A switch of a tree, as its routing needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeRouter {
    /// An address lies below this switch if it agrees with `own` from this bit on.
    own_shift: u32,
    own: u32,
    /// Then the port is this field of it.
    down_shift: u32,
    down_mask: u32,
    /// Otherwise any of these ports.
    up_first: u16,
    up_count: u16,
}

impl TreeRouter {
    /// A switch with hosts: its ports from 0 are the slots.
    pub(crate) fn edge(pod: u32, edge: u32, up_first: u32, up_count: u32) -> Router {
        let own = address(pod, edge, 0) >> SLOT_BITS;
        Router::Tree(TreeRouter {
            own_shift: SLOT_BITS,
            own,
            down_shift: 0,
            down_mask: SLOTS_MAX - 1,
            up_first: up_first as u16,
            up_count: up_count as u16,
        })
    }

    /// A switch above the edges of one pod: its ports from 0 are the edges.
    pub(crate) fn aggregation(pod: u32, up_first: u32, up_count: u32) -> Router {
        Router::Tree(TreeRouter {
            own_shift: POD_SHIFT,
            own: pod,
            down_shift: SLOT_BITS,
            down_mask: EDGES_MAX - 1,
            up_first: up_first as u16,
            up_count: up_count as u16,
        })
    }

    /// A switch above all pods: its ports are the pods.
    pub(crate) fn core() -> Router {
        // Pods have at most nine of their ten bits, so the topmost is zero in every address: all lie below.
        Router::Tree(TreeRouter {
            own_shift: 31,
            own: 0,
            down_shift: POD_SHIFT,
            down_mask: PODS_MAX / 2 - 1,
            up_first: 0,
            up_count: 0,
        })
    }
}

/// The ports that lie on a shortest way.
pub(crate) enum Ways<'a> {
    One(u16),
    Range { first: u16, count: u16 },
    List(&'a [u16]),
}

impl Ways<'_> {
    #[inline]
    pub(crate) fn count(&self) -> usize {
        match self {
            Ways::One(_) => 1,
            Ways::Range { count, .. } => usize::from(*count),
            Ways::List(ports) => ports.len(),
        }
    }

    /// The `n`th port.
    #[inline]
    pub(crate) fn nth(&self, n: usize) -> u16 {
        match self {
            Ways::One(port) => *port,
            Ways::Range { first, .. } => first + n as u16,
            Ways::List(ports) => ports[n],
        }
    }
}

impl Router {
    /// Where switch `switch` may send a packet for `destination`, whose address is `address`.
    #[inline]
    pub(crate) fn ways<'a>(
        &self,
        tables: &'a Tables,
        switch: u32,
        address: u32,
        destination: u32,
    ) -> Ways<'a> {
        match self {
            Router::Tree(tree) if address >> tree.own_shift == tree.own => {
                Ways::One((address >> tree.down_shift & tree.down_mask) as u16)
            }
            Router::Tree(tree) => Ways::Range { first: tree.up_first, count: tree.up_count },
            Router::Table => Ways::List(tables.ways(switch, destination)),
        }
    }
}
