//! The states of a queue pair, and which attributes each change needs and takes (IBTA §10.3.1, §11.2.5.2, table 91).

use crate::modify_error::ModifyError;
use crate::service::Service;
use std::fmt;
use std::ops::{BitAnd, BitOr};

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

/// A set of attributes of a queue pair, as bits that `libibverbs` also uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct AttrMask(pub u32);

#[allow(missing_docs, reason = "the verbs' own names")]
impl AttrMask {
    pub const NONE: AttrMask = AttrMask(0);
    pub const STATE: AttrMask = AttrMask(1);
    pub const CURRENT_STATE: AttrMask = AttrMask(1 << 1);
    pub const NOTIFY_DRAINED: AttrMask = AttrMask(1 << 2);
    pub const ACCESS: AttrMask = AttrMask(1 << 3);
    pub const PKEY_INDEX: AttrMask = AttrMask(1 << 4);
    pub const PORT: AttrMask = AttrMask(1 << 5);
    pub const QKEY: AttrMask = AttrMask(1 << 6);
    pub const ADDRESS: AttrMask = AttrMask(1 << 7);
    pub const PATH_MTU: AttrMask = AttrMask(1 << 8);
    pub const TIMEOUT: AttrMask = AttrMask(1 << 9);
    pub const RETRY_COUNT: AttrMask = AttrMask(1 << 10);
    pub const RNR_RETRY: AttrMask = AttrMask(1 << 11);
    pub const RQ_PSN: AttrMask = AttrMask(1 << 12);
    pub const MAX_RD_ATOMIC: AttrMask = AttrMask(1 << 13);
    pub const ALTERNATE_PATH: AttrMask = AttrMask(1 << 14);
    pub const MIN_RNR_TIMER: AttrMask = AttrMask(1 << 15);
    pub const SQ_PSN: AttrMask = AttrMask(1 << 16);
    pub const MAX_DEST_RD_ATOMIC: AttrMask = AttrMask(1 << 17);
    pub const PATH_MIGRATION: AttrMask = AttrMask(1 << 18);
    pub const CAPS: AttrMask = AttrMask(1 << 19);
    pub const REMOTE_QPN: AttrMask = AttrMask(1 << 20);
    pub const RATE_LIMIT: AttrMask = AttrMask(1 << 25);

    const NAMES: [(AttrMask, &'static str); 22] = [
        (AttrMask::STATE, "state"),
        (AttrMask::CURRENT_STATE, "current_state"),
        (AttrMask::NOTIFY_DRAINED, "notify_drained"),
        (AttrMask::ACCESS, "access"),
        (AttrMask::PKEY_INDEX, "pkey_index"),
        (AttrMask::PORT, "port"),
        (AttrMask::QKEY, "qkey"),
        (AttrMask::ADDRESS, "address"),
        (AttrMask::REMOTE_QPN, "remote_qpn"),
        (AttrMask::PATH_MTU, "path_mtu"),
        (AttrMask::RQ_PSN, "rq_psn"),
        (AttrMask::SQ_PSN, "sq_psn"),
        (AttrMask::TIMEOUT, "timeout"),
        (AttrMask::RETRY_COUNT, "retry_count"),
        (AttrMask::RNR_RETRY, "rnr_retry"),
        (AttrMask::MAX_RD_ATOMIC, "max_rd_atomic"),
        (AttrMask::MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic"),
        (AttrMask::MIN_RNR_TIMER, "min_rnr_timer"),
        (AttrMask::ALTERNATE_PATH, "alternate_path"),
        (AttrMask::PATH_MIGRATION, "path_migration"),
        (AttrMask::CAPS, "caps"),
        (AttrMask::RATE_LIMIT, "rate_limit"),
    ];

    /// The attributes of `self` that `other` lacks.
    pub const fn without(self, other: AttrMask) -> AttrMask {
        AttrMask(self.0 & !other.0)
    }

    /// Whether every attribute of `other` is there.
    pub const fn contains(self, other: AttrMask) -> bool {
        other.without(self).0 == 0
    }

    /// The name of one of its attributes, if it has any.
    pub(crate) fn first_name(self) -> Option<&'static str> {
        let named = AttrMask::NAMES.iter().find(|(bit, _)| self.contains(*bit)).map(|(_, name)| *name);
        named.or((self.0 != 0).then_some("an attribute that does not exist"))
    }
}

impl BitOr for AttrMask {
    type Output = AttrMask;
    fn bitor(self, rhs: AttrMask) -> AttrMask {
        AttrMask(self.0 | rhs.0)
    }
}

impl BitAnd for AttrMask {
    type Output = AttrMask;
    fn bitand(self, rhs: AttrMask) -> AttrMask {
        AttrMask(self.0 & rhs.0)
    }
}

impl fmt::Display for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            AttrMask::NAMES.iter().filter(|(bit, _)| self.contains(*bit)).map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "nothing" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttrMask({self})")
    }
}

