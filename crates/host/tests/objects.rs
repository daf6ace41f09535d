//! Objects that change while they are in use: regions, windows, completion queues, shared receive queues.

mod common;

use common::{Setup, next, next_ok, until};
use highwire_host::verbs::{
    Access, CompletionStatus, ModifyError, Operation, QpAttr, QpState, RecvWr, RegisterError, Remote,
    RemoteKey, SendWr, Service, Sge, WindowKind,
};
use highwire_host::{
    ChannelTarget, CompletionQueueConfig, CreateError, LinkChoice, MemoryChange, QueuePairConfig, WaitFor,
};

const LINKS: [LinkChoice; 2] = [LinkChoice::Udp, LinkChoice::Shm];

/// A word of memory that is no longer written to: the request has completed.
fn word(bytes: &[u64], index: usize) -> u64 {
    bytes[index]
}

#[test]
#[allow(unsafe_code)]
fn a_region_moves_to_other_memory_and_keeps_its_keys() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).pair();
        let (mut first, mut second) = (vec![0u64; 1024], vec![0u64; 2048]);
        // SAFETY: both vectors outlive the region, and are looked at only when no request is under way.
        let region = unsafe { b.pd.register(first.as_mut_ptr().cast(), 8192, Access::ALL) };
        let mut region = region.expect("registers");
        let key = region.rkey();
        a.fill(0, 16, 1);
        a.post(0, Operation::Write(region.remote(0)), 0, 16);
        next_ok(a, b);
        let memory = (second.as_mut_ptr().cast(), 16_384, 0x10_0000);
        let change = MemoryChange { memory: Some(memory), ..MemoryChange::default() };
        // SAFETY: as above.
        unsafe { region.reregister(&change) }.expect("changes");
        assert_eq!((region.rkey(), region.addr(), region.len()), (key, 0x10_0000, 16_384));
        a.post(1, Operation::Write(region.remote(16_000)), 0, 8);
        next_ok(a, b);
        // Without the permission nothing is written any more.
        let change = MemoryChange { access: Some(Access::REMOTE_READ), ..MemoryChange::default() };
        // SAFETY: as above.
        unsafe { region.reregister(&change) }.expect("changes");
        a.post(2, Operation::Read(region.remote(16_000)), 64, 8);
        next_ok(a, b);
        assert_eq!(a.buffer.to_vec(64, 8), a.buffer.to_vec(0, 8));
        a.post(3, Operation::Write(region.remote(0)), 0, 8);
        assert_eq!(next(a, b).status, CompletionStatus::RemoteAccess, "{link}");
        drop(region);
        assert_eq!(word(&first, 0), word(&second, 2000), "{link}");
        assert_ne!(word(&first, 0), 0);
    }
}

#[test]
fn a_region_of_another_domain_is_out_of_reach_and_comes_back() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).pair();
        let other = b.device.protection_domain();
        let memory = b.device.device_memory(4096, 64).expect("device memory");
        let mut region = b.pd.register_device_memory(&memory, 1024, 1024, Access::ALL).expect("registers");
        assert_eq!(region.addr(), 0);
        memory.write(1024, b"in the device").expect("within it");
        for (pd, expected) in [(&other, false), (&b.pd, true)] {
            let change = MemoryChange { pd: Some(pd), ..MemoryChange::default() };
            #[allow(unsafe_code)]
            // SAFETY: the memory stays the same.
            unsafe { region.reregister(&change) }.expect("changes");
            assert_eq!(b.pd.check(&region.sge(0, 13), false).is_ok(), expected);
        }
        a.post(0, Operation::Read(region.remote(0)), 0, 13);
        next_ok(a, b);
        assert_eq!(a.buffer.to_vec(0, 13), b"in the device", "{link}");
        assert!(b.pd.register_device_memory(&memory, 4096, 1, Access::ALL).is_err());
        assert!(memory.write(4095, b"ab").is_err());
    }
}

#[test]
fn a_null_region_gives_zeros_and_swallows_what_comes() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).pair();
        let null = a.pd.null_region();
        let nowhere = |length| Sge { addr: 0xDEAD_0000, length, lkey: null.lkey() };
        b.buffer.fill(7);
        let sges = [a.buffer.sge(0, 8), nowhere(5000), a.buffer.sge(8, 8)];
        a.buffer.fill(9);
        a.qp.post_send(&[SendWr::new(0, Operation::Write(b.buffer.remote(0)), &sges)]).expect("posts");
        next_ok(a, b);
        let arrived = b.buffer.to_vec(0, 5017);
        assert!(arrived[..8].iter().chain(&arrived[5008..5016]).all(|byte| *byte == 9), "{link}");
        assert!(arrived[8..5008].iter().all(|byte| *byte == 0) && arrived[5016] == 7, "{link}");
        let sges = [nowhere(5008), a.buffer.sge(100, 8)];
        a.qp.post_send(&[SendWr::new(1, Operation::Read(b.buffer.remote(0)), &sges)]).expect("posts");
        next_ok(a, b);
        assert_eq!(a.buffer.to_vec(99, 10), [9; 10], "the last eight bytes are those after the gap");
        assert!(null.deregister().is_ok());
    }
}

