//! A process whose threads all wait in vain. The test has this program for itself, since it counts the
//! wake-ups of all threads.

mod common;

use common::{PATIENCE, Setup, Told, until};
use highwire_host::verbs::{QpAttr, QpState, RecvWr, Service};
use highwire_host::{Engine, LinkChoice, WaitFor, WakeMode};
use std::time::{Duration, Instant};

const THREADS: usize = 512;
/// The leader looks once a second, the background thread once or twice. It was once nearly thirty times together; ten times would be too often, too.
const WAKE_UPS_PER_SECOND: f64 = 8.0;
/// Longer than the threads take to become quiet.
const SETTLING: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(3);

/// How often threads of this process have left their cores of their own accord.
#[allow(unsafe_code)]
fn sleeps() -> i64 {
    // SAFETY: zeros are a valid value, which the call fills in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_nvcsw
    }
}

#[test]
fn threads_that_wait_for_nothing_wake_up_a_few_times_a_second_all_together() {
    for mode in [WakeMode::Balanced, WakeMode::Power, WakeMode::Dispatcher] {
        let mut setup = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Both);
        setup.config.wake = Some(mode);
        let end = setup.end();
        let waiting: Vec<Told> = (0..THREADS).map(|_| setup.told(&end, 1)).collect();
        let asleep = || end.device.counters().value("wake_sleeps") >= THREADS as u64;
        std::thread::scope(|threads| {
            for told in &waiting {
                told.cq.request_notify(WaitFor::Any).expect("has a channel");
                threads.spawn(|| assert_eq!(told.channel.event(Some(2 * PATIENCE)), Some(1)));
            }
            until("all to sleep", || asleep().then_some(()));
            std::thread::sleep(SETTLING);
            let (began, before) = (Instant::now(), sleeps());
            std::thread::sleep(COUNTED);
            let (seconds, wake_ups) = (began.elapsed().as_secs_f64(), sleeps() - before);
            // The bound counts the time that really passed on this machine.
            let most = WAKE_UPS_PER_SECOND * seconds;
            assert!(wake_ups as f64 <= most, "{mode}: {wake_ups} wake-ups in {seconds:.1} s");
            assert!(
                wake_ups as f64 > seconds / 4.0,
                "{mode}: {wake_ups} in {seconds:.1} s: nobody looks for who starves"
            );
            for told in &waiting {
                // A request that is posted in this state completes at once, as flushed.
                told.qp
                    .modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() })
                    .expect("any time");
                told.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
            }
        });
    }
}
