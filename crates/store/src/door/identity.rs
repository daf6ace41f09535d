//! Who the other end of a conversation is, and what it may ask: a user by its name and password, or a node of the cluster by its proof.

use super::Conversation;
use crate::access::{Denied, End, NONCE_BYTES, Refusal, Role, Visitor, count, random};
use crate::error::StoreError;
use crate::message::{Answer, Request};

/// Whether the other end is a node of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Unknown,
    /// It has been asked to prove it: its nonce, and this node's.
    Challenged([u8; NONCE_BYTES], [u8; NONCE_BYTES]),
    Proved,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    Nothing,
    Role(Role),
    Node,
}

/// Who may ask this.
fn needed(request: &Request) -> Needed {
    match request {
        Request::Authenticate { .. } | Request::Challenge { .. } | Request::Prove { .. } => Needed::Nothing,
        Request::Get { .. }
        | Request::Scan { .. }
        | Request::Range { .. }
        | Request::Status
        | Request::Locate { .. }
        | Request::Milestones
        | Request::Reach
        | Request::Doors => Needed::Role(Role::Read),
        Request::Commit { writes, .. } if writes.is_empty() => Needed::Role(Role::Read),
        Request::Commit { .. } => Needed::Role(Role::Write),
        Request::Stop
        | Request::Backup { .. }
        | Request::Restore { .. }
        | Request::Leave
        | Request::Sweep { .. } => Needed::Role(Role::Admin),
        Request::Meet(_) => Needed::Node,
    }
}

/// Whether this visitor may ask this; `is_node`: it has proved that it is a node of the cluster.
pub(super) fn check(request: &Request, visitor: &mut Visitor, is_node: bool) -> Result<(), StoreError> {
    let needed = match (needed(request), is_node) {
        (Needed::Nothing, _) | (_, true) => return Ok(()),
        (Needed::Role(role), _) => role,
        (Needed::Node, _) => {
            count(&visitor.gate().counts.not_a_node);
            return Err(StoreError::Denied("only nodes of the cluster may ask this".into()));
        }
    };
    visitor.check(Some(needed)).map_err(|denied| {
        StoreError::Denied(match denied {
            Denied::Stranger => "this node has users: say who you are first".into(),
            Denied::Role => {
                format!("user {} may not do this: it needs the role {needed}", visitor.name())
            }
        })
    })
}

impl Conversation {
    /// Takes up what the other end says about itself; gives back any other request.
    pub(super) async fn introduce(&mut self, request: Request) -> Result<Request, Answer> {
        let counts = &self.store.keeper.gate.counts;
        match request {
            Request::Authenticate { user, password } => {
                // Another user must ask for its own way.
                self.reached = None;
                Err(match self.guest.visitor.enter(user.as_bytes(), password.as_bytes()).await {
                    // Who needs no name may have one.
                    Ok(()) | Err(Refusal::NoUsers) => Answer::Welcome,
                    Err(Refusal::Wrong) => Answer::Failed(StoreError::Denied(
                        "there is no such user, or its password is another".into(),
                    )),
                    Err(Refusal::Busy) => {
                        Answer::Failed(StoreError::Unavailable("too many passwords are being checked".into()))
                    }
                    Err(Refusal::Connections) => Answer::Failed(StoreError::Denied(format!(
                        "user {user} has as many connections as it may"
                    ))),
                })
            }
            Request::Challenge { nonce } => {
                let own =
                    random().map_err(|error| Answer::Failed(StoreError::Unavailable(error.to_string())))?;
                self.node = Node::Challenged(nonce, own);
                Err(Answer::Challenged {
                    nonce: own,
                    proof: self.store.key.prove(End::Answers, &nonce, &own),
                })
            }
            Request::Prove { proof } => {
                // Each challenge is answered once.
                let before = std::mem::replace(&mut self.node, Node::Unknown);
                match before {
                    Node::Challenged(asks, own)
                        if self.store.key.is_proved(End::Asks, &asks, &own, proof) =>
                    {
                        self.node = Node::Proved;
                        count(&counts.node);
                        Err(Answer::Welcome)
                    }
                    _ => {
                        count(&counts.not_a_node);
                        let why = "this is no proof that you are a node of this cluster";
                        Err(Answer::Failed(StoreError::Denied(why.into())))
                    }
                }
            }
            request => Ok(request),
        }
    }
}
