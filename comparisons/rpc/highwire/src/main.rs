//! Highwire's own RPCs, as in `highwire bench rpc`, but each end in a process of its own. Both ends poll.
//!
//! Up to 20 requests under way are a worker each; more of them are batches of 20 workers, and a batch goes in one datagram.

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use comparisons_echo::{Book, PATIENCE, Report, Server, System};
use highwire_host::rpc::{Idle, Node, RequestType, Rpc, RpcConfig, Worker};
use highwire_host::{Device, DeviceConfig, Engine, LinkChoice};

const ECHO: RequestType = RequestType(1);
const CLIENT: Node = Node(1);
const SERVER: Node = Node(2);
/// FaSST's number of workers for each thread.
const WORKERS: u32 = 20;
/// Turns of the client between two looks at the clock.
const TURNS_PER_LOOK: u32 = 4096;

struct Highwire;

impl System for Highwire {
    fn serve(over: &str, server: &'static Server) -> Result<()> {
        let mut rpc = open(over, SERVER, server.window)?;
        rpc.register(ECHO, move |request, response| {
            let mut bytes = [0; comparisons_echo::SIZE];
            let bytes = &mut bytes[..request.bytes.len().min(comparisons_echo::SIZE)];
            bytes.copy_from_slice(&request.bytes[..bytes.len()]);
            server.reply(bytes);
            response.write(bytes);
        });
        server.is_at(rpc.address());
        while !server.is_over() {
            rpc.poll();
        }
        Ok(())
    }

    fn call(over: &str, place: &str, book: Book) -> Result<Report> {
        let mut rpc = open(over, CLIENT, book.window())?;
        rpc.connect(SERVER, &place.parse()?)?;
        let (workers, batches) = share(book.window());
        let books = Rc::new(RefCell::new(Books { book, failure: None, ended: 0, heard: 0 }));
        for number in 0..workers {
            let (books, batch) = (Rc::clone(&books), batches[number as usize]);
            rpc.spawn(move |worker| work(worker, batch, books))?;
        }
        let mut heard = (0, Instant::now());
        while books.borrow().ended < workers {
            for _ in 0..TURNS_PER_LOOK {
                rpc.poll();
            }
            let now = books.borrow().heard;
            if now != heard.0 {
                heard = (now, Instant::now());
            } else if heard.1.elapsed() > PATIENCE {
                bail!("no reply for {PATIENCE:?}: {:?}", rpc.counters());
            }
        }
        let books = Rc::into_inner(books).context("a worker goes on")?.into_inner();
        match books.failure {
            Some(error) => Err(error),
            None => books.book.report(),
        }
    }
}

/// Workers, and how many requests each of them has under way.
fn share(window: u32) -> (u32, Vec<u32>) {
    let workers = window.min(WORKERS);
    let batches = (0..workers).map(|number| (window + workers - 1 - number) / workers).collect();
    (workers, batches)
}

fn open(over: &str, node: Node, window: u32) -> Result<Rpc> {
    let link = match over {
        "shm" => LinkChoice::Shm,
        "udp" => LinkChoice::Udp,
        _ => bail!("Highwire knows shm and udp, and not {over}"),
    };
    let device = Device::open(&DeviceConfig { link, engine: Engine::Inline, ..DeviceConfig::default() })?;
    let mut config = RpcConfig::new(node);
    config.idle = Idle::Spin;
    // As many as all workers can have under way, however requests share datagrams.
    let slots = window.clamp(32, 512);
    config.endpoint.slots = slots as u16;
    config.receives = (2 * slots).next_power_of_two();
    config.sends = config.receives;
    Ok(Rpc::open(&device, config)?)
}

/// The state that the workers share.
struct Books {
    book: Book,
    failure: Option<anyhow::Error>,
    ended: u32,
    /// Batches that were answered.
    heard: u64,
}

async fn work(worker: Worker, batch: u32, books: Rc<RefCell<Books>>) {
    let result = ask(&worker, batch, &books).await;
    let mut books = books.borrow_mut();
    books.ended += 1;
    if let Err(error) = result {
        books.failure.get_or_insert(error);
    }
}

async fn ask(worker: &Worker, batch: u32, books: &RefCell<Books>) -> Result<()> {
    let mut requests = Vec::new();
    loop {
        requests.clear();
        requests.extend((0..batch).map_while(|_| books.borrow_mut().book.request()));
        if requests.is_empty() || books.borrow().failure.is_some() {
            return Ok(());
        }
        let mut together = worker.batch();
        for request in &requests {
            together.add(SERVER, ECHO, &request.bytes);
        }
        let replies = together.send().await;
        let mut books = books.borrow_mut();
        books.heard += 1;
        for (request, reply) in requests.iter().zip(replies.iter()) {
            books.book.answered(request, reply.context("a call failed")?)?;
        }
    }
}

fn main() -> ExitCode {
    comparisons_echo::run::<Highwire>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_share_the_whole_window() {
        assert_eq!(share(1), (1, vec![1]));
        assert_eq!(share(20), (20, vec![1; 20]));
        assert_eq!(share(220), (20, vec![11; 20]));
        for window in 1..=512 {
            assert_eq!(share(window).1.iter().sum::<u32>(), window);
        }
    }
}
