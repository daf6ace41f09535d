//! `SUBSCRIBE` and its kind, `PUBLISH` and `PUBSUB`.
//!
//! Messages are best effort: they go to who is a subscriber at that moment, at every node that answers.

use super::hub::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX, name_too_long};
use super::reply::Reply;
use super::session::Session;
use super::{Words, upper};
use crate::door::Room;

/// What one subscriber may hold; its inbox knows its own limit.
const ROOM_BYTES: usize = 16 << 20;

/// Whether a command changes what a client has subscribed to.
pub(super) fn subscribes(name: &str) -> bool {
    matches!(name, "PSUBSCRIBE" | "PUNSUBSCRIBE" | "SUBSCRIBE" | "UNSUBSCRIBE")
}

/// Whether a subscriber may give this command in the second version of the protocol, where a message cannot be told from a reply.
pub(super) fn may_subscriber(name: &str) -> bool {
    subscribes(name) || matches!(name, "PING" | "QUIT" | "RESET")
}

/// What is said to other commands of a subscriber.
pub(super) fn not_now(name: &str) -> Reply {
    Reply::error(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        name.to_lowercase()
    ))
}

/// Subscribes or unsubscribes: one reply for each name.
pub(super) fn change(session: &mut Session, name: &str, words: &Words) -> Reply {
    let (is_pattern, is_end) = (name.starts_with('P'), name.contains("UNSUB"));
    let kind = name.to_lowercase();
    let mut names = words[1..].to_vec();
    if is_end && names.is_empty() {
        names = session.inbox.as_ref().map(|inbox| inbox.names(is_pattern)).unwrap_or_default();
        if names.is_empty() {
            let count = session.inbox.as_ref().map_or(0, |inbox| inbox.count());
            return Reply::Push(vec![Reply::bulk(kind), Reply::Nil, Reply::Integer(count as i64)]);
        }
    }
    let mut replies = Vec::with_capacity(names.len());
    for name in names {
        let count = match is_end {
            true => session.inbox.as_mut().map_or(0, |inbox| {
                inbox.unsubscribe(&name, is_pattern);
                inbox.count()
            }),
            false => {
                let (hub, total) = (&session.store.hub, &session.store.keeper.total);
                let inbox = session.inbox.get_or_insert_with(|| hub.subscriber(Room::new(total, ROOM_BYTES)));
                if let Err(why) = inbox.subscribe(&name, is_pattern) {
                    replies.push(why);
                    break;
                }
                inbox.count()
            }
        };
        let words = vec![Reply::bulk(kind.clone()), Reply::Bulk(name), Reply::Integer(count as i64)];
        replies.push(Reply::Push(words));
    }
    if session.inbox.as_ref().is_some_and(|inbox| inbox.count() == 0) {
        // What was still to be read was of channels that the client has left.
        session.inbox = None;
    }
    Reply::Several(replies)
}

/// `PUBLISH channel message`.
pub(super) async fn publish(session: &Session, words: &Words) -> Reply {
    let [_, channel, payload] = &words[..] else { return Reply::wrong_arity("publish") };
    if channel.len() > NAME_BYTES_MAX {
        return name_too_long();
    }
    if payload.len() > MESSAGE_BYTES_MAX {
        return Reply::error(format!("ERR a message has at most {MESSAGE_BYTES_MAX} bytes"));
    }
    let store = &session.store;
    Reply::Integer(store.hub.publish(store, channel.clone(), payload.clone()).await as i64)
}

/// A subcommand of `PUBSUB`, which exists and has as many words as it must. Each is about this node alone, as in a cluster of Redis.
pub(super) fn answer(session: &Session, sub: &str, words: &Words) -> Reply {
    let hub = &session.store.hub;
    match sub {
        "CHANNELS" => {
            let pattern = words.get(2).map(|word| &word[..]);
            if pattern.is_some_and(|pattern| pattern.len() > NAME_BYTES_MAX) {
                return name_too_long();
            }
            Reply::Array(hub.channel_names(pattern).into_iter().map(Reply::Bulk).collect())
        }
        "NUMSUB" => {
            let count =
                |name: &Vec<u8>| [Reply::Bulk(name.clone()), Reply::Integer(hub.subscribers(name) as i64)];
            Reply::Array(words[2..].iter().flat_map(count).collect())
        }
        "NUMPAT" => Reply::Integer(hub.patterns() as i64),
        "HELP" => {
            let lines = [
                "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CHANNELS [<pattern>], NUMSUB [<channel> ...], NUMPAT",
                "HELP",
                "    Prints this help.",
            ];
            Reply::Array(lines.map(|line| Reply::Simple(line.into())).to_vec())
        }
        _ => Reply::error(format!(
            "ERR 'PUBSUB {}' is not promised by this store; see docs/store-redis.md",
            upper(sub.as_bytes())
        )),
    }
}
