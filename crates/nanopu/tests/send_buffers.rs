//! Cores that write several messages at once while send buffers are few: which core waits for which, and how
//! no core waits for ever.

use highwire_nanopu::nic::blocks::SendHalf;
use highwire_nanopu::nic::{Ndp, NicConfig};
use highwire_nanopu::packet::{AppHeader, Packet, flag};
use highwire_nanopu::{Interface, csr};
use highwire_stdx::Rng;

const PEER: u32 = 0x0a00_0001;
/// Longer than any acknowledgement takes.
const QUIET_CYCLES: u64 = 2_000;

fn half(sends_by_context: bool, buffers: usize) -> SendHalf<Ndp> {
    let config = NicConfig { buffers: [buffers, 0], sends_by_context, ..NicConfig::default() };
    SendHalf::new(&config, Ndp { rtt_packets: 2 })
}

fn write(interface: &mut Interface, context: u64, word: u64) {
    interface.write(0, csr::CURRENT_CONTEXT, context);
    interface.put_word(0, word);
}

fn header(bytes: u16) -> u64 {
    AppHeader { peer: PEER, context: 7, bytes }.word()
}

/// A thread is interrupted in the middle of a message, and the one that runs now sends as well: one buffer, two messages.
fn interrupted(half: &mut SendHalf<Ndp>, cycles: u64) -> (Interface, Vec<Packet>) {
    let mut interfaces = [Interface::default()];
    for (context, word) in [(1, header(16)), (1, 10), (0, header(8)), (0, 20), (1, 11)] {
        write(&mut interfaces[0], context, word);
    }
    let mut sent = Vec::new();
    let mut acks: Vec<(u64, Packet)> = Vec::new();
    for cycle in 1..cycles {
        half.accept(cycle, &mut interfaces);
        while let Some(at) = acks.iter().position(|&(due, _)| due <= cycle) {
            half.on_control(cycle, &acks.swap_remove(at).1);
        }
        if let Some((first, packet)) = half.tick(cycle) {
            acks.push((first + 100, packet.reply(flag::ACK)));
            sent.push(packet);
        }
    }
    let [interface] = interfaces;
    (interface, sent)
}

#[test]
fn a_message_waits_for_a_buffer_of_the_one_behind_it() {
    let mut half = half(false, 1);
    let (interface, sent) = interrupted(&mut half, QUIET_CYCLES);
    assert!(sent.is_empty(), "{sent:?}");
    assert_eq!(half.deadlocked(&[interface]), [0]);
}

#[test]
fn words_of_other_contexts_pass_where_they_may() {
    let mut half = half(true, 1);
    let (interface, sent) = interrupted(&mut half, QUIET_CYCLES);
    assert_eq!(interface.peek_sent(), None);
    let payloads: Vec<u8> = sent.iter().map(|packet| *packet.payload.last().unwrap()).collect();
    assert_eq!(payloads, [11, 20]);
    assert!(half.deadlocked(&[interface]).is_empty());
}

/// The result for cores that wrote whole messages, word by word in any order of their contexts.
struct Run {
    delivered: u64,
    /// Words that never left.
    left: usize,
    deadlocked: usize,
}

fn random(seed: u64, sends_by_context: bool) -> Run {
    const MESSAGES: u64 = 60;
    let mut rng = Rng::new(seed);
    let cores = rng.between(1, 4) as usize;
    let mut half = half(sends_by_context, rng.between(1, 4) as usize);
    let mut interfaces: Vec<Interface> = (0..cores).map(|_| Interface::default()).collect();
    // Per core and context: words that are missing to the message.
    let mut missing = vec![[0u64; 3]; cores];
    let (mut begun, mut quiet) = (0, 0);
    let mut acks: Vec<(u64, Packet)> = Vec::new();
    for cycle in 1.. {
        let accepted = half.accept(cycle, &mut interfaces).is_some();
        for (core, missing) in missing.iter_mut().enumerate() {
            let context = rng.below(3) as usize;
            if !rng.chance(0.3) || (missing[context] == 0 && begun == MESSAGES) {
                continue;
            }
            if missing[context] == 0 {
                begun += 1;
                missing[context] = rng.between(1, 6);
                write(&mut interfaces[core], context as u64, header(missing[context] as u16 * 8));
            } else {
                missing[context] -= 1;
                write(&mut interfaces[core], context as u64, 0);
            }
        }
        while let Some(at) = acks.iter().position(|&(due, _)| due <= cycle) {
            half.on_control(cycle, &acks.swap_remove(at).1);
        }
        if let Some((first, packet)) = half.tick(cycle)
            && packet.is_data()
        {
            acks.push((first + rng.between(20, 300), packet.reply(flag::ACK)));
        }
        quiet = if accepted { 0 } else { quiet + 1 };
        if quiet > QUIET_CYCLES && missing.iter().flatten().all(|&words| words == 0) && begun == MESSAGES {
            break;
        }
    }
    let left = interfaces.iter().map(|interface| interface.sent_heads().count()).sum();
    Run { delivered: half.counters().delivered, left, deadlocked: half.deadlocked(&interfaces).len() }
}

#[test]
fn who_never_goes_on_is_named() {
    let mut stuck = 0;
    for seed in 0..60 {
        let run = random(seed, false);
        assert_eq!(run.left > 0, run.deadlocked > 0, "seed {seed}: {} words left", run.left);
        stuck += usize::from(run.left > 0);
    }
    println!("{stuck} of 60 runs end in a deadlock");
    assert!((5..60).contains(&stuck), "{stuck}");
}

#[test]
fn queues_by_context_never_wait_for_themselves() {
    for seed in 0..60 {
        let run = random(seed, true);
        assert_eq!((run.delivered, run.left, run.deadlocked), (60, 0, 0), "seed {seed}");
    }
}
