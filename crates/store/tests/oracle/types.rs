//! Generated commands on lists, sets and sorted sets.

use super::{Compare, Generator, Words, as_compared, replies, start};
use highwire_stdx::Rng;

/// Keys, and what they hold most of the time.
const LISTS: &[&str] = &["l1", "l2", "l3"];
const SETS: &[&str] = &["s1", "s2", "s3"];
const SORTED: &[&str] = &["z1", "z2", "z3"];
const OTHERS: &[&str] = &["str", "none", "l1", "s1", "z1"];
const ELEMENTS: &[&str] = &["a", "b", "c", "dd", "", "5", "-1", "a b", "x\r\ny", "e1", "e2", "e3"];
const NUMBERS: &[&str] =
    &["0", "1", "2", "3", "-1", "-2", "-3", "10", "-10", "x", "1.5", "9223372036854775807"];
const SCORES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1.5",
    "3.14",
    "0.1",
    "-0",
    "inf",
    "-inf",
    "1e17",
    "123456789012345678",
    "1e-5",
    "-2.5e3",
    "+7",
    "007",
    "0x10",
    ".5",
    "5.",
    "nan",
    "abc",
    "",
    " 1",
    "1e400",
    "1 ",
    "Infinity",
];
const GOOD_SCORES: &[&str] = &["0", "1", "2", "3", "-1", "1.5", "3.14", "0.1", "inf", "-inf", "1e17", "1e-5"];
const BOUNDS: &[&str] =
    &["-inf", "+inf", "0", "1", "(1", "2", "(2", "3.14", "(0.1", "(inf", "x", "", "(", " 1", "((1", "nan"];
const LEX: &[&str] = &["-", "+", "[a", "(a", "[b", "(c", "[", "(", "[zz", "a", "", "+x"];

impl Generator {
    fn of(&mut self, kind: &[&str]) -> Vec<u8> {
        let kind = if self.0.chance(0.93) { kind } else { OTHERS };
        self.one_of(kind)
    }

    fn several(&mut self, of: &[&str], least: u64, most: u64) -> Words {
        (0..self.0.between(least, most)).map(|_| self.one_of(of)).collect()
    }

    /// Some of these words, in any order, each with what follows it.
    fn options(&mut self, of: &[(&str, &[&[&str]])]) -> Words {
        let mut words = Vec::new();
        for _ in 0..self.0.below(3) {
            let (option, arguments) = *self.0.pick(of);
            words.push(if self.0.chance(0.8) { option.into() } else { option.to_lowercase().into() });
            // Sometimes one is missing.
            let missing = usize::from(self.0.chance(0.05));
            let given = arguments.len().saturating_sub(missing);
            words.extend(arguments[..given].iter().map(|choices| self.one_of(choices)).collect::<Words>());
        }
        words
    }

    fn keys(&mut self, of: &[&str]) -> Words {
        (0..self.0.between(1, 3)).map(|_| self.of(of)).collect()
    }

    /// How many keys there are, nearly always, and the keys.
    fn numbered(&mut self, of: &[&str]) -> Words {
        let keys = self.keys(of);
        let count = if self.0.chance(0.93) { keys.len().to_string().into() } else { self.one_of(NUMBERS) };
        [vec![count], keys].concat()
    }

