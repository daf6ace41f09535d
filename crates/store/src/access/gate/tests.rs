use super::*;
use crate::access::UserLimits;
use crate::fresh::fresh_name;
use tokio::runtime::Builder;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Scratch {
    fn new() -> Scratch {
        let folder = std::env::temp_dir().join(format!("highwire-gate-{}", fresh_name().expect("a name")));
        fs::create_dir_all(&folder).expect("a folder");
        Scratch(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("users.toml")
    }

    fn add(&self, name: &str, role: Role, password: &str, connections: Option<usize>) {
        let limits = UserLimits { connections, rate: None };
        Users::edit(&self.file(), |users| users.add(name, role, password.as_bytes(), limits)).expect("added");
    }

    fn remove(&self, name: &str) {
        assert!(Users::edit(&self.file(), |users| Ok(users.remove(name))).expect("removed"));
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::new(Gate::open(Some(self.file()), true).expect("users"))
    }
}

fn visitor(gate: &Arc<Gate>) -> Visitor {
    Visitor::new(gate, "192.0.2.1:9".parse().expect("an address"))
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(work)
}

#[test]
fn a_role_may_do_what_those_before_it_may_and_no_more() {
    let scratch = Scratch::new();
    let roles = [("r", Role::Read), ("w", Role::Write), ("a", Role::Admin)];
    roles.iter().for_each(|(name, role)| scratch.add(name, *role, "pw", None));
    let gate = scratch.gate();
    run(async {
        for (name, role) in roles {
            let mut visitor = visitor(&gate);
            assert_eq!(visitor.check(None), Err(Denied::Stranger));
            assert_eq!(visitor.enter(name.as_bytes(), b"pw").await, Ok(()));
            for (_, needed) in roles {
                assert_eq!(visitor.check(Some(needed)).is_ok(), role >= needed, "{role} {needed}");
            }
            assert_eq!((visitor.check(None), visitor.name()), (Ok(()), name));
        }
    });
    assert_eq!((of(&gate.counts.right), of(&gate.counts.role), of(&gate.counts.stranger)), (3, 3, 3));
}

#[test]
fn a_right_password_is_hashed_once_and_a_wrong_one_leaves_the_visitor_who_it_was() {
    let scratch = Scratch::new();
    scratch.add("alice", Role::Read, "long password", None);
    let gate = scratch.gate();
    run(async {
        let mut visitor = visitor(&gate);
        for _ in 0..3 {
            assert_eq!(visitor.enter(b"alice", b"long password").await, Ok(()));
        }
        assert_eq!((of(&gate.counts.right), of(&gate.counts.recognised)), (3, 2));
        for (name, wrong) in
            [("alice", "long passwor"), ("alice", ""), ("bob", "long password"), ("\u{ff}", "")]
        {
            assert_eq!(visitor.enter(name.as_bytes(), wrong.as_bytes()).await, Err(Refusal::Wrong));
            assert_eq!(visitor.standing(), Standing::Of(Role::Read));
        }
    });
    assert_eq!((of(&gate.counts.wrong), of(&gate.counts.recognised)), (4, 2));
}

#[test]
fn a_wrong_password_is_answered_after_a_pause_that_grows() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    // Without a user nothing is hashed, so that all the time is pauses.
    fs::write(scratch.file(), "").expect("written");
    fs::set_permissions(scratch.file(), fs::Permissions::from_mode(0o600)).expect("set");
    let gate = scratch.gate();
    let began = Instant::now();
    run(async {
        for _ in 0..3 {
            assert_eq!(visitor(&gate).enter(b"alice", b"pw").await, Err(Refusal::Wrong));
        }
    });
    assert!(began.elapsed() >= Duration::from_millis(50 + 100 + 200), "{:?}", began.elapsed());
}

#[test]
fn a_file_that_changes_counts_for_connections_that_are_there() {
    let scratch = Scratch::new();
    scratch.add("alice", Role::Admin, "pw", None);
    scratch.add("bob", Role::Admin, "pw", None);
    let gate = scratch.gate();
    run(async {
        let (mut alice, mut bob) = (visitor(&gate), visitor(&gate));
        assert_eq!(alice.enter(b"alice", b"pw").await, Ok(()));
        assert_eq!(bob.enter(b"bob", b"pw").await, Ok(()));
        scratch.remove("bob");
        gate.look(&scratch.file());
        assert_eq!((alice.standing(), bob.standing()), (Standing::Of(Role::Admin), Standing::Stranger));
        assert_eq!(bob.enter(b"bob", b"pw").await, Err(Refusal::Wrong), "it is not recognised any more");
        // An error in the file takes nobody's rights and gives none.
        let good = fs::read(scratch.file()).expect("a file");
        fs::write(scratch.file(), "[[user]]\nname = \"eve\"\n").expect("written");
        gate.look(&scratch.file());
        assert_eq!((alice.standing(), of(&gate.counts.unreadable)), (Standing::Of(Role::Admin), 1));
        fs::write(scratch.file(), good).expect("written");
        scratch.add("alice", Role::Read, "other", None);
        gate.look(&scratch.file());
        assert_eq!(alice.standing(), Standing::Stranger, "the password is another");
        assert_eq!(alice.enter(b"alice", b"pw").await, Err(Refusal::Wrong));
        assert_eq!(alice.enter(b"alice", b"other").await, Ok(()));
        assert_eq!(alice.standing(), Standing::Of(Role::Read));
    });
}

#[test]
fn a_user_has_no_more_connections_than_it_may_and_they_come_back() {
    let scratch = Scratch::new();
    scratch.add("alice", Role::Read, "pw", Some(1));
    scratch.add("bob", Role::Read, "pw", None);
    let gate = scratch.gate();
    run(async {
        let (mut first, mut second) = (visitor(&gate), visitor(&gate));
        assert_eq!(first.enter(b"alice", b"pw").await, Ok(()));
        assert_eq!(first.enter(b"alice", b"pw").await, Ok(()), "it is the same connection");
        assert_eq!(second.enter(b"bob", b"pw").await, Ok(()));
        assert_eq!(second.enter(b"alice", b"pw").await, Err(Refusal::Connections));
        assert_eq!(second.name(), "bob");
        // A file that is read again does not forget what is connected.
        scratch.add("bob", Role::Write, "pw", None);
        gate.look(&scratch.file());
        assert_eq!(second.enter(b"alice", b"pw").await, Err(Refusal::Connections));
        drop(first);
        assert_eq!(second.enter(b"alice", b"pw").await, Ok(()));
    });
}

#[test]
fn without_users_only_a_loopback_address_is_let_in() {
    let check = |is_protected, address: &str, is_closed| {
        let gate = Gate::open(None, is_protected).expect("no users");
        assert_eq!(gate.is_closed_to(address.parse().expect("an address")), is_closed, "{address}");
    };
    for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        check(true, address, false);
    }
    for address in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.1", "0.0.0.0"] {
        check(true, address, true);
        check(false, address, false);
    }
    let scratch = Scratch::new();
    scratch.add("alice", Role::Read, "pw", None);
    assert!(!scratch.gate().is_closed_to("192.0.2.1".parse().expect("an address")));
    assert!(
        Gate::open(Some(scratch.0.join("none")), true).is_err(),
        "a file that is not there lets nobody in"
    );
}
