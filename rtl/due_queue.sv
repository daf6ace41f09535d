// Packets in line to leave: a message and its packet, visible three cycles after they got in line. The lowest
// goes first.
module due_queue #(
  parameter int unsigned NUMBER_BITS = 7,
  // Room, in messages; a power of two.
  parameter int unsigned ROWS = 256
) (
  input  logic                   clk,
  input  logic                   rst,
  input  logic [1:0]             push,
  input  logic [NUMBER_BITS-1:0] push_number,
  output logic                   valid,
  output logic [NUMBER_BITS-1:0] number,
  output logic                   offset,
  input  logic                   pop
);
  localparam int unsigned INDEX_BITS = $clog2(ROWS);

  logic [NUMBER_BITS+1:0] rows [0:ROWS-1];
  logic [NUMBER_BITS+1:0] late_1, late_2;
  logic [INDEX_BITS:0]    head, tail, count;
  logic [1:0]             packets;
  // The lower of two has left.
  logic                   half, ends, arrives;

  assign count = tail - head;
  assign valid = count != '0;
  assign {number, packets} = rows[head[INDEX_BITS-1:0]];
  assign offset = half || !packets[0];
  assign ends = pop && (half || packets != 2'b11);
  assign arrives = late_2[1:0] != '0;

  always_ff @(posedge clk) begin
    if (arrives) rows[tail[INDEX_BITS-1:0]] <= late_2;
    if (rst) begin
      head <= '0;
      tail <= '0;
      half <= 1'b0;
      late_1 <= '0;
      late_2 <= '0;
    end else begin
      late_1 <= {push_number, push};
      late_2 <= late_1;
      tail <= tail + {{INDEX_BITS{1'b0}}, arrives};
      head <= head + {{INDEX_BITS{1'b0}}, ends};
      if (pop) half <= !ends;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!pop || valid) else $error("a packet leaves that is not there");
      assert (!arrives || 32'(count) < ROWS) else $error("too many packets are in line");
    end
  end
`endif
endmodule
