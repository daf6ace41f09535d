//! Threads that wait on a channel which its program destroys.

use std::fs::read_to_string;
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::rdmacm::abi::RDMA_PS_TCP;
use crate::rdmacm::id;

/// The number of the system call in which a thread of this process sleeps, if it does.
fn sleeps_in(thread: libc::pid_t) -> Option<i64> {
    let text = read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A thread that takes events from `channel` until there is an error: its number, and the errors.
fn event_thread(channel_address: usize) -> (libc::pid_t, Receiver<c_int>) {
    let ((say_number, number), (say_error, error)) = (channel(), channel());
    std::thread::spawn(move || {
        // SAFETY: the call has no preconditions.
        let _ = say_number.send(unsafe { libc::gettid() });
        loop {
            let mut event = std::ptr::null_mut();
            // SAFETY: the result is writable; the call itself checks whether the channel exists.
            if unsafe { rdma_get_cm_event(channel_address as *mut rdma_event_channel, &mut event) } != 0 {
                let _ = say_error.send(crate::rdmacm::verbs::last_errno());
                return;
            }
            // SAFETY: the event was just taken.
            unsafe { rdma_ack_cm_event(event) };
        }
    });
    (number.recv().expect("the thread begins with its number"), error)
}

/// Waits until the thread sleeps in one of `calls`, during which it must not report anything.
fn await_sleep(thread: libc::pid_t, errors: &Receiver<c_int>, calls: &[i64]) {
    while !sleeps_in(thread).is_some_and(|call| calls.contains(&call)) {
        assert_eq!(errors.try_recv().ok(), None, "the thread was told of an error");
        std::thread::yield_now();
    }
    assert_eq!(errors.try_recv().ok(), None, "the thread was told of an error");
}

fn made() -> Option<usize> {
    if hub().is_err() {
        println!("skipped: no device, as no `highwire` was found that could be its broker");
        return None;
    }
    // SAFETY: the call has no preconditions.
    let channel = unsafe { rdma_create_event_channel() } as usize;
    assert_ne!(channel, 0);
    Some(channel)
}

#[test]
fn a_thread_that_waits_on_a_channel_sleeps_on_when_it_is_destroyed() {
    let Some(channel) = made() else { return };
    let (thread, errors) = event_thread(channel);
    await_sleep(thread, &errors, &[libc::SYS_ppoll, libc::SYS_poll]);
    let destroyed = channel as *mut rdma_event_channel;
    // SAFETY: the channel is alive, and destroyed once.
    unsafe { rdma_destroy_event_channel(destroyed) };
    // New objects that reuse the channel's descriptor number or address do not wake the thread. SAFETY:
    // objects are made, used and destroyed here.
    unsafe {
        let other = rdma_create_event_channel();
        assert_ne!(other, destroyed, "the address of a channel that was just destroyed");
        let mut listener = std::ptr::null_mut();
        assert_eq!(id::rdma_create_id(other, &mut listener, std::ptr::null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(id::rdma_destroy_id(listener), 0);
        rdma_destroy_event_channel(other);
    }
    await_sleep(thread, &errors, &[libc::SYS_ppoll, libc::SYS_poll]);
}

#[test]
fn a_thread_that_comes_to_a_channel_just_destroyed_sleeps() {
    let Some(channel) = made() else { return };
    // SAFETY: the channel is alive, and destroyed once.
    unsafe { rdma_destroy_event_channel(channel as *mut rdma_event_channel) };
    let (thread, errors) = event_thread(channel);
    await_sleep(thread, &errors, &[libc::SYS_poll]);
    assert_eq!(errors.recv(), Ok(libc::EINVAL), "a program that goes on is told in the end");
}

#[test]
fn a_thread_that_never_waits_is_told_at_once() {
    let Some(channel) = made() else { return };
    let destroyed = channel as *mut rdma_event_channel;
    let mut event = std::ptr::null_mut();
    // SAFETY: the channel is alive until it is destroyed, once.
    unsafe {
        assert_eq!(libc::fcntl((*destroyed).fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
        rdma_destroy_event_channel(destroyed);
        assert_eq!(rdma_get_cm_event(destroyed, &mut event), -1);
    }
    assert_eq!(crate::rdmacm::verbs::last_errno(), libc::EINVAL);
}
