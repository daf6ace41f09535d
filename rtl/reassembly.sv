// Messages out of packets (nanoPU §3.4), and NDP's answer to each packet: an acknowledgement, or a negative
// one if the packet was trimmed, and credit for one packet more.
//
// A message has a bit per packet, so that packets may come twice and in any order. Its buffer is of one of
// two classes, for up to 1 KiB and up to 2 KiB; classes count the buffers that may be used, payload lies in
// segments of 1 KiB as ingress filled them.
module reassembly #(
  parameter int unsigned BUFFERS_1K = 64,
  parameter int unsigned BUFFERS_2K = 64,
  // Packets that a sender may send unasked.
  parameter int unsigned RTT_PACKETS = 2,
  parameter int unsigned SENDER_BITS = 2,
  parameter int unsigned REMEMBERED = 64,
  parameter int unsigned SEGMENT_BITS = 8
) (
  input  logic                    clk,
  input  logic                    rst,
  // A DATA packet leaves ingress; whether its context is known.
  input  logic                    packet_valid,
  input  logic                    packet_known,
  input  logic [SEGMENT_BITS-1:0] packet_segment,
  input  logic [10:0]             packet_payload,
  input  logic [31:0]             packet_source,
  input  logic                    packet_trimmed,
  input  logic [15:0]             packet_bytes,
  input  logic                    packet_offset,
  input  logic [15:0]             packet_message,
  // Its answer, in the same cycle; none if there was no place for it.
  output logic                    reply_valid,
  output logic                    reply_nack,
  output logic [15:0]             reply_credit,
  // The packet's fate.
  output logic                    event_duplicate,
  output logic                    event_without_buffer,
  // The segment is not needed.
  output logic                    give_segment,
  // A message is complete: its segments and the payload in each, and its length from its first packet.
  output logic                    whole_valid,
  output logic [11:0]             whole_bytes,
  output logic                    whole_class,
  output logic [SEGMENT_BITS-1:0] whole_segment0,
  output logic [10:0]             whole_payload0,
  output logic                    whole_second,
  output logic [SEGMENT_BITS-1:0] whole_segment1,
  output logic [10:0]             whole_payload1,
  // A message leaves its buffer, of this class.
  input  logic                    leave_valid,
  input  logic                    leave_class
);
  localparam int unsigned SLOTS = BUFFERS_1K + BUFFERS_2K;
  localparam int unsigned SLOT_BITS = (SLOTS > 1) ? $clog2(SLOTS) : 1;
  localparam logic [10:0] SEGMENT_BYTES = 11'd1024;
  localparam logic [15:0] UNASKED = 16'(RTT_PACKETS);

  // Messages of which some packets have arrived.
  logic [SLOTS-1:0]              used, hit;
  logic [7:0]                    free_1k, free_2k;
  logic [SLOT_BITS-1:0]          hit_slot, free_slot, slot;

  // The data of each: arrived packets, class, bytes, credit, segments and payload in them.
  localparam int unsigned STATE_BITS = 2 + 1 + 12 + 16 + 2 * SEGMENT_BITS + 2 * 11;
  logic [STATE_BITS-1:0]         states [0:SLOTS-1];
  logic [1:0]                    arrived, arrived_next;
  logic                          class_now, class_new;
  logic [11:0]                   bytes_now;
  logic [15:0]                   credit_now, credit_next, credit_finished;
  logic [SEGMENT_BITS-1:0]       segment0, segment1, segment0_next, segment1_next;
  logic [10:0]                   payload0, payload1, payload0_next, payload1_next;

  logic is_partial, is_finished, had_second, has_room, opens, accepted;
  logic is_duplicate, fits, keeps, completes;

  for (genvar i = 0; i < SLOTS; i++) begin : gen_slot
    logic [47:0] key;
    assign hit[i] = used[i] && key == {packet_source, packet_message};
    always_ff @(posedge clk) begin
      if (opens && free_slot == SLOT_BITS'(i)) key <= {packet_source, packet_message};
    end
  end

  always_comb begin
    hit_slot = '0;
    free_slot = '0;
    for (int unsigned i = SLOTS; i > 0; i--) begin
      if (hit[i-1]) hit_slot = hit_slot | SLOT_BITS'(i - 1);
      if (!used[i-1]) free_slot = SLOT_BITS'(i - 1);
    end
  end

  finished_messages #(.SENDER_BITS(SENDER_BITS), .REMEMBERED(REMEMBERED)) i_finished (
    .clk(clk),
    .rst(rst),
    .sender(packet_source[SENDER_BITS-1:0]),
    .message(packet_message),
    .known(is_finished),
    .credit(credit_finished),
    .had_second(had_second),
    .touch(accepted && is_finished),
    .touch_credit(credit_next),
    .push(completes),
    .push_credit(credit_next),
    .push_second(arrived_next[1])
  );

  assign is_partial = hit != '0;
  assign class_new = packet_bytes > 16'd1024;
  assign has_room = class_new ? free_2k != '0 : free_1k != '0;
  assign opens = packet_valid && packet_known && !is_partial && !is_finished && has_room;
  assign accepted = packet_valid && packet_known && (is_partial || is_finished || has_room);
  assign slot = is_partial ? hit_slot : free_slot;

  always_comb begin
    {arrived, class_now, bytes_now, credit_now, segment0, segment1, payload0, payload1} = states[hit_slot];
    if (!is_partial) begin
      arrived = is_finished ? {had_second, 1'b1} : 2'b00;
      class_now = class_new;
      // Nothing is kept of a finished message.
      bytes_now = is_finished ? '0 : packet_bytes[11:0];
      credit_now = is_finished ? credit_finished : '0;
      segment0 = '0;
      segment1 = '0;
      payload0 = '0;
      payload1 = '0;
    end
  end

  // NDP: each arrival, whole or trimmed, lets one more packet leave.
  logic [15:0] credit_least;
  assign credit_least = (credit_now > UNASKED) ? credit_now : UNASKED;
  assign credit_next = (credit_least == '1) ? credit_least : credit_least + 16'd1;

  logic [11:0] packet_end;
  assign packet_end = {1'b0, packet_payload} + (packet_offset ? {1'b0, SEGMENT_BYTES} : '0);
`ifdef MUTANT_NO_DUPLICATES
  assign is_duplicate = 1'b0;
`else
  assign is_duplicate = arrived[packet_offset];
`endif
  assign fits = packet_end <= bytes_now;
  assign keeps = accepted && !packet_trimmed && !is_duplicate && fits && !is_finished;

  always_comb begin
    arrived_next = arrived;
    segment0_next = segment0;
    segment1_next = segment1;
    payload0_next = payload0;
    payload1_next = payload1;
    if (keeps) begin
      arrived_next[packet_offset] = 1'b1;
      if (packet_offset) begin
        segment1_next = packet_segment;
        payload1_next = packet_payload;
      end else begin
        segment0_next = packet_segment;
        payload0_next = packet_payload;
      end
    end
  end

  // As many packets as this one's message has.
  assign completes = keeps && (class_new ? arrived_next == 2'b11 : (arrived_next[0] != arrived_next[1]));

  assign reply_valid = accepted;
  assign reply_nack = accepted && packet_trimmed;
  assign reply_credit = accepted ? credit_next : '0;
  assign event_duplicate = accepted && !packet_trimmed && is_duplicate;
  assign event_without_buffer = packet_valid && packet_known && !accepted;
  assign give_segment = packet_valid && !keeps;
  assign whole_valid = completes;
  assign whole_bytes = bytes_now;
  assign whole_class = class_now;
  assign whole_segment0 = segment0_next;
  assign whole_payload0 = payload0_next;
  assign whole_second = arrived_next[1];
  assign whole_segment1 = segment1_next;
  assign whole_payload1 = payload1_next;

  always_ff @(posedge clk) begin
    if (accepted && !is_finished) begin
      states[slot] <= {arrived_next, class_now, bytes_now, credit_next,
          segment0_next, segment1_next, payload0_next, payload1_next};
    end
    if (rst) begin
      used <= '0;
      free_1k <= 8'(BUFFERS_1K);
      free_2k <= 8'(BUFFERS_2K);
    end else begin
      if (accepted && !is_finished) used[slot] <= !completes;
      free_1k <= free_1k - {7'b0, opens && !class_new} + {7'b0, leave_valid && !leave_class};
      free_2k <= free_2k - {7'b0, opens && class_new} + {7'b0, leave_valid && leave_class};
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ($onehot0(hit)) else $error("a message has two slots");
      assert (!packet_valid || !(is_partial && is_finished)) else $error("a finished message is still being put together");
      assert (!opens || !used[free_slot]) else $error("no slot is free");
      assert (32'(free_1k) <= BUFFERS_1K && 32'(free_2k) <= BUFFERS_2K) else $error("more buffers are free than there are");
      assert (!completes || arrived_next[0]) else $error("a message is whole without its first packet");
    end
  end
`endif
endmodule
