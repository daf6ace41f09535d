// Packets out of words (nanoPU §3.4): a word accepted in a cycle, packets of 1 KiB that get in line as soon as they are there and allowed,
// new ones before credited before timed-out ones.
module packetizer #(
  parameter int unsigned CORES = 4,
  parameter int unsigned WRITERS = 4,
  parameter int unsigned BUFFERS_1K = 64,
  parameter int unsigned BUFFERS_2K = 64,
  parameter int unsigned RTT_PACKETS = 2,
  parameter int unsigned TIMEOUT_CYCLES = 2240,
  parameter int unsigned TIME_BITS = 32,
  parameter int unsigned ROWS = 256
) (
  input  logic                clk,
  input  logic                rst,
  input  logic [CORES-1:0]    sent_valid,
  input  logic [CORES*16-1:0] sent_context,
  input  logic [CORES*64-1:0] sent_word,
  output logic [CORES-1:0]    sent_take,
  // A control packet.
  input  logic                control_valid,
  input  logic [31:0]         control_source,
  input  logic [3:1]          control_flags,  // ACK, NACK, PULL, as they stand in the packet.
  input  logic [7:0]          control_offset,
  input  logic [15:0]         control_pull,
  input  logic [15:0]         control_message,
  input  logic [15:0]         control_buffer,
  // The wire has room for a packet; the one that leaves, if one in line may leave.
  input  logic                pick,
  output logic                leaves,
  output logic [31:0]         leaves_peer,
  output logic [15:0]         leaves_context,
  output logic [15:0]         leaves_peer_context,
  output logic [15:0]         leaves_bytes,
  output logic                leaves_offset,
  output logic [15:0]         leaves_message,
  output logic [15:0]         leaves_buffer,
  output logic                leaves_class,
  output logic [10:0]         leaves_payload,
  // Its payload.
  input  logic                reading,
  input  logic [6:0]          read_index,
  output logic [63:0]         read_word,
  // For counters.
  output logic                event_begun,
  output logic                event_oversized,
  output logic                event_delivered,
  output logic                event_timeout
);
  localparam int unsigned MESSAGES = BUFFERS_1K + BUFFERS_2K;
  localparam int unsigned NUMBER_BITS = (MESSAGES > 1) ? $clog2(MESSAGES) : 1;
  localparam int unsigned BUFFER_BITS = $clog2(((BUFFERS_1K > BUFFERS_2K) ? BUFFERS_1K : BUFFERS_2K) + 1);

  logic [TIME_BITS-1:0] now;

  // The core's word.
  logic                   begins, writes, completes, is_2k;
  logic [NUMBER_BITS-1:0] number, free_number;
  logic [15:0]            context_id, sequence_next;
  logic [63:0]            word;
  logic [7:0]             index;
  logic [7:0]             free_1k, free_2k;

  writers #(.CORES(CORES), .WRITERS(WRITERS), .NUMBER_BITS(NUMBER_BITS)) i_writers (
    .clk(clk),
    .rst(rst),
    .sent_valid(sent_valid),
    .sent_context(sent_context),
    .sent_word(sent_word),
    .sent_take(sent_take),
    .has_1k(free_1k != '0),
    .has_2k(free_2k != '0),
    .free_number(free_number),
    .begins(begins),
    .oversized(event_oversized),
    .writes(writes),
    .number(number),
    .context_id(context_id),
    .word(word),
    .index(index),
    .completes(completes)
  );

  assign is_2k = word[15:0] > 16'd1024;
  assign event_begun = begins;

  // Numbers go round, so that late packets of an old message do not meet a new one.
  logic [MESSAGES-1:0]    used;
  logic [NUMBER_BITS-1:0] next_number, lowest, lowest_ahead;
  logic                   found_ahead;

  always_comb begin
    lowest = '0;
    lowest_ahead = '0;
    found_ahead = 1'b0;
    for (int unsigned i = MESSAGES; i > 0; i--) begin
      if (!used[i-1]) begin
        lowest = NUMBER_BITS'(i - 1);
        if (NUMBER_BITS'(i - 1) >= next_number) begin
          lowest_ahead = NUMBER_BITS'(i - 1);
          found_ahead = 1'b1;
        end
      end
    end
  end
  assign free_number = found_ahead ? lowest_ahead : lowest;

  // The data of each message: the peer, both contexts, its bytes and number, and the place of its payload.
  localparam int unsigned RECORD_BITS = 32 + 16 + 16 + 16 + 16 + 1 + BUFFER_BITS;
  logic [RECORD_BITS-1:0] records [0:(1<<NUMBER_BITS)-1];

  // The control packet is for the message whose number and peer it names.
  logic [NUMBER_BITS-1:0] control_number;
  logic [31:0]            control_peer;
  logic [15:0]            control_sequence;
  logic                   control_class, is_ours;
  logic [BUFFER_BITS-1:0] control_place;
  // verilator lint_off UNUSEDSIGNAL
  logic [47:0]            control_rest;
  logic [95:0]            write_rest;
  // verilator lint_on UNUSEDSIGNAL
  assign control_number = control_buffer[NUMBER_BITS-1:0];
  assign {control_peer, control_rest, control_sequence, control_class, control_place} = records[control_number];
  assign is_ours = control_valid && 32'(control_buffer) < MESSAGES && control_offset < 8'd2
      && control_peer == control_source && control_sequence == control_message;

  // The timer to check: one in two cycles.
  logic [NUMBER_BITS-1:0] scan_number;
  logic                   scans;
  assign scans = !now[0];

  // The packet that wants to leave.
  logic [2:0]               line_valid, line_offset, line_pop;
  logic [3*NUMBER_BITS-1:0] line_number;
  logic [NUMBER_BITS-1:0]   pick_number;
  logic                     pick_offset, picks;

  assign picks = pick && line_valid != '0;
  assign line_pop = picks ? line_valid & (~line_valid + 3'd1) : '0;
  always_comb begin
    pick_number = '0;
    pick_offset = 1'b0;
    for (int unsigned i = 0; i < 3; i++) begin
      if (line_pop[i]) begin
        pick_number = pick_number | line_number[i*NUMBER_BITS +: NUMBER_BITS];
        pick_offset = pick_offset || line_offset[i];
      end
    end
  end

  logic [MESSAGES-1:0]   delivered, late, left;
  logic [MESSAGES*2-1:0] due_new, due_credited, due_late;
  logic [1:0]            any_new, any_credited, any_late;

  for (genvar i = 0; i < MESSAGES; i++) begin : gen_message
    localparam logic [NUMBER_BITS-1:0] HERE = NUMBER_BITS'(i);
    outgoing_message #(
      .RTT_PACKETS(RTT_PACKETS), .TIMEOUT_CYCLES(TIMEOUT_CYCLES), .TIME_BITS(TIME_BITS)
    ) i_message (
      .clk(clk),
      .rst(rst),
      .now(now),
      .begins(begins && free_number == HERE),
      .begins_empty(word[15:0] == '0),
      .begins_two(is_2k),
      .written(completes && number == HERE),
      .control(is_ours && control_number == HERE),
      .control_offset(control_offset[0]),
      .control_ack(control_flags[1]),
      .control_nack(control_flags[2]),
      .control_pull(control_flags[3]),
      .control_credit((control_pull > 16'd2) ? 2'd2 : control_pull[1:0]),
      .scanned(scans && scan_number == HERE),
      .picked(picks && pick_number == HERE),
      .picked_offset(pick_offset),
      .leaves(left[i]),
      .due_new(due_new[i*2 +: 2]),
      .due_credited(due_credited[i*2 +: 2]),
      .due_late(due_late[i*2 +: 2]),
      .used(used[i]),
      .delivered_all(delivered[i]),
      .timed_out(late[i])
    );
  end

  always_comb begin
    any_new = '0;
    any_credited = '0;
    any_late = '0;
    for (int unsigned i = 0; i < MESSAGES; i++) begin
      any_new = any_new | due_new[i*2 +: 2];
      any_credited = any_credited | due_credited[i*2 +: 2];
      any_late = any_late | due_late[i*2 +: 2];
    end
  end

  due_queue #(.NUMBER_BITS(NUMBER_BITS), .ROWS(ROWS)) i_new (
    .clk(clk), .rst(rst), .push(any_new), .push_number(number), .valid(line_valid[0]),
    .number(line_number[0 +: NUMBER_BITS]), .offset(line_offset[0]), .pop(line_pop[0])
  );
  due_queue #(.NUMBER_BITS(NUMBER_BITS), .ROWS(ROWS)) i_credited (
    .clk(clk), .rst(rst), .push(any_credited), .push_number(control_number), .valid(line_valid[1]),
    .number(line_number[NUMBER_BITS +: NUMBER_BITS]), .offset(line_offset[1]), .pop(line_pop[1])
  );
  due_queue #(.NUMBER_BITS(NUMBER_BITS), .ROWS(ROWS)) i_late (
    .clk(clk), .rst(rst), .push(any_late), .push_number(scan_number), .valid(line_valid[2]),
    .number(line_number[2*NUMBER_BITS +: NUMBER_BITS]), .offset(line_offset[2]), .pop(line_pop[2])
  );

  assign leaves = left != '0;
  assign event_delivered = delivered != '0;
  assign event_timeout = late != '0;

  // The place of the payload.
  logic [BUFFER_BITS-1:0] free_buffer_1k, free_buffer_2k, write_place, leaves_place, reading_place;
  logic                   write_class, reading_class;
  logic [15:0]            start;

  assign {leaves_peer, leaves_peer_context, leaves_bytes, leaves_context, leaves_message, leaves_class, leaves_place} =
      records[pick_number];
  assign leaves_offset = pick_offset;
  assign leaves_buffer = 16'(pick_number);
  assign start = leaves_bytes - (pick_offset ? 16'd1024 : '0);
  assign leaves_payload = (start > 16'd1024) ? 11'd1024 : start[10:0];
  assign {write_rest, write_class, write_place} = records[number];

  buffer_pool #(.BUFFERS(BUFFERS_1K + 1), .BUFFER_BITS(BUFFER_BITS)) i_pool_1k (
    .clk(clk), .rst(rst), .reading(reading && !reading_class), .reading_buffer(reading_place),
    .take(begins && !is_2k), .free_buffer(free_buffer_1k),
    .give(event_delivered && !control_class), .give_buffer(control_place)
  );
  buffer_pool #(.BUFFERS(BUFFERS_2K + 1), .BUFFER_BITS(BUFFER_BITS)) i_pool_2k (
    .clk(clk), .rst(rst), .reading(reading && reading_class), .reading_buffer(reading_place),
    .take(begins && is_2k), .free_buffer(free_buffer_2k),
    .give(event_delivered && control_class), .give_buffer(control_place)
  );

  logic        reading_second;
  logic [63:0] read_1k, read_2k;

  word_ram #(.WORDS(1 << (BUFFER_BITS + 7))) i_words_1k (
    .clk(clk), .write(writes && !write_class), .write_address({write_place, index[6:0]}), .write_word(word),
    .read_address({reading_place, read_index}), .read_word(read_1k)
  );
  word_ram #(.WORDS(1 << (BUFFER_BITS + 8))) i_words_2k (
    .clk(clk), .write(writes && write_class), .write_address({write_place, index}), .write_word(word),
    .read_address({reading_place, reading_second, read_index}), .read_word(read_2k)
  );
  assign read_word = reading_class ? read_2k : read_1k;

  always_ff @(posedge clk) begin
    if (begins) begin
      records[free_number] <= {word[63:32], word[31:16], word[15:0], context_id, sequence_next, is_2k,
          is_2k ? free_buffer_2k : free_buffer_1k};
    end
    if (leaves) begin
      reading_class <= leaves_class;
      reading_place <= leaves_place;
      reading_second <= pick_offset;
    end
    if (rst) begin
      now <= '0;
      next_number <= '0;
      sequence_next <= '0;
      scan_number <= '0;
      free_1k <= 8'(BUFFERS_1K);
      free_2k <= 8'(BUFFERS_2K);
    end else begin
      now <= now + {{(TIME_BITS-1){1'b0}}, 1'b1};
      if (begins) begin
        next_number <= (32'(free_number) == MESSAGES - 1) ? '0 : free_number + {{(NUMBER_BITS-1){1'b0}}, 1'b1};
        sequence_next <= sequence_next + 16'd1;
      end
      if (scans) scan_number <= (32'(scan_number) == MESSAGES - 1) ? '0 : scan_number + {{(NUMBER_BITS-1){1'b0}}, 1'b1};
      free_1k <= free_1k - {7'b0, begins && !is_2k} + {7'b0, event_delivered && !control_class};
      free_2k <= free_2k - {7'b0, begins && is_2k} + {7'b0, event_delivered && control_class};
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ($onehot0(left) && $onehot0(delivered) && $onehot0(late)) else $error("two messages answer for one");
      assert (32'(free_1k) <= BUFFERS_1K && 32'(free_2k) <= BUFFERS_2K) else $error("more buffers are free than there are");
    end
  end
`endif
endmodule
