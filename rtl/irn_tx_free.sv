// The link is free: IRN's sender says which packet of a queue pair leaves (IRN §3.1, §3.2).
//
// Takes, in a cycle with in_valid: whether a new packet waits, whether the queue pair's timer runs, and the state. Gives,
// LATENCY = 3 cycles later with out_valid: the packet, what to do with the timer, and the new state. A queue pair may be asked
// in every cycle; the next event of the same
// queue pair may come in the cycle in which out_valid gives its state, and not before. While out_valid is low, all outputs are zero.
//
// A packet to be resent goes first, and the cap does not hold it back. Bit n of the bitmap is packet in_front + n.
//
//   cycle 1  where the search for a hole begins; the highest packet that was selectively acknowledged
//   cycle 2  the first hole between them
//   cycle 3  which packet leaves, and the state after it
`include "irn_mutants.svh"

module irn_tx_free #(
  // Bits of the bitmap: a power of two, at least CAP.
  parameter int unsigned WINDOW = 128,
  // BDP-FC: new packets leave while fewer than this many are in flight.
  parameter int unsigned CAP = 128,
  // N: the quick timeout holds while at most this many packets are in flight.
  parameter int unsigned RTO_LOW_IN_FLIGHT = 3,
  // How far packets may overtake each other on their way.
  parameter int unsigned REORDERING = 0,
  // Derived; not to be set.
  parameter int unsigned STATE_BITS = 5
) (
  input  logic                  clk,
  input  logic                  rst,
  input  logic                  in_valid,
  input  logic                  in_has_new,
  input  logic                  in_timer_runs,
  // The state: first unacknowledged packet, next new one, packet resent last or to be resent, last one that was new when a packet
  // was last resent, first one that was new when one was last resent for evident loss; {timer is quick, resent packet is
  // presumed lost, in recovery, repair}, where repair is 0 idle, 1 resend, 2 search; selectively acknowledged packets.
  input  logic [23:0]           in_front,
  input  logic [23:0]           in_next,
  input  logic [23:0]           in_retransmit,
  input  logic [23:0]           in_recovery,
  input  logic [23:0]           in_evident,
  input  logic [STATE_BITS-1:0] in_flags,
  input  logic [WINDOW-1:0]     in_sacked,
  output logic                  out_valid,
  // A packet leaves; and whether it left before.
  output logic                  out_sends,
  output logic                  out_again,
  output logic [23:0]           out_psn,
  // 0: leave the timer alone. 2: RTO_low from now. 3: RTO_high from now.
  output logic [2:0]            out_timer,
  output logic [23:0]           out_next,
  output logic [23:0]           out_retransmit,
  output logic [23:0]           out_recovery,
  output logic [23:0]           out_evident,
  output logic [STATE_BITS-1:0] out_flags
);
  `MUTANT(MUTANT_CAP)
  `MUTANT(MUTANT_SEARCH_FROM_LAST)
  `MUTANT(MUTANT_HOLES_ABOVE)
  `MUTANT(MUTANT_PRESUMED_IS_EVIDENT)

  localparam int unsigned INDEX_BITS = $clog2(WINDOW);
  localparam logic [1:0] IDLE = 2'd0, RESEND = 2'd1, SEARCH = 2'd2;

  // Cycle 1. The search begins behind the packet that was resent last, and not before the front.
  logic [23:0]           ahead, start;
  logic                  any_sacked;
  logic [INDEX_BITS-1:0] highest;

  assign ahead = in_retransmit + 24'(!MUTANT_SEARCH_FROM_LAST) - in_front;
  assign start = ahead[23] ? '0 : ahead;

  find_one #(.BITS(WINDOW), .HIGHEST(1)) i_highest (.word(in_sacked), .found(any_sacked), .index(highest));

  logic                  valid_1, has_new_1, runs_1, any_1;
  logic [23:0]           front_1, next_1, retransmit_1, recovery_1, evident_1, start_1;
  logic [STATE_BITS-1:0] flags_1;
  logic [WINDOW-1:0]     sacked_1;
  logic [INDEX_BITS-1:0] highest_1;

  always_ff @(posedge clk) begin
    valid_1 <= in_valid && !rst;
    {has_new_1, runs_1, any_1} <= {in_has_new, in_timer_runs, any_sacked};
    {front_1, next_1, retransmit_1, recovery_1} <= {in_front, in_next, in_retransmit, in_recovery};
    {evident_1, start_1, flags_1} <= {in_evident, start, in_flags};
    {sacked_1, highest_1} <= {in_sacked, highest};
  end

  // Cycle 2. A packet is a hole only below a selectively acknowledged one.
  logic [WINDOW-1:0]     holes;
  logic                  found;
  logic [INDEX_BITS-1:0] hole;

  always_comb begin
    for (int unsigned place = 0; place < WINDOW; place++) begin
      holes[place] = any_1 && !sacked_1[place] && 24'(place) >= start_1
          && (INDEX_BITS'(place) < highest_1 || MUTANT_HOLES_ABOVE);
    end
  end

  find_one #(.BITS(WINDOW)) i_hole (.word(holes), .found(found), .index(hole));

  logic                  valid_2, has_new_2, runs_2, found_2;
  logic [23:0]           front_2, next_2, retransmit_2, recovery_2, evident_2;
  logic [STATE_BITS-1:0] flags_2;
  logic [INDEX_BITS-1:0] hole_2, highest_2;

  always_ff @(posedge clk) begin
    valid_2 <= valid_1 && !rst;
    {has_new_2, runs_2, found_2} <= {has_new_1, runs_1, found};
    {front_2, next_2, retransmit_2, recovery_2} <= {front_1, next_1, retransmit_1, recovery_1};
    {evident_2, flags_2} <= {evident_1, flags_1};
    {hole_2, highest_2} <= {hole, highest_1};
  end

  // Cycle 3.
  logic        is_overtaken, resends, sends_new, arms;
  logic [23:0] in_flight, after, again;

  always_comb begin
    is_overtaken = found_2 && (32'(highest_2) > 32'(hole_2) + REORDERING || MUTANT_HOLES_ABOVE);
    resends = flags_2[1:0] == RESEND || (flags_2[1:0] == SEARCH && is_overtaken);
    again = (flags_2[1:0] == RESEND) ? retransmit_2 : front_2 + 24'(hole_2);
    in_flight = next_2 - front_2;
    sends_new = !resends && has_new_2 && in_flight < 24'(CAP) + 24'(MUTANT_CAP);
    after = in_flight + {23'd0, sends_new};
    arms = (resends || sends_new) && !runs_2;
  end

  always_ff @(posedge clk) begin
    out_valid <= valid_2 && !rst;
    if (rst || !valid_2) begin
      {out_sends, out_again, out_psn, out_timer} <= '0;
      {out_next, out_retransmit, out_recovery, out_evident, out_flags} <= '0;
    end else begin
      out_sends <= resends || sends_new;
      out_again <= resends;
      out_psn <= resends ? again : sends_new ? next_2 : '0;
      out_timer <= !arms ? 3'd0 : (after <= 24'(RTO_LOW_IN_FLIGHT)) ? 3'd2 : 3'd3;
      out_next <= next_2 + {23'd0, sends_new};
      out_retransmit <= resends ? again : retransmit_2;
      // Every retransmission moves the recovery sequence, not only the first.
      out_recovery <= resends ? next_2 - 24'd1 : recovery_2;
      out_evident <= (resends && (!flags_2[3] || MUTANT_PRESUMED_IS_EVIDENT)) ? next_2 : evident_2;
      out_flags[4] <= arms ? after <= 24'(RTO_LOW_IN_FLIGHT) : flags_2[4];
      out_flags[3] <= flags_2[3] && !resends;
      out_flags[2] <= flags_2[2] || resends;
      // The next hole is searched when the next packet may leave; a search that finds nothing is over.
      out_flags[1:0] <= resends ? SEARCH : IDLE;
    end
  end

`ifndef SYNTHESIS
  logic [23:0] checked;
  assign checked = in_next - in_front;
  always_ff @(posedge clk) begin
    if (!rst && in_valid) begin
      assert (32'(checked) <= CAP) else $error("more packets are in flight than the cap allows");
    end
  end
`endif
endmodule
