//! Conversations with a sender, as text: one event per line, and what it leads to. Each is played at several places of the
//! PSN space, among them one where the PSNs wrap in the middle of it. PSNs are counted from the first.

use super::*;
use highwire_wire::Psn;
use std::fmt::Write;

/// Plays the events on the left of each arrow and compares what follows with the right.
fn check(config: IrnConfig, conversation: &str) {
    for origin in [0, 5, 0xFF_FFFD, 0xFF_FFFF, 0x80_0000, 0x7F_FFFE] {
        let mut window = SenderWindow::new(Psn::new(origin), config);
        let mut played = String::new();
        for line in conversation.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let event = line.split("->").next().expect("split yields at least one part").trim();
            let outcome = play(&mut window, Psn::new(origin), event);
            writeln!(played, "{event:<16} -> {outcome}").expect("strings take everything");
        }
        let expected: String = conversation.lines().map(|line| line.trim().to_owned() + "\n").collect();
        assert_eq!(played.trim(), expected.trim(), "from PSN {origin:#x}\n{played}");
    }
}

fn play(window: &mut SenderWindow, origin: Psn, event: &str) -> String {
    let mut words = event.split(' ');
    let verb = words.next().unwrap_or_default();
    let mut number = || words.next().map_or(1, |word| word.parse::<u32>().expect("a number"));
    let mut out = match verb {
        "send" => {
            let sent = (0..number()).take_while(|_| {
                let may = window.can_send_new();
                may.then(|| window.on_send_new());
                may
            });
            format!("sent {}; ", sent.count())
        }
        "resend" => {
            let resent: Vec<u32> =
                (0..number()).map_while(|_| window.poll_retransmit()).map(|p| since(p, origin)).collect();
            format!("resent {resent:?}; ")
        }
        "peek" => format!("{:?}; ", window.peek_retransmit().map(|psn| since(psn, origin))),
        "ack" => brought(window.on_ack(origin.add(number()))),
        "nack" => {
            let (cumulative, high) = (origin.add(number()), origin.add(number()));
            brought(window.on_nack(cumulative, high, number()))
        }
        "trimmed" => {
            let (cumulative, psn) = (origin.add(number()), origin.add(number()));
            brought(window.on_trimmed(cumulative, psn))
        }
        "arm" => format!("{:?}; ", window.arm_timeout()),
        "timeout" => format!("{:?}; ", window.on_timeout()),
        other => panic!("no event is called {other}"),
    };
    window.describe(&mut out, origin).expect("strings take everything");
    out
}

fn since(psn: Psn, origin: Psn) -> u32 {
    psn.distance_from(origin) as u32
}

fn brought(outcome: AckOutcome) -> String {
    let mut out = format!("+{}", outcome.newly_acked);
    if outcome.newly_sacked > 0 {
        write!(out, " sack {}", outcome.newly_sacked).expect("strings take everything");
    }
    out += if outcome.loss_detected { " loss" } else { "" };
    out += if outcome.recovered { " recovered" } else { "" };
    out + "; "
}

#[test]
fn an_undisturbed_flow_only_slides() {
    check(
        IrnConfig::default().with_cap(4),
        "
        send 6           -> sent 4; 0..4
        ack 2            -> +2; 2..4
        send 6           -> sent 2; 2..6
        resend           -> resent []; 2..6
        ack 6            -> +4; 6..6
        ",
    );
}

#[test]
fn irn_resends_only_the_hole() {
    check(
        IrnConfig::default(),
        "
        send 6           -> sent 6; 0..6
        ack 1            -> +1; 1..6
        nack 1 2         -> +0 sack 1 loss; 1..6 sacked 2 | resend 1
        nack 1 3         -> +0 sack 1; 1..6 sacked 2 3 | resend 1
        resend 9         -> resent [1]; 1..6 sacked 2 3 | recovery to 5
        nack 1 4         -> +0 sack 1; 1..6 sacked 2 3 4 | recovery to 5 | search after 1
        nack 1 5         -> +0 sack 1; 1..6 sacked 2 3 4 5 | recovery to 5 | search after 1
        resend 9         -> resent []; 1..6 sacked 2 3 4 5 | recovery to 5
        ack 6            -> +5 recovered; 6..6
        ",
    );
}

