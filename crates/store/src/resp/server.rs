//! Questions about the server that clients ask first, and what is said to commands that this store does not have.

use super::client::{self, is_name};
use super::reply::Reply;
use super::session::Session;
use super::{Words, acl, cluster, commands, data, glob, keys, pubsub, upper};
use crate::access::Standing;
use crate::door as doors;

/// The version of Redis whose commands these are.
const REDIS_VERSION: &str = "7.0.0";

/// A name, and the fewest and the most words that stand with it, all names included. 0: no bound.
type Arity = (&'static str, usize, usize);

/// Commands that are not on data: the fewest and the most words, the name included. 0: no bound.
pub(super) const NAMES: &[Arity] = &[
    ("ACL", 2, 0),
    ("AUTH", 2, 0),
    ("CLIENT", 2, 0),
    ("CLUSTER", 2, 0),
    ("COMMAND", 1, 0),
    ("CONFIG", 2, 0),
    ("DISCARD", 1, 1),
    ("ECHO", 2, 2),
    ("EXEC", 1, 1),
    ("HELLO", 1, 0),
    ("INFO", 1, 0),
    ("MULTI", 1, 1),
    ("PING", 1, 0),
    ("PSUBSCRIBE", 2, 0),
    ("PUBLISH", 3, 3),
    ("PUBSUB", 2, 0),
    ("PUNSUBSCRIBE", 1, 0),
    ("QUIT", 1, 0),
    ("READONLY", 1, 1),
    ("READWRITE", 1, 1),
    ("RESET", 1, 1),
    ("SELECT", 2, 2),
    ("SUBSCRIBE", 2, 0),
    ("TIME", 1, 1),
    ("UNSUBSCRIBE", 1, 0),
    ("UNWATCH", 1, 1),
    ("WATCH", 2, 0),
];

/// Subcommands that Redis has: the fewest and the most words, both names included.
const SUBCOMMANDS: &[(&str, &[Arity])] = &[
    (
        "ACL",
        &[
            ("CAT", 2, 0),
            ("DELUSER", 3, 0),
            ("DRYRUN", 4, 0),
            ("GENPASS", 2, 0),
            ("GETUSER", 3, 3),
            ("HELP", 2, 2),
            ("LIST", 2, 2),
            ("LOAD", 2, 2),
            ("LOG", 2, 0),
            ("SAVE", 2, 2),
            ("SETUSER", 3, 0),
            ("USERS", 2, 2),
            ("WHOAMI", 2, 2),
        ],
    ),
    (
        "CLIENT",
        &[
            ("CACHING", 3, 3),
            ("GETNAME", 2, 2),
            ("GETREDIR", 2, 2),
            ("HELP", 2, 2),
            ("ID", 2, 2),
            ("INFO", 2, 2),
            ("KILL", 3, 0),
            ("LIST", 2, 0),
            ("NO-EVICT", 3, 3),
            ("NO-TOUCH", 3, 3),
            ("PAUSE", 3, 0),
            ("REPLY", 3, 3),
            ("SETINFO", 4, 4),
            ("SETNAME", 3, 3),
            ("TRACKING", 3, 0),
            ("TRACKINGINFO", 2, 2),
            ("UNBLOCK", 3, 0),
            ("UNPAUSE", 2, 2),
        ],
    ),
    (
        "CLUSTER",
        &[
            ("ADDSLOTS", 3, 0),
            ("ADDSLOTSRANGE", 4, 0),
            ("BUMPEPOCH", 2, 2),
            ("COUNT-FAILURE-REPORTS", 3, 3),
            ("COUNTKEYSINSLOT", 3, 3),
            ("DELSLOTS", 3, 0),
            ("DELSLOTSRANGE", 4, 0),
            ("FAILOVER", 2, 0),
            ("FLUSHSLOTS", 2, 2),
            ("FORGET", 3, 3),
            ("GETKEYSINSLOT", 4, 4),
            ("HELP", 2, 2),
            ("INFO", 2, 2),
            ("KEYSLOT", 3, 3),
            ("LINKS", 2, 2),
            ("MEET", 4, 0),
            ("MYID", 2, 2),
            ("NODES", 2, 2),
            ("REPLICAS", 3, 3),
            ("REPLICATE", 3, 3),
            ("RESET", 2, 0),
            ("SAVECONFIG", 2, 2),
            ("SET-CONFIG-EPOCH", 3, 3),
            ("SETSLOT", 4, 0),
            ("SHARDS", 2, 2),
            ("SLAVES", 3, 3),
            ("SLOTS", 2, 2),
        ],
    ),
    (
        "COMMAND",
        &[
            ("COUNT", 2, 2),
            ("DOCS", 2, 0),
            ("GETKEYS", 3, 0),
            ("GETKEYSANDFLAGS", 3, 0),
            ("HELP", 2, 2),
            ("INFO", 2, 0),
            ("LIST", 2, 0),
        ],
    ),
    (
        "PUBSUB",
        &[
            ("CHANNELS", 2, 3),
            ("HELP", 2, 2),
            ("NUMPAT", 2, 2),
            ("NUMSUB", 2, 0),
            ("SHARDCHANNELS", 2, 3),
            ("SHARDNUMSUB", 2, 0),
        ],
    ),
    ("CONFIG", &[("GET", 3, 0), ("HELP", 2, 2), ("RESETSTAT", 2, 2), ("REWRITE", 2, 2), ("SET", 4, 0)]),
    ("OBJECT", &[("ENCODING", 3, 3), ("FREQ", 3, 3), ("HELP", 2, 2), ("IDLETIME", 3, 3), ("REFCOUNT", 3, 3)]),
];

/// Commands of Redis that cannot have a place here: what of them, and what to do instead.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &["EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO", "FUNCTION", "SCRIPT"],
        "a script would keep a node from its other work for as long as it likes; use WATCH, MULTI and EXEC, or a transaction of the Rust client",
    ),
    (&["MOVE", "SWAPDB"], "this store has one database; use prefixes of keys"),
];

