//! Generated commands on strings, hashes and keys of any type; malformed requests.

use super::common::resp::array;
use super::{Compare, Words};
use highwire_stdx::Rng;

pub(super) struct Generator(pub(super) Rng);

impl Generator {
    pub(super) fn one_of(&mut self, of: &[&str]) -> Vec<u8> {
        self.0.pick(of).as_bytes().to_vec()
    }

    pub(super) fn key(&mut self) -> Vec<u8> {
        self.one_of(&["a", "b", "c", "h", "i", "a]b", "x-y", "\\", "^", "", "ab", "a b", "\r\n"])
    }

    pub(super) fn value(&mut self) -> Vec<u8> {
        match self.0.below(4) {
            0 => self.number(),
            1 => (0..self.0.below(40)).map(|_| self.0.next_u32() as u8).collect(),
            _ => self.key(),
        }
    }

    pub(super) fn number(&mut self) -> Vec<u8> {
        match self.0.below(3) {
            0 => self.0.between(0, 2000).wrapping_sub(1000).cast_signed().to_string().into_bytes(),
            1 => self.one_of(&[
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854775808",
                "-9223372036854775809",
            ]),
            _ => self.one_of(&["+5", "007", "-0", " 5", "5 ", "", "-", "0x1", "1.0", "5\n", "0", "-1", "00"]),
        }
    }

    pub(super) fn pattern(&mut self) -> Vec<u8> {
        let length = self.0.below(7);
        (0..length).map(|_| *self.0.pick(b"ab*?[]^-\\xy")).collect()
    }

    pub(super) fn command(&mut self) -> (Words, Compare) {
        const PLAIN: [&str; 29] = [
            "GET", "STRLEN", "GETDEL", "GETSET", "SET", "SETNX", "APPEND", "INCR", "DECR", "INCRBY",
            "DECRBY", "MGET", "MSET", "MSETNX", "DEL", "UNLINK", "EXISTS", "TYPE", "PERSIST", "HSET",
            "HMSET", "HSETNX", "HGET", "HMGET", "HGETALL", "HDEL", "HEXISTS", "HLEN", "HINCRBY",
        ];
        let word = |text: &str| text.as_bytes().to_vec();
        if self.0.chance(0.4) {
            return self.newer_command();
        }
        match self.0.below(20) {
            0 => (vec![word("KEYS"), self.pattern()], Compare::Set),
            1 => (vec![self.one_of(&["MULTI", "EXEC", "DISCARD", "UNWATCH", "DBSIZE"])], Compare::All),
            2 => (vec![word("WATCH"), self.key(), self.key()], Compare::All),
            3 => {
                let (first, rest) = (
                    self.one_of(&["PING", "ECHO", "SELECT", "RESET", "MULTI", "EXEC", "UNWATCH"]),
                    self.0.below(3),
                );
                let rest: Vec<_> = (0..rest).map(|_| self.number()).collect();
                ([vec![first], rest].concat(), Compare::All)
            }
            4 => {
                let sub = self
                    .one_of(&["GETNAME", "SETNAME", "NO-EVICT", "NOPE", "ID", "INFO", "LIST", "GETREDIR"]);
                let compare = if [b"ID".to_vec(), b"INFO".to_vec(), b"LIST".to_vec()].contains(&sub) {
                    Compare::Kind
                } else {
                    Compare::All
                };
                let rest = self.0.below(3);
                let rest: Vec<_> = (0..rest).map(|_| self.value()).collect();
                ([vec![word("CLIENT"), sub], rest].concat(), compare)
            }
            5 => {
                let first = self.one_of(&["NOPE", "client|id", "GETT", "", "a'b", "CONFIG", "COMMAND"]);
                let rest: Vec<_> = (0..self.0.between(1, 4)).map(|_| self.value()).collect();
                ([vec![first], rest].concat(), Compare::All)
            }
            6 => (
                vec![word("CONFIG"), word("GET"), self.one_of(&["save", "appendonly", "nope"])],
                Compare::All,
            ),
            7 => {
                let (cursor, option) =
                    (self.one_of(&["x", " 0", "0x"]), self.one_of(&["COUNT", "MATCH", "NOPE"]));
                (vec![word("SCAN"), cursor, option], Compare::All)
            }
            8 => (
                vec![word("SCAN"), word("0"), word("COUNT"), self.one_of(&["0", "-1", "x", "+1", "01"])],
                Compare::All,
            ),
            9 => {
                let rest: Vec<_> =
                    (0..self.0.below(3)).map(|_| self.one_of(&["NX", "XX", "GET", "nx", "NOPE"])).collect();
                ([vec![word("SET"), self.key(), self.value()], rest].concat(), Compare::All)
            }
            10 => {
                let first = self.one_of(&["INCRBY", "DECRBY"]);
                (vec![first, self.key(), self.number()], Compare::All)
            }
            11 => (vec![word("HINCRBY"), word("h"), self.key(), self.number()], Compare::All),
            12 => (vec![word("HELLO"), self.one_of(&["4", "x", "", "+3", "1"])], Compare::All),
            _ => {
                let name = self.0.pick(&PLAIN).to_string();
                let name = if self.0.chance(0.2) { name.to_lowercase() } else { name };
                let key = if name.to_uppercase().starts_with('H') && self.0.chance(0.8) {
                    word("h")
                } else {
                    self.key()
                };
                let rest: Vec<_> = (0..self.0.below(4)).map(|_| self.value()).collect();
                ([vec![word(&name), key], rest].concat(), Compare::All)
            }
        }
    }

