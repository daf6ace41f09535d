// A data packet arrives: IRN's receiver for one packet of one queue pair (IRN §5.3.3).
//
// Takes, in a cycle with in_valid: a packet (PSN; whether it ends a message; whether that message completes a Receive WQE)
// and the state of its queue pair. Gives, LATENCY = 4 cycles later with out_valid: the answer and the new state. A packet
// may come in every cycle. The state lies outside: the next packet of the same queue pair may come in the cycle in which
// out_valid gives its state, and not before. While out_valid is low, all outputs are zero.
//
// Bit n of both bitmaps is packet in_expected + n. Together they say: 00 has not arrived, 10 arrived, 01 arrived and ends a
// message, 11 arrived and ends one that completes a Receive WQE (first bitmap's bit, second bitmap's bit). Bit 0 is clear.
//
//   cycle 1  distance from the expected packet; the bits below the packet that are clear
//   cycle 2  packets that wait in a row behind the expected one; the run that ends with this packet
//   cycle 3  how many of the waiting ones there are, how many end messages, how many complete
//   cycle 4  bitmaps slide or gain a bit; expected PSN and MSN move
`include "irn_mutants.svh"

module irn_receive_data #(
  // Packets from the expected one on that can be tracked: a power of two, at least the BDP cap.
  parameter int unsigned WINDOW = 128,
  // Derived; not to be set.
  parameter int unsigned COUNT_BITS = $clog2(WINDOW) + 1
) (
  input  logic                  clk,
  input  logic                  rst,
  input  logic                  in_valid,
  input  logic [23:0]           in_psn,
  input  logic                  in_ends,
  input  logic                  in_completes,
  input  logic [23:0]           in_expected,
  input  logic [23:0]           in_msn,
  input  logic [WINDOW-1:0]     in_first,
  input  logic [WINDOW-1:0]     in_second,
  output logic                  out_valid,
  // 0: in order, answer with an ACK. 1: early, answer with a NACK of the run of out_run packets that ends with it.
  // 2: duplicate, answer with an ACK. 3: beyond the window, drop.
  output logic [1:0]            out_kind,
  // The payload is to be placed.
  output logic                  out_place,
  output logic [7:0]            out_run,
  // Packets, messages and Receive WQEs that are in order now.
  output logic [COUNT_BITS-1:0] out_advanced,
  output logic [COUNT_BITS-1:0] out_messages,
  output logic [COUNT_BITS-1:0] out_completions,
  output logic [23:0]           out_expected,
  output logic [23:0]           out_msn,
  output logic [WINDOW-1:0]     out_first,
  output logic [WINDOW-1:0]     out_second
);
  `MUTANT(MUTANT_UNSIGNED_PSN)
  `MUTANT(MUTANT_WINDOW_END)
  `MUTANT(MUTANT_EVERY_END_COMPLETES)
  `MUTANT(MUTANT_REPEATED_CLASS)

  localparam int unsigned INDEX_BITS = COUNT_BITS - 1;
  localparam logic [1:0] IN_ORDER = 2'd0, EARLY = 2'd1, DUPLICATE = 2'd2, BEYOND = 2'd3;

  // Cycle 1.
  logic [23:0]       offset;
  logic [1:0]        kind;
  logic [WINDOW-1:0] missing_below;

  assign offset = in_psn - in_expected;

  always_comb begin
    if (offset == '0) kind = IN_ORDER;
    else if (MUTANT_UNSIGNED_PSN ? in_psn < in_expected : offset[23]) kind = DUPLICATE;
    else if (offset >= 24'(WINDOW) + 24'(MUTANT_WINDOW_END)) kind = BEYOND;
    else kind = EARLY;
    for (int unsigned place = 0; place < WINDOW; place++) begin
      missing_below[place] = 24'(place) < offset && !in_first[place] && !in_second[place];
    end
  end

  logic                  valid_1, ends_1, completes_1;
  logic [1:0]            kind_1;
  logic [INDEX_BITS-1:0] place_1;
  logic [23:0]           expected_1, msn_1;
  logic [WINDOW-1:0]     first_1, second_1, missing_1;

  always_ff @(posedge clk) begin
    valid_1 <= in_valid && !rst;
    {ends_1, completes_1, kind_1} <= {in_ends, in_completes, kind};
    {place_1, expected_1, msn_1} <= {offset[INDEX_BITS-1:0], in_expected, in_msn};
    {first_1, second_1, missing_1} <= {in_first, in_second, missing_below};
  end

  // Cycle 2. Packet 0 is missing, so that something is missing below every early packet.
  logic [WINDOW-1:0]     waiting, beside;
  logic [INDEX_BITS-1:0] last_missing;
  logic [INDEX_BITS-1:0] run;
  logic                  unused_found;

  assign waiting = {1'b0, first_1[WINDOW-1:1] | second_1[WINDOW-1:1]};
  // The ones at the low end.
  assign beside = waiting & ~(waiting + WINDOW'(1));

  find_one #(.BITS(WINDOW), .HIGHEST(1)) i_last_missing (.word(missing_1), .found(unused_found), .index(last_missing));

  assign run = place_1 - last_missing;

  logic                  valid_2, ends_2, completes_2;
  logic [1:0]            kind_2;
  logic [INDEX_BITS-1:0] place_2, run_2;
  logic [23:0]           expected_2, msn_2;
  logic [WINDOW-1:0]     first_2, second_2, beside_2;

  always_ff @(posedge clk) begin
    valid_2 <= valid_1 && !rst;
    {ends_2, completes_2, kind_2} <= {ends_1, completes_1, kind_1};
    {place_2, run_2, expected_2, msn_2} <= {place_1, run, expected_1, msn_1};
    // The expected packet leaves both bitmaps with this step, as it has no bits.
    {first_2, second_2, beside_2} <= {first_1, second_1, (kind_1 == IN_ORDER) ? beside : WINDOW'(0)};
  end

  // Cycle 3.
  logic [COUNT_BITS-1:0] behind, messages, completions;

  bit_count #(.BITS(WINDOW)) i_behind (.word(beside_2), .count(behind));
  bit_count #(.BITS(WINDOW)) i_messages (.word(beside_2 & (second_2 >> 1)), .count(messages));
  bit_count #(.BITS(WINDOW)) i_completions (
    .word(beside_2 & ((first_2 >> 1) | {WINDOW{MUTANT_EVERY_END_COMPLETES}}) & (second_2 >> 1)), .count(completions)
  );

  logic                  valid_3, ends_3, completes_3;
  logic [1:0]            kind_3;
  logic [INDEX_BITS-1:0] place_3, run_3;
  logic [23:0]           expected_3, msn_3;
  logic [WINDOW-1:0]     first_3, second_3;
  logic [COUNT_BITS-1:0] behind_3, messages_3, completions_3;

  always_ff @(posedge clk) begin
    valid_3 <= valid_2 && !rst;
    {ends_3, completes_3, kind_3} <= {ends_2, completes_2, kind_2};
    {place_3, run_3, expected_3, msn_3} <= {place_2, run_2, expected_2, msn_2};
    {first_3, second_3} <= {first_2, second_2};
    {behind_3, messages_3, completions_3} <= {behind, messages, completions};
  end

  // Cycle 4.
  logic                  is_new;
  logic [WINDOW-1:0]     mark;
  logic [COUNT_BITS-1:0] advance, message_count, completion_count;

  always_comb begin
    for (int unsigned place = 0; place < WINDOW; place++) mark[place] = place_3 == INDEX_BITS'(place);
    // A repetition keeps the class it first came with: that is the one whose payload was placed.
    is_new = kind_3 == EARLY && (mark & (first_3 | second_3)) == '0;
    advance = behind_3 + COUNT_BITS'(1);
    message_count = messages_3 + {{(COUNT_BITS-1){1'b0}}, ends_3};
    completion_count = completions_3 + {{(COUNT_BITS-1){1'b0}}, completes_3};
  end

  always_ff @(posedge clk) begin
    out_valid <= valid_3 && !rst;
    if (rst || !valid_3) begin
      {out_kind, out_place, out_run} <= '0;
      {out_advanced, out_messages, out_completions} <= '0;
      {out_expected, out_msn, out_first, out_second} <= '0;
    end else begin
      out_kind <= kind_3;
      out_place <= kind_3 == IN_ORDER || is_new;
      // A longer run does not fit the NACK's byte.
      if (kind_3 != EARLY) out_run <= '0;
      else out_run <= (32'(run_3) > 32'd255) ? 8'd255 : 8'(run_3);
      out_expected <= expected_3;
      out_msn <= msn_3;
      out_first <= first_3;
      out_second <= second_3;
      {out_advanced, out_messages, out_completions} <= '0;
      if (kind_3 == IN_ORDER) begin
        out_advanced <= advance;
        out_messages <= message_count;
        out_completions <= completion_count;
        out_expected <= expected_3 + 24'(advance);
        out_msn <= msn_3 + 24'(message_count);
        out_first <= first_3 >> advance;
        out_second <= second_3 >> advance;
      end
      if (is_new || (MUTANT_REPEATED_CLASS && kind_3 == EARLY)) begin
        out_first <= first_3 | ((ends_3 && !completes_3) ? WINDOW'(0) : mark);
        out_second <= second_3 | (ends_3 ? mark : WINDOW'(0));
      end
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && in_valid) begin
      assert (!in_first[0] && !in_second[0]) else $error("the expected packet has arrived");
      assert (in_ends || !in_completes) else $error("a packet completes and does not end its message");
    end
  end
`endif
endmodule
