// The queue behind x31: words that the program has written, each with the context that wrote it, until the NIC takes them.
//
// Writes happen at write-back, where no instruction is killed any more. A full queue means that the NIC was
// built with too little room: the core does not wait for it.
module transmit_queue #(
  // Its room, in words; a power of two.
  parameter int unsigned WORDS = 512,
  // Derived; not to be set.
  parameter int unsigned ADDRESS_BITS = $clog2(WORDS)
) (
  input  logic        clk,
  input  logic        rst,
  input  logic        put,
  input  logic [15:0] put_context,
  input  logic [63:0] put_word,
  output logic        sent_valid,
  output logic [15:0] sent_context,
  output logic [63:0] sent_word,
  input  logic        sent_take
);
  logic [15:0]             contexts [0:WORDS-1];
  logic [ADDRESS_BITS:0]   head, head_next, tail;
  logic [63:0]             front;

  assign sent_valid = head != tail;
  assign sent_context = sent_valid ? contexts[head[ADDRESS_BITS-1:0]] : '0;
  assign sent_word = sent_valid ? front : '0;
  assign head_next = head + {{ADDRESS_BITS{1'b0}}, sent_valid && sent_take};

  always_ff @(posedge clk) begin
    if (put) contexts[tail[ADDRESS_BITS-1:0]] <= put_context;
    if (rst) begin
      head <= '0;
      tail <= '0;
    end else begin
      head <= head_next;
      tail <= tail + {{ADDRESS_BITS{1'b0}}, put};
    end
  end

  word_ram #(.WORDS(WORDS)) i_words (
    .clk(clk),
    .write(put),
    .write_address(tail[ADDRESS_BITS-1:0]),
    .write_word(put_word),
    .read_address(head_next[ADDRESS_BITS-1:0]),
    .read_word(front)
  );

`ifndef SYNTHESIS
  logic [ADDRESS_BITS:0] count;
  assign count = tail - head;
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!put || 32'(count) < WORDS) else $error("the transmit queue is full");
      assert (!sent_take || sent_valid) else $error("the NIC takes a word that is not there");
    end
  end
`endif
endmodule
