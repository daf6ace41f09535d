//! The users of a node, and what is known of each connection's.
//!
//! A password is hashed on one of a few threads that may block, never on the I/O loop. A password that was right before is recognised by a
//! keyed hash with a key of this process: so a client that comes back costs little, and is not kept waiting by others who guess.

use super::account::{Account, Load};
use super::guesses::Guesses;
use super::users::PASSWORD_BYTES_MAX;
use super::{Role, Users, random};
use crate::door::counted;
use crate::engine::say;
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Passwords that are hashed at a time.
const HASHING_MAX: usize = 2;
/// Between two looks at the users' file.
const LOOK: Duration = Duration::from_secs(1);

/// Why a client was not let in under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such user, or it has another password.
    Wrong,
    /// Too many passwords are being checked.
    Busy,
    /// The user has as many connections as it may.
    Connections,
    /// There are no users, so there is no password.
    NoUsers,
}

/// Why a client may not do what it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It has not said who it is.
    Stranger,
    /// Its role is another.
    Role,
}

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everything: the node has no users.
    Open,
    Stranger,
    Of(Role),
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// How clients were let in, or not.
        #[derive(Debug, Default)]
        pub(crate) struct Counts { $($(#[$doc])* pub(crate) $name: AtomicU64),+ }

        impl Counts {
            pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed))),+]
            }
        }
    };
}

