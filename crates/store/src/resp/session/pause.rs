//! What a client does between its commands, and in one that waits: its socket, its channels, a bell and a deadline are looked at together.

use super::{End, Out, PORTION_BYTES, Session};
use crate::access::Role;
use crate::door::{ANSWER_BYTES_MAX, Room};
use crate::error::StoreError;
use crate::resp::hub::Inbox;
use crate::resp::parse::Parser;
use crate::resp::reply::Reply;
use crate::resp::waiting::{self, Asked};
use crate::resp::{Hub, Words};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What a client may send behind a command that waits.
const BEHIND_BYTES_MAX: usize = 1 << 20;
/// The pause after a try that failed because too few members answer.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(50);

/// Why a pause has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// Bytes have come.
    Input,
    /// The client is gone, or is to go.
    End,
    Bell,
    Deadline,
}

/// The result of the future that is ready first.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Pending => other.as_mut().poll(cx),
        ready => ready,
    })
    .await
}

async fn ring(bell: Option<&Notify>) -> Woken {
    match bell {
        Some(bell) => bell.notified().await,
        None => std::future::pending().await,
    }
    Woken::Bell
}

async fn pass(deadline: Option<Instant>) -> Woken {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
    Woken::Deadline
}

/// Writes what has been gathered. `false`: the subscriber does not read fast enough, and is not waited for.
async fn write(inbox: &Inbox, out: &mut Out<'_>) -> io::Result<bool> {
    let written = async { out.flush().await.map(|()| true) };
    let over = async {
        inbox.over().await;
        Ok(false)
    };
    first(written, over).await
}

impl Session {
    /// Whether messages cannot be told from replies, so that a subscriber may do nothing else.
    pub(super) fn is_only_subscriber(&self) -> bool {
        !self.is_resp3 && self.inbox.is_some()
    }

    /// Waits for the next bytes of a subscriber, and gives it its messages meanwhile. `false`: the conversation is over.
    pub(super) async fn hear(&mut self, parser: &mut Parser, out: &mut Out<'_>) -> io::Result<bool> {
        Ok(self.pause(parser, out, None, None).await? == Woken::Input)
    }

    /// Waits for bytes, for a bell or for a deadline. Messages of channels are written meanwhile.
    async fn pause(
        &mut self,
        parser: &mut Parser,
        out: &mut Out<'_>,
        bell: Option<&Notify>,
        deadline: Option<Instant>,
    ) -> io::Result<Woken> {
        loop {
            if !self.deliver(out).await? {
                return Ok(Woken::End);
            }
            let message = async {
                match &self.inbox {
                    Some(inbox) => inbox.changed().await,
                    None => std::future::pending().await,
                }
                Ok(None)
            };
            let input = async { out.stream.readable().await.map(|()| Some(Woken::Input)) };
            let event = async { Ok(Some(first(ring(bell), pass(deadline)).await)) };
            // A client that is gone must not be given an element.
            match first(input, first(message, event)).await? {
                Some(Woken::Input) => match out.stream.read_come(|bytes| parser.feed(bytes)).await? {
                    Some(0) => return Ok(Woken::End),
                    Some(_) => return Ok(Woken::Input),
                    None => {}
                },
                Some(woken) => return Ok(woken),
                None => {}
            }
        }
    }

