//! A thread's own stack, and the way from it back to the machine that plays it.
#![allow(unsafe_code)]

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;

type Back = NonNull<Yielder<(), ()>>;

thread_local! {
    /// The way back from the fiber that runs now.
    static BACK: Cell<Option<Back>> = const { Cell::new(None) };
}

/// A thread that runs until it suspends itself. Dropping one that has not ended unwinds its stack.
pub struct Fiber {
    coroutine: Coroutine<(), (), ()>,
    /// This fiber's way back, once it has begun.
    back: Rc<Cell<Option<Back>>>,
}

impl Fiber {
    /// A thread that has yet to begin.
    ///
    /// # Errors
    /// There is no memory for its stack.
    pub fn new(stack_bytes: usize, body: impl FnOnce() + 'static) -> io::Result<Fiber> {
        let back = Rc::new(Cell::new(None));
        let own = Rc::clone(&back);
        let coroutine = Coroutine::with_stack(DefaultStack::new(stack_bytes)?, move |yielder, ()| {
            own.set(Some(NonNull::from(yielder)));
            BACK.set(own.get());
            body();
        });
        Ok(Fiber { coroutine, back })
    }

    /// Runs the fiber until it suspends itself. False if it has ended.
    pub fn resume(&mut self) -> bool {
        let _until_back = Away { before: BACK.replace(self.back.get()) };
        matches!(self.coroutine.resume(()), CoroutineResult::Yield(()))
    }
}

/// While it lives, a fiber runs. When the fiber stops, even by a panic, dropping this restores the state of
/// the thread that resumed it.
struct Away {
    before: Option<Back>,
}

impl Drop for Away {
    fn drop(&mut self) {
        BACK.set(self.before);
    }
}

impl std::fmt::Debug for Fiber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fiber").finish_non_exhaustive()
    }
}

/// Goes back to the thread that has resumed this fiber.
///
/// # Panics
/// No fiber runs.
pub fn suspend() {
    let back = BACK.get().expect("only threads of a machine ask it for time");
    // SAFETY: `resume` has set `BACK` to the yielder of the fiber that runs now, which lives on that fiber's
    // stack as long as its body.
    unsafe { back.as_ref() }.suspend(());
}

/// Whether a fiber runs now.
pub fn is_inside() -> bool {
    BACK.get().is_some()
}
