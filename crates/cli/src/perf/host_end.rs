//! An end on this machine's own device.

use anyhow::{Context, Result, bail};
use highwire_host::verbs::{
    Access, Address, Completion, CompletionOp, CompletionStatus, Datagram, Mtu, Operation as Verb, QpCaps,
    Recovery, RecvWr, Remote, RemoteKey, SendFlags, SendWr, Service as QpService, Sge,
};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, EMPTY_COMPLETION, Endpoint as QpEndpoint,
    LinkChoice, QueuePair, QueuePairConfig,
};
use highwire_link::FaultConfig;

use crate::exchange::Exchange;

use super::endpoint::{EndAddress, Endpoint, LinkUsed, Polled};
use super::local::{Counters, Local};
use super::pin;
use super::plan::{self, Link, Operation, Plan, Service};

const QKEY: u32 = 0x1234_5678;
/// Bytes of the GRH at the beginning of a UD receive (IBTA §11.4.1.2).
const GRH_BYTES: u32 = 40;
/// Messages up to this length are sent inline, as in perftest.
const INLINE_BYTES_MAX: u32 = 64;
const COMPLETIONS_PER_POLL: usize = 32;

/// A queue pair of a device in this process, with a buffer to send from and one for the peer.
pub(crate) struct HostEnd {
    // Declared before the device, so that they are dropped first.
    queue_pair: QueuePair,
    completion_queue: CompletionQueue,
    outgoing: Buffer,
    landing: Buffer,
    device: Device,
    operation: Operation,
    verb: Verb,
    datagram: Option<Datagram>,
    options: ConnectOptions,
    /// The message itself, if it is sent inline.
    inline: Option<Vec<u8>>,
    size_bytes: u32,
    receive_bytes: u32,
    posted: u64,
    completed: u64,
    completions: [Completion; COMPLETIONS_PER_POLL],
}

impl HostEnd {
    /// Opens a device that the peer at the other end of `exchange` reaches, and makes its queue pair.
    pub(crate) fn open(plan: &Plan, faults: FaultConfig, local: &Local, exchange: &Exchange) -> Result<Self> {
        let config = DeviceConfig {
            address: address(exchange)?,
            engine: local.engine,
            link: match plan.link {
                Link::Auto => LinkChoice::Auto,
                Link::Udp => LinkChoice::Udp,
                Link::Shm => LinkChoice::Shm,
            },
            faults: (!faults.is_harmless()).then_some(faults),
            capture: local.pcap.clone(),
            mtu_max: plan.mtu_bytes,
            ..DeviceConfig::default()
        };
        let device = Device::open(&config)?;
        // The device's own thread exists already, and stays free to run elsewhere.
        local.core.into_iter().for_each(pin::bind);
        let service = match plan.service {
            Service::Rc => QpService::Rc,
            Service::Uc => QpService::Uc,
            Service::Ud => QpService::Ud,
        };
        let domain = device.protection_domain();
        let grh_bytes = if plan.service == Service::Ud { GRH_BYTES } else { 0 };
        let receive_bytes = plan.size_bytes + grh_bytes;
        let length = receive_bytes.max(64) as usize;
        let outgoing = domain.allocate(length, Access::ALL)?;
        let landing = domain.allocate(length, Access::ALL)?;
        outgoing.fill(0x5A);
        landing.fill(0);
        let receives = plan.receives();
        let completion_queue = device.completion_queue(plan.depth + receives)?;
        let caps = QpCaps {
            max_send_wr: plan.depth,
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: INLINE_BYTES_MAX,
        };
        let queue_pair = domain
            .queue_pair(&QueuePairConfig { caps, ..QueuePairConfig::new(service, &completion_queue) })
            .context("cannot make a queue pair")?;
        let sends = matches!(plan.operation, Operation::Send | Operation::Write);
        let is_inline = sends && (1..=INLINE_BYTES_MAX).contains(&plan.size_bytes);
        Ok(Self {
            queue_pair,
            completion_queue,
            outgoing,
            landing,
            device,
            operation: plan.operation,
            verb: Verb::Send,
            datagram: None,
            options: ConnectOptions {
                mtu: plan.mtu_bytes.and_then(Mtu::from_bytes),
                recovery: match plan.recovery {
                    plan::Recovery::GoBackN => Recovery::GoBackN,
                    plan::Recovery::Irn => Recovery::Irn,
                },
                ..ConnectOptions::default()
            },
            inline: is_inline.then(|| vec![0x5A; plan.size_bytes as usize]),
            size_bytes: plan.size_bytes,
            receive_bytes,
            posted: 0,
            completed: 0,
            completions: [EMPTY_COMPLETION; COMPLETIONS_PER_POLL],
        })
    }

    /// The data that the peer needs.
    pub(crate) fn address(&self) -> EndAddress {
        let Remote { va, rkey } = self.landing.remote(0);
        EndAddress {
            endpoint: self.queue_pair.endpoint().to_string(),
            buffer_address: va,
            remote_key: rkey.0,
        }
    }

