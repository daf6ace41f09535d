// The messages that the cores are writing: a word of one core is taken in a cycle, the lowest core's that can
// be (nanoPU §3.4).
//
// A core may write several messages at once, one per context. Words beyond the length of a message are thrown
// away.
module writers #(
  parameter int unsigned CORES = 4,
  // Messages that a core may be writing.
  parameter int unsigned WRITERS = 4,
  parameter int unsigned NUMBER_BITS = 7,
  // Derived; not to be set.
  parameter int unsigned CORE_BITS = (CORES > 1) ? $clog2(CORES) : 1
) (
  input  logic                   clk,
  input  logic                   rst,
  input  logic [CORES-1:0]       sent_valid,
  input  logic [CORES*16-1:0]    sent_context,
  input  logic [CORES*64-1:0]    sent_word,
  output logic [CORES-1:0]       sent_take,
  // Whether a buffer of each class is free, and the number that the next message gets.
  input  logic                   has_1k,
  input  logic                   has_2k,
  input  logic [NUMBER_BITS-1:0] free_number,
  // The word that is taken: the header of a message that begins, or the payload of one that was begun.
  output logic                   begins,
  output logic                   oversized,
  output logic                   writes,
  output logic [NUMBER_BITS-1:0] number,
  output logic [15:0]            context_id,
  output logic [63:0]            word,
  output logic [7:0]             index,
  // With it, a packet of the message is complete.
  output logic                   completes
);
  localparam int unsigned PLACES = CORES * WRITERS;
  localparam logic [15:0] MESSAGE_BYTES = 16'd2048;
  localparam logic [15:0] SEGMENT_BYTES = 16'd1024;

  logic [PLACES-1:0]             used, nowhere, hit;
  logic [PLACES*16-1:0]          contexts;
  logic [PLACES*NUMBER_BITS-1:0] numbers;
  logic [PLACES*14-1:0]          left;
  logic [PLACES*8-1:0]           indices;

  // The word that each core could deliver.
  logic [CORES-1:0] known, room, can, chosen;

  always_comb begin
    for (int unsigned core = 0; core < CORES; core++) begin
      for (int unsigned i = 0; i < WRITERS; i++) begin
        hit[core*WRITERS+i] = used[core*WRITERS+i]
            && contexts[(core*WRITERS+i)*16 +: 16] == sent_context[core*16 +: 16];
      end
      known[core] = hit[core*WRITERS +: WRITERS] != '0;
      room[core] = sent_word[core*64 +: 16] > MESSAGE_BYTES
          || ((sent_word[core*64 +: 16] > SEGMENT_BYTES) ? has_2k : has_1k);
      can[core] = sent_valid[core] && (known[core] || room[core]);
    end
  end

`ifdef MUTANT_HIGH_CORES_FIRST
  always_comb begin
    chosen = '0;
    for (int unsigned core = 0; core < CORES; core++) begin
      if (can[core]) begin
        chosen = '0;
        chosen[core] = 1'b1;
      end
    end
  end
`else
  assign chosen = can & (~can + {{(CORES-1){1'b0}}, 1'b1});
`endif
  assign sent_take = chosen;

  // The chosen core's word and its message.
  logic [CORE_BITS-1:0]      core_now;
  logic [PLACES-1:0]         place, free_place;
  logic                      is_known, is_nowhere, found;
  logic [13:0]               left_now, left_new;
  logic [7:0]                index_now;
  logic [NUMBER_BITS-1:0]    number_now;

  always_comb begin
    core_now = '0;
    for (int unsigned core = 0; core < CORES; core++) begin
      if (chosen[core]) core_now = core_now | CORE_BITS'(core);
    end
  end

  assign word = (chosen != '0) ? sent_word[core_now*64 +: 64] : '0;
  assign context_id = sent_context[core_now*16 +: 16];

  always_comb begin
    place = '0;
    free_place = '0;
    found = 1'b0;
    left_now = '0;
    index_now = '0;
    number_now = '0;
    is_nowhere = 1'b0;
    for (int unsigned core = 0; core < CORES; core++) begin
      for (int unsigned i = 0; i < WRITERS; i++) begin
        if (chosen[core] && hit[core*WRITERS+i]) begin
          place[core*WRITERS+i] = 1'b1;
          left_now = left_now | left[(core*WRITERS+i)*14 +: 14];
          index_now = index_now | indices[(core*WRITERS+i)*8 +: 8];
          number_now = number_now | numbers[(core*WRITERS+i)*NUMBER_BITS +: NUMBER_BITS];
          is_nowhere = is_nowhere || nowhere[core*WRITERS+i];
        end
        if (chosen[core] && !used[core*WRITERS+i] && !found) begin
          free_place[core*WRITERS+i] = 1'b1;
          found = 1'b1;
        end
      end
    end
  end

  logic has_word, opens;
  assign has_word = chosen != '0;
  assign is_known = place != '0;
  assign oversized = has_word && !is_known && word[15:0] > MESSAGE_BYTES;
  assign begins = has_word && !is_known && word[15:0] <= MESSAGE_BYTES;
  assign writes = has_word && is_known && !is_nowhere;
  assign number = is_known ? number_now : free_number;
  assign index = index_now;
  assign completes = writes && (left_now == 14'd1 || index_now[6:0] == '1);
  assign left_new = 14'((17'(word[15:0]) + 17'd7) >> 3);
  assign opens = oversized || (begins && word[15:0] != '0);

  always_ff @(posedge clk) begin
    for (int unsigned i = 0; i < PLACES; i++) begin
      if (opens && free_place[i]) begin
        contexts[i*16 +: 16] <= context_id;
        numbers[i*NUMBER_BITS +: NUMBER_BITS] <= free_number;
        left[i*14 +: 14] <= left_new;
        indices[i*8 +: 8] <= '0;
        nowhere[i] <= oversized;
      end else if (place[i]) begin
        left[i*14 +: 14] <= left[i*14 +: 14] - 14'd1;
        indices[i*8 +: 8] <= indices[i*8 +: 8] + 8'd1;
      end
      if (rst) used[i] <= 1'b0;
      else if (opens && free_place[i]) used[i] <= 1'b1;
      else if (place[i] && left_now == 14'd1) used[i] <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ($onehot0(place)) else $error("a context writes two messages");
      assert (!opens || found) else $error("a core writes too many messages at once");
    end
  end
`endif
endmodule
