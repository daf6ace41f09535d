// Faults of the blocks that a test switches on, to see that its comparison finds them: MUTANT(NAME) declares one. A build with the
// define MUTANTS has them all, and the argument +NAME switches one on; every other build has none.
`ifndef IRN_MUTANTS
`define IRN_MUTANTS
`ifdef MUTANTS
`define MUTANT(NAME) logic NAME; initial NAME = $test$plusargs(`"NAME`") != 0;
`else
`define MUTANT(NAME) localparam logic NAME = 1'b0;
`endif
`endif
