//! Two processes, over sockets of the kernel, which every machine has.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_echo-sockets");

/// A client that fails ends long before, on a busy machine as well.
const LONG_MS: &str = "60000";

struct Server {
    child: Child,
    place: String,
}

impl Server {
    fn start(over: &str, more: &[&str]) -> Server {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--over", over]).args(more);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program is built");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("text");
        let place = line.trim().strip_prefix("at ").expect("where it is").to_string();
        Server { child, place }
    }

    fn call(&self, over: &str, window: &str, turn_ms: &str) -> Output {
        let process = self.child.id().to_string();
        Command::new(PROGRAM)
            .args(["call", "--over", over, "--at", &self.place, "--turn-ms", turn_ms])
            .args(["--window", window, "--server-process", &process])
            .output()
            .expect("the program is built")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it is our child");
        if !std::thread::panicking() {
            assert!(status.success(), "{status}");
        }
    }
}

#[test]
fn echoes_come_back_over_every_socket_with_one_and_with_many_under_way() {
    for over in ["tcp", "unix"] {
        for window in ["1", "220"] {
            let output = Server::start(over, &[]).call(over, window, "50");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
            let figure = |name: &str| report[name].as_f64().expect(name);
            assert!(figure("requests") > 0.0 && figure("seconds") >= 0.05, "{report}");
            // Many replies may have been in flight before counting began; with one request at a time there is
            // none.
            let least = if window == "1" { f64::MIN_POSITIVE } else { 0.0 };
            assert!(figure("client_cpu_seconds") > 0.0 && figure("server_cpu_seconds") >= least, "{report}");
            let p50 = report["latency_ns"][0].as_u64();
            assert_eq!(p50.is_some_and(|ns| ns > 0), window == "1", "{report}");
        }
    }
}

#[test]
fn one_wrong_reply_is_noticed() {
    for over in ["tcp", "unix"] {
        for window in ["1", "220"] {
            let output = Server::start(over, &["--wrong-reply", "3"]).call(over, window, LONG_MS);
            assert!(!output.status.success());
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(error.contains("a wrong reply to request 3"), "{error}");
            assert!(output.stdout.is_empty(), "no figure is told");
        }
    }
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let server = Server::start("tcp", &[]);
    let output = server.call("pigeons", "1", LONG_MS);
    assert!(String::from_utf8_lossy(&output.stderr).contains("and not pigeons"), "{output:?}");
}
