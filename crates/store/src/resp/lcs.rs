//! `LCS`: the longest common subsequence of two strings.

use super::keys::{integer, not_an_integer};
use super::outcome::{Done, refuse};
use super::reply::Reply;
use super::{TABLE, Words, upper};
use crate::door::Room;
use crate::rows::Kind;
use crate::transaction::Transaction;

/// The most cells of the table, one for each pair of a byte of one string and a byte of the other. No other work of the node has its turn
/// meanwhile.
const CELLS_MAX: usize = 4 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    only_length: bool,
    wants_places: bool,
    wants_lengths: bool,
    least: usize,
}

impl Options {
    fn parse(words: &[Vec<u8>]) -> Result<Options, Reply> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match &*upper(word) {
                "LEN" => options.only_length = true,
                "IDX" => options.wants_places = true,
                "WITHMATCHLEN" => options.wants_lengths = true,
                "MINMATCHLEN" => {
                    let least = words.next().ok_or_else(|| Reply::error("ERR syntax error"))?;
                    let least = integer(least).ok_or_else(not_an_integer)?;
                    options.least = usize::try_from(least).unwrap_or(0);
                }
                _ => return Err(Reply::error("ERR syntax error")),
            }
        }
        if options.only_length && options.wants_places {
            return Err(Reply::error("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

pub(super) async fn apply(transaction: &mut Transaction, words: &Words, room: &mut Room) -> Done {
    let mut values = Vec::new();
    transaction.prefetch_values(words[1..3].iter().map(|key| (TABLE, &key[..]))).await?;
    for key in &words[1..3] {
        match transaction.get(TABLE, key).await? {
            Some((kind, _)) if kind != Kind::Bytes => {
                return refuse("The specified keys must contain string values");
            }
            found => values.push(found.map_or(Vec::new(), |(_, value)| value)),
        }
    }
    let options = Options::parse(&words[3..])?;
    let (one, other) = (&values[0], &values[1]);
    let cells = (one.len() + 1).saturating_mul(other.len() + 1);
    if cells > CELLS_MAX {
        return refuse(format!(
            "Insufficient memory, transient memory for LCS exceeds {CELLS_MAX} pairs of bytes"
        ));
    }
    let before = room.bytes();
    room.take(cells * size_of::<u32>())?;
    let reply = common(one, other, options);
    room.shrink(before);
    Ok(reply)
}

/// Runs of the subsequence: where each begins in one string and in the other, and how long it is. The last comes first.
type Runs = Vec<(usize, usize, usize)>;

fn common(one: &[u8], other: &[u8], options: Options) -> Reply {
    let (length, runs) = runs(one, other);
    if options.only_length {
        return Reply::Integer(length as i64);
    }
    if !options.wants_places {
        let parts = runs.iter().rev().map(|&(at, _, length)| &one[at..at + length]);
        return Reply::Bulk(parts.collect::<Vec<_>>().concat());
    }
    let place = |at: usize, length: usize| {
        Reply::Array(vec![Reply::Integer(at as i64), Reply::Integer((at + length - 1) as i64)])
    };
    let shown = |&(one, other, length): &(usize, usize, usize)| {
        let mut all = vec![place(one, length), place(other, length)];
        all.extend(options.wants_lengths.then_some(Reply::Integer(length as i64)));
        Reply::Array(all)
    };
    let matches = runs.iter().filter(|run| run.2 >= options.least).map(shown).collect();
    let pair = |name: &str, reply| (Reply::bulk(name), reply);
    Reply::Map(vec![pair("matches", Reply::Array(matches)), pair("len", Reply::Integer(length as i64))])
}

fn runs(one: &[u8], other: &[u8]) -> (usize, Runs) {
    let width = other.len() + 1;
    // In row i and column j: the length for the first i bytes of one and the first j of the other.
    let mut table = vec![0u32; (one.len() + 1) * width];
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            table[i * width + j] = if one[i - 1] == other[j - 1] {
                table[(i - 1) * width + j - 1] + 1
            } else {
                table[(i - 1) * width + j].max(table[i * width + j - 1])
            };
        }
    }
    let length = table[one.len() * width + other.len()] as usize;
    let (mut i, mut j) = (one.len(), other.len());
    let mut runs = Runs::new();
    let mut is_within = false;
    while i > 0 && j > 0 {
        if one[i - 1] == other[j - 1] {
            (i, j) = (i - 1, j - 1);
            match runs.last_mut().filter(|_| is_within) {
                Some(run) => *run = (i, j, run.2 + 1),
                None => runs.push((i, j, 1)),
            }
            is_within = true;
        } else {
            // Redis goes this way if both are as long.
            if table[(i - 1) * width + j] > table[i * width + j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
            is_within = false;
        }
    }
    (length, runs)
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn the_runs_of_two_strings_are_their_longest_common_subsequence() {
        assert_eq!(runs(b"ohmytext", b"mynewtext"), (6, vec![(4, 5, 4), (2, 0, 2)]));
        assert_eq!(runs(b"", b"a"), (0, vec![]));
        assert_eq!(runs(b"aaa", b"aa"), (2, vec![(1, 0, 2)]));
        assert_eq!(runs(b"abc", b"xyz"), (0, vec![]));
    }
}