/// How long the parts of an error are that repeat what the client has said.
const REPEATED_MAX: usize = 128;

/// A word as far as errors repeat it: in Redis it ends with its first byte that is zero.
fn repeated(word: &[u8], most: usize) -> &[u8] {
    let end = word.iter().position(|&byte| byte == 0).unwrap_or(word.len());
    &word[..end.min(most)]
}

fn fits(words: &Words, least: usize, most: usize) -> bool {
    words.len() >= least && (most == 0 || words.len() <= most)
}

/// Whether it is a command of this store that is not on data.
pub(super) fn knows(name: &str) -> bool {
    NAMES.iter().any(|known| known.0 == name)
}

/// Whether a command's first argument is the name of a part of it.
pub(super) fn has_subcommands(name: &str) -> bool {
    SUBCOMMANDS.iter().any(|known| known.0 == name)
}

/// Whether the command exists and has as many words as it must; the words of Redis if not.
pub(super) fn check(name: &str, words: &Words) -> Result<(), Reply> {
    if data::knows(name) {
        data::check(words)?;
        return check_subcommand(name, words);
    }
    let Some(&(_, least, most)) = NAMES.iter().find(|known| known.0 == name) else {
        return Err(unknown(name, words));
    };
    check_subcommand(name, words)?;
    if fits(words, least, most) { Ok(()) } else { Err(Reply::wrong_arity(&name.to_lowercase())) }
}

/// Whether the command's subcommand exists, if it has any, and has as many words as it must.
pub(super) fn check_subcommand(name: &str, words: &Words) -> Result<(), Reply> {
    if let Some((_, known)) = SUBCOMMANDS.iter().find(|known| known.0 == name)
        && let Some(given) = words.get(1)
    {
        let sub = upper(given);
        let Some(&(_, least, most)) = known.iter().find(|known| known.0 == sub) else {
            let given = [b"ERR unknown subcommand '", repeated(given, REPEATED_MAX)].concat();
            return Err(Reply::error([&given, format!("'. Try {name} HELP.").as_bytes()].concat()));
        };
        if !fits(words, least, most) {
            return Err(Reply::wrong_arity(&format!("{name}|{sub}").to_lowercase()));
        }
    }
    Ok(())
}

