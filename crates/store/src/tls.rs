//! TLS 1.3 at a node's endpoints, and of its clients: certificates and keys from files, which are read again when they change.
//!
//! A connection keeps the certificate with which it began. Older versions of TLS are not spoken, so there is none to go back to.

use crate::engine::say;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use serde::Deserialize;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);
const OTHERS: u32 = 0o077;

/// Inode, time of the last change in seconds and nanoseconds, and length of each file that is there.
type Stamps = Vec<Option<(u64, i64, i64, u64)>>;

/// The files of a node, all in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The node's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key, which nobody else may read.
    pub key: PathBuf,
    /// The authority of the certificates of all nodes.
    pub authority: PathBuf,
    /// The authority of clients' certificates. Unless it is given, clients need none.
    pub clients: Option<PathBuf>,
}

impl TlsConfig {
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.certificate, &mut self.key, &mut self.authority].into_iter().chain(&mut self.clients)
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key, &self.authority].into_iter().chain(&self.clients)
    }

    /// What the files are now: it changes with them.
    fn stamp(&self) -> Stamps {
        let of = |path: &PathBuf| {
            let about = fs::metadata(path).ok()?;
            Some((about.ino(), about.mtime(), about.mtime_nsec(), about.size()))
        };
        self.paths().map(of).collect()
    }
}

/// How a client makes sure of a node, and what it shows of itself.
#[derive(Clone)]
pub(crate) enum ClientTls {
    /// That of a program, for as long as it runs.
    Fixed(Arc<ClientConfig>),
    /// That of a node, whose files may change.
    Node(Arc<Tls>),
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls(…)")
    }
}

impl ClientTls {
    /// Of files: nodes must have certificates of `authority`.
    pub(crate) fn open(authority: &Path, own: Option<(&Path, &Path)>) -> Result<ClientTls, String> {
        Ok(ClientTls::Fixed(Arc::new(client(authority, own)?)))
    }

    /// A connection to the node at `host:port`.
    pub(crate) fn connection(&self, door: &str) -> std::io::Result<ClientConnection> {
        let config = match self {
            ClientTls::Fixed(config) => Arc::clone(config),
            ClientTls::Node(tls) => Arc::clone(&tls.now().client),
        };
        let host = door.rsplit_once(':').map_or(door, |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_string()).map_err(std::io::Error::other)?;
        ClientConnection::new(config, name).map_err(std::io::Error::other)
    }
}

/// What the files say.
#[derive(Clone)]
struct Now {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// TLS of a node.
pub(crate) struct Tls {
    files: TlsConfig,
    now: RwLock<Now>,
    stamp: Mutex<Stamps>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or what is wrong with it.
    pub(crate) fn open(files: &TlsConfig) -> Result<Tls, String> {
        let stamp = files.stamp();
        Ok(Tls { files: files.clone(), now: RwLock::new(read(files)?), stamp: Mutex::new(stamp) })
    }

    fn now(&self) -> Now {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The node's end of a connection that has been accepted.
    pub(crate) fn connection(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(self.now().server)
    }

    /// Takes up files that have changed, if they are right.
    fn look(&self) {
        let stamp = self.files.stamp();
        let mut before = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        if *before == stamp {
            return;
        }
        *before = stamp;
        match read(&self.files) {
            Ok(now) => *self.now.write().unwrap_or_else(PoisonError::into_inner) = now,
            Err(what) => say(format_args!("the certificates stay as they were: {what}")),
        }
    }

    /// Looks at the files again and again, as long as the I/O loop runs.
    pub(crate) fn follow(self: &Arc<Tls>, io: &Handle) {
        let (tls, of) = (Arc::clone(self), io.clone());
        io.spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let tls = Arc::clone(&tls);
                // The files may be on a disk that does not answer.
                let _ = of.spawn_blocking(move || tls.look()).await;
            }
        });
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn failed(path: &Path, what: impl fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| failed(path, error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| failed(path, error))?;
    if all.is_empty() {
        return Err(failed(path, "it holds no certificate in PEM"));
    }
    Ok(all)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let about = fs::metadata(path).map_err(|error| failed(path, error))?;
    if about.mode() & OTHERS != 0 {
        return Err(failed(
            path,
            format_args!("others may read or write it (mode {:03o}): chmod 600", about.mode() & 0o777),
        ));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| failed(path, error))
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| failed(path, error))?;
    }
    Ok(roots)
}

fn client(authority: &Path, own: Option<(&Path, &Path)>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(authority)?);
    match own {
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|error| failed(certificate, error)),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn read(files: &TlsConfig) -> Result<Now, String> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?;
    let builder = match &files.clients {
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider());
            builder.with_client_cert_verifier(verifier.build().map_err(|error| failed(path, error))?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut server = builder
        .with_single_cert(certificates(&files.certificate)?, private_key(&files.key)?)
        .map_err(|error| failed(&files.certificate, error))?;
    // Connections are few and live long. A ticket that lies unread would look like an answer.
    server.send_tls13_tickets = 0;
    let client = client(&files.authority, Some((&files.certificate, &files.key)))?;
    Ok(Now { server: Arc::new(server), client: Arc::new(client) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fresh::fresh_name;
    use std::os::unix::fs::PermissionsExt as _;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
    }

    #[test]
    fn files_that_fit_together_are_taken_up_and_others_change_nothing() {
        let folder = std::env::temp_dir().join(format!("highwire-tls-{}", fresh_name().expect("a name")));
        fs::create_dir_all(&folder).expect("a folder");
        let path = |name: &str| folder.join(name);
        let files = TlsConfig {
            certificate: path("node.pem"),
            key: path("node.key"),
            authority: path("node.pem"),
            clients: None,
        };
        let make = || {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let (first, second) = (make(), make());
        write(&files.certificate, &first.0);
        write(&files.key, &first.1);
        let tls = Tls::open(&files).expect("they fit together");
        let before = tls.now();
        let is_same = |tls: &Tls| Arc::ptr_eq(&before.server, &tls.now().server);
        tls.look();
        assert!(is_same(&tls), "nothing has changed");
        for wrong in ["nothing", &*second.0] {
            write(&files.certificate, wrong);
            tls.look();
            assert!(is_same(&tls), "{wrong:.30}");
        }
        write(&files.key, &second.1);
        tls.look();
        assert!(!is_same(&tls), "they fit together again");
        fs::remove_file(&files.key).expect("removed");
        let after = tls.now();
        tls.look();
        assert!(Arc::ptr_eq(&after.server, &tls.now().server), "a key that has gone changes nothing");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