    /// Writes the messages that have come. `false`: the client has not read enough of them, or may not have them any more.
    pub(super) async fn deliver(&mut self, out: &mut Out<'_>) -> io::Result<bool> {
        let Some(inbox) = &self.inbox else { return Ok(true) };
        if self.visitor.may(Some(Role::Read)).is_err() {
            out.put(&Reply::error("NOPERM this user may read no channels any more"));
            self.end = Some(End::Malformed);
            out.flush().await?;
            return Ok(false);
        }
        loop {
            while let Some(message) = inbox.next() {
                out.put(&message.reply());
                if out.bytes.len() >= PORTION_BYTES {
                    break;
                }
            }
            if inbox.is_over() || !write(inbox, out).await? {
                self.end = Some(End::Subscriber);
                return Ok(false);
            }
            // What has come while this was written has rung already.
            if inbox.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Carries out a command that waits, and writes its reply.
    pub(super) async fn wait(
        &mut self,
        words: &Words,
        parser: &mut Parser,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        self.visitor.pace(1).await;
        let asked = match Asked::parse(words) {
            Ok(asked) => asked,
            Err(reply) => {
                out.put(&reply);
                return Ok(());
            }
        };
        // What stands before it must be read while it waits.
        let (reply, _held) = match self.take_or_wait(&asked, parser, out).await? {
            Some(found) => found,
            None => return Ok(()),
        };
        out.put(&reply);
        out.flush_if_long().await
    }

    /// The reply, and its room; `None`: the client is gone.
    async fn take_or_wait(
        &mut self,
        asked: &Asked,
        parser: &mut Parser,
        out: &mut Out<'_>,
    ) -> io::Result<Option<(Reply, Option<Room>)>> {
        let (store, hub) = (self.store.clone(), self.store.hub.clone());
        let deadline = asked.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let place = hub.enter(asked.keys());
        let (mut has_waited, mut is_unhinted) = (false, false);
        // The keys of which the other nodes know, and when they are told again.
        let (mut told, mut tell_again) = (Vec::new(), Instant::now());
        loop {
            let is_turn = place.is_turn();
            let is_my_turn = is_turn.contains(&true);
            let mut pause = waiting::PAUSE;
            if is_my_turn || !has_waited {
                let room = Room::new(&store.keeper.total, ANSWER_BYTES_MAX);
                match asked.attempt(&store, &place, has_waited, room).await {
                    Ok((Some(reply), room)) => {
                        if has_waited {
                            hub.served.fetch_add(1, Ordering::Relaxed);
                            hub.rescued.fetch_add(u64::from(is_unhinted), Ordering::Relaxed);
                        }
                        if let Some(key) = asked.fills() {
                            waiting::announce(&hub, &store, std::slice::from_ref(key));
                        }
                        return Ok(Some((reply, Some(room))));
                    }
                    Ok((None, _)) => {}
                    // Nothing was taken: a client that has waited for so long goes on.
                    Err(StoreError::Conflict | StoreError::Unavailable(_)) if has_waited => {
                        pause = UNAVAILABLE_PAUSE;
                    }
                    Err(error) => return Ok(Some((Reply::failed(&error), None))),
                }
                if is_my_turn && (told != is_turn || tell_again <= Instant::now()) {
                    Hub::tell_waiting(&store, &place, &is_turn);
                    (told, tell_again) = (is_turn, Instant::now() + waiting::PAUSE);
                }
            }
            has_waited = true;
            let next_try = Instant::now() + pause;
            let until = deadline.map_or(next_try, |deadline| deadline.min(next_try));
            out.flush().await?;
            loop {
                match self.pause(parser, out, Some(&place.bell), Some(until)).await? {
                    Woken::End => {
                        // The end of its connection is found again by who reads it.
                        self.end.get_or_insert(End::Quit);
                        return Ok(None);
                    }
                    Woken::Input if parser.held() > BEHIND_BYTES_MAX => {
                        self.end = Some(End::Malformed);
                        let why =
                            format!("ERR at most {BEHIND_BYTES_MAX} bytes may follow a command that waits");
                        return Ok(Some((Reply::error(why), None)));
                    }
                    Woken::Input => {}
                    Woken::Bell => {
                        is_unhinted = false;
                        break;
                    }
                    Woken::Deadline if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                        return Ok(Some((Reply::NilArray, None)));
                    }
                    Woken::Deadline => {
                        is_unhinted = true;
                        break;
                    }
                }
            }
        }
    }
}
