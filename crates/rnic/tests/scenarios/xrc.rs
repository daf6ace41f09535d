//! Extended reliable connections: one connection to many shared receive queues (IBTA A14).

use crate::common::{A, B, End, Pair, Setup};
use highwire_rnic::Counter;
use highwire_verbs::{
    CompletionOp, CqId, Datagram, Operation, PostError, QpCaps, QpConfig, QpState, RecvWr, SendWr, Service,
    SrqId, XrcDomain,
};
use highwire_wire::Qpn;

const DOMAIN: XrcDomain = XrcDomain(0x77);

/// An initiator on A, a target on B, and two shared receive queues there with completion queues of their own.
struct Xrc {
    pair: Pair,
    srqs: [(SrqId, Qpn, CqId); 2],
}

impl Xrc {
    fn new() -> Xrc {
        let mut pair = Pair::new(Setup::default());
        for (side, service) in [(A, Service::XrcInitiator), (B, Service::XrcTarget)] {
            let node = &mut pair.net.nodes[side];
            let (pd, cq, caps) = (node.pd, node.cq, QpCaps::default());
            let config =
                QpConfig { service, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: false };
            pair.ends[side] = End { node: side, qpn: node.rnic.create_qp(config).expect("a queue pair") };
        }
        let node = &mut pair.net.nodes[B];
        node.rnic.set_xrc_domain(pair.ends[B].qpn, DOMAIN);
        let srqs = [0, 1].map(|_| {
            let cq = node.rnic.create_cq();
            let (srq, srqn) = node.rnic.create_xrc_srq(node.pd, DOMAIN, cq, 16, 2).expect("an SRQ");
            (srq, srqn, cq)
        });
        let setup = Setup { psn: [0xFF_FFFE; 2], ..Setup::default() };
        [A, B].iter().for_each(|&side| pair.connect(side, &setup));
        Xrc { pair, srqs }
    }

    fn receive(&mut self, queue: usize, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.pair.buffers[B].sge(offset, length)];
        let node = &mut self.pair.net.nodes[B];
        node.rnic.post_srq_recv(self.srqs[queue].0, &RecvWr { wr_id, sges: &sges }).expect("posts");
    }

    fn post(&mut self, srqn: Qpn, wr_id: u64, operation: Operation, offset: u64, length: u32) {
        let sges = [self.pair.buffers[A].sge(offset, length)];
        let datagram = Some(Datagram::to_shared_queue(srqn));
        let wr = SendWr { datagram, ..SendWr::new(wr_id, operation, &sges) };
        self.pair.post_wr(A, &wr).expect("a sound request");
    }
}

#[test]
fn messages_find_the_queue_that_they_name() {
    let mut xrc = Xrc::new();
    let [(_, first, _), (_, second, _)] = xrc.srqs;
    xrc.receive(0, 10, 0, 100);
    xrc.receive(1, 20, 1000, 5000);
    xrc.receive(1, 21, 0, 0);
    let log = xrc.pair.watch();
    xrc.post(second, 1, Operation::SendImm(77), 0, 3000);
    xrc.post(first, 2, Operation::Send, 0, 50);
    let remote = xrc.pair.buffers[B].remote(20_000);
    xrc.post(second, 3, Operation::WriteImm(remote, 78), 0, 64);
    xrc.pair.run();
    assert_eq!(xrc.pair.outcomes(A), ["1 Success", "2 Success", "3 Success"]);
    let got: Vec<_> =
        xrc.pair.completions(B).iter().map(|c| (c.wr_id, c.operation, c.byte_len, c.immediate)).collect();
    use CompletionOp::{Receive, ReceiveWriteImm};
    assert_eq!(got, [(20, Receive, 3000, 77), (10, Receive, 50, 0), (21, ReceiveWriteImm, 64, 78)]);
    assert_eq!(xrc.pair.bytes(B, 1000, 3000), xrc.pair.bytes(A, 0, 3000));
    assert_eq!(xrc.pair.bytes(B, 20_000, 64), xrc.pair.bytes(A, 0, 64));
    assert!(log.borrow().iter().all(|line| line.contains(" XRC_")), "{:?}", log.borrow());
}

