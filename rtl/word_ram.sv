// A memory of 64-bit words with one write port and one read port, as block RAMs have it: the word of this cycle's address comes
// in the next one, and is the new one if it is written in this cycle.
module word_ram #(
  parameter int unsigned WORDS = 1024,
  // Derived; not to be set.
  parameter int unsigned ADDRESS_BITS = $clog2(WORDS)
) (
  input  logic                    clk,
  input  logic                    write,
  input  logic [ADDRESS_BITS-1:0] write_address,
  input  logic [63:0]             write_word,
  input  logic [ADDRESS_BITS-1:0] read_address,
  output logic [63:0]             read_word
);
  logic [63:0] words [0:WORDS-1];
  logic [63:0] stored, written;
  logic        is_written;

  always_ff @(posedge clk) begin
    if (write) words[write_address] <= write_word;
    stored <= words[read_address];
    written <= write_word;
    is_written <= write && write_address == read_address;
  end

  assign read_word = is_written ? written : stored;
endmodule
