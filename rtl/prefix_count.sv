// How many bits below each one are set: sums over distances that double, so that the depth grows with the logarithm of the bits.
module prefix_count #(
  parameter int unsigned BITS = 8,
  parameter int unsigned COUNT_BITS = 8,
  // Derived; not to be set.
  parameter int unsigned LEVELS = (BITS > 1) ? $clog2(BITS) : 1
) (
  input  logic [BITS-1:0]            set,
  output logic [BITS*COUNT_BITS-1:0] below,
  output logic [COUNT_BITS-1:0]      total
);
  // Level l holds, for each bit, how many of the 2^l bits up to it are set.
  logic [(LEVELS+1)*BITS*COUNT_BITS-1:0] sums /*verilator split_var*/;

  for (genvar bit_index = 0; bit_index < BITS; bit_index++) begin : gen_bit
    assign sums[bit_index*COUNT_BITS +: COUNT_BITS] = {{(COUNT_BITS-1){1'b0}}, set[bit_index]};
    for (genvar level = 0; level < LEVELS; level++) begin : gen_level
      localparam int unsigned HERE = (level * BITS + bit_index) * COUNT_BITS;
      localparam int unsigned THERE = (level * BITS + bit_index - (1 << level)) * COUNT_BITS;
      localparam int unsigned NEXT = ((level + 1) * BITS + bit_index) * COUNT_BITS;
      if (bit_index >= (1 << level)) begin : gen_sum
        assign sums[NEXT +: COUNT_BITS] = sums[HERE +: COUNT_BITS] + sums[THERE +: COUNT_BITS];
      end else begin : gen_same
        assign sums[NEXT +: COUNT_BITS] = sums[HERE +: COUNT_BITS];
      end
    end
    if (bit_index == 0) begin : gen_first
      assign below[0 +: COUNT_BITS] = '0;
    end else begin : gen_other
      assign below[bit_index*COUNT_BITS +: COUNT_BITS] = sums[(LEVELS*BITS+bit_index-1)*COUNT_BITS +: COUNT_BITS];
    end
  end

  assign total = sums[(LEVELS*BITS+BITS-1)*COUNT_BITS +: COUNT_BITS];
endmodule
