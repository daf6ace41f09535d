//! perftest: latency and bandwidth of every operation, with the options that change which verbs are called.

use super::super::case::{Case, Link, Ready};
use super::super::judge;
use super::LINKS;

/// Program, connections, and the options to try with each.
const LATENCY: [(&str, &[&str]); 4] = [
    ("ib_send_lat", &["RC", "UC", "UD"]),
    ("ib_write_lat", &["RC", "UC"]),
    ("ib_read_lat", &["RC"]),
    ("ib_atomic_lat", &["RC"]),
];
const BANDWIDTH: [(&str, &[&str]); 4] = [
    ("ib_send_bw", &["RC", "UC", "UD"]),
    ("ib_write_bw", &["RC", "UC"]),
    ("ib_read_bw", &["RC"]),
    ("ib_atomic_bw", &["RC"]),
];

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in LINKS {
        for (program, connections) in LATENCY {
            for connection in connections {
                add_case(cases, link, program, connection, "", true);
                if has_events(program) {
                    add_case(cases, link, program, connection, "-e", false);
                }
                if has_cm(connection) {
                    add_case(cases, link, program, connection, "-R", false);
                }
            }
        }
        for (program, connections) in BANDWIDTH {
            for connection in connections {
                add_case(cases, link, program, connection, "-n 500", *connection == "RC");
                if has_events(program) {
                    add_case(cases, link, program, connection, "-n 500 -e", false);
                }
                if has_cm(connection) {
                    add_case(cases, link, program, connection, "-n 500 -R", false);
                }
                add_case(cases, link, program, connection, "-n 500 -b", false);
                add_case(cases, link, program, connection, "-n 500 -q 4", false);
            }
        }
        for (program, options) in [
            ("ib_send_bw", "-n 500 --use-srq -q 2"),
            ("ib_send_lat", "--use-srq"),
            ("ib_send_bw", "-n 500 -c XRC"),
            ("ib_send_lat", "-c XRC"),
            ("ib_write_bw", "-n 500 -c XRC"),
            ("ib_read_bw", "-n 500 -c XRC"),
            ("ib_atomic_bw", "-n 500 -c XRC"),
            ("ib_send_bw", "-a -n 100"),
            ("ib_write_bw", "-a -n 100"),
            ("ib_send_lat", "-a -n 100"),
            ("ib_write_bw", "-n 512 -l 16"),
            ("ib_send_bw", "-n 512 -l 16 -t 64"),
            ("ib_write_bw", "-D 2"),
            ("ib_write_bw", "-n 500 -R -b -q 4"),
            ("ib_write_bw", "-n 500 --use_old_post_send"),
            ("ib_send_bw", "-n 500 --use_old_post_send"),
            ("ib_read_lat", "--use_old_post_send"),
            ("ib_atomic_lat", "-A CMP_AND_SWAP"),
            ("ib_atomic_bw", "-n 500 -A CMP_AND_SWAP"),
            ("ib_send_bw", "-n 500 -I 64 -s 64"),
            ("ib_write_lat", "-I 0 -s 4096"),
            ("ib_send_bw", "-n 500 -m 1024 -s 8192"),
            ("ib_send_bw", "-n 500 --odp"),
            ("ib_write_bw", "-n 500 -z"),
            ("ib_send_lat", "-e -R"),
            ("ib_send_bw", "-n 500 -g -M 255:14:0:0:0:0:0:0:0:0:255:255:239:1:2:3 -c UD"),
            ("ib_send_lat", "-x 1"),
        ] {
            let title = format!("{program} -F {options} -p {{port}}");
            let case = Case::two("perftest", &title, link, judge::perftest)
                .at_most(if options.contains("-a") { 120 } else { 20 });
            cases.push(if needs_no_tcp(options) { case.soon() } else { case });
        }
    }
    for (options, program) in [
        ("--loss 1% --seed 7", "ib_send_bw -F -n 500"),
        ("--loss 1% --seed 7", "ib_write_bw -F -n 500"),
        ("--loss 1% --seed 7", "ib_read_bw -F -n 500"),
        ("--loss 1% --seed 7 --recovery go-back-n", "ib_write_bw -F -n 500"),
        ("--reorder 2% --seed 7", "ib_send_bw -F -n 500"),
        ("--duplicate 2% --seed 7", "ib_atomic_bw -F -n 500"),
        ("--corrupt 1% --seed 7", "ib_write_bw -F -n 500"),
        ("--delay 20us", "ib_send_lat -F"),
    ] {
        let case = Case::two("perftest", &format!("{program} -p {{port}}"), Link::Udp, judge::perftest);
        cases.push(case.options(options));
    }
    add_raw_ethernet(cases);
}

/// Frames go over UDP on either link. The ends exchange nothing but frames: both know both stations. Frames
/// may be lost, and a server that counts them would wait for ever, so bandwidth is measured for a time.
fn add_raw_ethernet(cases: &mut Vec<Case>) {
    for (program, options) in [
        ("raw_ethernet_lat", "-n 200"),
        ("raw_ethernet_lat", "-n 200 -s 1024 -J 10.0.0.2 -j 10.0.0.1 -K 4000 -k 5000"),
        ("raw_ethernet_lat", "-n 200 --promiscuous"),
        ("raw_ethernet_bw", "-D 2 -s 1024"),
        ("raw_ethernet_bw", "-D 2 -s 1024 -J 10.0.0.2 -j 10.0.0.1 -K 4000 -k 5000 --tcp"),
    ] {
        let title = format!("{program} -F {options}");
        let [one, other] = ["02:00:00:48:57:01", "02:00:00:48:57:02"];
        let server = format!("{title} --server -E {one} -B {other}");
        let client = format!("{title} --client -E {other} -B {one}");
        let case = Case::two("perftest", &title, Link::Udp, judge::raw_ethernet);
        cases.push(case.ends(&server, &client, Ready::Soon));
    }
}

fn add_case(cases: &mut Vec<Case>, link: Link, program: &str, connection: &str, options: &str, quick: bool) {
    let title = format!("{program} -F -c {connection} {options}");
    let case = Case::two("perftest", &format!("{} -p {{port}}", title.trim()), link, judge::perftest);
    let case = if needs_no_tcp(options) { case.soon() } else { case };
    cases.push(if quick { case.quick() } else { case });
}

/// perftest itself refuses events for operations that its target sees without a completion.
fn has_events(program: &str) -> bool {
    !program.starts_with("ib_write")
}

/// Connection management knows no UC.
fn has_cm(connection: &str) -> bool {
    connection != "UC"
}

/// With `-R` and `-z` the ends meet over connection management.
fn needs_no_tcp(options: &str) -> bool {
    options.split(' ').any(|word| word == "-R" || word == "-z")
}
