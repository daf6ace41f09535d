// Words of messages that have a core, one per cycle: the header for the program, then the payload (nanoPU §3.4).
//
// All messages that get their cores in a cycle are one row of a queue, and are served in the order of the
// row, two cycles later at the earliest. The payload of a packet is filled up with zeroes to whole words, and
// that of a message to the length in its first packet.
module dispatch #(
  parameter int unsigned CORES = 4,
  // Messages in a row at most: those that cores have taken, and the one that has arrived.
  parameter int unsigned PLACES = 9,
  parameter int unsigned MESSAGE_BITS = 8,
  parameter int unsigned SEGMENT_BITS = 8,
  // Derived; not to be set.
  parameter int unsigned CORE_BITS = (CORES > 1) ? $clog2(CORES) : 1
) (
  input  logic                              clk,
  input  logic                              rst,
  input  logic [PLACES-1:0]                 assign_valid,
  input  logic [PLACES*MESSAGE_BITS-1:0]    assign_message,
  input  logic [PLACES*CORE_BITS-1:0]       assign_core,
  // The data of a message, requested in the cycle of its first word.
  output logic [MESSAGE_BITS-1:0]           ask_message,
  input  logic [63:0]                       said_header,
  input  logic [15:0]                       said_context,
  input  logic [11:0]                       said_bytes,
  input  logic                              said_class,
  input  logic [10:0]                       said_payload0,
  input  logic                              said_second,
  input  logic [SEGMENT_BITS-1:0]           said_segment1,
  input  logic [10:0]                       said_payload1,
  // The buffer memory: the word of an address comes in the next cycle.
  output logic [SEGMENT_BITS+6:0]           read_address,
  input  logic [63:0]                       read_word,
  // A word for a core.
  output logic                              deliver,
  output logic                              deliver_first,
  output logic [CORE_BITS-1:0]              deliver_core,
  output logic [15:0]                       deliver_context,
  output logic [63:0]                       deliver_word,
  // A message leaves its buffer, which counts as free from its first word on; its segments are free after its last.
  output logic                              leave_valid,
  output logic                              leave_class,
  output logic [1:0]                        give,
  output logic [2*SEGMENT_BITS-1:0]         give_segment
);
  localparam int unsigned ROW_BITS = PLACES * (1 + MESSAGE_BITS + CORE_BITS);
  localparam int unsigned ROWS = 1 << MESSAGE_BITS;

  // The queue of rows, behind a register that is the second cycle.
  logic [ROW_BITS-1:0]     rows [0:ROWS-1];
  logic [MESSAGE_BITS-1:0] head, tail;
  logic [MESSAGE_BITS:0]   count;
  logic                    row_pushes;
  logic [ROW_BITS-1:0]     row_in, row_out;
  logic [PLACES-1:0]       served, waits, chosen;
  logic                    starts, row_ends;

  logic [PLACES-1:0]              out_valid;
  logic [PLACES*MESSAGE_BITS-1:0] out_message;
  logic [PLACES*CORE_BITS-1:0]    out_core;

  assign row_out = rows[head];
  assign {out_valid, out_message, out_core} = row_out;
  assign waits = (count != '0) ? out_valid & ~served : '0;
  // The lowest place that waits.
  assign chosen = waits & (~waits + {{(PLACES-1){1'b0}}, 1'b1});

  logic                 busy;
  logic [CORE_BITS-1:0] chosen_core;

  always_comb begin
    ask_message = '0;
    chosen_core = '0;
    for (int unsigned place = 0; place < PLACES; place++) begin
      if (chosen[place]) begin
        ask_message = ask_message | out_message[place*MESSAGE_BITS +: MESSAGE_BITS];
        chosen_core = chosen_core | out_core[place*CORE_BITS +: CORE_BITS];
      end
    end
  end

  assign starts = !busy && waits != '0;
  assign row_ends = starts && waits == chosen;

  // The message that is on its way. Its number is its first segment.
  logic [CORE_BITS-1:0]    core;
  logic [15:0]             context_id;
  logic [8:0]              words, index;
  logic [SEGMENT_BITS-1:0] segment0, segment1;
  logic [10:0]             payload0, payload1;
  logic                    second, ends;
  logic [8:0]              said_words;

  assign said_words = 9'((said_bytes + 12'd7) >> 3);
  // The next word to read: the first one while the header leaves.
  logic [8:0] next_index;
  assign next_index = busy ? index + 9'd1 : '0;
  assign read_address = {(next_index[7] ? segment1 : busy ? segment0 : SEGMENT_BITS'(ask_message)), next_index[6:0]};
  assign ends = busy ? index + 9'd1 == words : starts && said_words == '0;

  // The payload bytes of the word.
  logic [10:0] payload, ahead;
  logic [10:0] left;
  logic [63:0] kept;
  assign payload = index[7] ? (second ? payload1 : '0) : payload0;
  assign ahead = {1'b0, index[6:0], 3'b0};
  assign left = (payload > ahead) ? payload - ahead : '0;
  assign kept = (left >= 11'd8) ? '1 : ~(64'hffff_ffff_ffff_ffff >> {left[2:0], 3'b0});

  assign deliver = busy || starts;
  assign deliver_first = starts;
  assign deliver_core = !deliver ? '0 : busy ? core : chosen_core;
  assign deliver_context = !deliver ? '0 : busy ? context_id : said_context;
  assign deliver_word = busy ? read_word & kept : starts ? said_header : '0;
  assign leave_valid = starts;
  assign leave_class = said_class;
  assign give[0] = ends;
  assign give[1] = ends && (busy ? second : said_second);
  assign give_segment[0 +: SEGMENT_BITS] = busy ? segment0 : SEGMENT_BITS'(ask_message);
  assign give_segment[SEGMENT_BITS +: SEGMENT_BITS] = busy ? segment1 : said_segment1;

  always_ff @(posedge clk) begin
    if (row_pushes) rows[tail] <= row_in;
    row_in <= {assign_valid, assign_message, assign_core};
    if (starts) begin
      core <= chosen_core;
      context_id <= said_context;
      words <= said_words;
      segment0 <= SEGMENT_BITS'(ask_message);
      segment1 <= said_segment1;
      payload0 <= said_payload0;
      payload1 <= said_payload1;
      second <= said_second;
    end
    index <= next_index;
    if (rst) begin
      head <= '0;
      tail <= '0;
      count <= '0;
      served <= '0;
      busy <= 1'b0;
      row_pushes <= 1'b0;
    end else begin
      row_pushes <= assign_valid != '0;
      tail <= tail + {{(MESSAGE_BITS-1){1'b0}}, row_pushes};
      head <= head + {{(MESSAGE_BITS-1){1'b0}}, row_ends};
      count <= count + {{MESSAGE_BITS{1'b0}}, row_pushes} - {{MESSAGE_BITS{1'b0}}, row_ends};
      if (row_ends) served <= '0;
      else if (starts) served <= served | chosen;
      busy <= (busy || starts) && !ends;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!row_pushes || 32'(count) < ROWS) else $error("more rows than messages");
    end
  end
`endif
endmodule
