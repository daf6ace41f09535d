// The number of the lowest bit that is set, or of the highest: a tree that prefers the one side.
module find_one #(
  // A power of two.
  parameter int unsigned BITS = 128,
  parameter int unsigned HIGHEST = 0,
  // Derived; not to be set.
  parameter int unsigned LEVELS = $clog2(BITS)
) (
  input  logic [BITS-1:0]   word,
  output logic              found,
  output logic [LEVELS-1:0] index
);
  // Level l holds, for each group of 2^l bits, whether it has one and which.
  logic [2*BITS-2:0]            has /*verilator split_var*/;
  logic [(2*BITS-1)*LEVELS-1:0] which /*verilator split_var*/;

  for (genvar place = 0; place < BITS; place++) begin : gen_leaf
    assign has[place] = word[place];
    assign which[place*LEVELS +: LEVELS] = '0;
  end
  for (genvar level = 1; level <= LEVELS; level++) begin : gen_level
    localparam int unsigned BELOW = 2 * BITS - (2 * BITS >> (level - 1));
    localparam int unsigned HERE = 2 * BITS - (2 * BITS >> level);
    for (genvar place = 0; place < (BITS >> level); place++) begin : gen_group
      logic upper;
      assign upper = (HIGHEST != 0) ? has[BELOW+2*place+1] : !has[BELOW+2*place];
      assign has[HERE+place] = has[BELOW+2*place] || has[BELOW+2*place+1];
      assign which[(HERE+place)*LEVELS +: LEVELS] =
          (upper ? which[(BELOW+2*place+1)*LEVELS +: LEVELS] : which[(BELOW+2*place)*LEVELS +: LEVELS])
          | (upper ? LEVELS'(1 << (level - 1)) : '0);
    end
  end

  assign found = has[2*BITS-2];
  assign index = which[(2*BITS-2)*LEVELS +: LEVELS];
endmodule
