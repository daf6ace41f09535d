// Everything between the cores' pipelines and the wire: a core's end of the network for each core, and both halves of the NIC.
module nanopu_network #(
  parameter int unsigned ADDRESS = 0,
  parameter int unsigned CORES = 4,
  parameter int unsigned BOUND = 2,
  parameter int unsigned HASHED = 0,
  // Threads of a core; and contexts of all cores together.
  parameter int unsigned THREADS = 4,
  parameter int unsigned CONTEXTS = 4,
  parameter int unsigned BUFFERS_1K = 64,
  parameter int unsigned BUFFERS_2K = 64,
  parameter int unsigned RTT_PACKETS = 2,
  parameter int unsigned TIMEOUT_CYCLES = 2240,
  parameter int unsigned PULL_CYCLES = 122,
  parameter int unsigned SENDER_BITS = 2,
  parameter int unsigned RECEIVE_WORDS = 1024,
  parameter int unsigned TRANSMIT_WORDS = 512,
  parameter int unsigned STAGES = 3
) (
  input  logic                    clk,
  input  logic                    rst,
  input  logic                    in_valid,
  input  logic                    in_last,
  input  logic [63:0]             in_word,
  output logic                    out_valid,
  output logic                    out_last,
  output logic [63:0]             out_word,
  // Of each core: CSRs and x31 at write-back, x30 at decode, the stages that are killed, the interrupt.
  input  logic [CORES*12-1:0]     csr_number,
  input  logic [CORES-1:0]        csr_write,
  input  logic [CORES*64-1:0]     csr_value,
  output logic [CORES*64-1:0]     csr_read,
  input  logic [CORES-1:0]        put,
  input  logic [CORES*64-1:0]     put_word,
  input  logic [CORES-1:0]        take,
  output logic [CORES-1:0]        take_valid,
  output logic [CORES*64-1:0]     take_word,
  input  logic [CORES*STAGES-1:0] kill,
  output logic [CORES-1:0]        wants_switch
);
  localparam int unsigned CORE_BITS = (CORES > 1) ? $clog2(CORES) : 1;

  logic [CORES-1:0]     inserted, finished, sent_valid, sent_take;
  logic [CORES*16-1:0]  demand_context, sent_context;
  logic [CORES*64-1:0]  sent_word;
  logic                 deliver, deliver_first;
  logic [CORE_BITS-1:0] deliver_core;
  logic [15:0]          deliver_context;
  logic [63:0]          deliver_word;

  for (genvar core = 0; core < CORES; core++) begin : gen_core
    core_interface #(
      .CONTEXTS(THREADS), .RECEIVE_WORDS(RECEIVE_WORDS), .TRANSMIT_WORDS(TRANSMIT_WORDS), .STAGES(STAGES)
    ) i_core (
      .clk(clk),
      .rst(rst),
      .csr_number(csr_number[core*12 +: 12]),
      .csr_write(csr_write[core]),
      .csr_value(csr_value[core*64 +: 64]),
      .csr_read(csr_read[core*64 +: 64]),
      .put(put[core]),
      .put_word(put_word[core*64 +: 64]),
      .take(take[core]),
      .take_valid(take_valid[core]),
      .take_word(take_word[core*64 +: 64]),
      .kill(kill[core*STAGES +: STAGES]),
      .wants_switch(wants_switch[core]),
      .deliver(deliver && deliver_core == CORE_BITS'(core)),
      .deliver_first(deliver_first),
      .deliver_context(deliver_context),
      .deliver_word(deliver_word),
      .sent_valid(sent_valid[core]),
      .sent_context(sent_context[core*16 +: 16]),
      .sent_word(sent_word[core*64 +: 64]),
      .sent_take(sent_take[core]),
      .inserted(inserted[core]),
      .finished(finished[core]),
      .demand_context(demand_context[core*16 +: 16]),
      // verilator lint_off PINCONNECTEMPTY
      .deliver_unknown(),
      .insert_refused()
      // verilator lint_on PINCONNECTEMPTY
    );
  end

  logic        reply_valid, reply_nack, control_valid;
  logic [15:0] reply_credit;
  logic [31:0] packet_source, packet_destination;
  logic [4:0]  packet_flags;
  logic [15:0] packet_source_context, packet_destination_context, packet_bytes, packet_pull, packet_message;
  logic [15:0] packet_buffer;
  logic [7:0]  packet_offset, packet_class;

  receive_path #(
    .CORES(CORES), .BOUND(BOUND), .HASHED(HASHED), .CONTEXTS(CONTEXTS), .BUFFERS_1K(BUFFERS_1K),
    .BUFFERS_2K(BUFFERS_2K), .RTT_PACKETS(RTT_PACKETS), .SENDER_BITS(SENDER_BITS)
  ) i_receive (
    .clk(clk),
    .rst(rst),
    .wire_valid(in_valid),
    .wire_last(in_last),
    .wire_word(in_word),
    .inserted(inserted),
    .finished(finished),
    .demand_context(demand_context),
    .deliver(deliver),
    .deliver_first(deliver_first),
    .deliver_core(deliver_core),
    .deliver_context(deliver_context),
    .deliver_word(deliver_word),
    .reply_valid(reply_valid),
    .reply_nack(reply_nack),
    .reply_credit(reply_credit),
    .control_valid(control_valid),
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
    .packet_class(packet_class),
    // verilator lint_off PINCONNECTEMPTY
    .event_dropped(),
    .event_duplicate(),
    .event_without_buffer(),
    .event_unknown_context(),
    .event_message()
    // verilator lint_on PINCONNECTEMPTY
  );

  send_path #(
    .ADDRESS(ADDRESS), .CORES(CORES), .WRITERS(THREADS), .BUFFERS_1K(BUFFERS_1K), .BUFFERS_2K(BUFFERS_2K),
    .RTT_PACKETS(RTT_PACKETS), .TIMEOUT_CYCLES(TIMEOUT_CYCLES), .PULL_CYCLES(PULL_CYCLES)
  ) i_send (
    .clk(clk),
    .rst(rst),
    .sent_valid(sent_valid),
    .sent_context(sent_context),
    .sent_word(sent_word),
    .sent_take(sent_take),
    .reply_valid(reply_valid),
    .reply_nack(reply_nack),
    .reply_credit(reply_credit),
    .control_valid(control_valid),
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
    .packet_class(packet_class),
    .wire_valid(out_valid),
    .wire_last(out_last),
    .wire_word(out_word),
    // verilator lint_off PINCONNECTEMPTY
    .event_begun(),
    .event_oversized(),
    .event_delivered(),
    .event_timeout()
    // verilator lint_on PINCONNECTEMPTY
  );
endmodule
