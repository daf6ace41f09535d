//! The background thread: a thread that does for streams what a kernel does for sockets while their program is elsewhere.
//!
//! It accepts connections for streams that listen, finishes connections whose `rconnect` has returned, and keeps closed
//! streams until the peer has everything. It is there from the first stream that needs it, one per process.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use libc::c_int;

use super::socket::lock;
use super::stream::Stream;

/// How long a closed stream is kept for a peer that does not acknowledge.
const LINGER_MAX: Duration = Duration::from_secs(60);
/// How many are kept: of more, the oldest go.
const LINGERING_MAX: usize = 256;
/// How often they are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Default)]
struct BackgroundThread {
    work: Mutex<Work>,
    called: Condvar,
}

#[derive(Default)]
struct Work {
    /// Streams with connection events.
    calls: VecDeque<Weak<Mutex<Stream>>>,
    /// Streams whose peers are to be told of something, as soon as a message arrives that is under way.
    owing: Vec<Weak<Mutex<Stream>>>,
    /// Closed streams, and until when they are kept.
    lingering: VecDeque<(Arc<Mutex<Stream>>, Instant)>,
}

/// The background thread, and the process that made it: a child of `fork` has no such thread.
static BACKGROUND: Mutex<Option<(u32, &'static BackgroundThread)>> = Mutex::new(None);

/// The background thread of this process, which begins to work at the first call.
fn start() -> Result<&'static BackgroundThread, c_int> {
    let mut slot = BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((maker, background)) = *slot
        && maker == process
    {
        return Ok(background);
    }
    let background: &'static BackgroundThread = Box::leak(Box::default());
    let masked = highwire_host::SignalMask::all();
    let started = std::thread::Builder::new().name("highwire-rsocket".into()).spawn(|| background.run());
    drop(masked);
    started.map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
    *slot = Some((process, background));
    Ok(background)
}

/// Has the connection events of a stream taken from now on.
///
/// # Errors
/// What starting a thread says.
pub(super) fn serve(stream: &Arc<Mutex<Stream>>) -> Result<(), c_int> {
    start()?;
    let changes = Arc::clone(&lock(stream).changes);
    changes.serve(Arc::downgrade(stream));
    // Events that came before.
    if !changes.is_called.swap(true, Ordering::SeqCst) {
        call(Arc::downgrade(stream));
    }
    Ok(())
}

/// A stream that is attended has events.
pub(super) fn call(stream: Weak<Mutex<Stream>>) {
    if let Ok(background) = start() {
        background.lock().calls.push_back(stream);
        background.called.notify_one();
    }
}

/// Keeps a closed stream until its peer has everything.
pub(super) fn linger(stream: Arc<Mutex<Stream>>) {
    let Ok(background) = start() else { return };
    let mut work = background.lock();
    let oldest = if work.lingering.len() >= LINGERING_MAX { work.lingering.pop_front() } else { None };
    work.lingering.push_back((stream, Instant::now() + LINGER_MAX));
    drop(work);
    drop(oldest);
    background.called.notify_one();
}

/// Tells the peer of a stream what it is owed, if that cannot be done now: the program may not come back soon.
pub(super) fn owe(stream: &Arc<Mutex<Stream>>) {
    {
        let mut stream = lock(stream);
        if !stream.is_owing() || std::mem::replace(&mut stream.is_watched, true) {
            return;
        }
    }
    let Ok(background) = start() else { return };
    background.lock().owing.push(Arc::downgrade(stream));
    background.called.notify_one();
}

impl Work {
    fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.owing.is_empty() && self.lingering.is_empty()
    }
}

impl BackgroundThread {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let Work { calls, mut owing, lingering } = self.next();
            for stream in calls.into_iter().filter_map(|stream| stream.upgrade()) {
                let mut stream = lock(&stream);
                // Before the look: an event that comes during it is another call.
                stream.changes.is_called.store(false, Ordering::SeqCst);
                stream.progress();
            }
            owing.retain(|stream| {
                let Some(stream) = stream.upgrade() else { return false };
                let mut stream = lock(&stream);
                stream.progress();
                stream.is_watched = stream.is_owing();
                stream.is_watched
            });
            let now = Instant::now();
            let kept =
                lingering.into_iter().filter(|(stream, until)| !lock(stream).is_settled() && now < *until);
            let kept: Vec<_> = kept.collect();
            let mut work = self.lock();
            work.owing.append(&mut owing);
            kept.into_iter().rev().for_each(|stream| work.lingering.push_front(stream));
        }
    }

    /// Waits for something to do.
    fn next(&self) -> Work {
        let mut work = self.lock();
        if work.is_idle() {
            work =
                self.called.wait_while(work, |work| work.is_idle()).unwrap_or_else(PoisonError::into_inner);
        } else if work.calls.is_empty() {
            let wait = self.called.wait_timeout(work, LOOK_AGAIN);
            work = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut *work)
    }
}
