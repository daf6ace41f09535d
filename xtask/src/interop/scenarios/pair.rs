//! Two ends and the usual beginning of a conversation between them.

use anyhow::Result;

use super::end::{End, Qp};

/// The configuration of a connection. The defaults suit a conversation without faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// The rights that the responder gives the requester.
    pub(super) access: &'static str,
    /// The requester's first PSN. The other direction starts at [`RESPONDER_PSN`].
    pub(super) psn: u32,
    /// Acknowledgement timeout, 4.096 µs × 2^n.
    pub(super) timeout: u8,
    pub(super) retry: u8,
    pub(super) rnr_retry: u8,
    /// The RNR timer that the responder asks for, by its code: 12 is 0.64 ms.
    pub(super) min_rnr: u8,
    pub(super) rd_atomic: u8,
    /// Appended to the responder's `qp` request.
    pub(super) responder_qp: &'static str,
}

const RESPONDER_PSN: u32 = 0x00_5eed;

impl Default for Options {
    fn default() -> Self {
        Options {
            access: "lwra",
            psn: 0x12_3456,
            // 67 ms: far above the emulated guest's worst answer
            timeout: 14,
            retry: 7,
            rnr_retry: 7,
            min_rnr: 12,
            rd_atomic: 4,
            responder_qp: "",
        }
    }
}

/// The requester and the responder of a scenario.
pub(super) struct Pair {
    pub(super) requester: End,
    pub(super) responder: End,
}

/// Connected queue pairs, one per end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) requester: Qp,
    pub(super) responder: Qp,
}

impl Pair {
    /// A connected pair of queue pairs of a service, `rc` or `uc`.
    pub(super) fn link(&mut self, service: &str, options: Options) -> Result<Link> {
        let Pair { requester, responder } = self;
        let link = Link {
            requester: requester.queue_pair(service, "send_wr=256 recv_wr=256")?,
            responder: responder
                .queue_pair(service, &format!("send_wr=256 recv_wr=256 {}", options.responder_qp))?,
        };
        let mtu_bytes = requester.mtu_bytes.min(responder.mtu_bytes);
        let Options { rd_atomic, min_rnr, psn, timeout, retry, rnr_retry, access, .. } = options;
        let rtr = format!("mtu={mtu_bytes} rd_atomic={rd_atomic} min_rnr={min_rnr}");
        let rts = format!("timeout={timeout} retry={retry} rnr={rnr_retry} rd_atomic={rd_atomic}");
        let (requester_gid, responder_gid) = (requester.gid.clone(), responder.gid.clone());
        let requester_rtr = format!("{rtr} psn={RESPONDER_PSN}");
        requester.connect(link.requester, link.responder, &responder_gid, "lwra", &requester_rtr)?;
        let responder_rtr = format!("{rtr} psn={psn}");
        responder.connect(link.responder, link.requester, &requester_gid, access, &responder_rtr)?;
        requester.tell(&format!("rts qp={} psn={psn} {rts}", link.requester.id))?;
        responder.tell(&format!("rts qp={} psn={RESPONDER_PSN} {rts}", link.responder.id))?;
        Ok(link)
    }

    /// A reliable connection with the default options.
    pub(super) fn rc(&mut self) -> Result<Link> {
        self.link("rc", Options::default())
    }
}
