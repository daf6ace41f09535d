//! From whole messages to words in a core's queue: the selectors of all contexts, and the buses behind them.
//!
//! ```text
//! flat:  messages ─► selector ─► bus ─► cores
//! tree:  messages ─► upper level ─► trunk ─► group's selector ─► its bus ─► its cores
//! ```
//!
//! A bus carries one message at a time, a word a cycle. In a tree words pass through: a group's bus follows the trunk.

use std::collections::{BTreeMap, VecDeque};

use super::NicConfig;
use super::select::Selector;
use super::selection::Selection;
use super::timing::SelectionTiming;
use super::tree::{Joined, Tree};
use crate::packet::{AppHeader, words_of};

/// A whole message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) context: u16,
    pub(crate) header: AppHeader,
    pub(crate) payload: Vec<u8>,
    /// Whether the payload follows in parts, under the sender's address and message number.
    pub(crate) stream: Option<StreamKey>,
    /// The sender's address and the message's number, as reassembly knows them.
    pub(crate) key: StreamKey,
    /// The length for which its memory was taken; at least its own.
    pub(crate) memory_bytes: u16,
}

/// A message that goes to its core while it arrives.
pub(crate) type StreamKey = (u32, u16);

impl Message {
    fn words(&self) -> VecDeque<u64> {
        std::iter::once(self.header.word()).chain(words_of(&self.payload)).collect()
    }

    /// Words on a bus.
    fn bus_words(&self) -> u64 {
        1 + u64::from(self.header.bytes).div_ceil(8)
    }

    /// Its memory, and when that is free: when the first word leaves it, as on the prototype, or the last.
    fn released(&self, cycle: u64, is_held_to_the_end: bool) -> Released {
        let due = if is_held_to_the_end { cycle + self.bus_words() - 1 } else { cycle };
        Released { due, bytes: self.memory_bytes, context: self.context }
    }

    /// Its memory, if that is free at once.
    pub(crate) fn released_at_once(&self, cycle: u64) -> Released {
        Released { due: cycle, bytes: self.memory_bytes, context: self.context }
    }

    /// Words of 64 bytes in a context's queue: the header comes first.
    fn queue_words(&self) -> usize {
        (8 + usize::from(self.header.bytes)).div_ceil(64)
    }

    /// A hash of the flow, by which RSS selects.
    fn flow_hash(&self) -> u64 {
        let flow = u64::from(self.header.peer) << 16 | u64::from(self.header.context);
        let mixed = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

/// A word on its way into a core's receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliveredWord {
    /// The core.
    pub core: usize,
    /// The context whose queue it is for.
    pub context: u16,
    /// The word.
    pub word: u64,
    /// Whether it begins a message.
    pub is_first: bool,
}

/// The selector of one context.
#[derive(Clone, Debug)]
enum Spread {
    Flat(Selector<Message>),
    Tree(Tree<Message>),
}

/// Messages in line for a bus, and the one on it.
#[derive(Clone, Debug, Default)]
struct Bus {
    /// The first cycle in which a word may be on it, and for which core or group it is.
    assigned: VecDeque<(u64, usize, Message)>,
    /// When the message on it has passed.
    free: u64,
}

impl Bus {
    fn line_up(&mut self, due: u64, place: usize, messages: impl IntoIterator<Item = Message>) {
        self.assigned.extend(messages.into_iter().map(|message| (due, place, message)));
    }

    /// The message that begins in this cycle.
    fn begin(&mut self, cycle: u64) -> Option<(usize, Message)> {
        let is_due = self.free <= cycle && self.assigned.front().is_some_and(|&(due, ..)| due <= cycle);
        let (_, place, message) = is_due.then(|| self.assigned.pop_front())??;
        self.free = cycle + message.bus_words();
        Some((place, message))
    }

    fn next_event(&self) -> Option<u64> {
        self.assigned.front().map(|&(due, ..)| due.max(self.free))
    }
}

/// A message on its way into a core's queue, a word per cycle.
#[derive(Clone, Debug)]
struct Delivery {
    core: usize,
    context: u16,
    words: VecDeque<u64>,
    is_first: bool,
    /// The stream that brings its payload, and the words still to come.
    stream: Option<(StreamKey, u64)>,
    bytes: u16,
}

impl Delivery {
    fn new((core, message): (usize, Message)) -> Delivery {
        let stream = message.stream.map(|key| (key, message.bus_words() - 1));
        let bytes = message.memory_bytes;
        Delivery { core, context: message.context, words: message.words(), is_first: true, stream, bytes }
    }

