//! Connections do not scale with a card that holds few of their contexts; datagrams do. All of it in the model that `scale` states.

use highwire_fabric::Span;
use highwire_sim::scale::{Measured, Nic, Operation, Setting, measure};

fn setting(nodes: u32, cached: usize) -> Setting {
    let nic = Nic { cached, ..Setting::default().nic };
    Setting { nodes, threads: 4, nic, length: Span::from_us(60), ..Setting::default() }
}

fn play(nodes: u32, cached: usize, operation: Operation) -> Measured {
    measure(&setting(nodes, cached), operation).expect("the fabric's invariants hold")
}

/// The rate of a card: an operation is four packets at each node, counting its own operations and those that
/// it serves.
fn bound(setting: &Setting) -> f64 {
    1e12 / (4 * setting.nic.packet.as_ps()) as f64 / 1e6
}

#[test]
fn nothing_falls_off_while_the_card_holds_every_connection() {
    for operation in [Operation::Read, Operation::UdRpc] {
        for nodes in [4, 12] {
            let measured = play(nodes, 64, operation);
            assert!(measured.queue_pairs <= 64);
            let share = measured.rate / bound(&setting(nodes, 64));
            assert!((0.95..=1.01).contains(&share), "{operation:?} of {nodes} nodes: {measured:?}");
            assert_eq!(measured.hits_percent, 100.0);
        }
    }
}

#[test]
fn reads_and_rpcs_over_connections_fall_off_when_the_card_does_not_hold_them_all_and_rpcs_over_datagrams_do_not()
 {
    let rates = |operation| [4, 8, 16].map(|nodes| play(nodes, 16, operation).rate);
    let [few, more, many] = rates(Operation::Read);
    assert!(more < 0.4 * few && many < 0.9 * more, "{few} {more} {many}");
    let [few, more, many] = rates(Operation::RcRpc);
    assert!(more < 0.5 * few && many < 0.5 * few, "{few} {more} {many}");
    let [few, more, many] = rates(Operation::UdRpc);
    assert!(more > 0.95 * few && many > 0.95 * few, "{few} {more} {many}");
}

#[test]
fn a_rate_is_what_the_misses_cost_and_follows_from_the_seed() {
    let setting = setting(16, 16);
    let measured = measure(&setting, Operation::Read).expect("it runs");
    let misses = 1.0 - measured.hits_percent / 100.0;
    let packet_ps = setting.nic.packet.as_ps() as f64 + misses * setting.nic.miss.as_ps() as f64;
    let predicted = 1e12 / (4.0 * packet_ps) / 1e6;
    assert!((0.95..=1.05).contains(&(measured.rate / predicted)), "{measured:?}, predicted {predicted}");
    assert_eq!(measure(&setting, Operation::Read).expect("it runs"), measured);
    let other = Setting { seed: 2, ..setting };
    assert_ne!(measure(&other, Operation::Read).expect("it runs"), measured);
}
