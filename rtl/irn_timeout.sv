// The timer of a queue pair runs out: IRN's sender (IRN §3.1).
//
// Takes, in a cycle with in_valid: the state of the queue pair. Gives, LATENCY = 1 cycle later with out_valid: what happened,
// how the timer goes on, and the new state. A timer may run out in every cycle; the next event of the same
// queue pair may come in the cycle in which out_valid gives its state, and not before. While out_valid is low, all outputs are zero.
`include "irn_mutants.svh"

module irn_timeout #(
  // N: the quick timeout holds while at most this many packets are in flight.
  parameter int unsigned RTO_LOW_IN_FLIGHT = 3,
  // Derived; not to be set.
  parameter int unsigned STATE_BITS = 5
) (
  input  logic                  clk,
  input  logic                  rst,
  input  logic                  in_valid,
  // The state: first unacknowledged packet, next new one, packet resent last or to be resent; and {timer is quick,
  // resent packet is presumed lost, in recovery, repair}, where repair is 0 idle, 1 resend, 2 search.
  input  logic [23:0]           in_front,
  input  logic [23:0]           in_next,
  input  logic [23:0]           in_retransmit,
  input  logic [STATE_BITS-1:0] in_flags,
  output logic                  out_valid,
  // 0: nothing is in flight. 1: too early, the timer goes on. 2: the front is to be resent.
  output logic [1:0]            out_kind,
  // 0: leave the timer alone. 2: RTO_low from now. 3: RTO_high from now. 4: RTO_high - RTO_low from now.
  output logic [2:0]            out_timer,
  output logic [23:0]           out_retransmit,
  output logic [STATE_BITS-1:0] out_flags
);
  `MUTANT(MUTANT_QUICK_BOUND)
  `MUTANT(MUTANT_EXTENDS_FOR_EVER)
  `MUTANT(MUTANT_RESENDS_LAST)

  localparam logic [2:0] KEEP = 3'd0, LOW = 3'd2, HIGH = 3'd3, REST = 3'd4;

  logic [23:0] in_flight;
  logic        is_few;

  assign in_flight = in_next - in_front;
  assign is_few = in_flight <= 24'(RTO_LOW_IN_FLIGHT) - 24'(MUTANT_QUICK_BOUND);

  always_ff @(posedge clk) begin
    out_valid <= in_valid && !rst;
    if (rst || !in_valid) begin
      {out_kind, out_timer, out_retransmit, out_flags} <= '0;
    end else if (in_flight == '0) begin
      out_kind <= 2'd0;
      out_timer <= KEEP;
      out_retransmit <= in_retransmit;
      out_flags <= in_flags;
    end else if (in_flags[4] && !is_few) begin
      // The timer was armed while few packets were in flight; queueing may explain the silence of more.
      out_kind <= 2'd1;
      out_timer <= REST;
      out_retransmit <= in_retransmit;
      out_flags <= {MUTANT_EXTENDS_FOR_EVER, in_flags[3:0]};
    end else begin
      out_kind <= 2'd2;
      out_timer <= is_few ? LOW : HIGH;
      out_retransmit <= MUTANT_RESENDS_LAST ? in_retransmit : in_front;
      out_flags <= {is_few, 1'b0, in_flags[2], 2'd1};
    end
  end
endmodule
