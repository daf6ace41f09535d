use super::words::TRANSMIT_WORDS;
use super::*;
use crate::port::csr;

/// Contexts 0 with priority 0 and 1 with priority 1, 0 running.
fn two_threads(priorities: [u8; 2]) -> Interface {
    let mut interface = Interface::default();
    for (context, priority) in [(1, priorities[1]), (0, priorities[0])] {
        interface.write(0, csr::CURRENT_CONTEXT, context);
        interface.write(0, csr::CURRENT_PRIORITY, priority.into());
        interface.write(0, csr::NIC_COMMAND, 1);
    }
    interface
}

fn run(interface: &mut Interface, cycles: std::ops::Range<u64>) {
    cycles.for_each(|cycle| interface.tick(cycle));
}

#[test]
fn a_word_shows_in_the_csr_two_cycles_later() {
    let mut interface = two_threads([0, 1]);
    run(&mut interface, 0..21);
    interface.deliver(21, 0, 7, true);
    let shown: Vec<_> = (21..25)
        .map(|cycle| {
            let seen = interface.read(csr::MESSAGES_READY);
            interface.tick(cycle);
            seen
        })
        .collect();
    assert_eq!(shown, [0, 0, 1, 1]);
    assert_eq!(interface.take_word(99), 7);
    assert_eq!(interface.take_word(99), 0);
    assert_eq!(interface.misuse().count(Mistake::EmptyRead), 1);
}

#[test]
fn only_a_more_urgent_message_interrupts() {
    let mut interface = two_threads([0, 1]);
    interface.deliver(0, 0, 1, true);
    interface.deliver(1, 1, 2, true);
    run(&mut interface, 0..10);
    assert!(!interface.wants_switch());
    interface.write(10, csr::THREAD_COMMAND, 1);
    run(&mut interface, 10..13);
    assert!(interface.wants_switch());
    assert_eq!((interface.read(csr::TARGET_CONTEXT), interface.read(csr::TARGET_PRIORITY)), (1, 1));
    interface.write(13, csr::CURRENT_CONTEXT, 1);
    interface.write(13, csr::CURRENT_PRIORITY, 1);
    assert!(!interface.wants_switch());
    // The urgent thread takes the core back at once.
    interface.deliver(14, 0, 3, true);
    run(&mut interface, 14..17);
    assert!(interface.wants_switch());
}

#[test]
fn among_equals_the_oldest_message_is_first() {
    let mut interface = two_threads([0, 0]);
    interface.deliver(0, 0, 1, true);
    interface.deliver(1, 1, 2, true);
    interface.deliver(2, 0, 3, true);
    run(&mut interface, 0..5);
    assert!(!interface.wants_switch());
    interface.take_word(99);
    interface.write(5, csr::THREAD_COMMAND, 1);
    run(&mut interface, 5..8);
    assert_eq!(interface.read(csr::TARGET_CONTEXT), 1);
}

#[test]
fn a_message_that_takes_too_long_is_demoted() {
    let mut interface = two_threads([0, 0]);
    interface.write(0, csr::NIC_COMMAND, 4);
    interface.write(0, csr::MESSAGE_CYCLES, 100);
    interface.deliver(0, 0, 1, true);
    interface.deliver(1, 1, 2, true);
    run(&mut interface, 0..100);
    assert!(!interface.wants_switch());
    run(&mut interface, 100..104);
    assert_eq!(interface.read(csr::TARGET_CONTEXT), 1);
    assert_eq!(interface.read(csr::CURRENT_PRIORITY), 1);
}

#[test]
fn a_demotion_may_be_kept() {
    for keeps in [false, true] {
        let mut interface = two_threads([0, 0]);
        if keeps {
            interface.keep_demotions();
        }
        interface.write(0, csr::NIC_COMMAND, 4);
        interface.write(0, csr::MESSAGE_CYCLES, 100);
        interface.deliver(0, 0, 1, true);
        run(&mut interface, 0..200);
        let alone = interface.read(csr::CURRENT_PRIORITY);
        assert_eq!(alone, u64::from(!keeps), "nobody waits");
        interface.deliver(200, 1, 2, true);
        run(&mut interface, 200..204);
        assert!(interface.wants_switch());
        interface.take_word(204);
        interface.write(204, csr::THREAD_COMMAND, 1);
        assert_eq!(interface.read(csr::CURRENT_PRIORITY), u64::from(keeps));
    }
}

#[test]
fn idle_threads_pass_their_turn_on() {
    let mut interface = two_threads([0, 0]);
    interface.write(0, csr::NIC_COMMAND, 4);
    interface.write(0, csr::IDLE_CYCLES, 50);
    interface.write(0, csr::THREAD_COMMAND, 2);
    run(&mut interface, 0..50);
    assert!(!interface.wants_switch());
    run(&mut interface, 50..54);
    assert_eq!(interface.read(csr::TARGET_CONTEXT), 1);
}

