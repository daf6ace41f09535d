//! A broker is killed, and the processes that share its address go on.
//!
//! The program is three things: the test, which starts itself again with a registry and an address of its own; the scenario,
//! which then runs in there; and the broker, which devices find by `HIGHWIRE_BROKER` and start by themselves.

mod common;

use common::{End, Setup, next_ok, until};
use highwire_host::broker::{self, BROKER_VARIABLE, Mad, PortSpace, ServiceIds, serve, sharers};
use highwire_host::verbs::{Access, Operation, Recovery, Service};
use highwire_host::{Device, DeviceConfig, Engine, Gsi, GsiError, LinkChoice, QueuePairConfig, Sharing};
use highwire_link::shm::Registry;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const SCENARIO: &str = "HIGHWIRE_TEST_SUCCESSION";
const SERVICE: u64 = 0x0106_1D2F;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == "broker") {
        return be_broker(&arguments[2..]);
    }
    if std::env::var_os(SCENARIO).is_some() {
        those_who_share_an_address_outlive_its_broker();
        nobody_waits_for_the_next_broker_but_who_asks_it();
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let program = std::env::current_exe().expect("our own path");
    let registry = std::env::temp_dir().join(format!("highwire-succession-{}", std::process::id()));
    let status = Command::new(&program)
        .env(SCENARIO, "1")
        .env(BROKER_VARIABLE, &program)
        .env("HIGHWIRE_SHM_DIR", &registry)
        .status()
        .expect("starts");
    let _ = std::fs::remove_dir_all(&registry);
    assert!(status.success(), "{status}");
    println!(
        "\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; in a process of its own\n"
    );
    ExitCode::SUCCESS
}

/// The code of `highwire broker`.
fn be_broker(arguments: &[String]) -> ExitCode {
    let value = |name: &str| arguments.iter().skip_while(|given| *given != name).nth(1);
    let address = value("--address").and_then(|text| text.parse().ok()).expect("an address");
    let registry = value("--registry").map(PathBuf::from);
    match serve(registry.as_deref(), address, arguments.iter().any(|given| given == "--succeed")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn those_who_share_an_address_outlive_its_broker() {
    let [.., c, d] = std::process::id().to_be_bytes();
    let address = IpAddr::from([127, 190, c, d.clamp(1, 254)]);
    let registry = Registry::open().expect("a registry");
    let ends = [LinkChoice::Auto, LinkChoice::Udp].map(|link| setup(address, link).pair());
    let [a, b] = [&ends[0][0], &ends[0][1]].map(|end| end.device.gsi().expect("an interface"));
    b.listen(ServiceIds::one(SERVICE)).expect("listens");
    b.bind_port(PortSpace::TCP, 7471).expect("free");
    a.leave_last_message(1, address, &to_id(b.shard(), 77)).expect("takes it");
    ends.iter().for_each(converse);

    for round in 0..3 {
        let before = shards(&registry, address);
        let killed = kill_broker(&registry, address);
        // Data does not pass through the broker.
        ends.iter().for_each(converse);
        if round == 1 {
            // A process that opens the address before a sharer has noticed waits.
            drop(device(address));
        }
        until("the next broker", || (broker::process(&registry, address)? != killed).then_some(()));
        until("everybody's return", || (shards(&registry, address) == before).then_some(()));
        ends.iter().for_each(converse);

        // Newcomers get a part of their own, and reach the others.
        let setup = setup(address, LinkChoice::Udp);
        let newcomers = setup.pair();
        assert!(newcomers.iter().all(|end| !before.contains(&end.device.shard().expect("a part"))));
        converse(&newcomers);
        // Agreements with the former broker still hold.
        let c = newcomers[0].device.gsi().expect("an interface");
        assert!(matches!(c.listen(ServiceIds::one(SERVICE)), Err(GsiError::InUse)));
        assert!(matches!(c.bind_port(PortSpace::TCP, 7471), Err(GsiError::InUse)));
        c.send(address, &request(c.shard())).expect("sends");
        assert_eq!(hear(&b)[16..18], [0, 0x10], "the request found its listener");
        // The next brokers are killed at once as well. A process that asks something does not notice.
        let all = shards(&registry, address);
        for _ in 0..3 {
            kill_broker(&registry, address);
            c.bind_port(PortSpace::UDP, 0).expect("a port");
        }
        until("everybody's return", || (shards(&registry, address) == all).then_some(()));
    }

    let [[first, second], others] = ends;
    drop((a, first));
    assert_eq!(hear(&b)[30], 77, "the last message was carried out");
    drop((b, second, others));
    // Without asking the broker, which would keep it alive.
    until("the end of the last broker", || (!registry.is_shared(address)).then_some(()));
    let left: Vec<_> = std::fs::read_dir(registry.root()).expect("a directory").flatten().collect();
    let stays = ["lock", "roster-1", "net"];
    assert!(left.iter().all(|entry| stays.iter().any(|name| entry.file_name() == *name)), "{left:?}");
}

fn nobody_waits_for_the_next_broker_but_who_asks_it() {
    let [.., c, d] = std::process::id().to_be_bytes();
    let address = IpAddr::from([127, 191, c, d.clamp(1, 254)]);
    let registry = Registry::open().expect("a registry");
    let setup = setup(address, LinkChoice::Udp);
    let [a, b] = setup.pair();
    let ends = [a, b].map(|end| {
        let (pd, cq) = (end.device.protection_domain(), end.device.completion_queue(64).expect("a queue"));
        let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
        let buffer = pd.allocate(common::BUFFER_BYTES, Access::ALL).expect("a buffer");
        End { qp, buffer, cq, pd, device: end.device.clone() }
    });
    // Another process holds the lock for a while.
    let lock = registry.lock_broker(address).expect("a lock");
    kill_broker(&registry, address);
    until("two that look for the next one", || (helpers() == 2).then_some(()));
    // The devices' own threads ask and answer whether a new peer speaks IRN, and no data leaves before.
    setup.connect(&ends);
    converse(&ends);
    assert_eq!(helpers(), 2);
    drop(lock);
    until("the next broker", || broker::process(&registry, address));
}

/// Threads that bring a broker back.
fn helpers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "highwire-help").count()
}

