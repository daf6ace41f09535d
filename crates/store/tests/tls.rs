//! TLS 1.3 at a node's endpoints: who is let in, who is not, and certificates that change.

mod common;

use common::resp::Wire;
use common::{Folder, PATIENCE, free_address, until};
use highwire_store::{Access, Client, Engine, StoreError};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// An authority, and a folder with its certificate and those that it has made.
struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn write(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
    std::fs::rename(&draft, path).expect("named");
}

impl Authority {
    fn new() -> Authority {
        let name = format!("highwire-tls-{}", highwire_store::fresh_name().expect("a name"));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of a test");
        let certificate = params.self_signed(&key).expect("a certificate");
        write(&folder.join("ca.pem"), &certificate.pem());
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A certificate for these names or addresses, and its key, in `NAME.pem` and `NAME.key`.
    fn certify(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let (pem, secret) = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        write(&secret, &key.serialize_pem());
        write(&pem, &certificate.pem());
        (pem, secret)
    }
}

/// Nodes of this process, with certificates of one authority.
struct Nodes {
    engines: Vec<Engine>,
    folder: Folder,
    authority: Authority,
    resp: String,
    metrics: String,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for engine in self.engines.drain(..) {
            engine.store().stop();
            engine.join().expect("no panic");
        }
    }
}

impl Nodes {
    fn start(count: usize, clients: Option<&Authority>, more: &str) -> Nodes {
        let authority = Authority::new();
        let (certificate, key) = authority.certify("node", &["127.0.0.1", "localhost"]);
        let ca = authority.path("ca.pem");
        let mut tls = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nauthority = {ca:?}\n");
        if let Some(clients) = clients {
            // The nodes' own certificates are of their authority, which must be let in as well.
            let read = |path: PathBuf| std::fs::read_to_string(path).expect("a certificate");
            write(&authority.path("clients.pem"), &(read(clients.path("ca.pem")) + &read(ca.clone())));
            tls.push_str(&format!("clients = {:?}\n", authority.path("clients.pem")));
        }
        let f = usize::from(count > 1);
        let folder = Folder::new(count, &format!("f = {f}\nlease_ms = 5000\n{more}{tls}"));
        let engines: Vec<Engine> =
            (0..count).map(|id| Engine::start(&folder.config(), id as u16).expect("a node")).collect();
        let (resp, metrics) = (free_address(), free_address());
        engines[0].store().open_resp(&resp).expect("the endpoint");
        engines[0].store().open_metrics(&metrics).expect("the endpoint");
        let nodes = Nodes { engines, folder, authority, resp, metrics };
        let access = Access::member(&nodes.folder.config()).expect("a member");
        let doors = nodes.folder.config().doors();
        until("all nodes", || {
            let serves = |door: &String| {
                let mut client = Client::new([door.clone()]);
                client.set_access(access.clone());
                client.set_patience(Duration::from_secs(1));
                client.status().is_ok_and(|status| status.is_open && status.members.len() == count)
            };
            doors.iter().all(serves).then_some(())
        });
        nodes
    }

    fn client(&self, access: Access) -> Client {
        let mut client = self.folder.client();
        client.set_access(access);
        client
    }

    fn trusting(&self) -> Access {
        Access::anonymous().with_tls(&self.authority.path("ca.pem")).expect("an authority")
    }

    fn cli(&self, more: &[&str], words: &[&str]) -> Option<String> {
        let port = self.resp.rsplit(':').next().expect("a port");
        let mut command = Command::new("redis-cli");
        command.args(["-p", port]).args(more).args(words).stdin(Stdio::null());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                eprintln!("skipped: needs redis-cli (Debian's package redis-tools): {error}");
                return None;
            }
        };
        let said = [output.stdout, output.stderr].concat();
        Some(String::from_utf8_lossy(&said).trim().to_string())
    }
}

#[test]
fn a_client_by_rpcs_is_told_that_these_are_not_encrypted() {
    let nodes = Nodes::start(1, None, "");
    let mut client = nodes.client(nodes.trusting());
    assert_eq!(client.get("t", "k"), Ok(None));
    client.set_transport(highwire_store::Transport::Rpc);
    let error = client.get("t", "k").expect_err("not encrypted");
    assert!(matches!(&error, StoreError::Invalid(why) if why.contains("not be encrypted")), "{error:?}");
}

#[test]
fn three_nodes_find_each_other_and_clients_of_all_kinds_are_served_over_tls() {
    let nodes = Nodes::start(3, None, "");
    let mut client = nodes.client(nodes.trusting());
    let long = "x".repeat(1 << 20);
    client.put("t", "k", &long).expect("written");
    assert_eq!(client.get("t", "k"), Ok(Some(long.clone().into_bytes())));
    // A snapshot, for which a node asks the others.
    let backup = nodes.authority.path("backup");
    highwire_store::back_up(&mut client, &backup, &mut |_, _| {}).expect("a backup");
    let ca = nodes.authority.path("ca.pem").display().to_string();
    let tls = ["--tls", "--cacert", &ca];
    let Some(said) = nodes.cli(&tls, &["SET", "greeting", "hello"]) else { return };
    assert_eq!(said, "OK");
    assert_eq!(nodes.cli(&tls, &["GET", "greeting"]).as_deref(), Some("hello"));
    assert_eq!(nodes.cli(&tls, &["SET", "long", &long[..100_000]]).as_deref(), Some("OK"));
    assert_eq!(nodes.cli(&tls, &["GET", "long"]).map(|said| said.len()), Some(100_000));
    // Another authority's word does not count.
    let other = Authority::new();
    let other = other.path("ca.pem").display().to_string();
    let said = nodes.cli(&["--tls", "--cacert", &other], &["GET", "greeting"]).expect("it runs");
    assert!(said.contains("certificate verify failed"), "{said}");
}