    /// Payload bytes of a packet at most.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        self.device.mtu().bytes()
    }

    /// Connects to the peer, or, on UD, makes ready to send to it.
    pub(crate) fn connect(&mut self, peer: &EndAddress) -> Result<()> {
        let endpoint: QpEndpoint = peer.endpoint.parse().context("the other end's address")?;
        let remote = Remote { va: peer.buffer_address, rkey: RemoteKey(peer.remote_key) };
        self.verb = match self.operation {
            Operation::Send => Verb::Send,
            Operation::Write => Verb::Write(remote),
            Operation::Read => Verb::Read(remote),
            Operation::FetchAdd => Verb::FetchAdd { remote, add: 1 },
        };
        if self.queue_pair.service() == QpService::Ud {
            self.datagram =
                Some(Datagram { address: Address::new(endpoint.gid), qpn: endpoint.qpn, qkey: QKEY });
            self.queue_pair.activate(QKEY)?;
        } else {
            self.queue_pair.connect(&endpoint, &self.options)?;
        }
        Ok(())
    }

    /// The link of most packets so far: the first ones take the network while neighbours are still being
    /// introduced.
    pub(crate) fn link_used(&self) -> LinkUsed {
        let counters = self.device.counters();
        let over_udp = counters.value("udp_tx_packets");
        if over_udp * 2 > counters.value("packets_sent") { LinkUsed::Udp } else { LinkUsed::SharedMemory }
    }

    /// The device's counters, except those that are zero.
    pub(crate) fn counters(&self) -> Counters {
        let snapshot = self.device.counters();
        snapshot
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| (name.to_string(), value))
            .collect()
    }

    fn check(completion: &Completion) -> Result<()> {
        match completion.status {
            CompletionStatus::Success => Ok(()),
            CompletionStatus::RetryExceeded => bail!(
                "the peer has not answered 7 attempts in a row, 67 ms each: is it still running, and does UDP port 4791 reach it?"
            ),
            CompletionStatus::RnrRetryExceeded => bail!("the peer has no receive posted"),
            status => bail!("{:?} failed: {status:?}", completion.operation),
        }
    }
}

impl Endpoint for HostEnd {
    #[inline]
    fn post(&mut self, count: u32, signaled: bool) -> Result<()> {
        let sges = [Sge { length: self.size_bytes, ..self.outgoing.sge(0, 0) }];
        let (verb, datagram) = (self.verb, self.datagram);
        let (first, last) = (self.posted, self.posted + u64::from(count));
        let inline = self.inline.as_deref();
        self.queue_pair.chain(|chain| {
            for wr_id in first + 1..=last {
                let flags = SendFlags { signaled: signaled && wr_id == last, ..SendFlags::default() };
                let request = SendWr { wr_id, operation: verb, flags, sges: &sges, datagram };
                match inline {
                    Some(data) => chain.push_inline(&request, data),
                    None => chain.push(&request),
                }?;
            }
            anyhow::Ok(())
        })?;
        self.posted = last;
        Ok(())
    }

    #[inline]
    fn post_receives(&mut self, count: u32) -> Result<()> {
        let sges = [self.landing.sge(0, self.receive_bytes)];
        (0..count).try_for_each(|_| self.queue_pair.post_recv(&RecvWr { wr_id: 0, sges: &sges }))?;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<Polled> {
        let count = self.completion_queue.poll(&mut self.completions);
        let mut polled = Polled::default();
        for completion in &self.completions[..count] {
            Self::check(completion)?;
            if matches!(completion.operation, CompletionOp::Receive | CompletionOp::ReceiveWriteImm) {
                polled.received += 1;
            } else {
                polled.sent += (completion.wr_id - self.completed) as u32;
                self.completed = completion.wr_id;
            }
        }
        Ok(polled)
    }

    fn write_message(&mut self, bytes: &[u8]) {
        match &mut self.inline {
            Some(data) => data.copy_from_slice(bytes),
            None => self.outgoing.write(0, bytes),
        }
    }

    fn read_message(&self, bytes: &mut [u8]) {
        self.landing.read((self.receive_bytes - self.size_bytes) as usize, bytes);
    }

    #[inline]
    fn mark(&mut self, mark: u8) {
        match (&mut self.inline, self.size_bytes) {
            (Some(data), _) => *data.last_mut().expect("inline messages have bytes") = mark,
            (None, 0) => {}
            (None, size) => self.outgoing.write(size as usize - 1, &[mark]),
        }
    }

    #[inline]
    fn arrived(&self) -> u8 {
        self.landing.byte(self.size_bytes.saturating_sub(1) as usize)
    }
}

/// The address by which the peer reaches this end; the device chooses it if the peer is on this machine, or
/// if the user has named one.
fn address(exchange: &Exchange) -> Result<Option<std::net::IpAddr>> {
    let is_named = std::env::var_os(highwire_host::ADDRESS_VARIABLE).is_some();
    Ok(exchange.address_for_peer()?.filter(|_| !is_named))
}
