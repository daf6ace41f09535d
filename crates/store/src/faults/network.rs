//! A network for processes of one machine: a bridge, and a namespace for each node that hangs on it.
//!
//! All of it lies in a namespace of its own, in which this very program runs ([`private`]). So no other
//! program has its names and addresses, the machine's own network is not touched, and everything is gone when
//! the program is, however it ends.

use super::{FaultError, failed, until};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Set in the environment of a program that has a network and mounts of its own.
const MARK: &str = "HIGHWIRE_PRIVATE_NETWORK";
const BRIDGE: &str = "bridge";
/// The address of clients and etcd.
const HUB: &str = "10.83.0.1";

/// Whether this program has a network and mounts of its own.
pub fn is_private() -> bool {
    std::env::var_os(MARK).is_some()
}

/// A command that runs this program again with a network and mounts of its own. The caller adds arguments.
///
/// # Errors
/// Why this machine does not allow that, in one line.
pub fn private() -> Result<Command, String> {
    let attempt = "ip link add probe type bridge && ip link add probe0 type veth peer name probe1 && mount -t tmpfs tmpfs \"$0\"";
    let mut reasons = Vec::new();
    // A user who is not root may use a user namespace, where the machine allows it.
    for more in [&[][..], &["--map-root-user"]] {
        let probed = Command::new("unshare")
            .args(["--net", "--mount"])
            .args(more)
            .args(["sh", "-c", attempt])
            .arg(std::env::temp_dir())
            .stdin(Stdio::null())
            .output();
        match probed {
            Ok(output) if output.status.success() => {
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new("unshare");
                command.args(["--net", "--mount"]).args(more).arg(program).env(MARK, "1");
                return Ok(command);
            }
            Ok(output) => reasons.push(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
            Err(error) => reasons.push(format!("unshare: {error}")),
        }
    }
    Err(format!("no network namespaces here: {}", reasons.swap_remove(0)))
}

/// The bridge, and what hangs on it.
#[derive(Debug)]
pub struct Network {
    members: Vec<Member>,
}

/// A node's namespace. It lasts as long as a process that only keeps it open and ends with its input.
#[derive(Debug)]
struct Member {
    holder: Child,
    port: String,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // This program may build another network later.
        let _ = ip(&format!("link delete {BRIDGE}"));
    }
}

impl Network {
    /// Builds the network, in a program that has one of its own.
    ///
    /// # Errors
    /// [`FaultError`]: the message of `ip`.
    pub fn build(nodes: u16) -> Result<Network, FaultError> {
        if !is_private() {
            return Err(FaultError("this program has no network of its own".into()));
        }
        ip("link set lo up")?;
        ip(&format!("link add {BRIDGE} type bridge"))?;
        ip(&format!("address add {HUB}/24 dev {BRIDGE}"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        let members = (0..nodes).map(Member::add).collect::<Result<_, _>>()?;
        Ok(Network { members })
    }

    /// Where etcd listens.
    pub fn hub() -> &'static str {
        HUB
    }

    /// A node's address.
    pub fn address(node: u16) -> String {
        format!("10.83.0.{}", 10 + node)
    }

    /// A command, to be run in a node's namespace.
    pub fn within(&self, node: u16, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(self.members[usize::from(node)].namespace());
        inside.arg(command.get_program()).args(command.get_args());
        let set: Vec<(OsString, OsString)> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_os_string(), value?.to_os_string())))
            .collect();
        inside.envs(set);
        inside
    }

    /// Takes a node off the bridge: it hears no other node, none hears it, and neither end is notified.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn cut(&self, node: u16) -> Result<(), FaultError> {
        ip(&format!("link set {} nomaster", self.members[usize::from(node)].port))
    }

    /// Puts it back.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn heal(&self, node: u16) -> Result<(), FaultError> {
        ip(&format!("link set {} master {BRIDGE}", self.members[usize::from(node)].port))
    }
}

impl Member {
    fn add(node: u16) -> Result<Member, FaultError> {
        let holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| failed("unshare", error))?;
        let member = Member { holder, port: format!("node{node}") };
        let own = fs::read_link("/proc/self/ns/net").map_err(|error| failed("/proc", error))?;
        let theirs = PathBuf::from(format!("/proc/{}/ns/net", member.holder.id()));
        until("a namespace", || fs::read_link(&theirs).ok().filter(|namespace| *namespace != own))?;
        let (port, holder) = (&member.port, member.holder.id());
        ip(&format!("link add {port} type veth peer name port netns {holder}"))?;
        ip(&format!("link set {port} master {BRIDGE}"))?;
        ip(&format!("link set {port} up"))?;
        for words in [
            &format!("address add {}/24 dev port", Network::address(node)),
            "link set port up",
            "link set lo up",
        ] {
            let mut command = Command::new("nsenter");
            run(command.arg(member.namespace()).arg("ip").args(words.split(' ')))?;
        }
        Ok(member)
    }

    fn namespace(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.id())
    }
}

fn ip(words: &str) -> Result<(), FaultError> {
    run(Command::new("ip").args(words.split(' ')))
}

pub(super) fn run(command: &mut Command) -> Result<(), FaultError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(format!("{command:?}"), error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(format!("{command:?}"), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