fn unknown(name: &str, words: &Words) -> Reply {
    if let Some((_, why)) = REFUSED.iter().find(|refused| refused.0.contains(&name)) {
        return Reply::error(format!("ERR '{name}' is refused by this store: {why}"));
    }
    if commands::find(name).is_some() {
        return not_promised(name);
    }
    let mut text = [b"ERR unknown command '", repeated(&words[0], REPEATED_MAX)].concat();
    text.extend_from_slice(b"', with args beginning with: ");
    let mut arguments = Vec::new();
    for word in &words[1..] {
        if arguments.len() >= REPEATED_MAX {
            break;
        }
        let most = REPEATED_MAX - arguments.len();
        arguments.extend_from_slice(&[b"'", repeated(word, most), b"' "].concat());
    }
    Reply::error([text, arguments].concat())
}

fn not_promised(name: &str) -> Reply {
    Reply::error(format!("ERR unknown command '{name}': it is not promised by this store; see docs/store.md"))
}

/// Answers a command that is neither on data nor about transactions; it has as many words as it must.
pub(super) async fn answer(session: &mut Session, name: &str, words: &Words) -> Reply {
    let sub = words.get(1).map(|word| upper(word)).unwrap_or_default();
    match name {
        "PING" if words.len() > 2 => Reply::wrong_arity("ping"),
        "PING" if words.len() == 1 => Reply::Simple("PONG".into()),
        "PING" | "ECHO" => Reply::Bulk(words[1].clone()),
        "SELECT" => match keys::integer(&words[1]) {
            Some(0) => Reply::OK,
            Some(number) if i32::try_from(number).is_err() => Reply::error(format!(
                "ERR value is out of range, value must between {} and {}",
                i32::MIN,
                i32::MAX
            )),
            Some(_) => Reply::error("ERR DB index is out of range"),
            None => keys::not_an_integer(),
        },
        "UNWATCH" => Reply::OK,
        "TIME" => {
            let now_us = session.store.wall().now_us();
            let part = |number: u64| Reply::bulk(number.to_string());
            Reply::Array(vec![part(now_us / 1_000_000), part(now_us % 1_000_000)])
        }
        "ACL" => acl::answer(session, &sub, words),
        "AUTH" => acl::authenticate(session, &words[1..]).await,
        "HELLO" => hello(session, words).await,
        "CLIENT" => client::answer(session, &sub, words),
        "CLUSTER" => cluster::answer(session, &sub, words).await,
        // Each node is the primary of some keys, and reads of all are as fresh at every node.
        "READONLY" | "READWRITE" => Reply::OK,
        "COMMAND" => command(&sub, words),
        "CONFIG" if sub == "GET" => config(session, words),
        "INFO" => info(session).await,
        "PUBLISH" => pubsub::publish(session, words).await,
        "PUBSUB" => pubsub::answer(session, &sub, words),
        _ => not_promised(&[name, " ", &sub].concat()),
    }
}

fn command(sub: &str, words: &Words) -> Reply {
    let promised = commands::promised;
    let is_promised = |name: &str| data::knows(name) || knows(name);
    let info = |word: &Vec<u8>| {
        let found = commands::find(&upper(word)).filter(|command| is_promised(command.name));
        found.map_or(Reply::NilArray, |command| command.info())
    };
    match sub {
        "" => Reply::Array(promised().map(|command| command.info()).collect()),
        "INFO" if words.len() == 2 => Reply::Array(promised().map(|command| command.info()).collect()),
        "INFO" => Reply::Array(words[2..].iter().map(info).collect()),
        "LIST" if words.len() == 2 => {
            Reply::Array(promised().map(|command| Reply::bulk(command.name.to_lowercase())).collect())
        }
        "LIST" => Reply::error("ERR syntax error"),
        "COUNT" => Reply::Integer(promised().count() as i64),
        "DOCS" => Reply::Map(Vec::new()),
        _ => not_promised(&["COMMAND ", sub].concat()),
    }
}

