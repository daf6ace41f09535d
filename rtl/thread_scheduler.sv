// The hardware thread scheduler (nanoPU §3.2), which chooses the thread that should run on a core.
//
// A thread is active while messages for it are not done. The most urgent active thread runs, among equals the one whose message has
// waited longest; where that is not the current one, an interrupt asks software to switch, two cycles after the event:
//   - a message came that is more urgent than what runs,
//   - the program says that a message is done, or that it has nothing to do,
//   - a message of priority 0 has run for `message_cycles`: its thread falls to priority 1. With KEEPS_DEMOTIONS, the prototype's
//     rule, only while another thread of priority 0 waits, and for good; else until the message is done,
//   - the thread has had nothing to do for `idle_cycles`: the next one gets a turn.
// In a cycle the program acts first, then the NIC, then time.
module thread_scheduler #(
  parameter int unsigned CONTEXTS = 4,
  // Messages of one thread that can be here at once; a power of two.
  parameter int unsigned MESSAGES = 16,
  parameter int unsigned TIME_BITS = 32,
  parameter int unsigned KEEPS_DEMOTIONS = 1,
  // Derived; not to be set.
  parameter int unsigned SLOT_BITS = (CONTEXTS > 1) ? $clog2(CONTEXTS) : 1
) (
  input  logic                 clk,
  input  logic                 rst,
  // The program's write: at most one register in a cycle, of which `command` has several bits.
  input  logic                 set_context,
  input  logic                 set_priority,
  input  logic                 set_message_cycles,
  input  logic                 set_idle_cycles,
  input  logic                 insert,
  input  logic                 start_timers,
  input  logic                 done,
  input  logic                 idle,
  input  logic [TIME_BITS-1:0] value,
  // Whether words wait for each thread.
  input  logic [CONTEXTS-1:0]  filled,
  // The NIC brings a word; `deliver_first` if it begins a message.
  input  logic                 deliver,
  input  logic                 deliver_first,
  input  logic [15:0]          deliver_context,
  output logic                 deliver_known,
  output logic [SLOT_BITS-1:0] deliver_slot,
  // The thread that runs, as the instructions of this cycle see it.
  output logic [15:0]          running_context,
  output logic                 running_valid,
  output logic [SLOT_BITS-1:0] running_slot,
  // Signals for the NIC.
  output logic                 inserted,
  output logic                 insert_refused,
  output logic                 finished,
  // Registers that the program reads.
  output logic [15:0]          current_context,
  output logic [7:0]           current_priority,
  output logic [15:0]          target_context,
  output logic [7:0]           target_priority,
  output logic [TIME_BITS-1:0] message_cycles,
  output logic [TIME_BITS-1:0] idle_cycles,
  output logic                 wants_switch
);
  localparam int unsigned INDEX_BITS = $clog2(MESSAGES);
  localparam int unsigned COUNT_BITS = INDEX_BITS + 1;
  localparam int unsigned USED_BITS = $clog2(CONTEXTS + 1);
  localparam logic [TIME_BITS-1:0] CYCLES_AT_RESET = TIME_BITS'(3000);
  localparam logic [7:0] DEMOTED = 8'd1;

  logic [TIME_BITS-1:0] now;

  // The threads, in the order in which they joined.
  logic [USED_BITS-1:0]           used;
  logic [CONTEXTS*16-1:0]         ids, ids_next;
  logic [CONTEXTS-1:0]            known, known_next;
  logic [CONTEXTS*8-1:0]          priorities, priorities_done, priorities_next;
  logic [CONTEXTS*8-1:0]          base_priorities;

  // The arrival times of each one's messages.
  logic [TIME_BITS-1:0]           times [0:CONTEXTS*MESSAGES-1];
  logic [CONTEXTS*INDEX_BITS-1:0] first;
  logic [CONTEXTS*COUNT_BITS-1:0] count, count_done, count_next;

  // The cycles from which times count.
  logic                 has_timers, has_timers_now;
  logic                 began_valid, began_valid_acted, began_valid_next, begins_acted;
  logic [TIME_BITS-1:0] began;
  logic                 idle_valid, idle_valid_acted, idle_valid_next;
  logic [TIME_BITS-1:0] idle_since, idle_since_acted, idle_since_next;

  // A decision on its way, and the one that has arrived.
  logic        decision, decision_late;
  logic [15:0] decision_context;
  logic [7:0]  decision_priority;
  logic        target;
  logic [15:0] target_id;
  logic [7:0]  target_level;

  // The program acts.
  logic [7:0]           priority_acted, priority_next;
  logic                 is_known;
  logic [SLOT_BITS-1:0] known_slot;
  logic                 rests;
  logic [TIME_BITS-1:0] message_limit, idle_limit;

  assign running_context = set_context ? value[15:0] : current_context;
  assign has_timers_now = has_timers || start_timers;
  assign message_limit = set_message_cycles ? value : message_cycles;
  assign idle_limit = set_idle_cycles ? value : idle_cycles;

  always_comb begin
    is_known = 1'b0;
    known_slot = '0;
    for (int unsigned i = 0; i < CONTEXTS; i++) begin
      if (known[i] && ids[i*16 +: 16] == running_context) begin
        is_known = 1'b1;
        known_slot = SLOT_BITS'(i);
      end
    end
  end

  assign inserted = insert && !is_known && 32'(used) < CONTEXTS;
  assign insert_refused = insert && !is_known && 32'(used) == CONTEXTS;
  assign finished = done && is_known;

  // The slot of the running thread from here on: a new one takes the next that is free.
  logic [SLOT_BITS-1:0] slot;
  logic                 slot_valid;
  assign slot = inserted ? used[SLOT_BITS-1:0] : known_slot;
  assign slot_valid = is_known || inserted;
  assign running_slot = slot;
  assign running_valid = slot_valid;

  always_comb begin
    ids_next = ids;
    known_next = known;
    priorities_done = priorities;
    count_done = count;
    if (inserted) begin
      ids_next[slot*16 +: 16] = running_context;
      known_next[slot] = 1'b1;
      priorities_done[slot*8 +: 8] = current_priority;
    end
    if (finished) begin
      priorities_done[slot*8 +: 8] = base_priorities[slot*8 +: 8];
      if (count[slot*COUNT_BITS +: COUNT_BITS] != '0) begin
        count_done[slot*COUNT_BITS +: COUNT_BITS] =
            count[slot*COUNT_BITS +: COUNT_BITS] - {{(COUNT_BITS-1){1'b0}}, 1'b1};
      end
    end
  end

  logic is_active_done;
  assign is_active_done = slot_valid && count_done[slot*COUNT_BITS +: COUNT_BITS] != '0;
  assign rests = idle && is_known && !filled[slot] && !is_active_done;

  always_comb begin
    priority_acted = set_priority ? value[7:0] : finished ? base_priorities[slot*8 +: 8] : current_priority;
    began_valid_acted = began_valid;
    begins_acted = 1'b0;
    idle_valid_acted = idle_valid;
    idle_since_acted = idle_since;
    if (set_context || finished) begin
      began_valid_acted = is_active_done;
      begins_acted = 1'b1;
    end
    if (set_context) idle_valid_acted = 1'b0;
    if (rests) begin
      began_valid_acted = 1'b0;
      idle_valid_acted = 1'b1;
      if (!idle_valid) idle_since_acted = now;
    end
  end

  // The NIC acts.
  logic starts;

  always_comb begin
    deliver_known = 1'b0;
    deliver_slot = '0;
    for (int unsigned i = 0; i < CONTEXTS; i++) begin
      if (deliver && known_next[i] && ids_next[i*16 +: 16] == deliver_context) begin
        deliver_known = 1'b1;
        deliver_slot = SLOT_BITS'(i);
      end
    end
  end

  assign starts = deliver_known && deliver_first;

  always_comb begin
    count_next = count_done;
    if (starts) begin
      count_next[deliver_slot*COUNT_BITS +: COUNT_BITS] =
          count_done[deliver_slot*COUNT_BITS +: COUNT_BITS] + {{(COUNT_BITS-1){1'b0}}, 1'b1};
    end
  end

  // The oldest message of each thread, before and after the arrival.
  logic [CONTEXTS*INDEX_BITS-1:0] first_done;
  logic [CONTEXTS*TIME_BITS-1:0]  oldest_done, oldest_next;
  logic [CONTEXTS-1:0]            active_done, active_next;

  always_comb begin
    first_done = first;
    if (finished && count[slot*COUNT_BITS +: COUNT_BITS] != '0) begin
      first_done[slot*INDEX_BITS +: INDEX_BITS] =
          first[slot*INDEX_BITS +: INDEX_BITS] + {{(INDEX_BITS-1){1'b0}}, 1'b1};
    end
  end

  for (genvar i = 0; i < CONTEXTS; i++) begin : gen_oldest
    localparam logic [SLOT_BITS-1:0] HERE = SLOT_BITS'(i);
    assign active_done[i] = count_done[i*COUNT_BITS +: COUNT_BITS] != '0;
    assign active_next[i] = count_next[i*COUNT_BITS +: COUNT_BITS] != '0;
    assign oldest_done[i*TIME_BITS +: TIME_BITS] = times[{HERE, first_done[i*INDEX_BITS +: INDEX_BITS]}];
    assign oldest_next[i*TIME_BITS +: TIME_BITS] =
        active_done[i] ? oldest_done[i*TIME_BITS +: TIME_BITS] : now;
  end

  logic                 acted_valid, arrived_valid, demoted_valid;
  logic [SLOT_BITS-1:0] acted_slot, arrived_slot, demoted_slot;

  most_urgent #(.CONTEXTS(CONTEXTS), .TIME_BITS(TIME_BITS)) i_acted (
    .active(active_done), .priorities(priorities_done), .arrivals(oldest_done), .valid(acted_valid), .slot(acted_slot)
  );
  most_urgent #(.CONTEXTS(CONTEXTS), .TIME_BITS(TIME_BITS)) i_arrived (
    .active(active_next), .priorities(priorities_done), .arrivals(oldest_next), .valid(arrived_valid),
    .slot(arrived_slot)
  );
  most_urgent #(.CONTEXTS(CONTEXTS), .TIME_BITS(TIME_BITS)) i_demoted (
    .active(active_next), .priorities(priorities_next), .arrivals(oldest_next), .valid(demoted_valid),
    .slot(demoted_slot)
  );

  // An arrival matters if it is more urgent than the running thread, or no thread runs.
  logic preempts;
  assign preempts = starts && arrived_valid && !(slot_valid && arrived_slot == slot)
      && (!(slot_valid && active_next[slot]) || priorities_done[arrived_slot*8 +: 8] < priorities_done[slot*8 +: 8]);

  logic                 demotes, is_waited_for, passes_on, has_next;
  logic [TIME_BITS-1:0] ran, rested;
  logic                 begins, ran_long, rested_long;
  logic [USED_BITS-1:0] used_next, next_index;
  logic [SLOT_BITS-1:0] next_slot;

  always_comb begin
    began_valid_next = began_valid_acted;
    begins = begins_acted;
    idle_valid_next = idle_valid_acted;
    idle_since_next = idle_since_acted;
    if (starts && !began_valid_acted && slot_valid && active_next[slot]) begin
      began_valid_next = 1'b1;
      begins = 1'b1;
      idle_valid_next = 1'b0;
    end
    if (passes_on) idle_since_next = now;
  end

  // Time acts.
  always_comb begin
    is_waited_for = 1'b0;
    for (int unsigned i = 0; i < CONTEXTS; i++) begin
      if (active_next[i] && SLOT_BITS'(i) != slot && priorities_done[i*8 +: 8] == '0) is_waited_for = 1'b1;
    end
  end

  // The time so far, from the registers: a thread that begins in this cycle has taken none yet.
  assign ran = now - began;
  assign rested = now - idle_since;
  assign ran_long = begins ? message_limit == '0 : ran >= message_limit;
  assign rested_long = (rests && !idle_valid) ? idle_limit == '0 : rested >= idle_limit;
  assign demotes = has_timers_now && began_valid_next && ran_long && slot_valid
      && priorities_done[slot*8 +: 8] == '0 && (KEEPS_DEMOTIONS == 0 || is_waited_for);
  assign passes_on = has_timers_now && idle_valid_next && rested_long;
  assign priority_next = demotes ? DEMOTED : priority_acted;

  always_comb begin
    priorities_next = priorities_done;
`ifndef MUTANT_NO_DEMOTION
    if (demotes) priorities_next[slot*8 +: 8] = DEMOTED;
`endif
  end

  assign used_next = used + {{(USED_BITS-1){1'b0}}, inserted};
  assign next_index = USED_BITS'(slot) + {{(USED_BITS-1){1'b0}}, 1'b1};
  assign next_slot = (slot_valid && next_index < used_next) ? next_index[SLOT_BITS-1:0] : '0;
  assign has_next = passes_on && used_next != '0 && !(slot_valid && next_slot == slot);

  // The last of them decides.
  logic        decides;
  logic [15:0] decided_context;
  logic [7:0]  decided_priority;
  logic        acts;

  assign acts = (finished || rests) && acted_valid;
  always_comb begin
    decides = 1'b1;
    if (has_next) begin
      decided_context = ids_next[next_slot*16 +: 16];
      decided_priority = priorities_next[next_slot*8 +: 8];
    end else if (demotes && demoted_valid) begin
      decided_context = ids_next[demoted_slot*16 +: 16];
      decided_priority = priorities_next[demoted_slot*8 +: 8];
    end else if (preempts) begin
      decided_context = ids_next[arrived_slot*16 +: 16];
      decided_priority = priorities_done[arrived_slot*8 +: 8];
    end else begin
      decides = acts;
      decided_context = ids_next[acted_slot*16 +: 16];
      decided_priority = priorities_done[acted_slot*8 +: 8];
    end
  end

  // A decision is visible two cycles after its cause, unless the program or the NIC causes another one
  // before.
  logic fires;
  assign fires = decision && decision_late && !acts && !preempts;

  always_ff @(posedge clk) begin
    if (starts) begin
      times[{deliver_slot, INDEX_BITS'(first_done[deliver_slot*INDEX_BITS +: INDEX_BITS]
          + count_done[deliver_slot*COUNT_BITS +: INDEX_BITS])}] <= now;
    end
    if (inserted) begin
      base_priorities[slot*8 +: 8] <= current_priority;
    end
    if (KEEPS_DEMOTIONS != 0 && demotes) base_priorities[slot*8 +: 8] <= DEMOTED;
    ids <= ids_next;
    priorities <= priorities_next;
    if (begins) began <= now;
    idle_since <= idle_since_next;
    if (decides) begin
      decision_context <= decided_context;
      decision_priority <= decided_priority;
    end
    if (fires) begin
      target_id <= decision_context;
      target_level <= decision_priority;
    end
    decision_late <= !decides;
    if (rst) begin
      now <= '0;
      used <= '0;
      known <= '0;
      first <= '0;
      count <= '0;
      has_timers <= 1'b0;
      began_valid <= 1'b0;
      idle_valid <= 1'b0;
      decision <= 1'b0;
      target <= 1'b0;
      current_context <= '0;
      current_priority <= '0;
      message_cycles <= CYCLES_AT_RESET;
      idle_cycles <= CYCLES_AT_RESET;
    end else begin
      now <= now + {{(TIME_BITS-1){1'b0}}, 1'b1};
      used <= used_next;
      known <= known_next;
      first <= first_done;
      count <= count_next;
      has_timers <= has_timers_now;
      began_valid <= began_valid_next;
      idle_valid <= idle_valid_next;
      decision <= decides || (decision && !decision_late);
      if (fires) target <= decision_context != running_context;
      else if (set_context && target_id == running_context) target <= 1'b0;
      current_context <= running_context;
      current_priority <= priority_next;
      message_cycles <= message_limit;
      idle_cycles <= idle_limit;
    end
  end

  assign target_context = target ? target_id : current_context;
  assign target_priority = target ? target_level : current_priority;
  assign wants_switch = target && target_id != current_context;

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ($onehot0({set_context, set_priority, set_message_cycles, set_idle_cycles, insert || start_timers, done || idle}))
        else $error("the program writes two registers in one cycle");
      assert (!starts || 32'(count_done[deliver_slot*COUNT_BITS +: COUNT_BITS]) < MESSAGES)
        else $error("a message of thread %0d has no room", deliver_slot);
      for (int unsigned i = 0; i < CONTEXTS; i++) begin
        assert (known[i] == (i < 32'(used))) else $error("threads are not in the order in which they became known");
        assert (known[i] || count[i*COUNT_BITS +: COUNT_BITS] == '0) else $error("a message of an unknown thread");
      end
      assert (!(decides && acted_valid) || known_next[acted_slot]) else $error("an unknown thread is to run");
    end
  end
`endif
endmodule
