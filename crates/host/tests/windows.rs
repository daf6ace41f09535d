//! Memory windows of type 2 over both links: open for one peer, from bind to invalidation.

mod common;

use common::{Setup, next, next_ok};
use highwire_host::LinkChoice;
use highwire_host::verbs::{
    Access, CompletionOp, CompletionStatus, Operation, Recovery, Remote, RemoteKey, SendWr, Service,
};

#[test]
fn a_window_opens_and_closes_for_its_peer() {
    for link in [LinkChoice::Udp, LinkChoice::Shm] {
        for recovery in [Recovery::GoBackN, Recovery::Irn] {
            let [owner, peer] = Setup::new(Service::Rc, link).recovery(recovery).pair();
            let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
            let region = owner.pd.allocate(4096, access).expect("a buffer");
            let window = owner.pd.memory_window();
            let key = RemoteKey(window.rkey().0 & !0xFF | window.rkey().0.wrapping_add(1) & 0xFF);
            let bind = window.bind(window.rkey(), key, &region, 1024, 512, Access::REMOTE_WRITE);
            owner.qp.post_send(&[SendWr::new(1, bind, &[])]).expect("posts");
            assert_eq!(next_ok(&owner, &peer).operation, CompletionOp::BindWindow);

            let bytes = peer.fill(0, 64, 9);
            let inside = Remote { va: region.addr() + 1100, rkey: key };
            peer.post(2, Operation::Write(inside), 0, 64);
            next_ok(&peer, &owner);
            assert_eq!(region.to_vec(1100, 64), bytes, "{link} with {recovery:?}");

            owner.qp.post_send(&[SendWr::new(3, Operation::LocalInvalidate(key), &[])]).expect("posts");
            assert_eq!(next_ok(&owner, &peer).operation, CompletionOp::LocalInvalidate);
            peer.post(4, Operation::Write(inside), 0, 64);
            assert_eq!(
                next(&peer, &owner).status,
                CompletionStatus::RemoteAccess,
                "{link} with {recovery:?}"
            );
        }
    }
}
