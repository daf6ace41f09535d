//! The systems' servers: started empty, ended by request, and removed with their folders.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::java;
use crate::measure::Program;
use crate::packages::Missing;
use crate::shell::{Line, Log, root, target_dir};

/// How long a server may take until it answers.
const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// The number of servers that listen, each at a port of its own.
const NODES: u16 = 3;
/// Debian's user for PostgreSQL, which refuses to run as root.
const POSTGRES: &str = "postgres";

/// A system at one level of durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    DoorsMemory,
    RedisMemory,
    ValkeyMemory,
    PostgresMemory,
    IgniteMemory,
    DoorsDisk,
    RedisDisk,
    ValkeyDisk,
    PostgresDisk,
}

impl Kind {
    pub(super) const ALL: [Kind; 9] = [
        Kind::DoorsMemory,
        Kind::RedisMemory,
        Kind::ValkeyMemory,
        Kind::PostgresMemory,
        Kind::IgniteMemory,
        Kind::DoorsDisk,
        Kind::RedisDisk,
        Kind::ValkeyDisk,
        Kind::PostgresDisk,
    ];

    /// In the order of the tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::DoorsMemory => "Highwire's Redis door",
            Kind::RedisMemory => "Redis",
            Kind::ValkeyMemory => "Valkey",
            Kind::PostgresMemory => "PostgreSQL, `fsync` off",
            Kind::IgniteMemory => "Apache Ignite",
            Kind::DoorsDisk => "Highwire's Redis door, `--data`",
            Kind::RedisDisk => "Redis, `appendfsync always`",
            Kind::ValkeyDisk => "Valkey, `appendfsync always`",
            Kind::PostgresDisk => "PostgreSQL, `fsync` on",
        }
    }

    /// The number of copies, and where they are when the answer comes.
    pub(super) fn copies(self) -> &'static str {
        match self {
            Kind::DoorsMemory | Kind::IgniteMemory => "3, memory",
            Kind::RedisMemory | Kind::ValkeyMemory | Kind::PostgresMemory => "1, memory",
            Kind::DoorsDisk => "3, disk",
            Kind::RedisDisk | Kind::ValkeyDisk | Kind::PostgresDisk => "1, disk",
        }
    }

    pub(super) fn packages(self) -> &'static [&'static str] {
        match self {
            Kind::DoorsMemory | Kind::DoorsDisk | Kind::IgniteMemory => &[],
            Kind::RedisMemory | Kind::RedisDisk => &["redis-server"],
            Kind::ValkeyMemory | Kind::ValkeyDisk => &["valkey-server"],
            Kind::PostgresMemory | Kind::PostgresDisk => &["postgresql"],
        }
    }

    /// The driver's name for the system's protocol.
    pub(super) fn system(self) -> &'static str {
        match self {
            Kind::PostgresMemory | Kind::PostgresDisk => "postgres",
            Kind::IgniteMemory => "ignite",
            _ => "resp",
        }
    }

    pub(super) fn speaks_resp(self) -> bool {
        self.system() == "resp"
    }

    /// Seconds for which clients run before they are measured: a JVM compiles what it has run often.
    pub(super) fn warm_up(self) -> u64 {
        if self == Kind::IgniteMemory { 15 } else { 1 }
    }

    pub(super) fn is_durable(self) -> bool {
        self >= Kind::DoorsDisk
    }
}

/// A running system.
pub(super) struct Server {
    kind: Kind,
    child: Child,
    at: String,
    folder: PathBuf,
}

impl Server {
    pub(super) fn start(kind: Kind, program: &Program, log: &Log) -> Result<Server> {
        let folder = std::env::temp_dir().join(format!("highwire-beside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let started = match kind {
            Kind::DoorsMemory | Kind::DoorsDisk => doors(kind, program, &folder),
            Kind::RedisMemory | Kind::RedisDisk => redis(kind, "redis-server", &folder),
            Kind::ValkeyMemory | Kind::ValkeyDisk => redis(kind, "valkey-server", &folder),
            Kind::PostgresMemory | Kind::PostgresDisk => postgres(kind, &folder, log),
            Kind::IgniteMemory => ignite(&folder, log),
        };
        let (child, at) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                return Err(error.context(kind.name()));
            }
        };
        let mut server = Server { kind, child, at, folder };
        server.wait()?;
        Ok(server)
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The root of its processes.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// The driver's arguments.
    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// The first address.
    pub(super) fn door(&self) -> &str {
        self.at.split(',').next().unwrap_or_default()
    }

