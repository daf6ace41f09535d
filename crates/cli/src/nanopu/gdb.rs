//! `highwire nanopu run --gdb`: a debugger for the cores of a node.
//!
//! Each core is a thread; all of them stand still while the debugger looks. A core stops in front of an instruction, before that
//! enters the pipeline, so looking changes no cycle. What has just executed may still be three cycles from its commit, and
//! with it values that come at write-back, such as those of the network's CSRs.

use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use anyhow::{Context, Result};
use gdbstub::common::{Signal, Tid};
use gdbstub::conn::ConnectionExt;
use gdbstub::stub::run_blocking::{BlockingEventLoop, Event, WaitForStopReasonError};
use gdbstub::stub::{DisconnectReason, GdbStub, MultiThreadStopReason};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::breakpoints::{Breakpoints, BreakpointsOps, SwBreakpoint, SwBreakpointOps};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use gdbstub_arch::riscv::Riscv64;
use gdbstub_arch::riscv::reg::RiscvCoreRegs;
use highwire_nanopu::client::{Client, Play, Request};
use highwire_nanopu::{Node, NodeConfig, NodeEvent, RX_REGISTER};
use highwire_riscv::{Bus, Program};

use super::run::place;

/// How many cycles run between two looks at the connection.
const CYCLES_PER_LOOK: u32 = 20_000;

type StopReason = MultiThreadStopReason<u64>;

/// A node under a debugger.
struct Debuggee<'a> {
    program: &'a Program,
    config: &'a NodeConfig,
    node: Node,
    play: Play<'a>,
    breakpoints: Vec<u64>,
    /// The core that executes one instruction and stops.
    steps: Option<usize>,
}

/// Waits for a debugger on `listener` and serves it until it leaves.
///
/// # Errors
/// The connection or the protocol breaks.
pub(super) fn serve(
    listener: &TcpListener,
    program: &Program,
    config: &NodeConfig,
    client: &mut Client,
    requests: &[Request],
) -> Result<ExitCode> {
    let node = Node::new(program, config)?;
    let play = Play::new(client, requests);
    let (connection, _) = listener.accept().context("no debugger came")?;
    connection.set_nodelay(true).context("the debugger's connection")?;
    let mut debuggee = Debuggee { program, config, node, play, breakpoints: Vec::new(), steps: None };
    let end = GdbStub::new(connection)
        .run_blocking::<Loop<'_>>(&mut debuggee)
        .map_err(|error| anyhow::anyhow!("the debugger's protocol: {error}"))?;
    Ok(match end {
        DisconnectReason::TargetExited(code) => ExitCode::from(code),
        _ => ExitCode::SUCCESS,
    })
}

fn thread(core: usize) -> Tid {
    Tid::new(core + 1).unwrap_or(Tid::MIN)
}

impl Debuggee<'_> {
    fn core_of(&self, thread: Tid) -> usize {
        (thread.get() - 1).min(self.config.cores - 1)
    }

    /// Some cycles, or fewer if something happens.
    fn run(&mut self) -> Option<StopReason> {
        for _ in 0..CYCLES_PER_LOOK {
            let before: Vec<u64> = self.cores().map(|core| self.node.core(core).executed()).collect();
            if let Err(NodeEvent::Trapped { core, .. }) = self.play.tick(&mut self.node, |_, _| {}) {
                return Some(StopReason::SignalWithThread { tid: thread(core), signal: Signal::SIGILL });
            }
            if let Some(code) = self.node.platform().exit_code() {
                return Some(StopReason::Exited(code as u8));
            }
            // A core stands in front of an instruction when it has just executed the one before.
            let moved = |core: &usize| self.node.core(*core).executed() != before[*core];
            let at_breakpoint = |core: &usize| self.breakpoints.contains(&self.node.core(*core).hart.pc);
            if let Some(core) = self.cores().find(|core| moved(core) && at_breakpoint(core)) {
                return Some(StopReason::SwBreak(thread(core)));
            }
            if let Some(core) = self.steps.filter(moved) {
                return Some(StopReason::SignalWithThread { tid: thread(core), signal: Signal::SIGTRAP });
            }
        }
        None
    }

    fn cores(&self) -> std::ops::Range<usize> {
        0..self.config.cores
    }
}