/// Packet 9 is not a hole, for nothing above it has arrived; the last acknowledgement stops at it (rule 6).
#[test]
fn several_holes_are_resent_as_soon_as_they_are_known() {
    check(
        IrnConfig::default(),
        "
        send 10          -> sent 10; 0..10
        nack 0 2         -> +0 sack 1 loss; 0..10 sacked 2 | resend 0
        resend 9         -> resent [0, 1]; 0..10 sacked 2 | recovery to 9
        nack 0 5         -> +0 sack 1; 0..10 sacked 2 5 | recovery to 9 | search after 1
        nack 0 8         -> +0 sack 1; 0..10 sacked 2 5 8 | recovery to 9 | search after 1
        resend 9         -> resent [3, 4, 6, 7]; 0..10 sacked 2 5 8 | recovery to 9
        nack 0 3         -> +0 sack 1; 0..10 sacked 2 3 5 8 | recovery to 9
        ack 9            -> +9; 9..10 | recovery to 9 | resend 9
        ",
    );
}

/// A run never reaches down to the packet that the NACK says is missing.
#[test]
fn a_nack_may_report_a_run_of_packets() {
    check(
        IrnConfig::default(),
        "
        send 9           -> sent 9; 0..9
        nack 0 5 3       -> +0 sack 3 loss; 0..9 sacked 3 4 5 | resend 0
        nack 1 7 99      -> +1 sack 3 loss; 1..9 sacked 2 3 4 5 6 7 | resend 1
        resend 9         -> resent [1]; 1..9 sacked 2 3 4 5 6 7 | recovery to 8
        ",
    );
}

#[test]
fn a_lost_retransmission_waits_for_the_timeout() {
    check(
        IrnConfig::default(),
        "
        send 5           -> sent 5; 0..5
        nack 0 1         -> +0 sack 1 loss; 0..5 sacked 1 | resend 0
        resend 9         -> resent [0]; 0..5 sacked 1 | recovery to 4
        nack 0 4 3       -> +0 sack 3; 0..5 sacked 1 2 3 4 | recovery to 4 | search after 0
        resend 9         -> resent []; 0..5 sacked 1 2 3 4 | recovery to 4
        nack 0 4         -> +0; 0..5 sacked 1 2 3 4 | recovery to 4 | search after 0
        resend 9         -> resent []; 0..5 sacked 1 2 3 4 | recovery to 4
        arm              -> Some(320000ns); 0..5 sacked 1 2 3 4 | recovery to 4
        timeout          -> Resend; 0..5 sacked 1 2 3 4 | recovery to 4 | resend 0
        resend 9         -> resent [0]; 0..5 sacked 1 2 3 4 | recovery to 4
        ack 5            -> +5 recovered; 5..5
        ",
    );
}

#[test]
fn after_a_timeout_every_hole_is_resent_once_more() {
    check(
        IrnConfig::default(),
        "
        send 8           -> sent 8; 0..8
        nack 0 6         -> +0 sack 1 loss; 0..8 sacked 6 | resend 0
        nack 0 3         -> +0 sack 1; 0..8 sacked 3 6 | resend 0
        resend 9         -> resent [0, 1, 2, 4, 5]; 0..8 sacked 3 6 | recovery to 7
        timeout          -> Resend; 0..8 sacked 3 6 | recovery to 7 | resend 0
        resend 9         -> resent [0, 1, 2, 4, 5]; 0..8 sacked 3 6 | recovery to 7
        ",
    );
}

/// The packet that was scheduled to be resent has arrived after all.
#[test]
fn recovery_begins_when_the_packet_leaves() {
    check(
        IrnConfig::default(),
        "
        send 4           -> sent 4; 0..4
        nack 0 2         -> +0 sack 1 loss; 0..4 sacked 2 | resend 0
        ack 3            -> +3; 3..4
        resend           -> resent []; 3..4
        ",
    );
}