    fn list_command(&mut self) -> (Words, Compare) {
        const SIDES: &[&str] = &["LEFT", "RIGHT", "left", "RIGHT", "UP"];
        const WAITS: &[&str] = &["0.01", "0.02", "0.005", "-1", "x"];
        let name = *self.0.pick(&[
            "LPUSH",
            "RPUSH",
            "LPUSH",
            "RPUSH",
            "LPUSHX",
            "RPUSHX",
            "LPOP",
            "RPOP",
            "LLEN",
            "LRANGE",
            "LRANGE",
            "LINDEX",
            "LSET",
            "LINSERT",
            "LREM",
            "LTRIM",
            "LPOS",
            "LMOVE",
            "RPOPLPUSH",
            "LMPOP",
            "BLPOP",
            "BRPOP",
            "BLMOVE",
            "BRPOPLPUSH",
            "BLMPOP",
        ]);
        let rest = match name {
            "LPUSH" | "RPUSH" | "LPUSHX" | "RPUSHX" => {
                [vec![self.of(LISTS)], self.several(ELEMENTS, 1, 4)].concat()
            }
            "LPOP" | "RPOP" => [vec![self.of(LISTS)], self.several(NUMBERS, 0, 2)].concat(),
            "LLEN" => vec![self.of(LISTS)],
            "LRANGE" | "LTRIM" => [vec![self.of(LISTS)], self.several(NUMBERS, 2, 2)].concat(),
            "LINDEX" => vec![self.of(LISTS), self.one_of(NUMBERS)],
            "LSET" | "LREM" => vec![self.of(LISTS), self.one_of(NUMBERS), self.one_of(ELEMENTS)],
            "LINSERT" => {
                let place = self.one_of(&["BEFORE", "AFTER", "before", "BESIDE"]);
                vec![self.of(LISTS), place, self.one_of(ELEMENTS), self.one_of(ELEMENTS)]
            }
            "LPOS" => {
                let options =
                    self.options(&[("RANK", &[NUMBERS]), ("COUNT", &[NUMBERS]), ("MAXLEN", &[NUMBERS])]);
                [vec![self.of(LISTS), self.one_of(ELEMENTS)], options].concat()
            }
            "LMOVE" | "BLMOVE" => {
                let mut words = vec![self.of(LISTS), self.of(LISTS), self.one_of(SIDES), self.one_of(SIDES)];
                if name == "BLMOVE" {
                    words.push(self.one_of(WAITS));
                }
                words
            }
            "RPOPLPUSH" => vec![self.of(LISTS), self.of(LISTS)],
            "BRPOPLPUSH" => vec![self.of(LISTS), self.of(LISTS), self.one_of(WAITS)],
            "BLPOP" | "BRPOP" => [self.keys(LISTS), vec![self.one_of(WAITS)]].concat(),
            _ => {
                let options = self.options(&[("COUNT", &[NUMBERS])]);
                let words = [self.numbered(LISTS), vec![self.one_of(SIDES)], options].concat();
                if name == "BLMPOP" { [vec![self.one_of(WAITS)], words].concat() } else { words }
            }
        };
        ([vec![name.into()], rest].concat(), Compare::All)
    }

    fn set_command(&mut self) -> (Words, Compare) {
        let name = *self.0.pick(&[
            "SADD",
            "SADD",
            "SADD",
            "SREM",
            "SMEMBERS",
            "SISMEMBER",
            "SMISMEMBER",
            "SCARD",
            "SPOP",
            "SRANDMEMBER",
            "SMOVE",
            "SINTER",
            "SUNION",
            "SDIFF",
            "SINTERSTORE",
            "SUNIONSTORE",
            "SDIFFSTORE",
            "SINTERCARD",
            "SSCAN",
        ]);
        let mut compare = Compare::All;
        let rest = match name {
            "SADD" | "SREM" | "SMISMEMBER" => [vec![self.of(SETS)], self.several(ELEMENTS, 1, 5)].concat(),
            "SCARD" => vec![self.of(SETS)],
            "SISMEMBER" => vec![self.of(SETS), self.one_of(ELEMENTS)],
            "SMEMBERS" => {
                compare = Compare::Set;
                vec![self.of(SETS)]
            }
            // What is drawn is another thing, so all are taken, or none.
            "SPOP" => {
                compare = Compare::Set;
                [vec![self.of(SETS), self.one_of(&["100", "0", "-1", "x"])], self.several(ELEMENTS, 0, 1)]
                    .concat()
            }
            "SRANDMEMBER" => {
                let count = *self.0.pick(&["100", "0", "x", "-3", "1", ""]);
                compare = if count == "100" { Compare::Set } else { Compare::Head };
                let count = if count.is_empty() { vec![] } else { vec![count.into()] };
                [vec![self.of(SETS)], count].concat()
            }
            "SMOVE" => vec![self.of(SETS), self.of(SETS), self.one_of(ELEMENTS)],
            "SINTER" | "SUNION" | "SDIFF" => {
                compare = Compare::Set;
                self.keys(SETS)
            }
            "SINTERCARD" => [self.numbered(SETS), self.options(&[("LIMIT", &[NUMBERS])])].concat(),
            "SSCAN" => {
                compare = Compare::Set;
                let options = self.options(&[
                    ("MATCH", &[&["*", "e*", "a", "[ab]"]]),
                    ("COUNT", &[&["1000", "100", "0", "x"]]),
                    ("TYPE", &[&["set"]]),
                ]);
                // Without a count, Redis gives pages that are shorter.
                if !options.iter().any(|word| word.eq_ignore_ascii_case(b"COUNT")) {
                    compare = Compare::Head;
                }
                [vec![self.of(SETS), self.one_of(&["0", "0", "0", "x", " 0"])], options].concat()
            }
            _ => [vec![self.of(SETS)], self.keys(SETS)].concat(),
        };
        ([vec![name.into()], rest].concat(), compare)
    }

