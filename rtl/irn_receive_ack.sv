// An acknowledgement arrives: IRN's sender (IRN §3.1).
//
// Takes, in a cycle with in_valid: the acknowledgement (cumulative; for a NACK also a run of packets that have arrived, by its last one
// and its length) and the state of its queue pair. Gives, LATENCY = 4 cycles later with out_valid: what it brought, what to do
// with the timer, and the new state. An acknowledgement may come in every cycle; the next event of the same
// queue pair may come in the cycle in which out_valid gives its state, and not before. While out_valid is low, all outputs are zero.
//
// Bit n of the bitmap is packet in_front + n. What no honest receiver sends changes nothing.
//
//   cycle 1  distances; is it stale, is it to be believed, how far the front moves
//   cycle 2  the bitmap slides; what the front has passed
//   cycle 3  the run is marked; what it says that was not known
//   cycle 4  which packet to resend, whether a repair begins or ends
`include "irn_mutants.svh"

module irn_receive_ack #(
  // Bits of the bitmap: a power of two, at least the BDP cap.
  parameter int unsigned WINDOW = 128,
  // N: the quick timeout holds while at most this many packets are in flight.
  parameter int unsigned RTO_LOW_IN_FLIGHT = 3,
  // How far packets may overtake each other on their way.
  parameter int unsigned REORDERING = 0,
  // A partial acknowledgement in recovery repeats the packet that it stops at: 0 never, 1 if its loss is evident, 2 always.
  parameter int unsigned PARTIAL_ACKS = 1,
  // A selective acknowledgement restarts the timer, too.
  parameter int unsigned SACK_RESTARTS_TIMER = 0,
  // Derived; not to be set.
  parameter int unsigned COUNT_BITS = $clog2(WINDOW) + 1,
  parameter int unsigned STATE_BITS = 5
) (
  input  logic                  clk,
  input  logic                  rst,
  input  logic                  in_valid,
  input  logic                  in_nack,
  input  logic [23:0]           in_cumulative,
  input  logic [23:0]           in_sack,
  input  logic [7:0]            in_run,
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
  // Packets that are acknowledged for the first time: cumulatively, selectively, either way.
  output logic [COUNT_BITS-1:0] out_acked,
  output logic [COUNT_BITS-1:0] out_sacked_count,
  output logic [COUNT_BITS-1:0] out_arrived,
  // A loss was found that begins a repair; the repair is over; the acknowledgement is old; it is not to be believed.
  output logic                  out_loss,
  output logic                  out_recovered,
  output logic                  out_stale,
  output logic                  out_invalid,
  // 0: leave the timer alone. 1: stop it. 2: RTO_low from now. 3: RTO_high from now.
  output logic [2:0]            out_timer,
  output logic [23:0]           out_front,
  output logic [23:0]           out_retransmit,
  output logic [STATE_BITS-1:0] out_flags,
  output logic [WINDOW-1:0]     out_sacked
);
  `MUTANT(MUTANT_STALE_MOVES)
  `MUTANT(MUTANT_BELIEVES_ALL)
  `MUTANT(MUTANT_RUN_REACHES_FRONT)
  `MUTANT(MUTANT_NEVER_RECOVERS)
  `MUTANT(MUTANT_LOWER_SACK_SEARCHES)

  localparam logic [1:0] IDLE = 2'd0, RESEND = 2'd1, SEARCH = 2'd2;

  // Cycle 1. PSNs compare by the sign of their distance.
  logic [23:0] steps, in_flight, above_sack, sack_to_next;
  logic        is_old, is_forged, is_stale, is_invalid, moves;

  always_comb begin
    steps = in_cumulative - in_front;
    in_flight = in_next - in_front;
    above_sack = in_cumulative - in_sack;
    sack_to_next = in_sack - in_next;
    is_forged = in_nack && ($signed(sack_to_next) >= 24'sd0 || $signed(above_sack) >= 24'sd0);
    is_old = steps[23] && !MUTANT_STALE_MOVES;
    is_stale = !is_forged && is_old;
    is_invalid = is_forged || (!is_old && steps > in_flight && !MUTANT_BELIEVES_ALL);
    moves = !is_invalid && !is_stale;
  end

  logic                  valid_1, nack_1, stale_1, invalid_1;
  logic [COUNT_BITS-1:0] acked_1, flight_1;
  logic [23:0]           front_1, sack_1, next_1, retransmit_1, recovery_1, evident_1;
  logic [7:0]            named_1;
  logic [STATE_BITS-1:0] flags_1;
  logic [WINDOW-1:0]     sacked_1;

  always_ff @(posedge clk) begin
    valid_1 <= in_valid && !rst;
    {nack_1, stale_1, invalid_1} <= {in_nack && !is_invalid, is_stale, is_invalid};
    acked_1 <= moves ? steps[COUNT_BITS-1:0] : '0;
    flight_1 <= in_flight[COUNT_BITS-1:0];
    front_1 <= moves ? in_cumulative : in_front;
    {sack_1, named_1, next_1, retransmit_1} <= {in_sack, in_run, in_next, in_retransmit};
    {recovery_1, evident_1, flags_1, sacked_1} <= {in_recovery, in_evident, in_flags, in_sacked};
  end

  // Cycle 2. Nothing at or before the front can have been selectively acknowledged: a run is cut to what lies beyond.
  logic [WINDOW-1:0]     passed;
  logic [COUNT_BITS-1:0] known, left;
  logic [23:0]           height, to_recovery, to_retransmit, to_evident, below_sack;
  logic                  has_sack;
  logic [23:0]           run;

  always_comb begin
    for (int unsigned place = 0; place < WINDOW; place++) begin
      passed[place] = sacked_1[place] && COUNT_BITS'(place) < acked_1;
    end
    left = flight_1 - acked_1;
    height = sack_1 - front_1;
    has_sack = nack_1 && !height[23] && height != '0;
    run = (named_1 == '0) ? 24'd1 : 24'(named_1);
    if (run > height && !MUTANT_RUN_REACHES_FRONT) run = height;
    to_recovery = recovery_1 - front_1;
    to_retransmit = retransmit_1 - front_1;
    to_evident = front_1 + 24'(REORDERING) - evident_1;
    below_sack = sack_1 - retransmit_1;
  end

  bit_count #(.BITS(WINDOW)) i_known (.word(passed), .count(known));

  logic                  valid_2, nack_2, stale_2, invalid_2, has_sack_2;
  logic                  past_recovery_2, past_retransmit_2, before_evident_2, covers_2;
  logic [COUNT_BITS-1:0] acked_2, left_2, known_2, height_2, run_2;
  logic [23:0]           front_2, next_2, retransmit_2;
  logic [STATE_BITS-1:0] flags_2;
  logic [WINDOW-1:0]     sacked_2;

  always_ff @(posedge clk) begin
    valid_2 <= valid_1 && !rst;
    {nack_2, stale_2, invalid_2, has_sack_2} <= {nack_1, stale_1, invalid_1, has_sack};
    {acked_2, left_2, known_2} <= {acked_1, left, known};
    {height_2, run_2} <= {height[COUNT_BITS-1:0], run[COUNT_BITS-1:0]};
    past_recovery_2 <= $signed(to_recovery) < 24'sd0;
    past_retransmit_2 <= $signed(to_retransmit) < 24'sd0;
    before_evident_2 <= $signed(to_evident) < 24'sd0;
    covers_2 <= has_sack && !below_sack[23] && below_sack < run;
    {front_2, next_2, retransmit_2, flags_2} <= {front_1, next_1, retransmit_1, flags_1};
    sacked_2 <= sacked_1 >> acked_1;
  end

  // Cycle 3.
  logic [WINDOW-1:0]     marks, merged, above;
  logic [COUNT_BITS-1:0] fresh;
  logic                  is_highest, is_evident;

  always_comb begin
    for (int unsigned place = 0; place < WINDOW; place++) begin
      marks[place] = has_sack_2 && COUNT_BITS'(place) <= height_2 && COUNT_BITS'(place) + run_2 > height_2;
      above[place] = COUNT_BITS'(place) > height_2;
    end
    merged = sacked_2 | marks;
    is_highest = (merged & above) == '0;
    // A packet has arrived that is too far beyond the front to have overtaken it.
    is_evident = (merged >> (REORDERING + 1)) != '0;
  end

  bit_count #(.BITS(WINDOW)) i_fresh (.word(marks & ~sacked_2), .count(fresh));

  logic                  valid_3, nack_3, stale_3, invalid_3, has_sack_3;
  logic                  past_recovery_3, past_retransmit_3, before_evident_3, covers_3;
  logic                  is_highest_3, is_evident_3, any_3;
  logic [COUNT_BITS-1:0] acked_3, left_3, known_3, fresh_3;
  logic [23:0]           front_3, next_3, retransmit_3;
  logic [STATE_BITS-1:0] flags_3;
  logic [WINDOW-1:0]     sacked_3;

  always_ff @(posedge clk) begin
    valid_3 <= valid_2 && !rst;
    {nack_3, stale_3, invalid_3, has_sack_3} <= {nack_2, stale_2, invalid_2, has_sack_2};
    {past_recovery_3, past_retransmit_3} <= {past_recovery_2, past_retransmit_2};
    {before_evident_3, covers_3} <= {before_evident_2, covers_2};
    {is_highest_3, is_evident_3, any_3} <= {is_highest, is_evident, merged != '0};
    {acked_3, left_3, known_3, fresh_3} <= {acked_2, left_2, known_2, fresh};
    {front_3, next_3, retransmit_3, flags_3, sacked_3} <= {front_2, next_2, retransmit_2, flags_2, merged};
  end

  // Cycle 4.
  logic        is_disturbed, recovers, recovering, may_presume, loss, arms;
  logic [1:0]  repair, repair_next;
  logic        presumed_next, resends_front;

  always_comb begin
    is_disturbed = !invalid_3 && (nack_3 || flags_3[2] || flags_3[1:0] != IDLE || any_3);
    // Everything that was sent before the last retransmission has arrived.
    recovers = is_disturbed && flags_3[2] && past_recovery_3 && !MUTANT_NEVER_RECOVERS;
    recovering = flags_3[2] && !recovers;
    repair = recovers ? IDLE : flags_3[1:0];
    may_presume = (PARTIAL_ACKS == 2) || (PARTIAL_ACKS == 1 && (is_evident_3 || before_evident_3));
    repair_next = repair;
    presumed_next = flags_3[3];
    resends_front = 1'b0;
    loss = 1'b0;
    if (is_disturbed && recovering) begin
      if (acked_3 != '0 && past_retransmit_3 && may_presume) begin
        // A partial acknowledgement stops at a packet that was never resent.
        resends_front = 1'b1;
        presumed_next = !is_evident_3;
      end else if (repair == RESEND && past_retransmit_3) begin
        repair_next = SEARCH;
      end else if (has_sack_3) begin
        // Below a lower selective acknowledgement every hole has been found already.
        if ((repair == RESEND) ? covers_3 : (is_highest_3 || MUTANT_LOWER_SACK_SEARCHES)) repair_next = SEARCH;
      end
    end else if (is_disturbed) begin
      if (!(repair == RESEND && retransmit_3 == front_3 && front_3 != next_3)) begin
        if (is_evident_3) begin
          resends_front = 1'b1;
          presumed_next = 1'b0;
          loss = 1'b1;
        end else begin
          repair_next = IDLE;
        end
      end
    end
    if (resends_front) repair_next = RESEND;
    arms = acked_3 != '0 || (SACK_RESTARTS_TIMER != 0 && fresh_3 != '0);
  end

  always_ff @(posedge clk) begin
    out_valid <= valid_3 && !rst;
    if (rst || !valid_3) begin
      {out_acked, out_sacked_count, out_arrived} <= '0;
      {out_loss, out_recovered, out_stale, out_invalid, out_timer} <= '0;
      {out_front, out_retransmit, out_flags, out_sacked} <= '0;
    end else begin
      out_acked <= acked_3;
      out_sacked_count <= fresh_3;
      out_arrived <= acked_3 - known_3 + fresh_3;
      {out_loss, out_recovered, out_stale, out_invalid} <= {loss, recovers, stale_3, invalid_3};
      if (!arms) out_timer <= 3'd0;
      else if (left_3 == '0) out_timer <= 3'd1;
      else out_timer <= (left_3 <= COUNT_BITS'(RTO_LOW_IN_FLIGHT)) ? 3'd2 : 3'd3;
      out_front <= front_3;
      out_retransmit <= resends_front ? front_3 : retransmit_3;
      out_flags[4] <= arms ? left_3 <= COUNT_BITS'(RTO_LOW_IN_FLIGHT) : flags_3[4];
      out_flags[3:2] <= {presumed_next, recovering};
      out_flags[1:0] <= repair_next;
      out_sacked <= sacked_3;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && in_valid) begin
      assert (32'(in_flight) <= WINDOW) else $error("more packets are in flight than the bitmap has bits");
    end
  end
`endif
endmodule
