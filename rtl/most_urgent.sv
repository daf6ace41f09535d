// The thread that should run: the most urgent active one, and among equals the one whose message has waited longest, the lower slot
// if both came at once. Times wrap: of two messages, the older is the one from whose time the other's is less than half a round ahead.
module most_urgent #(
  parameter int unsigned CONTEXTS = 4,
  parameter int unsigned TIME_BITS = 32,
  // Derived; not to be set.
  parameter int unsigned SLOT_BITS = (CONTEXTS > 1) ? $clog2(CONTEXTS) : 1
) (
  input  logic [CONTEXTS-1:0]           active,
  input  logic [CONTEXTS*8-1:0]         priorities,
  input  logic [CONTEXTS*TIME_BITS-1:0] arrivals,
  output logic                          valid,
  output logic [SLOT_BITS-1:0]          slot
);
  logic [7:0]           best_priority;
  logic [TIME_BITS-1:0] best_arrival, ahead;
  logic                 older;

  always_comb begin
    valid = 1'b0;
    slot = '0;
    best_priority = '0;
    best_arrival = '0;
    ahead = '0;
    older = 1'b0;
    for (int unsigned i = 0; i < CONTEXTS; i++) begin
      ahead = arrivals[i*TIME_BITS +: TIME_BITS] - best_arrival;
`ifdef MUTANT_NEWEST_FIRST
      older = !ahead[TIME_BITS-1] && ahead != '0;
`else
      older = ahead[TIME_BITS-1];
`endif
      if (active[i] && (!valid || priorities[i*8 +: 8] < best_priority
          || (priorities[i*8 +: 8] == best_priority && older))) begin
        valid = 1'b1;
        slot = SLOT_BITS'(i);
        best_priority = priorities[i*8 +: 8];
        best_arrival = arrivals[i*TIME_BITS +: TIME_BITS];
      end
    end
  end
endmodule
