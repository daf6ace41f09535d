// The queues behind x30: one per thread, with roll-back of killed reads (nanoPU §3.1).
//
// Decode reads speculatively. A word that an instruction has read stays in the memory until the instruction
// has passed the last stage in which it can be killed, and comes back if it is: `kill[0]` says that the
// instruction in execute is killed, `kill[1]` the one in memory, `kill[2]` the one in write-back, for example
// a refused store. Killing a stage always kills those before it.
module receive_queue #(
  parameter int unsigned CONTEXTS = 4,
  // Room of each queue, in words; a power of two.
  parameter int unsigned WORDS = 1024,
  // Stages behind decode in which an instruction can be killed.
  parameter int unsigned STAGES = 3,
  // Derived; not to be set.
  parameter int unsigned SLOT_BITS = (CONTEXTS > 1) ? $clog2(CONTEXTS) : 1,
  parameter int unsigned ADDRESS_BITS = $clog2(WORDS),
  parameter int unsigned COUNT_BITS = ADDRESS_BITS + 1
) (
  input  logic                           clk,
  input  logic                           rst,
  // The NIC brings a word for a thread.
  input  logic                           deliver,
  input  logic [SLOT_BITS-1:0]           deliver_slot,
  input  logic [63:0]                    deliver_word,
  // Decode reads x30 for the thread that runs.
  input  logic                           take,
  input  logic                           running_valid,
  input  logic [SLOT_BITS-1:0]           running_slot,
  output logic                           word_valid,
  output logic [63:0]                    word,
  input  logic [STAGES-1:0]              kill,
  // Words in each queue, before this cycle and after it.
  output logic [CONTEXTS*COUNT_BITS-1:0] count,
  output logic [CONTEXTS*COUNT_BITS-1:0] count_next
);
  // The stages with an instruction that has read, and its queue.
  logic [STAGES-1:0]           read;
  logic [STAGES*SLOT_BITS-1:0] read_slot;
  logic                        takes;
  logic [STAGES-1:0]           comes_back;

  logic [CONTEXTS-1:0]    filled;
  logic [CONTEXTS*64-1:0] heads;

  assign word_valid = take && running_valid && filled[running_slot];
  assign takes = word_valid;
  assign word = word_valid ? heads[running_slot*64 +: 64] : '0;
`ifdef MUTANT_FORGOTTEN_KILL
  assign comes_back = kill & read & {1'b0, {(STAGES-1){1'b1}}};
`else
  assign comes_back = kill & read;
`endif

  always_ff @(posedge clk) begin
    if (rst) begin
      read <= '0;
    end else begin
      read <= {read[STAGES-2:0] & ~kill[STAGES-2:0], takes};
    end
    read_slot <= {read_slot[(STAGES-1)*SLOT_BITS-1:0], running_slot};
  end

  for (genvar slot = 0; slot < CONTEXTS; slot++) begin : gen_queue
    logic [COUNT_BITS-1:0] head, head_next, tail, tail_next, back;
    logic                  delivered;

    always_comb begin
      back = '0;
      for (int unsigned stage = 0; stage < STAGES; stage++) begin
        back = back + {{(COUNT_BITS-1){1'b0}},
            comes_back[stage] && read_slot[stage*SLOT_BITS +: SLOT_BITS] == SLOT_BITS'(slot)};
      end
    end

    assign delivered = deliver && deliver_slot == SLOT_BITS'(slot);
    assign head_next = head - back + {{(COUNT_BITS-1){1'b0}}, takes && running_slot == SLOT_BITS'(slot)};
    assign tail_next = tail + {{(COUNT_BITS-1){1'b0}}, delivered};
    assign count[slot*COUNT_BITS +: COUNT_BITS] = tail - head;
    assign count_next[slot*COUNT_BITS +: COUNT_BITS] = tail_next - head_next;
    assign filled[slot] = tail != head;

    always_ff @(posedge clk) begin
      if (rst) begin
        head <= '0;
        tail <= '0;
      end else begin
        head <= head_next;
        tail <= tail_next;
      end
    end

    word_ram #(.WORDS(WORDS)) i_words (
      .clk(clk),
      .write(delivered),
      .write_address(tail[ADDRESS_BITS-1:0]),
      .write_word(deliver_word),
      .read_address(head_next[ADDRESS_BITS-1:0]),
      .read_word(heads[slot*64 +: 64])
    );

`ifndef SYNTHESIS
    // Words that cannot be overwritten: those that wait, and those that may come back.
    logic [COUNT_BITS-1:0] held;
    always_comb begin
      held = tail - head;
      for (int unsigned stage = 0; stage < STAGES; stage++) begin
        held = held + {{(COUNT_BITS-1){1'b0}},
            read[stage] && read_slot[stage*SLOT_BITS +: SLOT_BITS] == SLOT_BITS'(slot)};
      end
    end
    always_ff @(posedge clk) begin
      if (!rst) begin
        assert (!delivered || 32'(held) < WORDS) else $error("a word of thread %0d has no room", slot);
      end
    end
`endif
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!take || kill == '0) else $error("decode reads although it is killed");
      for (int unsigned stage = 1; stage < STAGES; stage++) begin
        assert (!kill[stage] || kill[stage-1]) else $error("an instruction is killed and not those behind it");
      end
    end
  end
`endif
endmodule
