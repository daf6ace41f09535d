//! A client and a server, a thread and a core each, for one turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_host::rpc::{Idle, Node, Optimisations, RequestType, Rpc, RpcConfig, Worker};
use highwire_host::{Device, DeviceConfig, Endpoint, Engine};
use highwire_wake::{Core, pin};

use super::LinkName;

const ECHO: RequestType = RequestType(1);
const CLIENT: Node = Node(1);
const SERVER: Node = Node(2);
/// The time before counting begins.
const WARM_UP: Duration = Duration::from_millis(20);
/// Turns of the client between two looks at the clock.
const TURNS_PER_LOOK: u32 = 256;
/// A client without an answer gives up after this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// For times of nanoseconds to [`PATIENCE`]: a histogram that grows by itself still clamps saturated values
/// into it.
pub(super) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, PATIENCE.as_nanos() as u64, 3)?)
}

/// The load of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) link: LinkName,
    /// Bytes of a request, and of its response.
    pub(super) size: u32,
    pub(super) batch: u32,
    pub(super) workers: u32,
    pub(super) optimisations: Optimisations,
}

/// The result of a turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) requests: u64,
    /// Datagrams that carried the requests.
    pub(super) datagrams: u64,
    pub(super) elapsed: Duration,
    /// Nanoseconds from batch to replies; kept only where one worker runs, so that looking at the clock costs the rates nothing.
    pub(super) times: Histogram<u64>,
}

impl Turn {
    pub(super) fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Plays a load for the given time; the client has the first core.
///
/// # Errors
/// An endpoint could not be made, or a call failed.
pub(super) fn play(load: &Load, cores: [Core; 2], length: Duration) -> Result<Turn> {
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let (to_client, from_server) = mpsc::channel::<Endpoint>();
        let is_over = &is_over;
        let server = threads.spawn(move || {
            let mut rpc = open(load, SERVER, cores[1])?;
            rpc.register(ECHO, |request, response| response.write(request.bytes));
            to_client.send(rpc.address()).context("the client is gone")?;
            while !is_over.load(Ordering::Relaxed) {
                rpc.poll();
            }
            Ok(())
        });
        let turn = client(load, cores[0], length, &from_server);
        is_over.store(true, Ordering::Relaxed);
        let served: Result<()> = server.join().unwrap_or_else(|_| bail!("the server panicked"));
        served.and(turn)
    })
}

fn open(load: &Load, node: Node, core: Core) -> Result<Rpc> {
    let config = DeviceConfig { link: load.link.choice(), engine: Engine::Inline, ..DeviceConfig::default() };
    let device = Device::open(&config)?;
    // The device's own thread exists already, and stays free to run elsewhere.
    drop(pin(&[core]));
    let mut config = RpcConfig::new(node);
    config.idle = Idle::Spin;
    config.endpoint.optimisations = load.optimisations;
    // As many slots as all workers can have under way, however requests share datagrams.
    let slots = (load.workers * load.batch).clamp(32, 256);
    config.endpoint.slots = slots as u16;
    config.receives = (2 * slots).next_power_of_two();
    config.sends = config.receives;
    Ok(Rpc::open(&device, config)?)
}

fn client(load: &Load, core: Core, length: Duration, server: &mpsc::Receiver<Endpoint>) -> Result<Turn> {
    let mut rpc = open(load, CLIENT, core)?;
    // A server that fails drops its end of the channel.
    let server = server.recv().context("the server did not come up")?;
    rpc.connect(SERVER, &server)?;
    let books = Rc::new(Books {
        requests: Cell::new(0),
        failure: RefCell::new(None),
        times: (load.workers == 1).then(|| histogram().map(RefCell::new)).transpose()?,
    });
    let mut workers = Vec::new();
    for _ in 0..load.workers {
        let (load, books) = (*load, Rc::clone(&books));
        workers.push(rpc.spawn(move |worker| work(worker, load, books))?);
    }
    run(&mut rpc, &books, WARM_UP)?;
    let before = (books.requests.get(), rpc.counters().request_datagrams);
    if let Some(times) = &books.times {
        times.borrow_mut().reset();
    }
    let elapsed = run(&mut rpc, &books, length)?;
    Ok(Turn {
        requests: books.requests.get() - before.0,
        datagrams: rpc.counters().request_datagrams - before.1,
        elapsed,
        times: match &books.times {
            Some(times) => times.borrow().clone(),
            None => histogram()?,
        },
    })
}

/// The workers' records.
struct Books {
    requests: Cell<u64>,
    failure: RefCell<Option<String>>,
    times: Option<RefCell<Histogram<u64>>>,
}

async fn work(worker: Worker, load: Load, books: Rc<Books>) {
    let message = vec![0x5A; load.size as usize];
    loop {
        let begin = books.times.is_some().then(Instant::now);
        let mut batch = worker.batch();
        for _ in 0..load.batch {
            batch.add(SERVER, ECHO, &message);
        }
        let replies = batch.send().await;
        for reply in replies.iter() {
            match reply {
                Ok(bytes) if bytes.len() == message.len() => {}
                Ok(bytes) => {
                    return books.fail(format!("{} bytes came back of {}", bytes.len(), message.len()));
                }
                Err(error) => return books.fail(format!("a call failed: {error}")),
            }
        }
        if let (Some(times), Some(begin)) = (&books.times, begin) {
            times.borrow_mut().saturating_record(begin.elapsed().as_nanos() as u64);
        }
        books.requests.set(books.requests.get() + u64::from(load.batch));
    }
}

impl Books {
    fn fail(&self, why: String) {
        self.failure.borrow_mut().get_or_insert(why);
    }
}

/// Polls for the given time.
fn run(rpc: &mut Rpc, books: &Books, length: Duration) -> Result<Duration> {
    let begin = Instant::now();
    let mut heard = (books.requests.get(), begin);
    loop {
        for _ in 0..TURNS_PER_LOOK {
            rpc.poll();
        }
        if let Some(why) = books.failure.borrow().as_ref() {
            bail!("{why}");
        }
        let now = Instant::now();
        if books.requests.get() != heard.0 {
            heard = (books.requests.get(), now);
        } else if now - heard.1 > PATIENCE {
            bail!("no answer for {PATIENCE:?}: {:?}", rpc.counters());
        }
        // A turn without an answer is no measurement: it goes on until there is one.
        if now - begin >= length && heard.0 > 0 {
            return Ok(now - begin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_round_trip_is_kept_as_it_was() {
        let mut times = histogram().expect("bounds");
        times.saturating_record(5_000_000);
        assert!(times.value_at_quantile(0.5).abs_diff(5_000_000) < 5_000);
    }
}
