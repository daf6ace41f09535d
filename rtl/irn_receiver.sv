// IRN's receiver for many queue pairs: irn_receive_data with a memory of their states.
//
// Takes, in a cycle with in_valid and in_ready: a packet and its queue pair. Gives, LATENCY = 4 cycles later with out_valid: the
// answer. in_ready is low while a packet of the same queue pair is on its way through the first three cycles; the state that the
// last cycle gives goes straight to the next packet. So one queue pair takes a packet every four cycles, and four or more
// take one in every cycle.
//
// open_valid with open_ready begins a queue pair at a PSN, with MSN 0 and nothing arrived. It must have no packet on its way.
`include "irn_mutants.svh"

module irn_receiver #(
  parameter int unsigned WINDOW = 128,
  // Room, in queue pairs; a power of two.
  parameter int unsigned QUEUE_PAIRS = 64,
  // Derived; not to be set.
  parameter int unsigned QP_BITS = $clog2(QUEUE_PAIRS),
  parameter int unsigned COUNT_BITS = $clog2(WINDOW) + 1
) (
  input  logic                  clk,
  input  logic                  rst,
  input  logic                  open_valid,
  input  logic [QP_BITS-1:0]    open_qp,
  input  logic [23:0]           open_psn,
  output logic                  open_ready,
  input  logic                  in_valid,
  input  logic [QP_BITS-1:0]    in_qp,
  input  logic [23:0]           in_psn,
  input  logic                  in_ends,
  input  logic                  in_completes,
  output logic                  in_ready,
  output logic                  out_valid,
  output logic [QP_BITS-1:0]    out_qp,
  output logic [1:0]            out_kind,
  output logic                  out_place,
  output logic [7:0]            out_run,
  output logic [COUNT_BITS-1:0] out_messages,
  output logic [COUNT_BITS-1:0] out_completions,
  // The cumulative acknowledgement, and the MSN.
  output logic [23:0]           out_expected,
  output logic [23:0]           out_msn
);
  `MUTANT(MUTANT_NO_INTERLOCK)
  `MUTANT(MUTANT_NO_FORWARDING)

  localparam int unsigned CONTEXT_BITS = 48 + 2 * WINDOW;

  logic [CONTEXT_BITS-1:0] contexts [0:QUEUE_PAIRS-1];
  logic [CONTEXT_BITS-1:0] given, taken;
  logic [WINDOW-1:0]       first, second;
  logic [COUNT_BITS-1:0]   unused_advanced;
  logic                    accepts;

  // The queue pairs of the packets on their way.
  logic               busy_1, busy_2, busy_3;
  logic [QP_BITS-1:0] qp_1, qp_2, qp_3, qp_4;

  assign in_ready = !((busy_1 && qp_1 == in_qp) || (busy_2 && qp_2 == in_qp)
      || (busy_3 && qp_3 == in_qp && !MUTANT_NO_INTERLOCK));
  assign accepts = in_valid && in_ready;
  assign given = {out_expected, out_msn, first, second};
  assign taken = (out_valid && qp_4 == in_qp && !MUTANT_NO_FORWARDING) ? given : contexts[in_qp];
  assign open_ready = !out_valid;
  assign out_qp = out_valid ? qp_4 : '0;

  irn_receive_data #(.WINDOW(WINDOW)) i_receive_data (
    .clk(clk), .rst(rst),
    .in_valid(accepts), .in_psn(in_psn), .in_ends(in_ends), .in_completes(in_completes),
    .in_expected(taken[CONTEXT_BITS-1 -: 24]), .in_msn(taken[CONTEXT_BITS-25 -: 24]),
    .in_first(taken[2*WINDOW-1:WINDOW]), .in_second(taken[WINDOW-1:0]),
    .out_valid(out_valid), .out_kind(out_kind), .out_place(out_place), .out_run(out_run),
    .out_advanced(unused_advanced), .out_messages(out_messages), .out_completions(out_completions),
    .out_expected(out_expected), .out_msn(out_msn), .out_first(first), .out_second(second)
  );

  always_ff @(posedge clk) begin
    if (out_valid) contexts[qp_4] <= given;
    else if (open_valid) contexts[open_qp] <= {open_psn, {(CONTEXT_BITS-24){1'b0}}};
    busy_1 <= accepts && !rst;
    busy_2 <= busy_1 && !rst;
    busy_3 <= busy_2 && !rst;
    {qp_1, qp_2, qp_3, qp_4} <= {in_qp, qp_1, qp_2, qp_3};
  end
endmodule