    fn next_word(&mut self, cycle: u64, streams: &mut Streams) -> Option<DeliveredWord> {
        if let Some((key, missing)) = &mut self.stream
            && self.words.is_empty()
            && let Some(parts) = streams.get_mut(key)
            && parts.front().is_some_and(|&(due, _)| due <= cycle)
            && let Some((_, words)) = parts.pop_front()
        {
            *missing -= words.len() as u64;
            self.words = words;
        }
        let word = self.words.pop_front()?;
        let is_first = std::mem::replace(&mut self.is_first, false);
        Some(DeliveredWord { core: self.core, context: self.context, word, is_first })
    }
}

/// A bus whose words enter cores' queues.
#[derive(Clone, Debug, Default)]
struct LastBus {
    bus: Bus,
    delivery: Option<Delivery>,
}

impl LastBus {
    /// One cycle: moves a word, and calls `on_begin` with a message that begins. Memory of a stream is free with its last word.
    fn tick(
        &mut self,
        cycle: u64,
        streams: &mut Streams,
        mut on_begin: impl FnMut(&Message),
    ) -> (Option<DeliveredWord>, Option<Released>) {
        if self.delivery.is_none()
            && let Some(begun) = self.bus.begin(cycle)
        {
            on_begin(&begun.1);
            self.delivery = Some(Delivery::new(begun));
        }
        let Some(delivery) = &mut self.delivery else { return (None, None) };
        let word = delivery.next_word(cycle, streams);
        let mut released = None;
        if delivery.words.is_empty() && delivery.stream.is_none_or(|(_, missing)| missing == 0) {
            if let Some((key, _)) = delivery.stream {
                streams.remove(&key);
                released = Some(Released { due: cycle, bytes: delivery.bytes, context: delivery.context });
            }
            self.delivery = None;
        }
        (word, released)
    }

    fn next_event(&self) -> Option<u64> {
        // A word leaves in every cycle.
        self.delivery.as_ref().map(|_| 0).or(self.bus.next_event())
    }
}

/// A core's "done" on its way to the NIC.
#[derive(Clone, Copy, Debug)]
struct Done {
    due: u64,
    core: usize,
    context: u16,
}

/// Memory of a message that is no longer needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Released {
    due: u64,
    pub(crate) bytes: u16,
    pub(crate) context: u16,
}

/// The block.
#[derive(Clone, Debug)]
pub(crate) struct Dispatch {
    selection: Selection,
    cores: usize,
    timing: SelectionTiming,
    is_held_to_the_end: bool,
    /// The caller has given a message's memory back before it comes here.
    is_released_before: bool,
    contexts: BTreeMap<u16, Spread>,
    next_choice: u64,
    done: VecDeque<Done>,
    /// From the NIC to groups, if there are any.
    trunk: Bus,
    /// Messages at their groups, and when those have chosen a core.
    at_groups: VecDeque<(u64, usize, Message)>,
    /// The buses to cores: one, or one of each group.
    buses: Vec<LastBus>,
    released: VecDeque<Released>,
    streams: Streams,
}

/// Words of streams that have arrived in order, and when each part may be on a bus.
type Streams = BTreeMap<StreamKey, VecDeque<(u64, VecDeque<u64>)>>;

impl Dispatch {
    /// `is_held_to_the_end`: whether memory is in use until a message's last word has left it.
    pub(crate) fn new(config: &NicConfig, cores: usize, is_held_to_the_end: bool) -> Dispatch {
        let selection = config.selection;
        let buses = match selection {
            Selection::Tree(shape) => shape.groups(cores),
            Selection::Jbsq(_) | Selection::Rss => 1,
        };
        let timing = match config.selection_slows {
            true => SelectionTiming::estimate(selection, cores),
            false => SelectionTiming::PROTOTYPE,
        };
        Dispatch {
            selection,
            cores,
            timing,
            is_held_to_the_end,
            is_released_before: false,
            contexts: BTreeMap::new(),
            next_choice: 0,
            done: VecDeque::new(),
            trunk: Bus::default(),
            at_groups: VecDeque::new(),
            buses: vec![LastBus::default(); buses],
            released: VecDeque::new(),
            streams: Streams::new(),
        }
    }

    /// From now on messages have given their memory back before they come here.
    pub(crate) fn released_before(self) -> Dispatch {
        Dispatch { is_released_before: true, ..self }
    }

    /// Whether the queue of the message's context, of so many words of 64 bytes, has room for it, or a core takes it.
    pub(crate) fn has_room(&self, message: &Message, context_words: usize) -> bool {
        let Some(Spread::Flat(selector)) = self.contexts.get(&message.context) else { return true };
        let used: usize = selector.iter().map(Message::queue_words).sum();
        used == 0 || used + message.queue_words() <= context_words
    }

    /// Whether any core has the context.
    pub(crate) fn has(&self, context: u16) -> bool {
        self.contexts.contains_key(&context)
    }

    /// A core has a thread for `context`.
    pub(crate) fn insert(&mut self, cycle: u64, core: usize, context: u16) {
        let (selection, cores) = (self.selection, self.cores);
        let spread = self.contexts.entry(context).or_insert_with(|| match selection {
            Selection::Tree(shape) => Spread::Tree(Tree::new(shape, cores)),
            Selection::Jbsq(_) | Selection::Rss => Spread::Flat(Selector::without_cores(selection, cores)),
        });
        let due = cycle + self.timing.next_cycles + self.timing.wire_cycles;
        match spread {
            Spread::Flat(selector) => self.buses[0].bus.line_up(due, core, selector.join(core)),
            Spread::Tree(tree) => {
                let group = tree.group_of(core);
                let Joined { for_core, for_group } = tree.join(core);
                self.buses[group].bus.line_up(cycle + self.timing.group_cycles, core, for_core);
                self.trunk.line_up(due, group, for_group);
            }
        }
    }

