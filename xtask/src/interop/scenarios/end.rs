//! One end of a conversation: a verbs process in the guest or on this machine, driven through the same lines.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};

use crate::interop::agent::{Agent, Region, WorkCompletion};

/// The owner of an end's RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::interop) enum Side {
    Highwire,
    /// Highwire's engine too, with a JVM's mapped queues in front of it.
    Java,
    Kernel,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Highwire => "highwire",
            Side::Java => "java",
            Side::Kernel => "kernel",
        })
    }
}

/// An open device with one PD and one CQ.
pub(in crate::interop) struct End {
    pub(in crate::interop) side: Side,
    pub(in crate::interop) agent: Agent,
    /// Its address, as the other end names it.
    pub(super) gid: String,
    sgid: u32,
    /// The RoCE MTU that fits the interface's.
    pub(super) mtu_bytes: u32,
    pub(super) pd: u32,
    cq: u32,
}

/// A queue pair, by the agent's number and on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qp {
    pub(super) id: u32,
    pub(super) qpn: u32,
}

impl End {
    /// Opens the end's device, which must have the GID `gid` (an IPv4 or IPv6 address).
    pub(super) fn open(side: Side, mut agent: Agent, gid: &str) -> Result<End> {
        let opened = agent.ask("open")?;
        let mapped = if gid.contains(':') { gid.to_owned() } else { format!("::ffff:{gid}") };
        let index =
            opened.all("gid").filter_map(|entry| entry.split_once(',')).find(|(_, name)| *name == mapped);
        let (index, _) = index.with_context(|| format!("the {side} end has no GID {gid}"))?;
        let sgid = index.parse().context("a GID index is a number")?;
        let mtu_bytes = opened.number("mtu")?;
        let pd = agent.ask("pd")?.number("pd")?;
        let cq = agent.ask("cq depth=1024")?.number("cq")?;
        Ok(End { side, agent, gid: gid.into(), sgid, mtu_bytes, pd, cq })
    }

    /// A request of which only the success matters.
    pub(super) fn tell(&mut self, request: &str) -> Result<()> {
        self.agent.ask(request).map(drop)
    }

    /// A zeroed region; `access` in the agent's letters.
    pub(super) fn region(&mut self, bytes: usize, access: &str) -> Result<Region> {
        self.agent.register(self.pd, bytes, access)
    }

    /// A region that holds a seed's pattern.
    pub(super) fn filled(&mut self, bytes: usize, access: &str, seed: u64) -> Result<Region> {
        let region = self.region(bytes, access)?;
        self.tell(&format!("fill mr={} seed={seed}", region.id))?;
        Ok(region)
    }

    /// A queue pair in the reset state; `options` as the agent's `qp` takes them.
    pub(super) fn queue_pair(&mut self, service: &str, options: &str) -> Result<Qp> {
        let made = self.agent.ask(&format!("qp type={service} pd={} cq={} {options}", self.pd, self.cq))?;
        Ok(Qp { id: made.number("qp")?, qpn: made.number("qpn")? })
    }

    /// From reset to ready-to-receive, connected to `remote` at `gid`.
    pub(super) fn connect(&mut self, qp: Qp, remote: Qp, gid: &str, access: &str, rtr: &str) -> Result<()> {
        self.tell(&format!("init qp={} access={access}", qp.id))?;
        self.tell(&format!("rtr qp={} gid={gid} sgid={} qpn={} {rtr}", qp.id, self.sgid, remote.qpn))
    }

    /// An address handle for `gid`.
    pub(super) fn address_handle(&mut self, gid: &str) -> Result<u32> {
        self.agent.ask(&format!("ah pd={} gid={gid} sgid={}", self.pd, self.sgid))?.number("ah")
    }

    pub(super) fn post(&mut self, qp: Qp, work: &str) -> Result<()> {
        self.tell(&format!("send qp={} {work}", qp.id))
    }

    pub(super) fn receive(&mut self, qp: Qp, work: &str) -> Result<()> {
        self.tell(&format!("recv qp={} {work}", qp.id))
    }

    /// Waits for exactly `count` completions.
    pub(super) fn completions(&mut self, count: usize) -> Result<Vec<WorkCompletion>> {
        let found = self.agent.poll(self.cq, count, 5_000)?;
        ensure!(
            found.len() == count,
            "{}: {} of {count} completions after 5 s: {}",
            self.side,
            found.len(),
            show(&found)
        );
        Ok(found)
    }

    /// The one completion of work request `wr_id`, with this status.
    pub(super) fn completes(&mut self, wr_id: u64, status: &[Status]) -> Result<WorkCompletion> {
        let completion = self.completions(1)?[0];
        self.has_status(&completion, wr_id, status)?;
        Ok(completion)
    }

    /// Checks a completion's request and status.
    pub(super) fn has_status(
        &self,
        completion: &WorkCompletion,
        wr_id: u64,
        allowed: &[Status],
    ) -> Result<()> {
        ensure!(
            completion.wr_id == wr_id && allowed.iter().any(|status| *status as u32 == completion.status),
            "{}: wanted {allowed:?} for request {wr_id}, got {}",
            self.side,
            show(&[*completion])
        );
        Ok(())
    }

    /// The one completion of work request `wr_id`, successful.
    pub(super) fn succeeds(&mut self, wr_id: u64) -> Result<WorkCompletion> {
        self.completes(wr_id, &[Status::Success])
    }

    /// Nothing completes for a while.
    pub(super) fn stays_silent(&mut self, for_ms: u64) -> Result<()> {
        let found = self.agent.poll(self.cq, 1, for_ms)?;
        ensure!(found.is_empty(), "{}: unexpected completion: {}", self.side, show(&found));
        Ok(())
    }

    /// The region holds a seed's pattern in this range.
    pub(super) fn holds(&mut self, region: Region, offset: usize, length: usize, seed: u64) -> Result<()> {
        if let Some(at) = self.agent.mismatch(region, offset, length, seed)? {
            bail!("{}: the memory differs at byte {at} of {length} from what was sent", self.side);
        }
        Ok(())
    }

    /// The region's bytes.
    pub(super) fn bytes(&mut self, region: Region, offset: usize, length: usize) -> Result<Vec<u8>> {
        let answer = self.agent.ask(&format!("peek mr={} offset={offset} length={length}", region.id))?;
        let hex = answer.text("hex")?;
        let pairs = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16));
        pairs.collect::<Result<_, _>>().context("peek answers in hexadecimal")
    }

    /// The little-endian 64-bit word at an offset.
    pub(super) fn word(&mut self, region: Region, offset: usize) -> Result<u64> {
        let bytes = self.bytes(region, offset, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().ok().context("peek answers with eight bytes")?))
    }

    pub(super) fn set_word(&mut self, region: Region, offset: usize, value: u64) -> Result<()> {
        let hex: String = value.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.tell(&format!("poke mr={} offset={offset} hex={hex}", region.id))
    }

    /// The queue pair's state.
    pub(super) fn state(&mut self, qp: Qp) -> Result<u32> {
        self.agent.ask(&format!("query qp={}", qp.id))?.number("state")
    }
}

/// `enum ibv_wc_status`, as far as the scenarios meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Success = 0,
    LocalLength = 1,
    LocalQueuePair = 2,
    Flushed = 5,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
}

/// `enum ibv_qp_state`
pub(super) const STATE_ERROR: u32 = 6;

fn show(completions: &[WorkCompletion]) -> String {
    let texts = completions.iter().map(|c| format!("request {} with status {}", c.wr_id, c.status));
    texts.collect::<Vec<_>>().join(", ")
}
