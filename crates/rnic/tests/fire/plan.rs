//! The choices of a seed.

use crate::common::{Faults, Link};
use highwire_rnic::{CongestionChoice, TransportConfig};
use highwire_stdx::{Duration, Instant, Rng};
use highwire_verbs::{Mtu, Recovery, Service};

/// The theme of a family of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    GoBackN,
    Irn,
    Mixed,
    Uc,
    Ud,
    Many,
    Incast,
    /// The network is an attacker that knows every check, and applications take their memory away.
    Hostile,
}

impl Theme {
    /// The test that runs it.
    pub(crate) fn test(self) -> &'static str {
        match self {
            Theme::GoBackN => "rc_go_back_n_under_fire",
            Theme::Irn => "rc_irn_under_fire",
            Theme::Mixed => "rc_mixed_recoveries_under_fire",
            Theme::Uc => "uc_under_fire",
            Theme::Ud => "ud_under_fire",
            Theme::Many => "many_queue_pairs_that_share_queues_under_fire",
            Theme::Incast => "an_incast_of_three_under_fire",
            Theme::Hostile => "nothing_outside_a_region_is_touched_by_forged_packets",
        }
    }
}

/// A pair of queue pairs.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub nodes: [usize; 2],
    pub service: Service,
    pub recovery: [Recovery; 2],
    pub mtu: Mtu,
    pub psn: [u32; 2],
    pub rd_atomic: [u8; 2],
    pub timeout: u8,
    pub rnr_timer: u8,
    pub send_wr: u32,
    pub recv_wr: u32,
    /// Requests of each side.
    pub requests: [usize; 2],
}

/// All parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub seed: u64,
    pub nodes: usize,
    pub connections: Vec<Connection>,
    /// Whether all queue pairs of a node share a receive queue.
    pub srq: bool,
    pub transport: TransportConfig,
    pub link: Link,
    pub faults: Faults,
    /// The time over which requests and receives are posted.
    pub span: Duration,
    pub late_receives: bool,
    pub length_max: u64,
    /// The times at which nodes deregister regions: when, which node, which region.
    pub vanishing: Vec<(Instant, usize, usize)>,
    pub is_hostile: bool,
}

fn recovery(rng: &mut Rng) -> Recovery {
    if rng.chance(0.5) { Recovery::Irn } else { Recovery::GoBackN }
}

impl Plan {
    pub(crate) fn from_seed(theme: Theme, seed: u64) -> Plan {
        let mut rng = Rng::new(seed.wrapping_mul(31).wrapping_add(theme as u64));
        let rng = &mut rng;
        let (nodes, count) = match theme {
            Theme::Many | Theme::Hostile => (2, rng.between(2, 4) as usize),
            Theme::Incast => (3, rng.between(2, 4) as usize),
            _ => (2, 1),
        };
        let busy = *rng.pick(&[3, 10, 10, 30]);
        let connections = (0..count).map(|n| Plan::connection(theme, n, busy, rng)).collect();
        let long = *rng.pick(&[1, 1, 1, 10]);
        let is_hostile = theme == Theme::Hostile;
        let span = Duration::from_micros(long * rng.between(0, 1500));
        Plan {
            seed,
            nodes,
            connections,
            srq: match theme {
                Theme::Many | Theme::Incast | Theme::Hostile => rng.chance(0.6),
                _ => rng.chance(0.3),
            },
            transport: Plan::transport(rng),
            link: Link {
                latency: Duration::from_nanos(rng.between(500, 10_000)),
                rate: *rng.pick(&[
                    None,
                    None,
                    Some(1_000_000_000),
                    Some(10_000_000_000),
                    Some(40_000_000_000),
                ]),
                quantum: Duration::from_nanos(*rng.pick(&[1, 1, 1, 2_000, 20_000])),
            },
            faults: Plan::faults(theme, long, rng),
            span,
            late_receives: rng.chance(0.3),
            length_max: *rng.pick(&[100, 3_000, 10_000, 10_000, 65_536]),
            vanishing: if is_hostile { Plan::vanishing(rng) } else { Vec::new() },
            is_hostile,
        }
    }

