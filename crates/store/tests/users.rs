//! Users of a node's endpoints: what strangers, wrong passwords and roles get, beside Redis, and that nobody else notices.

mod common;

use common::resp::Wire;
use common::{Cluster, Folder, PATIENCE, free_address, until};
use highwire_store::{Access, Client, ClusterConfig, Engine, Role, StoreError, UserLimits, Users};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SETTINGS: &str = "f = 0\nlease_ms = 5000\n";
const PASSWORD: &str = "correct horse";

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn scratch() -> Scratch {
    let name = format!("highwire-users-{}", highwire_store::fresh_name().expect("a name"));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    Scratch(folder)
}

fn add(path: &Path, name: &str, role: Role, limits: UserLimits) {
    Users::edit(path, |users| users.add(name, role, PASSWORD.as_bytes(), limits)).expect("added");
}

fn users(folder: &Scratch) -> PathBuf {
    let path = folder.0.join("users.toml");
    for (name, role) in
        [("rita", Role::Read), ("will", Role::Write), ("anna", Role::Admin), ("default", Role::Read)]
    {
        add(&path, name, role, UserLimits::default());
    }
    path
}

/// A node with these users, and the addresses of its Redis endpoint and of its metrics.
struct Node {
    engine: Option<Engine>,
    folder: Folder,
    resp: String,
    metrics: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.store().stop();
            engine.join().expect("no panic");
        }
    }
}

impl Node {
    fn start(users: &Path) -> Node {
        let folder = Folder::new(1, &format!("{SETTINGS}users = {users:?}\n"));
        let engine = Engine::start(&folder.config(), 0).expect("a node");
        let (resp, metrics) = (free_address(), free_address());
        engine.store().open_resp(&resp).expect("the endpoint");
        engine.store().open_metrics(&metrics).expect("the endpoint");
        let node = Node { engine: Some(engine), folder, resp, metrics };
        until("the node", || node.client("anna").status().is_ok_and(|status| status.is_open).then_some(()));
        node
    }

    fn client(&self, user: &str) -> Client {
        let mut client = self.folder.client();
        client.set_access(Access::user(user, PASSWORD));
        client
    }

    fn count(&self, what: &str) -> u64 {
        let page = http(&self.metrics, Some(("rita", PASSWORD)));
        let name = format!("highwire_store_access_total{{what=\"{what}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{what}: {page}")).parse().expect("a number")
    }
}

