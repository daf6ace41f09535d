// The state of one message that a core sends: which of its packets are there, allowed, sent, and delivered (nanoPU §3.4). Bit n of a set is packet n.
//
// In a cycle the core's word comes first, then a control packet, then the timer, then the packet that leaves.
module outgoing_message #(
  parameter int unsigned RTT_PACKETS = 2,
  parameter int unsigned TIMEOUT_CYCLES = 2240,
  parameter int unsigned TIME_BITS = 32
) (
  input  logic                 clk,
  input  logic                 rst,
  input  logic [TIME_BITS-1:0] now,
  // The message begins, with nothing or with as many packets to come; a packet of it has been written.
  input  logic                 begins,
  input  logic                 begins_empty,
  input  logic                 begins_two,
  input  logic                 written,
  // A control packet for it, about a packet of it.
  input  logic                 control,
  input  logic                 control_offset,
  input  logic                 control_ack,
  input  logic                 control_nack,
  input  logic                 control_pull,
  input  logic [1:0]           control_credit,
  // Its timer is looked at.
  input  logic                 scanned,
  // A packet of it wants to leave.
  input  logic                 picked,
  input  logic                 picked_offset,
  output logic                 leaves,
  // Packets that get in line: new, credited, timed out.
  output logic [1:0]           due_new,
  output logic [1:0]           due_credited,
  output logic [1:0]           due_late,
  output logic                 used,
  output logic                 delivered_all,
  output logic                 timed_out
);
  localparam logic [1:0] UNASKED = (RTT_PACKETS > 2) ? 2'd2 : 2'(RTT_PACKETS);

  logic                 two;
  logic [1:0]           whole, credit, sent, resend, delivered;
  logic                 has_deadline;
  logic [TIME_BITS-1:0] deadline, late;

  // The lowest packets of a message, by their number.
  function automatic logic [1:0] lowest(input logic [1:0] count);
    lowest = {count >= 2'd2, count != 2'd0};
  endfunction

  // After the core's word.
  logic       used_1, two_1;
  logic [1:0] whole_1, credit_1, sent_1, resend_1, delivered_1, allowed_1;

  always_comb begin
    used_1 = used || begins;
    two_1 = begins ? begins_two : two;
    whole_1 = begins ? {1'b0, begins_empty} : whole + {1'b0, written};
    credit_1 = begins ? UNASKED : credit;
    delivered_1 = begins ? '0 : delivered;
    allowed_1 = lowest(whole_1) & lowest(credit_1);
    due_new = '0;
    if ((begins && begins_empty) || written) due_new = allowed_1 & ~(begins ? 2'b00 : sent & ~resend);
    sent_1 = (begins ? 2'b00 : sent) | due_new;
    resend_1 = begins ? 2'b00 : resend & ~due_new;
  end

  // After the control packet. It names a packet that has been sent, or belongs to another message.
  logic       applies;
  logic [1:0] named, credit_2, sent_2, resend_2, resend_asked, delivered_2, allowed_2;

  always_comb begin
    named = control_offset ? 2'b10 : 2'b01;
    applies = control && used_1 && (sent_1 & named) != '0;
    delivered_2 = (applies && control_ack) ? delivered_1 | named : delivered_1;
    resend_asked = resend_1;
    if (applies && control_ack) resend_asked = resend_asked & ~named;
    if (applies && control_nack) resend_asked = resend_asked | (named & ~delivered_2);
    credit_2 = (applies && control_pull && control_credit > credit_1) ? control_credit : credit_1;
    delivered_all = applies && delivered_2 == {two_1, 1'b1};
    allowed_2 = lowest(whole_1) & lowest(credit_2);
    due_credited = (applies && !delivered_all) ? allowed_2 & (~sent_1 | resend_asked) : '0;
    sent_2 = sent_1 | due_credited;
    resend_2 = resend_asked & ~due_credited;
  end

  // After the timer.
  logic [1:0] sent_3, resend_late, resend_3;

  always_comb begin
    late = now - deadline;
    timed_out = scanned && used_1 && !delivered_all && has_deadline && !begins && !late[TIME_BITS-1];
    resend_late = timed_out ? resend_2 | (sent_2 & ~delivered_2) : resend_2;
    due_late = timed_out ? allowed_2 & (~sent_2 | resend_late) : '0;
    sent_3 = sent_2 | due_late;
    resend_3 = resend_late & ~due_late;
  end

  // A packet that has arrived in the meantime need not leave again, and the buffer may be another message's
  // by now.
  assign leaves = picked && used_1 && !delivered_all && sent_3[picked_offset] && !delivered_2[picked_offset];

  always_ff @(posedge clk) begin
    two <= two_1;
    whole <= whole_1;
    credit <= credit_2;
    sent <= sent_3;
    resend <= resend_3;
    delivered <= delivered_2;
    if (leaves || timed_out) deadline <= now + TIME_BITS'(TIMEOUT_CYCLES);
    if (begins) has_deadline <= 1'b0;
    else if (leaves) has_deadline <= 1'b1;
    if (rst) used <= 1'b0;
    else used <= used_1 && !delivered_all;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!begins || !used) else $error("a message begins in a buffer that is in use");
      assert (!written || used) else $error("a word for a message that is not there");
      assert (!used || (whole <= 2'd1 + {1'b0, two})) else $error("more packets than the message has");
    end
  end
`endif
endmodule
