//! Unreliable datagrams: one queue pair talks to many peers, and each datagram that it receives says which peer sent it.
//! `cargo run --example datagrams`

use highwire_host::verbs::{Access, Address, Completion, Datagram, Operation, RecvWr, SendWr, Service};
use highwire_host::{Buffer, CompletionQueue, Device, DeviceConfig, QueuePair, QueuePairConfig, WaitFor};
use std::error::Error;
use std::time::Duration;

/// Both ends must use the same Q_Key: a datagram with another one is dropped.
const QKEY: u32 = 0x0123_4567;
/// The first 40 bytes of a received datagram are its sender's network header.
const GRH_BYTES: u32 = 40;
const SEND_AT: u64 = 2048;

struct End {
    name: &'static str,
    device: Device,
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
}

fn end(name: &'static str) -> Result<End, Box<dyn Error>> {
    let device = Device::open(&DeviceConfig::default())?;
    let (pd, cq) = (device.protection_domain(), device.completion_queue(16)?);
    let qp = pd.queue_pair(&QueuePairConfig::new(Service::Ud, &cq))?;
    qp.activate(QKEY)?;
    let buffer = pd.allocate(4096, Access::LOCAL_WRITE)?;
    qp.post_recv(&RecvWr { wr_id: 1, sges: &[buffer.sge(0, 1024)] })?;
    Ok(End { name, device, qp, cq, buffer })
}

impl End {
    /// Sends `text` and waits until it has left.
    fn send(&self, to: Datagram, text: &str) -> Result<(), Box<dyn Error>> {
        self.buffer.write(SEND_AT as usize, text.as_bytes());
        let sges = [self.buffer.sge(SEND_AT, text.len() as u32)];
        self.qp.post_send(&[SendWr { datagram: Some(to), ..SendWr::new(2, Operation::Send, &sges) }])?;
        self.completion().map(drop)
    }

    fn completion(&self) -> Result<Completion, Box<dyn Error>> {
        if !self.cq.wait(WaitFor::Any, Duration::from_secs(10)) {
            return Err(format!("{} waits for nothing", self.name).into());
        }
        self.cq.poll_one().ok_or_else(|| "another thread was faster".into())
    }

    /// The next datagram, and its sender's queue pair; another receive takes its place.
    fn receive(&self) -> Result<(String, u32), Box<dyn Error>> {
        let done = self.completion()?;
        let text = self.buffer.to_vec(GRH_BYTES as usize, (done.byte_len - GRH_BYTES) as usize);
        self.qp.post_recv(&RecvWr { wr_id: 1, sges: &[self.buffer.sge(0, 1024)] })?;
        Ok((String::from_utf8(text)?, done.source_qpn.value()))
    }

    /// How it is reached.
    fn as_destination(&self) -> Datagram {
        Datagram { address: Address::new(self.device.gid()), qpn: self.qp.qpn(), qkey: QKEY }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (server, clients) = (end("server")?, [end("alice")?, end("bob")?]);
    for client in &clients {
        client.send(server.as_destination(), client.name)?;
        let (text, source) = server.receive()?;
        println!("the server hears {text:?} from queue pair {source:06x}");
        assert_eq!((text.as_str(), source), (client.name, client.qp.qpn().value()));
        server.send(client.as_destination(), &format!("hello, {text}"))?;
        let (answer, _) = client.receive()?;
        println!("{} hears {answer:?}", client.name);
        assert_eq!(answer, format!("hello, {}", client.name));
    }
    Ok(())
}
