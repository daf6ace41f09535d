//! Each state's reaction to each message (IBTA §12.9.7, and decisions that the specification leaves open).

use std::fmt::Write as _;

use highwire_wire::cm::CmAttribute;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// At the requester: the REQ was sent.
    ReqSent,
    /// At the requester: a REP came, and the application has not yet established the connection.
    RepReceived,
    /// At the responder: the application has not yet accepted or rejected the request.
    ReqReceived,
    /// At the responder: the REP was sent.
    RepSent,
    /// In use.
    Established,
    /// This end has sent a DREQ.
    DreqSent,
    /// Ended, and remembered for a while.
    Timewait,
    /// It was refused, or failed otherwise.
    Closed,
}

/// The reaction of a connection to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// None: the message is late, early or a repetition.
    Ignore,
    /// The application gets the request; until it decides, repetitions get an MRA.
    Proceed,
    /// The connection is in use.
    Establish,
    /// The peer wants more time.
    Wait,
    /// The peer repeats its message, as it may not have received the last one of this end: send that again.
    Repeat,
    /// The peer repeats its message, and the application has not decided: ask for more time.
    Delay,
    /// The connection will never be in use.
    Abandon,
    /// Answer with a DREP: the peer ends the connection.
    Part,
    /// The peer agrees to the end.
    Parted,
    /// The peer has forgotten the connection.
    Lost,
}

/// Every state, in the table's order.
pub const STATES: [State; 8] = [
    State::ReqSent,
    State::RepReceived,
    State::ReqReceived,
    State::RepSent,
    State::Established,
    State::DreqSent,
    State::Timewait,
    State::Closed,
];

/// The reaction of a connection in `state` to `message`.
pub fn answer(state: State, message: CmAttribute) -> Answer {
    use CmAttribute as M;
    use State as S;
    match (state, message) {
        (S::ReqSent, M::Rep) => Answer::Proceed,
        (S::ReqSent | S::RepSent, M::Mra) => Answer::Wait,
        (S::ReqSent | S::RepReceived | S::ReqReceived | S::RepSent, M::Rej) => Answer::Abandon,
        (S::RepReceived, M::Rep) | (S::ReqReceived, M::Req) => Answer::Delay,
        (S::RepSent | S::Closed, M::Req) | (S::Established | S::Closed, M::Rep) | (S::Timewait, M::Dreq) => {
            Answer::Repeat
        }
        (S::RepSent, M::Rtu) => Answer::Establish,
        // The peer may end a connection that this end has not yet seen begin: its RTU, or this end's RTU, was
        // lost.
        (S::RepReceived | S::RepSent | S::Established | S::DreqSent, M::Dreq) => Answer::Part,
        (S::DreqSent, M::Drep) => Answer::Parted,
        (S::Established | S::DreqSent, M::Rej) => Answer::Lost,
        // The peer's answer that it no longer knows the connection.
        (S::RepSent | S::Established, M::Drep) => Answer::Lost,
        _ => Answer::Ignore,
    }
}

/// The table as text, for the documentation.
pub fn render() -> String {
    const MESSAGES: [CmAttribute; 7] = [
        CmAttribute::Req,
        CmAttribute::Mra,
        CmAttribute::Rej,
        CmAttribute::Rep,
        CmAttribute::Rtu,
        CmAttribute::Dreq,
        CmAttribute::Drep,
    ];
    let mut text = format!("{:<12}", "");
    for message in MESSAGES {
        let _ = write!(text, " {:<10}", message.as_str());
    }
    for state in STATES {
        text.truncate(text.trim_end().len());
        let _ = write!(text, "\n{:<12}", format!("{state:?}"));
        for message in MESSAGES {
            let cell = match answer(state, message) {
                Answer::Ignore => "·".to_string(),
                answer => format!("{answer:?}").to_lowercase(),
            };
            let _ = write!(text, " {cell:<10}");
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