#[test]
fn every_retransmission_moves_the_recovery_sequence() {
    check(
        IrnConfig::default(),
        "
        send 4           -> sent 4; 0..4
        nack 0 1         -> +0 sack 1 loss; 0..4 sacked 1 | resend 0
        resend 9         -> resent [0]; 0..4 sacked 1 | recovery to 3
        send 2           -> sent 2; 0..6 sacked 1 | recovery to 3
        nack 0 3         -> +0 sack 1; 0..6 sacked 1 3 | recovery to 3 | search after 0
        resend 9         -> resent [2]; 0..6 sacked 1 3 | recovery to 5
        ack 4            -> +4; 4..6 | recovery to 5 | resend 4
        resend 9         -> resent [4]; 4..6 | recovery to 5
        ack 6            -> +2 recovered; 6..6
        ",
    );
}

/// The lost tail has no SACK above it.
#[test]
fn a_partial_acknowledgement_resends_what_it_stops_at() {
    check(
        IrnConfig::default(),
        "
        send 4           -> sent 4; 0..4
        nack 0 2 2       -> +0 sack 2 loss; 0..4 sacked 1 2 | resend 0
        resend 9         -> resent [0]; 0..4 sacked 1 2 | recovery to 3
        ack 3            -> +3; 3..4 | recovery to 3 | resend 3
        resend 9         -> resent [3]; 3..4 | recovery to 3
        ack 4            -> +1 recovered; 4..4
        ",
    );
}

#[test]
fn a_partial_acknowledgement_never_repeats_what_was_resent() {
    check(
        IrnConfig::default(),
        "
        send 6           -> sent 6; 0..6
        nack 0 3         -> +0 sack 1 loss; 0..6 sacked 3 | resend 0
        resend 9         -> resent [0, 1, 2]; 0..6 sacked 3 | recovery to 5
        ack 1            -> +1; 1..6 sacked 3 | recovery to 5
        ack 2            -> +1; 2..6 sacked 3 | recovery to 5
        ack 4            -> +2; 4..6 | recovery to 5 | resend 4
        ",
    );
}

#[test]
fn recovery_that_ends_below_a_sack_starts_again() {
    check(
        IrnConfig::default(),
        "
        send 4           -> sent 4; 0..4
        nack 0 1         -> +0 sack 1 loss; 0..4 sacked 1 | resend 0
        resend 9         -> resent [0]; 0..4 sacked 1 | recovery to 3
        send 4           -> sent 4; 0..8 sacked 1 | recovery to 3
        nack 0 6         -> +0 sack 1; 0..8 sacked 1 6 | recovery to 3 | search after 0
        ack 4            -> +4 loss recovered; 4..8 sacked 6 | resend 4
        resend 9         -> resent [4, 5]; 4..8 sacked 6 | recovery to 7
        ",
    );
}

#[test]
fn a_nack_that_also_advances_starts_recovery() {
    check(
        IrnConfig::default(),
        "
        send 4           -> sent 4; 0..4
        nack 2 3         -> +2 sack 1 loss; 2..4 sacked 3 | resend 2
        ",
    );
}

#[test]
fn the_search_goes_on_when_the_scheduled_hole_arrives_after_all() {
    check(
        IrnConfig::default(),
        "
        send 8           -> sent 8; 0..8
        nack 0 4         -> +0 sack 1 loss; 0..8 sacked 4 | resend 0
        resend 1         -> resent [0]; 0..8 sacked 4 | recovery to 7 | search after 0
        peek             -> Some(1); 0..8 sacked 4 | recovery to 7 | resend 1
        nack 0 1         -> +0 sack 1; 0..8 sacked 1 4 | recovery to 7 | search after 1
        resend 9         -> resent [2, 3]; 0..8 sacked 1 4 | recovery to 7
        ",
    );
}

#[test]
fn the_cap_holds_back_new_packets_and_not_retransmissions() {
    check(
        IrnConfig::default().with_cap(3),
        "
        send 9           -> sent 3; 0..3
        nack 0 2         -> +0 sack 1 loss; 0..3 sacked 2 | resend 0
        send 9           -> sent 0; 0..3 sacked 2 | resend 0
        resend 9         -> resent [0, 1]; 0..3 sacked 2 | recovery to 2
        send 9           -> sent 0; 0..3 sacked 2 | recovery to 2
        ack 1            -> +1; 1..3 sacked 2 | recovery to 2
        send 9           -> sent 1; 1..4 sacked 2 | recovery to 2
        ",
    );
}

