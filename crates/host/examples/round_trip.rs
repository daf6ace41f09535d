//! Round trips of eight bytes by WRITE between two processes, both of which spin on their memory: what the Java tool of the same name does.
//! `cargo run --release -p highwire-host --example round_trip`

use highwire_host::verbs::{Access, Operation, Remote, RemoteKey, SendWr, Service};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, QueuePair, QueuePairConfig,
};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

const WARMUP: u64 = 50_000;
const COUNT: u64 = 200_000;

struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
}

impl End {
    fn new() -> Result<End, Box<dyn Error>> {
        let device = Device::open(&DeviceConfig::default())?;
        let pd = device.protection_domain();
        let cq = device.completion_queue(64)?;
        let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
        Ok(End { buffer: pd.allocate(4096, Access::ALL)?, qp, cq })
    }

    fn introduction(&self) -> String {
        format!("{} {} {}", self.qp.endpoint(), self.buffer.addr(), self.buffer.rkey().0)
    }

    fn connect(&self, peer: &str) -> Result<Remote, Box<dyn Error>> {
        let mut words = peer.split_whitespace();
        let mut word = || words.next().ok_or("the peer said too little");
        self.qp.connect(&word()?.parse()?, &ConnectOptions::default())?;
        Ok(Remote { va: word()?.parse::<u64>()? + 64, rkey: RemoteKey(word()?.parse()?) })
    }

    fn send(&self, there: Remote, value: u64) {
        self.buffer.word(0).store(value, Ordering::Relaxed);
        let sges = [self.buffer.sge(0, 8)];
        let wr = SendWr::new(value, Operation::Write(there), &sges);
        self.qp.post_send(&[wr]).expect("room for one request");
        while self.cq.poll_one().is_none() {
            std::hint::spin_loop();
        }
    }

    fn wait(&self, value: u64) {
        while self.buffer.word(64).load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    }
}

fn line(from: &mut impl BufRead) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    from.read_line(&mut text)?;
    Ok(text)
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("peer") {
        return peer();
    }
    let mut child = Command::new(std::env::current_exe()?)
        .arg("peer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(child.stdout.take().ok_or("a pipe")?);
    let mut tell = child.stdin.take().ok_or("a pipe")?;
    let end = End::new()?;
    let there = end.connect(&line(&mut said)?)?;
    writeln!(tell, "{}", end.introduction())?;
    line(&mut said)?;
    let mut times = Vec::with_capacity(COUNT as usize);
    for value in 1..=WARMUP + COUNT {
        let start = Instant::now();
        end.send(there, value);
        end.wait(value);
        if value > WARMUP {
            times.push(start.elapsed().as_nanos());
        }
    }
    child.wait()?;
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{:<28} min {:6}  p50 {:6}  p99 {:7}  p99.9 {:8} ns  ({})",
        "Rust: WRITE, 8 bytes",
        at(0.0),
        at(0.5),
        at(0.99),
        at(0.999),
        times.len()
    );
    Ok(())
}

fn peer() -> Result<(), Box<dyn Error>> {
    let end = End::new()?;
    println!("{}", end.introduction());
    let there = end.connect(&line(&mut std::io::stdin().lock())?)?;
    println!("ready");
    for value in 1..=WARMUP + COUNT {
        end.wait(value);
        end.send(there, value);
    }
    Ok(())
}