    pub(super) fn time(&mut self) -> Vec<u8> {
        self.one_of(&[
            "1000000",
            "100000000",
            "0",
            "-1",
            "x",
            "9223372036854775807",
            "9223372036854775",
            "-9223372036854775808",
        ])
    }

    /// A time in the far future: with these it does not matter when a command is carried out.
    pub(super) fn far_time(&mut self) -> Vec<u8> {
        self.one_of(&["33000000000", "33000000001", "34000000000", "1", "-5"])
    }

    /// A time to live that does not end while the test runs.
    pub(super) fn long_time(&mut self) -> Vec<u8> {
        self.one_of(&["33000000000", "34000000000", "0", "-5", "x"])
    }

    pub(super) fn float(&mut self) -> Vec<u8> {
        match self.0.below(4) {
            0 => self.number(),
            1 => {
                let digits = self.0.next_u64() >> self.0.between(1, 60);
                format!("{}{}.{}", self.0.pick(&["", "-", "+"]), digits, self.0.below(1_000_000)).into_bytes()
            }
            2 => format!("{}e{}", self.0.below(1000), self.0.between(0, 40) as i64 - 20).into_bytes(),
            _ => self.one_of(&[
                "0.1", "3.0", "-1.1", "1e", ".", "inf", "nan", "1.5e3", "0x1p3", "0.1x", ".5", "1e4933",
                "1e-5000",
            ]),
        }
    }

    pub(super) fn place(&mut self) -> Vec<u8> {
        self.one_of(&["0", "1", "2", "5", "-1", "-3", "100", "-100", "7", "9", "x"])
    }

    pub(super) fn some(&mut self, most: u64, of: &[&str]) -> Words {
        (0..self.0.below(most + 1)).map(|_| self.one_of(of)).collect()
    }

