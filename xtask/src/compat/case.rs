//! One case: its program, its link, and the proof of success.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::Workshop;
use super::outcome::Outcome;
use super::verdict::Verdict;

/// How packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Shm,
    Udp,
    /// The device's choice; for programs that send nothing, or choose themselves.
    Auto,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::Shm => "shm",
            Link::Udp => "udp",
            Link::Auto => "auto",
        })
    }
}

/// When the first end is ready for the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// When it listens on the case's TCP port.
    Port,
    /// When it has had time to listen: connection management shows nothing to the outside.
    Soon,
}

/// The command. In the text `{port}` is a TCP port of the case's own, `{folder}` a folder for its files,
/// `{address}` the address that the second end must name, `{device}` the address of the device.
#[derive(Debug, Clone)]
pub(super) enum Script {
    One(String),
    Two {
        server: String,
        client: String,
        ready: Ready,
        server_stays: bool,
    },
    /// A run that a command line cannot express.
    Special(fn(&Workshop, &Case) -> Result<Verdict>),
}

/// Judges the output of the ends: a note on success, otherwise a reason.
pub(super) type Judge = fn(&Outcome) -> Result<String, String>;

/// One line of the catalogue.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The package or project that the program comes from.
    pub(super) group: &'static str,
    /// As a person would type it.
    pub(super) title: String,
    pub(super) link: Link,
    /// More options of `highwire run`.
    pub(super) options: &'static str,
    pub(super) script: Script,
    pub(super) judge: Judge,
    pub(super) seconds_max: u64,
    /// Part of `cargo xtask test`.
    pub(super) quick: bool,
}

impl Case {
    pub(super) fn two(group: &'static str, title: &str, link: Link, judge: Judge) -> Case {
        let script = Script::Two {
            server: title.into(),
            client: format!("{title} {{address}}"),
            ready: Ready::Port,
            server_stays: false,
        };
        Case {
            group,
            title: title.replace(" -p {port}", ""),
            link,
            options: "",
            script,
            judge,
            seconds_max: 20,
            quick: false,
        }
    }

    pub(super) fn one(group: &'static str, title: &str, judge: Judge) -> Case {
        Case { script: Script::One(title.into()), ..Case::two(group, title, Link::Auto, judge) }
    }

    pub(super) fn special(
        group: &'static str,
        title: &str,
        link: Link,
        play: fn(&Workshop, &Case) -> Result<Verdict>,
    ) -> Case {
        let judge: Judge = |_| Ok(String::new());
        Case { script: Script::Special(play), ..Case::two(group, title, link, judge) }
    }

    /// Sets the words by which each of two ends is asked for.
    pub(super) fn ends(mut self, server: &str, client: &str, ready: Ready) -> Case {
        self.script =
            Script::Two { server: server.into(), client: client.into(), ready, server_stays: false };
        self
    }

    /// The server does not end when the client has.
    pub(super) fn server_stays(mut self) -> Case {
        if let Script::Two { server_stays, .. } = &mut self.script {
            *server_stays = true;
        }
        self
    }

    /// The client may not come before the server listens, but no sign shows when that is.
    pub(super) fn soon(mut self) -> Case {
        if let Script::Two { ready, .. } = &mut self.script {
            *ready = Ready::Soon;
        }
        self
    }

    pub(super) fn quick(mut self) -> Case {
        self.quick = true;
        self
    }

    pub(super) fn titled(mut self, title: &str) -> Case {
        self.title = title.into();
        self
    }

    pub(super) fn options(mut self, options: &'static str) -> Case {
        self.options = options;
        self
    }

    pub(super) fn at_most(mut self, seconds: u64) -> Case {
        self.seconds_max = seconds;
        self
    }

    /// For lists and for `--only`.
    pub(super) fn line(&self) -> String {
        let options = if self.options.is_empty() { String::new() } else { format!(" [{}]", self.options) };
        format!("{} ({}){options}", self.title, self.link)
    }
}

/// A TCP port that no other case of this run uses. Below the range from which the system picks ports.
pub(super) fn fresh_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = 20_000 + (std::process::id() % 50) * 200;
    (start + NEXT.fetch_add(1, Ordering::Relaxed) % 2000) as u16
}
