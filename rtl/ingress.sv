// Packets from the 64-bit interface: headers are read, payload goes into a segment of the buffer memory, and seven cycles after its
// last word the packet leaves, if it is one of this protocol (nanoPU §3.4).
//
// A frame shorter than the eight words of the headers is ignored, so there is never more than one packet
// between its last word and its way out.
module ingress #(
  parameter int unsigned SEGMENT_BITS = 8
) (
  input  logic                    clk,
  input  logic                    rst,
  input  logic                    wire_valid,
  input  logic                    wire_last,
  input  logic [63:0]             wire_word,
  // The segment that the next packet may fill.
  input  logic [SEGMENT_BITS-1:0] free_segment,
  output logic                    take_segment,
  // Words of payload.
  output logic                    write,
  output logic [SEGMENT_BITS+6:0] write_address,
  output logic [63:0]             write_word,
  // A packet leaves; `packet_flags` tells its kind. `packet_dropped`: the frame was no packet, and its
  // segment is free again.
  output logic                    packet_valid,
  output logic                    packet_dropped,
  output logic [SEGMENT_BITS-1:0] packet_segment,
  output logic [10:0]             packet_payload,
  output logic [31:0]             packet_source,
  output logic [31:0]             packet_destination,
  output logic [4:0]              packet_flags,
  output logic [15:0]             packet_source_context,
  output logic [15:0]             packet_destination_context,
  output logic [15:0]             packet_bytes,
  output logic [7:0]              packet_offset,
  output logic [15:0]             packet_pull,
  output logic [15:0]             packet_message,
  output logic [15:0]             packet_buffer,
  output logic [7:0]              packet_class
);
  localparam int unsigned CYCLES = 7;
  localparam int unsigned HEADER_WORDS = 8;
  localparam logic [15:0] SEGMENT_BYTES = 16'd1024;
  localparam logic [15:0] MESSAGE_BYTES = 16'd2048;

  // The packet that is coming in. Byte n of the headers is byte 7 - n % 8 of word n / 8.
  logic [7:0]              index;
  logic [SEGMENT_BITS-1:0] segment;
  // verilator lint_off UNUSEDSIGNAL
  logic [63:0]             word1, word2, word3, word4, word5, word6;  // Addresses of Ethernet and more are not looked at.
  // verilator lint_on UNUSEDSIGNAL

  // The fields, once the last word of the headers is there.
  logic [4:0]  flags;
  logic [15:0] bytes, start, expected;
  logic [7:0]  offset;
  logic        is_foreign, has_bad_flags, is_no_part, is_short, carries, ends;
  logic [10:0] words_expected;

  assign flags = word4[44:40];
  assign bytes = {word4[7:0], word5[63:56]};
  assign offset = word5[55:48];
  assign start = {offset[5:0], 10'b0};
  assign is_foreign = word1[31:16] != 16'h0800 || word1[15:8] != 8'h45 || word2[7:0] != 8'h99;
  // It is either data or control, and has no unknown flags.
  assign has_bad_flags = word4[47:45] != '0 || flags[0] == (flags[3:1] != '0);
  assign is_no_part = flags[0] && (bytes > MESSAGE_BYTES || (offset != '0 && (offset > 8'd1 || bytes <= SEGMENT_BYTES)));
  assign carries = flags[0] && !flags[4];
  assign expected = (!carries || bytes <= start) ? '0 : (bytes - start > SEGMENT_BYTES) ? SEGMENT_BYTES : bytes - start;
  assign words_expected = 11'((expected + 16'd7) >> 3) + 11'(HEADER_WORDS);
  assign is_short = 11'(index) + 11'd1 < words_expected;

  assign ends = wire_valid && wire_last && index >= 8'(HEADER_WORDS - 1);
  assign take_segment = ends;
  assign write = wire_valid && index >= 8'(HEADER_WORDS) && index < 8'(HEADER_WORDS + 128);
  assign write_address = {segment, 7'(index - 8'(HEADER_WORDS))};
  assign write_word = wire_word;

  // The packet on its way out.
  logic [SEGMENT_BITS-1:0] held_segment;
  logic [10:0]             held_payload;
  logic [180:0]            held;
  logic [CYCLES-1:0] delay;
  logic              is_good;

  always_ff @(posedge clk) begin
    if (wire_valid) begin
      case (index)
        8'd1: word1 <= wire_word;
        8'd2: word2 <= wire_word;
        8'd3: word3 <= wire_word;
        8'd4: word4 <= wire_word;
        8'd5: word5 <= wire_word;
        8'd6: word6 <= wire_word;
        default: ;
      endcase
    end
    if (ends) begin
      is_good <= !is_foreign && !has_bad_flags && !is_no_part && !is_short;
      held_segment <= segment;
      held_payload <= expected[10:0];
      held <= {word3[47:16], word3[15:0], word4[63:48], flags, word4[39:24], word4[23:8], bytes, offset,
          word5[47:32], word5[31:16], word5[15:0], word6[63:56]};
    end
    if (rst) begin
      index <= '0;
      segment <= '0;
      delay <= '0;
    end else begin
      if (wire_valid) begin
        // Longer than a packet can be: further words are ignored.
        index <= wire_last ? '0 : (index == '1) ? index : index + 8'd1;
        if (ends) segment <= free_segment;
      end
      delay <= {delay[CYCLES-2:0], ends};
    end
  end

  assign packet_valid = delay[CYCLES-1] && is_good;
  assign packet_segment = held_segment;
  assign packet_payload = held_payload;
  assign {packet_source, packet_destination, packet_flags, packet_source_context, packet_destination_context,
      packet_bytes, packet_offset, packet_pull, packet_message, packet_buffer, packet_class} = packet_valid ? held : '0;
  assign packet_dropped = delay[CYCLES-1] && !is_good;

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!ends || delay[CYCLES-2:0] == '0) else $error("a packet overtakes another");
    end
  end
`endif
endmodule