#[test]
fn acknowledgements_of_packets_never_sent_are_not_believed() {
    check(
        IrnConfig::default(),
        "
        send 3           -> sent 3; 0..3
        ack 4            -> +0; 0..3
        nack 0 3         -> +0; 0..3
        nack 4 5         -> +0; 0..3
        nack 2 1         -> +0; 0..3
        nack 1 1         -> +0; 0..3
        ack 8388607      -> +0; 0..3
        ack 3            -> +3; 3..3
        ",
    );
}

/// The first one is entirely old; the second one still says that 5 has arrived.
#[test]
fn an_overtaken_nack_counts_for_what_is_still_news() {
    check(
        IrnConfig::default(),
        "
        send 6           -> sent 6; 0..6
        ack 3            -> +3; 3..6
        nack 0 2         -> +0; 3..6
        nack 1 5         -> +0 sack 1 loss; 3..6 sacked 5 | resend 3
        ",
    );
}

#[test]
fn a_timeout_is_not_undone_by_an_old_acknowledgement() {
    check(
        IrnConfig::default(),
        "
        send 3           -> sent 3; 0..3
        ack 1            -> +1; 1..3
        timeout          -> Resend; 1..3 | resend 1
        ack 1            -> +0; 1..3 | resend 1
        ack 0            -> +0; 1..3 | resend 1
        resend 9         -> resent [1]; 1..3 | recovery to 2
        ack 3            -> +2 recovered; 3..3
        ",
    );
}

#[test]
fn a_timeout_is_undone_by_news() {
    check(
        IrnConfig::default(),
        "
        send 3           -> sent 3; 0..3
        timeout          -> Resend; 0..3 | resend 0
        ack 3            -> +3; 3..3
        resend           -> resent []; 3..3
        timeout          -> Idle; 3..3
        arm              -> None; 3..3
        ",
    );
}

#[test]
fn few_packets_in_flight_time_out_quickly() {
    check(
        IrnConfig::default(),
        "
        send 3           -> sent 3; 0..3
        arm              -> Some(100000ns); 0..3
        timeout          -> Resend; 0..3 | resend 0
        send 1           -> sent 1; 0..4 | resend 0
        arm              -> Some(320000ns); 0..4 | resend 0
        ",
    );
}

#[test]
fn a_quick_timeout_is_extended_if_more_packets_have_followed() {
    check(
        IrnConfig::default(),
        "
        send 2           -> sent 2; 0..2
        arm              -> Some(100000ns); 0..2
        send 2           -> sent 2; 0..4
        timeout          -> Extended(220000ns); 0..4
        timeout          -> Resend; 0..4 | resend 0
        ",
    );
}

#[test]
fn go_back_n_resends_everything_from_the_loss_on() {
    check(
        IrnConfig::default().with_recovery(LossRecovery::GoBackN),
        "
        send 6           -> sent 6; 0..6
        ack 1            -> +1; 1..6
        nack 1 2         -> +0 loss; 1..6 | resend 1
        nack 1 3         -> +0; 1..6 | resend 1
        resend 9         -> resent [1, 2, 3, 4, 5]; 1..6 | recovery to 5
        nack 1 5         -> +0; 1..6 | recovery to 5
        ack 3            -> +2; 3..6 | recovery to 5
        nack 3 5         -> +0 loss; 3..6 | recovery to 5 | resend 3
        resend 9         -> resent [3, 4, 5]; 3..6 | recovery to 5
        ack 6            -> +3 recovered; 6..6
        ",
    );
}

#[test]
fn go_back_n_skips_what_is_acknowledged_during_its_pass() {
    check(
        IrnConfig::default().with_recovery(LossRecovery::GoBackN),
        "
        send 6           -> sent 6; 0..6
        nack 0 2         -> +0 loss; 0..6 | resend 0
        resend 2         -> resent [0, 1]; 0..6 | recovery to 5 | search after 1
        peek             -> Some(2); 0..6 | recovery to 5 | resend 2
        ack 4            -> +4; 4..6 | recovery to 5 | search after 2
        resend 9         -> resent [4, 5]; 4..6 | recovery to 5
        ",
    );
}

