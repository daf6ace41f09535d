//! Completions on their way to the program: replaced, late, or missing.

use super::{Play, lock, play};
use crate::abi::*;
use crate::cq::{Cq, to_wc};
use crate::qp::Qp;
use crate::{failure, registry};
use highwire_faults::{Fate, Seen};
use highwire_stdx::Instant;
use highwire_verbs::{Completion, CompletionFlags, CompletionStatus, QpAttr, QpState, TagFlags};
use highwire_wire::Qpn;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A completion, its tag, and the sender's data beside it.
type Tagged = (Completion, u64, u32);

/// What a failed completion has instead of an opcode: verbs promise none.
pub(crate) const NO_OPCODE: ibv_wc_opcode = 0x7FFF_FFFF;

/// Completions that come later.
#[derive(Default)]
pub(super) struct Held {
    /// By the address of their queue.
    queues: Mutex<HashMap<usize, Queue>>,
    /// How many there are: each poll asks. It changes under the lock.
    late: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    late: VecDeque<Late>,
    /// The program uses events of this queue. It may have armed the queue before it polled, so each late completion is one.
    is_armed: bool,
}

struct Late {
    ready_at: Instant,
    completion: Tagged,
    is_told: bool,
}

/// The next completion that the program gets.
pub(crate) fn next(cq: &Cq) -> Option<Tagged> {
    let Some(play) = play() else { return cq.host.poll_tagged() };
    if cq.context.is_dead() {
        return None;
    }
    if !play.heed.is_about_completions() {
        let found = cq.host.poll_tagged();
        return found.map(|(completion, tag, data)| (scrubbed(completion), tag, data));
    }
    if let Some(late) = play.take_late(cq) {
        return Some(late);
    }
    loop {
        let found = cq.host.poll_tagged()?;
        let (completion, tag, data) = found;
        let device = cq.context.index;
        let seen = Seen {
            device,
            queue_pair: play.number_by_qpn(device, completion.qpn),
            operation: completion.operation,
            status: completion.status,
        };
        match play.ask(|course| course.completion(&seen)) {
            Fate::Pass => return Some((scrubbed(completion), tag, data)),
            Fate::Fail(status) => {
                break_queue_pair(device, completion.qpn);
                return Some((scrubbed(Completion { status, ..completion }), tag, data));
            }
            Fate::Late(late) => play.hold(cq, play.now() + late, found),
            Fate::Missing => {}
        }
    }
}

/// Of a failed completion, verbs promise `wr_id`, `status`, `qp_num` and `vendor_err`. What else a program reads has nonsense in it, so that
/// it is found out.
fn scrubbed(completion: Completion) -> Completion {
    if completion.status == CompletionStatus::Success {
        return completion;
    }
    let Completion { wr_id, status, qpn, operation, .. } = completion;
    let flags = CompletionFlags {
        grh: true,
        with_immediate: true,
        tags: TagFlags::ALL,
        ..CompletionFlags::default()
    };
    let source_qpn = Qpn::new(0xBAD_BAD);
    Completion {
        byte_len: 0xBAD0_BAD0,
        immediate: 0xBAD0_BAD0,
        source_qpn,
        flags,
        ..Completion::new(wr_id, status, operation, qpn)
    }
}

/// As a card's queue pair after a failed request: it is in ERR, and all other requests are flushed.
fn break_queue_pair(device: usize, qpn: Qpn) {
    let is_it = |qp: &Qp| qp.context.index == device && qp.number() == qpn.value();
    if let Some(qp) = registry::first::<Qp>(is_it) {
        to_error(&qp);
    }
}

pub(super) fn to_error(qp: &Qp) {
    let error = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
    if let Ok(host) = qp.host() {
        // One that is in RESET stays there.
        let _ = host.modify(&error);
    }
}

/// `ibv_poll_cq` with a scenario.
pub(super) unsafe extern "C-unwind" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    crate::boundary::guard(|| {
        let object = cq as usize;
        // SAFETY: this function is reached through the queue's own context only, so it is one of ours.
        let cq = unsafe { &*cq.cast::<Cq>() };
        if super::judge_often("ibv_poll_cq", &cq.context, object) != 0 {
            return -1;
        }
        if cq.host.is_inherited() {
            return -libc::EPERM;
        }
        let mut taken = 0;
        while taken < count.max(0) {
            let Some((completion, ..)) = next(cq) else { break };
            failure::look_at(&completion);
            let mut made = to_wc(&completion);
            if completion.status != CompletionStatus::Success {
                made.opcode = NO_OPCODE;
            }
            // SAFETY: C has room for `count` entries, wherever they lie.
            unsafe { wc.add(taken as usize).write_unaligned(made) };
            taken += 1;
        }
        taken
    })
}

