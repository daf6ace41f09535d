//! Requests of Redis's protocol: arrays of strings, or one line of words.
//!
//! A request is flat, so this parser reads nothing nested. What it keeps is bounded: a string, or a request, that is longer than
//! this store can take is read to its end and dropped, so that its sender gets an error and not a connection that is lost.

use super::inline;
use crate::rows::VALUE_BYTES_MAX;

/// Redis takes no longer string, and ends the connection (`proto-max-bulk-len`).
const STRING_BYTES_MAX: i64 = 512 << 20;
/// The longest line that has no end yet.
const LINE_BYTES_MAX: usize = 64 << 10;
/// What a client that has not said who it is may send.
const STRANGERS_WORDS_MAX: i64 = 10;
const STRANGERS_STRING_BYTES_MAX: usize = 16 << 10;
/// The most words of a request.
pub(super) const WORDS_MAX: usize = 1 << 16;
/// All strings of a request together.
pub(super) const REQUEST_BYTES_MAX: usize = 16 << 20;

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Its words; none: there is nothing to do.
    Words(Vec<Vec<u8>>),
    /// It is longer than this store takes; why.
    TooLong(String),
}

/// Received bytes, and how many of them have been parsed.
#[derive(Debug, Default)]
pub(super) struct Parser {
    bytes: Vec<u8>,
    at: usize,
    /// The words so far of an incomplete array.
    words: Vec<Vec<u8>>,
    missing: usize,
    length: usize,
    /// Bytes of a string that are still to be dropped.
    skip: usize,
    too_long: Option<String>,
    /// The client has not said who it is: it gets little room, as in Redis.
    is_stranger: bool,
}

impl Parser {
    pub(super) fn set_stranger(&mut self, is_stranger: bool) {
        self.is_stranger = is_stranger;
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Holds nothing of requests that are complete.
    pub(super) fn forget(&mut self) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.shrink_to(LINE_BYTES_MAX / 2);
    }