#[test]
fn a_window_of_type_one_is_bound_anew_and_holds_its_region() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).pair();
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let mut memory = vec![0u64; 512];
        #[allow(unsafe_code)]
        // SAFETY: the vector outlives the region.
        let region = unsafe { b.pd.register(memory.as_mut_ptr().cast(), 4096, access) };
        let mut region = region.expect("registers");
        let window = b.pd.memory_window_of(WindowKind::One);
        let mut key = window.rkey();
        let mut bind = |region: &_, offset, length| {
            let new_key = RemoteKey(key.0 & !0xFF | key.0.wrapping_add(1) & 0xFF);
            let bind = window.bind(key, new_key, region, offset, length, Access::REMOTE_WRITE);
            b.qp.post_send(&[SendWr::new(1, bind, &[])]).expect("posts");
            next_ok(b, a);
            key = new_key;
            key
        };
        for offset in [0, 2048] {
            let rkey = bind(&region, offset, 1024);
            a.fill(0, 8, offset as u8);
            a.post(2, Operation::Write(Remote { va: region.addr() + offset + 8, rkey }), 0, 8);
            next_ok(a, b);
            let Err((still, error)) = region.deregister() else { panic!("a window is bound to it") };
            assert_eq!(error, RegisterError::InUse);
            region = still;
        }
        bind(&region, 0, 0);
        assert!(region.deregister().is_ok(), "nothing is bound to it any more");
        assert!(word(&memory, 1) != 0 && word(&memory, 257) != 0, "{link}");
    }
}

#[test]
fn a_completion_queue_is_resized_with_what_waits_in_it() {
    let end = Setup::new(Service::Rc, LinkChoice::Auto).end();
    let channel = end.device.completion_channel().expect("a channel");
    let config = CompletionQueueConfig {
        channel: Some(ChannelTarget { channel: &channel, tag: 5 }),
        ..CompletionQueueConfig::new(10)
    };
    let cq = end.device.create_completion_queue(&config).expect("a completion queue");
    assert_eq!(cq.capacity(), 16);
    let qp = end.pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
    // In the error state every request completes at once.
    qp.modify(&QpAttr::to_state(QpState::Error)).expect("an error");
    let send = |wr_id| qp.post_send(&[SendWr::new(wr_id, Operation::Send, &[])]).expect("posts");
    (0..9).for_each(send);
    assert!(matches!(cq.resize(8), Err(CreateError::CompletionsWait)), "nine completions wait");
    cq.request_notify(WaitFor::Any).expect("has a channel");
    cq.resize(100).expect("grows");
    assert_eq!(cq.capacity(), 128);
    // The queue is still armed, and its waiting completions are still there.
    while channel.try_event().is_some() {}
    cq.request_notify(WaitFor::Any).expect("has a channel");
    cq.resize(64).expect("shrinks");
    send(9);
    assert_eq!(channel.event(Some(common::PATIENCE)), Some(5));
    for expected in 0..10 {
        assert_eq!(until("a completion", || cq.poll_one()).wr_id, expected);
    }
    assert_eq!(cq.overruns(), 0);
}

#[test]
fn a_shared_receive_queue_tells_what_it_holds_and_changes() {
    let end = Setup::new(Service::Rc, LinkChoice::Auto).end();
    let srq = end.device.shared_receive_queue(&end.pd, 4, 2).expect("a shared receive queue");
    let post = |wr_id| srq.post_recv(&RecvWr { wr_id, sges: &[] });
    (0..4).for_each(|wr_id| post(wr_id).expect("posts"));
    assert!(post(4).is_err(), "it is full");
    assert_eq!(srq.modify(None, Some(5)), Err(ModifyError::OutOfRange("limit")));
    assert_eq!(srq.modify(Some(3), None), Err(ModifyError::OutOfRange("max_wr")));
    srq.modify(Some(6), Some(5)).expect("changes");
    post(4).expect("there is room now");
    let now = srq.query();
    assert_eq!((now.max_wr, now.max_sge, now.limit, now.waiting), (6, 2, 5, 5));
}
