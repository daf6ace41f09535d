//! `CLIENT`: what connections are called, and which there are.

use super::reply::Reply;
use super::session::Session;
use super::{Words, keys, upper};
use crate::door::Visit;

/// Whether a connection may be called so: blanks and line ends would break the list.
pub(super) fn is_name(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

pub(super) fn wrong_name() -> Reply {
    Reply::error("ERR Client names cannot contain spaces, newlines or special characters.")
}

/// Answers a subcommand, which exists and has as many words as it must.
pub(super) fn answer(session: &Session, sub: &str, words: &Words) -> Reply {
    let word = |at: usize| words.get(at).map(|word| upper(word)).unwrap_or_default();
    match sub {
        "GETNAME" => match &session.visit.about().name {
            none if none.is_empty() => Reply::Nil,
            name => Reply::Bulk(name.clone()),
        },
        "SETNAME" if !is_name(&words[2]) => wrong_name(),
        "SETNAME" => {
            session.visit.about().name.clone_from(&words[2]);
            Reply::OK
        }
        "ID" => Reply::Integer(session.visit.id as i64),
        "INFO" => Reply::Bulk(line(&session.visit)),
        "LIST" => list(session, words),
        // Nothing is evicted here, and no connection is redirected.
        "NO-EVICT" | "NO-TOUCH" if ["ON", "OFF"].contains(&&*word(2)) => Reply::OK,
        "NO-EVICT" | "NO-TOUCH" => Reply::error("ERR syntax error"),
        "SETINFO" => Reply::OK,
        "GETREDIR" => Reply::Integer(-1),
        "HELP" => {
            let lines = [
                "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "GETNAME, SETNAME <name>, ID, INFO, LIST [TYPE <type>] [ID <id> ...], NO-EVICT (ON|OFF), GETREDIR",
                "HELP",
                "    Prints this help.",
            ];
            Reply::Array(lines.map(|line| Reply::Simple(line.into())).to_vec())
        }
        _ => Reply::error(format!("ERR 'CLIENT {sub}' is not promised by this store; see docs/store.md")),
    }
}

fn list(session: &Session, words: &Words) -> Reply {
    let visits = || session.store.keeper.visits("resp");
    let lines = |wanted: &dyn Fn(&Visit) -> bool| {
        Reply::Bulk(visits().iter().filter(|visit| wanted(visit)).flat_map(|visit| line(visit)).collect())
    };
    let option = words.get(2).map(|word| upper(word)).unwrap_or_default();
    match (&*option, words.len()) {
        ("", 2) => lines(&|_| true),
        ("TYPE", 4) => match &*upper(&words[3]) {
            "NORMAL" => lines(&|_| true),
            "MASTER" | "REPLICA" | "SLAVE" | "PUBSUB" => lines(&|_| false),
            _ => Reply::error([b"ERR Unknown client type '", &words[3][..], b"'"].concat()),
        },
        ("ID", 4..) => {
            let ids: Option<Vec<u64>> =
                words[3..].iter().map(|word| keys::integer(word)?.try_into().ok()).collect();
            match ids {
                Some(ids) => lines(&|visit| ids.contains(&visit.id)),
                None => Reply::error("ERR Invalid client ID"),
            }
        }
        _ => Reply::error("ERR syntax error"),
    }
}

/// A connection as `CLIENT LIST` shows it: the fields of Redis that mean something here.
fn line(visit: &Visit) -> Vec<u8> {
    let about = visit.about().clone();
    let queued = about.queued.map_or(-1, |queued| queued as i64);
    let flags = if queued >= 0 { 'x' } else { 'N' };
    let start = format!("id={} addr={} laddr={} name=", visit.id, visit.address, visit.local);
    let rest = format!(
        " age={} idle={} flags={flags} db=0 multi={queued} cmd={} user={} resp={}\n",
        visit.since.elapsed().as_secs(),
        about.last.elapsed().as_secs(),
        about.command,
        about.user,
        about.protocol,
    );
    [start.as_bytes(), &about.name, rest.as_bytes()].concat()
}
