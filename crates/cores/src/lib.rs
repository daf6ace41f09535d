//! A machine in simulated time: cores, run queues, and what it costs to wake a thread and to switch to it.
//!
//! [`Machine`] plays threads that are closures. A thread computes for so many nanoseconds, sleeps on a word, wakes others, yields; the
//! machine says when it gets a core for that. Everything else that the closures do takes no time, so code
//! that knows nothing of the model runs in it, if its system calls are led here. [`Costs`] has the cost of
//! each call, as measured on a real machine.
//!
//! [`Fiber`] is the part that other machines can use: a thread on a stack of its own.
//!
//! The same costs and the same threads give the same run. One thread of the real machine plays all of them.

mod costs;
mod fiber;
mod machine;
mod queue;

pub use costs::Costs;
pub use fiber::{Fiber, is_inside, suspend};
pub use machine::{Ended, Machine, Stuck};
pub use queue::ThreadId;
