//! A progress line with the time left, on a terminal, for commands that take longer than two seconds;
//! elsewhere, if wanted, a line per minute.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(2);
/// Drawing costs microseconds: a measuring loop must not notice it.
const REDRAW: Duration = Duration::from_millis(250);
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Progress towards a known total. Without a terminal it prints nothing unless it must write lines.
pub struct Progress {
    title: &'static str,
    total: u64,
    started: Instant,
    next_look: Instant,
    bar: Option<ProgressBar>,
    is_terminal: bool,
    writes_lines: bool,
    shows_rate: bool,
}

impl Progress {
    /// Begins now, under a title.
    pub fn new(title: &'static str, total: u64) -> Self {
        let now = Instant::now();
        let is_terminal = std::io::stderr().is_terminal();
        Self {
            title,
            total,
            started: now,
            next_look: now + PATIENCE,
            bar: None,
            is_terminal,
            writes_lines: false,
            shows_rate: false,
        }
    }

    /// Also says how many a second there have been so far.
    pub fn with_rate(mut self) -> Self {
        self.shows_rate = true;
        self
    }

    /// For what takes hours: without a terminal, a line per minute on standard error.
    pub fn with_lines(mut self) -> Self {
        self.writes_lines = !self.is_terminal;
        self
    }

    /// `done` of the total at `now`; cheap enough for every few hundred iterations.
    pub fn at(&mut self, done: u64, now: Instant) {
        if now < self.next_look || !(self.is_terminal || self.writes_lines) {
            return;
        }
        if self.writes_lines {
            self.next_look = now + LINE_EVERY;
            return self.line(done, now);
        }
        self.next_look = now + REDRAW;
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr_with_hz(4);
            let template = if self.shows_rate {
                "{msg} {wide_bar} {percent:>3} %  {per_sec}, {eta} left"
            } else {
                "{msg} {wide_bar} {percent:>3} %  {eta} left"
            };
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            ProgressBar::with_draw_target(Some(self.total), target)
                .with_style(style)
                .with_message(self.title)
                .with_elapsed(self.started.elapsed())
        });
        bar.set_position(done.min(self.total));
    }

    fn line(&self, done: u64, now: Instant) {
        let share = done as f64 / self.total.max(1) as f64;
        let left = (now - self.started).as_secs_f64() * (1.0 / share.max(1e-9) - 1.0);
        let left = match left {
            left if share < 1e-3 || left > 1e6 => "a while".to_string(),
            left if left < 90.0 => format!("{left:.0} s"),
            left if left < 5_400.0 => format!("{:.0} min", left / 60.0),
            left => format!("{:.1} h", left / 3_600.0),
        };
        let rate = if self.shows_rate {
            format!(", {:.0} a second", done as f64 / (now - self.started).as_secs_f64().max(1e-9))
        } else {
            String::new()
        };
        eprintln!("{}: {:.1} %{rate}, {left} left", self.title, 100.0 * share);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
