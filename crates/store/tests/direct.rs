//! Clients that reach nodes by RPCs: the same results as over TCP, many questions at a time, roles, long values, and the end of either side.

mod common;

use common::{Cluster, Folder, PATIENCE, Process, commit, free_address, put, until, wait_for_members};
use highwire_store::{
    Access, AsyncClient, Client, Engine, Role, Store, StoreError, Transport, UserLimits, Users,
};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

#[test]
fn this_process_is_a_node() {
    common::be_a_node_if_asked();
}

/// A client of these doors by RPCs.
fn client(doors: impl IntoIterator<Item = String>) -> Client {
    let mut client = Client::new(doors);
    client.set_transport(Transport::Rpc);
    client.set_patience(PATIENCE);
    client
}

fn clients(cluster: &Cluster) -> Vec<Client> {
    cluster.folder.config().doors().into_iter().map(|door| client([door])).collect()
}

/// The page of a node's metrics.
struct Metrics(String);

impl Metrics {
    fn of(store: &Store) -> Metrics {
        let address = free_address();
        store.open_metrics(&address).expect("the endpoint");
        Metrics(address)
    }

    fn sample(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.0).expect("the endpoint");
        // A node without users takes any.
        use base64::Engine as _;
        let user = base64::engine::general_purpose::STANDARD.encode("anna:correct horse");
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {user}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("written");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("highwire_store_{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {page}")).parse().expect("a number")
    }

    fn event(&self, event: &str) -> u64 {
        self.sample(&format!("rpc_clients_total{{event=\"{event}\"}}"))
    }
}

/// All results, when all operations have theirs.
async fn all<T>(operations: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut operations: Vec<(Pin<Box<_>>, Option<T>)> =
        operations.into_iter().map(|operation| (Box::pin(operation), None)).collect();
    std::future::poll_fn(|cx| {
        for (operation, result) in operations.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(value) = operation.as_mut().poll(cx) {
                *result = Some(value);
            }
        }
        match operations.iter().all(|(_, result)| result.is_some()) {
            true => Poll::Ready(operations.iter_mut().filter_map(|(_, result)| result.take()).collect()),
            false => Poll::Pending,
        }
    })
    .await
}

#[test]
fn by_rpcs_a_client_finds_what_it_finds_over_tcp_and_requests_do_travel_so() {
    let cluster = Cluster::start(3, "lease_ms = 3000\n");
    let metrics = Metrics::of(cluster.engine(0).store());
    let (mut rpc, mut tcp) = (clients(&cluster).remove(0), cluster.client());
    put(&mut rpc, "t", "a", "1");
    put(&mut tcp, "t", "b", "2");
    for key in ["a", "b", "none"] {
        assert_eq!(rpc.get("t", key), tcp.get("t", key), "{key}");
    }
    commit("both", || {
        rpc.transact(|transaction| {
            let both = transaction.get_all(&[("t", b"a"), ("t", b"b")])?;
            let sum: i64 = both.iter().flatten().map(|value| i64::from(value[0] - b'0')).sum();
            transaction.put("ordered.t", "sum", sum.to_string());
            Ok(())
        })
    });
    assert_eq!(tcp.get("ordered.t", "sum"), Ok(Some(b"3".to_vec())));
    assert_eq!(rpc.range("ordered.t", "s", None, 9), tcp.range("ordered.t", "s", None, 9));
    assert_eq!(rpc.scan("t", ""), tcp.scan("t", ""));
    assert_eq!(rpc.primaries(&[("t", b"a")]), tcp.primaries(&[("t", b"a")]));
    assert_eq!(
        (rpc.status().map(|status| status.node), rpc.doors().map(|doors| doors.len())),
        (Ok(0), Ok(3))
    );
    let handled = metrics.event("handled");
    assert!(handled >= 9, "{handled} requests came by RPCs");
    for nothing in ["forged", "malformed", "strangers", "fenced", "refused"] {
        assert_eq!(metrics.event(nothing), 0, "{nothing}");
    }
    let before = metrics.event("handled");
    tcp.get("t", "a").expect("read");
    assert_eq!(metrics.event("handled"), before, "and those of the other client do not");
}

#[test]
fn what_is_long_takes_the_connection_and_is_whole() {
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n");
    let metrics = Metrics::of(cluster.engine(0).store());
    let mut client = clients(&cluster).remove(0);
    // Around the longest message, and the longest value.
    for length in [3000, (16 << 10) - 40, 16 << 10, (16 << 10) + 1, 1 << 20] {
        let value: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        put(&mut client, "t", "long", &value);
        assert!(client.get("t", "long") == Ok(Some(value)), "{length}");
    }
    let error = client.put("t", "long", vec![0; (1 << 20) + 1]).expect_err("too long");
    assert!(matches!(error, StoreError::Invalid(_)), "{error:?}");
    assert!(metrics.event("handled") > 5);
}

