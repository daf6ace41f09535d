//! Channels, and the clients of this node that have subscribed to them.
//!
//! A message goes to those who are subscribers at this moment; nothing is kept for others. Each subscriber has an inbox of bounded length. One that
//! does not read fast enough loses its connection, not some of its messages.

use super::Hub;
use crate::door::Room;
use crate::resp::glob;
use crate::resp::reply::Reply;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The longest name of a channel, and the longest pattern: matching takes time in proportion to both.
pub(in crate::resp) const NAME_BYTES_MAX: usize = 512;
/// The longest message.
pub(in crate::resp) const MESSAGE_BYTES_MAX: usize = crate::rows::VALUE_BYTES_MAX;
/// What a subscriber has not read yet.
const INBOX_BYTES_MAX: usize = 8 << 20;
/// What a message takes in an inbox besides its bytes, about.
const PER_MESSAGE: usize = 128;
/// Channels and patterns of one client.
const SUBSCRIPTIONS_MAX: usize = 1 << 14;

/// A message, as a subscriber gets it.
#[derive(Clone, Debug)]
pub(in crate::resp) struct Message {
    /// The pattern that the channel matches, of a subscriber to a pattern.
    pattern: Option<Arc<[u8]>>,
    channel: Arc<[u8]>,
    payload: Arc<[u8]>,
}

impl Message {
    fn bytes(&self) -> usize {
        PER_MESSAGE + self.channel.len() + self.payload.len()
    }

    pub(in crate::resp) fn reply(&self) -> Reply {
        let bulk = |bytes: &Arc<[u8]>| Reply::Bulk(bytes.to_vec());
        let start = match &self.pattern {
            Some(pattern) => vec![Reply::bulk("pmessage"), bulk(pattern)],
            None => vec![Reply::bulk("message")],
        };
        Reply::Push([start, vec![bulk(&self.channel), bulk(&self.payload)]].concat())
    }
}

/// What a subscriber has not read yet.
#[derive(Debug)]
struct Letters {
    waiting: VecDeque<Message>,
    room: Room,
    /// It has not read fast enough: its connection is to end.
    is_over: bool,
}

/// What an inbox and the channels share.
#[derive(Debug)]
struct Slot {
    letters: Mutex<Letters>,
    bell: Notify,
}

impl Slot {
    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there was room.
    fn put(&self, message: Message) -> bool {
        let mut letters = self.letters();
        let bytes = message.bytes();
        let fits = !letters.is_over
            && letters.room.bytes() + bytes <= INBOX_BYTES_MAX
            && letters.room.take(bytes).is_ok();
        if fits {
            letters.waiting.push_back(message);
        } else {
            letters.is_over = true;
            letters.waiting = VecDeque::new();
            letters.room.shrink(0);
        }
        drop(letters);
        self.bell.notify_one();
        fits
    }
}

/// A subscriber's messages and subscriptions, which end with it.
#[derive(Debug)]
pub(in crate::resp) struct Inbox {
    hub: Arc<Hub>,
    id: u64,
    slot: Arc<Slot>,
    channels: HashSet<Vec<u8>>,
    patterns: HashSet<Vec<u8>>,
}

impl Inbox {
    pub(super) fn new(hub: Arc<Hub>, id: u64, room: Room) -> Inbox {
        let letters = Mutex::new(Letters { waiting: VecDeque::new(), room, is_over: false });
        let slot = Arc::new(Slot { letters, bell: Notify::new() });
        Inbox { hub, id, slot, channels: HashSet::new(), patterns: HashSet::new() }
    }

    /// The number of subscriptions.
    pub(in crate::resp) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// The bytes of their names, about.
    pub(in crate::resp) fn held(&self) -> usize {
        self.channels.iter().chain(&self.patterns).map(|name| 2 * (name.len() + PER_MESSAGE)).sum()
    }

    pub(in crate::resp) fn names(&self, is_pattern: bool) -> Vec<Vec<u8>> {
        let names = if is_pattern { &self.patterns } else { &self.channels };
        let mut names: Vec<Vec<u8>> = names.iter().cloned().collect();
        names.sort_unstable();
        names
    }

