//! Extended reliable connections over both links.

mod common;

use common::{End, PATIENCE, Setup, until};
use highwire_host::verbs::{
    Completion, CompletionStatus, Datagram, Operation, RecvWr, SendWr, Service, XrcDomain,
};
use highwire_host::{
    CompletionQueue, Device, Engine, LinkChoice, QueuePair, QueuePairConfig, SharedReceiveQueue,
    SharedReceiveQueueConfig, WaitFor, XrcTargetConfig,
};

const DOMAIN: XrcDomain = XrcDomain(9);

/// A shared receive queue of the domain, with a completion queue of its own.
fn shared_queue(end: &End) -> (SharedReceiveQueue, CompletionQueue) {
    let cq = end.device.completion_queue(64).expect("a completion queue");
    let config =
        SharedReceiveQueueConfig { xrc: Some((DOMAIN, &cq)), ..SharedReceiveQueueConfig::new(16, 1) };
    (end.device.create_shared_receive_queue(&end.pd, &config).expect("a shared receive queue"), cq)
}

fn target(device: &Device) -> QueuePair {
    device.xrc_target(&XrcTargetConfig { domain: DOMAIN, lane: 0, events: None }).expect("a target")
}

fn wait_for(cq: &CompletionQueue) -> Completion {
    assert!(cq.wait(WaitFor::Any, PATIENCE), "waited too long");
    let completion = until("a completion", || cq.poll_one());
    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
    completion
}

#[test]
fn one_connection_leads_to_many_queues() {
    for link in [LinkChoice::Udp, LinkChoice::Shm] {
        for engine in [Engine::Both, Engine::Background] {
            let setup = Setup::new(Service::Rc, link).engine(engine);
            let (a, b) = (setup.end(), setup.end());
            let config = QueuePairConfig::new(Service::XrcInitiator, &a.cq);
            let initiator = a.pd.queue_pair(&config).expect("an initiator");
            let target = target(&b.device);
            initiator.connect(&target.endpoint(), &setup.options).expect("connects");
            target.connect(&initiator.endpoint(), &setup.options).expect("connects");
            let queues = [shared_queue(&b), shared_queue(&b)];
            let post = |queue: usize, wr_id, operation, offset, length| {
                let srqn = queues[queue].0.number().expect("a queue of XRC");
                let sges = [a.buffer.sge(offset, length)];
                let datagram = Some(Datagram::to_shared_queue(srqn));
                initiator
                    .post_send(&[SendWr { datagram, ..SendWr::new(wr_id, operation, &sges) }])
                    .expect("posts");
            };
            let bytes = a.fill(0, 10_000, 3);
            for (round, queue) in (0..).zip([0, 1, 1, 0]) {
                let (srq, cq) = &queues[queue];
                let sges = [b.buffer.sge(round * 16_384, 16_384)];
                srq.post_recv(&RecvWr { wr_id: round, sges: &sges }).expect("posts");
                post(queue, round, Operation::SendImm(7), 0, 10_000);
                let got = wait_for(cq);
                assert_eq!((got.wr_id, got.byte_len, got.immediate), (round, 10_000, 7), "{link} {engine}");
                assert_eq!(got.qpn, target.qpn());
                assert_eq!(b.buffer.to_vec(round as usize * 16_384, 10_000), bytes, "{link} {engine}");
                wait_for(&a.cq);
            }
            post(0, 10, Operation::Read(b.buffer.remote(16_384)), 20_000, 10_000);
            wait_for(&a.cq);
            assert_eq!(a.buffer.to_vec(20_000, 10_000), bytes);
            b.buffer.word(0).store(5, std::sync::atomic::Ordering::SeqCst);
            post(1, 11, Operation::FetchAdd { remote: b.buffer.remote(0), add: 1 }, 0, 8);
            assert_eq!(wait_for(&a.cq).wr_id, 11);
            assert_eq!((a.buffer.to_vec(0, 1), b.buffer.to_vec(0, 1)), (vec![5], vec![6]), "{link} {engine}");
            // The target only borrows the queues: they may go first.
            drop(queues);
            drop(target);
        }
    }
}
