// The free segments of the buffer memory. One is taken, and up to three come back in a cycle. Segment 0
// belongs to the first packet.
module segment_pool #(
  parameter int unsigned SEGMENTS = 197,
  parameter int unsigned SEGMENT_BITS = 8
) (
  input  logic                    clk,
  input  logic                    rst,
  input  logic                    take,
  output logic [SEGMENT_BITS-1:0] free_segment,
  input  logic [2:0]              give,
  input  logic [3*SEGMENT_BITS-1:0] give_segment
);
  logic [SEGMENTS-1:0] free, free_next;

  // Found a cycle ahead, so that nothing waits for the search.
  logic [SEGMENT_BITS-1:0] found;
  logic                    has_found;

  always_comb begin
    free_next = free;
    if (take) free_next[free_segment] = 1'b0;
    for (int unsigned i = 0; i < 3; i++) begin
      if (give[i]) free_next[give_segment[i*SEGMENT_BITS +: SEGMENT_BITS]] = 1'b1;
    end
  end

  always_comb begin
    found = '0;
    has_found = 1'b0;
    for (int unsigned i = SEGMENTS; i > 0; i--) begin
      if (free[i-1] && !(take && free_segment == SEGMENT_BITS'(i - 1))) begin
        found = SEGMENT_BITS'(i - 1);
        has_found = 1'b1;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      free <= {{(SEGMENTS-1){1'b1}}, 1'b0};
      free_segment <= SEGMENT_BITS'(1);
    end else begin
      free <= free_next;
      free_segment <= found;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (has_found) else $error("no segment is free");
      for (int unsigned i = 0; i < 3; i++) begin
        assert (!give[i] || !free[give_segment[i*SEGMENT_BITS +: SEGMENT_BITS]]) else $error("a free segment comes back");
      end
    end
  end
`endif
endmodule
