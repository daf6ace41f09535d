//! A progress line with the time left, on a terminal, for whatever takes longer than two seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(2);
/// Drawing costs microseconds: a measuring loop must not notice it.
const REDRAW: Duration = Duration::from_millis(250);

/// Progress towards a known total. Without a terminal it does nothing.
pub(crate) struct Progress {
    title: &'static str,
    total: u64,
    started: Instant,
    next_look: Instant,
    bar: Option<ProgressBar>,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(title: &'static str, total: u64) -> Self {
        let now = Instant::now();
        let is_terminal = std::io::stderr().is_terminal();
        Self { title, total, started: now, next_look: now + PATIENCE, bar: None, is_terminal }
    }

    /// `done` of the total at `now`; cheap enough for every few hundred iterations.
    pub(crate) fn at(&mut self, done: u64, now: Instant) {
        if now < self.next_look || !self.is_terminal {
            return;
        }
        self.next_look = now + REDRAW;
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr_with_hz(4);
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %  {eta} left")
                .expect("the template is valid");
            ProgressBar::with_draw_target(Some(self.total), target)
                .with_style(style)
                .with_message(self.title)
                .with_elapsed(self.started.elapsed())
        });
        bar.set_position(done.min(self.total));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