    /// The bytes that this parser holds, about.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.length + self.words.len() * size_of::<Vec<u8>>()
    }

    /// Whether a request has begun that is not complete.
    pub(super) fn is_within(&self) -> bool {
        self.missing > 0 || self.at < self.bytes.len()
    }

    /// The next complete request; what is wrong if there can be none any more.
    pub(super) fn next(&mut self) -> Result<Option<Request>, String> {
        if self.missing == 0 {
            match self.bytes.get(self.at) {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.line(),
            }
            let Some(header) = self.header("too big mbulk count string")? else { return Ok(None) };
            let count = super::keys::integer(&header[1..]).filter(|&count| count <= i64::from(i32::MAX));
            let count = count.ok_or("invalid multibulk length")?;
            if self.is_stranger && count > STRANGERS_WORDS_MAX {
                return Err("unauthenticated multibulk length".into());
            }
            if count <= 0 {
                return Ok(Some(Request::Words(Vec::new())));
            }
            (self.missing, self.length, self.too_long) = (count as usize, 0, None);
            if self.missing > WORDS_MAX {
                self.too_long = Some(format!("ERR a command has at most {WORDS_MAX} words, and not {count}"));
            }
        }
        while self.missing > 0 {
            if !self.string()? {
                return Ok(None);
            }
            self.missing -= 1;
        }
        self.length = 0;
        let words = std::mem::take(&mut self.words);
        Ok(Some(self.too_long.take().map_or(Request::Words(words), Request::TooLong)))
    }

    /// One line of words.
    fn line(&mut self) -> Result<Option<Request>, String> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            return if rest.len() > LINE_BYTES_MAX { Err("too big inline request".into()) } else { Ok(None) };
        };
        let words = inline::words(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]));
        self.at += end + 1;
        words.map(|words| Some(Request::Words(words))).ok_or_else(|| "unbalanced quotes in request".into())
    }

    /// The line that says how many words or bytes follow. It ends with a carriage return and one byte more, as in Redis.
    fn header(&mut self, too_big: &str) -> Result<Option<Vec<u8>>, String> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\r') else {
            return if rest.len() > LINE_BYTES_MAX { Err(too_big.into()) } else { Ok(None) };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        let line = rest[..end].to_vec();
        self.at += end + 2;
        Ok(Some(line))
    }

    /// Takes a string with its length before it, as a whole or, if it is to be dropped, as far as it is there. Returns whether it was complete.
    fn string(&mut self) -> Result<bool, String> {
        if self.skip == 0 {
            let start = self.at;
            let Some(header) = self.header("too big bulk count string")? else { return Ok(false) };
            let Some(digits) = header.strip_prefix(b"$") else {
                let got = header.first().map_or(' ', |&byte| char::from(byte));
                return Err(format!("expected '$', got '{got}'"));
            };
            let length =
                super::keys::integer(digits).filter(|length| (0..=STRING_BYTES_MAX).contains(length));
            let length = length.ok_or("invalid bulk length")? as usize;
            if self.is_stranger && length > STRANGERS_STRING_BYTES_MAX {
                return Err("unauthenticated bulk length".into());
            }
            if length > VALUE_BYTES_MAX {
                self.refuse(format!(
                    "ERR {length} bytes are too many for a value, which has at most {VALUE_BYTES_MAX}"
                ));
            } else if self.length + length > REQUEST_BYTES_MAX {
                self.refuse(format!("ERR a command has at most {REQUEST_BYTES_MAX} bytes"));
            }
            if self.too_long.is_none() {
                let Some(word) = self.bytes.get(self.at..self.at + length + 2) else {
                    self.at = start;
                    return Ok(false);
                };
                self.words.push(word[..length].to_vec());
                (self.at, self.length) = (self.at + length + 2, self.length + length);
                return Ok(true);
            }
            self.skip = length + 2;
        }
        let there = self.skip.min(self.bytes.len() - self.at);
        (self.at, self.skip) = (self.at + there, self.skip - there);
        Ok(self.skip == 0)
    }

    fn refuse(&mut self, why: String) {
        self.words = Vec::new();
        self.length = 0;
        self.too_long.get_or_insert(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn all(parser: &mut Parser) -> Vec<Vec<Vec<u8>>> {
        let words = |request| match request {
            Request::Words(words) => words,
            Request::TooLong(why) => vec![why.into_bytes()],
        };
        std::iter::from_fn(|| parser.next().expect("requests").map(words)).collect()
    }

    #[test]
    fn requests_are_the_same_however_they_are_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nb\0\r\nPING  x\r\n*1\r\n$0\r\n\r\n*0\r\n";
        let expected: Vec<Vec<Vec<u8>>> = vec![
            vec![b"GET".to_vec(), b"a\r\nb\0".to_vec()],
            vec![b"PING".to_vec(), b"x".to_vec()],
            vec![Vec::new()],
            vec![],
        ];
        for step in 1..=bytes.len() {
            let mut parser = Parser::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(step) {
                parser.feed(piece);
                found.extend(all(&mut parser));
            }
            assert_eq!(found, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        for wrong in [
            "*x\r\n",
            "*99999999999\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n$9999999999\r\n",
            "*01\r\n",
            "* 1\r\n",
            "*1\r\n$+1\r\na\r\n",
            "*1\r\n\r\n",
            "'a\r\n",
        ] {
            let mut parser = Parser::default();
            parser.feed(wrong.as_bytes());
            assert!(parser.next().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_read_to_its_end_and_what_follows_is_understood() {
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        let word = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let many = 40 * VALUE_BYTES_MAX / 1000;
        for (bytes, expected) in [
            (format!("*3\r\n{}{}{}", word("SET"), word("k"), word(&long)), "1048577 bytes are too many"),
            (format!("*{many}\r\n{}", word(&"y".repeat(1000)).repeat(many)), "at most 16777216 bytes"),
            (format!("*70000\r\n{}", word("").repeat(70_000)), "at most 65536 words, and not 70000"),
        ] {
            let bytes = format!("{bytes}PING\r\n").into_bytes();
            let (mut parser, mut found, mut held) = (Parser::default(), Vec::new(), 0);
            for piece in bytes.chunks(60_000) {
                parser.feed(piece);
                found.extend(all(&mut parser));
                held = held.max(parser.held());
            }
            assert_eq!(found.len(), 2, "{expected}");
            assert!(String::from_utf8_lossy(&found[0][0]).contains(expected), "{found:?}");
            assert_eq!(found[1], [b"PING".to_vec()]);
            assert!(held < REQUEST_BYTES_MAX + (1 << 20), "{held}");
            assert!(!parser.is_within());
        }
    }

    #[test]
    fn damaged_requests_never_panic() {
        let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nabcd\r\n";
        let mut rng = Rng::new(11);
        for _ in 0..20_000 {
            let mut bent = bytes.to_vec();
            for _ in 0..rng.between(1, 3) {
                let at = rng.below(bent.len() as u64) as usize;
                bent[at] = *rng.pick(b"*$:-+0123456789\r\nx\xff");
            }
            let mut parser = Parser::default();
            parser.feed(&bent);
            while let Ok(Some(_)) = parser.next() {}
            assert!(parser.held() < 1 << 20);
        }
    }
}
