//! Many processes that share an address, as they come, go and are killed; by themselves, because they fill the machine, and
//! behind the other tests of sharing, whose brokers end meanwhile.

mod common;

use common::highwire;
use serde_json::Value;

#[test]
fn processes_that_come_go_and_are_killed_leave_nothing_and_disturb_nobody() {
    let arguments = ["--processes", "14", "--steps", "60", "--seed", "7", "--broker-kills", "3"];
    let output = highwire(["churn"]).args(arguments).arg("--json").output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("it prints one document");
    let number = |name: &str| document[name].as_u64().unwrap_or(0);
    assert!(number("killed") > 0 && number("ended") > 0 && number("orphaned") > 0, "{document}");
    assert!(number("echoes") > 0 && number("brokers_killed") > 0, "{document}");
    assert_eq!(document["left_behind"].as_array().map(Vec::len), Some(0), "{document}");
}
