//! Flows that a file lists, one per line.
//!
//! The first line names the columns, in any order: `start`, `source`, `destination`, `size`, and perhaps `after`. Flow 0 stands on
//! the next line. Everything is checked, and what is wrong is said with its line and column.

use std::fmt;

use highwire_fabric::{HostId, NodeId, Span, Time, Topology, parse_span};

use crate::{Flow, FlowId};

/// The flows of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    file: String,
    rows: Vec<Row>,
}

/// A line with a flow.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    line: usize,
    start: Time,
    /// With the columns at which the file names them.
    source: (String, usize),
    destination: (String, usize),
    bytes: u64,
    after: Vec<FlowId>,
    after_column: usize,
}

/// What is wrong with a trace, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.problem)
    }
}

impl std::error::Error for TraceError {}

/// Columns that a trace may have.
const COLUMNS: [&str; 5] = ["start", "source", "destination", "size", "after"];
/// The longest message.
const BYTES_MAX: u64 = highwire_verbs::MESSAGE_LENGTH_MAX as u64;
/// More flows than a run has.
const ROWS_MAX: usize = 100_000_000;

/// A line's fields with the columns at which they begin.
fn fields(line: &str) -> Vec<(&str, usize)> {
    let mut column = 1;
    let mut all = Vec::new();
    for field in line.split(',') {
        let blank = field.chars().take_while(|c| c.is_whitespace()).count();
        all.push((field.trim(), column + blank));
        column += field.chars().count() + 1;
    }
    all
}

impl Trace {
    /// Reads a trace. `file` is what errors call it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Trace, TraceError> {
        let error = |line, column, problem: String| TraceError { file: file.into(), line, column, problem };
        let lines = (1..).zip(text.lines().map(|line| line.trim_end_matches('\r')));
        let mut lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let (line, head) = lines.next().ok_or_else(|| {
            error(1, 1, format!("an empty file: its first line names the columns {}", COLUMNS.join(",")))
        })?;
        let head = fields(head);
        for (at, (name, column)) in head.iter().enumerate() {
            if !COLUMNS.contains(name) {
                let problem = format!("`{name}` is no column; there are {}", COLUMNS.join(", "));
                return Err(error(line, *column, problem));
            }
            if head[..at].iter().any(|(other, _)| other == name) {
                return Err(error(line, *column, format!("there are two columns `{name}`")));
            }
        }
        let place = |name: &str| head.iter().position(|(column, _)| *column == name);
        let needed =
            |name: &str| place(name).ok_or_else(|| error(line, 1, format!("the column `{name}` is missing")));
        let (start, source) = (needed("start")?, needed("source")?);
        let (destination, size) = (needed("destination")?, needed("size")?);
        let after = place("after");
        let mut trace = Trace { file: file.into(), rows: Vec::new() };
        for (line, text) in lines {
            let found = fields(text);
            if found.len() != head.len() {
                let column = found.get(head.len()).map_or(text.chars().count() + 1, |(_, column)| *column);
                let problem = format!("{} fields, and there are {} columns", found.len(), head.len());
                return Err(error(line, column, problem));
            }
            if trace.rows.len() == ROWS_MAX {
                return Err(error(line, 1, format!("more than {ROWS_MAX} flows")));
            }
            let row = trace.rows.len();
            let wrong = |place: usize, problem: String| error(line, found[place].1, problem);
            let named = |place: usize| (found[place].0.to_owned(), found[place].1);
            let after_text = after.map_or("", |place| found[place].0);
            let mut flows = Vec::new();
            for word in after_text.split_whitespace() {
                let flow = word.parse::<u32>().ok().filter(|&flow| (flow as usize) < row);
                flows.push(FlowId(flow.ok_or_else(|| {
                    let problem = match row {
                        0 => format!("`{word}`: the first flow has none before it"),
                        _ => {
                            format!("`{word}` is no earlier flow; before this one there are 0 to {}", row - 1)
                        }
                    };
                    wrong(after.unwrap_or_default(), problem)
                })?));
            }
            trace.rows.push(Row {
                line,
                start: time(found[start].0).map_err(|problem| wrong(start, problem))?,
                source: named(source),
                destination: named(destination),
                bytes: bytes(found[size].0).map_err(|problem| wrong(size, problem))?,
                after: flows,
                after_column: after.map_or(1, |place| found[place].1),
            });
        }
        if trace.rows.is_empty() {
            return Err(error(line, 1, "no flow follows".into()));
        }
        Ok(trace)
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none; a file without flows is refused.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// When the last flow may start.
    pub fn last_start(&self) -> Time {
        self.rows.iter().map(|row| row.start).max().unwrap_or(Time::ZERO)
    }

