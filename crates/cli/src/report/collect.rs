//! What processes have told, as far as it can be read, and as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::Result;
use highwire_stdx::words::counted;
use serde::Serialize;

/// So many processes are in a report, and so many bytes of each of their files are read.
const PROCESSES_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 256 << 10;
/// So many files are looked at: some of each process, and one of each of its devices.
const FILES_MAX: usize = 16_384;
/// Counters that say how much was sent.
const TRAFFIC: [(&str, &str); 5] = [
    ("packets_sent", "packets sent"),
    ("packets_received", "packets received"),
    ("bytes_sent", "bytes sent in packets"),
    ("bytes_received", "bytes received in packets"),
    ("direct", "one-sided requests in a neighbour's memory"),
];
/// Counters that say what was lost on the way, beside those that begin with one of [`TROUBLES`].
const LOSSES: [&str; 6] =
    ["retransmitted", "timeouts", "out_of_sequence", "naks_received", "rnr_received", "fault_dropped"];
const TROUBLES: [&str; 4] = ["dropped_", "refused_", "lost_", "cq_overruns"];

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    pub(crate) program: String,
    pub(crate) end: String,
    pub(crate) processes: Vec<Process>,
    /// Processes that there was no room for.
    pub(crate) processes_left_out: usize,
    /// What to try where no device was opened.
    pub(crate) advice: Option<&'static str>,
}

/// What one process has told.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// Empty if it asked for devices and opened none.
    pub(crate) devices: Vec<Device>,
    /// Refusals, failures and waits, as HIGHWIRE_LOG=1 prints them.
    pub(crate) lines: Vec<String>,
}

/// A device that was opened.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) link: String,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) queue_pairs: Vec<QueuePair>,
    pub(crate) queue_pairs_left_out: u64,
}

/// A queue pair as it was last.
#[derive(Debug, Serialize)]
pub(crate) struct QueuePair {
    pub(crate) number: u32,
    pub(crate) service: String,
    pub(crate) state: String,
    pub(crate) peer: u32,
    pub(crate) peer_address: String,
    /// Send requests that had not ended.
    pub(crate) unfinished_sends: u32,
    pub(crate) destroyed: bool,
}

const ADVICE: &str = "no process opened a device. UCX: try UCX_TLS=rc_verbs,ud_verbs; other programs: an option that names the \
                      device hw0, and libraries that are not linked statically";

impl Told {
    /// Reads the folder; what cannot be read is left out.
    pub(crate) fn collect(folder: &Path, program: &str, end: &str) -> Told {
        let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
        let mut processes_left_out = 0;
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).take(FILES_MAX).collect();
        // Devices in the order in which they were opened.
        files.sort();
        for file in files {
            let name = file.file_name().and_then(|name| name.to_str());
            let Some((pid, what)) = name.and_then(|name| name.split_once('.')) else { continue };
            let Ok(pid) = pid.parse::<u32>() else { continue };
            if !processes.contains_key(&pid) && processes.len() >= PROCESSES_MAX {
                processes_left_out += usize::from(what == "state");
                continue;
            }
            let Some(text) = read(&file) else { continue };
            let process = processes.entry(pid).or_default();
            process.pid = pid;
            match what {
                "lines" => process.lines.extend(text.lines().map(ToString::to_string)),
                "draft" => {}
                _ => text.lines().for_each(|line| process.take(line)),
            }
        }
        let processes: Vec<Process> = processes.into_values().collect();
        let advice = processes.iter().all(|process| process.devices.is_empty()).then_some(ADVICE);
        Told { program: program.to_string(), end: end.to_string(), processes, processes_left_out, advice }
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// As text for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("highwire: {}, {}\n", self.program, self.end);
        if let Some(advice) = self.advice {
            let _ = writeln!(text, "  {advice}");
        }
        for process in &self.processes {
            process.write(&mut text);
        }
        if self.processes_left_out > 0 {
            let _ = writeln!(text, "  and {}", counted(self.processes_left_out as u64, "more process"));
        }
        text
    }
}

fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

impl Process {
    /// Takes a line of the state; one that is cut off or unknown is left out. Lines about a device come behind its own.
    fn take(&mut self, line: &str) {
        let cells: Vec<&str> = line.split('\t').collect();
        match cells[..] {
            ["process", name] => self.name = name.to_string(),
            ["device", name, address, link] => {
                let link = link.to_lowercase();
                self.devices.push(Device {
                    name: name.into(),
                    address: address.into(),
                    link,
                    ..Device::default()
                });
            }
            _ => {
                if let Some(device) = self.devices.last_mut() {
                    device.take(&cells);
                }
            }
        }
    }

    fn write(&self, text: &mut String) {
        let Process { pid, name, .. } = self;
        if self.devices.is_empty() {
            let _ = writeln!(text, "  process {pid} ({name}): looked for devices and opened none");
        }
        for device in &self.devices {
            let Device { name: device_name, address, link, .. } = device;
            let _ =
                writeln!(text, "  process {pid} ({name}): opened {device_name} at {address}, link {link}");
            device.write(text);
        }
        for line in &self.lines {
            let _ = writeln!(text, "    {line}");
        }
    }
}

