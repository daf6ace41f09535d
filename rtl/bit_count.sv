// How many bits are set: a tree of adders.
module bit_count #(
  // A power of two.
  parameter int unsigned BITS = 128,
  // Derived; not to be set.
  parameter int unsigned LEVELS = $clog2(BITS),
  parameter int unsigned COUNT_BITS = LEVELS + 1
) (
  input  logic [BITS-1:0]       word,
  output logic [COUNT_BITS-1:0] count
);
  // Level l holds the sums of 2^l bits each; level l begins behind those before it.
  logic [(2*BITS-1)*COUNT_BITS-1:0] sums /*verilator split_var*/;

  for (genvar place = 0; place < BITS; place++) begin : gen_leaf
    assign sums[place*COUNT_BITS +: COUNT_BITS] = {{(COUNT_BITS-1){1'b0}}, word[place]};
  end
  for (genvar level = 1; level <= LEVELS; level++) begin : gen_level
    localparam int unsigned BELOW = 2 * BITS - (2 * BITS >> (level - 1));
    localparam int unsigned HERE = 2 * BITS - (2 * BITS >> level);
    for (genvar place = 0; place < (BITS >> level); place++) begin : gen_sum
      assign sums[(HERE+place)*COUNT_BITS +: COUNT_BITS] = sums[(BELOW+2*place)*COUNT_BITS +: COUNT_BITS]
          + sums[(BELOW+2*place+1)*COUNT_BITS +: COUNT_BITS];
    end
  end

  assign count = sums[(2*BITS-2)*COUNT_BITS +: COUNT_BITS];
endmodule
