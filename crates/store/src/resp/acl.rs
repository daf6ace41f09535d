//! Users of the Redis endpoint: `AUTH`, `ACL`, and which commands each role may give. Errors are those of Redis 7.

use super::reply::Reply;
use super::session::Session;
use super::{Words, commands, data, pubsub, server, upper};
use crate::access::{Denied, Refusal, Role, Standing, Visitor};

/// What `HELLO` says to a client that has not said who it is.
pub(super) const HELLO_NEEDS_A_USER: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
     option can be used to authenticate the client and select the RESP protocol version at the same time";

/// What a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    Nothing,
    /// A user, with at least this role if there is one.
    User(Option<Role>),
}

/// Commands of every user, and commands of each role. Subcommands that are not here are for administrators.
const OF_EVERYBODY: &[&str] = &["AUTH", "HELLO", "QUIT", "RESET"];
const OF_USERS: &[&str] = &[
    "COMMAND",
    "DISCARD",
    "ECHO",
    "EXEC",
    "INFO",
    "MULTI",
    "PING",
    "READONLY",
    "READWRITE",
    "SELECT",
    "TIME",
    "UNWATCH",
];
const SUBCOMMANDS_OF_USERS: &[(&str, &[&str])] = &[
    ("ACL", &["CAT", "GENPASS", "HELP", "WHOAMI"]),
    (
        "CLIENT",
        &[
            "CACHING",
            "GETNAME",
            "GETREDIR",
            "HELP",
            "ID",
            "INFO",
            "NO-EVICT",
            "NO-TOUCH",
            "REPLY",
            "SETINFO",
            "SETNAME",
            "TRACKING",
            "TRACKINGINFO",
        ],
    ),
    ("CLUSTER", &["HELP", "INFO", "KEYSLOT", "MYID", "NODES", "SHARDS", "SLOTS"]),
];

fn needed(name: &str, sub: &str) -> Needed {
    if OF_EVERYBODY.contains(&name) {
        return Needed::Nothing;
    }
    let is_for_users = OF_USERS.contains(&name)
        || SUBCOMMANDS_OF_USERS.iter().any(|(of, subs)| *of == name && subs.contains(&sub));
    Needed::User(if is_for_users {
        None
    } else if data::only_reads(name) || name == "WATCH" || name == "PUBSUB" || pubsub::subscribes(name) {
        Some(Role::Read)
    } else if data::knows(name) || name == "PUBLISH" {
        Some(Role::Write)
    } else {
        Some(Role::Admin)
    })
}

/// Whether a client may give this command, which exists. What is refused is counted.
pub(super) fn check(visitor: &mut Visitor, words: &Words) -> Result<(), Reply> {
    let (name, sub, needed) = needed_by(words);
    let Needed::User(role) = needed else { return Ok(()) };
    visitor.check(role).map_err(|denied| match denied {
        Denied::Stranger => Reply::error("NOAUTH Authentication required."),
        Denied::Role => {
            let full = if sub.is_empty() { name } else { format!("{name}|{sub}") }.to_lowercase();
            Reply::error(format!("NOPERM this user has no permissions to run the '{full}' command"))
        }
    })
}

/// The same, without a count and without the words for it.
pub(super) fn may(visitor: &mut Visitor, words: &Words) -> bool {
    visitor.standing() == Standing::Open
        || match needed_by(words).2 {
            Needed::User(role) => visitor.may(role).is_ok(),
            Needed::Nothing => true,
        }
}

fn needed_by(words: &Words) -> (String, String, Needed) {
    let name = upper(&words[0]);
    let sub = words.get(1).filter(|_| server::has_subcommands(&name));
    let sub = sub.map(|word| upper(word)).unwrap_or_default();
    let needed = needed(&name, &sub);
    (name, sub, needed)
}

/// Whether a command says who the client is: it would be another user in the middle of a transaction.
pub(super) fn is_about_users(name: &str, words: &Words) -> bool {
    name == "AUTH" || name == "HELLO" && words.iter().skip(2).any(|word| upper(word) == "AUTH")
}

/// `AUTH [user] password`.
pub(super) async fn authenticate(session: &mut Session, words: &[Vec<u8>]) -> Reply {
    let (name, password) = match words {
        [password] => (&b"default"[..], password),
        [name, password] => (&name[..], password),
        _ => return Reply::error("ERR syntax error"),
    };
    let result = session.visitor.enter(name, password).await;
    session.visitor.name().clone_into(&mut session.visit.about().user);
    match result {
        Ok(()) => Reply::OK,
        // Without users there is one, the default one, who has no password.
        Err(Refusal::NoUsers) if words.len() == 1 => Reply::error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ),
        Err(Refusal::NoUsers) if name == b"default" => Reply::OK,
        Err(Refusal::Wrong | Refusal::NoUsers) => {
            Reply::error("WRONGPASS invalid username-password pair or user is disabled.")
        }
        Err(Refusal::Busy) => Reply::error("ERR too many passwords are being checked; try again"),
        Err(Refusal::Connections) => Reply::error("ERR max number of clients reached for this user"),
    }
}