impl Device {
    fn take(&mut self, cells: &[&str]) {
        match *cells {
            ["counter", name, value] => {
                if let Ok(value) = value.parse() {
                    self.counters.insert(name.to_string(), value);
                }
            }
            ["qp", number, service, state, peer, at, sends, gone] => {
                let (Ok(number), Ok(peer), Ok(unfinished_sends)) =
                    (number.parse(), peer.parse(), sends.parse())
                else {
                    return;
                };
                self.queue_pairs.push(QueuePair {
                    number,
                    service: service.to_string(),
                    state: state.to_string(),
                    peer,
                    peer_address: at.to_string(),
                    unfinished_sends,
                    destroyed: gone == "destroyed",
                });
            }
            ["left_out", count] => self.queue_pairs_left_out = count.parse().unwrap_or(0),
            _ => {}
        }
    }

    /// What was sent and received, in words.
    pub(crate) fn traffic(&self) -> Vec<(&'static str, u64)> {
        let value = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        TRAFFIC
            .into_iter()
            .map(|(name, words)| (words, value(name)))
            .filter(|(_, value)| *value > 0)
            .collect()
    }

    /// What was lost, dropped and refused, by the names of `highwire stats`.
    pub(crate) fn losses(&self) -> Vec<(&str, u64)> {
        let is_loss =
            |name: &str| LOSSES.contains(&name) || TROUBLES.iter().any(|begin| name.starts_with(begin));
        let counters = self.counters.iter().filter(|(name, value)| is_loss(name) && **value > 0);
        counters.map(|(name, value)| (name.as_str(), *value)).collect()
    }

    fn write(&self, text: &mut String) {
        let list = |figures: Vec<(&str, u64)>| match figures.len() {
            0 => "none".to_string(),
            _ => figures.iter().map(|(what, value)| format!("{what} {value}")).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(text, "    traffic: {}", list(self.traffic()));
        let _ = writeln!(text, "    losses and refusals: {}", list(self.losses()));
        for qp in &self.queue_pairs {
            let _ = writeln!(text, "    {}", qp.words());
        }
        if self.queue_pairs_left_out > 0 {
            let _ = writeln!(text, "    and {}", counted(self.queue_pairs_left_out, "more queue pair"));
        }
    }
}

impl QueuePair {
    pub(crate) fn words(&self) -> String {
        let QueuePair { number, service, state, peer, peer_address, unfinished_sends, destroyed } = self;
        let peer = match peer {
            0 => String::new(),
            _ => format!(", peer {peer:#x} at {peer_address}"),
        };
        let sends = match *unfinished_sends {
            0 => String::new(),
            some => format!(", {} not ended", counted(some as u64, "send")),
        };
        let gone = if *destroyed { "destroyed in" } else { "last in" };
        format!("queue pair {number:#x} ({service}): {gone} {state}{peer}{sends}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_processes_have_told_is_read_and_what_is_broken_is_left_out() {
        let folder = std::env::temp_dir().join(format!("highwire-collect-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let state = "process\tserver\ndevice\thw0\t127.83.0.1\tAuto\ncounter\tpackets_sent\t9\ncounter\tdropped_stale\t2\n\
                     qp\t18\tRC\tERR\t19\t127.83.0.1\t3\tthere\nleft_out\t5\nqp\t18\tcut";
        fs::write(folder.join("12.state"), state).expect("a file");
        fs::write(folder.join("12.lines"), "ibv_modify_qp fails\n").expect("a file");
        fs::write(folder.join("13.state"), b"process\tother\xff\n").expect("a file");
        fs::write(folder.join("13.draft"), "process").expect("a file");
        fs::write(folder.join("strange"), "").expect("a file");
        // Two devices of one process, each with its own.
        fs::write(folder.join("14.state"), "process\trails\n").expect("a file");
        for (number, name, state) in [(0, "mlx5_0", "INIT"), (1, "mlx5_1", "ERR")] {
            let counted = format!("counter\ttimeouts\t{}", number + 3);
            let pair = format!("qp\t18\tRC\t{state}\t0\t::\t0\tthere");
            let device = format!("device\t{name}\t127.83.0.{number}\tAuto\n{counted}\n{pair}\nleft_out\t0\n");
            fs::write(folder.join(format!("14.device-{number:02}")), device).expect("a file");
        }
        let told = Told::collect(&folder, "./server", "exit status 1");
        let text = told.text();
        fs::remove_dir_all(&folder).expect("it is there");
        for part in [
            "./server, exit status 1",
            "process 12 (server): opened hw0 at 127.83.0.1, link auto",
            "packets sent 9",
            "dropped_stale 2",
            "queue pair 0x12 (RC): last in ERR, peer 0x13 at 127.83.0.1, 3 sends not ended",
            "and 5 more queue pairs",
            "ibv_modify_qp fails",
            "process 13 (other\u{fffd}): looked for devices and opened none",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(told.advice.is_none() && told.processes.len() == 3);
        let rails = &told.processes[2];
        let seen: Vec<_> = rails
            .devices
            .iter()
            .map(|device| (&*device.name, device.counters["timeouts"], &*device.queue_pairs[0].state))
            .collect();
        assert_eq!((&*rails.name, seen), ("rails", vec![("mlx5_0", 3, "INIT"), ("mlx5_1", 4, "ERR")]));
        let page = crate::report::page::html(&told);
        assert!(page.contains("mlx5_0 at 127.83.0.0") && page.contains("mlx5_1 at 127.83.0.1"), "{page}");
        assert!(told.json().expect("it is plain").contains("\"name\": \"mlx5_1\""));
        let nothing = Told::collect(&folder, "x", "exit status 0");
        assert!(nothing.text().contains("UCX_TLS=rc_verbs,ud_verbs"), "{}", nothing.text());
        assert!(nothing.json().expect("it is plain").contains("\"processes\": []"));
    }
}
