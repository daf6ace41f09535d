//! One request line: a command and `key=value` words.

use std::fmt;

/// Why a request is refused: an errno, as the verbs number errors, and words.
#[derive(Debug)]
pub(crate) struct Refusal {
    errno: i32,
    text: String,
}

pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const ENODEV: i32 = 19;
pub(crate) const ERANGE: i32 = 34;
pub(crate) const ENOSYS: i32 = 38;

impl Refusal {
    pub(crate) fn new(errno: i32, text: impl fmt::Display) -> Refusal {
        Refusal { errno, text: text.to_string() }
    }
}

/// The rest of the `err` line.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.errno, self.text)
    }
}

/// The library's errors tell what was wrong with the arguments.
impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal::new(EINVAL, error)
    }
}

pub(crate) type Answer<T = String> = Result<T, Refusal>;

/// A request, borrowed from its line.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) command: &'a str,
    words: Vec<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    pub(crate) fn parse(line: &'a str) -> Request<'a> {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or("");
        Request { command, words: words.filter_map(|word| word.split_once('=')).collect() }
    }

    pub(crate) fn find(&self, key: &str) -> Option<&'a str> {
        self.words.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    pub(crate) fn text(&self, key: &str) -> Answer<&'a str> {
        self.find(key).ok_or_else(|| Refusal::new(EINVAL, format!("{} needs {key}=", self.command)))
    }

    /// A decimal or 0x… number that fits.
    pub(crate) fn number<T: TryFrom<u64>>(&self, key: &str) -> Answer<T> {
        let text = self.text(key)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| Refusal::new(EINVAL, format!("{key}={text} is no such number")))
    }

    pub(crate) fn number_or<T: TryFrom<u64>>(&self, key: &str, fallback: T) -> Answer<T> {
        if self.find(key).is_some() { self.number(key) } else { Ok(fallback) }
    }

    /// The object that a number stands for.
    pub(crate) fn object<'o, T>(&self, key: &str, objects: &'o [Option<T>]) -> Answer<&'o T> {
        let number: usize = self.number(key)?;
        let object = objects.get(number).and_then(Option::as_ref);
        object.ok_or_else(|| Refusal::new(ENOENT, format!("there is no {key} {number}")))
    }
}

#[cfg(test)]
mod tests {
    use super::Request;

    #[test]
    fn a_line_is_a_command_and_words() {
        let request = Request::parse("mr pd=0 bytes=4096 access=lw rkey=0x1f");
        assert_eq!(request.command, "mr");
        assert_eq!(request.number::<usize>("bytes").expect("a number"), 4096);
        assert_eq!(request.number::<u32>("rkey").expect("a number"), 31);
        assert_eq!(request.number_or::<u32>("count", 1).expect("the fallback"), 1);
        assert!(request.number::<u8>("bytes").is_err());
        assert!(request.text("sge").is_err());
        assert!(request.object("pd", &[None::<u8>]).is_err());
    }
}
