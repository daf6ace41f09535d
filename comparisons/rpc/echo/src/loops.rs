//! A client whose requests are futures: as many loops as requests are under way, on one thread.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use crate::{Book, PATIENCE, Report, SIZE};

/// Runs a future, and what it spawns locally, on this thread.
///
/// # Errors
/// The future's error, or there is no runtime.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build().context("a runtime")?;
    LocalSet::new().block_on(&runtime, future)
}

/// Asks by `echo` until the turn is over.
///
/// # Errors
/// A request failed, or its reply was wrong.
pub async fn loops<E, F>(book: Book, echo: E) -> Result<Report>
where
    E: Fn([u8; SIZE]) -> F + Clone + 'static,
    F: Future<Output = Result<Vec<u8>>>,
{
    let (window, book) = (book.window(), Rc::new(RefCell::new(book)));
    let all: Vec<_> = (0..window)
        .map(|_| {
            let (book, echo) = (Rc::clone(&book), echo.clone());
            spawn_local(async move {
                loop {
                    // Not in the `while let`: its borrow would last through the body.
                    let Some(request) = book.borrow_mut().request() else { return anyhow::Ok(()) };
                    let reply = echo(request.bytes).await?;
                    book.borrow_mut().answered(&request, &reply)?;
                }
            })
        })
        .collect();
    let mut watch = spawn_local(heard(Rc::clone(&book)));
    for one in all {
        tokio::select! {
            ended = one => ended.context("a loop panicked")??,
            silent = &mut watch => silent.context("the watch panicked")??,
        }
    }
    watch.abort();
    let _ = watch.await;
    Rc::into_inner(book).context("a loop goes on")?.into_inner().report()
}

/// Ends with an error when no request is answered for a long time.
async fn heard(book: Rc<RefCell<Book>>) -> Result<()> {
    let mut before = None;
    loop {
        sleep(PATIENCE).await;
        let now = book.borrow().replies();
        if before.replace(now) == Some(now) {
            bail!("no reply for {PATIENCE:?}");
        }
    }
}