#[test]
fn without_a_bitmap_each_hole_costs_a_round_trip() {
    check(
        IrnConfig::default().with_recovery(LossRecovery::SelectiveWithoutSack),
        "
        send 8           -> sent 8; 0..8
        nack 0 2         -> +0 loss; 0..8 | resend 0
        nack 0 3         -> +0; 0..8 | resend 0
        resend 9         -> resent [0]; 0..8 | recovery to 7
        nack 0 5         -> +0; 0..8 | recovery to 7
        resend 9         -> resent []; 0..8 | recovery to 7
        ack 1            -> +1; 1..8 | recovery to 7 | resend 1
        resend 9         -> resent [1]; 1..8 | recovery to 7
        ack 4            -> +3; 4..8 | recovery to 7 | resend 4
        resend 9         -> resent [4]; 4..8 | recovery to 7
        ack 8            -> +4 recovered; 8..8
        ",
    );
}

#[test]
fn counters_tell_stale_from_invalid() {
    let mut window = SenderWindow::new(Psn::new(0xFF_FFFE), IrnConfig::default());
    for _ in 0..4 {
        window.on_send_new();
    }
    window.on_ack(Psn::new(0));
    window.on_ack(Psn::new(0xFF_FFFF));
    window.on_ack(Psn::new(3));
    window.on_nack(Psn::new(0), Psn::new(1), 1);
    assert_eq!(window.poll_retransmit(), Some(Psn::new(0)));
    window.on_timeout();
    let counters =
        SenderCounters { retransmitted: 1, timeouts: 1, timeouts_extended: 0, stale: 1, invalid: 1 };
    assert_eq!(window.counters(), counters);
}

#[test]
fn the_receiver_waits_with_messages_until_everything_before_has_arrived() {
    use Arrival::{BeyondWindow, Duplicate, InOrder, OutOfOrder};
    use PacketClass::{Last, LastWithCompletion, Middle};
    for origin in [0, 0xFF_FFFB, 0xFF_FFFF] {
        let mut window = ReceiverWindow::new(Psn::new(origin), &IrnConfig::default());
        let psn = |n: u32| Psn::new(origin).add(n);
        assert_eq!(window.on_arrival(psn(0), Middle), InOrder { advanced: 1, messages: 0, completions: 0 });
        assert_eq!(window.on_arrival(psn(4), LastWithCompletion), OutOfOrder { place: true, run_len: 1 });
        assert_eq!(window.on_arrival(psn(3), Middle), OutOfOrder { place: true, run_len: 1 });
        assert_eq!(window.on_arrival(psn(2), Last), OutOfOrder { place: true, run_len: 1 });
        assert_eq!(window.on_arrival(psn(4), LastWithCompletion), OutOfOrder { place: false, run_len: 3 });
        assert_eq!((window.msn(), window.early(), window.next_expected()), (0, 3, psn(1)));
        assert_eq!(window.locate(psn(1)), Location::Next);
        assert_eq!(window.locate(psn(2)), Location::EarlyAgain);
        assert_eq!(window.locate(psn(5)), Location::Early);
        assert_eq!(window.on_arrival(psn(1), Middle), InOrder { advanced: 4, messages: 2, completions: 1 });
        assert_eq!((window.msn(), window.early(), window.next_expected()), (2, 0, psn(5)));
        assert_eq!(window.on_arrival(psn(4), LastWithCompletion), Duplicate);
        assert_eq!(window.on_arrival(psn(5 + window.capacity()), Last), BeyondWindow);
        assert_eq!(
            window.on_arrival(psn(4 + window.capacity()), Last),
            OutOfOrder { place: true, run_len: 1 }
        );
    }
}

#[test]
fn a_go_back_n_receiver_keeps_nothing_that_is_early() {
    let config = IrnConfig::default().with_recovery(LossRecovery::GoBackN);
    let mut window = ReceiverWindow::new(Psn::new(7), &config);
    let discarded = Arrival::OutOfOrder { place: false, run_len: 0 };
    assert_eq!(window.on_arrival(Psn::new(8), PacketClass::Last), discarded);
    let alone = Arrival::InOrder { advanced: 1, messages: 0, completions: 0 };
    assert_eq!(window.on_arrival(Psn::new(7), PacketClass::Middle), alone);
    assert_eq!(window.next_expected(), Psn::new(8));
}