/// `ibv_req_notify_cq` with a scenario.
pub(super) unsafe extern "C-unwind" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let errno = crate::boundary::guard(|| {
        // SAFETY: as in `poll_cq`.
        let context = unsafe { &(*cq.cast::<Cq>()).context };
        let errno = super::judge_often("ibv_req_notify_cq", context, cq as usize);
        if let Some(play) = play().filter(|_| errno == 0) {
            play.arm(cq as usize);
        }
        errno
    });
    if errno != 0 {
        return errno;
    }
    // SAFETY: the caller's promise. A queue of a device that has failed is armed, and nothing comes.
    unsafe { crate::cq::req_notify_cq(cq, solicited_only) }
}

/// A queue is gone, and with it what was to come.
pub(crate) fn forget_queue(cq: *const ibv_cq) {
    if let Some(play) = play() {
        let mut queues = lock(&play.held.queues);
        let late = queues.remove(&(cq as usize)).map_or(0, |queue| queue.late.len());
        play.held.late.fetch_sub(late, Ordering::Relaxed);
    }
}

impl Play {
    fn arm(&self, key: usize) {
        let mut queues = lock(&self.held.queues);
        let queue = queues.entry(key).or_default();
        let is_news = !std::mem::replace(&mut queue.is_armed, true) && !queue.late.is_empty();
        drop(queues);
        if is_news {
            self.tell_timeline();
        }
    }

    fn hold(&self, cq: &Cq, ready_at: Instant, completion: Tagged) {
        let key = crate::boundary::tag(cq) as usize;
        let late = Late { ready_at, completion, is_told: false };
        let mut queues = lock(&self.held.queues);
        queues.entry(key).or_default().late.push_back(late);
        self.held.late.fetch_add(1, Ordering::Relaxed);
        drop(queues);
        self.tell_timeline();
    }

    /// Behind the course's lock, under which the timeline looks for the next time.
    fn tell_timeline(&self) {
        drop(lock(&self.course));
        self.changed.notify_all();
    }

    fn take_late(&self, cq: &Cq) -> Option<Tagged> {
        if self.held.late.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = self.now();
        let mut queues = lock(&self.held.queues);
        let queue = queues.get_mut(&(crate::boundary::tag(cq) as usize))?;
        let ready = queue.late.iter().position(|late| late.ready_at <= now)?;
        let late = queue.late.remove(ready)?;
        self.held.late.fetch_sub(1, Ordering::Relaxed);
        Some(late.completion)
    }
}

/// When the next late completion is ready of which a program is to be told.
pub(super) fn deadline(play: &Play) -> Option<Instant> {
    let queues = lock(&play.held.queues);
    let late = queues.values().filter(|queue| queue.is_armed).flat_map(|queue| &queue.late);
    late.filter(|late| !late.is_told).map(|late| late.ready_at).min()
}

/// Tells programs of late completions that are ready.
pub(super) fn release(play: &Play) {
    let now = play.now();
    let mut ready = Vec::new();
    for (key, queue) in lock(&play.held.queues).iter_mut().filter(|(_, queue)| queue.is_armed) {
        let mut is_ready = false;
        for late in queue.late.iter_mut().filter(|late| !late.is_told && late.ready_at <= now) {
            (late.is_told, is_ready) = (true, true);
        }
        ready.extend(is_ready.then_some(*key));
    }
    for key in ready {
        registry::with::<Cq, _>(key as *const ibv_cq, Cq::report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_verbs::CompletionOp;

    #[test]
    fn a_failed_completion_keeps_what_verbs_promise_and_nothing_else() {
        let whole = Completion {
            byte_len: 7,
            immediate: 9,
            ..Completion::new(5, CompletionStatus::RetryExceeded, CompletionOp::Write, Qpn::new(3))
        };
        let wc = to_wc(&scrubbed(whole));
        assert_eq!((wc.wr_id, wc.status, wc.qp_num), (5, IBV_WC_RETRY_EXC_ERR, 3));
        assert!(wc.vendor_err != 0 && wc.byte_len != 7 && wc.imm_data != 9u32.to_be());
        let good = Completion { status: CompletionStatus::Success, ..whole };
        assert_eq!(scrubbed(good), good);
    }
}
