// Core selection for the messages of one context (nanoPU §3.3).
//
// JBSQ(n): a message goes to the core with the fewest messages, the lowest of them among equals, if it has fewer than
// BOUND; otherwise it waits, and cores that finish take the waiting ones in order. BOUND = 1 is one queue for all cores.
// Only cores that have joined are selected; one that joins takes as many waiting messages as it may have.
// HASHED = 1 is RSS: the flow's hash alone names the core, and the hashing block knows which cores have
// joined.
//
// In a cycle the cores act first, in their order, and then the arrival. A core does one thing in a cycle.
module core_selector #(
  parameter int unsigned CORES = 4,
  parameter int unsigned BOUND = 2,
  parameter int unsigned HASHED = 0,
  // A message is a number of this many bits; there are no more messages than numbers.
  parameter int unsigned MESSAGE_BITS = 7,
  // Derived; not to be set.
  parameter int unsigned CORE_BITS = (CORES > 1) ? $clog2(CORES) : 1,
  parameter int unsigned COUNT_BITS = MESSAGE_BITS + 1,
  // The most that one core can take in a cycle.
  parameter int unsigned TAKES = (HASHED == 0 && BOUND > 1) ? BOUND : 1
) (
  input  logic                                      clk,
  input  logic                                      rst,
  // Cores that have joined, and cores that have finished a message; and what each takes, its first one lowest.
  input  logic [CORES-1:0]                    join_core,
  input  logic [CORES-1:0]                    finish,
  output logic [CORES*TAKES-1:0]              next_valid,
  output logic [CORES*TAKES*MESSAGE_BITS-1:0] next_message,
  // A message arrives: given to a core, or kept waiting.
  input  logic                                arrive_valid,
  input  logic [MESSAGE_BITS-1:0]             arrive_message,
  input  logic [CORE_BITS-1:0]                arrive_hash,
  output logic                                given_valid,
  output logic [CORE_BITS-1:0]                given_core,
  // What each core has, and how many messages wait.
  output logic [CORES*COUNT_BITS-1:0]         outstanding,
  output logic [COUNT_BITS-1:0]               waiting
);
  localparam int unsigned ROOM = 1 << MESSAGE_BITS;

  logic [MESSAGE_BITS-1:0] queue [0:ROOM-1];
  logic [MESSAGE_BITS-1:0] head, tail;

  // What the cores could take, if enough messages wait: those before each place come first.
  logic [CORES-1:0]                  member, joins, ends;
  logic [CORES*TAKES-1:0]            wants;
  logic [CORES*TAKES*COUNT_BITS-1:0] rank;
  logic [CORES*COUNT_BITS-1:0]       after_cores, selectable;
  logic [COUNT_BITS-1:0]             wanted, taken;

  assign joins = join_core & ~member;

  for (genvar core = 0; core < CORES; core++) begin : gen_wants
    assign ends[core] = finish[core] && outstanding[core*COUNT_BITS +: COUNT_BITS] != '0;
    for (genvar k = 0; k < TAKES; k++) begin : gen_place
      assign wants[core*TAKES+k] = joins[core] || (ends[core] && k == 0);
    end
  end

  prefix_count #(.BITS(CORES * TAKES), .COUNT_BITS(COUNT_BITS)) i_rank (.set(wants), .below(rank), .total(wanted));

  assign taken = (wanted < waiting) ? wanted : waiting;

  always_comb begin
    for (int unsigned core = 0; core < CORES; core++) begin
      after_cores[core*COUNT_BITS +: COUNT_BITS] = outstanding[core*COUNT_BITS +: COUNT_BITS]
          - {{(COUNT_BITS-1){1'b0}}, ends[core]};
      for (int unsigned k = 0; k < TAKES; k++) begin
        next_valid[core*TAKES+k] = wants[core*TAKES+k] && rank[(core*TAKES+k)*COUNT_BITS +: COUNT_BITS] < waiting;
        after_cores[core*COUNT_BITS +: COUNT_BITS] = after_cores[core*COUNT_BITS +: COUNT_BITS]
            + {{(COUNT_BITS-1){1'b0}}, next_valid[core*TAKES+k]};
      end
      selectable[core*COUNT_BITS +: COUNT_BITS] =
          (member[core] || joins[core]) ? after_cores[core*COUNT_BITS +: COUNT_BITS] : '1;
    end
  end

  for (genvar place = 0; place < CORES * TAKES; place++) begin : gen_next
    logic [MESSAGE_BITS-1:0] at;
    assign at = head + rank[place*COUNT_BITS +: MESSAGE_BITS];
    assign next_message[place*MESSAGE_BITS +: MESSAGE_BITS] = next_valid[place] ? queue[at] : '0;
  end

  // The shortest queue: a tree of comparators that prefer the left, which is the lower core.
  logic [CORE_BITS-1:0]  shortest;
  logic [COUNT_BITS-1:0] least;

  shortest_queue #(.CORES(CORES), .COUNT_BITS(COUNT_BITS)) i_shortest (
    .counts(selectable), .core(shortest), .count(least)
  );

  localparam logic [COUNT_BITS-1:0] LIMIT = COUNT_BITS'((BOUND > 1) ? BOUND : 1);
  logic keeps;
  assign keeps = arrive_valid && HASHED == 0 && least >= LIMIT;
  assign given_valid = arrive_valid && !keeps;
  assign given_core = !given_valid ? '0 : (HASHED != 0) ? arrive_hash : shortest;

  always_ff @(posedge clk) begin
    if (keeps) queue[tail] <= arrive_message;
    if (rst) begin
      member <= '0;
      outstanding <= '0;
      waiting <= '0;
      head <= '0;
      tail <= '0;
    end else begin
      member <= member | joins;
      for (int unsigned core = 0; core < CORES; core++) begin
        outstanding[core*COUNT_BITS +: COUNT_BITS] <= after_cores[core*COUNT_BITS +: COUNT_BITS]
            + {{(COUNT_BITS-1){1'b0}}, given_valid && given_core == CORE_BITS'(core)};
      end
      waiting <= waiting - taken + {{(COUNT_BITS-1){1'b0}}, keeps};
      head <= head + taken[MESSAGE_BITS-1:0];
      tail <= tail + {{(MESSAGE_BITS-1){1'b0}}, keeps};
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ((join_core & finish) == '0) else $error("a core does two things in one cycle");
      assert (32'(waiting) <= ROOM) else $error("more messages wait than there are");
      assert (HASHED == 0 || arrive_valid == given_valid) else $error("RSS keeps nothing");
      if (HASHED == 0) begin
        for (int unsigned core = 0; core < CORES; core++) begin
          assert (outstanding[core*COUNT_BITS +: COUNT_BITS] <= LIMIT) else $error("a core has more than the bound");
          assert (waiting == '0 || !member[core] || outstanding[core*COUNT_BITS +: COUNT_BITS] == LIMIT)
            else $error("a message waits although a core has room");
        end
      end
    end
  end
`endif
endmodule
