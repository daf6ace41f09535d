//! The states of a queue pair, and which attributes each change needs (IBTA §10.3.1, §11.2.5.2).

use crate::attributes::QpAttr;
use crate::service::Service;
use std::fmt;

/// A state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum QpState {
    /// New: nothing is accepted.
    #[default]
    Reset,
    /// Receives may be posted; nothing flows.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained: posted sends wait.
    Sqd,
    /// Send queue error: sends are flushed, receives work (UC and UD).
    Sqe,
    /// Everything is flushed.
    Error,
}

impl QpState {
    /// Every state.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Error,
    ];

    /// Whether arriving packets are processed.
    pub const fn receives(self) -> bool {
        matches!(self, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Whether requests are transmitted.
    pub const fn transmits(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd)
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Error => "ERR",
        })
    }
}

/// The attributes that must be given to go from one state to another; `None` if there is no such change.
pub fn required_attributes(service: Service, from: QpState, to: QpState) -> Option<&'static [&'static str]> {
    use QpState::*;
    Some(match (from, to) {
        (_, Reset | Error) => &[],
        (Reset, Init) => match service {
            Service::Ud => &["qkey"],
            Service::Rc | Service::Uc => &["access"],
        },
        (Init, Init) => &[],
        (Init, Rtr) => match service {
            Service::Ud => &[],
            Service::Uc => &["address", "remote_qpn", "path_mtu", "rq_psn"],
            Service::Rc => {
                &["address", "remote_qpn", "path_mtu", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"]
            }
        },
        (Rtr, Rts) => match service {
            Service::Ud | Service::Uc => &["sq_psn"],
            Service::Rc => &["sq_psn", "timeout", "retry_count", "rnr_retry", "max_rd_atomic"],
        },
        (Rts, Rts) | (Rts, Sqd) | (Sqd, Sqd) | (Sqd, Rts) => &[],
        // RC has no SQE: a failed send on a reliable service breaks the connection.
        (Sqe, Rts) if service != Service::Rc => &[],
        _ => return None,
    })
}

/// The whole table as text: what `docs/` shows and a test holds still.
pub fn transition_table(service: Service) -> String {
    let mut text = String::new();
    for from in QpState::ALL {
        for to in QpState::ALL {
            if matches!(to, QpState::Reset | QpState::Error) {
                continue;
            }
            if let Some(required) = required_attributes(service, from, to) {
                let needs = if required.is_empty() { "nothing".into() } else { required.join(", ") };
                text += &format!("{service} {from} -> {to} needs {needs}\n");
            }
        }
    }
    text += &format!("{service} any -> RESET, ERR needs nothing\n");
    text
}

/// Names the first required attribute that `attr` lacks.
pub(crate) fn first_missing(attr: &QpAttr, required: &[&'static str]) -> Option<&'static str> {
    required.iter().copied().find(|name| !attr.has(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_rc_is_the_specifications() {
        assert_eq!(
            transition_table(Service::Rc),
            "RC RESET -> INIT needs access\n\
             RC INIT -> INIT needs nothing\n\
             RC INIT -> RTR needs address, remote_qpn, path_mtu, rq_psn, max_dest_rd_atomic, min_rnr_timer\n\
             RC RTR -> RTS needs sq_psn, timeout, retry_count, rnr_retry, max_rd_atomic\n\
             RC RTS -> RTS needs nothing\n\
             RC RTS -> SQD needs nothing\n\
             RC SQD -> RTS needs nothing\n\
             RC SQD -> SQD needs nothing\n\
             RC any -> RESET, ERR needs nothing\n"
        );
        assert!(transition_table(Service::Ud).contains("UD SQE -> RTS"));
    }
}