    fn connection(theme: Theme, n: usize, busy: u64, rng: &mut Rng) -> Connection {
        let any_service = *rng.pick(&[Service::Rc, Service::Rc, Service::Rc, Service::Uc, Service::Ud]);
        let any_recovery = [recovery(rng), recovery(rng)];
        let (service, recovery) = match theme {
            Theme::GoBackN => (Service::Rc, [Recovery::GoBackN; 2]),
            Theme::Irn => (Service::Rc, [Recovery::Irn; 2]),
            Theme::Mixed => (Service::Rc, any_recovery),
            Theme::Uc => (Service::Uc, [Recovery::GoBackN; 2]),
            Theme::Ud => (Service::Ud, [Recovery::GoBackN; 2]),
            Theme::Many | Theme::Incast | Theme::Hostile => (any_service, any_recovery),
        };
        // Half of the connections wrap their PSNs soon.
        let mut psn = || {
            let start = if rng.chance(0.5) { 0 } else { rng.next_u32() };
            start.wrapping_sub(rng.below(40) as u32) & 0x00FF_FFFF
        };
        let psn = [psn(), psn()];
        Connection {
            nodes: if theme == Theme::Incast { [1 + n % 2, 0] } else { [0, 1] },
            service,
            recovery,
            mtu: *rng.pick(&[Mtu::B256, Mtu::B1024, Mtu::B4096]),
            psn,
            rd_atomic: [rng.between(1, 8) as u8, rng.between(1, 8) as u8],
            timeout: rng.between(4, 10) as u8,
            rnr_timer: rng.between(1, 6) as u8,
            send_wr: rng.between(1, 32) as u32,
            recv_wr: rng.between(1, 32) as u32,
            requests: [rng.between(1, busy) as usize, rng.below(busy + 1) as usize],
        }
    }

    fn transport(rng: &mut Rng) -> TransportConfig {
        let mut transport = TransportConfig {
            go_back_n_window: *rng.pick(&[1, 4, 64, 1024]),
            ack_interval: *rng.pick(&[1, 4, 32]),
            credits: rng.chance(0.6),
            congestion: *rng.pick(&[
                CongestionChoice::NONE,
                CongestionChoice::NONE,
                CongestionChoice::NONE,
                CongestionChoice::DCQCN,
                CongestionChoice::DCQCN_CONNECTX,
                CongestionChoice::TIMELY,
                CongestionChoice::AIMD,
                CongestionChoice::DCTCP,
            ]),
            ..TransportConfig::default()
        };
        transport.irn.cap = *rng.pick(&[1, 2, 5, 16, 111, 111]);
        transport.irn.rto_low = Duration::from_micros(rng.between(30, 100));
        // Less than the timeout: a delayed acknowledgement must not look like a lost one.
        if rng.chance(0.5) {
            transport.ack_delay = Duration::from_micros(rng.between(1, 20));
            transport.acks_ride = true;
            transport.train_packets = 16;
        }
        transport.irn.rto_high = Duration::from_micros(rng.between(100, 400));
        transport
    }

    fn faults(theme: Theme, long: u64, rng: &mut Rng) -> Faults {
        let until = Instant::from_nanos(long * rng.between(1_000, 2_000_000));
        // Often a network has one fault, sometimes all of them.
        let forge = if theme == Theme::Hostile { *rng.pick(&[0.0, 0.05, 0.5]) } else { 0.0 };
        let mut some = |of: &[f64]| if rng.chance(0.4) { *rng.pick(of) } else { 0.0 };
        let faults = Faults {
            loss: some(&[0.001, 0.01, 0.05, 0.2]),
            duplicate: some(&[0.01, 0.1, 0.5]),
            corrupt: some(&[0.01, 0.1]),
            mark: some(&[0.01, 0.5]),
            reorder: some(&[0.01, 0.2, 1.0]),
            forge,
            until,
            ..Faults::default()
        };
        let blackout = rng.chance(0.15).then(|| {
            let from = rng.below(until.as_nanos());
            (Instant::from_nanos(from), Instant::from_nanos(from + long * rng.below(300_000)))
        });
        Faults { jitter: Duration::from_nanos(*rng.pick(&[100, 3_000, 60_000, 500_000])), blackout, ..faults }
    }

    fn vanishing(rng: &mut Rng) -> Vec<(Instant, usize, usize)> {
        let mut all: Vec<_> = (0..rng.below(4))
            .map(|_| {
                (Instant::from_nanos(rng.below(1_000_000)), rng.below(2) as usize, rng.below(12) as usize)
            })
            .collect();
        all.sort_unstable();
        all
    }
}