    fn sorted_command(&mut self) -> (Words, Compare) {
        const WAITS: &[&str] = &["0.01", "0.02", "x"];
        const LIMIT: (&str, &[&[&str]]) = ("LIMIT", &[NUMBERS, NUMBERS]);
        const WITHSCORES: (&str, &[&[&str]]) = ("WITHSCORES", &[]);
        let name = *self.0.pick(&[
            "ZADD",
            "ZADD",
            "ZADD",
            "ZADD",
            "ZADD",
            "ZREM",
            "ZSCORE",
            "ZMSCORE",
            "ZINCRBY",
            "ZCARD",
            "ZCOUNT",
            "ZRANK",
            "ZREVRANK",
            "ZRANGE",
            "ZRANGE",
            "ZRANGE",
            "ZRANGESTORE",
            "ZRANGEBYSCORE",
            "ZREVRANGE",
            "ZREVRANGEBYSCORE",
            "ZRANGEBYLEX",
            "ZREVRANGEBYLEX",
            "ZLEXCOUNT",
            "ZPOPMIN",
            "ZPOPMAX",
            "ZMPOP",
            "ZREMRANGEBYRANK",
            "ZREMRANGEBYSCORE",
            "ZREMRANGEBYLEX",
            "ZUNION",
            "ZINTER",
            "ZDIFF",
            "ZUNIONSTORE",
            "ZINTERSTORE",
            "ZDIFFSTORE",
            "ZINTERCARD",
            "ZRANDMEMBER",
            "ZSCAN",
            "BZPOPMIN",
            "BZPOPMAX",
            "BZMPOP",
        ]);
        let mut compare = Compare::All;
        let mut inputs = SORTED.to_vec();
        inputs.push("s1");
        let rest = match name {
            "ZADD" => {
                let options: Words = match self.0.chance(0.4) {
                    true => self.several(&["NX", "XX", "GT", "LT", "CH", "INCR", "ch", "gt"], 1, 3),
                    false => vec![],
                };
                let scores = if self.0.chance(0.8) { GOOD_SCORES } else { SCORES };
                let pairs: Words = (0..self.0.between(1, 4))
                    .flat_map(|_| [self.one_of(scores), self.one_of(ELEMENTS)])
                    .collect();
                [vec![self.of(SORTED)], options, pairs].concat()
            }
            "ZREM" | "ZMSCORE" => [vec![self.of(SORTED)], self.several(ELEMENTS, 1, 4)].concat(),
            "ZSCORE" | "ZRANK" | "ZREVRANK" => vec![self.of(SORTED), self.one_of(ELEMENTS)],
            "ZINCRBY" => vec![self.of(SORTED), self.one_of(SCORES), self.one_of(ELEMENTS)],
            "ZCARD" => vec![self.of(SORTED)],
            "ZCOUNT" | "ZREMRANGEBYSCORE" => {
                vec![self.of(SORTED), self.one_of(BOUNDS), self.one_of(BOUNDS)]
            }
            "ZLEXCOUNT" | "ZREMRANGEBYLEX" => vec![self.of(SORTED), self.one_of(LEX), self.one_of(LEX)],
            "ZREMRANGEBYRANK" => vec![self.of(SORTED), self.one_of(NUMBERS), self.one_of(NUMBERS)],
            "ZRANGE" | "ZRANGESTORE" => {
                let by = *self.0.pick(&["", "BYSCORE", "BYLEX"]);
                let ends = match by {
                    "BYSCORE" => BOUNDS,
                    "BYLEX" => LEX,
                    _ => NUMBERS,
                };
                let mut words = vec![self.of(SORTED)];
                if name == "ZRANGESTORE" {
                    words.push(self.of(SORTED));
                }
                words.extend(self.several(ends, 2, 2));
                if !by.is_empty() {
                    words.push(by.into());
                }
                [words, self.options(&[("REV", &[]), LIMIT, WITHSCORES])].concat()
            }
            "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" => {
                let ends = self.several(BOUNDS, 2, 2);
                [vec![self.of(SORTED)], ends, self.options(&[LIMIT, WITHSCORES])].concat()
            }
            "ZREVRANGE" => {
                let ends = self.several(NUMBERS, 2, 2);
                [vec![self.of(SORTED)], ends, self.options(&[WITHSCORES, WITHSCORES, LIMIT])].concat()
            }
            "ZRANGEBYLEX" | "ZREVRANGEBYLEX" => {
                let ends = self.several(LEX, 2, 2);
                [vec![self.of(SORTED)], ends, self.options(&[LIMIT, LIMIT, WITHSCORES])].concat()
            }
            "ZPOPMIN" | "ZPOPMAX" => [vec![self.of(SORTED)], self.several(NUMBERS, 0, 2)].concat(),
            "ZMPOP" | "BZMPOP" => {
                let options = self.options(&[("COUNT", &[NUMBERS])]);
                let words =
                    [self.numbered(SORTED), vec![self.one_of(&["MIN", "MAX", "min", "MID"])], options];
                let words = words.concat();
                if name == "BZMPOP" { [vec![self.one_of(WAITS)], words].concat() } else { words }
            }
            "BZPOPMIN" | "BZPOPMAX" => [self.keys(SORTED), vec![self.one_of(WAITS)]].concat(),
            "ZRANDMEMBER" => {
                let count = *self.0.pick(&["100", "0", "x", "-3", "1", ""]);
                compare = if count == "100" { Compare::Set } else { Compare::Head };
                let scores = if self.0.chance(0.3) { vec![b"WITHSCORES".to_vec()] } else { vec![] };
                if !scores.is_empty() {
                    compare = Compare::Head;
                }
                let count = if count.is_empty() { vec![] } else { [vec![count.into()], scores].concat() };
                [vec![self.of(SORTED)], count].concat()
            }
            "ZSCAN" => {
                compare = Compare::Set;
                let options = self
                    .options(&[("MATCH", &[&["*", "e*", "a", "[ab]"]]), ("COUNT", &[&["1000", "100", "0"]])]);
                [vec![self.of(SORTED), self.one_of(&["0", "0", "0", "x"])], options].concat()
            }
            _ => {
                let keys = self.numbered(&inputs);
                let mut words = Vec::new();
                if self.0.chance(0.3) {
                    words.push(b"WEIGHTS".to_vec());
                    let count = keys.len() as u64 - 1;
                    words.extend(self.several(&["1", "2", "-1", "0.5", "inf", "0", "x"], count, count));
                }
                words.extend(self.options(&[
                    ("AGGREGATE", &[&["SUM", "MIN", "MAX", "avg"]]),
                    WITHSCORES,
                    ("LIMIT", &[NUMBERS]),
                ]));
                let store = if name.ends_with("STORE") { vec![self.of(SORTED)] } else { vec![] };
                [store, keys, words].concat()
            }
        };
        ([vec![name.into()], rest].concat(), compare)
    }

