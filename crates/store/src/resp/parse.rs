//! Requests of Redis's protocol: arrays of strings, or one line of words.
//!
//! A request is flat, so this parser reads nothing nested and bounds the bytes that it keeps; a general
//! parser of the protocol would follow as many levels as a stranger sends.

/// The longest string. Longer than any value, so that the store can report which value is too long.
const STRING_BYTES_MAX: usize = 2 * crate::rows::VALUE_BYTES_MAX;
/// The longest line.
const LINE_BYTES_MAX: usize = 1 << 20;
const WORDS_MAX: usize = 1 << 16;
/// All strings of a request together.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Received bytes, and how many of them have been parsed.
#[derive(Debug, Default)]
pub(super) struct Parser {
    bytes: Vec<u8>,
    at: usize,
    /// The words so far of an incomplete array.
    words: Vec<Vec<u8>>,
    missing: usize,
    length: usize,
}

impl Parser {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete request.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, &'static str> {
        if self.missing == 0 {
            let Some(line) = self.line()? else { return Ok(None) };
            let Some(count) = line.strip_prefix(b"*") else {
                let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                return Ok(Some(words.map(<[u8]>::to_vec).collect()));
            };
            // An array of length zero or less is no request; the caller ignores it.
            let count = number(count).ok_or("invalid multibulk length")?;
            if count > WORDS_MAX as i64 {
                return Err("invalid multibulk length");
            }
            if count <= 0 {
                return Ok(Some(Vec::new()));
            }
            (self.missing, self.length) = (count as usize, 0);
        }
        while self.missing > 0 {
            let Some(word) = self.string()? else { return Ok(None) };
            self.length += word.len();
            if self.length > REQUEST_BYTES_MAX {
                return Err("the request is too long");
            }
            self.words.push(word);
            self.missing -= 1;
        }
        Ok(Some(std::mem::take(&mut self.words)))
    }

    /// A line without its end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            return if rest.len() > LINE_BYTES_MAX { Err("too big inline request") } else { Ok(None) };
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
        self.at += end + 1;
        Ok(Some(line))
    }

    /// A string with its length before it; takes no bytes unless the string is complete.
    fn string(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let start = self.at;
        let Some(line) = self.line()? else { return Ok(None) };
        let length = line.strip_prefix(b"$").ok_or("expected '$'")?;
        let length = number(length).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| length <= STRING_BYTES_MAX).ok_or("invalid bulk length")?;
        let Some(end) = self.bytes.get(self.at..self.at + length + 2) else {
            self.at = start;
            return Ok(None);
        };
        let (word, end) = end.split_at(length);
        if end != b"\r\n" {
            return Err("a bulk string does not end where it should");
        }
        let word = word.to_vec();
        self.at += length + 2;
        Ok(Some(word))
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn all(parser: &mut Parser) -> Vec<Vec<Vec<u8>>> {
        std::iter::from_fn(|| parser.next().expect("requests")).collect()
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
            "*1\r\n$1\r\nabc",
        ] {
            let mut parser = Parser::default();
            parser.feed(wrong.as_bytes());
            assert!(parser.next().is_err(), "{wrong:?}");
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
        }
    }
}
