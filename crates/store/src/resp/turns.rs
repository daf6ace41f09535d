//! Commands of many connections that arrive together become few transactions.
//!
//! The I/O loop finds in one turn what many connections have sent meanwhile. Each hands its commands over, and when all have, the node gets
//! them as one job:
//!
//! - **A single GET** is a read of one row, which is true at one instant by itself. Rows whose primary is this node are read at once; the
//!   others with one execute phase, without a validation.
//! - **Everything else that is short** becomes one transaction: execute, validate, log and commit once. If another transaction gets in its
//!   way, nothing has happened. Then commands go to their key's primary (`carry`), or are tried again, or run as they would alone.
//!
//! One such transaction is under way at a time, and what arrives meanwhile waits for the next: so those of one node do not conflict with each other. One that
//! takes long, because another node does not answer, keeps the next waiting for [`TURN_MAX`] only.
//!
//! A connection has at most one batch of commands here, and goes on when it has their replies: so its commands keep their order.

mod carry;
mod wire;

pub(crate) use carry::serve;

use super::reply::Reply;
use super::{BATCH_BYTES, TABLE, Words, data, upper};
use crate::door::Room;
use crate::engine::Store;
use crate::error::StoreError;
use crate::rows::{self, Kind, Value};
use crate::session::{Local, ROWS, Stop};
use crate::transaction::{Attempt, Transaction};
use highwire_txn::Key;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Commands of a transaction, and the bytes of their words: its record has a usual length, and a turn of the node stays short.
const COMMANDS_MAX: usize = 512;
const WORDS_BYTES_MAX: usize = 24 << 10;
/// How long one transaction keeps the next waiting.
const TURN_MAX: Duration = Duration::from_millis(20);
/// Turns of single reads that are under way at a time: while the node has one, the I/O loop gathers the next.
const READS_UNDER_WAY: usize = 2;

/// How often commands whose primary is this node are tried together, if others are in their way.
const TRIES_MAX: u8 = 4;

/// How long commands that were carried here may take: less than the node that brought them waits.
const CARRIED_PATIENCE_NS: u64 = 2_000_000_000;

/// What became of a connection's commands: the replies of the first ones, and the others, which are to run alone.
pub(super) type Outcome = (Vec<Reply>, Vec<Words>, Room);

/// Commands of one connection.
#[derive(Debug)]
struct Ask {
    commands: Vec<Words>,
    room: Room,
    answer: oneshot::Sender<Outcome>,
    /// Another node's clients have given them.
    is_carried: bool,
    /// Others were in their way so often.
    retries: u8,
}

impl Ask {
    fn answer(self, replies: Vec<Reply>) {
        // The connection may have ended.
        let _ = self.answer.send((replies, Vec::new(), self.room));
    }

    /// Nothing was done: the connection runs its commands alone.
    fn give_back(mut self) {
        self.room.shrink(0);
        let _ = self.answer.send((Vec::new(), self.commands, self.room));
    }

    /// Runs commands of another node's clients as a transaction of their own, which is tried until it commits.
    async fn run_alone(self, local: &Local) {
        let asks = [self];
        let body = async |transaction: &mut Transaction| apply(transaction, &asks).await;
        let result = local.transact(CARRIED_PATIENCE_NS, body).await;
        let [ask] = asks;
        match result {
            Ok(mut all) => finish_written(local, ask, all.pop().unwrap_or_default(), 0),
            Err(error @ StoreError::Unknown(_)) => ask.answer_unknown(&error),
            Err(_) => ask.give_back(),
        }
    }

    fn words_bytes(&self) -> usize {
        self.commands.iter().flatten().map(Vec::len).sum()
    }
}

/// What waits for the next turn.
#[derive(Debug, Default)]
struct Lane {
    waiting: Mutex<Vec<Ask>>,
    bell: Notify,
}

