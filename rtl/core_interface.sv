// A core's end of the network: x30, x31, the CSRs and the thread scheduler (nanoPU §3).
//
// Reads of CSRs return the registers' values at the beginning of the cycle; a write acts in its cycle, also
// on the words that decode reads in it, and before the NIC's words.
module core_interface #(
  parameter int unsigned CONTEXTS = 4,
  parameter int unsigned MESSAGES = 16,
  parameter int unsigned RECEIVE_WORDS = 1024,
  parameter int unsigned TRANSMIT_WORDS = 512,
  // Bits of times; the two registers that hold cycles have as many.
  parameter int unsigned TIME_BITS = 32,
  // Whether a thread that took too long stays demoted, as on the prototype.
  parameter int unsigned KEEPS_DEMOTIONS = 1,
  parameter int unsigned STAGES = 3
) (
  input  logic              clk,
  input  logic              rst,
  // CSRs, at write-back.
  input  logic [11:0]       csr_number,
  input  logic              csr_write,
  // verilator lint_off UNUSEDSIGNAL
  input  logic [63:0]       csr_value,  // No register holds more than TIME_BITS.
  // verilator lint_on UNUSEDSIGNAL
  output logic [63:0]       csr_read,
  // x31, at write-back.
  input  logic              put,
  input  logic [63:0]       put_word,
  // x30, at decode, and the stages whose instructions are killed.
  input  logic              take,
  output logic              take_valid,
  output logic [63:0]       take_word,
  input  logic [STAGES-1:0] kill,
  output logic              wants_switch,
  // Words from the NIC.
  input  logic              deliver,
  input  logic              deliver_first,
  input  logic [15:0]       deliver_context,
  input  logic [63:0]       deliver_word,
  output logic              deliver_unknown,
  // Words for the NIC.
  output logic              sent_valid,
  output logic [15:0]       sent_context,
  output logic [63:0]       sent_word,
  input  logic              sent_take,
  // A thread is ready for messages; a message of a thread is done.
  output logic              inserted,
  output logic              insert_refused,
  output logic              finished,
  output logic [15:0]       demand_context
);
  localparam int unsigned SLOT_BITS = (CONTEXTS > 1) ? $clog2(CONTEXTS) : 1;
  localparam int unsigned COUNT_BITS = $clog2(RECEIVE_WORDS) + 1;

  localparam logic [11:0] MESSAGES_READY   = 12'h052;
  localparam logic [11:0] CURRENT_CONTEXT  = 12'h053;
  localparam logic [11:0] NIC_COMMAND      = 12'h054;
  localparam logic [11:0] CURRENT_PRIORITY = 12'h055;
  localparam logic [11:0] THREAD_COMMAND   = 12'h056;
  localparam logic [11:0] NIC_READY        = 12'h057;
  localparam logic [11:0] TARGET_CONTEXT   = 12'h058;
  localparam logic [11:0] TARGET_PRIORITY  = 12'h059;
  localparam logic [11:0] MESSAGE_CYCLES   = 12'h060;
  localparam logic [11:0] IDLE_CYCLES      = 12'h061;

  logic [CONTEXTS*COUNT_BITS-1:0] count, count_next;
  logic [CONTEXTS-1:0]            filled;
  logic                           running_valid, deliver_known;
  logic [SLOT_BITS-1:0]           running_slot, deliver_slot;
  logic [15:0]                    running_context, current_context, target_context;
  logic [7:0]                     current_priority, target_priority;
  logic [TIME_BITS-1:0]           message_cycles, idle_cycles;
  // The number of words that wait for the running thread: the program reads the second register.
  logic [COUNT_BITS-1:0]          ready_next, ready;

  for (genvar i = 0; i < CONTEXTS; i++) begin : gen_filled
    assign filled[i] = count[i*COUNT_BITS +: COUNT_BITS] != '0;
  end

  thread_scheduler #(
    .CONTEXTS(CONTEXTS), .MESSAGES(MESSAGES), .TIME_BITS(TIME_BITS), .KEEPS_DEMOTIONS(KEEPS_DEMOTIONS)
  ) i_scheduler (
    .clk(clk),
    .rst(rst),
    .set_context(csr_write && csr_number == CURRENT_CONTEXT),
    .set_priority(csr_write && csr_number == CURRENT_PRIORITY),
    .set_message_cycles(csr_write && csr_number == MESSAGE_CYCLES),
    .set_idle_cycles(csr_write && csr_number == IDLE_CYCLES),
    .insert(csr_write && csr_number == NIC_COMMAND && csr_value[0]),
    .start_timers(csr_write && csr_number == NIC_COMMAND && csr_value[2]),
    .done(csr_write && csr_number == THREAD_COMMAND && csr_value[0]),
    .idle(csr_write && csr_number == THREAD_COMMAND && csr_value[1]),
    .value(csr_value[TIME_BITS-1:0]),
    .filled(filled),
    .deliver(deliver),
    .deliver_first(deliver_first),
    .deliver_context(deliver_context),
    .deliver_known(deliver_known),
    .deliver_slot(deliver_slot),
    .running_context(running_context),
    .running_valid(running_valid),
    .running_slot(running_slot),
    .inserted(inserted),
    .insert_refused(insert_refused),
    .finished(finished),
    .current_context(current_context),
    .current_priority(current_priority),
    .target_context(target_context),
    .target_priority(target_priority),
    .message_cycles(message_cycles),
    .idle_cycles(idle_cycles),
    .wants_switch(wants_switch)
  );

  receive_queue #(.CONTEXTS(CONTEXTS), .WORDS(RECEIVE_WORDS), .STAGES(STAGES)) i_receive (
    .clk(clk),
    .rst(rst),
    .deliver(deliver_known),
    .deliver_slot(deliver_slot),
    .deliver_word(deliver_word),
    .take(take),
    .running_valid(running_valid),
    .running_slot(running_slot),
    .word_valid(take_valid),
    .word(take_word),
    .kill(kill),
    .count(count),
    .count_next(count_next)
  );

  transmit_queue #(.WORDS(TRANSMIT_WORDS)) i_transmit (
    .clk(clk),
    .rst(rst),
    .put(put),
    .put_context(running_context),
    .put_word(put_word),
    .sent_valid(sent_valid),
    .sent_context(sent_context),
    .sent_word(sent_word),
    .sent_take(sent_take)
  );

  assign deliver_unknown = deliver && !deliver_known;
  assign demand_context = (inserted || finished) ? running_context : '0;

  always_comb begin
    case (csr_number)
      MESSAGES_READY:   csr_read = 64'(ready);
      CURRENT_CONTEXT:  csr_read = 64'(current_context);
      CURRENT_PRIORITY: csr_read = 64'(current_priority);
      NIC_READY:        csr_read = 64'd1;
      TARGET_CONTEXT:   csr_read = 64'(target_context);
      TARGET_PRIORITY:  csr_read = 64'(target_priority);
      MESSAGE_CYCLES:   csr_read = 64'(message_cycles);
      IDLE_CYCLES:      csr_read = 64'(idle_cycles);
      default:          csr_read = '0;
    endcase
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      ready_next <= '0;
      ready <= '0;
    end else begin
      ready_next <= running_valid ? count_next[running_slot*COUNT_BITS +: COUNT_BITS] : '0;
      ready <= ready_next;
    end
  end
endmodule