    fn answers(&self) -> bool {
        let pong = |line: Line| line.capture().is_ok_and(|output| output.stdout.trim() == "PONG");
        match self.door().rsplit_once(':') {
            Some((host, port)) if self.kind.speaks_resp() => {
                pong(Line::new("redis-cli").words(&format!("-h {host} -p {port} ping")))
            }
            // Doors of Ignite open when all nodes have met.
            Some(_) => self.at.split(',').all(|door| TcpStream::connect(door).is_ok()),
            None => pong(Line::new("psql").arg(&self.at).words("-qtAc").arg("select 'PONG'")),
        }
    }

    /// Waits until it answers.
    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        while !self.answers() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} has ended: {status}", self.kind.name());
            }
            if Instant::now() > deadline {
                bail!("{} does not answer at {}", self.kind.name(), self.at);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Asks it to end, and waits.
    pub(super) fn stop(mut self) -> Result<()> {
        self.end();
        let deadline = Instant::now() + STOP_PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("{} does not end", self.kind.name());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Each of them takes this for "close your files and end". A JVM that a shell started in its background does not hear SIGINT.
    fn end(&self) {
        let signal = if self.kind == Kind::IgniteMemory { "-TERM" } else { "-INT" };
        let _ = Line::new("kill").arg(signal).arg(self.child.id().to_string()).capture();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let deadline = Instant::now() + STOP_PATIENCE;
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The first of this many free ports in a row.
fn free_ports(count: u16) -> Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0")?;
        let port = first.local_addr()?.port();
        let others = (1..count).map(|node| TcpListener::bind(("127.0.0.1", port.saturating_add(node))));
        if port < u16::MAX - count && others.collect::<std::io::Result<Vec<_>>>().is_ok() {
            return Ok(port);
        }
    }
    bail!("no {count} ports in a row are free")
}

fn doors(kind: Kind, program: &Program, folder: &Path) -> Result<(Child, String)> {
    let port = free_ports(2 * NODES)?;
    let resp = port + NODES;
    // Leases that are long enough for a machine of few cores, however busy it is.
    let words =
        format!("store serve --nodes {NODES} --f {} --lease-ms 20000 --port {port} --resp {resp}", NODES - 1);
    let mut line = program.line(&words);
    if kind.is_durable() {
        line = line.arg("--data").arg(folder.join("data"));
    }
    let mut child =
        line.command().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = child.stdout.take().context("its output")?;
    let mut lines = BufReader::new(output).lines();
    if !lines.any(|line| line.is_ok_and(|line| line.contains("the store serves"))) {
        let _ = child.wait();
        bail!("the cluster has ended before it served");
    }
    // Its further output is read and discarded, so that it never waits for this process.
    std::thread::spawn(move || lines.for_each(drop));
    let places: Vec<String> = (0..NODES).map(|node| format!("127.0.0.1:{}", resp + node)).collect();
    Ok((child, places.join(",")))
}

fn redis(kind: Kind, program: &str, folder: &Path) -> Result<(Child, String)> {
    let port = free_ports(1)?;
    let disk = if kind.is_durable() { "--appendonly yes --appendfsync always" } else { "--appendonly no" };
    let line = Line::new(program).words(&format!("--port {port} --bind 127.0.0.1 --daemonize no {disk}"));
    let line = line.arg("--save").arg("").arg("--dir").arg(folder);
    let child = line.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok((child, format!("127.0.0.1:{port}")))
}

/// What Ignite wants of a JVM of release 17 or later: these packages of the JDK are open to it.
const IGNITE_OPENS: [&str; 19] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.time",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks",
    "java.base/jdk.internal.access",
    "java.base/jdk.internal.misc",
    "java.base/sun.nio.ch",
    "java.base/sun.reflect.generics.reflectiveObjects",
    "java.base/sun.util.calendar",
    "java.management/com.sun.jmx.mbeanserver",
    "jdk.internal.jvmstat/sun.jvmstat.monitor",
    "jdk.management/com.sun.management.internal",
];

fn ignite_folder() -> PathBuf {
    root().join("comparisons/store/ignite")
}

fn ignite_libraries() -> PathBuf {
    target_dir().join("comparisons/ignite")
}

/// Ignite from Maven's repository, and a JDK for it.
pub(super) fn fetch_ignite(log: &Log) -> Result<std::result::Result<(), Missing>> {
    let home = match java::tools(log)? {
        Ok(home) => home,
        Err(missing) => return Ok(Err(missing)),
    };
    let line = Line::new("mvn").words("-q -B dependency:copy-dependencies");
    let line = line.arg(format!("-DoutputDirectory={}", ignite_libraries().display()));
    if line.env("JAVA_HOME", home).dir(ignite_folder()).run_logged(log)? {
        Ok(Ok(()))
    } else {
        Ok(Err(Missing("Maven could not fetch it; the log bench-store.log says why".into())))
    }
}