    /// The flows on a network, in the order of the file.
    ///
    /// # Errors
    /// A host that is not there, or does not know when the flow it waits for is over.
    pub fn flows(&self, topology: &Topology) -> Result<Vec<Flow>, TraceError> {
        let mut flows: Vec<Flow> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let error =
                |column, problem| TraceError { file: self.file.clone(), line: row.line, column, problem };
            let host = |(name, column): &(String, usize)| {
                host(topology, name).ok_or_else(|| {
                    let last = topology.host_count() - 1;
                    let last_name = topology.node_name(NodeId::Host(last));
                    let problem =
                        format!("there is no host `{name}`; the last one is {last}, called `{last_name}`");
                    error(*column, problem)
                })
            };
            let (source, destination) = (host(&row.source)?, host(&row.destination)?);
            if source == destination {
                let problem = format!("host `{}` sends to itself", row.source.0);
                return Err(error(row.destination.1, problem));
            }
            for before in &row.after {
                let earlier = &flows[before.0 as usize];
                if source != earlier.source && source != earlier.destination {
                    let problem = format!(
                        "host `{}` cannot know when flow {} is over: it neither sends nor receives it",
                        row.source.0, before.0
                    );
                    return Err(error(row.after_column, problem));
                }
            }
            let flow = Flow::new(source.0, destination.0, row.bytes, row.start);
            flows.push(Flow { after: row.after.clone(), ..flow });
        }
        Ok(flows)
    }
}

/// A host by its number or its name.
fn host(topology: &Topology, name: &str) -> Option<HostId> {
    let number = name.parse().ok().filter(|&number| number < topology.host_count()).map(HostId);
    topology.host_named(name).or(number)
}

fn time(text: &str) -> Result<Time, String> {
    let span = if text == "0" { Some(Span::ZERO) } else { parse_span(text) };
    let longest = Span::from_ms(100_000_000);
    match span {
        Some(span) if span <= longest => Ok(Time::ZERO + span),
        Some(span) => Err(format!("{span} is too late; at most {longest}")),
        None => Err(format!("`{text}` is no time; write it with its unit, like 12.5us")),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse().map_err(|_| format!("`{text}` is no number of bytes"))?;
    if !(1..=BYTES_MAX).contains(&bytes) {
        return Err(format!("{bytes} bytes: 1 to 2^31 make a message"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_fabric::{LinkSpec, Rate};

    fn star() -> Topology {
        let link = LinkSpec { rate: Rate::from_gbps(40), delay: Span::from_us(2) };
        Topology::star(4, link).expect("four hosts")
    }

    #[test]
    fn columns_come_in_any_order_and_rows_become_flows() {
        let text = "# from a cluster\nsize, source,destination,start,after\n1000,0,3,0,\n\n2000,3,1,1.5us,0\r\n7,0,2,2ms,0 \n";
        let flows = Trace::parse("t.csv", text).and_then(|trace| trace.flows(&star())).expect("right");
        let start = |us| Time::ZERO + Span::from_ns(us);
        let expected = [
            Flow::new(0, 3, 1000, Time::ZERO),
            Flow { after: vec![FlowId(0)], ..Flow::new(3, 1, 2000, start(1_500)) },
            Flow { after: vec![FlowId(0)], ..Flow::new(0, 2, 7, start(2_000_000)) },
        ];
        assert_eq!(flows, expected);
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = Trace::parse("t.csv", text).and_then(|trace| trace.flows(&star())).expect_err(text);
        assert_eq!(error.to_string(), format!("t.csv:{expected}"));
    }

    #[test]
    fn what_is_wrong_is_named_with_line_and_column() {
        const HEAD: &str = "start,source,destination,size,after\n";
        let row = |line: &str| format!("{HEAD}0,0,1,1000,\n{line}\n");
        refused(
            "",
            "1:1: an empty file: its first line names the columns start,source,destination,size,after",
        );
        refused("start,source,size\n", "1:1: the column `destination` is missing");
        refused(
            "start,from,to\n",
            "1:7: `from` is no column; there are start, source, destination, size, after",
        );
        refused("start,start\n", "1:7: there are two columns `start`");
        refused(HEAD, "1:1: no flow follows");
        refused(&row("0,0,1"), "3:6: 3 fields, and there are 5 columns");
        refused(&row("0,0,1,5,0,9"), "3:11: 6 fields, and there are 5 columns");
        refused(&row("12,0,1,5,"), "3:1: `12` is no time; write it with its unit, like 12.5us");
        refused(&row("-1us,0,1,5,"), "3:1: `-1us` is no time; write it with its unit, like 12.5us");
        refused(&row("0,4,1,5,"), "3:3: there is no host `4`; the last one is 3, called `h3`");
        refused(&row("0,0, x,5,"), "3:6: there is no host `x`; the last one is 3, called `h3`");
        refused(&row("0,2,2,5,"), "3:5: host `2` sends to itself");
        refused(&row("0,0,1,0,"), "3:7: 0 bytes: 1 to 2^31 make a message");
        refused(&row("0,0,1,2147483649,"), "3:7: 2147483649 bytes: 1 to 2^31 make a message");
        refused(&row("0,0,1,1e3,"), "3:7: `1e3` is no number of bytes");
        refused(&row("0,0,1,5,1"), "3:9: `1` is no earlier flow; before this one there are 0 to 0");
        refused(&row("0,0,1,5,x"), "3:9: `x` is no earlier flow; before this one there are 0 to 0");
        refused(
            &row("0,2,1,5,0"),
            "3:9: host `2` cannot know when flow 0 is over: it neither sends nor receives it",
        );
        refused(&format!("{HEAD}0,0,1,5,0\n"), "2:9: `0`: the first flow has none before it");
    }
}
