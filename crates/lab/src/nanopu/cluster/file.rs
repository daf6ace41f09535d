//! The file of a cluster: strict, so that a slip of the pen is an error with its line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use highwire_nanopu::network::{HostId, address};
use highwire_nanopu::nic::TransportKind;
use serde::Deserialize;
use toml::Spanned;

use super::super::limits::{CYCLES_MAX, SPAN_MAX};
use super::super::transport;

/// The most nodes: the ports of a large switch.
const NODES_MAX: usize = 256;
/// The most messages of the client.
const MESSAGES_MAX: usize = 100_000;
/// The most words of a message, as the prototype's NIC has them.
const WORDS_MAX: usize = 8_000 / 8;

/// A cluster, checked.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) link_cycles: u64,
    pub(super) cycles_max: u64,
    pub(super) transport: &'static TransportKind,
    pub(super) nodes: Vec<NodeAt>,
    /// In the order in which they are sent.
    pub(super) messages: Vec<Message>,
}

/// A node; the first one is host 1.
#[derive(Debug)]
pub(super) struct NodeAt {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) cores: u16,
    pub(super) memory: u16,
}

/// A message of the client's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) to: HostId,
    pub(super) sent: u64,
    pub(super) context: u16,
    pub(super) words: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    link_cycles: Option<Spanned<u64>>,
    cycles_max: Option<Spanned<u64>>,
    transport: Option<Spanned<String>>,
    nodes: Vec<NodeInFile>,
    messages: Vec<MessageInFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeInFile {
    name: Spanned<String>,
    program: PathBuf,
    cores: Option<Spanned<u64>>,
    memory: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageInFile {
    to: Spanned<String>,
    sent: Spanned<u64>,
    context: Option<Spanned<u64>>,
    words: Spanned<Vec<Word>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Number(u64),
    Text(String),
}

impl Cluster {
    /// Reads and checks a file; an error names the line.
    pub(super) fn parse(text: &str) -> Result<Cluster, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let at = |span: Range<usize>| text[..span.start].lines().count().max(1);
        let number = |value: &Option<Spanned<u64>>, name: &str, range: Range<u64>, default: u64| match value {
            None => Ok(default),
            Some(value) if range.contains(value.get_ref()) => Ok(*value.get_ref()),
            Some(value) => {
                let (line, number) = (at(value.span()), value.get_ref());
                Err(format!("line {line}: {name} = {number} is not in {}..={}", range.start, range.end - 1))
            }
        };
        let link_cycles = number(&file.link_cycles, "link_cycles", 1..CYCLES_MAX + 1, 140)?;
        let cycles_max = number(&file.cycles_max, "cycles_max", 1..SPAN_MAX + 1, 10_000_000)?;
        let transport = match &file.transport {
            None => TransportKind::NDP,
            Some(name) => transport::named(name.get_ref()).map_err(|error| {
                format!("line {}: transport \"{}\": {error}", at(name.span()), name.get_ref())
            })?,
        };
        if file.nodes.is_empty() || file.nodes.len() > NODES_MAX {
            return Err(format!("{} nodes: there are 1 to {NODES_MAX}", file.nodes.len()));
        }
        if file.messages.is_empty() || file.messages.len() > MESSAGES_MAX {
            return Err(format!("{} messages: there are 1 to {MESSAGES_MAX}", file.messages.len()));
        }
        let mut hosts = BTreeMap::new();
        let mut nodes = Vec::new();
        for (node, host) in file.nodes.into_iter().zip((1..).map(HostId)) {
            let line = at(node.name.span());
            let name = node.name.into_inner();
            if hosts.insert(name.clone(), host).is_some() {
                return Err(format!("line {line}: a second node with the name \"{name}\""));
            }
            let cores = number(&node.cores, "cores", 1..257, 1)? as u16;
            let memory = number(&node.memory, "memory", 1..4097, 16)? as u16;
            nodes.push(NodeAt { name, program: node.program, cores, memory });
        }
        let host = |name: &str, line: usize| {
            hosts.get(name).copied().ok_or_else(|| format!("line {line}: no node has the name \"{name}\""))
        };
        let mut messages = Vec::new();
        for message in file.messages {
            let line = at(message.words.span());
            let to = host(message.to.get_ref(), at(message.to.span()))?;
            let sent = number(&Some(message.sent), "sent", 0..SPAN_MAX + 1, 0)?;
            let context = number(&message.context, "context", 0..65_536, 0)? as u16;
            let word = |word: &Word| match word {
                Word::Number(number) => Ok(*number),
                Word::Text(text) => match (text.strip_prefix('@'), text.strip_prefix("0x")) {
                    (Some(name), _) => Ok(address(host(name, line)?).into()),
                    (None, Some(digits)) => u64::from_str_radix(digits, 16)
                        .map_err(|_| format!("line {line}: the word \"{text}\" is no number of 64 bits")),
                    (None, None) => {
                        Err(format!("line {line}: the word \"{text}\" is neither 0xNUMBER nor @NODE"))
                    }
                },
            };
            let words: Vec<u64> = message.words.get_ref().iter().map(word).collect::<Result<_, _>>()?;
            if words.is_empty() || words.len() > WORDS_MAX {
                return Err(format!("line {line}: {} words: a message has 1 to {WORDS_MAX}", words.len()));
            }
            messages.push(Message { to, sent, context, words });
        }
        messages.sort_by_key(|message| message.sent);
        Ok(Cluster { link_cycles, cycles_max, transport, nodes, messages })
    }

    /// The name of the node on a host.
    pub(super) fn name_of(&self, host: HostId) -> &str {
        let node = (host.0 as usize).checked_sub(1).and_then(|at| self.nodes.get(at));
        node.map_or("", |node| &node.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "[[nodes]]\nname = \"a\"\nprogram = \"a.elf\"\n[[nodes]]\nname = \"b\"\nprogram = \"b.elf\"\ncores = 4\n";
    const ASKED: &str = "[[messages]]\nto = \"b\"\nsent = 7\nwords = [1, \"@a\", \"0xff\"]\n";

    #[test]
    fn a_file_is_nodes_and_messages() {
        let text = format!("{NODES}{ASKED}[[messages]]\nto = \"a\"\nsent = 3\ncontext = 9\nwords = [5]\n");
        let cluster = Cluster::parse(&text).unwrap();
        assert_eq!((cluster.link_cycles, cluster.cycles_max), (140, 10_000_000));
        assert_eq!((cluster.nodes[0].cores, cluster.nodes[1].cores, cluster.nodes[1].memory), (1, 4, 16));
        let first = Message { to: HostId(1), sent: 3, context: 9, words: vec![5] };
        let address = u64::from(address(HostId(1)));
        let second = Message { to: HostId(2), sent: 7, context: 0, words: vec![1, address, 255] };
        assert_eq!(cluster.messages, [first, second]);
        assert_eq!((cluster.name_of(HostId(2)), cluster.name_of(HostId(0))), ("b", ""));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let with = |nodes: &str, messages: &str| Cluster::parse(&format!("{nodes}{messages}")).unwrap_err();
        for (error, expected) in [
            (with(&format!("link_cycles = 0\n{NODES}"), ASKED), "line 1: link_cycles = 0 is not in 1..="),
            (with(&format!("cycles_max = 0\n{NODES}"), ASKED), "line 1: cycles_max"),
            (
                with(&format!("transport = \"tcp\"\n{NODES}"), ASKED),
                "line 1: transport \"tcp\": it is \"ndp\" or \"homa\"",
            ),
            (with(&format!("links = 1\n{NODES}"), ASKED), "unknown field"),
            (with(&NODES.replace("\"b\"", "\"a\""), ASKED), "line 5: a second node"),
            (with(&NODES.replace('4', "0"), ASKED), "line 7: cores = 0 is not in 1..=256"),
            (with(NODES, &ASKED.replace("\"b\"", "\"c\"")), "line 9: no node has the name \"c\""),
            (with(NODES, &ASKED.replace("@a", "@c")), "line 11: no node has the name \"c\""),
            (with(NODES, &ASKED.replace("@a", "a")), "line 11: the word \"a\" is neither"),
            (with(NODES, &ASKED.replace("0xff", "0xfg")), "line 11: the word \"0xfg\""),
            (with(NODES, &ASKED.replace("1, \"@a\", \"0xff\"", "")), "line 11: 0 words"),
            (with(NODES, &ASKED.replace("sent = 7", "sent = -7")), "line 10"),
            (with(NODES, &format!("{ASKED}context = 65536\n")), "line 12: context = 65536"),
            (with(NODES, "messages = []\n"), "messages"),
        ] {
            let told = error.replace(" | ", " ").replace("at line", "line");
            assert!(told.contains(expected), "{expected}: {error}");
        }
    }
}