counts! {
    /// Right passwords, of which so many were recognised without a hash.
    right, recognised,
    wrong,
    /// Not checked, because too many were being checked.
    busy,
    /// The user had as many connections as it may.
    connections,
    /// Commands before a password, commands beyond the role, connections from elsewhere while there are no users.
    stranger, role, protected,
    /// Nodes that have proved that they belong to the cluster, and those that have not.
    node, not_a_node,
    /// Times that a user had to wait because of its rate.
    rate,
    /// Users' files that could not be read again.
    unreadable,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

type Accounts = HashMap<String, Arc<Account>>;

/// What a file was when it was read.
type Stamp = (u64, i64, i64, u64);

/// Lets clients in.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Where the users are; `None`: there are none, and every client may do everything.
    path: Option<PathBuf>,
    is_protected: bool,
    accounts: RwLock<Arc<Accounts>>,
    /// Grows with every file that is read.
    generation: AtomicU64,
    stamp: Mutex<Option<Stamp>>,
    /// With it passwords that were right are recognised.
    key: [u8; 32],
    recognised: Mutex<HashMap<String, blake3::Hash>>,
    guesses: Mutex<Guesses>,
    hashing: Semaphore,
    pub(crate) counts: Counts,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stamp_of(path: &Path) -> std::io::Result<Stamp> {
    let about = fs::metadata(path)?;
    Ok((about.ino(), about.mtime(), about.mtime_nsec(), about.size()))
}

impl Gate {
    /// Reads the users.
    ///
    /// # Errors
    /// The file is no users' file; the system has no random numbers.
    pub(crate) fn open(path: Option<PathBuf>, is_protected: bool) -> Result<Gate, String> {
        let key = random().map_err(|error| format!("the system's random numbers: {error}"))?;
        let gate = Gate {
            path,
            is_protected,
            accounts: RwLock::default(),
            generation: AtomicU64::new(0),
            stamp: Mutex::default(),
            key,
            recognised: Mutex::default(),
            guesses: Mutex::default(),
            hashing: Semaphore::new(HASHING_MAX),
            counts: Counts::default(),
        };
        if let Some(path) = &gate.path {
            gate.read(path).map_err(|what| format!("the users: {what}"))?;
        }
        Ok(gate)
    }

    /// Whether the node has users, so that clients must say who they are.
    pub(crate) fn has_users(&self) -> bool {
        self.path.is_some()
    }

    /// Whether a client from there is not let in at all.
    pub(crate) fn is_closed_to(&self, address: IpAddr) -> bool {
        self.is_protected && !self.has_users() && !address.to_canonical().is_loopback()
    }

    fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&self.accounts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// All users with their roles, by name.
    pub(crate) fn users(&self) -> Vec<(String, Role)> {
        let accounts = self.accounts();
        let mut users: Vec<_> =
            accounts.values().map(|account| (account.user.name().into(), account.user.role())).collect();
        users.sort();
        users
    }

    /// Takes up what the file says now.
    fn read(&self, path: &Path) -> Result<(), String> {
        // If the file changes meanwhile, the next look finds it.
        let stamp = stamp_of(path).map_err(|error| format!("{}: {error}", path.display()))?;
        *locked(&self.stamp) = Some(stamp);
        let users = Users::load(path).map_err(|error| error.to_string())?;
        let before = self.accounts();
        let account = |user: &super::User| {
            let load =
                before.get(user.name()).map_or_else(Arc::<Load>::default, |known| Arc::clone(&known.load));
            (user.name().to_string(), Arc::new(Account { user: user.clone(), load }))
        };
        let accounts: Accounts = users.iter().map(account).collect();
        locked(&self.recognised).retain(|name, _| accounts.contains_key(name));
        *self.accounts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(accounts);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Reads the file again if it has changed. A file with an error changes nothing.
    fn look(&self, path: &Path) {
        let before = *locked(&self.stamp);
        if stamp_of(path).ok() == before {
            return;
        }
        if let Err(what) = self.read(path) {
            count(&self.counts.unreadable);
            // An absent file is said once, and a wrong one once for each change.
            let has_gone = stamp_of(path).is_err();
            if has_gone {
                *locked(&self.stamp) = None;
            }
            if !has_gone || before.is_some() {
                say(format_args!("the users stay as they were: {what}"));
            }
        }
    }

    /// Looks at the file again and again, as long as the I/O loop runs.
    pub(crate) fn follow(self: &Arc<Gate>, io: &Handle) {
        let Some(path) = self.path.clone() else { return };
        let gate = Arc::clone(self);
        let of = io.clone();
        io.spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let (gate, path) = (Arc::clone(&gate), path.clone());
                // The file may be on a disk that does not answer.
                let _ = of.spawn_blocking(move || gate.look(&path)).await;
            }
        });
    }

    /// The keyed hash by which a right password is recognised.
    fn seal(&self, account: &Account, password: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.key, &[account.user.hash().as_bytes(), &[0], password].concat())
    }

    async fn authenticate(
        self: &Arc<Gate>,
        name: &[u8],
        password: &[u8],
        address: IpAddr,
    ) -> Result<Arc<Account>, Refusal> {
        let accounts = self.accounts();
        let account = std::str::from_utf8(name).ok().and_then(|name| accounts.get(name));
        if let Some(account) = account.filter(|_| password.len() <= PASSWORD_BYTES_MAX) {
            let seal = self.seal(account, password);
            if locked(&self.recognised).get(account.user.name()) == Some(&seal) {
                count(&self.counts.recognised);
                return Ok(Arc::clone(account));
            }
        }
        let turn = Turn::take(self, address).ok_or(Refusal::Busy)?;
        // A name that is not there takes as long as a wrong password.
        let hashed = account.or_else(|| accounts.values().next()).map(Arc::clone);
        let is_right = match hashed {
            Some(of) => {
                let (of, password) = (Arc::clone(&of), password.to_vec());
                let _permit = self.hashing.acquire().await.map_err(|_| Refusal::Busy)?;
                let check = tokio::task::spawn_blocking(move || of.user.has_password(&password));
                check.await.unwrap_or(false)
            }
            None => false,
        };
        match account.filter(|_| is_right) {
            Some(account) => {
                let seal = self.seal(account, password);
                locked(&self.recognised).insert(account.user.name().into(), seal);
                Ok(Arc::clone(account))
            }
            None => {
                let pause = locked(&self.guesses).was_wrong(turn.address, Instant::now());
                tokio::time::sleep(pause).await;
                Err(Refusal::Wrong)
            }
        }
    }
}

/// A password that is being checked, or whose wrong answer waits.
struct Turn<'a> {
    gate: &'a Gate,
    address: IpAddr,
}

impl Turn<'_> {
    fn take(gate: &Gate, address: IpAddr) -> Option<Turn<'_>> {
        let address = counted(address);
        let has_begun = locked(&gate.guesses).begin(address, Instant::now());
        // Only then: a turn that is dropped ends.
        has_begun.then(|| Turn { gate, address })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        locked(&self.gate.guesses).end(self.address);
    }
}

/// A user under whose name a connection was let in.
#[derive(Clone, Debug)]
struct Pass {
    account: Arc<Account>,
    /// Of the users' file under which it is valid.
    generation: u64,
    _seat: Arc<Seat>,
}

