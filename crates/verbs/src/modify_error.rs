//! Why a queue pair was not changed.

use crate::qp_state::QpState;

/// Why a change was refused. The queue pair is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModifyError {
    /// There is no such queue pair.
    NoSuchQp,
    /// No such change of state.
    WrongState {
        /// The state it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// The change needs an attribute that was not given.
    Missing(&'static str),
    /// The attribute's value is out of its range.
    OutOfRange(&'static str),
    /// The attribute does not belong to the service or the state.
    NotApplicable(&'static str),
}

impl std::fmt::Display for ModifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ModifyError::NoSuchQp => f.write_str("there is no such queue pair"),
            ModifyError::WrongState { from, to } => write!(f, "a queue pair does not go from {from} to {to}"),
            ModifyError::Missing(name) => write!(f, "the change needs `{name}`"),
            ModifyError::OutOfRange(name) => write!(f, "`{name}` is out of range"),
            ModifyError::NotApplicable(name) => write!(f, "`{name}` does not apply here"),
        }
    }
}

impl std::error::Error for ModifyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_wrong() {
        let check = |error: ModifyError, words: &[&str]| {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        check(ModifyError::NoSuchQp, &["no such queue pair"]);
        check(ModifyError::WrongState { from: QpState::Reset, to: QpState::Rts }, &["from RESET to RTS"]);
        check(ModifyError::Missing("rq_psn"), &["needs", "rq_psn"]);
        check(ModifyError::OutOfRange("timeout"), &["timeout", "range"]);
        check(ModifyError::NotApplicable("qkey"), &["qkey", "not apply"]);
    }
}