impl Lane {
    fn push(&self, ask: Ask) {
        self.locked().push(ask);
        self.bell.notify_one();
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Ask>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are tried again are the first of the next turn.
    fn push_again(&self, asks: Vec<Ask>) {
        let mut waiting = self.locked();
        let behind = std::mem::replace(&mut *waiting, asks);
        waiting.extend(behind);
        drop(waiting);
        self.bell.notify_one();
    }

    /// As many as a turn takes, in the order in which they came.
    fn take(&self) -> Vec<Ask> {
        let mut waiting = self.locked();
        let taken = take_turn(&mut waiting);
        if !waiting.is_empty() {
            self.bell.notify_one();
        }
        taken
    }
}

/// Takes out as many as a turn takes, in the order in which they came.
fn take_turn(waiting: &mut Vec<Ask>) -> Vec<Ask> {
    let (mut commands, mut bytes) = (0, 0);
    let fits = |ask: &Ask| {
        commands += ask.commands.len();
        bytes += ask.words_bytes();
        commands <= COMMANDS_MAX && bytes <= WORDS_BYTES_MAX
    };
    // One that does not fit alone was not taken in.
    let count = waiting.iter().map(fits).take_while(|fits| *fits).count();
    waiting.drain(..count).collect()
}

/// The turns of a node's door.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    reads: Lane,
    others: Lane,
    shipping: Mutex<carry::Shipping>,
    counts: carry::Counts,
    /// What other nodes bring is carried out, and they never hear of it: so a node dies between the two.
    #[cfg(test)]
    keeps_silent: std::sync::atomic::AtomicBool,
}

impl Turns {
    /// Starts the tasks that hand turns to the node.
    pub(crate) fn start(self: &Arc<Turns>, store: &Store) {
        for _ in 0..READS_UNDER_WAY {
            let (turns, store) = (Arc::clone(self), store.clone());
            store.io.clone().spawn(async move {
                loop {
                    gather(&turns.reads, &store, reads).await;
                }
            });
        }
        let (turns, store) = (Arc::clone(self), store.clone());
        store.io.clone().spawn(async move {
            loop {
                let (of, by) = (Arc::clone(&turns), store.clone());
                gather(&turns.others, &store, |local, asks| together(local, asks, of, by)).await;
            }
        });
    }

