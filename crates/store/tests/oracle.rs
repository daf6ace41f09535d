//! The Redis door beside Redis: the same thousands of generated commands, and the same replies, byte for byte.

mod common;
#[path = "oracle/generator.rs"]
mod generator;
#[path = "oracle/types.rs"]
mod types;

use common::resp::Wire;
use common::{Cluster, free_port};
use generator::Generator;
use highwire_stdx::Rng;
use std::process::{Child, Command, Stdio};

/// Redis, until it is dropped.
struct Redis(Child, String);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node's Redis door, and Redis; `None`, after printing why, if there is none.
fn start() -> Option<(Cluster, String, Redis)> {
    let version = Command::new("redis-server").arg("--version").output();
    let version =
        version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if !version.contains("v=7.") {
        eprintln!("skipped: needs redis-server 7 (Debian's package redis-server), and there is: {version:?}");
        return None;
    }
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--databases", "1", "--bind", "127.0.0.1"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let redis = Redis(child, format!("127.0.0.1:{port}"));
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n");
    let door = format!("127.0.0.1:{}", free_port());
    cluster.engine(0).store().open_resp(&door).expect("the door");
    Some((cluster, door, redis))
}

/// What is compared of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    All,
    /// The elements may be in another order.
    Set,
    /// The kind of reply: it tells something about the server.
    Kind,
    /// A time that is left, or that was given in relation to now: about the same.
    Time,
    /// The kind of reply and its length: what is in it is random.
    Head,
}

type Words = Vec<Vec<u8>>;

/// All replies until the connection ends.
fn replies(address: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut wire = Wire::connect(address);
    wire.write(bytes);
    std::iter::from_fn(|| wire.try_reply()).collect()
}

fn as_compared(reply: Option<&Vec<u8>>, compare: Compare) -> Vec<Vec<u8>> {
    let Some(reply) = reply else { return vec![b"the connection has ended".to_vec()] };
    match compare {
        Compare::All => vec![reply.clone()],
        Compare::Kind if reply.starts_with(b"-") => vec![reply.clone()],
        Compare::Kind => vec![reply[..1].to_vec()],
        // Nothing takes ten thousand seconds.
        Compare::Time => {
            let number =
                std::str::from_utf8(&reply[1..]).ok().and_then(|text| text.trim().parse::<i64>().ok());
            let about = number.filter(|&number| number > 0).map(|number| (number + 50_000_000) / 100_000_000);
            vec![about.map_or(reply.clone(), |about| format!("about {about}").into_bytes())]
        }
        // The length of a single member is random as well.
        Compare::Head if reply.starts_with(b"$") && !reply.starts_with(b"$-") => vec![b"$".to_vec()],
        Compare::Head => vec![reply.split(|&byte| byte == b'\n').next().unwrap_or_default().to_vec()],
        Compare::Set => {
            let mut lines: Vec<_> = reply.split(|&byte| byte == b'$').map(<[u8]>::to_vec).collect();
            lines.sort();
            lines
        }
    }
}