    /// Times, parts of strings, names of keys, and hashes.
    pub(super) fn newer_command(&mut self) -> (Words, Compare) {
        let word = |text: &str| text.as_bytes().to_vec();
        let all = |words: Vec<Words>, compare| (words.concat(), compare);
        match self.0.below(22) {
            0 => {
                let head = vec![self.one_of(&["EXPIRE", "PEXPIRE"]), self.key(), self.time()];
                all(vec![head, self.some(1, &["NX", "XX", "nx", "nope"])], Compare::All)
            }
            1 => {
                let head = vec![self.one_of(&["EXPIREAT", "PEXPIREAT"]), self.key(), self.far_time()];
                all(vec![head, self.some(2, &["NX", "XX", "GT", "LT"])], Compare::All)
            }
            2 => {
                (vec![self.one_of(&["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]), self.key()], Compare::Time)
            }
            3 => {
                let option = self.one_of(&["EX", "PX", "EXAT", "PXAT", "KEEPTTL", "PERSIST", "GET", "NX"]);
                let head = vec![word("SET"), self.key(), self.value(), option];
                all(
                    vec![head, vec![self.long_time()], self.some(1, &["NX", "XX", "GET", "KEEPTTL"])],
                    Compare::All,
                )
            }
            4 => all(
                vec![vec![word("SET"), self.key(), self.value()], self.some(2, &["KEEPTTL", "GET", "XX"])],
                Compare::All,
            ),
            5 => {
                let (option, time) =
                    (self.one_of(&["EX", "PX", "EXAT", "PXAT", "PERSIST"]), self.long_time());
                let rest = if option == b"PERSIST" || self.0.chance(0.1) {
                    vec![option]
                } else {
                    vec![option, time]
                };
                all(vec![vec![word("GETEX"), self.key()], rest], Compare::All)
            }
            6 => {
                (vec![self.one_of(&["SETEX", "PSETEX"]), self.key(), self.time(), self.value()], Compare::All)
            }
            7 => (
                vec![self.one_of(&["GETRANGE", "SUBSTR"]), self.key(), self.place(), self.place()],
                Compare::All,
            ),
            8 => (vec![word("SETRANGE"), self.key(), self.place(), self.value()], Compare::All),
            9 | 10 => (vec![word("INCRBYFLOAT"), self.key(), self.float()], Compare::All),
            11 => (vec![word("HINCRBYFLOAT"), word("h"), self.key(), self.float()], Compare::All),
            12 => {
                let options = self.some(2, &["LEN", "IDX", "WITHMATCHLEN", "NOPE"]);
                let least = if self.0.chance(0.3) { vec![word("MINMATCHLEN"), self.place()] } else { vec![] };
                all(vec![vec![word("LCS"), self.key(), self.key()], options, least], Compare::All)
            }
            13 => (vec![self.one_of(&["RENAME", "RENAMENX"]), self.key(), self.key()], Compare::All),
            14 => {
                let options = self.some(2, &["REPLACE", "DB", "0", "1", "x"]);
                all(vec![vec![word("COPY"), self.key(), self.key()], options], Compare::All)
            }
            15 => {
                let (sub, key) = (self.one_of(&["ENCODING", "REFCOUNT", "NOPE", "encoding"]), self.key());
                let rest = if self.0.chance(0.1) { vec![] } else { vec![key] };
                all(vec![vec![word("OBJECT"), sub], rest], Compare::Kind)
            }
            16 => {
                let range = if self.0.chance(0.7) { vec![self.place(), self.place()] } else { vec![] };
                all(
                    vec![vec![word("BITCOUNT"), self.key()], range, self.some(1, &["BIT", "byte", "nope"])],
                    Compare::All,
                )
            }
            17 => {
                let bit = self.one_of(&["0", "1", "2", "x"]);
                let range = (0..self.0.below(3)).map(|_| self.place()).collect();
                let unit = if self.0.chance(0.3) { self.some(1, &["BIT", "BYTE", "nope"]) } else { vec![] };
                all(vec![vec![word("BITPOS"), self.key(), bit], range, unit], Compare::All)
            }
            18 if self.0.chance(0.5) => (vec![word("GETBIT"), self.key(), self.place()], Compare::All),
            18 => (
                vec![word("SETBIT"), self.key(), self.place(), self.one_of(&["0", "1", "2", "x"])],
                Compare::All,
            ),
            19 => {
                let options = [
                    vec![],
                    vec![word("COUNT"), word("5")],
                    vec![word("MATCH"), self.pattern()],
                    vec![word("TYPE")],
                ];
                let options = self.0.pick(&options).clone();
                let key = if self.0.chance(0.8) { word("h") } else { self.key() };
                all(vec![vec![word("HSCAN"), key, self.one_of(&["0", "x"])], options], Compare::All)
            }
            20 => {
                let count = self.one_of(&["0", "1000", "x", "-9223372036854775808"]);
                all(
                    vec![vec![word("HRANDFIELD"), word("h"), count], self.some(2, &["WITHVALUES", "nope"])],
                    Compare::Set,
                )
            }
            _ => match self.0.below(6) {
                0 => (vec![word("RANDOMKEY")], Compare::Kind),
                1 => (vec![word("TIME")], Compare::Kind),
                2 => (
                    vec![self.one_of(&["FLUSHALL", "FLUSHDB"]), self.one_of(&["ASYNC", "sync", "nope"])],
                    Compare::All,
                ),
                3 => (vec![word("TOUCH"), self.key(), self.key()], Compare::All),
                4 => (vec![word("PERSIST"), self.key()], Compare::All),
                _ => {
                    let kind = self.one_of(&["string", "hash", "nope"]);
                    let options = [vec![word("TYPE"), kind], vec![word("MATCH"), self.pattern()]];
                    let options = self.0.pick(&options).clone();
                    all(
                        vec![vec![word("SCAN"), word("0"), word("COUNT"), word("10000")], options],
                        Compare::Set,
                    )
                }
            },
        }
    }

    /// A command in one of the ways in which it can be written.
    pub(super) fn framed(&mut self, words: &Words) -> Vec<u8> {
        if self.0.chance(0.6) {
            let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            return array(&words);
        }
        let mut line = Vec::new();
        for word in words {
            line.extend(std::iter::repeat_n(b' ', self.0.between(1, 2) as usize));
            line.push(b'"');
            for &byte in word {
                match byte {
                    b'"' | b'\\' => line.extend([b'\\', byte]),
                    b' '..=b'~' if self.0.chance(0.9) => line.push(byte),
                    _ => line.extend(format!("\\x{byte:02x}").into_bytes()),
                }
            }
            line.push(b'"');
        }
        line.extend_from_slice(if self.0.chance(0.5) { b"\r\n" } else { b"\n" });
        line
    }

    /// What ends a conversation with an error, or is understood by chance.
    pub(super) fn malformed(&mut self) -> Vec<u8> {
        let length = self.one_of(&[
            "-1",
            "0",
            "1",
            "+1",
            "01",
            "x",
            "",
            "2147483648",
            "536870913",
            "99999999999999999999",
            " 1",
            "-0",
        ]);
        let (kind, end) = (
            self.one_of(&["*", "*1\r\n$", "*2\r\n$4\r\nPING\r\n$", "*1\r\n*", "*1\r\n:"]),
            self.one_of(&["\r\n", "\rX"]),
        );
        let quotes = self.one_of(&[
            "'a",
            "\"a",
            "\"a\"b",
            "a\"b",
            "'a'b",
            "ECHO 'a\\'b'",
            "ECHO \"\\x4\\q\"",
            "ECHO a'b c'",
        ]);
        match self.0.below(3) {
            0 => [quotes, b"\r\n".to_vec()].concat(),
            _ => [kind, length, end, b"ABCD\r\n".to_vec()].concat(),
        }
    }
}
