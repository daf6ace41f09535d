//! Dependencies between transactions, real time among them, and the search for a cycle.

use std::collections::VecDeque;

use super::{Anomaly, History};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// It wrote the version that the other overwrote.
    WriteWrite,
    /// The other read what it wrote.
    WriteRead,
    /// It read the version before the other's.
    ReadWrite,
    /// It ended before the other began.
    RealTime,
}

/// Nodes are transactions, and after them one for each moment at which one ended: a chain of moments carries the order of real time with
/// a number of edges that is linear.
pub(super) struct Graph {
    edges: Vec<Vec<(u32, Edge)>>,
    transactions: usize,
}

impl Graph {
    pub(super) fn new(history: &History, included: &[bool]) -> Graph {
        let transactions = history.transactions.len();
        let mut ends: Vec<(u64, usize)> = history
            .transactions
            .iter()
            .enumerate()
            .filter(|&(index, _)| included[index])
            .filter_map(|(index, transaction)| Some((transaction.completed_ns?, index)))
            .collect();
        ends.sort_unstable();
        let mut graph = Graph { edges: vec![Vec::new(); transactions + ends.len()], transactions };
        for (moment, &(_, index)) in ends.iter().enumerate() {
            graph.link(index, transactions + moment);
            if moment > 0 {
                graph.link(transactions + moment - 1, transactions + moment);
            }
        }
        for (index, transaction) in
            history.transactions.iter().enumerate().filter(|&(index, _)| included[index])
        {
            let earlier = ends.partition_point(|&(end, _)| end < transaction.invoked_ns);
            if earlier > 0 {
                graph.link(transactions + earlier - 1, index);
            }
        }
        graph
    }

    fn link(&mut self, from: usize, to: usize) {
        self.edges[from].push((to as u32, Edge::RealTime));
    }

    pub(super) fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[from].push((to as u32, edge));
        }
    }

    /// The number of edges, without those of real time.
    pub(super) fn dependencies(&self) -> usize {
        self.edges.iter().flatten().filter(|edge| edge.1 != Edge::RealTime).count()
    }

    pub(super) fn find_cycle(&self, history: &History, witness: &str) -> Result<(), Anomaly> {
        let Some(start) = self.node_on_a_cycle() else { return Ok(()) };
        let cycle = self.shortest_cycle(start);
        let anti = cycle.iter().filter(|step| step.1 == Edge::ReadWrite).count();
        let real = cycle.iter().any(|step| step.1 == Edge::RealTime);
        let writes = cycle.iter().all(|step| step.1 == Edge::WriteWrite);
        let name = match (anti, real, writes) {
            (_, true, _) => "not in the order of real time",
            (_, _, true) => "G0, a cycle of writes",
            (0, ..) => "G1c, circular information",
            (1, ..) => "G-single, a read that is skewed",
            _ => "G2, a cycle of anti-dependencies",
        };
        let lines: Vec<String> = cycle
            .iter()
            .filter(|step| step.0 < self.transactions)
            .map(|step| format!("  {} --{:?}-->", history.transactions[step.0].describe(), step.1))
            .collect();
        Err(Anomaly(format!("by {witness}: {name}:\n{}", lines.join("\n"))))
    }

    /// Removes nodes without predecessors until none are left, or only cycles and what follows them; then walks backwards into a cycle.
    fn node_on_a_cycle(&self) -> Option<usize> {
        let mut incoming = vec![0u32; self.edges.len()];
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.edges.len()];
        for (from, edges) in self.edges.iter().enumerate() {
            for &(to, _) in edges {
                incoming[to as usize] += 1;
                before[to as usize].push(from as u32);
            }
        }
        let mut free: Vec<usize> = (0..incoming.len()).filter(|&node| incoming[node] == 0).collect();
        let mut is_removed = vec![false; incoming.len()];
        while let Some(node) = free.pop() {
            is_removed[node] = true;
            for &(to, _) in &self.edges[node] {
                incoming[to as usize] -= 1;
                if incoming[to as usize] == 0 {
                    free.push(to as usize);
                }
            }
        }
        let mut node = is_removed.iter().position(|&removed| !removed)?;
        for _ in 0..self.edges.len() {
            let previous = before[node].iter().find(|&&from| !is_removed[from as usize]);
            node = *previous.expect("a node that was not removed has a predecessor") as usize;
        }
        Some(node)
    }

    /// The nodes of a shortest cycle through `start`, each with the edge that leaves it.
    fn shortest_cycle(&self, start: usize) -> Vec<(usize, Edge)> {
        let mut came: Vec<Option<(usize, Edge)>> = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for &(to, edge) in &self.edges[node] {
                let to = to as usize;
                if came[to].is_none() {
                    came[to] = Some((node, edge));
                    if to == start {
                        queue.clear();
                        break;
                    }
                    queue.push_back(to);
                }
            }
        }
        let mut cycle = Vec::new();
        let mut node = start;
        while let Some((from, edge)) = came[node] {
            cycle.push((from, edge));
            node = from;
            if node == start {
                break;
            }
        }
        cycle.reverse();
        cycle
    }
}
