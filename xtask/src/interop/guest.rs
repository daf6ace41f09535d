//! The virtual machine: boots it, waits until it is ready, stops it, and never leaves it behind.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::agent::{AGENT_PORT, Agent};
use super::initramfs;
use super::namespace::{GUEST_ADDRESS, GUEST_ADDRESS_V6, TAP};

/// A guard against a guest that hangs: a machine whose cores are busy with other programs has taken more than a minute.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
const POWER_OFF_LIMIT: Duration = Duration::from_secs(5);

/// A running guest. Dropping it kills it.
pub(super) struct Guest {
    qemu: Child,
    ready_line: String,
    boot_time: Duration,
}

impl Guest {
    /// Boots the kernel and initramfs of the work folder and returns when the agent listens.
    ///
    /// The console goes to `console.log`, every frame of the guest's network card to `wire.pcap`.
    ///
    /// # Errors
    /// QEMU does not start, or the guest fails or stays silent: with the end of its console.
    pub(super) fn boot(work: &Path) -> Result<Guest> {
        let console = work.join("console.log");
        let errors = fs::File::create(work.join("qemu.log"))?;
        fs::write(&console, "")?;
        let started = Instant::now();
        // setpriv: if this process is killed, the kernel kills QEMU as well.
        let mut qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"])
            .args(qemu_args(work, &console))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .context("cannot run setpriv")?;
        match wait_until_ready(&mut qemu, work, &console) {
            Ok(ready_line) => Ok(Guest { qemu, ready_line, boot_time: started.elapsed() }),
            Err(error) => {
                kill(&mut qemu);
                Err(error)
            }
        }
    }

    /// Powers the guest off, or kills it when that takes too long.
    pub(super) fn stop(mut self) -> Result<()> {
        if let Ok(mut agent) = Agent::connect() {
            agent.power_off();
        }
        let asked = Instant::now();
        while asked.elapsed() < POWER_OFF_LIMIT {
            if self.qemu.try_wait()?.is_some() {
                return Ok(());
            }
            sleep(Duration::from_millis(20));
        }
        println!("interop: the guest did not power off and is killed");
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        kill(&mut self.qemu);
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {} after {:.1} s", self.ready_line, self.boot_time.as_secs_f32())
    }
}

/// The frames that crossed the guest's network card, as QEMU recorded them.
pub(super) fn capture_path(work: &Path) -> PathBuf {
    work.join("wire.pcap")
}

fn qemu_args(work: &Path, console: &Path) -> Vec<String> {
    let append = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off nokaslr clocksource=tsc tsc=reliable no_timer_check \
         highwire.addresses={GUEST_ADDRESS}/24,{GUEST_ADDRESS_V6}/64 highwire.port={AGENT_PORT}"
    );
    // Neither offloads nor a header in front of each frame: the capture shows what a wire would carry.
    let offloads = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off";
    [
        "-accel tcg,thread=multi -cpu max -machine q35 -smp 1 -m 768 -nodefaults -no-user-config -no-reboot",
        "-display none",
        &format!("-netdev tap,id=net,ifname={TAP},script=no,downscript=no,vnet_hdr=off"),
        &format!("-device virtio-net-pci,netdev=net,mac=52:54:00:77:00:02,romfile=,{offloads}"),
        &format!("-object filter-dump,id=capture,netdev=net,file={}", capture_path(work).display()),
        &format!("-serial file:{}", console.display()),
        &format!("-initrd {}", initramfs::path(work).display()),
        &format!("-kernel {}", initramfs::kernel_path(work).display()),
    ]
    .iter()
    .flat_map(|line| line.split(' '))
    .map(str::to_owned)
    .chain(["-append".into(), append])
    .collect()
}

fn wait_until_ready(qemu: &mut Child, work: &Path, console: &Path) -> Result<String> {
    let started = Instant::now();
    loop {
        let text = String::from_utf8_lossy(&fs::read(console)?).into_owned();
        for line in text.lines() {
            if let Some(state) = line.trim().strip_prefix("interop: ready ") {
                return Ok(state.to_owned());
            }
            if let Some(reason) = line.trim().strip_prefix("interop: failed: ") {
                bail!("the guest gave up: {reason}\n{}", tail(&text));
            }
        }
        if let Some(status) = qemu.try_wait()? {
            let errors = fs::read_to_string(work.join("qemu.log")).unwrap_or_default();
            bail!("QEMU ended before the guest was ready ({status}): {}\n{}", errors.trim(), tail(&text));
        }
        if started.elapsed() > BOOT_LIMIT {
            bail!("the guest was not ready within {} s\n{}", BOOT_LIMIT.as_secs(), tail(&text));
        }
        sleep(Duration::from_millis(20));
    }
}

/// The last lines of the console, for an error message.
fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn kill(qemu: &mut Child) {
    // QEMU may have ended by itself; then neither call has anything to do.
    let _ = qemu.kill();
    let _ = qemu.wait();
}