#[test]
fn memory_is_reached_through_the_queue_s_domain() {
    let mut xrc = Xrc::new();
    let srqn = xrc.srqs[0].1;
    let remote = |xrc: &Xrc, offset| xrc.pair.buffers[B].remote(offset);
    xrc.pair.set_word(B, 4096, 5);
    let (write, read) = (remote(&xrc, 8192), remote(&xrc, 0));
    xrc.post(srqn, 1, Operation::Write(write), 0, 2500);
    xrc.post(srqn, 2, Operation::Read(read), 10_000, 2500);
    let remote = remote(&xrc, 4096);
    xrc.post(srqn, 3, Operation::FetchAdd { remote, add: 2 }, 0, 8);
    xrc.post(srqn, 4, Operation::CompareSwap { remote, compare: 7, swap: 1 }, 8, 8);
    xrc.pair.run();
    assert_eq!(xrc.pair.outcomes(A), ["1 Success", "2 Success", "3 Success", "4 Success"]);
    assert_eq!(xrc.pair.bytes(A, 10_000, 2500), xrc.pair.bytes(B, 0, 2500));
    assert_eq!((xrc.pair.word(A, 0), xrc.pair.word(A, 8), xrc.pair.word(B, 4096)), (5, 7, 1));
}

#[test]
fn what_is_lost_or_finds_no_receive_comes_again() {
    let mut xrc = Xrc::new();
    let srqn = xrc.srqs[1].1;
    xrc.pair.drop_nth(A, &[1, 4], |_| true);
    xrc.pair.drop_nth(B, &[1], |_| true);
    xrc.post(srqn, 1, Operation::Send, 0, 4000);
    xrc.pair.run_for_us(50);
    xrc.receive(1, 9, 0, 4000);
    xrc.post(srqn, 2, Operation::Read(xrc.pair.buffers[B].remote(0)), 20_000, 4000);
    xrc.pair.run();
    assert_eq!(xrc.pair.outcomes(A), ["1 Success", "2 Success"]);
    assert_eq!(xrc.pair.bytes(A, 20_000, 4000), xrc.pair.bytes(A, 0, 4000));
    assert!(xrc.pair.count(A, Counter::RnrReceived) > 0 && xrc.pair.count(A, Counter::Retransmitted) > 0);
}

#[test]
fn a_queue_of_another_domain_is_refused_like_none_at_all() {
    for other_domain in [true, false] {
        let mut xrc = Xrc::new();
        let node = &mut xrc.pair.net.nodes[B];
        let (cq, pd) = (node.cq, node.pd);
        let (srq, srqn) = node.rnic.create_xrc_srq(pd, XrcDomain(0x78), cq, 4, 1).expect("an SRQ");
        node.rnic.post_srq_recv(srq, &RecvWr { wr_id: 1, sges: &[] }).expect("posts");
        if !other_domain {
            node.rnic.destroy_srq(srq).expect("nobody uses it");
        }
        xrc.post(srqn, 1, Operation::Send, 0, 0);
        xrc.pair.run();
        assert_eq!(xrc.pair.outcomes(A), ["1 RemoteInvalidRequest"]);
        assert_eq!((xrc.pair.state(A), xrc.pair.state(B)), (QpState::Error, QpState::Error));
    }
}

#[test]
fn each_half_does_its_own_and_objects_go_in_any_order() {
    let mut xrc = Xrc::new();
    let (srq, srqn, cq) = xrc.srqs[0];
    let to = Some(Datagram::to_shared_queue(srqn));
    let send = SendWr { datagram: to, ..SendWr::new(1, Operation::Send, &[]) };
    assert_eq!(xrc.pair.post_wr(B, &send), Err(PostError::Unsupported));
    let nameless = SendWr::new(1, Operation::Send, &[]);
    assert_eq!(xrc.pair.post_wr(A, &nameless), Err(PostError::BadDestination));
    let (now, ends) = (xrc.pair.net.now, xrc.pair.ends);
    for side in [A, B] {
        let refused =
            xrc.pair.net.nodes[side].rnic.post_recv(now, ends[side].qpn, &RecvWr { wr_id: 1, sges: &[] });
        assert_eq!(refused, Err(PostError::NoSuchQueue));
    }
    xrc.receive(0, 10, 0, 100);
    xrc.post(srqn, 2, Operation::Send, 0, 50);
    xrc.pair.run();
    let rnic = &mut xrc.pair.net.nodes[B].rnic;
    assert!(rnic.destroy_cq(cq).is_err(), "the shared receive queue completes there");
    assert!(rnic.destroy_srq(srq).is_ok(), "the target only borrows it");
    assert!(rnic.destroy_cq(cq).is_ok());
    assert!(rnic.destroy_qp(ends[B].qpn).is_ok());
}