/// Answers a subcommand of `ACL`, which exists and has as many words as it must.
pub(super) fn answer(session: &Session, sub: &str, words: &Words) -> Reply {
    let gate = session.visitor.gate();
    match sub {
        "WHOAMI" => Reply::bulk(session.visitor.name()),
        "USERS" if !gate.has_users() => Reply::Array(vec![Reply::bulk("default")]),
        "USERS" => Reply::Array(gate.users().into_iter().map(|(name, _)| Reply::bulk(name)).collect()),
        "LIST" if !gate.has_users() => Reply::Array(vec![Reply::bulk("user default on nopass ~* &* +@all")]),
        // Hashes of passwords stay in the file.
        "LIST" => Reply::Array(
            gate.users()
                .into_iter()
                .map(|(name, role)| Reply::bulk(format!("user {name} on ~* {}", rules(role))))
                .collect(),
        ),
        "CAT" => category(words),
        "HELP" => {
            let lines = [
                "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CAT [<category>], LIST, USERS, WHOAMI",
                "HELP",
                "    Prints this help.",
            ];
            Reply::Array(lines.map(|line| Reply::Simple(line.into())).to_vec())
        }
        _ => Reply::error(format!(
            "ERR 'ACL {sub}' is not promised by this store: users are in a file, which `highwire store user` changes"
        )),
    }
}

fn rules(role: Role) -> &'static str {
    match role {
        Role::Read => "-@all +@read +@connection +@transaction",
        Role::Write => "-@all +@read +@write +@connection +@transaction",
        Role::Admin => "+@all",
    }
}

/// The categories of Redis, and this store's commands in one of them.
fn category(words: &Words) -> Reply {
    let list = |names: Vec<&str>| {
        Reply::Array(names.into_iter().map(|name| Reply::bulk(name.to_lowercase())).collect())
    };
    let Some(given) = words.get(2) else { return list(commands::CATEGORIES.to_vec()) };
    if words.len() > 3 {
        return Reply::error("ERR syntax error");
    }
    let name = upper(given).to_lowercase();
    if !commands::CATEGORIES.contains(&&*name) {
        return Reply::error([b"ERR Unknown category '", &given[..given.len().min(64)], b"'"].concat());
    }
    list(commands::promised().filter(|command| command.is(&name)).map(|command| command.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_role_and_what_is_forgotten_is_for_administrators() {
        let check = |line: &str, expected| {
            let (name, sub) = line.split_once(' ').unwrap_or((line, ""));
            assert_eq!(needed(name, sub), expected, "{line}");
        };
        let (user, read, write, admin) = (
            Needed::User(None),
            Needed::User(Some(Role::Read)),
            Needed::User(Some(Role::Write)),
            Needed::User(Some(Role::Admin)),
        );
        ["AUTH", "HELLO", "QUIT", "RESET"].iter().for_each(|name| check(name, Needed::Nothing));
        ["PING", "MULTI", "EXEC", "INFO", "CLIENT ID", "CLIENT INFO", "ACL WHOAMI", "COMMAND DOCS"]
            .iter()
            .for_each(|line| check(line.strip_suffix(" DOCS").unwrap_or(line), user));
        [
            "GET",
            "SCAN",
            "KEYS",
            "HGETALL",
            "WATCH",
            "DBSIZE",
            "LRANGE",
            "ZRANGE",
            "SUBSCRIBE",
            "PUNSUBSCRIBE",
            "PUBSUB",
        ]
        .iter()
        .for_each(|name| check(name, read));
        [
            "SET",
            "DEL",
            "INCR",
            "HSET",
            "GETDEL",
            "GETSET",
            "MSETNX",
            "PERSIST",
            "LPUSH",
            "BLPOP",
            "SPOP",
            "ZADD",
            "BZMPOP",
            "SUNIONSTORE",
            "PUBLISH",
        ]
        .iter()
        .for_each(|name| check(name, write));
        ["CLIENT LIST", "CLIENT KILL", "CONFIG GET", "ACL LIST", "ACL USERS", "ACL SETUSER", "FUTURE"]
            .iter()
            .for_each(|line| check(line, admin));
        // Every command on data is of a role, and those that write are not of the first one.
        for (name, _) in data::NAMES {
            check(name, if data::only_reads(name) { read } else { write });
        }
    }
}