fn config(session: &Session, words: &Words) -> Reply {
    let limits = &session.store.keeper.limits;
    let known = [
        ("save", String::new()),
        ("appendonly", "no".into()),
        ("databases", "1".into()),
        ("maxmemory", "0".into()),
        ("timeout", limits.idle_s.to_string()),
        ("maxclients", limits.connections.to_string()),
    ];
    if words[2..].iter().any(|word| word.len() > glob::PATTERN_BYTES_MAX) {
        return Reply::error(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX));
    }
    let asked =
        |name: &str| words[2..].iter().any(|word| glob::matches(&word.to_ascii_lowercase(), name.as_bytes()));
    let found = known.into_iter().filter(|(name, _)| asked(name));
    Reply::Map(found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect())
}

async fn hello(session: &mut Session, words: &Words) -> Reply {
    let mut is_resp3 = session.is_resp3;
    if let Some(version) = words.get(1) {
        is_resp3 = match keys::integer(version) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Reply::error("NOPROTO unsupported protocol version"),
            None => return Reply::error("ERR Protocol version is not an integer or out of range"),
        };
    }
    let mut options = words.get(2..).unwrap_or_default();
    let (mut name, mut user) = (None, None);
    while let [option, rest @ ..] = options {
        options = match (&*upper(option), rest) {
            ("AUTH", [name, password, rest @ ..]) => {
                user = Some([name.clone(), password.clone()]);
                rest
            }
            ("SETNAME", [given, rest @ ..]) => {
                if !is_name(given) {
                    return client::wrong_name();
                }
                name = Some(given.clone());
                rest
            }
            _ => return Reply::error([b"ERR Syntax error in HELLO option '", &option[..], b"'"].concat()),
        };
    }
    if let Some(user) = user {
        let reply = acl::authenticate(session, &user).await;
        if reply != Reply::OK {
            return reply;
        }
    }
    if session.visitor.standing() == Standing::Stranger {
        return Reply::error(acl::HELLO_NEEDS_A_USER);
    }
    session.is_resp3 = is_resp3;
    let mut about = session.visit.about();
    about.protocol = if is_resp3 { 3 } else { 2 };
    if let Some(name) = name {
        about.name = name;
    }
    let pair = |name: &str, value: Reply| (Reply::bulk(name), value);
    Reply::Map(vec![
        pair("server", Reply::bulk("highwire")),
        pair("version", Reply::bulk(REDIS_VERSION)),
        pair("proto", Reply::Integer(i64::from(about.protocol))),
        pair("id", Reply::Integer(session.visit.id as i64)),
        pair("mode", Reply::bulk("standalone")),
        pair("role", Reply::bulk("master")),
        pair("modules", Reply::Array(Vec::new())),
    ])
}

async fn info(session: &mut Session) -> Reply {
    let status = match session.store.ask(|local| async move { doors::status(&local) }).await {
        Ok(status) => status,
        Err(error) => return Reply::failed(&error),
    };
    let members: Vec<String> = status.members.iter().map(u16::to_string).collect();
    Reply::bulk(format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:highwire\r\nprocess_id:{}\r\n\
         # Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:{}\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\
         # Cluster\r\ncluster_enabled:1\r\n\
         # Highwire\r\nnode:{}\r\nconfiguration:{}\r\nmembers:{}\r\ncopies:{}\r\nserves:{}\r\n\
         committed:{}\r\nconflicts:{}\r\nunknown:{}\r\n",
        status.process,
        session.store.keeper.visits("resp").len(),
        session.store.keeper.limits.connections,
        session.store.hub.clients(),
        status.node,
        status.configuration,
        members.join(" "),
        status.copies,
        u8::from(status.is_open),
        status.committed,
        status.conflicts,
        status.unknown,
    ))
}
