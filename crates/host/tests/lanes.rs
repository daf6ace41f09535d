//! Devices of several lanes.

mod common;

use common::{Setup, until};
use highwire_host::verbs::{Access, CompletionStatus, Operation, Recovery, RecvWr, SendWr, Service};
use highwire_host::{CreateError, Device, LinkChoice, QueuePairConfig};

const LANES: u32 = 3;

#[test]
fn queue_pairs_of_all_lanes_talk_to_those_of_all_others() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let mut setup = Setup::new(Service::Rc, link).recovery(Recovery::GoBackN);
        setup.config.lanes = LANES;
        let devices = [0, 1].map(|_| Device::open(&setup.config).expect("a device"));
        let pds = devices.each_ref().map(Device::protection_domain);
        let buffers = pds.each_ref().map(|pd| pd.allocate(1 << 16, Access::ALL).expect("a buffer"));
        let cqs = devices.each_ref().map(|device| {
            (0..LANES).map(|lane| device.completion_queue_in(lane, 256).expect("a CQ")).collect::<Vec<_>>()
        });
        let mut pairs = Vec::new();
        for from in 0..LANES as usize {
            for to in 0..LANES as usize {
                let qp = |end: usize, lane: usize| {
                    pds[end].queue_pair(&QueuePairConfig::new(Service::Rc, &cqs[end][lane])).expect("a QP")
                };
                let (a, b) = (qp(0, from), qp(1, to));
                assert_eq!((a.qpn().value() % LANES, b.qpn().value() % LANES), (from as u32, to as u32));
                a.connect(&b.endpoint(), &setup.options).expect("connects");
                b.connect(&a.endpoint(), &setup.options).expect("connects");
                pairs.push((a, b));
            }
        }
        let rounds = 20u64;
        let (source, target) = ([buffers[0].sge(0, 8)], [buffers[1].sge(0, 8)]);
        for _ in 0..rounds {
            for (i, (a, b)) in pairs.iter().enumerate() {
                b.post_recv(&RecvWr { wr_id: i as u64, sges: &target }).expect("posts");
                a.post_send(&[SendWr::new(i as u64, Operation::Send, &source)]).expect("posts");
            }
        }
        let mut left = rounds * pairs.len() as u64 * 2;
        until("all completions", || {
            for cq in cqs.iter().flatten() {
                while let Some(completion) = cq.poll_one() {
                    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
                    left -= 1;
                }
            }
            (left == 0).then_some(())
        });
    }
}

#[test]
fn queues_of_different_lanes_do_not_mix() {
    let mut setup = Setup::new(Service::Rc, LinkChoice::Udp);
    setup.config.lanes = 2;
    let device = Device::open(&setup.config).expect("a device");
    let pd = device.protection_domain();
    let cqs = [0, 1].map(|lane| device.completion_queue_in(lane, 16).expect("a CQ"));
    let config = QueuePairConfig { recv_cq: &cqs[1], ..QueuePairConfig::new(Service::Rc, &cqs[0]) };
    assert!(matches!(pd.queue_pair(&config), Err(CreateError::OtherLane)));
    let srq = device.shared_receive_queue(&pd, 16, 1).expect("an SRQ");
    let config = QueuePairConfig { srq: Some(&srq), ..QueuePairConfig::new(Service::Rc, &cqs[1]) };
    assert!(matches!(pd.queue_pair(&config), Err(CreateError::OtherLane)));
    assert!(matches!(device.completion_queue_in(2, 16), Err(CreateError::NoSuchLane(2))));
    let other = Device::open(&setup.config).expect("a device");
    let config = QueuePairConfig::new(Service::Rc, &cqs[0]);
    assert!(matches!(other.protection_domain().queue_pair(&config), Err(CreateError::OtherLane)));
}