    /// # Errors
    /// There are too many, or the name is too long.
    pub(in crate::resp) fn subscribe(&mut self, name: &[u8], is_pattern: bool) -> Result<(), Reply> {
        if name.len() > NAME_BYTES_MAX {
            return Err(name_too_long());
        }
        if self.count() >= SUBSCRIPTIONS_MAX {
            return Err(Reply::error(format!(
                "ERR a client subscribes to at most {SUBSCRIPTIONS_MAX} channels and patterns"
            )));
        }
        let names = if is_pattern { &mut self.patterns } else { &mut self.channels };
        if names.insert(name.to_vec()) {
            self.hub.channels().add(name, is_pattern, self.id, &self.slot);
        }
        Ok(())
    }

    pub(in crate::resp) fn unsubscribe(&mut self, name: &[u8], is_pattern: bool) {
        let names = if is_pattern { &mut self.patterns } else { &mut self.channels };
        if names.remove(name) {
            self.hub.channels().remove(name, is_pattern, self.id);
        }
    }

    /// The next message.
    pub(in crate::resp) fn next(&self) -> Option<Message> {
        let mut letters = self.slot.letters();
        let message = letters.waiting.pop_front()?;
        let rest = letters.room.bytes().saturating_sub(message.bytes());
        letters.room.shrink(rest);
        Some(message)
    }

    pub(in crate::resp) fn is_empty(&self) -> bool {
        self.slot.letters().waiting.is_empty()
    }

    /// Whether the client has not read fast enough.
    pub(in crate::resp) fn is_over(&self) -> bool {
        self.slot.letters().is_over
    }

    /// Waits until there is something new.
    pub(in crate::resp) async fn changed(&self) {
        self.slot.bell.notified().await;
    }

    /// Waits until it is known that the client does not read fast enough.
    pub(in crate::resp) async fn over(&self) {
        while !self.is_over() {
            self.changed().await;
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut channels = self.hub.channels();
        for (names, is_pattern) in [(&self.channels, false), (&self.patterns, true)] {
            names.iter().for_each(|name| channels.remove(name, is_pattern, self.id));
        }
    }
}

pub(in crate::resp) fn name_too_long() -> Reply {
    Reply::error(format!("ERR the name of a channel, and a pattern, have at most {NAME_BYTES_MAX} bytes"))
}

type Subscribers = BTreeMap<u64, Arc<Slot>>;

/// The subscribers of a node.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_name: HashMap<Vec<u8>, Subscribers>,
    by_pattern: BTreeMap<Vec<u8>, Subscribers>,
    /// Messages that did not reach a subscriber.
    pub(super) dropped: u64,
}

impl Channels {
    fn add(&mut self, name: &[u8], is_pattern: bool, id: u64, slot: &Arc<Slot>) {
        let subscribers = match is_pattern {
            true => self.by_pattern.entry(name.to_vec()).or_default(),
            false => self.by_name.entry(name.to_vec()).or_default(),
        };
        subscribers.insert(id, Arc::clone(slot));
    }