#[test]
fn wrong_use_is_counted_and_its_first_place_kept() {
    let mut interface = two_threads([0, 0]);
    interface.deliver(3, 9, 1, true);
    for context in 2..6 {
        interface.by(0x100 + context);
        interface.write(context, csr::CURRENT_CONTEXT, context);
        interface.write(context, csr::NIC_COMMAND, 1);
    }
    let first = |mistake| interface.misuse().first(mistake).expect("it happened");
    let word = Occurrence { cycle: 3, pc: None, context: 9, detail: 1 };
    assert_eq!(first(Mistake::WordForUnknownContext), word);
    let refused = Occurrence { cycle: 4, pc: Some(0x104), context: 4, detail: 0 };
    assert_eq!(first(Mistake::RefusedContext), refused);
    let counts: Vec<_> = interface.misuse().all().map(|(mistake, count, _)| (mistake, count)).collect();
    assert_eq!(counts, [(Mistake::WordForUnknownContext, 1), (Mistake::RefusedContext, 2)]);
}

/// The mistakes noted when a program writes these words and then declares the message done.
fn mistakes_of(words: &[u64]) -> Vec<(Mistake, Occurrence)> {
    let mut interface = two_threads([0, 0]);
    for (place, &word) in words.iter().enumerate() {
        interface.by(0x100 + 4 * place as u64);
        interface.put_word(10 + place as u64, word);
    }
    interface.write(99, csr::THREAD_COMMAND, 1);
    interface.misuse().all().map(|(mistake, _, first)| (mistake, first)).collect()
}

#[test]
fn messages_that_are_not_what_their_header_says_are_noted() {
    let at = |place: u64, detail| Occurrence {
        cycle: 10 + place,
        pc: Some(0x100 + 4 * place),
        context: 0,
        detail,
    };
    let peer = 0x0a00_0001 << 32;
    assert_eq!(mistakes_of(&[peer | 16, 1, 2]), []);
    assert_eq!(
        mistakes_of(&[peer | 12, 1, 2, peer | 8, 3]),
        [],
        "two messages, the first of a word and a half"
    );
    assert_eq!(mistakes_of(&[]), []);
    assert_eq!(mistakes_of(&[peer | 16, 1]), [(Mistake::MessageUnfinished, at(0, 1))]);
    assert_eq!(mistakes_of(&[peer | 8, 1, 700]), [(Mistake::SurplusWord, at(2, 700))]);
    assert_eq!(mistakes_of(&[peer | 8, 1, 0]), [(Mistake::SurplusWord, at(2, 0))]);
    assert_eq!(mistakes_of(&[peer]), [(Mistake::MessageEmpty, at(0, 0))]);
    assert_eq!(mistakes_of(&[peer | 2049]), [(Mistake::MessageTooLong, at(0, 2049))]);
}

#[test]
fn queues_that_hardware_would_overrun_are_noted() {
    let mut interface = two_threads([0, 0]);
    for word in 0..=TRANSMIT_WORDS as u64 {
        interface.put_word(word, 0x0a00_0001_0000_0008);
    }
    for word in 0..=1024 {
        interface.deliver(word, 1, word, false);
    }
    let first = |mistake| interface.misuse().first(mistake).map(|first| (first.cycle, first.detail));
    assert_eq!(first(Mistake::TransmitOverrun), Some((512, 512)));
    assert_eq!(first(Mistake::ReceiveOverrun), Some((1024, 1024)));
}

/// The prototype computes its target anew in every cycle, the running thread included.
#[test]
fn a_message_for_the_running_thread_withdraws_a_target() {
    for anew in [true, false] {
        let mut interface = two_threads([0, 1]);
        if anew {
            interface.decide_anew();
        }
        // The interrupt is not taken meanwhile.
        interface.deliver(10, 1, 1, true);
        run(&mut interface, 10..20);
        assert!(interface.wants_switch());
        interface.deliver(20, 0, 2, true);
        run(&mut interface, 20..30);
        assert_eq!(interface.wants_switch(), !anew);
        assert_eq!(interface.read(csr::TARGET_CONTEXT), u64::from(!anew));
        // When the urgent message is done, the other one is the target again.
        interface.take_word(30);
        interface.write(30, csr::THREAD_COMMAND, 1);
        run(&mut interface, 30..33);
        assert_eq!(interface.read(csr::TARGET_CONTEXT), 1);
    }
}

/// Two events in a row are two decisions, of which the first one shows for a cycle.
#[test]
fn a_decision_does_not_wait_for_the_next_one() {
    let mut interface = two_threads([0, 1]);
    interface.decide_anew();
    interface.deliver(10, 1, 1, true);
    interface.tick(10);
    interface.deliver(11, 0, 2, true);
    let wants: Vec<bool> = (11..15)
        .map(|cycle| {
            interface.tick(cycle);
            interface.wants_switch()
        })
        .collect();
    assert_eq!(wants, [false, true, false, false]);
}

/// While nobody has anything to do, threads take turns, the current one included, and a switch does not begin the count again.
#[test]
fn idle_threads_take_turns() {
    let mut interface = two_threads([0, 0]);
    interface.decide_anew();
    interface.write(0, csr::NIC_COMMAND, 4);
    interface.write(0, csr::IDLE_CYCLES, 50);
    interface.write(0, csr::THREAD_COMMAND, 2);
    run(&mut interface, 0..60);
    assert!(!interface.wants_switch(), "it is the current thread's turn");
    run(&mut interface, 60..103);
    assert_eq!(interface.read(csr::TARGET_CONTEXT), 1);
    interface.write(120, csr::CURRENT_CONTEXT, 1);
    interface.write(121, csr::THREAD_COMMAND, 2);
    run(&mut interface, 120..150);
    assert!(!interface.wants_switch());
    run(&mut interface, 150..153);
    assert_eq!(interface.read(csr::TARGET_CONTEXT), 0);
}
