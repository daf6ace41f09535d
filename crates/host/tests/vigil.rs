//! Engines of which programs behind a door expect work, and others at the far end answers: how they wait. The tests count sleeps and
//! processor time of all engines' threads, so they have this program for themselves and take turns.

mod door_client;

use door_client::{Client, PATIENCE, RawQueuePair};
use highwire_host::door::Door;
use highwire_host::{Device, DeviceConfig, Engine};
use highwire_verbs::{CompletionStatus, Operation, Remote, RemoteKey, SendWr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static TURN: Mutex<()> = Mutex::new(());

const ROUND_TRIPS: u64 = 200;
/// With an engine at either end, four for each round trip are what engines need that sleep whenever they have nothing to do.
const SLEEPS_MAX: u64 = ROUND_TRIPS / 4;

/// The figures of all engines' threads, by name, in a file of theirs.
fn engines(file: &str) -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").expect("this process's threads");
    let paths = threads.map(|thread| thread.expect("a thread").path());
    let engines = paths.filter(|path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == "highwire")
    });
    engines.map(|path| std::fs::read_to_string(path.join(file)).expect("it runs")).collect()
}

/// How often engines have left their core in order to sleep; a thread that gives its core away does not count.
fn sleeps() -> u64 {
    let count = |status: String| {
        let line =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:").map(str::to_owned));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a count")
    };
    engines("status").into_iter().map(count).sum()
}

/// The processor time of engines (proc_pid_schedstat(5): the first figure, in nanoseconds).
fn processor_time() -> Duration {
    let time = |figures: String| {
        figures.split(' ').next().and_then(|time| time.parse::<u64>().ok()).expect("a time")
    };
    Duration::from_nanos(engines("schedstat").into_iter().map(time).sum())
}

/// A program behind a door of its own.
struct End {
    client: Client,
    qp: RawQueuePair,
    _door: Door,
    _device: Device,
}

impl End {
    fn open() -> End {
        let config = DeviceConfig { has_door: true, engine: Engine::Background, ..DeviceConfig::default() };
        let device = Device::open(&config).expect("a device");
        let door = Door::open(&device).expect("a door");
        let mut client = Client::connect(&door);
        let qp = client.queue_pair_on_demand();
        End { client, qp, _door: door, _device: device }
    }

    fn pair() -> [End; 2] {
        let [mut a, mut b] = [End::open(), End::open()];
        a.client.connect_across(&a.qp, &b.qp, b.client.gid);
        b.client.connect_across(&b.qp, &a.qp, a.client.gid);
        [a, b]
    }

    /// WRITEs a number into the other's memory, and waits there, giving the core away at each look, until it has come.
    fn write(&mut self, to: &End, number: u64) {
        self.qp.memory.write(0, &number.to_le_bytes());
        let remote = Remote { va: to.qp.iova + 512, rkey: RemoteKey(to.qp.key) };
        let sges = [self.qp.sge(0, 8)];
        self.qp.post(&self.client, &SendWr::new(number, Operation::Write(remote), &sges));
        let start = Instant::now();
        while to.qp.memory.read(512, 8) != number.to_le_bytes() {
            assert!(start.elapsed() < PATIENCE, "no WRITE came");
            std::thread::yield_now();
        }
    }
}

fn round_trips([a, b]: &mut [End; 2], from: u64) {
    for number in from..from + ROUND_TRIPS {
        a.write(b, number);
        b.write(a, number);
        for end in [&mut *a, &mut *b] {
            assert_eq!(end.qp.completion().status, CompletionStatus::Success);
        }
    }
}

#[test]
fn engines_on_one_core_answer_each_other_without_a_sleep_in_between() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Every thread that is started from here on stays on the core, too: an engine that kept it while it waited would keep the other
    // one from answering.
    highwire_wake::pin(&[highwire_wake::current_core()]).expect("it runs there");
    let mut ends = End::pair();
    let start = Instant::now();
    let mut fewest = u64::MAX;
    for round in 0.. {
        let before = sleeps();
        round_trips(&mut ends, 1 + round * ROUND_TRIPS);
        fewest = fewest.min(sleeps() - before);
        if fewest <= SLEEPS_MAX {
            break;
        }
        // While others want the core the engines do sleep, and that may go on for a while.
        assert!(start.elapsed() < PATIENCE, "{fewest} sleeps at least in {ROUND_TRIPS} round trips");
    }
}

#[test]
fn engines_that_have_been_busy_cost_next_to_nothing_once_there_is_no_work() {
    const QUIET: Duration = Duration::from_secs(2);
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ends = End::pair();
    for round in 0..20 {
        round_trips(&mut ends, 1 + round * ROUND_TRIPS);
    }
    let (time, count) = (processor_time(), sleeps());
    std::thread::sleep(QUIET);
    let (time, count) = (processor_time() - time, sleeps() - count);
    // Two threads look a few dozen times a second, and each look takes some microseconds.
    assert!(time < QUIET / 50, "{time:?} of processor time in {QUIET:?}");
    assert!(count < 200, "{count} sleeps in {QUIET:?}");
}
