//! Signals and threads that wait: a handler ends a wait as it would end a `read`. Handlers are the process's, so this has one to itself.
#![allow(unsafe_code)]

mod common;

use common::{PATIENCE, Setup, Told};
use highwire_host::verbs::{Operation, RecvWr, Service};
use highwire_host::{Engine, Interrupted, LinkChoice, WaitFor, WakeMode};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A wait that is let go on has gone on after so many signals.
const SIGNALS: u32 = 5;

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handle(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

fn install(flags: libc::c_int) {
    // SAFETY: the handler only counts; zeros are an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_signal_ends_a_wait_unless_its_handler_lets_calls_go_on() {
    for mode in WakeMode::ALL {
        let mut setup = Setup::new(Service::Rc, LinkChoice::Udp).engine(Engine::Both);
        setup.config.wake = Some(mode);
        let ends = [setup.end(), setup.end()];
        let Told { qp, cq, channel } = setup.told(&ends[1], 1);
        setup.join(&ends[0].qp, &qp);
        qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
        for flags in [0, libc::SA_RESTART] {
            install(flags);
            let thread = AtomicU64::new(0);
            std::thread::scope(|threads| {
                let waiting = threads.spawn(|| {
                    cq.request_notify(WaitFor::Any).expect("has a channel");
                    // SAFETY: no arguments.
                    thread.store(unsafe { libc::pthread_self() }, Ordering::SeqCst);
                    // Without a timeout: a wait with one ends with a signal in any case, as `poll` does.
                    channel.event_or_signal(None)
                });
                let before = HANDLED.load(Ordering::SeqCst);
                let begin = Instant::now();
                // A signal that comes while the thread polls ends nothing, so there are several.
                while begin.elapsed() < PATIENCE && !waiting.is_finished() {
                    let thread = thread.load(Ordering::SeqCst);
                    if thread != 0 {
                        // SAFETY: the thread is joined after this.
                        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                    }
                    std::thread::sleep(Duration::from_millis(20));
                    if flags != 0 && HANDLED.load(Ordering::SeqCst) - before >= SIGNALS {
                        break;
                    }
                }
                if flags == 0 {
                    if !waiting.is_finished() {
                        // So that the test fails and ends.
                        ends[0].post(1, Operation::Send, 0, 0);
                    }
                    assert_eq!(waiting.join().expect("no panic"), Err(Interrupted), "{mode}");
                } else {
                    assert!(
                        !waiting.is_finished(),
                        "{mode}: a handler that lets calls go on has ended this one"
                    );
                    ends[0].post(1, Operation::Send, 0, 0);
                    assert_eq!(waiting.join().expect("no panic"), Ok(Some(1)), "{mode}");
                }
            });
        }
    }
}
