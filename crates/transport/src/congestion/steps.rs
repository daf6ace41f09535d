//! DCQCN step by step, against values worked out by hand; the tables are what a reviewer sees change.

use super::*;
use std::fmt::Write;

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

/// Plays what stands left of each colon, "microsecond event", and compares the rates in Mb/s and α with what stands right.
fn check(mut dcqcn: Dcqcn, table: &str) {
    let lines = || table.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut played = String::new();
    for line in lines() {
        let event = line.split(':').next().expect("split yields at least one part").trim();
        let now = play(&mut dcqcn, event);
        let mbps = |rate: Rate| rate.bits_per_second() as f64 / 1e6;
        let (rate, target) = (mbps(dcqcn.current_rate()), mbps(dcqcn.target_rate()));
        let timer = dcqcn.next_timer().map_or("-".to_owned(), |due| (due.as_nanos() / 1_000).to_string());
        let alpha = dcqcn.alpha_at(now);
        writeln!(played, "{event:<17}: {rate:9.3} of {target:9.3}, alpha {alpha:?}, timer {timer}")
            .expect("strings take everything");
    }
    let expected: String = lines().flat_map(|line| [line, "\n"]).collect();
    assert_eq!(played, expected, "\n{played}");
}

fn play(dcqcn: &mut Dcqcn, event: &str) -> Instant {
    let mut words = event.split(' ');
    let now = at(words.next().expect("a time").parse().expect("microseconds"));
    match words.next().expect("an event") {
        "cnp" => dcqcn.on_cnp(now),
        "timer" => dcqcn.on_timer(now),
        "sent" => dcqcn.on_sent(now, words.next().expect("a size").parse().expect("bytes")),
        "look" => {}
        other => panic!("no event is called {other}"),
    }
    now
}

/// Five fast recoveries halve the distance to 20 Gb/s; then the target moves by 40 Mb/s per rise of either clock, and once
/// both clocks have risen more than five times, by 200, 400, … Mb/s.
#[test]
fn quiet_brings_the_rate_back_in_three_phases() {
    check(
        Dcqcn::paper(Rate::from_gbps(40)),
        "
        0 look           : 40000.000 of 40000.000, alpha 1.000000, timer -
        0 cnp            : 20000.000 of 40000.000, alpha 1.000000, timer 55
        50 cnp           : 10000.000 of 20000.000, alpha 1.000000, timer 105
        104 timer        : 10000.000 of 20000.000, alpha 1.000000, timer 105
        105 timer        : 15000.000 of 20000.000, alpha 0.996094, timer 160
        160 timer        : 17500.000 of 20000.000, alpha 0.992203, timer 215
        215 timer        : 18750.000 of 20000.000, alpha 0.988327, timer 270
        270 timer        : 19375.000 of 20000.000, alpha 0.984466, timer 325
        325 timer        : 19687.500 of 20000.000, alpha 0.980621, timer 380
        380 timer        : 19863.750 of 20040.000, alpha 0.976790, timer 435
        435 timer        : 19971.875 of 20080.000, alpha 0.972975, timer 490
        436 sent 59999999: 20237.871 of 20280.000, alpha 0.972975, timer 490
        437 sent 1       : 20278.936 of 20320.000, alpha 0.972975, timer 490
        438 sent 10000000: 20399.468 of 20520.000, alpha 0.972975, timer 490
        490 timer        : 20659.734 of 20920.000, alpha 0.969174, timer 545
        ",
    );
}

/// 40 Gb/s x 1025/2048 after the first cut; the second CNP comes within 4 µs of it and only counts for α; the third cuts,
/// but nothing has risen since, so the target stays; additive steps are 8 Mb/s, hyper steps 80 Mb/s.
#[test]
fn connectx_spaces_its_cuts_and_keeps_its_target() {
    check(
        Dcqcn::connectx(Rate::from_gbps(40)),
        "
        0 cnp            : 20019.531 of 40000.000, alpha 0.999027, timer 300
        2 cnp            : 20019.531 of 40000.000, alpha 0.991272, timer 300
        50 cnp           : 11796.594 of 40000.000, alpha 0.822189, timer 350
        350 timer        : 25898.297 of 40000.000, alpha 0.254118, timer 650
        360 cnp          : 22733.984 of 25898.297, alpha 0.247316, timer 660
        660 timer        : 24316.140 of 25898.297, alpha 0.076439, timer 960
        960 timer        : 25111.219 of 25906.297, alpha 0.023626, timer 1260
        1260 timer       : 25548.758 of 25986.297, alpha 0.007302, timer 1560
        1560 timer       : 25807.527 of 26066.297, alpha 0.002257, timer 1860
        ",
    );
}

/// A timer that is called late makes up for every rise it missed.
#[test]
fn late_timers_catch_up() {
    let rates = |calls: &[u64]| {
        let mut dcqcn = Dcqcn::paper(Rate::from_gbps(40));
        dcqcn.on_cnp(at(0));
        dcqcn.on_cnp(at(50));
        calls.iter().for_each(|&us| dcqcn.on_timer(at(us)));
        (dcqcn.current_rate(), dcqcn.target_rate(), dcqcn.next_timer())
    };
    assert_eq!(rates(&[2_000]), rates(&[105, 160, 161, 500, 1_000, 1_999, 2_000]));
}

#[test]
fn a_flow_under_constant_marks_falls_to_the_minimum_and_no_further() {
    for mut dcqcn in [Dcqcn::paper(Rate::from_gbps(40)), Dcqcn::connectx(Rate::from_gbps(40))] {
        (0..2_000).for_each(|n| dcqcn.on_cnp(at(50 * n)));
        assert_eq!(dcqcn.rate(), Some(Rate::from_mbps(100)));
    }
}

#[test]
fn a_quiet_flow_returns_to_line_rate_and_needs_no_timer() {
    for mut dcqcn in [Dcqcn::paper(Rate::from_gbps(40)), Dcqcn::connectx(Rate::from_gbps(40))] {
        assert_eq!(dcqcn.next_timer(), None, "a flow that was never told to slow down");
        (0..100).for_each(|n| dcqcn.on_cnp(at(50 * n)));
        let mut rises = 0;
        while let Some(due) = dcqcn.next_timer() {
            dcqcn.on_timer(due);
            rises += 1;
        }
        assert_eq!((dcqcn.current_rate(), dcqcn.target_rate()), (Rate::from_gbps(40), Rate::from_gbps(40)));
        assert!((20..1_100).contains(&rises), "{rises} rises");
    }
}

#[test]
fn alpha_forgets_by_255_parts_in_256_per_interval() {
    let mut dcqcn = Dcqcn::paper(Rate::from_gbps(40));
    assert_eq!(
        dcqcn.alpha_at(at(1_000_000)),
        Fraction::ONE,
        "nothing to forget before the first notification"
    );
    dcqcn.on_cnp(at(0));
    assert_eq!(dcqcn.alpha_at(at(109)), Fraction::new(255, 256));
    assert_eq!(dcqcn.alpha_at(at(110)), Fraction::new(65_025, 65_536));
    assert_eq!(dcqcn.alpha_at(at(1_000_000_000)), Fraction::ZERO);
}

#[test]
fn without_congestion_control_nothing_is_paced() {
    let none = Congestion::default();
    assert_eq!((none.rate(), none.window(), none.next_timer()), (None, None, None));
    let mut dcqcn = Congestion::from(Some(Box::new(Dcqcn::paper(Rate::from_gbps(10))) as Box<_>));
    dcqcn.control().expect("there is one").on_cnp(at(1));
    assert_eq!(dcqcn.clone().rate(), Some(Rate::from_gbps(5)));
}