    fn remove(&mut self, name: &[u8], is_pattern: bool, id: u64) {
        let subscribers = match is_pattern {
            true => self.by_pattern.get_mut(name),
            false => self.by_name.get_mut(name),
        };
        let Some(subscribers) = subscribers else { return };
        subscribers.remove(&id);
        if subscribers.is_empty() {
            match is_pattern {
                true => drop(self.by_pattern.remove(name)),
                false => drop(self.by_name.remove(name)),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.by_pattern.is_empty()
    }

    /// All subscriptions.
    pub(super) fn count(&self) -> usize {
        self.by_name.values().chain(self.by_pattern.values()).map(BTreeMap::len).sum()
    }

    /// Gives a message to its subscribers; returns how many there are.
    pub(super) fn deliver(&mut self, channel: &[u8], payload: &[u8]) -> u64 {
        let mut message: Option<Message> = None;
        let mut reached = 0;
        let exact = self.by_name.get(channel).map(|subscribers| (None, subscribers));
        let matching = self.by_pattern.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        let matching = matching.map(|(pattern, subscribers)| (Some(pattern), subscribers));
        for (pattern, subscribers) in exact.into_iter().chain(matching) {
            let message = message.get_or_insert_with(|| Message {
                pattern: None,
                channel: channel.into(),
                payload: payload.into(),
            });
            let message =
                Message { pattern: pattern.map(|pattern| pattern.as_slice().into()), ..message.clone() };
            for slot in subscribers.values() {
                match slot.put(message.clone()) {
                    true => reached += 1,
                    false => self.dropped += 1,
                }
            }
        }
        reached
    }
}

impl Hub {
    /// The channels of this node that have subscribers, those to patterns not counted.
    pub(in crate::resp) fn channel_names(&self, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let channels = self.channels();
        let is_wanted = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        let mut names: Vec<Vec<u8>> = channels.by_name.keys().filter(is_wanted).cloned().collect();
        names.sort_unstable();
        names
    }

    /// The subscribers of a channel at this node.
    pub(in crate::resp) fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels().by_name.get(channel).map_or(0, BTreeMap::len)
    }

    /// Patterns to which clients of this node have subscribed.
    pub(in crate::resp) fn patterns(&self) -> usize {
        self.channels().by_pattern.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(hub: &Arc<Hub>) -> Inbox {
        hub.subscriber(Room::new(&Arc::default(), INBOX_BYTES_MAX))
    }

    #[test]
    fn a_message_reaches_those_who_have_subscribed_once_for_each_subscription() {
        let hub = Arc::<Hub>::default();
        let (mut one, mut other) = (inbox(&hub), inbox(&hub));
        one.subscribe(b"news", false).expect("room");
        one.subscribe(b"n*", true).expect("room");
        other.subscribe(b"news", false).expect("room");
        other.subscribe(b"news", false).expect("no second one");
        assert_eq!(hub.channels().deliver(b"news", b"1"), 3);
        assert_eq!(hub.channels().deliver(b"night", b"2"), 1);
        assert_eq!(hub.channels().deliver(b"other", b"3"), 0);
        let all = |inbox: &Inbox| std::iter::from_fn(|| inbox.next()).count();
        assert_eq!((all(&one), all(&other)), (3, 1));
        assert_eq!((hub.subscribers(b"news"), hub.patterns(), hub.channel_names(None).len()), (2, 1, 1));
        one.unsubscribe(b"news", false);
        drop(other);
        assert_eq!(hub.channels().deliver(b"news", b"4"), 1);
        drop(one);
        assert!(hub.channels().is_empty());
    }

    #[test]
    fn one_who_does_not_read_holds_no_more_than_an_inbox_and_is_over() {
        let hub = Arc::<Hub>::default();
        let total = Arc::default();
        let mut slow = hub.subscriber(Room::new(&total, INBOX_BYTES_MAX));
        let mut quick = inbox(&hub);
        slow.subscribe(b"c", false).expect("room");
        quick.subscribe(b"c", false).expect("room");
        let payload = vec![7; 1 << 20];
        let rounds = INBOX_BYTES_MAX / payload.len();
        for round in 0..2 * rounds {
            let reached = hub.channels().deliver(b"c", &payload);
            assert_eq!(reached, if round < rounds - 1 { 2 } else { 1 }, "{round}");
            assert!(quick.next().is_some());
        }
        assert!(slow.is_over() && slow.next().is_none() && !quick.is_over());
        assert_eq!(total.bytes()[0], 0);
        assert!(total.bytes()[1] <= INBOX_BYTES_MAX);
        assert_eq!(hub.channels().dropped as usize, rounds + 1);
    }

    #[test]
    fn subscriptions_are_limited() {
        let hub = Arc::<Hub>::default();
        let mut one = inbox(&hub);
        for number in 0..SUBSCRIPTIONS_MAX {
            one.subscribe(number.to_string().as_bytes(), number % 2 == 0).expect("room");
        }
        assert!(one.subscribe(b"one more", false).is_err());
        one.unsubscribe(b"0", true);
        one.subscribe(b"one more", false).expect("room");
        assert!(one.subscribe(&[7; NAME_BYTES_MAX + 1], true).is_err());
    }
}
