//! The page in a browser: its charts are drawn, nothing goes wrong, nothing is fetched.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{SMALL, read};
use highwire_sim::campaign::{Campaign, Played, Shard};
use highwire_sim::plan::Plan;
use highwire_sim::report;

fn page(plan: &Plan) -> String {
    page_with(plan, &[])
}

fn page_with(plan: &Plan, failures: &[String]) -> String {
    let campaign = Campaign::new(std::slice::from_ref(plan), Shard::WHOLE);
    let mut html = String::new();
    let finished = |_, played: Played| {
        let measures = played.whole().unwrap_or_else(|error| panic!("{error}"));
        html = report::page(plan, campaign.runs(0), &measures, failures);
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
    drawn_at(browser, html, name, 1280)
}

/// The same in a window of so many pixels.
fn drawn_at(browser: &Path, html: &str, name: &str, width: u32) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("report.html");
    std::fs::write(&file, html).expect("a page");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("--window-size={width},1000"))
        .arg(format!("file://{}#check-svg", file.display()))
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
fn every_chart_can_be_saved_and_has_its_axes() {
    let Some(browser) = browser() else {
        println!("skipped: no chromium here");
        return;
    };
    let axis = "[[axis]]\nkey = \"workload.load\"\nvalues = [0.2, 0.5]\n\n[film]";
    for (name, text) in [("saved", SMALL.to_string()), ("saved-sweep", SMALL.replace("[film]", axis))] {
        let dom = drawn(&browser, &page(&read(&text)), name);
        assert_eq!(count(&dom, "errors"), 0, "{name}");
        // A file refers to nothing of the page, and is XML.
        assert_eq!(count(&dom, "saved"), count(&dom, "charts"), "{name}");
        assert_eq!(dom.matches("class=\"save\"").count() as u32, count(&dom, "charts"), "{name}");
        assert!(dom.contains("class=\"whisker\""), "{name}: two seeds have intervals");
        // The panel's numbers are ratios.
        assert!(dom.contains(">times</text>"), "{name}");
    }
}

#[test]
fn a_narrow_window_holds_the_page() {
    let Some(browser) = browser() else {
        println!("skipped: no chromium here");
        return;
    };
    for width in [480, 1280] {
        let dom = drawn_at(&browser, &page(&read(SMALL)), &format!("width-{width}"), width);
        assert_eq!((count(&dom, "errors"), count(&dom, "beyond")), (0, 0), "at {width} pixels");
    }
}

#[test]
fn pauses_are_shown_by_link_and_failed_runs_by_name() {
    let Some(browser) = browser() else {
        println!("skipped: no chromium here");
        return;
    };
    let failure = "small: scheme RoCE-PFC, seed 7: 1 flow <is> not over".to_string();
    let crowded = SMALL.replace("bytes = \"1MB\"", "bytes = \"8MB\"");
    let dom = drawn(&browser, &page_with(&read(&crowded), &[failure]), "storm");
    assert_eq!(count(&dom, "errors"), 0);
    assert!(
        dom.contains("<h2>Runs without a result</h2>") && dom.contains("seed 7: 1 flow &lt;is&gt; not over")
    );
    assert!(
        dom.contains("<h2>Pauses, link by link</h2>") && dom.contains("% of the pictures</title>"),
        "the incast pauses senders"
    );
    // Around one switch nothing waits in a circle.
    assert!(dom.contains("class=\"faint\">No picture has a circle of paused links"));
    let calm = drawn(&browser, &page(&read(&crowded.replace("pfc = true", "pfc = false"))), "calm");
    assert!(
        !calm.contains("<h2>Pauses, link by link</h2>") && !calm.contains("<h2>Runs without a result</h2>")
    );
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
