//! The outcomes of a case's ends.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The outcome of one end.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) output: String,
    /// None if its time ran out.
    pub(super) status: Option<ExitStatus>,
    /// It was killed because it was no longer needed.
    pub(super) was_dismissed: bool,
    /// From its start to its end.
    pub(super) elapsed: Duration,
}

/// The outcome of a case.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The active end; the only one of a case with one end.
    pub(super) client: End,
    pub(super) server: Option<End>,
    pub(super) folder: PathBuf,
}

impl Outcome {
    /// Why it did not even end as it should, if so.
    pub(super) fn trouble(&self) -> Option<String> {
        let client = self.client.trouble().map(|trouble| self.explained(trouble, &self.client));
        let server = self.server.as_ref();
        let server_trouble = || {
            server.and_then(|end| {
                end.trouble().map(|trouble| self.explained(format!("server: {trouble}"), end))
            })
        };
        client.or_else(server_trouble)
    }

    fn explained(&self, trouble: String, end: &End) -> String {
        let said =
            end.output.lines().rev().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("---"));
        match said {
            Some(line) => format!("{trouble}: {}", line.chars().take(120).collect::<String>()),
            None => trouble,
        }
    }
}

impl End {
    /// It failed by itself: a crash or a hang is never tried again.
    pub(super) fn was_refused(&self) -> bool {
        self.status.and_then(|status| status.code()).is_some_and(|code| code != 0)
    }

    pub(super) fn worked(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    fn trouble(&self) -> Option<String> {
        match self.status {
            _ if self.was_dismissed => None,
            None => Some("did not end in time".into()),
            Some(status) if status.success() => None,
            Some(status) => Some(match (status.signal(), status.code()) {
                (Some(signal), _) => format!("ended by signal {signal}"),
                (_, code) => format!("exit {}", code.unwrap_or(-1)),
            }),
        }
    }
}