#[test]
fn generated_commands_get_the_replies_of_redis() {
    let Some((_cluster, door, redis)) = start() else { return };
    let seed = std::env::var("HIGHWIRE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let (mut compared, mut conversations) = (0, 0);
    for round in 0..150 {
        let mut generator = Generator(Rng::new(seed).fork(round));
        let mut commands = Vec::new();
        let mut bytes = Vec::new();
        let mut is_in_multi = false;
        for _ in 0..40 {
            let (words, mut compare) = generator.command();
            match &*words[0].to_ascii_uppercase() {
                b"MULTI" => is_in_multi = true,
                b"EXEC" | b"DISCARD" | b"RESET" => is_in_multi = false,
                // What a queued one says is part of the reply of EXEC, where only equal bytes count.
                _ if is_in_multi && compare != Compare::All => continue,
                _ => {}
            }
            if is_in_multi && compare == Compare::Set {
                compare = Compare::All;
            }
            bytes.extend(generator.framed(&words));
            commands.push((words, compare));
        }
        if generator.0.chance(0.7) {
            bytes.extend(generator.malformed());
        }
        bytes.extend(b"\r\nQUIT\r\n*1\r\n$4\r\nQUIT\r\n");
        let (theirs, ours) = (replies(&redis.1, &bytes), replies(&door, &bytes));
        for at in 0..theirs.len().max(ours.len()) {
            let (words, compare) =
                commands.get(at).cloned().unwrap_or((vec![b"(the end)".to_vec()], Compare::All));
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let (theirs, ours) = (as_compared(theirs.get(at), compare), as_compared(ours.get(at), compare));
            let shown = |all: &[Vec<u8>]| {
                all.iter().map(|one| String::from_utf8_lossy(one).into_owned()).collect::<Vec<_>>()
            };
            assert_eq!(
                shown(&ours),
                shown(&theirs),
                "HIGHWIRE_SEED={seed}, round {round}, command {at}: {words:?}; ours is first"
            );
            compared += 1;
        }
        conversations += 1;
    }
    assert!(compared > 4000 && conversations == 150, "{compared} replies of {conversations} conversations");
}

#[test]
fn transactions_and_patterns_are_those_of_redis() {
    let Some((_cluster, door, redis)) = start() else { return };
    // Lines of the first and of a second connection.
    let check = |lines: &[(usize, &str)]| {
        let both = [&door, &redis.1].map(|address| {
            let mut wires = [Wire::connect(address), Wire::connect(address)];
            lines.iter().map(|&(wire, line)| wires[wire].ask(line)).collect::<Vec<_>>()
        });
        for (at, line) in lines.iter().enumerate() {
            let [ours, theirs] = [0, 1].map(|side| String::from_utf8_lossy(&both[side][at]).into_owned());
            assert_eq!(ours, theirs, "{line:?} of {lines:?}; ours is first");
        }
        String::from_utf8_lossy(both[0].last().expect("a reply")).into_owned()
    };
    // A second WATCH adds to the first.
    let aborted = [
        (0, "WATCH first"),
        (0, "WATCH second"),
        (1, "SET first 1"),
        (0, "MULTI"),
        (0, "SET mine 1"),
        (0, "EXEC"),
    ];
    assert_eq!(check(&aborted), "*-1\r\n");
    // Nothing is nothing in each version of the protocol.
    let third = [(0, "WATCH first"), (1, "SET first 2"), (0, "MULTI"), (0, "EXEC")];
    assert_eq!(check(&third), "*-1\r\n");
    let check_third = |address: &str| {
        let (mut one, mut other) = (Wire::connect(address), Wire::connect(address));
        one.ask("HELLO 3");
        one.ask("WATCH first");
        other.ask("SET first 3");
        one.ask("MULTI");
        one.ask("EXEC")
    };
    assert_eq!((check_third(&door), check_third(&redis.1)), (b"_\r\n".to_vec(), b"_\r\n".to_vec()));
    // A key that is watched twice is watched since the first time.
    let twice = [
        (0, "WATCH first"),
        (1, "SET first 4"),
        (0, "WATCH first"),
        (0, "MULTI"),
        (0, "GET first"),
        (0, "EXEC"),
    ];
    assert_eq!(check(&twice), "*-1\r\n");
    // DISCARD, UNWATCH, EXEC and RESET end the watch.
    for ends in
        [&["MULTI", "DISCARD"][..], &["UNWATCH"], &["MULTI", "EXEC"], &["RESET"], &["MULTI", "EXEC x"]]
    {
        let mut lines = vec![(0, "WATCH first")];
        lines.extend(ends.iter().map(|&line| (0, line)));
        lines.extend([(1, "INCR first"), (0, "MULTI"), (0, "PING"), (0, "EXEC")]);
        assert_eq!(check(&lines), "*1\r\n+PONG\r\n");
    }
    // UNWATCH in a transaction does not undo what was watched before it.
    let queued = [(0, "WATCH first"), (1, "INCR first"), (0, "MULTI"), (0, "UNWATCH"), (0, "EXEC")];
    assert_eq!(check(&queued), "*-1\r\n");
    check(&[
        (0, "MULTI"),
        (0, "PING"),
        (0, "PING x"),
        (0, "ECHO y"),
        (0, "SELECT 0"),
        (0, "UNWATCH"),
        (0, "CLIENT GETNAME"),
        (0, "EXEC"),
    ]);
    check(&[
        (0, "MULTI"),
        (0, "SELECT 9"),
        (0, "PING a b"),
        (0, "GET first"),
        (0, "CONFIG GET save"),
        (0, "EXEC"),
    ]);
    check(&[
        (0, "MULTI"),
        (0, "NOPE"),
        (0, "EXEC"),
        (0, "MULTI"),
        (0, "WATCH a"),
        (0, "MULTI"),
        (0, "EXEC"),
        (0, "EXEC"),
    ]);
    check(&[
        (0, "CLIENT SETNAME it"),
        (0, "CLIENT GETNAME"),
        (0, "RESET"),
        (0, "CLIENT GETNAME"),
        (0, "DISCARD"),
    ]);
}

#[test]
fn values_and_commands_that_are_too_long_get_an_error_and_the_connection_goes_on() {
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n");
    let door = format!("127.0.0.1:{}", free_port());
    cluster.engine(0).store().open_resp(&door).expect("the door");
    let mut wire = Wire::connect(&door);
    for length in [1_048_577, 2_097_153, 20_000_000] {
        let said = wire.command(&["SET", "k", &"x".repeat(length)]);
        let expected = format!("-ERR {length} bytes are too many for a value, which has at most 1048576\r\n");
        assert_eq!(String::from_utf8_lossy(&said), expected);
        assert_eq!(wire.ask("EXISTS k"), b":0\r\n");
    }
    let many: Vec<&str> = std::iter::once("DEL").chain(std::iter::repeat_n("k", 70_000)).collect();
    assert_eq!(wire.command(&many), b"-ERR a command has at most 65536 words, and not 70001\r\n");
    // What can be queued is bounded as well, and EXEC then does nothing.
    assert_eq!(wire.ask("MULTI"), b"+OK\r\n");
    let long = "x".repeat(1 << 20);
    let refused = (0..20)
        .filter(|_| wire.command(&["SET", "k", &long]).starts_with(b"-ERR at most 16384 commands"))
        .count();
    assert_eq!(refused, 5);
    assert!(wire.ask("EXEC").starts_with(b"-EXECABORT"));
    assert_eq!(wire.ask("EXISTS k"), b":0\r\n");
    let pattern = "*a".repeat(4000);
    assert_eq!(wire.command(&["KEYS", &pattern]), b"-ERR a pattern has at most 4096 bytes\r\n");
}

/// Times that come while both servers run. What is compared is what is left.
#[test]
fn keys_expire_as_those_of_redis_do() {
    let Some((_cluster, door, redis)) = start() else { return };
    for (first, meets) in [
        ("SET k v PX 30", "EXISTS k"),
        ("PSETEX k 30 v", "GET k"),
        ("MSET k v l v", "PTTL k"),
        ("HSET k f v", "TTL k"),
        ("SET k v PX 30", "DBSIZE"),
        ("SET k v PX 30", "KEYS *"),
        ("SET k v PX 30", "TYPE k"),
    ] {
        let both = [&door, &redis.1].map(|address| {
            let mut wire = Wire::connect(address);
            wire.ask("FLUSHALL");
            wire.ask(first);
            wire.ask("PEXPIRE k 30");
            common::until("a key that expires", || (wire.ask("EXISTS k") == b":0\r\n").then_some(()));
            [meets, "SET k w KEEPTTL", "TTL k"]
                .map(|line| String::from_utf8_lossy(&wire.ask(line)).into_owned())
        });
        assert_eq!(both[0], both[1], "{first}; ours is first");
    }
}

/// The rows of `COMMAND` and the categories of `ACL CAT`, of every command that this store has.
#[test]
fn commands_have_the_words_keys_and_categories_of_redis() {
    let Some((_cluster, door, redis)) = start() else { return };
    let (mut ours, mut theirs) = (Wire::connect(&door), Wire::connect(&redis.1));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let list = text(ours.ask("COMMAND LIST"));
    let names: Vec<&str> =
        list.split("\r\n").skip(1).filter(|line| !line.is_empty() && !line.starts_with('$')).collect();
    assert!(names.len() > 80, "{names:?}");
    // Tips, places of keys and subcommands follow behind the categories.
    let info = |wire: &mut Wire, name: &str| {
        let said = text(wire.ask(&format!("COMMAND INFO {name}")));
        let mut lines: Vec<&str> = said.split("\r\n").collect();
        let first = lines.iter().position(|line| line.starts_with("+@")).expect("a category");
        let count = lines[first..].iter().take_while(|line| line.starts_with("+@")).count();
        lines.truncate(first + count);
        let mut sets: Vec<String> = lines.iter().skip(3).map(|line| (*line).to_string()).collect();
        sets.sort();
        sets
    };
    for name in &names {
        assert_eq!(info(&mut ours, name), info(&mut theirs, name), "{name}; ours is first");
    }
    let lines = |said: String| -> Vec<String> {
        let names = said.split("\r\n").skip(1).filter(|line| !line.is_empty() && !line.starts_with('$'));
        names.map(String::from).collect()
    };
    let categories = lines(text(ours.ask("ACL CAT")));
    assert_eq!(categories, lines(text(theirs.ask("ACL CAT"))));
    for category in categories {
        let all = lines(text(theirs.ask(&format!("ACL CAT {category}"))));
        let mut expected: Vec<String> = all.into_iter().filter(|name| names.contains(&&**name)).collect();
        let mut found = lines(text(ours.ask(&format!("ACL CAT {category}"))));
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{category}; ours is first");
    }
}