/// The attributes that a change of state needs, and those that it also takes; the new state itself is in
/// neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The attributes that must be given.
    pub required: AttrMask,
    /// The attributes that may be given.
    pub optional: AttrMask,
}

/// The change from one state to another; `None` if there is none (IBTA table 91).
pub fn transition(service: Service, from: QpState, to: QpState) -> Option<Transition> {
    use AttrMask as A;
    use QpState::*;
    if service == Service::Raw {
        return raw_transition(from, to);
    }
    let is_ud = service == Service::Ud;
    // The halves that a service has: attributes of a missing half do not belong to it.
    let requests = service.is_reliable() && service.requests();
    let responds = service.is_reliable() && service.responds();
    let when = |has: bool, mask: A| if has { mask } else { A::NONE };
    let requester = when(service.is_reliable(), A::TIMEOUT)
        | when(requests, A::RETRY_COUNT | A::RNR_RETRY | A::MAX_RD_ATOMIC);
    let responder = when(responds, A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER);
    let rnr_timer = when(responds, A::MIN_RNR_TIMER);
    let identity = A::PKEY_INDEX | A::PORT | if is_ud { A::QKEY } else { A::ACCESS };
    // Attributes that a working queue pair takes.
    let running = A::CURRENT_STATE
        | A::RATE_LIMIT
        | if is_ud { A::QKEY } else { A::ALTERNATE_PATH | A::ACCESS | A::PATH_MIGRATION | rnr_timer };
    let (required, optional) = match (from, to) {
        (_, Reset | Error) => (A::NONE, A::NONE),
        (Reset, Init) => (identity, A::NONE),
        (Init, Init) => (A::NONE, identity),
        (Init, Rtr) if is_ud => (A::NONE, A::PKEY_INDEX | A::QKEY),
        (Init, Rtr) => (
            A::ADDRESS | A::PATH_MTU | A::REMOTE_QPN | A::RQ_PSN | responder,
            A::ALTERNATE_PATH | A::ACCESS | A::PKEY_INDEX,
        ),
        (Rtr, Rts) => (A::SQ_PSN | requester, running),
        (Rts, Rts) | (Sqd, Rts) => (A::NONE, running),
        // A reliable connection has no SQE: a failed send breaks it.
        (Sqe, Rts) if !service.is_reliable() => (A::NONE, running),
        (Rts, Sqd) => (A::NONE, A::NOTIFY_DRAINED),
        (Sqd, Sqd) if is_ud => (A::NONE, A::PKEY_INDEX | A::QKEY),
        (Sqd, Sqd) => {
            let path = A::ADDRESS | A::ALTERNATE_PATH | A::ACCESS | A::PKEY_INDEX | A::PATH_MIGRATION;
            (A::NONE, path | when(service.is_reliable(), A::PORT) | requester | responder)
        }
        _ => return None,
    };
    Some(Transition { required, optional })
}

/// A raw packet queue pair has a port and no peer, no key and no numbers.
fn raw_transition(from: QpState, to: QpState) -> Option<Transition> {
    use AttrMask as A;
    use QpState::*;
    let (required, optional) = match (from, to) {
        (_, Reset | Error) => (A::NONE, A::NONE),
        (Reset, Init) => (A::PORT, A::NONE),
        (Init, Init) => (A::NONE, A::PORT),
        (Init, Rtr) => (A::NONE, A::NONE),
        (Rtr | Rts | Sqd | Sqe, Rts) => (A::NONE, A::CURRENT_STATE | A::RATE_LIMIT),
        (Rts, Sqd) => (A::NONE, A::NOTIFY_DRAINED),
        (Sqd, Sqd) => (A::NONE, A::NONE),
        _ => return None,
    };
    Some(Transition { required, optional })
}

/// Checks which attributes are given for a change from one state to another. `given` may hold [`AttrMask::STATE`].
///
/// # Errors
/// There is no such change, it needs an attribute that was not given, or it does not take one that was.
pub fn check_attributes(
    service: Service,
    from: QpState,
    to: QpState,
    given: AttrMask,
) -> Result<(), ModifyError> {
    let Transition { required, optional } =
        transition(service, from, to).ok_or(ModifyError::WrongState { from, to })?;
    if let Some(name) = required.without(given).first_name() {
        return Err(ModifyError::Missing(name));
    }
    match given.without(required | optional | AttrMask::STATE).first_name() {
        Some(name) => Err(ModifyError::NotApplicable(name)),
        None => Ok(()),
    }
}