#[test]
fn runs_are_reported_across_words_and_up_to_a_byte() {
    let mut window = ReceiverWindow::new(Psn::new(0xFF_FFC0), &IrnConfig::default());
    let mut last = 0;
    for n in 1..=300 {
        let arrival = window.on_arrival(Psn::new(0xFF_FFC0).add(n), PacketClass::Middle);
        assert_eq!(arrival, Arrival::OutOfOrder { place: true, run_len: n.min(SACK_RUN_MAX) });
        last = n;
    }
    let all = Arrival::InOrder { advanced: last + 1, messages: 0, completions: 0 };
    assert_eq!(window.on_arrival(Psn::new(0xFF_FFC0), PacketClass::Middle), all);
}

#[test]
fn an_overtaken_packet_is_not_lost_until_the_tolerance_is_used_up() {
    let config = IrnConfig::default().with_cap(16).with_reordering(3);
    check(
        config,
        "
        send 8           -> sent 8; 0..8
        nack 0 1         -> +0 sack 1; 0..8 sacked 1
        nack 0 3         -> +0 sack 1; 0..8 sacked 1 3
        resend           -> resent []; 0..8 sacked 1 3
        ack 2            -> +2; 2..8 sacked 3
        resend           -> resent []; 2..8 sacked 3
        nack 2 5         -> +0 sack 1; 2..8 sacked 3 5
        resend           -> resent []; 2..8 sacked 3 5
        nack 2 6         -> +0 sack 1 loss; 2..8 sacked 3 5 6 | resend 2
        resend 3         -> resent [2]; 2..8 sacked 3 5 6 | recovery to 7
        send 2           -> sent 2; 2..10 sacked 3 5 6 | recovery to 7
        nack 2 8         -> +0 sack 1; 2..10 sacked 3 5 6 8 | recovery to 7 | search after 2
        resend 3         -> resent [4]; 2..10 sacked 3 5 6 8 | recovery to 9
        ack 7            -> +5; 7..10 sacked 8 | recovery to 9
        timeout          -> Resend; 7..10 sacked 8 | recovery to 9 | resend 7
        ",
    );
}

#[test]
fn partial_acknowledgements_repeat_a_packet_never_on_evidence_or_always() {
    let check = |partial_acks, after: &str| {
        let conversation = format!(
            "send 8           -> sent 8; 0..8
            nack 0 2         -> +0 sack 1 loss; 0..8 sacked 2 | resend 0
            resend 2         -> resent [0, 1]; 0..8 sacked 2 | recovery to 7 | search after 1
            send 4           -> sent 4; 0..12 sacked 2 | recovery to 7 | search after 1
            resend           -> resent []; 0..12 sacked 2 | recovery to 7
            {after}"
        );
        check(IrnConfig::default().with_cap(16).with_partial_acks(partial_acks), &conversation);
    };
    check(
        PartialAcks::Never,
        "ack 5            -> +5; 5..12 | recovery to 7
        resend           -> resent []; 5..12 | recovery to 7
        ack 9            -> +4 recovered; 9..12",
    );
    check(
        PartialAcks::Evident,
        "ack 5            -> +5; 5..12 | recovery to 7 | resend 5
        resend           -> resent [5]; 5..12 | recovery to 11 | search after 5
        ack 9            -> +4; 9..12 | recovery to 11 | search after 5",
    );
    check(
        PartialAcks::Hardware,
        "ack 5            -> +5; 5..12 | recovery to 7 | resend 5
        resend           -> resent [5]; 5..12 | recovery to 11 | search after 5
        ack 9            -> +4; 9..12 | recovery to 11 | resend 9",
    );
}

