// IRN's sender for many queue pairs: irn_tx_free, irn_receive_ack and irn_timeout with a memory of their states.
//
// Takes, in a cycle: an acknowledgement, or else a timer that has run out, or else a free link, each for a queue pair, with valid and
// ready. Gives, LATENCY = 4 cycles later with out_valid: out_event (0 acknowledgement, 1 timer, 2 link) and what the block
// of that event says; the other blocks' outputs are zero. ready is low while an event of the same queue pair is on its way through
// the first four cycles. So one queue pair takes an event every five cycles, and five or more take one in every cycle.
//
// open_valid with open_ready begins a queue pair at a PSN. It must have no event on its way.
`include "irn_mutants.svh"

module irn_sender #(
  parameter int unsigned WINDOW = 128,
  parameter int unsigned CAP = 128,
  parameter int unsigned RTO_LOW_IN_FLIGHT = 3,
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
  input  logic                  ack_valid,
  input  logic [QP_BITS-1:0]    ack_qp,
  input  logic                  ack_nack,
  input  logic [23:0]           ack_cumulative,
  input  logic [23:0]           ack_sack,
  input  logic [7:0]            ack_run,
  output logic                  ack_ready,
  input  logic                  timer_valid,
  input  logic [QP_BITS-1:0]    timer_qp,
  output logic                  timer_ready,
  input  logic                  link_valid,
  input  logic [QP_BITS-1:0]    link_qp,
  input  logic                  link_has_new,
  output logic                  link_ready,
  output logic                  out_valid,
  output logic [1:0]            out_event,
  output logic [QP_BITS-1:0]    out_qp,
  // Of an acknowledgement: packets acknowledged for the first time, and what follows.
  output logic [COUNT_BITS-1:0] out_acked,
  output logic [COUNT_BITS-1:0] out_arrived,
  output logic                  out_loss,
  output logic                  out_recovered,
  // Of a free link: the packet that leaves.
  output logic                  out_sends,
  output logic                  out_again,
  output logic [23:0]           out_psn,
  // Of a timer: 0 nothing in flight, 1 extended, 2 the front is resent.
  output logic [1:0]            out_expired,
  // Of any: 0 leave the timer alone, 1 stop it, 2 RTO_low, 3 RTO_high, 4 RTO_high - RTO_low from now.
  output logic [2:0]            out_timer
);
  `MUTANT(MUTANT_NO_SENDER_INTERLOCK)

  // What acknowledgements alone write, what a free link alone writes, and what all write.
  logic [24+WINDOW-1:0] acknowledged [0:QUEUE_PAIRS-1];
  logic [71:0]          sent         [0:QUEUE_PAIRS-1];
  logic [29:0]          repaired     [0:QUEUE_PAIRS-1];

  logic [QP_BITS-1:0] qp;
  logic [23:0]        front, next, retransmit, recovery, evident;
  logic [4:0]         flags;
  logic [WINDOW-1:0]  sacked;
  logic               runs, is_free, takes_ack, takes_timer, takes_link;

  // The queue pairs of the events on their way.
  logic               busy_1, busy_2, busy_3, busy_4;
  logic [QP_BITS-1:0] qp_1, qp_2, qp_3, qp_4;

  assign qp = ack_valid ? ack_qp : timer_valid ? timer_qp : link_qp;
  assign is_free = !((busy_1 && qp_1 == qp) || (busy_2 && qp_2 == qp) || (busy_3 && qp_3 == qp)
      || (busy_4 && qp_4 == qp && !MUTANT_NO_SENDER_INTERLOCK));
  assign ack_ready = is_free;
  assign timer_ready = is_free && !ack_valid;
  assign link_ready = is_free && !ack_valid && !timer_valid;
  assign takes_ack = ack_valid && ack_ready;
  assign takes_timer = timer_valid && timer_ready;
  assign takes_link = link_valid && link_ready;

  assign {front, sacked} = acknowledged[qp];
  assign {next, recovery, evident} = sent[qp];
  assign {runs, retransmit, flags} = repaired[qp];

  logic                  a_valid, unused_stale, unused_invalid;
  logic [COUNT_BITS-1:0] unused_sacked_count;
  logic [2:0]            a_timer;
  logic [23:0]           a_front, a_retransmit;
  logic [4:0]            a_flags;
  logic [WINDOW-1:0]     a_sacked;

  irn_receive_ack #(.WINDOW(WINDOW), .RTO_LOW_IN_FLIGHT(RTO_LOW_IN_FLIGHT)) i_receive_ack (
    .clk(clk), .rst(rst), .in_valid(takes_ack), .in_nack(ack_nack), .in_cumulative(ack_cumulative), .in_sack(ack_sack),
    .in_run(ack_run), .in_front(front), .in_next(next), .in_retransmit(retransmit), .in_recovery(recovery),
    .in_evident(evident), .in_flags(flags), .in_sacked(sacked), .out_valid(a_valid), .out_acked(out_acked),
    .out_sacked_count(unused_sacked_count), .out_arrived(out_arrived), .out_loss(out_loss),
    .out_recovered(out_recovered), .out_stale(unused_stale), .out_invalid(unused_invalid), .out_timer(a_timer),
    .out_front(a_front), .out_retransmit(a_retransmit), .out_flags(a_flags), .out_sacked(a_sacked)
  );

  // The link's block gives its answer after three cycles, the timer's after one.
  logic        l_valid, l_sends, l_again;
  logic [23:0] l_psn, l_next, l_retransmit, l_recovery, l_evident;
  logic [2:0]  l_timer;
  logic [4:0]  l_flags;

  irn_tx_free #(.WINDOW(WINDOW), .CAP(CAP), .RTO_LOW_IN_FLIGHT(RTO_LOW_IN_FLIGHT)) i_tx_free (
    .clk(clk), .rst(rst), .in_valid(takes_link), .in_has_new(link_has_new), .in_timer_runs(runs), .in_front(front),
    .in_next(next), .in_retransmit(retransmit), .in_recovery(recovery), .in_evident(evident), .in_flags(flags),
    .in_sacked(sacked), .out_valid(l_valid), .out_sends(l_sends), .out_again(l_again), .out_psn(l_psn),
    .out_timer(l_timer), .out_next(l_next), .out_retransmit(l_retransmit), .out_recovery(l_recovery),
    .out_evident(l_evident), .out_flags(l_flags)
  );

  logic        t_valid;
  logic [1:0]  t_kind;
  logic [2:0]  t_timer;
  logic [23:0] t_retransmit;
  logic [4:0]  t_flags;

  irn_timeout #(.RTO_LOW_IN_FLIGHT(RTO_LOW_IN_FLIGHT)) i_timeout (
    .clk(clk), .rst(rst), .in_valid(takes_timer), .in_front(front), .in_next(next), .in_retransmit(retransmit),
    .in_flags(flags), .out_valid(t_valid), .out_kind(t_kind), .out_timer(t_timer), .out_retransmit(t_retransmit),
    .out_flags(t_flags)
  );

  logic        link_4, timer_2, timer_3, timer_4, runs_1, runs_2, runs_3, runs_4;
  logic [23:0] next_4, recovery_4, evident_4;
  logic [33:0] expired_2, expired_3, expired_4;
  logic [31:0] left_4;

  always_ff @(posedge clk) begin
    link_4 <= l_valid && !rst;
    {timer_2, timer_3, timer_4} <= rst ? 3'd0 : {t_valid, timer_2, timer_3};
    {expired_2, expired_3, expired_4} <= {{t_kind, t_timer, t_retransmit, t_flags}, expired_2, expired_3};
    {next_4, recovery_4, evident_4} <= {l_next, l_recovery, l_evident};
    left_4 <= {l_timer, l_retransmit, l_flags};
    {out_sends, out_again, out_psn} <= (rst || !l_valid) ? 26'd0 : {l_sends, l_again, l_psn};
    {runs_1, runs_2, runs_3, runs_4} <= {runs, runs_1, runs_2, runs_3};
    {busy_1, busy_2, busy_3, busy_4} <= rst ? 4'd0 : {takes_ack || takes_timer || takes_link, busy_1, busy_2, busy_3};
    {qp_1, qp_2, qp_3, qp_4} <= {qp, qp_1, qp_2, qp_3};
  end

  assign out_valid = a_valid || link_4 || timer_4;
  assign out_event = link_4 ? 2'd2 : timer_4 ? 2'd1 : 2'd0;
  assign out_qp = out_valid ? qp_4 : '0;
  assign out_expired = timer_4 ? expired_4[33:32] : 2'd0;
  assign out_timer = a_valid ? a_timer : link_4 ? left_4[31:29] : timer_4 ? expired_4[31:29] : 3'd0;
  assign open_ready = !out_valid;

  // A timer that has run out does not run, unless it is set again.
  logic runs_next;
  assign runs_next = (out_timer >= 3'd2) || (runs_4 && !timer_4 && out_timer != 3'd1);

  always_ff @(posedge clk) begin
    if (a_valid) acknowledged[qp_4] <= {a_front, a_sacked};
    else if (open_valid && open_ready) acknowledged[open_qp] <= {open_psn, WINDOW'(0)};
    if (link_4) sent[qp_4] <= {next_4, recovery_4, evident_4};
    else if (open_valid && open_ready) sent[open_qp] <= {open_psn, open_psn, open_psn};
    if (out_valid) repaired[qp_4] <= {runs_next, a_valid ? {a_retransmit, a_flags} : link_4 ? left_4[28:0] : expired_4[28:0]};
    else if (open_valid) repaired[open_qp] <= {1'b0, open_psn, 5'd0};
  end
endmodule
