// Control packets (nanoPU §3.4): the verdict on each packet at once, and credit at the pace of PULL_CYCLES,
// in the packet of a verdict if one is due and in a packet of its own if not.
module control_generator #(
  parameter int unsigned PULL_CYCLES = 122,
  // Room for packets that wait for the wire, and for credit that waits for its turn; powers of two.
  parameter int unsigned CONTROLS = 64,
  parameter int unsigned PULLS = 256,
  // A packet without its flags and its credit.
  parameter int unsigned PACKET_BITS = 160
) (
  input  logic                   clk,
  input  logic                   rst,
  input  logic                   answer_valid,
  input  logic                   answer_nack,
  input  logic [15:0]            answer_credit,
  input  logic [15:0]            answer_pull,
  input  logic [PACKET_BITS-1:0] answer_packet,
  // The oldest control packet: its flags, its credit and the rest.
  output logic                   valid,
  output logic [4:0]             flags,
  output logic [15:0]            pull,
  output logic [PACKET_BITS-1:0] packet,
  input  logic                   pop
);
  localparam int unsigned CONTROL_BITS = $clog2(CONTROLS);
  localparam int unsigned PULL_BITS = $clog2(PULLS);
  localparam int unsigned WAIT_BITS = $clog2(PULL_CYCLES + 1);
  localparam int unsigned ROW_BITS = 5 + 16 + PACKET_BITS;
  localparam logic [4:0] ACK = 5'd2, NACK = 5'd4, PULL = 5'd8;

  // Credit that waits.
  logic [16+PACKET_BITS-1:0] pulls [0:PULLS-1];
  logic [PULL_BITS:0]        pull_head, pull_tail, pull_count;
  logic [WAIT_BITS-1:0]      pause;
  logic                      pulls_now, pulls_later, pulls_waiting;

  // Packets that wait for the wire, behind a register that is the second of their two cycles; and a pull that
  // left in the same cycle as an answer, which comes behind it.
  logic [ROW_BITS-1:0]   rows [0:CONTROLS-1];
  logic [CONTROL_BITS:0] head, tail, count;
  logic                  row_valid, behind_valid;
  logic [ROW_BITS-1:0]   row, behind, answer_row, pull_row;
  logic [4:0]            verdict;

  assign pull_count = pull_tail - pull_head;
  assign pulls_now = answer_valid && pull_count == '0 && pause == '0;
  assign pulls_later = answer_valid && !pulls_now;
  assign pulls_waiting = pull_count != '0 && pause == '0;
  assign verdict = answer_nack ? NACK : ACK;
  assign answer_row = pulls_now ? {verdict | PULL, answer_credit, answer_packet} : {verdict, answer_pull, answer_packet};
  assign pull_row = {PULL, pulls[pull_head[PULL_BITS-1:0]]};

  assign count = tail - head;
  assign valid = count != '0;
  assign {flags, pull, packet} = rows[head[CONTROL_BITS-1:0]];

  always_ff @(posedge clk) begin
    if (pulls_later) pulls[pull_tail[PULL_BITS-1:0]] <= {answer_credit, answer_packet};
    if (row_valid) rows[tail[CONTROL_BITS-1:0]] <= row;
    row <= answer_valid ? answer_row : behind_valid ? behind : pull_row;
    behind <= pull_row;
    if (rst) begin
      pull_head <= '0;
      pull_tail <= '0;
      pause <= '0;
      head <= '0;
      tail <= '0;
      row_valid <= 1'b0;
      behind_valid <= 1'b0;
    end else begin
      pull_tail <= pull_tail + {{PULL_BITS{1'b0}}, pulls_later};
      pull_head <= pull_head + {{PULL_BITS{1'b0}}, pulls_waiting};
      if (pulls_now || pulls_waiting) pause <= WAIT_BITS'(PULL_CYCLES - 1);
      else if (pause != '0) pause <= pause - {{(WAIT_BITS-1){1'b0}}, 1'b1};
      row_valid <= answer_valid || behind_valid || pulls_waiting;
      behind_valid <= answer_valid && pulls_waiting;
      tail <= tail + {{CONTROL_BITS{1'b0}}, row_valid};
      head <= head + {{CONTROL_BITS{1'b0}}, pop};
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!(behind_valid && (answer_valid || pulls_waiting))) else $error("packets arrive faster than the wire carries them");
      assert (!pulls_later || 32'(pull_count) < PULLS) else $error("too much credit waits");
      assert (!row_valid || 32'(count) < CONTROLS) else $error("too many control packets wait");
      assert (!pop || valid) else $error("a control packet leaves that is not there");
    end
  end
`endif
endmodule