    /// A core has finished a message.
    pub(crate) fn finish(&mut self, cycle: u64, core: usize, context: u16) {
        if let Some(Spread::Tree(tree)) = self.contexts.get_mut(&context) {
            let next = tree.finish(core);
            let group = tree.group_of(core);
            self.buses[group].bus.line_up(cycle + self.timing.group_cycles, core, next);
        }
        let news = Done { due: cycle + self.timing.wire_cycles, core, context };
        match self.timing.wire_cycles {
            0 => self.hear(news),
            _ => self.done.push_back(news),
        }
    }

    /// The NIC hears that a core has finished a message.
    fn hear(&mut self, Done { due, core, context }: Done) {
        let due = due + self.timing.next_cycles + self.timing.wire_cycles;
        match self.contexts.get_mut(&context) {
            Some(Spread::Flat(selector)) => self.buses[0].bus.line_up(due, core, selector.finish(core)),
            Some(Spread::Tree(tree)) => {
                let group = tree.group_of(core);
                self.trunk.line_up(due, group, tree.hear(group));
            }
            None => {}
        }
    }

    /// More bytes of a stream have arrived in order, and may be on a bus from cycle `due` on.
    pub(crate) fn feed(&mut self, key: StreamKey, due: u64, bytes: &[u8]) {
        self.streams.entry(key).or_default().push_back((due, words_of(bytes).collect()));
    }

    /// The first cycle in which a message can be selected a core.
    pub(crate) fn next_choice(&self) -> u64 {
        self.next_choice
    }

    /// Selects a message its core, or group. Some core has its context.
    pub(crate) fn arrive(&mut self, cycle: u64, message: Message) {
        self.next_choice = cycle + self.timing.choice_cycles;
        let due = cycle + self.timing.dispatch_cycles + self.timing.wire_cycles;
        let hash = message.flow_hash();
        match self.contexts.get_mut(&message.context) {
            Some(Spread::Flat(selector)) => {
                if let Some((core, message)) = selector.arrive(message, hash) {
                    self.buses[0].bus.line_up(due, core, [message]);
                }
            }
            Some(Spread::Tree(tree)) => {
                if let Some((group, message)) = tree.arrive(message) {
                    self.trunk.line_up(due, group, [message]);
                }
            }
            None => {}
        }
    }

    /// One cycle of the buses.
    pub(crate) fn tick(&mut self, cycle: u64, mut on_word: impl FnMut(DeliveredWord)) {
        while let Some(&news) = self.done.front()
            && news.due <= cycle
        {
            self.done.pop_front();
            self.hear(news);
        }
        let is_tree = matches!(self.selection, Selection::Tree(_));
        if is_tree {
            self.tick_trunk(cycle);
        }
        let (is_held_to_the_end, released) = (self.is_held_to_the_end, &mut self.released);
        let is_released_before = self.is_released_before;
        for bus in &mut self.buses {
            let (word, ended) = bus.tick(cycle, &mut self.streams, |message| {
                // In a tree the message has left the memory before.
                if !is_tree && !is_released_before && message.stream.is_none() {
                    released.push_back(message.released(cycle, is_held_to_the_end));
                }
            });
            word.into_iter().for_each(&mut on_word);
            released.extend(ended);
        }
    }

    /// The trunk: a message passes through it, and its group chooses a core while it does. The group's bus is behind the trunk then,
    /// at the same pace.
    fn tick_trunk(&mut self, cycle: u64) {
        if let Some((group, message)) = self.trunk.begin(cycle) {
            self.released.push_back(message.released(cycle, self.is_held_to_the_end));
            self.at_groups.push_back((cycle + self.timing.group_cycles, group, message));
        }
        while let Some(&(due, ..)) = self.at_groups.front()
            && due <= cycle
            && let Some((_, group, message)) = self.at_groups.pop_front()
        {
            let Some(Spread::Tree(tree)) = self.contexts.get_mut(&message.context) else { continue };
            if let Some((core, message)) = tree.arrive_at(group, message) {
                self.buses[group].bus.line_up(cycle, core, [message]);
            }
        }
    }

    /// Memory that is free by now.
    pub(crate) fn poll_released(&mut self, cycle: u64) -> Option<Released> {
        self.released.front().filter(|released| released.due <= cycle)?;
        self.released.pop_front()
    }

    /// When something happens next by itself.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let done = self.done.front().map(|news| news.due);
        let group = self.at_groups.front().map(|&(due, ..)| due);
        let released = self.released.front().map(|released| released.due);
        let buses = self.buses.iter().filter_map(LastBus::next_event);
        let single = [done, group, released, self.trunk.next_event()];
        buses.chain(single.into_iter().flatten()).min()
    }
}
