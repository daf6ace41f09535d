//! Making, connecting and destroying verbs objects.

use std::net::IpAddr;

use highwire_host::{
    Buffer, CompletionQueue, Device, DeviceConfig, MemoryWindow, ProtectionDomain, QueuePair,
    QueuePairConfig, SharedReceiveQueue,
};
use highwire_verbs::{Access, Address, Gid, Mtu, QpAttr, QpCaps, QpState, Recovery, Service};
use highwire_wire::{Psn, Qpn};

use super::request::{Answer, EINVAL, ENODEV, Refusal, Request};

/// The objects of this process, by number; `None` if destroyed. Queue pairs come before the objects that they
/// use, so that they are also dropped before them.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) qps: Vec<Option<QueuePair>>,
    pub(crate) srqs: Vec<Option<SharedReceiveQueue>>,
    pub(crate) windows: Vec<Option<MemoryWindow>>,
    pub(crate) buffers: Vec<Option<Buffer>>,
    pub(crate) cqs: Vec<Option<CompletionQueue>>,
    pub(crate) ahs: Vec<Option<Address>>,
    pds: Vec<Option<ProtectionDomain>>,
    device: Option<Device>,
}

/// Keeps an object under the next number of its kind.
fn keep<T>(objects: &mut Vec<Option<T>>, object: T) -> usize {
    objects.push(Some(object));
    objects.len() - 1
}

/// The agent's letters as access flags.
pub(crate) fn access(letters: &str) -> Answer<Access> {
    letters.chars().try_fold(Access::NONE, |access, letter| {
        let flag = match letter {
            'l' => Access::LOCAL_WRITE,
            'w' => Access::REMOTE_WRITE,
            'r' => Access::REMOTE_READ,
            'a' => Access::REMOTE_ATOMIC,
            'b' => Access::WINDOW_BIND,
            '-' => Access::NONE,
            other => return Err(Refusal::new(EINVAL, format!("no access flag {other}"))),
        };
        Ok(access | flag)
    })
}

fn address(request: &Request<'_>) -> Answer<Address> {
    let ip: IpAddr = request.text("gid")?.parse()?;
    Ok(Address::new(Gid::from_ip(ip)))
}

impl Objects {
    /// Opens the device at `HIGHWIRE_ADDR`. It has one GID, number 0.
    pub(crate) fn open(&mut self) -> Answer {
        let device = Device::open(&DeviceConfig::default())?;
        let gid = match device.gid().to_ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let answer = format!("mtu={} gid=0,{gid}", device.mtu().bytes());
        self.device = Some(device);
        Ok(answer)
    }

    fn device(&self) -> Answer<&Device> {
        self.device.as_ref().ok_or_else(|| Refusal::new(ENODEV, "open comes first"))
    }

    pub(crate) fn make_pd(&mut self) -> Answer {
        let pd = self.device()?.protection_domain();
        Ok(format!("pd={}", keep(&mut self.pds, pd)))
    }

    pub(crate) fn make_cq(&mut self, request: &Request<'_>) -> Answer {
        let cq = self.device()?.completion_queue(request.number("depth")?)?;
        Ok(format!("cq={}", keep(&mut self.cqs, cq)))
    }

    pub(crate) fn make_srq(&mut self, request: &Request<'_>) -> Answer {
        let pd = request.object("pd", &self.pds)?;
        let (max_wr, max_sge) = (request.number("wr")?, request.number_or("sge", 4)?);
        let srq = self.device()?.shared_receive_queue(pd, max_wr, max_sge)?;
        Ok(format!("srq={}", keep(&mut self.srqs, srq)))
    }

    pub(crate) fn make_mr(&mut self, request: &Request<'_>) -> Answer {
        let pd = request.object("pd", &self.pds)?;
        let buffer = pd.allocate(request.number("bytes")?, access(request.text("access")?)?)?;
        buffer.fill(0);
        let keys =
            format!("addr={:#x} lkey={:#x} rkey={:#x}", buffer.addr(), buffer.lkey().0, buffer.rkey().0);
        Ok(format!("mr={} {keys}", keep(&mut self.buffers, buffer)))
    }

    pub(crate) fn make_mw(&mut self, request: &Request<'_>) -> Answer {
        let window = request.object("pd", &self.pds)?.memory_window();
        let rkey = window.rkey().0;
        Ok(format!("mw={} rkey={rkey:#x}", keep(&mut self.windows, window)))
    }

    pub(crate) fn make_ah(&mut self, request: &Request<'_>) -> Answer {
        Ok(format!("ah={}", keep(&mut self.ahs, address(request)?)))
    }