#[test]
fn many_questions_are_under_way_at_a_time_and_each_has_its_own_answer() {
    const KEYS: usize = 300;
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n");
    let metrics = Metrics::of(cluster.engine(0).store());
    let mut client = AsyncClient::new(cluster.folder.config().doors());
    client.set_transport(Transport::Rpc);
    client.set_patience(PATIENCE);
    let name = |key: usize| format!("key {key}");
    client.block_on(async {
        let puts = (0..KEYS).map(|key| client.put("t", name(key), key.to_string())).collect();
        assert!(all(puts).await.iter().all(Result::is_ok));
        let gets = all((0..KEYS).map(|key| client.get("t", name(key))).collect()).await;
        for (key, value) in gets.into_iter().enumerate() {
            assert_eq!(value, Ok(Some(key.to_string().into_bytes())), "{key}");
        }
        // Transactions of one client conflict like transactions of many clients, and none is lost.
        let add = async || {
            client
                .transact(async |transaction| {
                    let there = transaction.get("t", "sum").await?.unwrap_or_default();
                    let sum: u64 = String::from_utf8_lossy(&there).parse().unwrap_or_default();
                    transaction.put("t", "sum", (sum + 1).to_string());
                    Ok(())
                })
                .await
        };
        assert!(all((0..20).map(|_| add()).collect()).await.iter().all(Result::is_ok));
        assert_eq!(client.get("t", "sum").await, Ok(Some(b"20".to_vec())));
    });
    assert!(metrics.event("handled") > 600);
    // More than one at a time: some had to wait for a place among the sixteen, or came while others were carried out.
    assert!(metrics.event("received") > 0 && client.counts().reconnects == 0);
}

#[test]
fn on_an_executor_of_others_operations_drive_the_endpoint_themselves() {
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n");
    let mut client = AsyncClient::new(cluster.folder.config().doors());
    client.set_transport(Transport::Rpc);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let value = runtime.block_on(async {
        client.put("t", "k", "v").await?;
        client.get("t", "k").await
    });
    assert_eq!(value, Ok(Some(b"v".to_vec())));
}

#[test]
fn a_client_that_goes_to_another_thread_goes_on_there() {
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n");
    let mut client = clients(&cluster).remove(0);
    put(&mut client, "t", "k", "v");
    let mut client = std::thread::spawn(move || {
        // What it says once is not said to an endpoint that it does not have here.
        assert_eq!(client.put("t", "k", "w"), Ok(()));
        client
    })
    .join()
    .expect("no panic");
    assert_eq!(client.get("t", "k"), Ok(Some(b"w".to_vec())));
    assert_eq!(client.counts().reconnects, 0, "no connection was lost");
}

/// A node with users, and a client of it for each of their names.
fn with_users(limits: UserLimits) -> (Folder, Engine, impl Fn(&str) -> Client) {
    let folder = Folder::new(1, "f = 0\nlease_ms = 5000\nusers = \"users.toml\"\n");
    let path = folder.path().join("users.toml");
    for (name, role) in [("rita", Role::Read), ("will", Role::Write), ("anna", Role::Admin)] {
        Users::edit(&path, |users| users.add(name, role, b"correct horse", limits)).expect("added");
    }
    let engine = Engine::start(&folder.config(), 0).expect("a node");
    let doors = folder.config().doors();
    let client = move |user: &str| {
        let mut client = client(doors.clone());
        client.set_access(Access::user(user, "correct horse"));
        client
    };
    until("the node", || client("anna").status().is_ok_and(|status| status.is_open).then_some(()));
    (folder, engine, client)
}

fn end(engine: Engine) {
    engine.store().stop();
    engine.join().expect("no panic");
}

#[test]
fn a_role_allows_by_rpcs_what_it_allows_over_tcp_and_a_user_that_is_gone_may_nothing() {
    let (folder, engine, of) = with_users(UserLimits::default());
    let denied = |error: StoreError| assert!(matches!(error, StoreError::Denied(_)), "{error:?}");
    denied(client(folder.config().doors()).get("t", "k").expect_err("a stranger"));
    let (mut rita, mut will) = (of("rita"), of("will"));
    put(&mut will, "t", "k", "v");
    assert_eq!(rita.get("t", "k"), Ok(Some(b"v".to_vec())));
    denied(rita.put("t", "k", "stolen").expect_err("she reads"));
    denied(will.stop_node().expect_err("he writes"));
    let path = folder.path().join("users.toml");
    Users::edit(&path, |users| Ok(users.remove("will"))).expect("removed");
    let error = until("the node reads the file", || will.get("t", "k").err());
    denied(error);
    assert_eq!(rita.get("t", "k"), Ok(Some(b"v".to_vec())));
    end(engine);
}