    fn shipping(&self) -> MutexGuard<'_, carry::Shipping> {
        self.shipping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many commands were carried between nodes, by what became of them.
    pub(crate) fn carried(&self) -> [(&'static str, u64); 4] {
        self.counts.list()
    }

    /// Whether commands may share a transaction with those of others.
    pub(super) fn takes(commands: &[Words]) -> bool {
        let bytes: usize = commands.iter().flatten().map(Vec::len).sum();
        commands.len() <= COMMANDS_MAX
            && bytes <= WORDS_BYTES_MAX
            && commands.iter().all(|words| data::has_one_key(&upper(&words[0])))
            // Such a key is an error of its command, and must not keep the others from being carried out together.
            && commands.iter().all(|words| words[1].len() <= rows::KEY_BYTES_MAX)
    }

    /// Has commands carried out with those of others.
    ///
    /// # Errors
    /// The node is still starting, or has ended.
    pub(super) async fn run(&self, commands: Vec<Words>, room: Room) -> Result<Outcome, StoreError> {
        let is_read = commands.len() == 1 && upper(&commands[0][0]) == "GET";
        let (answer, outcome) = oneshot::channel();
        let lane = if is_read { &self.reads } else { &self.others };
        lane.push(Ask { commands, room, answer, is_carried: false, retries: 0 });
        outcome.await.map_err(|_| StoreError::Unknown("the node has ended".into()))
    }
}

/// Waits for commands, and hands the node those that arrive in the same turn of the loop.
async fn gather<W>(lane: &Lane, store: &Store, work: impl FnOnce(Local, Vec<Ask>) -> W + Send + 'static)
where
    W: Future<Output = ()> + 'static,
{
    lane.bell.notified().await;
    // Connections whose sockets are ready come first.
    tokio::task::yield_now().await;
    let asks = lane.take();
    if asks.is_empty() {
        return;
    }
    let done = store.ask(move |local| work(local, asks));
    // A node that is starting drops the job, and the connections hear of it.
    let _ = tokio::time::timeout(TURN_MAX, done).await;
}

/// Single reads.
async fn reads(local: Local, asks: Vec<Ask>) {
    let now = local.shared.clock.now_ns();
    let now_ms = local.shared.wall.now_ms();
    let mut elsewhere = Vec::new();
    for ask in asks {
        let key = &ask.commands[0][1];
        let row = match rows::check_key(TABLE, key) {
            Ok(()) => local.shared.node.borrow_mut().read_at_home(now, ROWS, rows::place(TABLE, key, 0)),
            Err(_) => None,
        };
        match row.and_then(|(_, value)| found(value.as_deref(), key, now_ms)) {
            Some(reply) => finish(&local, ask, vec![reply], now),
            None => elsewhere.push(ask),
        }
    }
    if elsewhere.is_empty() {
        return;
    }
    let seen = local.until(now + TURN_MAX.as_nanos() as u64, read_elsewhere(&local, &elsewhere)).await;
    let mut replies = seen.and_then(Result::ok).unwrap_or_default().into_iter();
    for ask in elsewhere {
        match replies.next().flatten() {
            Some(reply) => finish(&local, ask, vec![reply], now),
            None => ask.give_back(),
        }
    }
}

/// Reads rows of other nodes, each at one instant.
async fn read_elsewhere(local: &Local, asks: &[Ask]) -> Result<Vec<Option<Reply>>, Stop> {
    let places: Vec<Key> = asks.iter().map(|ask| rows::place(TABLE, &ask.commands[0][1], 0)).collect();
    let session = local.begin().await?;
    let mut distinct = places.clone();
    distinct.sort_unstable();
    distinct.dedup();
    for place in distinct {
        session.add_read(ROWS, place)?;
    }
    session.execute().await?;
    let reply = |(ask, place): (&Ask, Key)| {
        let (_, value) = session.seen(ROWS, place)?;
        found(value.as_deref(), &ask.commands[0][1], session.now_ms())
    };
    Ok(asks.iter().zip(places).map(reply).collect())
}

/// The reply to GET, if the first row of the key's chain has all that it takes. A key that has expired takes a transaction, which deletes it.
fn found(row: Option<&[u8]>, key: &[u8], now_ms: u64) -> Option<Reply> {
    let row = row.map_or(Ok(rows::Row::default()), rows::Row::parse).ok()?;
    match row.find(TABLE, key) {
        Some(cell) if cell.has_expired(now_ms) => None,
        Some(cell) => match (cell.kind, &cell.value) {
            (Kind::Bytes, Value::Short(value)) => Some(Reply::Bulk(value.clone())),
            (Kind::Bytes, Value::Long { .. }) => None,
            _ => Some(Reply::error(Reply::WRONG_TYPE)),
        },
        None => (!row.overflows).then_some(Reply::Nil),
    }
}

/// Answers a connection, and counts its commands among the node's transactions.
fn finish(local: &Local, mut ask: Ask, replies: Vec<Reply>, began_ns: u64) {
    let held = replies.iter().map(Reply::held).sum();
    if ask.room.resize(held).is_err() {
        return ask.give_back();
    }
    local.count_committed(replies.len() as u64, began_ns);
    ask.answer(replies);
}

/// Commands of several connections, as one transaction; those that other nodes compete for go to their primary.
async fn together(local: Local, asks: Vec<Ask>, turns: Arc<Turns>, store: Store) {
    let began = local.shared.clock.now_ns();
    let mut own = Vec::with_capacity(asks.len());
    for ask in asks {
        match turns.carries(&local.shared, &ask, began) {
            Some(to) => turns.ship(&store, to, ask),
            None => own.push(ask),
        }
    }
    if own.is_empty() {
        return;
    }
    let result = local
        .attempt(TURN_MAX.as_nanos() as u64, async |transaction: &mut Transaction| {
            apply(transaction, &own).await
        })
        .await;
    match result {
        Attempt::Done(all) => {
            own.into_iter().zip(all).for_each(|(ask, replies)| finish_written(&local, ask, replies, began));
        }
        Attempt::Unknown(error) => own.into_iter().for_each(|ask| ask.answer_unknown(&error)),
        Attempt::Conflict => again(&local, own, &turns, &store).await,
        Attempt::Nothing => own.into_iter().for_each(Ask::give_back),
    }
}

/// Others were in the way of these commands, and nothing was done.
async fn again(local: &Local, asks: Vec<Ask>, turns: &Arc<Turns>, store: &Store) {
    let now = local.shared.clock.now_ns();
    let (mut next, mut alone) = (Vec::new(), Vec::new());
    for mut ask in asks {
        if let Some(to) = turns.learn(&local.shared, &ask, now) {
            turns.ship(store, to, ask);
        } else if ask.retries + 1 < TRIES_MAX {
            ask.retries += 1;
            next.push(ask);
        } else if ask.is_carried {
            alone.push(ask);
        } else {
            ask.give_back();
        }
    }
    if !next.is_empty() {
        turns.others.push_again(next);
    }
    for ask in alone {
        ask.run_alone(local).await;
    }
}

/// Answers a connection whose commands may have written: they cannot run again, so if there is no room for the replies it hears that.
fn finish_written(local: &Local, mut ask: Ask, mut replies: Vec<Reply>, began_ns: u64) {
    if !ask.is_carried {
        local.count_committed(replies.len() as u64, began_ns);
    }
    if let Err(error) = ask.room.resize(replies.iter().map(Reply::held).sum()) {
        replies.iter_mut().for_each(|reply| *reply = Reply::failed(&error));
    }
    ask.answer(replies);
}

async fn apply(transaction: &mut Transaction, asks: &[Ask]) -> Result<Vec<Vec<Reply>>, Stop> {
    let commands = || asks.iter().flat_map(|ask| &ask.commands);
    transaction.prefetch(commands().map(|words| (TABLE, &words[1][..]))).await?;
    let mut all = Vec::with_capacity(asks.len());
    let mut held = 0;
    for ask in asks {
        let mut replies = Vec::with_capacity(ask.commands.len());
        // What a command asks for itself is counted here again, with the replies of all.
        let mut room = ask.room.sibling();
        for words in &ask.commands {
            let reply = data::apply(transaction, words, &mut room).await?;
            held += reply.held();
            if held > BATCH_BYTES {
                // Long replies are made and written one connection at a time.
                return Err(Stop::TooLong);
            }
            transaction.breathe(reply.held() + super::keys::PER_KEY).await;
            replies.push(reply);
        }
        all.push(replies);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::ANSWER_BYTES_MAX;

    fn ask(commands: usize, value: &str) -> Ask {
        let words = ["SET", "key", value].map(|word| word.as_bytes().to_vec()).to_vec();
        let room = Room::new(&Arc::default(), ANSWER_BYTES_MAX);
        Ask {
            commands: vec![words; commands],
            room,
            answer: oneshot::channel().0,
            is_carried: false,
            retries: 0,
        }
    }

    #[test]
    fn a_turn_takes_what_fits_in_the_order_of_arrival_and_the_rest_is_next() {
        let check = |asks: Vec<Ask>, expected: &[usize]| {
            let lane = Lane::default();
            let all: Vec<Vec<Words>> = asks.iter().map(|ask| ask.commands.clone()).collect();
            asks.into_iter().for_each(|ask| lane.push(ask));
            let turns: Vec<Vec<Ask>> =
                std::iter::from_fn(|| Some(lane.take()).filter(|turn| !turn.is_empty())).collect();
            assert_eq!(turns.iter().map(Vec::len).collect::<Vec<_>>(), expected);
            let taken: Vec<Vec<Words>> = turns.into_iter().flatten().map(|ask| ask.commands).collect();
            assert_eq!(taken, all);
        };
        check(vec![], &[]);
        check((0..10).map(|_| ask(1, "v")).collect(), &[10]);
        check(vec![ask(COMMANDS_MAX, "v"), ask(1, "v")], &[1, 1]);
        check(vec![ask(COMMANDS_MAX - 1, "v"), ask(1, "v"), ask(2, "w")], &[2, 1]);
        let long = "x".repeat(WORDS_BYTES_MAX / 2);
        check(vec![ask(1, "a"), ask(1, &long), ask(1, &long), ask(1, "b")], &[2, 2]);
    }

    #[test]
    fn commands_share_a_transaction_if_they_are_short_and_on_one_key() {
        let check = |line: &str, expected| {
            let words: Words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(Turns::takes(&[words]), expected, "{:.40}", line);
        };
        for line in ["GET a", "SET a 1", "HSET h f 1", "INCR a", "TTL a"] {
            check(line, true);
        }
        for line in ["MGET a b", "DBSIZE", "SCAN 0", "KEYS *", "DEL a", "MSET a 1 b 2"] {
            check(line, false);
        }
        check(&format!("SET a {}", "x".repeat(WORDS_BYTES_MAX)), false);
        check(&format!("GET {}", "k".repeat(rows::KEY_BYTES_MAX + 1)), false);
        let many: Vec<Words> = vec![vec![b"GET".to_vec(), b"a".to_vec()]; COMMANDS_MAX + 1];
        assert!(!Turns::takes(&many));
    }
}