fn config(address: IpAddr) -> DeviceConfig {
    let (address, sharing, engine) = (Some(address), Sharing::Shared, Engine::Both);
    DeviceConfig { address, sharing, engine, ..DeviceConfig::default() }
}

fn device(address: IpAddr) -> Device {
    Device::open(&config(address)).expect("a part of the address")
}

fn setup(address: IpAddr, link: LinkChoice) -> Setup {
    let mut setup = Setup::new(Service::Rc, link).recovery(Recovery::Irn);
    setup.config = DeviceConfig { link, ..config(address) };
    setup
}

fn converse([a, b]: &[End; 2]) {
    for (from, to) in [(a, b), (b, a)] {
        let bytes = from.fill(0, 5000, 3);
        to.receive(1, 8192, 8192);
        from.post(2, Operation::Send, 0, 5000);
        next_ok(from, to);
        next_ok(to, from);
        assert_eq!(to.buffer.to_vec(8192, 5000), bytes);
    }
    for end in [a, b] {
        assert_eq!(end.device.counters().value("dropped_unknown_qp"), 0);
    }
}

fn shards(registry: &Registry, address: IpAddr) -> Vec<u8> {
    sharers(registry, address).unwrap_or_default().into_iter().map(|sharer| sharer.shard).collect()
}

fn kill_broker(registry: &Registry, address: IpAddr) -> u32 {
    let pid = broker::process(registry, address).expect("there is one");
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("runs");
    assert!(killed.success());
    pid
}

fn mad(attribute: u16, words: [u32; 4]) -> Mad {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    for (word, at) in words.into_iter().zip((24..).step_by(4)) {
        mad[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    mad
}

fn request(shard: u8) -> Mad {
    mad(0x10, [shard.into(), 0, (SERVICE >> 32) as u32, SERVICE as u32])
}

/// A message that answers to an id of a shard's.
fn to_id(shard: u8, number: u32) -> Mad {
    mad(0x14, [0, number << 8 | u32::from(shard), 0, 0])
}

#[track_caller]
fn hear(gsi: &Gsi) -> Box<Mad> {
    until("a datagram", || gsi.try_receive()).mad
}
