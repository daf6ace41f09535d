// The last messages of each sender that were finished, to know their packets if they come again.
//
// A sender is the low bits of its address; a message is forgotten when as many others of its sender have been finished.
module finished_messages #(
  parameter int unsigned SENDER_BITS = 2,
  parameter int unsigned REMEMBERED = 64,
  // Derived; not to be set.
  parameter int unsigned PLACE_BITS = $clog2(REMEMBERED)
) (
  input  logic                   clk,
  input  logic                   rst,
  input  logic [SENDER_BITS-1:0] sender,
  input  logic [15:0]            message,
  // Whether it is remembered, with what credit, and whether its second packet had come.
  output logic                   known,
  output logic [15:0]            credit,
  output logic                   had_second,
  // Another packet of a remembered one: its new credit.
  input  logic                   touch,
  input  logic [15:0]            touch_credit,
  // This one is finished.
  input  logic                   push,
  input  logic [15:0]            push_credit,
  input  logic                   push_second
);
  localparam int unsigned SENDERS = 1 << SENDER_BITS;

  logic [SENDERS*PLACE_BITS-1:0]  next;
  logic [PLACE_BITS-1:0]          next_place;
  logic [REMEMBERED-1:0]          hit;
  logic [REMEMBERED*17-1:0]       said;

  assign next_place = next[sender*PLACE_BITS +: PLACE_BITS];

  for (genvar place = 0; place < REMEMBERED; place++) begin : gen_place
    logic [15:0]        messages [0:SENDERS-1];
    logic [16:0]        states [0:SENDERS-1];
    logic [SENDERS-1:0] used;
    logic               pushes;

    assign pushes = push && next_place == PLACE_BITS'(place);
    assign hit[place] = used[sender] && messages[sender] == message;
    assign said[place*17 +: 17] = hit[place] ? states[sender] : '0;

    always_ff @(posedge clk) begin
      if (pushes) begin
        messages[sender] <= message;
        states[sender] <= {push_second, push_credit};
      end else if (touch && hit[place]) begin
        states[sender] <= {states[sender][16], touch_credit};
      end
      if (rst) used <= '0;
      else if (pushes) used[sender] <= 1'b1;
    end
  end

  assign known = hit != '0;

  always_comb begin
    {had_second, credit} = '0;
    for (int unsigned place = 0; place < REMEMBERED; place++) begin
      {had_second, credit} = {had_second, credit} | said[place*17 +: 17];
    end
  end

  always_ff @(posedge clk) begin
    if (rst) next <= '0;
    else if (push) next[sender*PLACE_BITS +: PLACE_BITS] <= next_place + {{(PLACE_BITS-1){1'b0}}, 1'b1};
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ($onehot0(hit)) else $error("a message is remembered twice");
      assert (!push || !known) else $error("a message is finished twice");
    end
  end
`endif
endmodule