/// One of the connections that a user may have.
#[derive(Debug)]
struct Seat(Arc<Load>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

impl Pass {
    /// For a connection that its load has counted.
    fn new(account: Arc<Account>, generation: u64) -> Pass {
        let seat = Arc::new(Seat(Arc::clone(&account.load)));
        Pass { account, generation, _seat: seat }
    }
}

/// One connection, and who it is.
#[derive(Debug)]
pub(crate) struct Visitor {
    gate: Arc<Gate>,
    address: SocketAddr,
    pass: Option<Pass>,
}

impl Visitor {
    pub(crate) fn new(gate: &Arc<Gate>, address: SocketAddr) -> Visitor {
        Visitor { gate: Arc::clone(gate), address, pass: None }
    }

    /// The same connection's, for what it asks elsewhere. It is the same user until either of them is another one.
    pub(crate) fn companion(&self) -> Visitor {
        Visitor { gate: Arc::clone(&self.gate), address: self.address, pass: self.pass.clone() }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What it may do now. A user that has gone, or has another password, is a stranger again.
    pub(crate) fn standing(&mut self) -> Standing {
        if !self.gate.has_users() {
            return Standing::Open;
        }
        let generation = self.gate.generation.load(Ordering::Acquire);
        let Some(pass) = &mut self.pass else { return Standing::Stranger };
        if pass.generation != generation {
            match self.gate.accounts().get(pass.account.user.name()) {
                Some(now) if now.user.hash() == pass.account.user.hash() => {
                    // The load is the same, and so is its count.
                    (pass.account, pass.generation) = (Arc::clone(now), generation);
                }
                _ => self.pass = None,
            }
        }
        self.pass.as_ref().map_or(Standing::Stranger, |pass| Standing::Of(pass.account.user.role()))
    }

    /// Whether it may do what needs a role; `None`: that it has said who it is.
    pub(crate) fn may(&mut self, needed: Option<Role>) -> Result<(), Denied> {
        match self.standing() {
            Standing::Open => Ok(()),
            Standing::Stranger => Err(Denied::Stranger),
            Standing::Of(role) if needed.is_none_or(|needed| role >= needed) => Ok(()),
            Standing::Of(_) => Err(Denied::Role),
        }
    }

    /// The same, and counts what is denied.
    pub(crate) fn check(&mut self, needed: Option<Role>) -> Result<(), Denied> {
        self.may(needed).inspect_err(|denied| match denied {
            Denied::Stranger => count(&self.gate.counts.stranger),
            Denied::Role => count(&self.gate.counts.role),
        })
    }

    /// Its user; `default` if the node has no users.
    pub(crate) fn name(&self) -> &str {
        self.pass.as_ref().map_or("default", |pass| pass.account.user.name())
    }

    /// Says who it is. If that is refused, it stays who it was.
    pub(crate) async fn enter(&mut self, name: &[u8], password: &[u8]) -> Result<(), Refusal> {
        if !self.gate.has_users() {
            return Err(Refusal::NoUsers);
        }
        let generation = self.gate.generation.load(Ordering::Acquire);
        let result = self.gate.authenticate(name, password, self.address.ip()).await;
        let counts = &self.gate.counts;
        let account = result.inspect_err(|why| match why {
            Refusal::Busy => count(&counts.busy),
            _ => count(&counts.wrong),
        })?;
        count(&counts.right);
        // The same user again takes no further connection.
        let before = self.pass.take().map(|pass| (Arc::clone(&pass.account), pass.generation));
        if !account.load.connect(account.user.limits().connections) {
            count(&counts.connections);
            let before = before.filter(|known| known.0.load.connect(None));
            self.pass = before.map(|(account, generation)| Pass::new(account, generation));
            return Err(Refusal::Connections);
        }
        self.pass = Some(Pass::new(account, generation));
        Ok(())
    }

    /// Waits until so many commands more are within the user's rate.
    pub(crate) async fn pace(&self, commands: usize) {
        let delay = self.delay(commands);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// The time after which so many commands more are within the user's rate.
    pub(crate) fn delay(&self, commands: usize) -> Duration {
        let Some(pass) = &self.pass else { return Duration::ZERO };
        let Some(rate) = pass.account.user.limits().rate else { return Duration::ZERO };
        let delay = pass.account.load.wait(commands, rate, Instant::now());
        if !delay.is_zero() {
            count(&self.gate.counts.rate);
        }
        delay
    }
}

#[cfg(test)]
mod tests;