#[test]
fn a_rate_holds_for_requests_by_rpcs() {
    let limits = UserLimits { rate: Some(50), ..UserLimits::default() };
    let (_folder, engine, of) = with_users(limits);
    let metrics = Metrics::of(engine.store());
    let mut will = of("will");
    will.get("t", "k").expect("read");
    let waits = || metrics.sample("access_total{what=\"rate\"}");
    let before = waits();
    for _ in 0..200 {
        will.get("t", "k").expect("read");
    }
    assert!(waits() > before, "{}", waits());
    assert!(metrics.event("handled") >= 200);
    end(engine);
}

#[test]
fn the_end_of_a_client_frees_all_that_it_held() {
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n");
    let metrics = Metrics::of(cluster.engine(0).store());
    let held = || metrics.sample("held_bytes");
    for round in 0..3 {
        let mut some: Vec<Client> = (0..5).flat_map(|_| clients(&cluster)).collect();
        for client in &mut some {
            put(client, "t", "k", format!("{round}"));
        }
        assert!(held() > 5 * (400 << 10), "{}", held());
        assert_eq!(metrics.sample("rpc_connected"), 5);
        drop(some);
        until("the room of clients that have gone", || (held() == 0).then_some(()));
        until("the numbers of clients that have gone", || {
            (metrics.sample("rpc_connected") == 0).then_some(())
        });
    }
    // A new client has the number of an old one, and is another one.
    let mut client = clients(&cluster).remove(0);
    assert_eq!(client.get("t", "k"), Ok(Some(b"2".to_vec())));
    assert_eq!((metrics.event("forged"), metrics.event("strangers")), (0, 0));
}

#[test]
fn clients_for_which_there_is_no_room_are_told_so() {
    let cluster = Cluster::start(1, "f = 0\nlease_ms = 5000\n[doors]\nconnections = 2\n");
    let mut some: Vec<Client> = (0..3).flat_map(|_| clients(&cluster)).collect();
    put(&mut some[0], "t", "k", "v");
    put(&mut some[1], "t", "k", "v");
    some[2].set_patience(Duration::from_millis(300));
    let error = some[2].get("t", "k").expect_err("a third one");
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("2 connections")), "{error:?}");
}

#[test]
fn a_client_whose_node_is_killed_says_what_it_does_not_know_and_goes_on_at_another() {
    let folder = Folder::new(3, "f = 1\nlease_ms = 500\n");
    let mut nodes: Vec<Process> = (0..3).map(|node| Process::start(&folder.file(), node)).collect();
    folder.wait_for(&[0, 1, 2], 3);
    let doors = folder.config().doors();
    let mut client = client([doors[2].clone(), doors[0].clone(), doors[1].clone()]);
    put(&mut client, "t", "k", "before");
    assert_eq!(client.status().expect("its status").node, 2);
    // While it is stopped, the node has taken nothing up; then it is gone.
    nodes[2].stop();
    let killer = std::thread::spawn({
        let node = nodes.remove(2);
        move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(node);
        }
    });
    let error = client.put("t", "k", "lost?").expect_err("nobody answers");
    assert!(matches!(&error, StoreError::Unknown(why) if why.contains("ended")), "{error:?}");
    killer.join().expect("no panic");
    let value = client.get("t", "k").expect("another node answers");
    assert_eq!(value, Some(b"before".to_vec()), "the node was stopped when the write came");
    assert!(client.counts().reconnects >= 1);
    wait_for_members(&doors, &[0, 1]);
    put(&mut client, "t", "k", "after");
    assert_eq!(client.get("t", "k"), Ok(Some(b"after".to_vec())));
}

#[test]
fn a_node_that_is_silent_is_left_when_patience_with_an_answer_ends() {
    let folder = Folder::new(1, "f = 0\nlease_ms = 60000\n");
    let node = Process::start(&folder.file(), 0);
    folder.wait_for(&[0], 1);
    let mut client = client(folder.config().doors());
    put(&mut client, "t", "k", "v");
    client.set_answer_patience(Duration::from_millis(300));
    client.set_patience(Duration::from_millis(500));
    node.stop();
    let error = client.put("t", "k", "w").expect_err("it says nothing");
    assert!(matches!(error, StoreError::Unknown(_)), "{error:?}");
    let error = client.get("t", "k").expect_err("it says nothing");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    node.signal("-CONT");
    client.set_answer_patience(PATIENCE);
    client.set_patience(PATIENCE);
    // It hears the write when it goes on, or the client has taken it back before: never both values are gone.
    let value = client.get("t", "k").expect("it goes on").expect("a value");
    assert!(value == b"v" || value == b"w", "{value:?}");
}