/// The whole table as text, which `docs/` shows and a test checks.
pub fn transition_table(service: Service) -> String {
    let mut text = String::new();
    for from in QpState::ALL {
        for to in QpState::ALL {
            if matches!(to, QpState::Reset | QpState::Error) {
                continue;
            }
            if let Some(Transition { required, optional }) = transition(service, from, to) {
                text += &format!("{service} {from} -> {to} needs {required}; takes {optional}\n");
            }
        }
    }
    text += &format!("{service} any -> RESET, ERR needs nothing; takes nothing\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_rc_is_the_specifications() {
        assert_eq!(
            transition_table(Service::Rc),
            "RC RESET -> INIT needs access, pkey_index, port; takes nothing\n\
             RC INIT -> INIT needs nothing; takes access, pkey_index, port\n\
             RC INIT -> RTR needs address, remote_qpn, path_mtu, rq_psn, max_dest_rd_atomic, min_rnr_timer; takes access, pkey_index, alternate_path\n\
             RC RTR -> RTS needs sq_psn, timeout, retry_count, rnr_retry, max_rd_atomic; takes current_state, access, min_rnr_timer, alternate_path, path_migration, rate_limit\n\
             RC RTS -> RTS needs nothing; takes current_state, access, min_rnr_timer, alternate_path, path_migration, rate_limit\n\
             RC RTS -> SQD needs nothing; takes notify_drained\n\
             RC SQD -> RTS needs nothing; takes current_state, access, min_rnr_timer, alternate_path, path_migration, rate_limit\n\
             RC SQD -> SQD needs nothing; takes access, pkey_index, port, address, timeout, retry_count, rnr_retry, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, alternate_path, path_migration\n\
             RC any -> RESET, ERR needs nothing; takes nothing\n"
        );
    }

    #[test]
    fn the_table_of_ud_is_the_specifications() {
        assert_eq!(
            transition_table(Service::Ud),
            "UD RESET -> INIT needs pkey_index, port, qkey; takes nothing\n\
             UD INIT -> INIT needs nothing; takes pkey_index, port, qkey\n\
             UD INIT -> RTR needs nothing; takes pkey_index, qkey\n\
             UD RTR -> RTS needs sq_psn; takes current_state, qkey, rate_limit\n\
             UD RTS -> RTS needs nothing; takes current_state, qkey, rate_limit\n\
             UD RTS -> SQD needs nothing; takes notify_drained\n\
             UD SQD -> RTS needs nothing; takes current_state, qkey, rate_limit\n\
             UD SQD -> SQD needs nothing; takes pkey_index, qkey\n\
             UD SQE -> RTS needs nothing; takes current_state, qkey, rate_limit\n\
             UD any -> RESET, ERR needs nothing; takes nothing\n"
        );
    }

    #[test]
    fn the_table_of_raw_packets_is_short() {
        assert_eq!(
            transition_table(Service::Raw),
            "RAW RESET -> INIT needs port; takes nothing\n\
             RAW INIT -> INIT needs nothing; takes port\n\
             RAW INIT -> RTR needs nothing; takes nothing\n\
             RAW RTR -> RTS needs nothing; takes current_state, rate_limit\n\
             RAW RTS -> RTS needs nothing; takes current_state, rate_limit\n\
             RAW RTS -> SQD needs nothing; takes notify_drained\n\
             RAW SQD -> RTS needs nothing; takes current_state, rate_limit\n\
             RAW SQD -> SQD needs nothing; takes nothing\n\
             RAW SQE -> RTS needs nothing; takes current_state, rate_limit\n\
             RAW any -> RESET, ERR needs nothing; takes nothing\n"
        );
    }

    #[test]
    fn the_halves_of_an_extended_connection_share_the_attributes_of_a_whole_one() {
        let change = |service, from, to| transition(service, from, to).expect("a change");
        for (from, to) in
            [(QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts), (QpState::Sqd, QpState::Sqd)]
        {
            let [rc, initiator, target] = [Service::Rc, Service::XrcInitiator, Service::XrcTarget]
                .map(|service| change(service, from, to));
            assert_eq!(rc.required, initiator.required | target.required, "{from} to {to}");
            assert_eq!(rc.optional, initiator.optional | target.optional, "{from} to {to}");
        }
        let target = change(Service::XrcTarget, QpState::Rtr, QpState::Rts);
        assert_eq!(target.required, AttrMask::SQ_PSN | AttrMask::TIMEOUT);
    }

    #[test]
    fn what_is_missing_and_what_does_not_belong_is_named() {
        let check = |given, expected| {
            assert_eq!(check_attributes(Service::Rc, QpState::Reset, QpState::Init, given), expected);
        };
        let init = AttrMask::STATE | AttrMask::ACCESS | AttrMask::PKEY_INDEX | AttrMask::PORT;
        check(init, Ok(()));
        check(init.without(AttrMask::PORT), Err(ModifyError::Missing("port")));
        check(init | AttrMask::QKEY, Err(ModifyError::NotApplicable("qkey")));
        check(init | AttrMask(1 << 30), Err(ModifyError::NotApplicable("an attribute that does not exist")));
    }
}
