// A packet on the wire: the eight words of its headers, then its payload, a word per cycle from the cycle after it was picked.
module egress (
  input  logic        clk,
  input  logic        rst,
  // The wire takes another packet in this cycle.
  output logic        ready,
  input  logic        start,
  input  logic [31:0] source,
  input  logic [31:0] destination,
  input  logic [4:0]  flags,
  input  logic [15:0] source_context,
  input  logic [15:0] destination_context,
  input  logic [15:0] bytes,
  input  logic [7:0]  offset,
  input  logic [15:0] pull,
  input  logic [15:0] message,
  input  logic [15:0] buffer,
  input  logic [7:0]  size_class,
  input  logic [10:0] payload,
  // The payload's word of this index comes in the next cycle.
  output logic        reading,
  output logic [6:0]  read_index,
  input  logic [63:0] read_word,
  output logic        wire_valid,
  output logic        wire_last,
  output logic [63:0] wire_word
);
  localparam logic [7:0] HEADER_WORDS = 8'd8;

  logic         busy;
  logic [7:0]   index, last;
  logic [180:0] fields;
  logic [10:0]  payload_now;
  logic [63:0]  word1, word2, word3, word4, word5, word6;
  logic [10:0]  left;
  logic [7:0]   next_index;

  assign ready = !busy || index == last;
  assign reading = busy;
  assign next_index = index + 8'd1;
  assign read_index = 7'(next_index - HEADER_WORDS);
  assign left = payload_now - {1'b0, 7'(index - HEADER_WORDS), 3'b0};

  logic [31:0] to_source, to_destination;
  logic [4:0]  to_flags;
  logic [15:0] to_source_context, to_destination_context, to_bytes, to_pull, to_message, to_buffer;
  logic [7:0]  to_offset, to_class;
  assign {to_source, to_destination, to_flags, to_source_context, to_destination_context, to_bytes, to_offset,
      to_pull, to_message, to_buffer, to_class} = fields;

  // Ethernet with IPv4 in it; the addresses of the former and the checksum of the latter stay empty.
  assign word1 = {32'b0, 16'h0800, 8'h45, 8'h00};
  assign word2 = {16'd50 + 16'(payload_now), 32'b0, 8'd64, 8'h99};
  assign word3 = {16'b0, to_source, to_destination[31:16]};
  assign word4 = {to_destination[15:0], 3'b0, to_flags, to_source_context, to_destination_context, to_bytes[15:8]};
  assign word5 = {to_bytes[7:0], to_offset, to_pull, to_message, to_buffer};
  assign word6 = {to_class, 56'b0};

  always_comb begin
    case (index)
      8'd0, 8'd7: wire_word = '0;
      8'd1: wire_word = word1;
      8'd2: wire_word = word2;
      8'd3: wire_word = word3;
      8'd4: wire_word = word4;
      8'd5: wire_word = word5;
      8'd6: wire_word = word6;
      default: wire_word = (left >= 11'd8) ? read_word : read_word & ~(64'hffff_ffff_ffff_ffff >> {left[2:0], 3'b0});
    endcase
    if (!busy) wire_word = '0;
  end

  assign wire_valid = busy;
  assign wire_last = busy && index == last;

  always_ff @(posedge clk) begin
    if (start) begin
      fields <= {source, destination, flags, source_context, destination_context, bytes, offset, pull,
          message, buffer, size_class};
      payload_now <= payload;
      last <= HEADER_WORDS - 8'd1 + 8'((payload + 11'd7) >> 3);
      index <= '0;
    end else begin
      index <= next_index;
    end
    if (rst) busy <= 1'b0;
    else busy <= start || !ready;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) assert (!start || ready) else $error("two packets on the wire");
  end
`endif
endmodule
