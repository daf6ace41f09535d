// The core that RSS gives a flow to: the sender's address and context times a constant, folded, modulo the number of cores.
module flow_hash #(
  parameter int unsigned CORES = 4,
  // Derived; not to be set.
  parameter int unsigned CORE_BITS = (CORES > 1) ? $clog2(CORES) : 1
) (
  input  logic [31:0]          source,
  input  logic [15:0]          source_context,
  output logic [CORE_BITS-1:0] core
);
  logic [63:0] mixed, folded;

  assign mixed = {16'b0, source, source_context} * 64'h9e37_79b9_7f4a_7c15;
  assign folded = mixed ^ (mixed >> 29);
  assign core = CORE_BITS'(folded % 64'(CORES));
endmodule