/// Three nodes, each a JVM with a heap of 1 GiB and its rows outside of that.
fn ignite(folder: &Path, log: &Log) -> Result<(Child, String)> {
    let home = match java::tools(log)? {
        Ok(home) => home,
        Err(missing) => bail!("{}", missing.0),
    };
    let port = free_ports(3 * NODES)?;
    let mut line = Line::new(&home.join("bin/java").display().to_string());
    for package in IGNITE_OPENS {
        line = line.arg(format!("--add-opens={package}=ALL-UNNAMED"));
    }
    let line = line
        .words("-Xms1g -Xmx1g -DIGNITE_QUIET=true -DIGNITE_NO_ASCII=true -DIGNITE_UPDATE_NOTIFIER=false")
        .arg(format!("-Djava.io.tmpdir={}", folder.display()))
        .arg("-cp")
        .arg(format!("{}/*", ignite_libraries().display()))
        .arg(ignite_folder().join("Node.java"))
        .words(&format!("cluster {port}"));
    log.note(&format!("$ {line}"))?;
    let output = std::fs::File::create(folder.join("output"))?;
    let errors = output.try_clone()?;
    let child = line.command().stdin(Stdio::null()).stdout(output).stderr(errors).spawn()?;
    let places: Vec<String> = (0..NODES).map(|node| format!("127.0.0.1:{}", port + node)).collect();
    Ok((child, places.join(",")))
}

/// The newest that is installed, on a socket in its folder.
fn postgres(kind: Kind, folder: &Path, log: &Log) -> Result<(Child, String)> {
    let programs = newest_postgres().context("there is no PostgreSQL below /usr/lib/postgresql")?;
    let data = folder.join("data");
    let owner = Owner::of_postgres()?;
    owner.give(folder)?;
    let initialise = Line::new(&programs.join("initdb").display().to_string()).arg("-D").arg(&data);
    let initialise = initialise.words("-A trust -U postgres -E UTF8 --no-locale --no-sync").dir(folder);
    log.note(&format!("$ {initialise}"))?;
    let made = owner.be(initialise.command()).stdin(Stdio::null()).output()?;
    if !made.status.success() {
        bail!("initdb: {}", String::from_utf8_lossy(&made.stderr).trim());
    }
    let durable = if kind.is_durable() { "on" } else { "off" };
    let mut line = Line::new(&programs.join("postgres").display().to_string())
        .arg("-D")
        .arg(&data)
        .arg("-k")
        .arg(folder);
    for setting in [
        format!("fsync={durable}"),
        format!("synchronous_commit={durable}"),
        format!("full_page_writes={durable}"),
        "listen_addresses=".into(),
        "shared_buffers=1GB".into(),
        "max_wal_size=8GB".into(),
        "max_connections=64".into(),
        "max_pred_locks_per_transaction=256".into(),
        "jit=off".into(),
        "random_page_cost=1.1".into(),
        // Conflicts are expected; a line for each of them costs time.
        "log_min_messages=fatal".into(),
        "log_min_error_statement=fatal".into(),
    ] {
        line = line.arg("-c").arg(setting);
    }
    let line = line.dir(folder);
    log.note(&format!("$ {line}"))?;
    let output = std::fs::File::create(folder.join("output"))?;
    let child = owner.be(line.command()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn()?;
    Ok((child, format!("host={} user=postgres dbname=postgres", folder.display())))
}

fn newest_postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let found = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin"))).filter(|(_, bin)| bin.join("postgres").is_file())
    });
    found.max().map(|(_, bin)| bin)
}

/// The user as whom a server runs: root changes to the package's user, all others stay who they are.
struct Owner(Option<(u32, u32)>);

impl Owner {
    fn of_postgres() -> Result<Owner> {
        let id = |words: &str| -> Result<u32> {
            let output = Line::new("id").words(words).capture()?.stdout;
            output.trim().parse().with_context(|| format!("id {words}: `{}`", output.trim()))
        };
        if id("-u")? != 0 {
            return Ok(Owner(None));
        }
        Ok(Owner(Some((id(&format!("-u {POSTGRES}"))?, id(&format!("-g {POSTGRES}"))?))))
    }

    fn give(&self, folder: &Path) -> Result<()> {
        if let Some((user, group)) = self.0 {
            std::os::unix::fs::chown(folder, Some(user), Some(group))
                .with_context(|| folder.display().to_string())?;
        }
        Ok(())
    }

    fn be(&self, mut command: Command) -> Command {
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }
}
