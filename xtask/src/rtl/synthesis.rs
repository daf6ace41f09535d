//! The cost of a block: Yosys' gates of two inputs, flip-flops, bits of memory, and the longest path through
//! gates.

use anyhow::{Context, Result, bail};

use super::Family;
use crate::shell::{Line, root, target_dir};
use crate::table::Table;

/// A block and the parameters with which it is synthesised.
struct Block {
    top: &'static str,
    parameters: &'static [(&'static str, u32)],
    /// Gates are mapped without the search for equal signals, which does not end in useful time for some blocks.
    is_fast: bool,
}

const fn block(top: &'static str, parameters: &'static [(&'static str, u32)]) -> Block {
    Block { top, parameters, is_fast: false }
}

const fn fast(top: &'static str) -> Block {
    Block { top, parameters: &[], is_fast: true }
}

/// The prototype has eight times as many buffers: tables of that size take Yosys very long.
const EIGHTH: &[(&str, u32)] = &[("BUFFERS_1K", 8), ("BUFFERS_2K", 8)];

/// The prototype's sizes, unless a parameter says otherwise.
const BLOCKS: &[Block] = &[
    block("core_selector", &[("CORES", 4), ("BOUND", 2)]),
    block("core_selector", &[("CORES", 4), ("BOUND", 1)]),
    block("core_selector", &[("CORES", 32), ("BOUND", 2)]),
    block("core_selector", &[("CORES", 4), ("HASHED", 1)]),
    block("thread_scheduler", &[]),
    block("receive_queue", &[]),
    block("transmit_queue", &[]),
    block("core_interface", &[]),
    block("ingress", &[]),
    block("reassembly", EIGHTH),
    block("dispatch", &[]),
    block("receive_path", EIGHTH),
    block("writers", &[]),
    block("outgoing_message", &[]),
    block("due_queue", &[]),
    block("packetizer", EIGHTH),
    block("control_generator", &[]),
    block("egress", &[]),
    block("send_path", EIGHTH),
];

/// Bitmaps of 128 packets, as in the authors' synthesis. `irn_receiver` and `irn_sender` only add memories to them.
const IRN_BLOCKS: &[Block] = &[
    fast("irn_receive_data"),
    block("irn_tx_free", &[]),
    block("irn_receive_ack", &[]),
    block("irn_timeout", &[]),
];

/// Yosys' figures for a block.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    gates: u64,
    flip_flops: u64,
    memory_bits: u64,
    depth: u64,
}

/// A row per block.
pub(super) fn table(family: Family) -> Result<Table> {
    let blocks = match family {
        Family::Nanopu => BLOCKS,
        Family::Irn => IRN_BLOCKS,
    };
    let mut table =
        Table::new(&["block", "parameters", "gates", "flip-flops", "memory, bits", "depth, gates"]);
    for block in blocks {
        let cost = synthesise(block)?;
        eprintln!("{}: {cost:?}", block.top);
        let set = block.parameters.iter().map(|(name, value)| format!("{name} = {value}"));
        let parameters: Vec<String> = set.chain(block.is_fast.then(|| "`abc -fast`".to_string())).collect();
        table.row([
            format!("`{}`", block.top),
            parameters.join(", "),
            cost.gates.to_string(),
            cost.flip_flops.to_string(),
            cost.memory_bits.to_string(),
            cost.depth.to_string(),
        ]);
    }
    Ok(table)
}

/// Memories stay memories: the cost of a RAM depends on the technology, and a register file of gates would
/// hide all else.
fn synthesise(block: &Block) -> Result<Cost> {
    let mut sources: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(root().join("rtl")).context("the folder rtl")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sv") {
            sources.push(path.display().to_string());
        }
    }
    sources.sort();
    // Yosys 0.23 derives a block twice, and fails, if `hierarchy` is given its parameters.
    let parameters: String = match block.parameters {
        [] => String::new(),
        set => {
            let set: String = set.iter().map(|(name, value)| format!("-set {name} {value} ")).collect();
            format!("chparam {set}{}; ", block.top)
        }
    };
    let memories = target_dir().join(format!("xtask/{}.memories", block.top));
    let script = format!(
        "read_verilog -sv -DSYNTHESIS {}; {parameters}hierarchy -top {}; proc; flatten; opt; tee -o {} stat; \
         wreduce; peepopt; opt_clean; alumacc; opt; memory -nomap; opt_clean; opt -fast -full; techmap; \
         opt -fast; abc {}-g AND,OR,XOR,MUX; opt -fast; stat; ltp -noff",
        sources.join(" "),
        block.top,
        memories.display(),
        if block.is_fast { "-fast " } else { "" }
    );
    let output = Line::new("yosys").words("-p").arg(&script).capture()?;
    if !output.success {
        bail!("yosys, {}: {}{}", block.top, output.stdout, output.stderr);
    }
    let memories = std::fs::read_to_string(&memories).with_context(|| memories.display().to_string())?;
    cost(&memories, &output.stdout).with_context(|| format!("what Yosys says of {}", block.top))
}

/// Reads the statistics before memories become cells, and the last ones of everything else.
fn cost(memories: &str, synthesis: &str) -> Option<Cost> {
    let last_number = |line: &str| line.split_whitespace().last()?.parse::<u64>().ok();
    let memory_bits = memories.lines().rev().find(|line| line.contains("memory bits"))?;
    let cells = &synthesis[synthesis.rfind("Number of cells:")?..];
    let mut cost = Cost { memory_bits: last_number(memory_bits)?, ..Cost::default() };
    for line in cells.lines().skip(1) {
        let Some(name) = line.split_whitespace().next() else { break };
        let count = last_number(line)?;
        match name {
            _ if name.contains("DFF") => cost.flip_flops += count,
            _ if name.starts_with("$_") => cost.gates += count,
            _ => {}
        }
    }
    let path = &synthesis[synthesis.rfind("Longest topological path")?..];
    cost.depth = path.split_once("length=")?.1.split_once(')')?.0.parse().ok()?;
    Some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_yosys_prints() {
        let memories = "=== a ===\n   Number of memories: 1\n   Number of memory bits:   64\n";
        let synthesis = "   Number of cells:   9\n     $_AND_   9\n\n rest\n   Number of cells:          17\n     $_AND_      10\n     \
                         $_SDFF_PP0_    4\n     $_MUX_   2\n     $mem_v2   1\n\nLongest topological path in a (length=12):\n";
        let expected = Cost { gates: 12, flip_flops: 4, memory_bits: 64, depth: 12 };
        assert_eq!(cost(memories, synthesis), Some(expected));
    }
}
