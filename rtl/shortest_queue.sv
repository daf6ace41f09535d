// The core with the smallest count, the lowest of them among equals: a tree of comparators.
module shortest_queue #(
  parameter int unsigned CORES = 4,
  parameter int unsigned COUNT_BITS = 8,
  // Derived; not to be set.
  parameter int unsigned CORE_BITS = (CORES > 1) ? $clog2(CORES) : 1
) (
  input  logic [CORES*COUNT_BITS-1:0] counts,
  output logic [CORE_BITS-1:0]        core,
  output logic [COUNT_BITS-1:0]       count
);
  localparam int unsigned LEAVES = 1 << CORE_BITS;
  localparam int unsigned NODES = 2 * LEAVES - 1;

  // Node k has the children 2k+1 and 2k+2; the leaves are the last nodes, in the order of the cores.
  logic [NODES*COUNT_BITS-1:0] node_count /*verilator split_var*/;
  logic [NODES*CORE_BITS-1:0]  node_core /*verilator split_var*/;

  for (genvar leaf = 0; leaf < LEAVES; leaf++) begin : gen_leaf
    localparam int unsigned K = LEAVES - 1 + leaf;
    assign node_core[K*CORE_BITS +: CORE_BITS] = CORE_BITS'(leaf);
    if (leaf < CORES) begin : gen_real
      assign node_count[K*COUNT_BITS +: COUNT_BITS] = counts[leaf*COUNT_BITS +: COUNT_BITS];
    end else begin : gen_absent
      assign node_count[K*COUNT_BITS +: COUNT_BITS] = '1;
    end
  end

  for (genvar k = 0; k < LEAVES - 1; k++) begin : gen_node
    localparam int unsigned L = 2 * k + 1;
    localparam int unsigned R = 2 * k + 2;
    logic right;
`ifdef MUTANT_LATE_TIES
    assign right = node_count[R*COUNT_BITS +: COUNT_BITS] <= node_count[L*COUNT_BITS +: COUNT_BITS];
`else
    assign right = node_count[R*COUNT_BITS +: COUNT_BITS] < node_count[L*COUNT_BITS +: COUNT_BITS];
`endif
    assign node_count[k*COUNT_BITS +: COUNT_BITS] =
        right ? node_count[R*COUNT_BITS +: COUNT_BITS] : node_count[L*COUNT_BITS +: COUNT_BITS];
    assign node_core[k*CORE_BITS +: CORE_BITS] =
        right ? node_core[R*CORE_BITS +: CORE_BITS] : node_core[L*CORE_BITS +: CORE_BITS];
  end

  assign core = node_core[CORE_BITS-1:0];
  assign count = node_count[COUNT_BITS-1:0];
endmodule