    fn type_command(&mut self) -> (Words, Compare) {
        let word = |text: &str| text.as_bytes().to_vec();
        let (mut words, compare) = match self.0.below(22) {
            0 => {
                let all = [LISTS, SETS, SORTED, OTHERS].concat();
                let name = self.one_of(&["TYPE", "EXISTS", "DEL", "STRLEN", "GET", "TTL", "UNLINK"]);
                (vec![name, self.of(&all)], Compare::All)
            }
            1 => (vec![self.one_of(&["MULTI", "EXEC", "EXEC", "DISCARD"])], Compare::All),
            2 => (vec![word("SET"), word("str"), word("value")], Compare::All),
            3 => {
                let all = [LISTS, SETS, SORTED].concat();
                (vec![word("WATCH"), self.of(&all)], Compare::All)
            }
            4..=9 => self.list_command(),
            10..=14 => self.set_command(),
            _ => self.sorted_command(),
        };
        // A word too few, or too many; without its count, a draw is another one at each server.
        let draws = ["SPOP", "SRANDMEMBER", "ZRANDMEMBER"].iter().any(|name| words[0] == name.as_bytes());
        if !draws && self.0.chance(0.02) {
            words.pop();
        } else if self.0.chance(0.01) && !words[0].to_ascii_uppercase().ends_with(b"RANK") {
            words.push(word("more"));
        }
        if words.is_empty() {
            words.push(word("PING"));
        }
        (words, compare)
    }
}

