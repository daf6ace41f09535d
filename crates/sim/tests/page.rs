//! The page in a browser: its charts are drawn, nothing goes wrong, nothing is fetched.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{SMALL, read};
use highwire_sim::campaign::{Campaign, Played, Shard};
use highwire_sim::plan::Plan;
use highwire_sim::report;

fn page(plan: &Plan) -> String {
    let campaign = Campaign::new(std::slice::from_ref(plan), Shard::WHOLE);
    let mut html = String::new();
    let finished = |_, played: Played| {
        let measures = played.whole().unwrap_or_else(|error| panic!("{error}"));
        html = report::page(plan, campaign.runs(0), &measures);
    };
    campaign.play(2, |_| (), finished);
    html
}

fn browser() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let candidates = std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    candidates.into_iter().find(|path| path.is_file())
}

/// The page after the script has run.
fn drawn(browser: &Path, html: &str, name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("report.html");
    std::fs::write(&file, html).expect("a page");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A number that the script left in the document's element.
fn count(dom: &str, name: &str) -> u32 {
    let (_, rest) =
        dom.split_once(&format!("data-{name}=\"")).unwrap_or_else(|| panic!("no {name} in {dom:.300}"));
    let (number, _) = rest.split_once('"').expect("an attribute ends");
    number.parse().expect("a number")
}

#[test]
fn every_chart_is_drawn() {
    let Some(browser) = browser() else {
        println!("skipped: no chromium here");
        return;
    };
    // A panel, two films with their stories, seven bars, a tail, sizes.
    let single = drawn(&browser, &page(&read(SMALL)), "single");
    assert_eq!(count(&single, "errors"), 0);
    assert_eq!(count(&single, "charts"), single.matches("<svg").count() as u32);
    assert!(count(&single, "charts") >= 10, "{}", count(&single, "charts"));
    assert!(count(&single, "marks") > 60, "{}", count(&single, "marks"));
    assert!(
        single.contains("The network over time") && single.contains("stroke:color-mix"),
        "the film shows queues"
    );
    let axis = "[[axis]]\nkey = \"workload.load\"\nvalues = [0.2, 0.5]\n\n[film]";
    let sweep = drawn(&browser, &page(&read(&SMALL.replace("[film]", axis))), "sweep");
    assert_eq!(count(&sweep, "errors"), 0);
    assert!(count(&sweep, "charts") > count(&single, "charts"));
    assert!(sweep.contains("RoCE takes longer"));
}

#[test]
fn the_page_needs_no_network() {
    let html = page(&read(SMALL));
    for address in ["http://", "https://", "src=", "@import", "url(http"] {
        let beyond = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!beyond.contains(address), "{address}");
    }
}

#[test]
fn text_cannot_break_out() {
    let evil = "title = \"</script><script>document.title = 1</script>\"";
    let html = page(&read(&SMALL.replace("title = \"t\"", evil)));
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(html.contains("&lt;/script&gt;"));
}