/// The rule of the authors' hardware read word by word: in recovery, an acknowledgement that moves the front to a packet which was not
/// repeated yet repeats that packet, whatever is known of it. After one repetition in vain (5, whose acknowledgement was under way) each
/// acknowledgement founds the next one: packets 9 to 12 were lost by nobody, and each leaves twice. With evidence asked for, none does.
#[test]
fn after_a_repetition_in_vain_the_hardware_repeats_each_packet_and_evidence_ends_it() {
    let begin = "
        send 8           -> sent 8; 0..8
        nack 0 2         -> +0 sack 1 loss; 0..8 sacked 2 | resend 0
        resend 2         -> resent [0, 1]; 0..8 sacked 2 | recovery to 7 | search after 1
        send 4           -> sent 4; 0..12 sacked 2 | recovery to 7 | search after 1
        ack 5            -> +5; 5..12 | recovery to 7 | resend 5
        resend           -> resent [5]; 5..12 | recovery to 11 | search after 5
        send 4           -> sent 4; 5..16 | recovery to 11 | search after 5";
    let check = |partial_acks, rest: &str| {
        check(IrnConfig::default().with_cap(16).with_partial_acks(partial_acks), &format!("{begin}\n{rest}"));
    };
    check(
        PartialAcks::Hardware,
        "ack 9            -> +4; 9..16 | recovery to 11 | resend 9
        resend           -> resent [9]; 9..16 | recovery to 15 | search after 9
        ack 10           -> +1; 10..16 | recovery to 15 | resend 10
        resend           -> resent [10]; 10..16 | recovery to 15 | search after 10
        ack 11           -> +1; 11..16 | recovery to 15 | resend 11
        resend           -> resent [11]; 11..16 | recovery to 15 | search after 11
        ack 12           -> +1; 12..16 | recovery to 15 | resend 12",
    );
    check(
        PartialAcks::Evident,
        "ack 9            -> +4; 9..16 | recovery to 11 | search after 5
        resend           -> resent []; 9..16 | recovery to 11
        ack 10           -> +1; 10..16 | recovery to 11
        ack 11           -> +1; 11..16 | recovery to 11
        ack 12           -> +1 recovered; 12..16
        resend           -> resent []; 12..16",
    );
}

/// A packet whose headers alone arrived is resent at once, and once: later SACKs above it are older than the repetition.
#[test]
fn a_trimmed_packet_is_resent_once_and_at_once() {
    check(
        IrnConfig::default(),
        "
        send 6           -> sent 6; 0..6
        trimmed 0 0      -> +0 loss; 0..6 | trimmed 0
        trimmed 0 0      -> +0; 0..6 | trimmed 0
        resend           -> resent [0]; 0..6 | recovery to 5 | search after 0
        nack 0 1         -> +0 sack 1; 0..6 sacked 1 | recovery to 5 | search after 0
        nack 0 2         -> +0 sack 1; 0..6 sacked 1 2 | recovery to 5 | search after 0
        resend 3         -> resent []; 0..6 sacked 1 2 | recovery to 5
        trimmed 0 4      -> +0 loss; 0..6 sacked 1 2 | recovery to 5 | trimmed 4
        resend 3         -> resent [4]; 0..6 sacked 1 2 | recovery to 5
        nack 0 5         -> +0 sack 1; 0..6 sacked 1 2 5 | recovery to 5 | search after 0
        resend 3         -> resent [3]; 0..6 sacked 1 2 5 | recovery to 5
        ack 4            -> +4; 4..6 sacked 5 | recovery to 5
        resend 3         -> resent []; 4..6 sacked 5 | recovery to 5
        ack 6            -> +2 recovered; 6..6
        ",
    );
}

/// Trimmed again, it is resent again; lost altogether, the timeout finds it.
#[test]
fn a_repetition_may_be_trimmed_or_lost_too() {
    check(
        IrnConfig::default(),
        "
        send 3           -> sent 3; 0..3
        trimmed 0 1      -> +0 loss; 0..3 | trimmed 1
        resend           -> resent [1]; 0..3
        ack 1            -> +1; 1..3 | recovery to 2 | search after 1
        nack 1 2         -> +0 sack 1; 1..3 sacked 2 | recovery to 2 | search after 1
        resend           -> resent []; 1..3 sacked 2 | recovery to 2
        trimmed 1 1      -> +0 loss; 1..3 sacked 2 | recovery to 2 | trimmed 1
        resend           -> resent [1]; 1..3 sacked 2 | recovery to 2
        timeout          -> Resend; 1..3 sacked 2 | recovery to 2 | resend 1
        resend           -> resent [1]; 1..3 sacked 2 | recovery to 2 | search after 1
        ack 3            -> +2 recovered; 3..3
        trimmed 3 7      -> +0; 3..3
        trimmed 3 1      -> +0; 3..3
        ",
    );
}
