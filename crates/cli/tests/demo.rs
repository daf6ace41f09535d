//! `highwire demo`: its page and its document, never how fast it was.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::highwire;
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{}-{name}", std::process::id()))
}

#[test]
fn it_shows_a_page_that_needs_nothing_else() {
    let out = folder("page");
    let run = highwire(["demo", "--json", "--loss", "10%", "--seed", "7", "--out"]).arg(&out).output();
    let run = run.expect("it starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let document: Value = serde_json::from_slice(&run.stdout).expect("it prints one document");
    for name in ["clean", "lossy"] {
        let number = |key: &str| document[name][key].as_u64().expect(key);
        assert!(number("messages") > 0 && number("packets") >= 8 * number("messages"), "{document}");
        assert_eq!((number("lost_messages"), number("icrc_wrong")), (0, 0), "{document}");
        for file in document[name]["captures"].as_array().expect("two captures") {
            let capture = highwire(["pcap", "--summary", file.as_str().expect("a path")]).output();
            assert!(capture.expect("it starts").status.success(), "every ICRC of {file} is right");
        }
    }
    assert_eq!(document["clean"]["lost_packets"], 0, "only what is lost on purpose is lost: {document}");
    assert!(document["lossy"]["lost_packets"].as_u64() > Some(0), "{document}");
    let page = fs::read_to_string(document["page"].as_str().expect("a path")).expect("the page");
    fs::remove_dir_all(&out).expect("it is ours");
    assert!(
        page.contains("every byte arrived") && page.contains("<svg") && page.trim_end().ends_with("</html>")
    );
    for foreign in ["http:", "https:", "<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "the page wants {foreign} from elsewhere");
    }
}

#[test]
fn a_folder_of_no_use_is_said_at_once() {
    let file = folder("file");
    fs::write(&file, "").expect("a file");
    let run = highwire(["demo", "--out"]).arg(&file).output().expect("it starts");
    fs::remove_file(&file).expect("it is ours");
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1), "{error}");
    assert!(error.contains("--out") && error.contains(&*file.to_string_lossy()), "{error}");
    let wrong = highwire(["demo", "--loss", "60%"]).output().expect("it starts");
    assert_eq!(wrong.status.code(), Some(2), "{}", String::from_utf8_lossy(&wrong.stderr));
}
