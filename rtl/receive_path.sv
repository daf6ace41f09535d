// The receiving half of the NIC: from words on the wire to words for the cores (nanoPU §3.4).
//
// wire -> ingress -> reassembly -> core selection, per context -> dispatch -> cores
//
// In a cycle the cores' demands come first, then the packet that leaves ingress, then the message that leaves reassembly.
module receive_path #(
  parameter int unsigned CORES = 4,
  parameter int unsigned BOUND = 2,
  parameter int unsigned HASHED = 0,
  // Contexts of all cores together.
  parameter int unsigned CONTEXTS = 4,
  parameter int unsigned BUFFERS_1K = 64,
  parameter int unsigned BUFFERS_2K = 64,
  parameter int unsigned RTT_PACKETS = 2,
  parameter int unsigned SENDER_BITS = 2,
  parameter int unsigned REMEMBERED = 64,
  // Derived; not to be set.
  parameter int unsigned CORE_BITS = (CORES > 1) ? $clog2(CORES) : 1
) (
  input  logic                 clk,
  input  logic                 rst,
  input  logic                 wire_valid,
  input  logic                 wire_last,
  input  logic [63:0]          wire_word,
  // Demands: a core has a thread for a context, or has finished a message of one.
  input  logic [CORES-1:0]     inserted,
  input  logic [CORES-1:0]     finished,
  input  logic [CORES*16-1:0]  demand_context,
  // Words for the cores.
  output logic                 deliver,
  output logic                 deliver_first,
  output logic [CORE_BITS-1:0] deliver_core,
  output logic [15:0]          deliver_context,
  output logic [63:0]          deliver_word,
  // A DATA packet leaves ingress and is answered, or a control packet does. Addresses and contexts are the packet's own, not the answer's.
  output logic                 reply_valid,
  output logic                 reply_nack,
  output logic [15:0]          reply_credit,
  output logic                 control_valid,
  output logic [31:0]          packet_source,
  output logic [31:0]          packet_destination,
  output logic [4:0]           packet_flags,
  output logic [15:0]          packet_source_context,
  output logic [15:0]          packet_destination_context,
  output logic [15:0]          packet_bytes,
  output logic [7:0]           packet_offset,
  output logic [15:0]          packet_pull,
  output logic [15:0]          packet_message,
  output logic [15:0]          packet_buffer,
  output logic [7:0]           packet_class,
  // For counters.
  output logic                 event_dropped,
  output logic                 event_duplicate,
  output logic                 event_without_buffer,
  output logic                 event_unknown_context,
  output logic                 event_message
);
  // The memory can hold one message more of each class than there are buffers: the one that leaves; and the
  // packet that comes in, and the one in ingress.
  localparam int unsigned SEGMENTS = BUFFERS_1K + 2 * BUFFERS_2K + 2 + 3;
  localparam int unsigned SEGMENT_BITS = $clog2(SEGMENTS);
  // A message is known by its first segment.
  localparam int unsigned MESSAGE_BITS = SEGMENT_BITS;
  localparam int unsigned TAKES = (HASHED == 0 && BOUND > 1) ? BOUND : 1;
  localparam int unsigned PLACES = CORES * TAKES + 1;
  localparam int unsigned SLOT_BITS = (CONTEXTS > 1) ? $clog2(CONTEXTS) : 1;
  localparam int unsigned USED_BITS = $clog2(CONTEXTS + 1);

  logic                    packet_valid, packet_dropped, take_segment, write;
  logic [SEGMENT_BITS-1:0] free_segment, packet_segment;
  logic [SEGMENT_BITS+6:0] write_address, read_address;
  logic [63:0]             write_word, read_word;
  logic [10:0]             packet_payload;
  logic                    is_data, data_valid, gives_packet;
  logic [1:0]              gives;
  logic [2*SEGMENT_BITS-1:0] gives_segment;
  logic                    leave_valid, leave_class;

  ingress #(.SEGMENT_BITS(SEGMENT_BITS)) i_ingress (
    .clk(clk),
    .rst(rst),
    .wire_valid(wire_valid),
    .wire_last(wire_last),
    .wire_word(wire_word),
    .free_segment(free_segment),
    .take_segment(take_segment),
    .write(write),
    .write_address(write_address),
    .write_word(write_word),
    .packet_valid(packet_valid),
    .packet_dropped(packet_dropped),
    .packet_segment(packet_segment),
    .packet_payload(packet_payload),
    .packet_source(packet_source),
    .packet_destination(packet_destination),
    .packet_flags(packet_flags),
    .packet_source_context(packet_source_context),
    .packet_destination_context(packet_destination_context),
    .packet_bytes(packet_bytes),
    .packet_offset(packet_offset),
    .packet_pull(packet_pull),
    .packet_message(packet_message),
    .packet_buffer(packet_buffer),
    .packet_class(packet_class)
  );

  assign is_data = packet_flags[0];
  assign data_valid = packet_valid && is_data;
  assign control_valid = packet_valid && !is_data;

  segment_pool #(.SEGMENTS(SEGMENTS), .SEGMENT_BITS(SEGMENT_BITS)) i_pool (
    .clk(clk),
    .rst(rst),
    .take(take_segment),
    .free_segment(free_segment),
    .give({gives, gives_packet || packet_dropped || control_valid}),
    .give_segment({gives_segment, packet_segment})
  );

  word_ram #(.WORDS(1 << (SEGMENT_BITS + 7))) i_buffers (
    .clk(clk),
    .write(write),
    .write_address(write_address),
    .write_word(write_word),
    .read_address(read_address),
    .read_word(read_word)
  );

  // Contexts that a core has made known, in that order.
  logic [CONTEXTS*16-1:0]    ids, ids_next;
  logic [USED_BITS-1:0]      used, used_next;
  logic [CORES*CONTEXTS-1:0] demands;
  logic                      is_known, refuses;
  logic [SLOT_BITS-1:0]      packet_slot;

  always_comb begin
    ids_next = ids;
    used_next = used;
    refuses = 1'b0;
    for (int unsigned core = 0; core < CORES; core++) begin
      for (int unsigned i = 0; i < CONTEXTS; i++) begin
        demands[core*CONTEXTS+i] = i < 32'(used_next) && ids_next[i*16 +: 16] == demand_context[core*16 +: 16];
      end
      if (inserted[core] && demands[core*CONTEXTS +: CONTEXTS] == '0) begin
        refuses = refuses || 32'(used_next) == CONTEXTS;
        for (int unsigned i = 0; i < CONTEXTS; i++) begin
          if (i == 32'(used_next)) begin
            ids_next[i*16 +: 16] = demand_context[core*16 +: 16];
            demands[core*CONTEXTS+i] = 1'b1;
          end
        end
        if (32'(used_next) < CONTEXTS) used_next = used_next + {{(USED_BITS-1){1'b0}}, 1'b1};
      end
    end
  end

  always_comb begin
    is_known = 1'b0;
    packet_slot = '0;
    for (int unsigned i = 0; i < CONTEXTS; i++) begin
      if (i < 32'(used_next) && ids_next[i*16 +: 16] == packet_destination_context) begin
        is_known = 1'b1;
        packet_slot = SLOT_BITS'(i);
      end
    end
  end

  logic                    whole_valid, whole_class, whole_second;
  logic [11:0]             whole_bytes;
  logic [SEGMENT_BITS-1:0] whole_segment0, whole_segment1;
  logic [10:0]             whole_payload0, whole_payload1;

  reassembly #(
    .BUFFERS_1K(BUFFERS_1K), .BUFFERS_2K(BUFFERS_2K), .RTT_PACKETS(RTT_PACKETS),
    .SENDER_BITS(SENDER_BITS), .REMEMBERED(REMEMBERED), .SEGMENT_BITS(SEGMENT_BITS)
  ) i_reassembly (
    .clk(clk),
    .rst(rst),
    .packet_valid(data_valid),
    .packet_known(is_known),
    .packet_segment(packet_segment),
    .packet_payload(packet_payload),
    .packet_source(packet_source),
    .packet_trimmed(packet_flags[4]),
    .packet_bytes(packet_bytes),
    .packet_offset(packet_offset[0]),
    .packet_message(packet_message),
    .reply_valid(reply_valid),
    .reply_nack(reply_nack),
    .reply_credit(reply_credit),
    .event_duplicate(event_duplicate),
    .event_without_buffer(event_without_buffer),
    .give_segment(gives_packet),
    .whole_valid(whole_valid),
    .whole_bytes(whole_bytes),
    .whole_class(whole_class),
    .whole_segment0(whole_segment0),
    .whole_payload0(whole_payload0),
    .whole_second(whole_second),
    .whole_segment1(whole_segment1),
    .whole_payload1(whole_payload1),
    .leave_valid(leave_valid),
    .leave_class(leave_class)
  );

  // The data of a complete message: the program's header, its context, and the place of its payload.
  localparam int unsigned RECORD_BITS = 64 + 16 + 12 + 1 + 11 + 1 + SEGMENT_BITS + 11;
  logic [RECORD_BITS-1:0] records [0:(1<<MESSAGE_BITS)-1];

  // Whole messages on their way to core selection: three cycles, and then a queue of the data for selection.
  localparam int unsigned WHOLE_BITS = MESSAGE_BITS + SLOT_BITS + CORE_BITS + 6;
  logic [CORE_BITS-1:0]    whole_core;
  logic [WHOLE_BITS-1:0]   whole_in, whole_1, whole_2, whole_out;
  logic                    whole_valid_1, whole_valid_2;
  logic [WHOLE_BITS-1:0]   wholes [0:(1<<MESSAGE_BITS)-1];
  logic [MESSAGE_BITS-1:0] whole_head, whole_tail;
  logic [MESSAGE_BITS:0]   whole_count;
  // Cycles in which the buffer is still being read for the message that left last, 64 bytes in each.
  logic [5:0]              reading;

  flow_hash #(.CORES(CORES)) i_hash (.source(packet_source), .source_context(packet_source_context), .core(whole_core));

  assign whole_in = {whole_segment0, packet_slot, whole_core, whole_bytes[11:6]};
  assign whole_out = wholes[whole_head];

  logic                    arrives;
  logic [MESSAGE_BITS-1:0] arrives_message;
  logic [SLOT_BITS-1:0]    arrives_slot;
  logic [CORE_BITS-1:0]    arrives_hash;
  logic [5:0]              arrives_cycles;
  assign arrives = whole_count != '0 && reading == '0;
  assign {arrives_message, arrives_slot, arrives_hash, arrives_cycles} = whole_out;

  always_ff @(posedge clk) begin
    if (whole_valid) begin
      records[whole_segment0] <= {packet_source, packet_source_context, packet_bytes, packet_destination_context,
          whole_bytes, whole_class, whole_payload0, whole_second, whole_segment1, whole_payload1};
    end
    whole_1 <= whole_in;
    whole_2 <= whole_1;
    if (whole_valid_2) wholes[whole_tail] <= whole_2;
    ids <= ids_next;
    if (rst) begin
      used <= '0;
      whole_valid_1 <= 1'b0;
      whole_valid_2 <= 1'b0;
      whole_head <= '0;
      whole_tail <= '0;
      whole_count <= '0;
      reading <= '0;
    end else begin
      used <= used_next;
      whole_valid_1 <= whole_valid;
      whole_valid_2 <= whole_valid_1;
      whole_tail <= whole_tail + {{(MESSAGE_BITS-1){1'b0}}, whole_valid_2};
      whole_head <= whole_head + {{(MESSAGE_BITS-1){1'b0}}, arrives};
      whole_count <= whole_count + {{MESSAGE_BITS{1'b0}}, whole_valid_2} - {{MESSAGE_BITS{1'b0}}, arrives};
      reading <= arrives ? arrives_cycles : (reading != '0) ? reading - 6'd1 : '0;
    end
  end

  // A selector per context. Of a core, one selector at most has something in a cycle.
  logic [CONTEXTS*CORES*TAKES-1:0]              next_valid;
  logic [CONTEXTS*CORES*TAKES*MESSAGE_BITS-1:0] next_message;
  logic [CONTEXTS-1:0]                          given_valid;
  logic [CONTEXTS*CORE_BITS-1:0]                given_core;

  for (genvar i = 0; i < CONTEXTS; i++) begin : gen_selector
    logic [CORES-1:0] is_for;
    for (genvar core = 0; core < CORES; core++) begin : gen_demand
      assign is_for[core] = demands[core*CONTEXTS+i];
    end
    core_selector #(.CORES(CORES), .BOUND(BOUND), .HASHED(HASHED), .MESSAGE_BITS(MESSAGE_BITS)) i_selector (
      .clk(clk),
      .rst(rst),
      .join_core(inserted & is_for),
      .finish(finished & is_for),
      .next_valid(next_valid[i*CORES*TAKES +: CORES*TAKES]),
      .next_message(next_message[i*CORES*TAKES*MESSAGE_BITS +: CORES*TAKES*MESSAGE_BITS]),
      .arrive_valid(arrives && arrives_slot == SLOT_BITS'(i)),
      .arrive_message(arrives_message),
      .arrive_hash(arrives_hash),
      .given_valid(given_valid[i]),
      .given_core(given_core[i*CORE_BITS +: CORE_BITS]),
      // verilator lint_off PINCONNECTEMPTY
      .outstanding(),
      .waiting()
      // verilator lint_on PINCONNECTEMPTY
    );
  end

  logic [PLACES-1:0]              assign_valid;
  logic [PLACES*MESSAGE_BITS-1:0] assign_message;
  logic [PLACES*CORE_BITS-1:0]    assign_core;

  always_comb begin
    assign_valid = '0;
    assign_message = '0;
    assign_core = '0;
    for (int unsigned i = 0; i < CONTEXTS; i++) begin
      assign_valid[PLACES-2:0] = assign_valid[PLACES-2:0] | next_valid[i*CORES*TAKES +: CORES*TAKES];
      assign_message[(PLACES-1)*MESSAGE_BITS-1:0] = assign_message[(PLACES-1)*MESSAGE_BITS-1:0]
          | next_message[i*CORES*TAKES*MESSAGE_BITS +: CORES*TAKES*MESSAGE_BITS];
      assign_core[(PLACES-1)*CORE_BITS +: CORE_BITS] =
          assign_core[(PLACES-1)*CORE_BITS +: CORE_BITS] | given_core[i*CORE_BITS +: CORE_BITS];
    end
    for (int unsigned place = 0; place < PLACES - 1; place++) begin
      assign_core[place*CORE_BITS +: CORE_BITS] = CORE_BITS'(place / TAKES);
    end
    assign_valid[PLACES-1] = given_valid != '0;
    assign_message[(PLACES-1)*MESSAGE_BITS +: MESSAGE_BITS] = arrives_message;
  end

  logic [MESSAGE_BITS-1:0] ask_message;
  logic [63:0]             said_header;
  logic [15:0]             said_context;
  logic [11:0]             said_bytes;
  logic                    said_class, said_second;
  logic [10:0]             said_payload0, said_payload1;
  logic [SEGMENT_BITS-1:0] said_segment1;

  assign {said_header, said_context, said_bytes, said_class, said_payload0, said_second, said_segment1, said_payload1} =
      records[ask_message];

  dispatch #(.CORES(CORES), .PLACES(PLACES), .MESSAGE_BITS(MESSAGE_BITS), .SEGMENT_BITS(SEGMENT_BITS)) i_dispatch (
    .clk(clk),
    .rst(rst),
    .assign_valid(assign_valid),
    .assign_message(assign_message),
    .assign_core(assign_core),
    .ask_message(ask_message),
    .said_header(said_header),
    .said_context(said_context),
    .said_bytes(said_bytes),
    .said_class(said_class),
    .said_payload0(said_payload0),
    .said_second(said_second),
    .said_segment1(said_segment1),
    .said_payload1(said_payload1),
    .read_address(read_address),
    .read_word(read_word),
    .deliver(deliver),
    .deliver_first(deliver_first),
    .deliver_core(deliver_core),
    .deliver_context(deliver_context),
    .deliver_word(deliver_word),
    .leave_valid(leave_valid),
    .leave_class(leave_class),
    .give(gives),
    .give_segment(gives_segment)
  );

  assign event_dropped = packet_dropped;
  assign event_unknown_context = data_valid && !is_known;
  assign event_message = whole_valid;

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) assert (!refuses) else $error("more contexts than the NIC has room for");
  end
`endif
endmodule