impl Target for Debuggee<'_> {
    type Arch = Riscv64;
    type Error = &'static str;

    fn base_ops(&mut self) -> BaseOps<'_, Riscv64, &'static str> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Debuggee<'_> {
    fn read_registers(&mut self, registers: &mut RiscvCoreRegs<u64>, thread: Tid) -> TargetResult<(), Self> {
        let core = self.core_of(thread);
        let hart = &self.node.core(core).hart;
        (registers.x, registers.pc) = (hart.x, hart.pc);
        // What a read would take, which stays where it is.
        if let Some(word) = self.node.peek_word(core) {
            registers.x[usize::from(RX_REGISTER)] = word;
        }
        Ok(())
    }

    fn write_registers(&mut self, registers: &RiscvCoreRegs<u64>, thread: Tid) -> TargetResult<(), Self> {
        let core = self.core_of(thread);
        let core = self.node.core_mut(core);
        // The debugger writes all of them to change one; x30 and x31 are the network's.
        core.hart.x[1..30].copy_from_slice(&registers.x[1..30]);
        if registers.pc != core.hart.pc {
            core.restart_at(registers.pc);
        }
        Ok(())
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], _: Tid) -> TargetResult<usize, Self> {
        let ram = &self.node.platform().ram;
        match (1..=data.len()).rev().find_map(|length| ram.slice(start, length)) {
            Some(bytes) => {
                data[..bytes.len()].copy_from_slice(bytes);
                Ok(bytes.len())
            }
            None => Err(TargetError::NonFatal),
        }
    }

    fn write_addrs(&mut self, start: u64, data: &[u8], _: Tid) -> TargetResult<(), Self> {
        let ram = self.node.memory_mut();
        for (address, byte) in (start..).zip(data) {
            ram.store(address, 1, u64::from(*byte)).map_err(|_| TargetError::NonFatal)?;
        }
        Ok(())
    }

    fn list_active_threads(&mut self, is_active: &mut dyn FnMut(Tid)) -> Result<(), &'static str> {
        self.cores().map(thread).for_each(is_active);
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl ThreadExtraInfo for Debuggee<'_> {
    fn thread_extra_info(&self, thread: Tid, text: &mut [u8]) -> Result<usize, &'static str> {
        let core = self.core_of(thread);
        let (cycle, pc) = (self.node.cycle(), self.node.core(core).hart.pc);
        let context = self.node.current_context(core);
        let waits = self
            .node
            .waiting_since(core)
            .map_or(String::new(), |since| format!(", waits for a word since cycle {since}"));
        let info =
            format!("core {core}, cycle {cycle}, context {context}, {}{waits}", place(self.program, pc));
        let length = info.len().min(text.len());
        text[..length].copy_from_slice(&info.as_bytes()[..length]);
        Ok(length)
    }
}

impl MultiThreadResume for Debuggee<'_> {
    fn resume(&mut self) -> Result<(), &'static str> {
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), &'static str> {
        self.steps = None;
        Ok(())
    }

    // The cores share a clock: while one runs, all do.
    fn set_resume_action_continue(&mut self, _: Tid, _: Option<Signal>) -> Result<(), &'static str> {
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSchedulerLocking for Debuggee<'_> {
    // Debuggers ask for it when they step; the other cores' clock runs all the same.
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), &'static str> {
        Ok(())
    }
}

impl MultiThreadSingleStep for Debuggee<'_> {
    fn set_resume_action_step(&mut self, thread: Tid, _: Option<Signal>) -> Result<(), &'static str> {
        self.steps = Some(self.core_of(thread));
        Ok(())
    }
}

impl Breakpoints for Debuggee<'_> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }
}

impl SwBreakpoint for Debuggee<'_> {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.breakpoints.push(address);
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        let place = self.breakpoints.iter().position(|&known| known == address);
        place.map(|place| self.breakpoints.swap_remove(place));
        Ok(place.is_some())
    }
}

impl MonitorCmd for Debuggee<'_> {
    fn handle_monitor_cmd(
        &mut self,
        command: &[u8],
        mut output: ConsoleOutput<'_>,
    ) -> Result<(), &'static str> {
        match command {
            b"reset" => {
                self.node = Node::new(self.program, self.config).map_err(|_| "the program no longer fits")?;
                self.play.rewind();
                output.write_raw(b"all cores are at the entry, cycle 0\n");
            }
            b"cycle" => output.write_raw(format!("{}\n", self.node.cycle()).as_bytes()),
            b"console" => output.write_raw(self.node.platform().console()),
            _ => output.write_raw(b"monitor reset | cycle | console\n"),
        }
        Ok(())
    }
}

/// Runs the cores while nothing comes from the debugger.
struct Loop<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> BlockingEventLoop for Loop<'a> {
    type Target = Debuggee<'a>;
    type Connection = TcpStream;
    type StopReason = StopReason;

    fn wait_for_stop_reason(
        debuggee: &mut Debuggee<'a>,
        connection: &mut TcpStream,
    ) -> Result<Event<StopReason>, WaitForStopReasonError<&'static str, std::io::Error>> {
        loop {
            if let Some(reason) = debuggee.run() {
                return Ok(Event::TargetStopped(reason));
            }
            if connection.peek().map_err(WaitForStopReasonError::Connection)?.is_some() {
                let byte = ConnectionExt::read(connection).map_err(WaitForStopReasonError::Connection)?;
                return Ok(Event::IncomingData(byte));
            }
        }
    }

    fn on_interrupt(_: &mut Debuggee<'a>) -> Result<Option<StopReason>, &'static str> {
        Ok(Some(StopReason::SignalWithThread { tid: thread(0), signal: Signal::SIGINT }))
    }
}
