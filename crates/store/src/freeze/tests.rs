//! A freeze as its node's clients see it: nothing commits between its answer and the thaw, and reads go on.

use crate::access::Access;
use crate::client::{Client, Conversation};
use crate::config::ClusterConfig;
use crate::engine::Engine;
use crate::message::{Answer, BackupAnswer, BackupOf, BackupStep, Request};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Freezes that must have lasted: in each, some of the writers' commits are under way when it begins.
const FREEZES: usize = 40;
const WRITERS: usize = 6;

/// A folder that is removed with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two nodes, so that a commit takes a round trip and a freeze meets some that are under way.
fn cluster(name: &str) -> (Scratch, ClusterConfig) {
    // Process numbers are no names: what a process of the same number has left must not be found, nor that of another one disturbed.
    let fresh = crate::fresh_name().expect("random numbers");
    let folder = std::env::temp_dir().join(format!("highwire-store-{name}-{fresh}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let holders = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let mut text = String::from("register = \"register\"\nlease_ms = 20000\n");
    for (id, holder) in holders.iter().enumerate() {
        let door = holder.local_addr().expect("its address");
        text.push_str(&format!("[[node]]\nid = {id}\ndoor = \"{door}\"\n"));
    }
    let file = folder.join("cluster.toml");
    std::fs::write(&file, text).expect("written");
    drop(holders);
    (Scratch(folder), ClusterConfig::load(&file).expect("a cluster file"))
}

fn client(door: &str) -> Client {
    let mut client = Client::new([door]);
    client.set_patience(Duration::from_secs(120));
    client
}

fn step(conversation: &mut Conversation, token: u64, step: BackupStep) -> Answer {
    conversation.tell(&Request::Backup { token, step, of: BackupOf::All }).expect("told");
    conversation.hear().expect("answered")
}

/// Ends the writers, also when an assertion fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A backup is one instant only if every member says truly whether it stood still all the time.
#[test]
fn a_node_that_was_thawed_before_does_not_say_that_it_was_frozen() {
    let (_folder, config) = cluster("thaw");
    let engines: Vec<Engine> = (0..2).map(|id| Engine::start(&config, id).expect("a node")).collect();
    let door = config.doors()[0].clone();
    let mut observer = client(&door);
    observer.put("t", "k", "v").expect("stored");
    let mut token = 0;
    // A busy machine may have no time for a node before the freeze is over by itself: such a one shows nothing.
    let mut frozen = || loop {
        token += 1;
        let mut conversation = Conversation::enter(&door, &Access::anonymous()).expect("it listens");
        let answer = step(&mut conversation, token, BackupStep::Freeze);
        if matches!(answer, Answer::Backup(BackupAnswer::Frozen { .. })) {
            return (conversation, token);
        }
    };
    let thawed = |was_frozen| Answer::Backup(BackupAnswer::Thawed { was_frozen });
    loop {
        let (mut conversation, token) = frozen();
        let first = step(&mut conversation, token, BackupStep::Thaw);
        assert_eq!(step(&mut conversation, token, BackupStep::Thaw), thawed(false), "it was thawed before");
        if first == thawed(true) {
            break;
        }
    }
    for engine in engines {
        engine.store().stop();
        engine.join().expect("no panic");
    }
}

/// A step of a restore that is sent twice, or late, must not put its entries over newer ones.
#[test]
fn a_step_of_a_restore_happens_only_from_the_note_that_it_names() {
    let (_folder, config) = cluster("note");
    let engines: Vec<Engine> = (0..2).map(|id| Engine::start(&config, id).expect("a node")).collect();
    let door = config.doors()[0].clone();
    let mut observer = client(&door);
    observer.put("t", "other", "v").expect("stored");
    let mut conversation = Conversation::enter(&door, &Access::anonymous()).expect("it listens");
    let mut restore = |from: Option<&str>, to: Option<&str>, value: &str| {
        let text = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        let kind = crate::rows::Kind::Bytes;
        let cell = crate::rows::BackupEntry {
            table: b"t".to_vec(),
            key: b"k".to_vec(),
            kind,
            expires: None,
            value: value.as_bytes().to_vec(),
        };
        let note = (b"notes".to_vec(), b"n".to_vec());
        let request = Request::Restore { note, from: text(from), to: text(to), cells: vec![cell] };
        conversation.tell(&request).expect("told");
        conversation.hear().expect("answered") == Answer::Committed
    };
    assert!(restore(None, Some("1"), "one"));
    for (from, to) in [(None, Some("1")), (Some("0"), Some("1")), (Some("2"), None)] {
        assert!(!restore(from, to, "again"), "{from:?}");
        assert_eq!(observer.get("t", "k"), Ok(Some(b"one".to_vec())));
        assert_eq!(observer.get("notes", "n"), Ok(Some(b"1".to_vec())));
    }
    assert!(restore(Some("1"), None, "two"));
    assert!(!restore(Some("1"), None, "three"));
    assert_eq!(observer.get("t", "k"), Ok(Some(b"two".to_vec())));
    for engine in engines {
        engine.store().stop();
        engine.join().expect("no panic");
    }
}

/// How much has been committed at this node, as it says itself.
fn committed(client: &mut Client) -> u64 {
    client.status().expect("its status").committed
}

#[test]
fn nothing_commits_between_a_freeze_and_its_thaw_and_reads_go_on() {
    let (_folder, config) = cluster("freeze");
    let engines: Vec<Engine> = (0..2).map(|id| Engine::start(&config, id).expect("a node")).collect();
    let door = config.doors()[0].clone();
    let mut observer = client(&door);
    observer.put("t", "read", "v").expect("stored");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for writer in 0..WRITERS {
            let (door, is_over) = (&door, &is_over);
            scope.spawn(move || {
                let mut client = client(door);
                while !is_over.load(Ordering::Relaxed) {
                    client.put("t", format!("written {writer}"), "v").expect("stored after the thaw");
                }
            });
        }
        let mut conversation = Conversation::enter(&door, &Access::anonymous()).expect("it listens");
        let (mut lasted, mut token) = (0, 0);
        while lasted < FREEZES {
            token += 1;
            let before = committed(&mut observer);
            // A busy machine may have no time for a node before the freeze is over by itself: such a one shows nothing.
            let Answer::Backup(BackupAnswer::Frozen { .. }) =
                step(&mut conversation, token, BackupStep::Freeze)
            else {
                continue;
            };
            let at_first = committed(&mut observer);
            for _ in 0..20 {
                assert_eq!(observer.get("t", "read"), Ok(Some(b"v".to_vec())), "reads are not held back");
            }
            let at_last = committed(&mut observer);
            let Answer::Backup(BackupAnswer::Thawed { was_frozen }) =
                step(&mut conversation, token, BackupStep::Thaw)
            else {
                panic!("a freeze that was begun is ended");
            };
            // A new conversation has no backup: the node forgets the one before with the connection.
            conversation = Conversation::enter(&door, &Access::anonymous()).expect("it listens");
            // Each read is a commit of its own.
            if was_frozen {
                assert_eq!(at_last - at_first, 20, "freeze {lasted} of {FREEZES}");
                lasted += 1;
            }
            // Writers get on between two freezes.
            while committed(&mut observer) < before + 50 {
                std::thread::yield_now();
            }
        }
    });
    for engine in engines {
        engine.store().stop();
        engine.join().expect("no panic");
    }
}
