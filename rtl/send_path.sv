// The sending half of the NIC: from words of the cores and answers to packets, to words on the wire (nanoPU §3.4).
//
// Control packets leave before data.
module send_path #(
  parameter int unsigned ADDRESS = 0,
  parameter int unsigned CORES = 4,
  parameter int unsigned WRITERS = 4,
  parameter int unsigned BUFFERS_1K = 64,
  parameter int unsigned BUFFERS_2K = 64,
  parameter int unsigned RTT_PACKETS = 2,
  parameter int unsigned TIMEOUT_CYCLES = 2240,
  parameter int unsigned PULL_CYCLES = 122,
  parameter int unsigned ROWS = 256,
  parameter int unsigned CONTROLS = 64,
  parameter int unsigned PULLS = 256
) (
  input  logic                clk,
  input  logic                rst,
  // The oldest word behind x31 of each core.
  input  logic [CORES-1:0]    sent_valid,
  input  logic [CORES*16-1:0] sent_context,
  input  logic [CORES*64-1:0] sent_word,
  output logic [CORES-1:0]    sent_take,
  // A packet has left ingress: a DATA packet that is answered, or a control packet.
  input  logic                reply_valid,
  input  logic                reply_nack,
  input  logic [15:0]         reply_credit,
  input  logic                control_valid,
  input  logic [31:0]         packet_source,
  input  logic [31:0]         packet_destination,
  // verilator lint_off UNUSEDSIGNAL
  input  logic [4:0]          packet_flags,  // That it is data or control is known.
  // verilator lint_on UNUSEDSIGNAL
  input  logic [15:0]         packet_source_context,
  input  logic [15:0]         packet_destination_context,
  input  logic [15:0]         packet_bytes,
  input  logic [7:0]          packet_offset,
  input  logic [15:0]         packet_pull,
  input  logic [15:0]         packet_message,
  input  logic [15:0]         packet_buffer,
  input  logic [7:0]          packet_class,
  // The wire.
  output logic                wire_valid,
  output logic                wire_last,
  output logic [63:0]         wire_word,
  // For counters.
  output logic                event_begun,
  output logic                event_oversized,
  output logic                event_delivered,
  output logic                event_timeout
);
  localparam int unsigned PACKET_BITS = 32 + 32 + 16 + 16 + 16 + 8 + 16 + 16 + 8;
  localparam logic [4:0] DATA = 5'd1;

  logic [PACKET_BITS-1:0] answer_packet, next_packet;
  logic                   next_control, ready, takes_control;
  logic [4:0]             next_flags;
  logic [15:0]            next_pull;

  // Addresses and contexts change places.
  assign answer_packet = {packet_destination, packet_source, packet_destination_context, packet_source_context,
      packet_bytes, packet_offset, packet_message, packet_buffer, packet_class};

  control_generator #(
    .PULL_CYCLES(PULL_CYCLES), .CONTROLS(CONTROLS), .PULLS(PULLS), .PACKET_BITS(PACKET_BITS)
  ) i_control (
    .clk(clk),
    .rst(rst),
    .answer_valid(reply_valid),
    .answer_nack(reply_nack),
    .answer_credit(reply_credit),
    .answer_pull(packet_pull),
    .answer_packet(answer_packet),
    .valid(next_control),
    .flags(next_flags),
    .pull(next_pull),
    .packet(next_packet),
    .pop(takes_control)
  );

  logic        leaves, leaves_offset, leaves_class, reading;
  logic [31:0] leaves_peer;
  logic [15:0] leaves_context, leaves_peer_context, leaves_bytes, leaves_message, leaves_buffer;
  logic [10:0] leaves_payload;
  logic [6:0]  read_index;
  logic [63:0] read_word;

  assign takes_control = ready && next_control;

  packetizer #(
    .CORES(CORES), .WRITERS(WRITERS), .BUFFERS_1K(BUFFERS_1K), .BUFFERS_2K(BUFFERS_2K),
    .RTT_PACKETS(RTT_PACKETS), .TIMEOUT_CYCLES(TIMEOUT_CYCLES), .ROWS(ROWS)
  ) i_packetizer (
    .clk(clk),
    .rst(rst),
    .sent_valid(sent_valid),
    .sent_context(sent_context),
    .sent_word(sent_word),
    .sent_take(sent_take),
    .control_valid(control_valid),
    .control_source(packet_source),
    .control_flags(packet_flags[3:1]),
    .control_offset(packet_offset),
    .control_pull(packet_pull),
    .control_message(packet_message),
    .control_buffer(packet_buffer),
    .pick(ready && !next_control),
    .leaves(leaves),
    .leaves_peer(leaves_peer),
    .leaves_context(leaves_context),
    .leaves_peer_context(leaves_peer_context),
    .leaves_bytes(leaves_bytes),
    .leaves_offset(leaves_offset),
    .leaves_message(leaves_message),
    .leaves_buffer(leaves_buffer),
    .leaves_class(leaves_class),
    .leaves_payload(leaves_payload),
    .reading(reading),
    .read_index(read_index),
    .read_word(read_word),
    .event_begun(event_begun),
    .event_oversized(event_oversized),
    .event_delivered(event_delivered),
    .event_timeout(event_timeout)
  );

  logic [PACKET_BITS-1:0] data_packet, out_packet;
  logic [31:0]            out_source, out_destination;
  logic [15:0]            out_source_context, out_destination_context, out_bytes, out_message, out_buffer;
  logic [7:0]             out_offset, out_class;

  assign data_packet = {32'(ADDRESS), leaves_peer, leaves_context, leaves_peer_context, leaves_bytes,
      7'b0, leaves_offset, leaves_message, leaves_buffer, 7'b0, leaves_class};
  assign out_packet = next_control ? next_packet : data_packet;
  assign {out_source, out_destination, out_source_context, out_destination_context, out_bytes, out_offset,
      out_message, out_buffer, out_class} = out_packet;

  egress i_egress (
    .clk(clk),
    .rst(rst),
    .ready(ready),
    .start(takes_control || leaves),
    .source(out_source),
    .destination(out_destination),
    .flags(next_control ? next_flags : DATA),
    .source_context(out_source_context),
    .destination_context(out_destination_context),
    .bytes(out_bytes),
    .offset(out_offset),
    .pull(next_control ? next_pull : '0),
    .message(out_message),
    .buffer(out_buffer),
    .size_class(out_class),
    .payload(next_control ? '0 : leaves_payload),
    .reading(reading),
    .read_index(read_index),
    .read_word(read_word),
    .wire_valid(wire_valid),
    .wire_last(wire_last),
    .wire_word(wire_word)
  );
endmodule
