//! One RNIC whose queue pairs are connected to each other.

use std::net::{IpAddr, Ipv4Addr};

use highwire_rnic::{Rnic, RnicConfig};
use highwire_stdx::Instant;
use highwire_verbs::{
    Access, Address, CqId, Gid, LocalKey, Mtu, Pd, QpAttr, QpCaps, QpConfig, QpState, Recovery, RegionAttr,
    Service,
};
use highwire_wire::{Psn, Qpn};

pub(super) const REGION_ADDR: u64 = 0x10_0000;
pub(super) const REGION_BYTES: u64 = 64 * 1024;
pub(super) const QKEY: u32 = 0x1111;
/// Near the end of the PSN space, so that every run wraps.
pub(super) const FIRST_PSN: u32 = 0x00FF_FFF0;

const KINDS: [(Service, Recovery); 4] = [
    (Service::Rc, Recovery::GoBackN),
    (Service::Rc, Recovery::Irn),
    (Service::Uc, Recovery::GoBackN),
    (Service::Ud, Recovery::GoBackN),
];
/// Queue pairs: 2k and 2k + 1 are connected to each other.
pub(super) const QPS: usize = 2 * KINDS.len();

pub(super) struct Bench {
    pub(super) rnic: Rnic,
    pub(super) now: Instant,
    pub(super) gid: Gid,
    pub(super) key: LocalKey,
    pub(super) qpns: [Qpn; QPS],
    mtu: Mtu,
}

impl Bench {
    pub(super) fn new(mtu: Mtu) -> Self {
        let gid = Gid::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut rnic = Rnic::new(RnicConfig::new(gid), highwire_stdx::Rng::new(1));
        let pd = rnic.alloc_pd();
        let cq = rnic.create_cq();
        let attr =
            RegionAttr { addr: REGION_ADDR, length: REGION_BYTES, iova: REGION_ADDR, access: Access::ALL };
        let key = rnic.regions_mut().register(pd, attr).expect("a region");
        let qpns = std::array::from_fn(|index| {
            rnic.create_qp(config(KINDS[index / 2].0, pd, cq)).expect("a queue pair")
        });
        let mut bench = Self { rnic, now: Instant::ZERO, gid, key, qpns, mtu };
        (0..QPS).for_each(|index| bench.connect(index));
        bench
    }

    pub(super) fn service(&self, index: usize) -> Service {
        KINDS[index / 2].0
    }

    fn connect(&mut self, index: usize) {
        let (service, recovery) = KINDS[index / 2];
        for attr in steps(service, recovery, self.gid, self.qpns[index ^ 1], self.mtu) {
            self.rnic.modify_qp(self.now, self.qpns[index], &attr).expect("a legal change");
        }
        if recovery == Recovery::Irn {
            self.rnic.set_irn_accepted(self.qpns[index], true);
        }
    }

    pub(super) fn fail(&mut self, index: usize) {
        let attr = QpAttr::to_state(QpState::Error);
        self.rnic.modify_qp(self.now, self.qpns[index], &attr).expect("any state goes to error");
    }

    /// From reset, as after a failure.
    pub(super) fn reconnect(&mut self, index: usize) {
        let attr = QpAttr::to_state(QpState::Reset);
        self.rnic.modify_qp(self.now, self.qpns[index], &attr).expect("any state goes to reset");
        self.connect(index);
    }
}

fn config(service: Service, pd: Pd, cq: CqId) -> QpConfig {
    let caps = QpCaps { max_send_wr: 32, max_recv_wr: 32, ..QpCaps::default() };
    QpConfig { service, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: false }
}

fn steps(service: Service, recovery: Recovery, gid: Gid, peer: Qpn, mtu: Mtu) -> [QpAttr; 3] {
    let psn = Some(Psn::new(FIRST_PSN));
    if service == Service::Ud {
        return [
            QpAttr { qkey: Some(QKEY), ..QpAttr::to_state(QpState::Init) },
            QpAttr::to_state(QpState::Rtr),
            QpAttr { sq_psn: psn, ..QpAttr::to_state(QpState::Rts) },
        ];
    }
    let is_reliable = service == Service::Rc;
    let only_rc = |value: u8| is_reliable.then_some(value);
    [
        QpAttr { access: Some(Access::ALL), ..QpAttr::to_state(QpState::Init) },
        QpAttr {
            address: Some(Address::new(gid)),
            remote_qpn: Some(peer),
            path_mtu: Some(mtu),
            rq_psn: psn,
            max_dest_rd_atomic: only_rc(4),
            min_rnr_timer: only_rc(1),
            ..QpAttr::to_state(QpState::Rtr)
        },
        QpAttr {
            sq_psn: psn,
            timeout: only_rc(8),
            retry_count: only_rc(7),
            rnr_retry: only_rc(7),
            max_rd_atomic: only_rc(4),
            recovery: is_reliable.then_some(recovery),
            ..QpAttr::to_state(QpState::Rts)
        },
    ]
}
