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
  // Each is compared with each: no decision waits for another one.
  logic [CONTEXTS-1:0] best;

  for (genvar i = 0; i < CONTEXTS; i++) begin : gen_thread
    logic [CONTEXTS-1:0] beaten;
    for (genvar j = 0; j < CONTEXTS; j++) begin : gen_rival
      if (i == j) begin : gen_itself
        assign beaten[j] = 1'b0;
      end else begin : gen_other
        logic [TIME_BITS-1:0] ahead;
        logic                 is_earlier, wins_ties;
        assign ahead = arrivals[j*TIME_BITS +: TIME_BITS] - arrivals[i*TIME_BITS +: TIME_BITS];
`ifdef MUTANT_NEWEST_FIRST
        assign is_earlier = !ahead[TIME_BITS-1];
`else
        assign is_earlier = ahead[TIME_BITS-1];
`endif
        assign wins_ties = is_earlier || (ahead == '0 && j < i);
        assign beaten[j] = active[j] && (priorities[j*8 +: 8] < priorities[i*8 +: 8]
            || (priorities[j*8 +: 8] == priorities[i*8 +: 8] && wins_ties));
      end
    end
    assign best[i] = active[i] && beaten == '0;
  end

  assign valid = active != '0;

  always_comb begin
    slot = '0;
    for (int unsigned i = 0; i < CONTEXTS; i++) begin
      if (best[i]) slot = slot | SLOT_BITS'(i);
    end
  end
endmodule