#[test]
fn commands_on_lists_sets_and_sorted_sets_get_the_replies_of_redis() {
    let Some((_cluster, door, redis)) = start() else { return };
    let number =
        |name: &str, usual: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (seed, rounds) = (number("HIGHWIRE_SEED", 7), number("HIGHWIRE_ROUNDS", 120));
    let (mut compared, mut differences) = (0, Vec::new());
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..rounds {
        let mut generator = Generator(Rng::new(seed).fork(1000 + round));
        let (mut commands, mut bytes, mut is_in_multi) = (Vec::new(), Vec::new(), false);
        // Both versions of the protocol; what `HELLO` says differs.
        if generator.0.chance(0.5) {
            let words: Words = vec![b"HELLO".to_vec(), b"3".to_vec()];
            bytes.extend(generator.framed(&words));
            commands.push((words, Compare::Kind));
        }
        // What chance finds too seldom.
        for line in [
            "DEL l1 z1",
            "RPUSH l1 a b a c a",
            "LREM l1 -2 a",
            "LRANGE l1 0 -1",
            "ZADD z1 1 a 2 b 3 c",
            "ZINTERCARD 2 z1 z1 LIMIT 2",
        ] {
            let words: Words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            bytes.extend(generator.framed(&words));
            commands.push((words, if line.starts_with("DEL") { Compare::Kind } else { Compare::All }));
        }
        // A difference in one round is none in the next.
        let all = [&["DEL"], LISTS, SETS, SORTED, OTHERS].concat();
        let words: Words = all.iter().map(|word| word.as_bytes().to_vec()).collect();
        bytes.extend(generator.framed(&words));
        commands.push((words, Compare::Kind));
        for _ in 0..80 {
            let (words, mut compare) = generator.type_command();
            match &*words[0].to_ascii_uppercase() {
                b"MULTI" => is_in_multi = true,
                b"EXEC" | b"DISCARD" => is_in_multi = false,
                // What a queued one says is part of the reply of EXEC, where only equal bytes count.
                _ if is_in_multi && compare != Compare::All => continue,
                _ => {}
            }
            if is_in_multi {
                compare = Compare::All;
            }
            bytes.extend(generator.framed(&words));
            commands.push((words, compare));
        }
        bytes.extend(b"QUIT\r\n");
        let (theirs, ours) = (replies(&redis.1, &bytes), replies(&door, &bytes));
        let shown = |all: &[Vec<u8>]| {
            all.iter().map(|one| String::from_utf8_lossy(one).into_owned()).collect::<Vec<_>>()
        };
        for at in 0..theirs.len().max(ours.len()) {
            let (words, compare) =
                commands.get(at).cloned().unwrap_or((vec![b"(the end)".to_vec()], Compare::All));
            let (theirs, ours) = (as_compared(theirs.get(at), compare), as_compared(ours.get(at), compare));
            if shown(&ours) != shown(&theirs) {
                let (ours, theirs, words) = (shown(&ours), shown(&theirs), shown(&words));
                differences.push(format!(
                    "round {round}, command {at}: {words:?}\n  ours   {ours:?}\n  theirs {theirs:?}"
                ));
                // What follows may be a consequence.
                break;
            }
            compared += 1;
            if !ours[0].starts_with(b"-") {
                seen.insert(String::from_utf8_lossy(&words[0]).to_ascii_uppercase());
            }
        }
    }
    assert!(differences.is_empty(), "HIGHWIRE_SEED={seed}\n{}", differences.join("\n"));
    // Each command was carried out, not only refused.
    assert!(seen.len() > 80 || rounds < 50, "{} commands: {seen:?}", seen.len());
    assert!(compared > 60 * rounds, "{compared} replies");
}
