//! The messages for a program: from a file, or a number of equal ones.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use highwire_nanopu::client::Request;

use super::limits::{self, SPAN_MAX};
use crate::failure::usage;

/// Requests in order, and the recorded cycles until each answer, if there are any; infinite without an answer.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) requests: Vec<Request>,
    pub(super) recorded: Option<Vec<f64>>,
}

/// Reads a file of requests: CSV with a line of column names.
///
/// `sent` (or `sent_time`) is the cycle and `context` the context; a message's content is in `words`, numbers
/// separated by spaces, or in `service_time`, which makes a message of two words: that time, and the cycle of
/// sending. No message has more than `bytes_max` bytes.
pub(super) fn read(path: &Path, bytes_max: usize) -> Result<Asked> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text, bytes_max).map_err(|error| usage(format!("{}: {error}", path.display())))
}

fn parse(text: &str, bytes_max: usize) -> Result<Asked, String> {
    let mut lines = text.lines().enumerate();
    let (_, names) = lines.next().ok_or("the file is empty")?;
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    let column = |wanted: &[&str]| names.iter().position(|name| wanted.contains(name));
    let sent = column(&["sent", "sent_time"]).ok_or("line 1: no column `sent` or `sent_time`")?;
    let context = column(&["context"]).ok_or("line 1: no column `context`")?;
    let words = column(&["words"]);
    let service = column(&["service_time"]);
    let response = column(&["resp_time"]);
    if words.is_none() && service.is_none() {
        return Err("line 1: neither a column `words` nor `service_time`".to_string());
    }
    let mut requests = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = index + 1;
        let field = |column: usize| {
            fields.get(column).copied().ok_or(format!("line {number}: no `{}`", names[column]))
        };
        let value = |column: usize| {
            let text = field(column)?;
            parse_number(text).ok_or(format!("line {number}: `{}` is `{text}`, not a number", names[column]))
        };
        let at = value(sent)?;
        let context = value(context)?;
        let context = u16::try_from(context)
            .map_err(|_| format!("line {number}: no context is {context}: they are 0 to {}", u16::MAX))?;
        let payload = match (words, service) {
            (Some(words), _) => {
                let words = field(words)?.split_whitespace().map(|word| {
                    parse_number(word).ok_or(format!("line {number}: the word `{word}` is not a number"))
                });
                words.map(|word| word.map(u64::to_be_bytes)).collect::<Result<Vec<_>, _>>()?.concat()
            }
            (None, Some(service)) => [value(service)?.to_be_bytes(), at.to_be_bytes()].concat(),
            (None, None) => Vec::new(),
        };
        if payload.len() > bytes_max {
            return Err(format!("line {number}: {} bytes; a message has at most {bytes_max}", payload.len()));
        }
        let recorded = match response {
            Some(place) => {
                let text = field(place)?;
                let cycles = text.parse().ok().filter(|cycles: &f64| *cycles >= 0.0);
                cycles.ok_or(format!("line {number}: `{}` is `{text}`, not a number", names[place]))?
            }
            None => f64::INFINITY,
        };
        requests.push((Request { sent: at, context, payload }, recorded));
    }
    // The time of the first request is arbitrary.
    requests.sort_by_key(|(request, _)| request.sent);
    let (requests, recorded): (Vec<Request>, Vec<f64>) = requests.into_iter().unzip();
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else {
        return Err("there is no request below the names".to_string());
    };
    if last.sent - first.sent > SPAN_MAX {
        return Err(format!(
            "the last request is {} cycles behind the first: at most {SPAN_MAX}",
            last.sent - first.sent
        ));
    }
    Ok(Asked { requests, recorded: response.map(|_| recorded) })
}

/// A cycle, a context or a word: decimal, hexadecimal with 0x, or decimal with a zero fraction.
fn parse_number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

/// `count` messages of `bytes` bytes, one every `interval` cycles, their words numbered.
///
/// # Errors
/// They are too many bytes.
pub(super) fn alike(count: u32, bytes: usize, context: u16, interval: u64) -> Result<Vec<Request>> {
    limits::check_payload(count.into(), bytes)
        .map_err(|error| usage(format!("--count, --bytes: {error}")))?;
    let payload: Vec<u8> = (1..=bytes.div_ceil(8) as u64).flat_map(u64::to_be_bytes).take(bytes).collect();
    Ok((0..u64::from(count))
        .map(|number| Request { sent: number * interval, context, payload: payload.clone() })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Request>, String> {
        super::parse(text, 2048).map(|asked| asked.requests)
    }

    #[test]
    fn words_and_service_times_make_messages() {
        let requests = parse("sent,context,words\n5,1,0x10 2\n3,0,\n").unwrap();
        assert_eq!(requests[0], Request { sent: 3, context: 0, payload: vec![] });
        assert_eq!(requests[1].payload, [0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 2]);
        let requests = parse("context,sent_time,service_time\n1.0,108264660.0,1600.0\n").unwrap();
        assert_eq!((requests[0].sent, requests[0].context, requests[0].payload.len()), (108_264_660, 1, 16));
    }

    #[test]
    fn recorded_times_stay_with_their_requests() {
        let asked =
            super::parse("sent,context,service_time,resp_time\n9,0,5,300.0\n4,1,6,inf\n", 2048).unwrap();
        assert_eq!(asked.recorded, Some(vec![f64::INFINITY, 300.0]));
        assert!(super::parse("sent,context,words\n9,0,5\n", 2048).unwrap().recorded.is_none());
        let error = super::parse("sent,context,service_time,resp_time\n9,0,5,-1\n", 2048).unwrap_err();
        assert!(error.contains("line 2: `resp_time` is `-1`"), "{error}");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let errors = [
            ("", "empty"),
            ("a,b\n", "sent_time"),
            ("sent,context\n", "service_time"),
            ("sent,context,words\n1,x,2\n", "line 2: `context` is `x`"),
            ("sent,context,words\n1,70000,2\n", "line 2: no context is 70000: they are 0 to 65535"),
            ("sent,context,words\n1\n", "line 2: no `context`"),
            ("sent,context,words\n\n", "no request"),
            ("sent,context,words\n1,0,2\n1000000000002,0,2\n", "at most 1000000000000"),
            ("sent,context,words\n0,0,2\n18446744073709551615,0,2\n", "18446744073709551615 cycles behind"),
            ("sent,context,words\n18446744073709551616,0,2\n", "line 2: `sent` is `18446744073709551616`"),
            ("sent,context,words\n1,0,zz\n", "line 2: the word `zz`"),
        ];
        for (text, mention) in errors {
            let error = parse(text).unwrap_err();
            assert!(error.contains(mention), "{error}");
        }
    }
}