fn http(address: &str, user: Option<(&str, &str)>) -> String {
    let mut stream = TcpStream::connect(address).expect("the endpoint");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let header = user.map(|(name, password)| {
        use base64::Engine as _;
        let both = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
        format!("Authorization: Basic {both}\r\n")
    });
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{}\r\n", header.unwrap_or_default());
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn text(reply: Vec<u8>) -> String {
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn a_client_does_what_its_role_allows_and_nothing_before_its_password() {
    let folder = scratch();
    let node = Node::start(&users(&folder));
    let denied = |result: Result<(), StoreError>| match result {
        Err(StoreError::Denied(_)) => true,
        Ok(()) => false,
        Err(error) => panic!("{error:?}"),
    };
    let mut stranger = node.folder.client();
    assert!(denied(stranger.get("t", "k").map(drop)) && denied(stranger.put("t", "k", "stolen")));
    assert!(denied(stranger.status().map(drop)) && denied(stranger.stop_node()) && denied(stranger.leave()));
    let mut guesser = node.folder.client();
    for wrong in ["correct hors", "correct horse ", ""] {
        guesser.set_access(Access::user("anna", wrong));
        assert!(denied(guesser.put("t", "k", "stolen")), "{wrong:?}");
    }
    let (mut rita, mut will, mut anna) = (node.client("rita"), node.client("will"), node.client("anna"));
    assert_eq!(will.get("t", "k"), Ok(None));
    assert!(denied(rita.put("t", "k", "v")));
    will.put("t", "k", "v").expect("written");
    assert_eq!(rita.get("t", "k"), Ok(Some(b"v".to_vec())));
    assert_eq!(rita.scan("t", "").expect("read").len(), 1);
    assert!(denied(rita.stop_node()) && denied(will.stop_node()) && denied(will.leave()));
    let backup = folder.0.join("backup");
    assert!(highwire_store::back_up(&mut will, &backup, &mut |_, _| {}).is_err());
    highwire_store::back_up(&mut anna, &backup, &mut |_, _| {}).expect("an administrator may");
    // The cluster's own programs need no user.
    let mut member = node.folder.client();
    member.set_access(Access::member(&node.folder.config()).expect("the register"));
    assert_eq!(member.get("t", "k"), Ok(Some(b"v".to_vec())));
    assert_eq!((node.count("wrong"), node.count("busy")), (3, 0));
    // 5 of the stranger. The three refused ones of `rita`, and two and the backup's of `will`.
    assert_eq!((node.count("stranger"), node.count("role")), (5, 5));
    anna.stop_node().expect("an administrator may");
}

#[test]
fn every_user_may_ask_for_the_clusters_map_and_no_stranger() {
    let folder = scratch();
    let node = Node::start(&users(&folder));
    let mut wire = Wire::connect(&node.resp);
    assert!(wire.ask("CLUSTER SLOTS").starts_with(b"-NOAUTH "));
    assert_eq!(text(wire.command(&["AUTH", "rita", PASSWORD])), "+OK\r\n");
    assert!(wire.ask("CLUSTER SLOTS").starts_with(b"*1\r\n*3\r\n:0\r\n:16383\r\n"));
    assert_eq!(text(wire.ask("READONLY")), "+OK\r\n");
    assert!(wire.ask("CLUSTER FAILOVER").starts_with(b"-NOPERM "));
}

#[test]
fn a_redis_client_does_what_its_role_allows_however_commands_come() {
    let folder = scratch();
    let node = Node::start(&users(&folder));
    let noperm =
        |command: &str| format!("-NOPERM this user has no permissions to run the '{command}' command\r\n");
    let mut wire = Wire::connect(&node.resp);
    // In one piece: what comes before the password is not executed, and what comes behind it is.
    wire.write(format!("SET a stolen\r\nAUTH will {}\r\nSET a 1\r\n", "x"));
    assert_eq!(text(wire.reply()), "-NOAUTH Authentication required.\r\n");
    assert!(text(wire.reply()).starts_with("-WRONGPASS "));
    assert_eq!(text(wire.reply()), "-NOAUTH Authentication required.\r\n");
    assert_eq!(text(wire.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
    assert_eq!(text(wire.ask("SET a 1")), "+OK\r\n");
    assert_eq!(text(wire.ask("CONFIG GET save")), noperm("config|get"));
    // A pipeline in which roles change.
    let mut bytes = Vec::new();
    for words in [
        &["INCR", "a"][..],
        &["AUTH", "rita", PASSWORD],
        &["INCR", "a"],
        &["GET", "a"],
        &["DEL", "a"],
        &["AUTH", "will", PASSWORD],
        &["INCR", "a"],
    ] {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        bytes.extend(common::resp::array(&words));
    }
    wire.write(bytes);
    let replies: Vec<String> = (0..7).map(|_| text(wire.reply())).collect();
    let expected = [":2\r\n", "+OK\r\n", &noperm("incr"), "$1\r\n2\r\n", &noperm("del"), "+OK\r\n", ":3\r\n"];
    assert_eq!(replies, expected);
    // A transaction of a reader, and one in which a password is said.
    assert_eq!(text(wire.command(&["AUTH", PASSWORD])), "+OK\r\n");
    assert_eq!(text(wire.ask("ACL WHOAMI")), "$7\r\ndefault\r\n");
    assert_eq!(text(wire.ask("MULTI")), "+OK\r\n");
    assert_eq!(text(wire.ask("SET a 9")), noperm("set"));
    assert!(text(wire.ask("EXEC")).starts_with("-EXECABORT "));
    assert_eq!(text(wire.ask("MULTI")), "+OK\r\n");
    assert_eq!(
        text(wire.command(&["AUTH", "will", PASSWORD])),
        "-ERR Command not allowed inside a transaction\r\n"
    );
    assert!(text(wire.ask("EXEC")).starts_with("-EXECABORT "));
    assert_eq!(text(wire.ask("GET a")), "$1\r\n3\r\n");
    assert_eq!(text(wire.ask("RESET")), "+RESET\r\n");
    assert_eq!(text(wire.ask("GET a")), "-NOAUTH Authentication required.\r\n");
    // What a stranger may send is short.
    assert_eq!(
        Wire::connect(&node.resp).converse(b"*11\r\n$4\r\nPING\r\n"),
        b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    );
    assert_eq!(
        Wire::connect(&node.resp).converse(b"*2\r\n$4\r\nECHO\r\n$20000\r\n"),
        b"-ERR Protocol error: unauthenticated bulk length\r\n"
    );
}

#[test]
fn a_user_that_is_taken_away_does_nothing_more_on_connections_that_are_there() {
    let folder = scratch();
    let path = users(&folder);
    let node = Node::start(&path);
    let mut wire = Wire::connect(&node.resp);
    assert_eq!(text(wire.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
    assert_eq!(text(wire.ask("SET a 1")), "+OK\r\n");
    let mut within = Wire::connect(&node.resp);
    assert_eq!(text(within.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
    assert_eq!(text(within.ask("MULTI")), "+OK\r\n");
    assert_eq!(text(within.ask("SET a 2")), "+QUEUED\r\n");
    add(&path, "will", Role::Read, UserLimits::default());
    // The password is hashed anew, so who was there is a stranger now.
    until("the users", || (text(wire.ask("GET a")) == "-NOAUTH Authentication required.\r\n").then_some(()));
    assert!(text(within.ask("EXEC")).starts_with("-EXECABORT Transaction discarded because of: NOAUTH"));
    assert_eq!(text(wire.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
    assert_eq!(text(wire.ask("GET a")), "$1\r\n1\r\n");
    assert!(text(wire.ask("SET a 3")).starts_with("-NOPERM"));
    assert!(Users::edit(&path, |users| Ok(users.remove("will"))).expect("written"));
    until("the users", || (text(wire.ask("GET a")) == "-NOAUTH Authentication required.\r\n").then_some(()));
    assert!(text(wire.command(&["AUTH", "will", PASSWORD])).starts_with("-WRONGPASS"));
}

#[test]
fn a_transaction_that_was_queued_in_another_role_is_refused_as_a_whole() {
    let folder = scratch();
    let path = users(&folder);
    let node = Node::start(&path);
    let mut wire = Wire::connect(&node.resp);
    assert_eq!(text(wire.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
    for (line, expected) in [("MULTI", "+OK\r\n"), ("GET a", "+QUEUED\r\n"), ("SET a 2", "+QUEUED\r\n")] {
        assert_eq!(text(wire.ask(line)), expected);
    }
    // Another role, and the same password.
    let file = std::fs::read_to_string(&path).expect("a file");
    std::fs::write(&path, file.replacen("role = \"write\"", "role = \"read\"", 1)).expect("written");
    let mut other = Wire::connect(&node.resp);
    assert_eq!(text(other.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
    until("the role", || text(other.ask("SET b 1")).starts_with("-NOPERM").then_some(()));
    assert!(text(wire.ask("EXEC")).starts_with("-EXECABORT "));
    assert_eq!(text(wire.ask("EXISTS a")), ":0\r\n");
}

#[test]
fn a_node_with_another_key_is_no_node_of_the_cluster() {
    let folder = scratch();
    let path = users(&folder);
    let key = |name: &str| {
        let path = folder.0.join(name);
        highwire_store::make_key(&path).expect("a key");
        path
    };
    let keyed = |key: &Path| Folder::new(1, &format!("{SETTINGS}users = {path:?}\nkey = {key:?}\n"));
    let own = keyed(&key("own.key"));
    let engine = Engine::start(&own.config(), 0).expect("a node");
    let mut config = own.config();
    let ask = |config: &ClusterConfig| {
        let mut client = own.client();
        client.set_access(Access::member(config).expect("a member"));
        client.status()
    };
    until("the node", || ask(&config).is_ok_and(|status| status.is_open).then_some(()));
    // The register's secret is not enough.
    for other in [Some(key("other.key")), None] {
        config.key = other;
        assert!(matches!(ask(&config), Err(StoreError::Denied(_))));
    }
    engine.store().stop();
    engine.join().expect("no panic");
}

#[test]
fn guesses_are_counted_and_slowed_and_keep_nobody_else_waiting() {
    let folder = scratch();
    let node = Node::start(&users(&folder));
    let mut friend = Wire::connect(&node.resp);
    assert_eq!(text(friend.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
    // Eight guess at a time, each with one password after the other.
    let mut guessers: Vec<Wire> = (0..8).map(|_| Wire::connect(&node.resp)).collect();
    for guesser in &mut guessers {
        guesser.write("AUTH will wrong\r\nAUTH nobody wrong\r\n");
    }
    // While none of them has all its answers, others come in and go on: their password is recognised.
    let (mut commands, mut entered) = (0, 0);
    let answered = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (of, answered) = (guessers, &answered);
        let listeners: Vec<_> = of
            .into_iter()
            .map(|mut guesser| {
                scope.spawn(move || {
                    let replies = [text(guesser.reply()), text(guesser.reply())];
                    answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    replies
                })
            })
            .collect();
        while answered.load(std::sync::atomic::Ordering::SeqCst) < 8 {
            assert_eq!(text(friend.ask("PING")), "+PONG\r\n");
            assert!(text(friend.ask("INCR n")).starts_with(':'));
            commands += 1;
            let mut another = Wire::connect(&node.resp);
            assert_eq!(text(another.command(&["AUTH", "will", PASSWORD])), "+OK\r\n");
            entered += 1;
        }
        for listener in listeners {
            for reply in listener.join().expect("it hears") {
                let is_right = reply.starts_with("-WRONGPASS ") || reply.contains("too many passwords");
                assert!(is_right, "{reply}");
            }
        }
    });
    assert!(commands > 0 && entered > 0);
    let (wrong, busy) = (node.count("wrong"), node.count("busy"));
    assert_eq!(wrong + busy, 16);
    assert!(wrong >= 4 && busy > 0, "four of an address at a time: {wrong} {busy}");
    assert!(node.count("recognised") >= entered);
}

#[test]
fn metrics_are_for_users() {
    let folder = scratch();
    let node = Node::start(&users(&folder));
    let check = |user: Option<(&str, &str)>, expected: &str| {
        let answer = http(&node.metrics, user);
        assert!(answer.starts_with(expected), "{user:?}: {answer}");
        assert_eq!(answer.contains("highwire_store_open"), expected.ends_with("200 OK"), "{answer}");
    };
    check(Some(("rita", PASSWORD)), "HTTP/1.1 200 OK");
    check(None, "HTTP/1.1 401 Unauthorized");
    check(Some(("rita", "correct")), "HTTP/1.1 401 Unauthorized");
    check(Some(("eve", PASSWORD)), "HTTP/1.1 401 Unauthorized");
    assert!(http(&node.metrics, None).contains("WWW-Authenticate: Basic"));
}

#[test]
fn a_user_has_no_more_connections_and_commands_than_it_may() {
    let folder = scratch();
    let path = users(&folder);
    add(&path, "few", Role::Write, UserLimits { connections: Some(2), rate: None });
    add(&path, "slow", Role::Write, UserLimits { connections: None, rate: Some(40) });
    let node = Node::start(&path);
    let enter = |name: &str| {
        let mut wire = Wire::connect(&node.resp);
        let reply = text(wire.command(&["AUTH", name, PASSWORD]));
        (wire, reply)
    };
    let (first, second, third) = (enter("few"), enter("few"), enter("few"));
    assert_eq!((&*first.1, &*second.1), ("+OK\r\n", "+OK\r\n"));
    assert_eq!(third.1, "-ERR max number of clients reached for this user\r\n");
    drop(second);
    until("a place", || (enter("few").1 == "+OK\r\n").then_some(()));
    // Nothing is lost of what is slowed.
    let (mut slow, _) = enter("slow");
    slow.write("INCR n\r\n".repeat(60));
    let replies: Vec<String> = (0..60).map(|_| text(slow.reply())).collect();
    assert_eq!(replies.last().map(String::as_str), Some(":60\r\n"));
    assert_eq!(text(slow.ask("INCR n")), ":61\r\n");
    assert!(node.count("rate") > 0);
    assert!(node.count("connections") >= 1);
}

#[test]
fn nobody_is_a_node_without_the_secret() {
    let folder = scratch();
    let node = Node::start(&users(&folder));
    // Another cluster's secret is none of this one's.
    let other = Folder::new(1, SETTINGS);
    let mut stranger = node.folder.client();
    stranger.set_access(Access::member(&other.config()).expect("its register"));
    assert!(matches!(stranger.status(), Err(StoreError::Denied(_))));
    let door = node.folder.config().doors()[0].clone();
    let mut stream = TcpStream::connect(&door).expect("the endpoint");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let ask = |stream: &mut TcpStream, body: &[u8]| {
        stream.write_all(&(body.len() as u32).to_be_bytes()).expect("written");
        stream.write_all(body).expect("written");
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("an answer");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer).expect("an answer");
        answer
    };
    stream.write_all(b"hwstore6").expect("written");
    // A proof without a challenge, and the node's own proof given back to it.
    let answer = ask(&mut stream, &[&[16][..], &[0; 32]].concat());
    assert!(String::from_utf8_lossy(&answer).contains("no proof"), "{answer:?}");
    let challenged = ask(&mut stream, &[&[15][..], &[7; 32]].concat());
    assert_eq!(challenged.len(), 65);
    let answer = ask(&mut stream, &[&[16][..], &challenged[33..]].concat());
    assert!(String::from_utf8_lossy(&answer).contains("no proof"), "{answer:?}");
    // An introduction does nothing; a long question is not even read.
    stream.write_all(&100_000_u32.to_be_bytes()).expect("written");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the end");
    assert!(String::from_utf8_lossy(&rest).contains("at most 4096 are possible"), "{rest:?}");
    assert_eq!((node.count("not_a_node"), node.count("node")), (2, 0));
}

#[test]
fn without_users_everything_is_as_it_was_on_this_machine() {
    let cluster = Cluster::start(1, SETTINGS);
    let resp = free_address();
    cluster.engine(0).store().open_resp(&resp).expect("the endpoint");
    let mut wire = Wire::connect(&resp);
    assert_eq!(text(wire.ask("ACL WHOAMI")), "$7\r\ndefault\r\n");
    assert_eq!(text(wire.ask("SET a 1")), "+OK\r\n");
    let mut client = cluster.client();
    client.set_access(Access::user("anybody", "anything"));
    client.put("t", "k", "v").expect("there is nobody to be");
}

/// An address of this machine beside loopback, if it has one.
fn other_address() -> Option<Ipv4Addr> {
    let table = std::fs::read_to_string("/proc/net/fib_trie").ok()?;
    let mut last = None;
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" && last.is_some_and(|address| !address.is_loopback()) {
            return last;
        }
    }
    None
}

#[test]
fn without_users_a_client_of_another_address_is_told_why_and_nothing_that_it_says_is_done() {
    let Some(other) = other_address() else {
        return eprintln!("skipped: needs an address of this machine beside those of loopback");
    };
    let cluster = Cluster::start(1, SETTINGS);
    let ports = [free_address(), free_address()].map(|address| address.rsplit(':').next().map(String::from));
    let [Some(resp), Some(metrics)] = ports else { panic!("addresses have ports") };
    let store = cluster.engine(0).store();
    store.open_resp(&format!("0.0.0.0:{resp}")).expect("the endpoint");
    store.open_metrics(&format!("0.0.0.0:{metrics}")).expect("the endpoint");
    let mut friend = Wire::connect(&format!("127.0.0.1:{resp}"));
    until("the node", || (text(friend.ask("SET a 1")) == "+OK\r\n").then_some(()));
    let said = Wire::connect(&format!("{other}:{resp}")).converse(b"SET a stolen\r\nPING\r\n");
    let said = text(said);
    assert!(said.starts_with("-DENIED ") && said.contains("store user add"), "{said}");
    assert!(!said.contains("+OK") && !said.contains("+PONG"), "{said}");
    assert_eq!(text(friend.ask("GET a")), "$1\r\n1\r\n");
    let page = http(&format!("{other}:{metrics}"), None);
    assert!(page.starts_with("HTTP/1.1 403 ") && !page.contains("highwire_store_open"), "{page}");
    let page = http(&format!("127.0.0.1:{metrics}"), None);
    for name in ["access_total{what=\"protected\"} 2", "connections_ended_total{why=\"protected\"} 2"] {
        assert!(page.contains(&format!("highwire_store_{name}")), "{name}: {page}");
    }
}

#[test]
fn a_cluster_file_with_users_that_cannot_be_read_starts_no_node() {
    let folder = Folder::new(1, &format!("{SETTINGS}users = \"none.toml\"\n"));
    let error = Engine::start(&folder.config(), 0).expect_err("no users").to_string();
    assert!(error.contains("none.toml"), "{error}");
    let config = ClusterConfig::parse("register = \"r\"\nuser = \"u\"\n[[node]]\nid = 0\ndoor = \"a:1\"\n");
    assert!(config.expect_err("a typing mistake").contains("unknown field `user`"));
}

/// Redis with the same users; `None`, after printing why, if there is none.
fn redis(folder: &Scratch) -> Option<(Child, String)> {
    let version = Command::new("redis-server").arg("--version").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("v=7.")) {
        eprintln!("skipped: needs redis-server 7 (Debian's package redis-server)");
        return None;
    }
    let rules =
        |name: &str, rules: &str| format!("user {name} on >{} ~* {rules}\n", PASSWORD.replace(' ', "_"));
    let (read, write) = ("-@all +@read +@connection +@transaction +info +acl|whoami -client|list", "+@write");
    let text = rules("rita", read)
        + &rules("default", read)
        + &rules("will", &format!("{read} {write}"))
        + &rules("anna", "+@all");
    let file = folder.0.join("users.acl");
    std::fs::write(&file, text).expect("written");
    let address = free_address();
    let port = address.rsplit(':').next().expect("a port").to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--save", "", "--databases", "1", "--bind", "127.0.0.1", "--aclfile"]);
    let child = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    Some((child, address))
}

#[test]
fn passwords_and_roles_are_answered_as_redis_answers_them() {
    let folder = scratch();
    let Some((mut child, there)) = redis(&folder) else { return };
    let path = folder.0.join("users.toml");
    let password = PASSWORD.replace(' ', "_");
    for (name, role) in
        [("rita", Role::Read), ("will", Role::Write), ("anna", Role::Admin), ("default", Role::Read)]
    {
        Users::edit(&path, |users| users.add(name, role, password.as_bytes(), UserLimits::default()))
            .expect("added");
    }
    let here = Folder::new(1, &format!("{SETTINGS}users = {path:?}\n"));
    let engine = Engine::start(&here.config(), 0).expect("a node");
    let resp = free_address();
    engine.store().open_resp(&resp).expect("the endpoint");
    let mut anna = here.client();
    anna.set_access(Access::user("anna", &*password));
    until("the node", || anna.status().is_ok_and(|status| status.is_open).then_some(()));
    let lines = format!(
        "PING;GET a;NOSUCH a;GET;HELLO;HELLO 3;HELLO 3 SETNAME x;MULTI;EXEC;WATCH a;SELECT 0;ECHO x;DISCARD;UNWATCH;ACL WHOAMI;ACL;ACL NO;\
         AUTH;AUTH a b c;AUTH wrong;AUTH rita wrong;AUTH nobody {password};GET a;AUTH rita {password};ACL WHOAMI;GET a;SET a 1;set a 1;\
         CONFIG GET save;CLIENT LIST;ACL LIST;ACL USERS;MULTI;GET a;SET a 1;EXEC;MULTI;GET a;EXEC;AUTH will wrong;ACL WHOAMI;\
         AUTH will {password};SET a 1;INCR a;CONFIG SET save x;MULTI;INCR a;EXEC;AUTH anna {password};ACL USERS;ACL WHOAMI;RESET;GET a;\
         AUTH {password};ACL WHOAMI;SET a 2;HELLO 2 AUTH will;HELLO 9 AUTH will {password};ACL WHOAMI;AUTH \"\" \"\";QUIT"
    );
    let (mut own, mut redis) = (Wire::connect(&resp), Wire::connect(&there));
    for line in lines.split(';').map(str::trim) {
        let (own, redis) = (text(own.ask(line)), text(redis.ask(line)));
        assert_eq!(own, redis, "{line}");
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    engine.store().stop();
    engine.join().expect("no panic");
}
