//! The users' file: names, roles, and hashes of passwords.
//!
//! ```toml
//! [[user]]
//! name = "alice"
//! role = "write"
//! password = "$argon2id$v=19$m=19456,t=2,p=1$…$…"
//! connections = 20   # at a time, of one node; unless given, the endpoint's own limit
//! rate = 1000        # commands in a second, at one node; unless given, no limit
//! ```
//!
//! It is read strictly: an unknown key, a name that is there twice, a hash that would cost too much, or a file that others may read is
//! an error. A node that reads a file with an error goes on with the users that it had.

use super::{Role, random};
use crate::fresh::fresh_name;
use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordVerifier, Version};
use serde::Deserialize;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The longest name of a user.
const NAME_BYTES_MAX: usize = 64;
/// The longest password.
pub(crate) const PASSWORD_BYTES_MAX: usize = 512;
/// The longest file, and the most users.
const FILE_BYTES_MAX: u64 = 4 << 20;
const USERS_MAX: usize = 1 << 14;
/// What a hash may cost a node: KiB of memory, passes over it, lanes.
const MEMORY_KIB_MAX: u32 = 128 << 10;
const PASSES_MAX: u32 = 8;
const LANES_MAX: u32 = 4;
/// A shorter hash could be met by chance.
const HASH_BYTES_MIN: usize = 16;
const SALT_BYTES: usize = 16;
const OTHERS: u32 = 0o077;

/// What one user may take of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Connections at a time.
    pub connections: Option<usize>,
    /// Commands in a second.
    pub rate: Option<u32>,
}

/// A user.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    name: String,
    role: Role,
    /// The hash of the password, as a PHC string.
    password: String,
    connections: Option<usize>,
    rate: Option<u32>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The hash does not belong into a log.
        f.debug_struct("User").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

impl User {
    /// The user's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the user may do.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What the user may take of a node.
    pub fn limits(&self) -> UserLimits {
        UserLimits { connections: self.connections, rate: self.rate }
    }

    pub(super) fn hash(&self) -> &str {
        &self.password
    }

    /// Whether this is the user's password. It takes long, on purpose.
    pub(super) fn has_password(&self, password: &[u8]) -> bool {
        let Ok(hash) = PasswordHash::new(&self.password) else { return false };
        password.len() <= PASSWORD_BYTES_MAX && Argon2::default().verify_password(password, &hash).is_ok()
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        let fail = |what: &str| Err(format!("user `{}`: {what}", self.name));
        let Ok(hash) = PasswordHash::new(&self.password) else {
            return fail("`password` is no hash; `highwire store user add` makes one");
        };
        let is_known = hash.algorithm == Algorithm::Argon2id.ident()
            && hash.version == Some(Version::V0x13.into())
            && hash.salt.is_some()
            && hash.hash.is_some_and(|bytes| bytes.as_bytes().len() >= HASH_BYTES_MIN);
        match Params::try_from(&hash) {
            Ok(params) if is_known => {
                let is_dear = params.m_cost() > MEMORY_KIB_MAX
                    || params.t_cost() > PASSES_MAX
                    || params.p_cost() > LANES_MAX;
                if is_dear {
                    return fail(&format!(
                        "the hash of the password costs too much: at most m={MEMORY_KIB_MAX},t={PASSES_MAX},p={LANES_MAX}"
                    ));
                }
            }
            _ => return fail("the hash of the password is not one of argon2id, version 19"),
        }
        if self.connections == Some(0) || self.rate == Some(0) {
            return fail("`connections` and `rate` are at least 1");
        }
        Ok(())
    }
}

/// All users of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    #[serde(rename = "user", default)]
    users: Vec<User>,
}

/// What is wrong with a users' file, or with what is asked of it.
#[derive(Debug)]
pub struct UsersError(String);

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsersError {}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(format!(
            "`{}` is no name of a user: 1 to {NAME_BYTES_MAX} letters, digits and . _ @ -",
            name.escape_default()
        ));
    }
    Ok(())
}

impl Users {
    /// Reads a users' file.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or what is wrong in it.
    pub fn load(path: &Path) -> Result<Users, UsersError> {
        let fail = |what: String| UsersError(format!("{}: {what}", path.display()));
        let file = File::open(path).map_err(|error| fail(error.to_string()))?;
        let about = file.metadata().map_err(|error| fail(error.to_string()))?;
        if !about.is_file() {
            return Err(fail("it is no file".into()));
        }
        if about.mode() & OTHERS != 0 {
            return Err(fail(format!(
                "others may read or write it (mode {:03o}): chmod 600",
                about.mode() & 0o777
            )));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| fail(error.to_string()))?;
        Users::parse(&text).map_err(|UsersError(what)| fail(what))
    }

