//! Goodput on a fixed simulated link, as a table that is checked in: a change of recovery or congestion control shows up in
//! review as changed numbers. `HIGHWIRE_BLESS=1` writes the table anew.

#[path = "common/mod.rs"]
mod common;

use common::{BASE, End, Lengths, Link, Net, Verdict, connect};
use highwire_rnic::{CongestionChoice, Counter, TransportConfig};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{
    Access, LocalKey, Mtu, Operation, QpAttr, QpCaps, QpConfig, Recovery, RegionAttr, Remote, RemoteKey,
    SendWr, Service, Sge,
};
use highwire_wire::Psn;
use std::fmt::Write as _;

const MESSAGE_BYTES: u32 = 64 << 10;
const MESSAGES: u64 = 256;
const QUEUE_DEPTH: u32 = 16;
const LINK: Link =
    Link { latency: Duration::from_micros(10), rate: Some(40_000_000_000), quantum: Duration::from_nanos(1) };

/// One transfer.
#[derive(Clone, Copy)]
struct Case {
    recovery: Recovery,
    is_read: bool,
    loss: f64,
    congestion: CongestionChoice,
    marks: f64,
}

struct Bench {
    net: Net<Lengths>,
    ends: [End; 2],
    keys: [LocalKey; 2],
}

fn bench(case: &Case) -> Bench {
    let transport = TransportConfig { congestion: case.congestion, ..TransportConfig::default() };
    let mut net = Net::new(vec![Lengths::default(); 2], LINK, transport, 1);
    let (mut ends, mut keys) = (Vec::new(), Vec::new());
    for (index, node) in net.nodes.iter_mut().enumerate() {
        let length = u64::from(MESSAGE_BYTES);
        node.memory.writable.push(BASE..BASE + length);
        let attr = RegionAttr { addr: BASE, length, iova: BASE, access: Access::ALL };
        keys.push(node.rnic.regions_mut().register(node.pd, attr).expect("registers"));
        let config = QpConfig {
            service: Service::Rc,
            pd: node.pd,
            send_cq: node.cq,
            recv_cq: node.cq,
            srq: None,
            caps: QpCaps { max_send_wr: QUEUE_DEPTH, ..QpCaps::default() },
            signal_all: true,
        };
        ends.push(End { node: index, qpn: node.rnic.create_qp(config).expect("a queue pair") });
    }
    for index in 0..2 {
        let attr = QpAttr {
            access: Some(Access::ALL),
            path_mtu: Some(Mtu::B1024),
            rq_psn: Some(Psn::new(0)),
            sq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(16),
            max_rd_atomic: Some(16),
            min_rnr_timer: Some(1),
            // About RTO_high, as IRN's paper gives RoCE without PFC.
            timeout: Some(6),
            retry_count: Some(7),
            rnr_retry: Some(7),
            recovery: Some(case.recovery),
            ..QpAttr::default()
        };
        connect(&mut net.nodes[index], ends[index].qpn, ends[1 - index], Instant::ZERO, &attr, false);
        net.nodes[index].rnic.set_irn_accepted(ends[index].qpn, case.recovery == Recovery::Irn);
    }
    let (loss, marks) = (case.loss, case.marks);
    net.rules.push(Box::new(move |_, rng| Verdict {
        drop: rng.chance(loss),
        mark: rng.chance(marks),
        ..Verdict::PASS
    }));
    Bench { net, ends: [ends[0], ends[1]], keys: [keys[0], keys[1]] }
}

/// One line of a table.
fn measure(case: &Case) -> String {
    let Bench { mut net, ends, keys } = bench(case);
    let remote = Remote { va: BASE, rkey: RemoteKey(keys[1].0) };
    let operation = if case.is_read { Operation::Read(remote) } else { Operation::Write(remote) };
    let sges = [Sge { addr: BASE, length: MESSAGE_BYTES, lkey: keys[0] }];
    let (mut posted, mut done) = (0, 0);
    net.run_while(Duration::from_secs(10), |net| {
        done += net.nodes[0].take_completions().len() as u64;
        while posted < MESSAGES && posted - done < u64::from(QUEUE_DEPTH) {
            let wr = SendWr::new(posted, operation, &sges);
            net.nodes[0].rnic.post_send(net.now, ends[0].qpn, &wr).expect("there is room");
            net.drain();
            posted += 1;
        }
        done < MESSAGES
    });
    assert_eq!(done, MESSAGES);
    let bits = MESSAGES * u64::from(MESSAGE_BYTES) * 8;
    let sum = |counter| net.nodes.iter().map(|n| n.rnic.counters().value(counter)).sum::<u64>();
    format!(
        "{:<10} {:<5} {:>5.1} % {:>5.1} % {:>8.2} {:>8} {:>8} {:>8}\n",
        match case.recovery {
            Recovery::GoBackN => "go-back-N",
            Recovery::Irn => "IRN",
        },
        if case.is_read { "READ" } else { "WRITE" },
        case.loss * 100.0,
        case.marks * 100.0,
        bits as f64 / net.now.as_nanos() as f64,
        net.packets,
        sum(Counter::Retransmitted),
        sum(Counter::Timeouts),
    )
}

const HEAD: &str = "recovery   what     loss   marks    Gb/s   packets   resent timeouts\n";

fn table() -> String {
    let mut text = format!(
        "One queue pair, {MESSAGES} messages of {} KiB, {QUEUE_DEPTH} at once, MTU 1024, 40 Gb/s, 10 us each way.\n\n{HEAD}",
        MESSAGE_BYTES >> 10
    );
    let base = Case {
        recovery: Recovery::GoBackN,
        is_read: false,
        loss: 0.0,
        congestion: CongestionChoice::NONE,
        marks: 0.0,
    };
    for is_read in [false, true] {
        for recovery in [Recovery::GoBackN, Recovery::Irn] {
            for loss in [0.0, 0.001, 0.01, 0.05] {
                text += &measure(&Case { recovery, is_read, loss, ..base });
            }
        }
    }
    let _ = write!(text, "\nWith DCQCN, and switches that mark:\n\n{HEAD}");
    for recovery in [Recovery::GoBackN, Recovery::Irn] {
        for marks in [0.0, 0.001, 0.05] {
            text += &measure(&Case { recovery, congestion: CongestionChoice::DCQCN, marks, ..base });
        }
    }
    text
}

#[test]
#[allow(clippy::disallowed_methods, reason = "who changes the numbers on purpose says so")]
fn goodput_is_what_the_table_says() {
    let text = table();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/goodput.txt");
    if std::env::var("HIGHWIRE_BLESS").is_ok() {
        std::fs::write(file, &text).expect("the golden folder is there");
    }
    let golden = include_str!("golden/goodput.txt");
    assert!(
        golden == text || std::env::var("HIGHWIRE_BLESS").is_ok(),
        "goodput has changed; if that was the purpose: HIGHWIRE_BLESS=1 cargo test -p highwire-rnic --test performance\n{text}"
    );
}