#[test]
fn a_client_without_tls_is_ended_and_nothing_that_it_says_is_done() {
    let nodes = Nodes::start(1, None, "[doors]\nslow_s = 1\n");
    let before = nodes.client(nodes.trusting()).get("redis", "stolen");
    assert_eq!(before, Ok(None));
    let door = nodes.folder.config().doors()[0].clone();
    for address in [&nodes.resp, &nodes.metrics, &door] {
        for said in
            [&b"SET stolen 1\r\nPING\r\n"[..], b"GET /metrics HTTP/1.1\r\n\r\n", b"hwstore6\0\0\0\x01\x04"]
        {
            let mut stream = TcpStream::connect(address).expect("the endpoint");
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            stream.write_all(said).expect("written");
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            // An alert of TLS at most.
            assert!(answer.is_empty() || answer[0] == 21 && answer.len() < 16, "{answer:?}");
        }
        // One that says nothing, and one that stops within the handshake, are ended without being asked.
        for said in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
            let mut stream = TcpStream::connect(address).expect("the endpoint");
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            stream.write_all(said).expect("written");
            let mut answer = Vec::new();
            let result = stream.read_to_end(&mut answer);
            let is_patience = result.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!is_patience, "it is still open");
        }
    }
    assert_eq!(nodes.client(nodes.trusting()).get("redis", "stolen"), Ok(None));
    let mut plain = nodes.folder.client();
    plain.set_patience(Duration::from_secs(1));
    assert!(matches!(plain.get("t", "k"), Err(StoreError::Unavailable(_))));
}

#[test]
fn where_clients_need_certificates_none_comes_in_without_one() {
    let clients = Authority::new();
    let nodes = Nodes::start(3, Some(&clients), "");
    let ca = nodes.authority.path("ca.pem");
    let (certificate, key) = clients.certify("client", &["client"]);
    let access = Access::anonymous().with_certificate(&ca, &certificate, &key).expect("a certificate");
    nodes.client(access).put("t", "k", "v").expect("it is let in");
    let stranger = Authority::new();
    let (certificate, key) = stranger.certify("client", &["client"]);
    let wrong = Access::anonymous().with_certificate(&ca, &certificate, &key).expect("a certificate");
    for access in [nodes.trusting(), wrong] {
        let mut client = nodes.client(access);
        client.set_patience(Duration::from_secs(1));
        client.put("t", "k", "stolen").expect_err("it is not let in");
    }
    let member = Access::member(&nodes.folder.config()).expect("a member");
    assert_eq!(nodes.client(member).get("t", "k"), Ok(Some(b"v".to_vec())));
}

#[test]
fn a_certificate_that_changes_is_shown_to_who_comes_next() {
    let nodes = Nodes::start(1, None, "");
    let mut there = nodes.client(nodes.trusting());
    there.put("t", "k", "v").expect("written");
    // A certificate for another name.
    nodes.authority.certify("node", &["elsewhere.example"]);
    until("the new certificate", || {
        let mut client = nodes.client(nodes.trusting());
        client.set_patience(Duration::from_millis(100));
        client.get("t", "k").is_err().then_some(())
    });
    assert_eq!(there.get("t", "k"), Ok(Some(b"v".to_vec())), "who is there stays");
    nodes.authority.certify("node", &["127.0.0.1"]);
    until("the old names", || nodes.client(nodes.trusting()).get("t", "k").ok());
}

#[test]
fn a_key_that_others_may_read_or_a_file_that_is_missing_starts_no_node() {
    use std::os::unix::fs::PermissionsExt as _;
    let authority = Authority::new();
    let (certificate, key) = authority.certify("node", &["127.0.0.1"]);
    let ca = authority.path("ca.pem");
    let check = |certificate: &Path, expected: &str| {
        let tls = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nauthority = {ca:?}\n");
        let folder = Folder::new(1, &format!("f = 0\n{tls}"));
        let error = Engine::start(&folder.config(), 0).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&authority.path("none.pem"), "none.pem");
    check(&key, "no certificate in PEM");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("set");
    check(&certificate, "chmod 600");
}

#[test]
fn a_wire_that_speaks_no_tls_gets_no_reply() {
    let nodes = Nodes::start(1, None, "");
    let said = Wire::connect(&nodes.resp).converse(b"PING\r\n");
    assert!(!said.starts_with(b"+PONG"), "{said:?}");
}

#[test]
fn an_older_tls_is_not_spoken() {
    let nodes = Nodes::start(1, None, "");
    let handshake = |version: &str| {
        let ca = nodes.authority.path("ca.pem");
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-connect", &nodes.resp, version, "-verify_return_error", "-CAfile"])
            .arg(ca);
        command.stdin(Stdio::null()).output()
    };
    let newest = match handshake("-tls1_3") {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: needs openssl (Debian's package openssl): {error}"),
    };
    assert!(newest.status.success(), "{}", String::from_utf8_lossy(&newest.stderr));
    let older = handshake("-tls1_2").expect("it runs");
    assert!(!older.status.success());
    let said = String::from_utf8_lossy(&older.stderr).into_owned();
    assert!(said.contains("protocol version") || said.contains("alert"), "{said}");
}
