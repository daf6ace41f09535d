//! Ends what hangs, with all that it started, and says where each of its threads stands.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell::{Line, has_program};

const LOOK: Duration = Duration::from_millis(20);
/// Of a debugger that reads the stacks of a process, in seconds.
const DEBUGGER_PATIENCE: &str = "60";
/// Programs that wait for others and have no stack worth reading.
const DRIVERS: [&str; 4] = ["cargo", "rustc", "timeout", "nice"];

/// How a command ended.
pub(crate) enum End {
    ByItself(ExitStatus),
    /// Where it stood when it was ended.
    Hung(String),
}

/// Waits for `child` until `deadline`, or without one for as long as it takes.
pub(crate) fn wait(child: &mut Child, deadline: Option<Instant>) -> Result<End> {
    let Some(deadline) = deadline else { return Ok(End::ByItself(child.wait()?)) };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::ByItself(status));
        }
        if Instant::now() > deadline {
            let tree = tree(child.id());
            let report = tree.iter().map(|&process| standing(process)).collect();
            for process in tree {
                kill(process);
            }
            child.wait()?;
            return Ok(End::Hung(report));
        }
        std::thread::sleep(LOOK);
    }
}

/// A process and its descendants, each behind its parent.
fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        next += 1;
        for thread in threads(process) {
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

fn threads(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Its command line, where each thread waits in the kernel, and the stacks where a debugger is at hand.
fn standing(process: u32) -> String {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let mut text = format!("process {process}: {command}\n");
    for thread in threads(process) {
        let read = |name: &str| fs::read_to_string(thread.join(name)).unwrap_or_default().trim().to_string();
        let number = thread.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let state = read("stat").rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?');
        text.push_str(&format!("  thread {number} {}: {state} in {}\n", read("comm"), read("wchan")));
    }
    let program = command.split(' ').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let debugger = ["gdb", "gdb-multiarch"].into_iter().find(|name| has_program(name));
    if let (Some(debugger), false) = (debugger, DRIVERS.contains(&program)) {
        let line = Line::new("timeout").arg(DEBUGGER_PATIENCE).arg(debugger).words("-batch -p");
        let line = line.arg(process.to_string()).arg("-ex").arg("thread apply all backtrace 16");
        let stacks = line.capture().map(|captured| captured.stdout).unwrap_or_default();
        let is_said = |line: &&str| line.starts_with("Thread ") || line.starts_with('#');
        stacks.lines().filter(is_said).for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

fn kill(process: u32) {
    let process = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    // One that has ended meanwhile needs nothing more.
    let _ = process.map(|process| rustix::process::kill_process(process, rustix::process::Signal::KILL));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(script: &str) -> Child {
        let mut command = Line::new("sh").arg("-c").arg(script).command();
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_command_that_ends_in_time_has_its_own_status() {
        let deadline = Some(Instant::now() + Duration::from_secs(600));
        for deadline in [None, deadline] {
            let End::ByItself(status) = wait(&mut started("exit 7"), deadline).unwrap() else { panic!() };
            assert_eq!(status.code(), Some(7));
        }
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_descendants_and_each_is_shown() {
        let mut child = started("sh -c 'sleep 1000 & echo $!; wait; true'; true");
        let mut grandchild = String::new();
        let output = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut grandchild).unwrap();
        let End::Hung(report) = wait(&mut child, Some(Instant::now())).unwrap() else { panic!("no guard") };
        assert_eq!(report.matches("process ").count(), 3, "{report}");
        assert!(report.contains(&format!("process {}: sleep 1000", grandchild.trim())), "{report}");
        assert!(report.contains("thread "), "{report}");
        let state = || fs::read_to_string(format!("/proc/{}/stat", grandchild.trim())).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z") {
            std::thread::sleep(LOOK);
        }
    }
}
