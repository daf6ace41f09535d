// The free buffers of one class. There is one more than messages may have, so that a buffer that is still
// being read for the wire is not given away although its message has ended.
module buffer_pool #(
  parameter int unsigned BUFFERS = 65,
  parameter int unsigned BUFFER_BITS = 8
) (
  input  logic                   clk,
  input  logic                   rst,
  input  logic                   reading,
  input  logic [BUFFER_BITS-1:0] reading_buffer,
  input  logic                   take,
  output logic [BUFFER_BITS-1:0] free_buffer,
  input  logic                   give,
  input  logic [BUFFER_BITS-1:0] give_buffer
);
  logic [BUFFERS-1:0] free, free_next;
  logic               found;

  always_comb begin
    free_buffer = '0;
    found = 1'b0;
    for (int unsigned i = BUFFERS; i > 0; i--) begin
      if (free[i-1] && !(reading && reading_buffer == BUFFER_BITS'(i - 1))) begin
        free_buffer = BUFFER_BITS'(i - 1);
        found = 1'b1;
      end
    end
  end

  always_comb begin
    free_next = free;
    for (int unsigned i = 0; i < BUFFERS; i++) begin
      if (take && free_buffer == BUFFER_BITS'(i)) free_next[i] = 1'b0;
      if (give && give_buffer == BUFFER_BITS'(i)) free_next[i] = 1'b1;
    end
  end

  always_ff @(posedge clk) begin
    if (rst) free <= '1;
    else free <= free_next;
  end

`ifndef SYNTHESIS
  logic [BUFFERS-1:0] given;
  assign given = {{(BUFFERS-1){1'b0}}, give} << give_buffer;
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!take || found) else $error("no buffer is free");
      assert ((free & given) == '0) else $error("a free buffer comes back");
    end
  end
`endif
endmodule
