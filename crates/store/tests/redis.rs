//! Redis's own clients at the Redis doors of three nodes: redis-py, redis-cli and redis-benchmark, as Debian has them.

mod common;

use common::{Cluster, free_port};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Debian's Python, which has the modules of Debian's package `python3-redis`.
const PYTHON: &str = "/usr/bin/python3";

/// Three nodes and the ports of their Redis doors; `None`, after printing why, if the clients are not
/// installed.
fn start() -> Option<(Cluster, Vec<String>)> {
    let has = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let clients = [has("redis-cli", &["--version"]), has(PYTHON, &["-c", "import redis"])];
    if clients != [true, true] {
        eprintln!("skipped: needs Debian's redis-tools and python3-redis");
        return None;
    }
    // Longer than these threads wait for a core: clients must get answers, however busy the machine is.
    let cluster = Cluster::start(3, "lease_ms = 5000\n");
    let open = |node: usize| {
        let port = free_port();
        cluster.engine(node).store().open_resp(&format!("127.0.0.1:{port}")).expect("the door");
        port.to_string()
    };
    let ports = (0..3).map(open).collect();
    Some((cluster, ports))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn redis_py_finds_what_is_promised_and_is_refused_the_rest() {
    let Some((_cluster, ports)) = start() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/conformance.py");
    let output = Command::new(PYTHON).arg(script).args(&ports).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn redis_cli_is_told_the_same_at_every_node() {
    let Some((_cluster, ports)) = start() else { return };
    let check = |node: usize, words: &str, expected: &str| {
        let mut command = Command::new("redis-cli");
        let output = command.args(["-p", &ports[node]]).args(words.split(' ')).output().expect("it runs");
        assert_eq!(text(&output).trim(), expected, "{words}");
    };
    check(0, "SET greeting hello", "OK");
    check(1, "GET greeting", "hello");
    check(2, "APPEND greeting !", "6");
    check(0, "-3 HSET h a 1", "1");
    check(1, "-3 HGETALL h", "a 1");
    check(1, "SET greeting hello! EX 33000000 KEEPTTL", "ERR syntax error");
    check(1, "SET greeting hello! EXAT 33000000000", "OK");
    check(2, "EXPIRETIME greeting", "33000000000");
    check(
        1,
        "MOVE greeting 1",
        "ERR 'MOVE' is refused by this store: this store has one database; use prefixes of keys",
    );
    check(
        2,
        "XADD stream x",
        "ERR unknown command 'XADD': it is not promised by this store; see docs/store.md",
    );
    // The command line takes a value of a MiB from its standard input.
    let longest = "0123456789abcdef".repeat(1 << 16);
    let mut command = Command::new("redis-cli");
    command.args(["-p", &ports[0], "-x", "SET", "longest"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("piped").write_all(longest.as_bytes()).expect("written");
    assert_eq!(text(&child.wait_with_output().expect("it ends")).trim(), "OK");
    check(1, "GET longest", &longest);
    check(2, "STRLEN longest", "1048576");
    check(2, "DEL greeting none longest", "2");
    check(0, "EXISTS greeting", "0");
}

#[test]
fn redis_benchmark_runs_through_without_an_error() {
    let Some((_cluster, ports)) = start() else { return };
    let run = |words: &str| {
        let mut command = Command::new("redis-benchmark");
        let output = command.args(["-p", &ports[0]]).args(words.split(' ')).output().expect("it runs");
        let said = text(&output);
        assert!(output.status.success() && !said.contains("Error"), "{said}");
        said
    };
    let said = run("-q -t ping,set,get,incr -n 2000 -c 20 -P 4 -r 50")
        // Nearly all of these commands conflict with each other: with many clients, one might lose for longer
        // than a node's patience, on a busy machine.
        + &run("-q -t hset,mset -n 500 -c 1 -P 4 -r 50");
    for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "HSET", "MSET (10 keys)"] {
        assert!(said.contains(&format!("{test}: ")), "{test} is missing: {said}");
    }
}
