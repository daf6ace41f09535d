//! The report as a page: one file, without scripts and without anything from elsewhere.

use std::fmt::Write as _;

use highwire_stdx::words::{counted, named};

use super::{Device, Process, Told};

const STYLE: &str = include_str!("../demo/page.css");
const TABLES: &str = ".wide { overflow-x: auto; margin-top: 1.25rem; } h2 small { color: var(--faint); font-weight: 400; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; vertical-align: top; }
th { color: var(--faint); font-weight: 500; } td.number { font-variant-numeric: tabular-nums; }
ul { margin: .5rem 0 0; padding-left: 1.1rem; } li { margin: .3rem 0; overflow-wrap: anywhere; } .bad { color: var(--bad); font-weight: 600; }
";

pub(super) fn html(told: &Told) -> String {
    let lines: usize = told.processes.iter().map(|process| process.lines.len()).sum();
    let opened = told.processes.iter().filter(|process| !process.devices.is_empty()).count();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>highwire report</title>\n<style>\n{STYLE}{TABLES}</style>\n<main>\n<h1>{}</h1>\n<p>{}</p>\n",
        escaped(&told.program),
        escaped(&told.end)
    );
    page += "<div class=\"cards\">\n";
    let devices = told.processes.iter().flat_map(|process| &process.devices);
    let pairs: usize = devices.map(|device| device.queue_pairs.len()).sum();
    for (value, what) in [
        (opened, format!("{} with a device", named(opened as u64, "process"))),
        (pairs, named(pairs as u64, "queue pair")),
        (lines, "refusals, failures and waits".to_string()),
    ] {
        let _ = writeln!(page, "<div class=\"card\"><b>{value}</b><span>{what}</span></div>");
    }
    page += "</div>\n";
    if let Some(advice) = told.advice {
        let _ = writeln!(page, "<p class=\"bad\">{}</p>", escaped(advice));
    }
    for process in &told.processes {
        write_process(&mut page, process);
    }
    if told.processes_left_out > 0 {
        let _ = writeln!(page, "<p>And {}.</p>", counted(told.processes_left_out as u64, "more process"));
    }
    page + "</main>\n</html>\n"
}

fn write_process(page: &mut String, process: &Process) {
    let _ = writeln!(page, "<h2>{} <small>process {}</small></h2>", escaped(&process.name), process.pid);
    if process.devices.is_empty() {
        page.push_str("<p>It looked for devices and opened none.</p>\n");
    }
    for device in &process.devices {
        let _ = writeln!(
            page,
            "<p>{} at {}, link {}</p>",
            escaped(&device.name),
            escaped(&device.address),
            escaped(&device.link)
        );
        write_device(page, device);
    }
    write_lines(page, process);
}

fn write_device(page: &mut String, device: &Device) {
    let losses = device.losses().into_iter().map(|(name, value)| (name, value, true));
    let figures: Vec<_> =
        device.traffic().into_iter().map(|(name, value)| (name, value, false)).chain(losses).collect();
    if !figures.is_empty() {
        page.push_str("<div class=\"wide\"><table><tr><th>counted</th><th></th></tr>\n");
        for (name, value, is_bad) in figures {
            let class = if is_bad { " class=\"bad\"" } else { "" };
            let _ =
                writeln!(page, "<tr><td{class}>{}</td><td class=\"number\">{value}</td></tr>", escaped(name));
        }
        page.push_str("</table></div>\n");
    }
    if device.queue_pairs.is_empty() {
        return;
    }
    page.push_str("<div class=\"wide\"><table><tr><th>queue pair</th><th>service</th><th>last state</th><th>peer</th><th>open sends</th></tr>\n");
    for qp in &device.queue_pairs {
        let class = if qp.state.eq_ignore_ascii_case("err") || qp.state.eq_ignore_ascii_case("sqe") {
            " class=\"bad\""
        } else {
            ""
        };
        let gone = if qp.destroyed { ", destroyed" } else { "" };
        let peer = match qp.peer {
            0 => String::new(),
            number => format!("{number:#x} at {}", escaped(&qp.peer_address)),
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"number\">{:#x}</td><td>{}</td><td{class}>{}{gone}</td><td>{peer}</td><td class=\"number\">{}</td></tr>",
            qp.number,
            escaped(&qp.service),
            escaped(&qp.state),
            qp.unfinished_sends
        );
    }
    page.push_str("</table></div>\n");
    if device.queue_pairs_left_out > 0 {
        let _ = writeln!(page, "<p>And {}.</p>", counted(device.queue_pairs_left_out, "more queue pair"));
    }
}

fn write_lines(page: &mut String, process: &Process) {
    if process.lines.is_empty() {
        return;
    }
    page.push_str("<ul>\n");
    for line in &process.lines {
        let _ = writeln!(page, "<li>{}</li>", escaped(line));
    }
    page.push_str("</ul>\n");
}

/// Text within markup.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_does_not_become_markup() {
        let process =
            Process { name: "<b>x".into(), lines: vec!["<script>1</script>".into()], ..Process::default() };
        let told = Told {
            program: "a&b".into(),
            end: "exit status 0".into(),
            processes: vec![process],
            processes_left_out: 0,
            advice: None,
        };
        let page = html(&told);
        assert!(page.contains("a&amp;b") && page.contains("&lt;script&gt;") && !page.contains("<script>"));
    }
}
