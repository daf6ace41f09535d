//! The words of one line, as a person types them: separated by blanks, and quoted where they contain some.
//!
//! In double quotes `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH` are characters, and any other character behind a `\` stands for itself;
//! in single quotes only `\'` means something else. A closing quote is followed by a blank or by the end.

/// The line's words; `None`: a quote is not closed, or something follows a closing one.
pub(super) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    // As for Redis, a line ends at a zero byte, also between quotes.
    let mut rest = line.split(|&byte| byte == 0).next().unwrap_or_default();
    loop {
        let blank = rest.iter().take_while(|&&byte| is_space(byte)).count();
        rest = &rest[blank..];
        if rest.is_empty() {
            return Some(words);
        }
        let (word, behind) = word(rest)?;
        words.push(word);
        rest = behind;
    }
}

/// The first word, and what is behind it.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Some((word, rest)),
            [b'"', quoted @ ..] => return double_quoted(word, quoted),
            [b'\'', quoted @ ..] => return single_quoted(word, quoted),
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
        }
    }
}

fn double_quoted(mut word: Vec<u8>, mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    loop {
        let (byte, behind) = match rest {
            [b'\\', b'x', high, low, behind @ ..] if byte_of(*high, *low).is_some() => {
                (byte_of(*high, *low).unwrap_or_default(), behind)
            }
            [b'\\', escaped, behind @ ..] => (meaning(*escaped), behind),
            [b'"', behind @ ..] => return closed(word, behind),
            [byte, behind @ ..] => (*byte, behind),
            [] => return None,
        };
        word.push(byte);
        rest = behind;
    }
}

fn single_quoted(mut word: Vec<u8>, mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    loop {
        let (byte, behind) = match rest {
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [b'\'', behind @ ..] => return closed(word, behind),
            [byte, behind @ ..] => (*byte, behind),
            [] => return None,
        };
        word.push(byte);
        rest = behind;
    }
}

fn closed(word: Vec<u8>, behind: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    behind.first().is_none_or(|&byte| is_space(byte)).then_some((word, behind))
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// The byte that two hexadecimal digits are.
fn byte_of(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

fn meaning(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_is_words_as_redis_reads_them() {
        let check = |line: &str, expected: Option<&[&str]>| {
            let found = super::words(line.as_bytes());
            let expected = expected.map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect());
            assert_eq!(found, expected, "{line}");
        };
        check("  a \t b  ", Some(&["a", "b"]));
        check("", Some(&[]));
        check(r#"SET k "a b""#, Some(&["SET", "k", "a b"]));
        check(r#"'a\'b' 'c\n' """#, Some(&["a'b", r"c\n", ""]));
        check(r#""a\x41\n\q\"\xg""#, Some(&["aA\nq\"xg"]));
        check(r#"a"b c""#, Some(&["ab c"]));
        check("\0", Some(&[]));
        check("\0a", Some(&[]));
        check(" a \0 b", Some(&["a"]));
        check("a\0b", Some(&["a"]));
        check("\x0ba\x0b", Some(&["a\x0b"]));
        for unbalanced in ["'a", "\"a", "\"a\"b", "'a'b", "a\"b", "\"a\\", "'a\\'", "\"a\0\""] {
            check(unbalanced, None);
        }
    }
}
