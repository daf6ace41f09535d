//! The server answers on every connection with the request's bytes, and ends with the process that started
//! it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn every_connection_has_its_own_bytes_back_and_the_server_ends_with_its_input() {
    for how in ["one", "many"] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_server-tokio"))
            .arg(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let port: u16 = line.trim().strip_prefix("port ").and_then(|port| port.parse().ok()).expect("a port");
        let mut streams: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens")).collect();
        for (number, stream) in (0..).zip(&mut streams) {
            stream.write_all(&[number; 32]).expect("it reads");
        }
        for (number, stream) in (0..).zip(&mut streams) {
            let mut bytes = [255; 32];
            stream.read_exact(&mut bytes).expect("it answers");
            assert_eq!(bytes, [number; 32], "{how}");
        }
        drop(server.stdin.take());
        assert!(server.wait().expect("it ends").success(), "{how}");
    }
}

#[test]
fn another_word_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_server-tokio")).arg("both").output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("server-tokio many"), "{error}");
}
