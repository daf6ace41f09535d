//! The I/O loop of a node: one thread waits for the sockets of all its doors at once.
//!
//! Each connection is a task of this thread, and goes on when its socket or the node has something for it. The node's own thread does
//! transactions and heartbeats only: no socket, however slow or busy, keeps it from them. What must block, such as a
//! scan that asks other nodes for a snapshot, has one of a few threads for itself.

use crate::engine::named;
use std::io;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads for what blocks. What finds none waits for one.
const BLOCKING_THREADS_MAX: usize = 16;

/// Ends the loop, and all connections with it, when it is dropped.
#[derive(Debug)]
pub(crate) struct IoLoop {
    _until: oneshot::Sender<()>,
}

/// Starts a node's loop; through the handle it gets its tasks.
pub(crate) fn start(node: u16) -> io::Result<(Handle, IoLoop)> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?;
    let handle = runtime.handle().clone();
    let (until, ended) = oneshot::channel::<()>();
    let work = move || {
        // It ends with its sender, which says nothing.
        let _ = runtime.block_on(ended);
        // A scan under way notices that the node is gone; the loop does not wait for it.
        runtime.shutdown_background();
    };
    named(format!("doors {node}")).spawn(work)?;
    Ok((handle, IoLoop { _until: until }))
}