    pub(crate) fn make_qp(&mut self, request: &Request<'_>) -> Answer {
        let service = match request.text("type")? {
            "rc" => Service::Rc,
            "uc" => Service::Uc,
            "ud" => Service::Ud,
            other => return Err(Refusal::new(EINVAL, format!("no QP type {other}"))),
        };
        let srq = request.find("srq").map(|_| request.object("srq", &self.srqs)).transpose()?;
        let sge = request.number_or("sge", 4)?;
        let caps = QpCaps {
            max_send_wr: request.number_or("send_wr", 64)?,
            max_recv_wr: request.number_or("recv_wr", 64)?,
            max_send_sge: sge,
            max_recv_sge: sge,
            max_inline: request.number_or("inline", 64)?,
        };
        let signal_all = request.number_or("sig_all", 0u8)? != 0;
        let cq = request.object("cq", &self.cqs)?;
        let config = QueuePairConfig { srq, caps, signal_all, ..QueuePairConfig::new(service, cq) };
        let qp = request.object("pd", &self.pds)?.queue_pair(&config)?;
        let qpn = qp.qpn().value();
        Ok(format!("qp={} qpn={qpn} inline={}", keep(&mut self.qps, qp), caps.max_inline))
    }

    pub(crate) fn to_init(&self, request: &Request<'_>) -> Answer {
        let qp = request.object("qp", &self.qps)?;
        let attr = QpAttr::to_state(QpState::Init);
        let attr = match qp.service() {
            Service::Ud => QpAttr { qkey: Some(request.number("qkey")?), ..attr },
            _ => QpAttr { access: Some(access(request.find("access").unwrap_or("-"))?), ..attr },
        };
        qp.modify(&attr)?;
        Ok(String::new())
    }

    pub(crate) fn to_rtr(&self, request: &Request<'_>) -> Answer {
        let qp = request.object("qp", &self.qps)?;
        let mut attr = QpAttr::to_state(QpState::Rtr);
        if qp.service() != Service::Ud {
            let mtu = Mtu::from_bytes(request.number("mtu")?);
            attr.path_mtu = Some(mtu.ok_or_else(|| Refusal::new(EINVAL, "there is no such path MTU"))?);
            attr.address = Some(address(request)?);
            attr.remote_qpn = Some(Qpn::new(request.number("qpn")?));
            attr.rq_psn = Some(Psn::new(request.number("psn")?));
        }
        if qp.service() == Service::Rc {
            attr.max_dest_rd_atomic = Some(request.number_or("rd_atomic", 4)?);
            attr.min_rnr_timer = Some(request.number_or("min_rnr", 12)?);
        }
        qp.modify(&attr)?;
        Ok(String::new())
    }

    pub(crate) fn to_rts(&self, request: &Request<'_>) -> Answer {
        let qp = request.object("qp", &self.qps)?;
        let mut attr = QpAttr::to_state(QpState::Rts);
        attr.sq_psn = Some(Psn::new(request.number("psn")?));
        if qp.service() == Service::Rc {
            attr.timeout = Some(request.number_or("timeout", 12)?);
            attr.retry_count = Some(request.number_or("retry", 7)?);
            attr.rnr_retry = Some(request.number_or("rnr", 7)?);
            attr.max_rd_atomic = Some(request.number_or("rd_atomic", 4)?);
            // The programs' default: IRN if the peer speaks it, which the kernel does not.
            attr.recovery = Some(Recovery::Irn);
        }
        qp.modify(&attr)?;
        Ok(String::new())
    }

    pub(crate) fn to_error(&self, request: &Request<'_>) -> Answer {
        request.object("qp", &self.qps)?.modify(&QpAttr::to_state(QpState::Error))?;
        Ok(String::new())
    }

    pub(crate) fn query(&self, request: &Request<'_>) -> Answer {
        let now = request.object("qp", &self.qps)?.query();
        let (sq_psn, rq_psn) = (now.sq_psn.value(), now.rq_psn.value());
        Ok(format!("state={} sq_psn={sq_psn} rq_psn={rq_psn}", state_number(now.state)))
    }

    pub(crate) fn destroy(&mut self, request: &Request<'_>) -> Answer {
        if request.find("qp").is_some() {
            request.object("qp", &self.qps)?;
            self.qps[request.number::<usize>("qp")?] = None;
        } else if request.find("mw").is_some() {
            request.object("mw", &self.windows)?;
            self.windows[request.number::<usize>("mw")?] = None;
        } else {
            request.object("mr", &self.buffers)?;
            self.buffers[request.number::<usize>("mr")?] = None;
        }
        Ok(String::new())
    }

    pub(crate) fn counters(&self) -> Answer {
        let counters = self.device()?.counters();
        Ok(counters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
    }
}

/// `enum ibv_qp_state`
fn state_number(state: QpState) -> u32 {
    match state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::Rtr => 2,
        QpState::Rts => 3,
        QpState::Sqd => 4,
        QpState::Sqe => 5,
        QpState::Error => 6,
    }
}