    /// Reads a users' file's text.
    ///
    /// # Errors
    /// What is wrong in it.
    pub fn parse(text: &str) -> Result<Users, UsersError> {
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(UsersError(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        let users: Users =
            toml::from_str(text).map_err(|error| UsersError(error.to_string().trim_end().into()))?;
        users.check().map_err(UsersError)?;
        Ok(users)
    }

    fn check(&self) -> Result<(), String> {
        if self.users.len() > USERS_MAX {
            return Err(format!("it has more than {USERS_MAX} users"));
        }
        let mut names = std::collections::BTreeSet::new();
        for user in &self.users {
            user.check()?;
            if !names.insert(&user.name) {
                return Err(format!("two users have the name `{}`", user.name));
            }
        }
        Ok(())
    }

    /// The users, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.users.iter()
    }

    /// Adds a user, or gives one that is there another role, password and other limits. Returns whether the user is new.
    ///
    /// # Errors
    /// The name or the password cannot be one; the system has no random numbers.
    pub fn add(
        &mut self,
        name: &str,
        role: Role,
        password: &[u8],
        limits: UserLimits,
    ) -> Result<bool, UsersError> {
        if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
            return Err(UsersError(format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes")));
        }
        let failed = |error: &dyn fmt::Display| UsersError(error.to_string());
        let salt: [u8; SALT_BYTES] = random().map_err(|error| failed(&error))?;
        let hash: PasswordHash =
            Argon2::default().hash_password_with_salt(password, &salt).map_err(|error| failed(&error))?;
        let UserLimits { connections, rate } = limits;
        let user = User { name: name.into(), role, password: hash.to_string(), connections, rate };
        user.check().map_err(UsersError)?;
        let place = self.users.iter_mut().find(|known| known.name == name);
        let is_new = place.is_none();
        match place {
            Some(known) => *known = user,
            None => self.users.push(user),
        }
        self.check().map_err(UsersError)?;
        Ok(is_new)
    }

    /// Takes a user away; returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.users.len();
        self.users.retain(|user| user.name != name);
        self.users.len() < before
    }

    /// Changes a users' file, which may be new, as a whole. Of two programs that do so at the same time, one waits.
    ///
    /// # Errors
    /// The file cannot be read or written; or the error of `change`, and the file stays as it was.
    pub fn edit<T>(
        path: &Path,
        change: impl FnOnce(&mut Users) -> Result<T, UsersError>,
    ) -> Result<T, UsersError> {
        let fail = |error: std::io::Error| UsersError(format!("{}: {error}", path.display()));
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let held = File::open(folder).map_err(fail)?;
        held.lock().map_err(fail)?;
        let mut users = if path.exists() { Users::load(path)? } else { Users::default() };
        let result = change(&mut users)?;
        users.write(path, folder).map_err(fail)?;
        Ok(result)
    }

    fn write(&self, path: &Path, folder: &Path) -> std::io::Result<()> {
        let draft: PathBuf = folder.join(format!(".users-{}", fresh_name()?));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, path)?;
            File::open(folder)?.sync_all()
        };
        write().inspect_err(|_| drop(fs::remove_file(&draft)))
    }

    /// The file's text. Names and hashes have no character that TOML would take for another.
    fn text(&self) -> String {
        let mut text = String::new();
        for User { name, role, password, connections, rate } in &self.users {
            text.push_str(&format!(
                "[[user]]\nname = \"{name}\"\nrole = \"{role}\"\npassword = \"{password}\"\n"
            ));
            for (key, limit) in
                [("connections", connections.map(|most| most as u64)), ("rate", rate.map(u64::from))]
            {
                text.extend(limit.map(|most| format!("{key} = {most}\n")));
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn one(password: &[u8]) -> Users {
        let mut users = Users::default();
        users.add("alice", Role::Write, password, UserLimits::default()).expect("a user");
        users
    }

    #[test]
    fn a_file_keeps_its_users_and_is_for_its_owner_only() {
        let folder = std::env::temp_dir().join(format!("highwire-users-{}", fresh_name().expect("a name")));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("users.toml");
        let limits = UserLimits { connections: Some(3), rate: Some(7) };
        let add = |name: &'static str, role| {
            Users::edit(&path, |users| users.add(name, role, b"secret", limits)).expect("written")
        };
        assert!(add("alice", Role::Read) && add("bob", Role::Admin) && !add("alice", Role::Write));
        let users = Users::load(&path).expect("it reads");
        let all: Vec<_> = users.iter().map(|user| (user.name(), user.role(), user.limits())).collect();
        assert_eq!(all, [("alice", Role::Write, limits), ("bob", Role::Admin, limits)]);
        assert!(!users.text().contains("secret"));
        assert!(Users::edit(&path, |users| Ok(users.remove("bob"))).expect("written"));
        assert_eq!(Users::load(&path).expect("it reads").iter().count(), 1);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "no draft is left");
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let error = Users::load(&path).expect_err("others may read it").to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn only_the_whole_password_is_the_password() {
        let users = one(b"correct horse");
        let alice = &users.users[0];
        assert!(alice.has_password(b"correct horse"));
        for wrong in
            [&b""[..], b"correct", b"correct hors", b"correct horse ", b"Correct horse", b"correct horse\0"]
        {
            assert!(!alice.has_password(wrong), "{wrong:?}");
        }
        assert!(!alice.has_password(&[b'x'; PASSWORD_BYTES_MAX + 1]));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let good = one(b"x").text();
        let check = |text: &str, expected: &str| {
            let error = Users::parse(text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&good.repeat(2), "two users have the name `alice`");
        check(&good.replace("alice", "a b"), "`a b` is no name of a user");
        check(&good.replace("alice", ""), "is no name of a user");
        check(&good.replace("\"write\"", "\"root\""), "unknown variant `root`");
        check(&good.replace("role", "rolle"), "unknown field `rolle`");
        check(&good.replace("$argon2id$", "$argon2i$"), "not one of argon2id");
        check(&good.replace("m=19456", "m=99999999"), "costs too much");
        check(&good.replace("t=2", "t=2000"), "costs too much");
        check(&good.replace("$argon2id", "argon2id"), "is no hash");
        check(&format!("{good}rate = 0\n").replace("\n\nrate", "\nrate"), "at least 1");
        check("[[user]]\nname = \"a\"\n", "missing field");
        assert_eq!(Users::parse("").expect("nobody").iter().count(), 0);
    }
}
