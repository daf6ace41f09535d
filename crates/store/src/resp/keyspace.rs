//! Commands on keys of any type: new names, copies, what is there, and all of them at once.

use super::outcome::{Done, refuse, syntax};
use super::reply::Reply;
use super::scans::{Cursor, walk};
use super::{TABLE, Words, keys, server, upper};
use crate::engine::PATIENCE_NS;
use crate::error::StoreError;
use crate::rows::Kind;
use crate::session::{Local, Stop};
use crate::transaction::Transaction;

/// The most keys that one transaction deletes.
const FLUSH_KEYS: usize = 8192;

pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    Ok(match name {
        "RENAME" | "RENAMENX" => return rename(transaction, name, words).await,
        "COPY" => return copy(transaction, words).await,
        "RANDOMKEY" => return random_key(transaction).await,
        "OBJECT" => return object(transaction, words).await,
        _ => {
            check_flush(words)?;
            match flush_some(transaction, Cursor::default()).await? {
                None => Reply::OK,
                Some(_) => Err(StoreError::invalid(format!(
                    "{name} in a transaction deletes at most {FLUSH_KEYS} keys; without MULTI it deletes them in pieces"
                )))?,
            }
        }
    })
}

async fn rename(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let (from, to) = (&words[1], &words[2]);
    transaction.prefetch_values(words[1..3].iter().map(|key| (TABLE, &key[..]))).await?;
    let Some((kind, value)) = transaction.get(TABLE, from).await? else {
        return refuse("no such key");
    };
    let done = if name == "RENAME" { Reply::OK } else { Reply::Integer(1) };
    if name == "RENAMENX" && transaction.measure(TABLE, to).await?.is_some() {
        return Ok(Reply::Integer(0));
    }
    if from != to {
        let expires = transaction.expiry(TABLE, from).await?.flatten();
        transaction.delete(TABLE, from).await?;
        transaction.put_until(TABLE, to, kind, &value, expires).await?;
    }
    Ok(done)
}

async fn copy(transaction: &mut Transaction, words: &Words) -> Done {
    let (from, to) = (&words[1], &words[2]);
    let mut replaces = false;
    let mut options = words[3..].iter();
    while let Some(option) = options.next() {
        match &*upper(option) {
            "REPLACE" => replaces = true,
            "DB" => match options.next().map(|number| keys::integer(number)) {
                Some(Some(0)) => {}
                Some(Some(number)) if i32::try_from(number).is_ok() => {
                    return refuse("DB index is out of range");
                }
                Some(_) => return Ok(keys::not_an_integer()),
                None => return syntax(),
            },
            _ => return syntax(),
        }
    }
    if from == to {
        return refuse("source and destination objects are the same");
    }
    transaction.prefetch_values(words[1..3].iter().map(|key| (TABLE, &key[..]))).await?;
    let Some((kind, value)) = transaction.get(TABLE, from).await? else { return Ok(Reply::Integer(0)) };
    if !replaces && transaction.measure(TABLE, to).await?.is_some() {
        return Ok(Reply::Integer(0));
    }
    let expires = transaction.expiry(TABLE, from).await?.flatten();
    transaction.put_until(TABLE, to, kind, &value, expires).await?;
    Ok(Reply::Integer(1))
}

/// A key near a random place among the keys' hashes, if there is any key.
async fn random_key(transaction: &mut Transaction) -> Done {
    let from = Cursor::at(transaction.random());
    let (mut found, next) = walk(transaction, from, 1).await?;
    if found.is_empty() && next.is_none() {
        found = walk(transaction, Cursor::default(), 1).await?.0;
    }
    if found.is_empty() {
        return Ok(Reply::Nil);
    }
    let at = transaction.random_below(found.len());
    Ok(Reply::Bulk(found.swap_remove(at).key))
}

/// Whether a FLUSHALL or FLUSHDB is one that can be carried out.
pub(super) fn check_flush(words: &Words) -> Result<(), Reply> {
    match &words[1..] {
        [] => Ok(()),
        [how] if matches!(&*upper(how), "ASYNC" | "SYNC") => Ok(()),
        _ => Err(Reply::error("ERR syntax error")),
    }
}

pub(super) fn is_flush(words: &Words) -> bool {
    matches!(&*upper(&words[0]), "FLUSHALL" | "FLUSHDB")
}

/// Deletes keys from a place on, and says where to go on.
async fn flush_some(transaction: &mut Transaction, from: Cursor) -> Result<Option<Cursor>, Stop> {
    let (found, next) = walk(transaction, from, FLUSH_KEYS).await?;
    transaction.prefetch(found.iter().map(|found| (TABLE, &found.key[..]))).await?;
    for found in &found {
        transaction.delete(TABLE, &found.key).await?;
        transaction.breathe(keys::PER_KEY).await;
    }
    Ok(next)
}

/// Deletes all keys: at once if they are few, and else in pieces, each a transaction.
pub(super) async fn flush(local: &Local, words: &Words) -> Result<Reply, StoreError> {
    if let Err(reply) = check_flush(words) {
        return Ok(reply);
    }
    let mut from = Cursor::default();
    loop {
        let some = async |transaction: &mut Transaction| flush_some(transaction, from).await;
        match local.transact(PATIENCE_NS, some).await? {
            None => return Ok(Reply::OK),
            Some(next) => from = next,
        }
    }
}

/// How Redis would keep a value, as far as its length tells.
fn encoding(kind: Kind, value: &[u8]) -> &'static str {
    match kind {
        Kind::Bytes if keys::integer(value).is_some() => "int",
        Kind::Bytes if value.len() <= 44 => "embstr",
        Kind::Bytes => "raw",
        Kind::Fields => super::fields::encoding(value),
        Kind::List => "quicklist",
        Kind::Set => super::sets::encoding(value),
        Kind::Sorted => super::sorted::encoding(value),
    }
}

async fn object(transaction: &mut Transaction, words: &Words) -> Done {
    server::check_subcommand("OBJECT", words)?;
    let sub = upper(&words[1]);
    if sub == "HELP" {
        let lines = [
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>",
            "    The encoding that Redis would choose for a value of this length.",
            "REFCOUNT <key>",
            "    1 if the key is there.",
            "HELP",
            "    Prints this help.",
        ];
        return Ok(Reply::Array(lines.map(|line| Reply::Simple(line.into())).to_vec()));
    }
    let Some((kind, value)) = transaction.get(TABLE, &words[2]).await? else { return Ok(Reply::Nil) };
    Ok(match &*sub {
        "ENCODING" => Reply::bulk(encoding(kind, &value)),
        "REFCOUNT" => Reply::Integer(1),
        _ => Reply::error(format!(
            "ERR 'OBJECT {sub}' is not promised by this store, which does not note when or how often keys are used"
        )),
    })
}
