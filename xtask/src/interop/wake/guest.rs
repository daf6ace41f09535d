//! The guest of this table: two emulated cores, its results on a serial line of their own, no network but its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The emulator's name, as the rows give it.
pub(super) const ACCELERATOR: &str = "QEMU TCG";

/// Boots the image of `work`, runs `tasks` there, and returns the lines that it prints until it powers itself
/// off.
///
/// # Errors
/// QEMU does not start, or the guest does not finish within `limit`: with the end of its output.
pub(super) fn run(work: &Path, tasks: &str, limit: Duration) -> Result<Vec<String>> {
    let (console, results) = (work.join("console.log"), work.join("results.log"));
    for file in [&console, &results] {
        fs::write(file, "")?;
    }
    let append = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off nokaslr clocksource=tsc tsc=reliable no_timer_check highwire.tasks={tasks}"
    );
    let args = [
        "-accel tcg,thread=multi -cpu max -machine q35 -smp 2 -m 1024 -nodefaults -no-user-config -no-reboot -display none".to_owned(),
        format!("-serial file:{} -serial file:{}", console.display(), results.display()),
        format!("-initrd {}", work.join("initramfs.cpio").display()),
        format!("-kernel {}", work.join("kernel-image").display()),
    ];
    let started = Instant::now();
    // setpriv: if this process is killed, the kernel kills QEMU as well.
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"])
        .args(args.iter().flat_map(|line| line.split(' ')))
        .args(["-append", &append])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(work.join("qemu.log"))?)
        .spawn()
        .context("cannot run setpriv")?;
    let mut qemu = Machine(child);
    let said = |file: &Path| -> Result<String> { Ok(String::from_utf8_lossy(&fs::read(file)?).into_owned()) };
    while qemu.0.try_wait()?.is_none() {
        if started.elapsed() > limit {
            let end = format!("{}\n{}", tail(&said(&console)?), tail(&said(&results)?));
            bail!("the guest did not finish within {} s\n{end}", limit.as_secs());
        }
        sleep(Duration::from_millis(50));
    }
    let lines: Vec<String> = said(&results)?.lines().map(|line| line.trim_end().to_owned()).collect();
    if lines.last().map(String::as_str) != Some("done") {
        let errors = fs::read_to_string(work.join("qemu.log")).unwrap_or_default();
        bail!(
            "the guest ended before it had done everything: {}\n{}\n{}",
            errors.trim(),
            tail(&said(&console)?),
            lines.join("\n")
        );
    }
    Ok(lines)
}

/// Killed when dropped; it may have ended by itself, in which case neither call has anything to do.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last lines, for an error message.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
