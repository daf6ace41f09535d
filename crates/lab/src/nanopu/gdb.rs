//! `highwire nanopu run --gdb`: a debugger for the cores of a node, or for a program on the core alone.
//!
//! Each core is a thread; all of them stand still while the debugger looks. A core stops before an
//! instruction enters the pipeline, so looking changes no cycle. The instruction before it may still be three
//! cycles from its commit, and with it values that come at write-back, such as those of the network's CSRs.

mod registers;
mod stops;
mod subject;

use std::collections::VecDeque;
use std::io::Write;
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
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, HwWatchpoint, HwWatchpointOps, SwBreakpoint,
    SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use highwire_nanopu::{NodeEvent, RX_REGISTER};
use highwire_riscv::{Bus, Cause, Exception, Instruction, Program};
use registers::{Nanopu, Registers};
use stops::{Stand, Stops, Watch};
pub(super) use subject::Subject;
use subject::{Saved, Taken};

use super::place::trap_text;
use crate::console::Console;

/// How many cycles run between two looks at the connection.
const CYCLES_PER_LOOK: u32 = 20_000;

type StopReason = MultiThreadStopReason<u64>;

/// A program under a debugger.
struct Debuggee<'a> {
    program: &'a Program,
    subject: Subject<'a>,
    stops: Stops,
    /// The core that the debugger named last.
    last: usize,
    /// Bytes of the console that have been printed.
    printed: usize,
    /// The state to restore when all cores run on.
    missed: Option<Box<Missed>>,
    /// Whether cycles have passed since the debugger last resumed the cores.
    is_under_way: bool,
}

/// Stops of other cores that the debugger could not hear of while it stepped one core alone, and the whole
/// state then.
///
/// The debugger expects the other cores to stand still meanwhile, and fails if it hears of them. So it hears
/// of them after the step, and the step is taken back: the cores then are where they were.
struct Missed {
    state: Saved,
    untold: VecDeque<StopReason>,
}

/// Waits for a debugger on `listener` and serves it until it leaves.
///
/// # Errors
/// The connection or the protocol breaks.
pub(super) fn serve(listener: &TcpListener, program: &Program, subject: Subject<'_>) -> Result<ExitCode> {
    let (connection, _) = listener.accept().context("no debugger came")?;
    connection.set_nodelay(true).context("the debugger's connection")?;
    let stops = Stops::default();
    let mut debuggee =
        Debuggee { program, subject, stops, last: 0, printed: 0, missed: None, is_under_way: false };
    let end =
        GdbStub::new(connection).run_blocking::<Loop<'_>>(&mut debuggee).map_err(|error| {
            match error.is_connection_error() {
                true => anyhow::anyhow!("the debugger is gone, or its connection: {error}"),
                false => anyhow::anyhow!("the debugger's protocol: {error}"),
            }
        })?;
    debuggee.print_console();
    let cycle = debuggee.subject.cycle();
    let (said, code) = match end {
        DisconnectReason::TargetExited(_) | DisconnectReason::TargetTerminated(_) => {
            let code = debuggee.subject.exit_code().unwrap_or(0);
            (format!("the program exited with {code}"), if code == 0 { 0 } else { 1 })
        }
        DisconnectReason::Disconnect => ("the debugger left, and nothing runs on".to_owned(), 0),
        DisconnectReason::Kill => ("the debugger ended the run".to_owned(), 0),
    };
    let mut console = Console::new();
    console.line(format!("{said}; cycle {cycle}"))?;
    console.finish()?;
    Ok(ExitCode::from(code))
}

fn thread(core: usize) -> Tid {
    Tid::new(core + 1).unwrap_or(Tid::MIN)
}

impl Debuggee<'_> {
    fn core_of(&self, thread: Tid) -> usize {
        (thread.get() - 1).min(self.subject.cores() - 1)
    }

    /// Runs some cycles, or fewer if a core stops.
    fn run(&mut self) -> Option<StopReason> {
        match self.missed.take() {
            Some(missed) if self.stops.alone().is_none() => {
                self.subject.restore(missed.state);
                self.stops.put_back(missed.untold);
            }
            missed => self.missed = missed.filter(|_| self.is_under_way),
        }
        if !self.is_under_way {
            self.is_under_way = true;
            let stands: Vec<_> = self.cores().map(|core| (core, self.stand(core))).collect();
            self.stops.begin(stands.into_iter());
        }
        let mut executed: Vec<u64> = self.cores().map(|core| self.subject.core(core).executed()).collect();
        for _ in 0..CYCLES_PER_LOOK {
            if let Some(core) = self.stops.alone() {
                let others = self.stops.take_others(core);
                if !others.is_empty() && self.missed.is_none() {
                    self.missed = Some(Box::new(Missed { state: self.subject.save(), untold: others }));
                }
            }
            if let Some(reason) = self.stops.poll() {
                return Some(reason);
            }
            for taken in self.subject.tick() {
                self.on_trap(&taken);
            }
            if let Some(code) = self.subject.exit_code() {
                return Some(StopReason::Exited(code as u8));
            }
            // A core stands before an instruction when it has just executed the one before.
            for (number, before) in executed.iter_mut().enumerate() {
                let now = self.subject.core(number).executed();
                if now != *before {
                    *before = now;
                    let stand = self.stand(number);
                    self.stops.on_arrival(number, &stand);
                }
            }
        }
        None
    }

    /// The instruction before which a core stands.
    fn stand(&self, core: usize) -> Stand {
        let (executed, hart) = (self.subject.core(core).executed(), &self.subject.core(core).hart);
        if !self.stops.watch_memory() {
            return Stand { pc: hart.pc, access: None, executed };
        }
        let word = |length| self.subject.platform().ram.slice(hart.pc, length);
        let bits =
            word(4).or(word(2)).map(|bytes| bytes.iter().rfold(0, |all, &byte| all << 8 | u32::from(byte)));
        let instruction = bits.and_then(|bits| Instruction::decode(bits).ok());
        let mut access = instruction.as_ref().and_then(|instruction| hart.access(instruction));
        if let (Some(access), Some(instruction)) = (&mut access, instruction)
            && instruction.rs1 == RX_REGISTER
        {
            // The address is the network's next word.
            let word = self.subject.peek_word(core).unwrap_or(0);
            access.address = access.address.wrapping_add(word.wrapping_sub(hart.x[usize::from(RX_REGISTER)]));
        }
        Stand { pc: hart.pc, access, executed }
    }

    /// A trap that the program has not asked for is a signal, as an operating system would report it to a
    /// debugger.
    fn on_trap(&mut self, &Taken { core, cycle, pc, trap }: &Taken) {
        let signal = match trap.cause {
            Cause::Exception(Exception::Breakpoint) => Signal::SIGTRAP,
            Cause::Exception(Exception::LoadMisaligned | Exception::StoreMisaligned) => Signal::SIGBUS,
            Cause::Exception(
                Exception::InstructionAccessFault | Exception::LoadAccessFault | Exception::StoreAccessFault,
            ) => Signal::SIGSEGV,
            _ => Signal::SIGILL,
        };
        let event = NodeEvent::Trapped { core, cycle, pc, trap };
        self.say(format!("{}\n", trap_text(&event, self.program)).as_bytes());
        self.stops.note(StopReason::SignalWithThread { tid: thread(core), signal });
    }

    /// Prints the program's new console output.
    fn print_console(&mut self) {
        let new = self.subject.platform().console().get(self.printed..).unwrap_or_default();
        self.say(new);
        self.printed = self.subject.platform().console().len();
    }

    /// Prints text outside of the debugger. If that fails, nothing stops.
    fn say(&self, text: &[u8]) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text).and_then(|()| out.flush());
    }

    /// The registers of a core, as a debugger sees them.
    fn registers(&self, core: usize) -> Registers {
        let hart = &self.subject.core(core).hart;
        let csr = |number| hart.csrs.read(number).unwrap_or(0);
        let mut registers = Registers {
            x: hart.x,
            pc: hart.pc,
            f: hart.f,
            float: registers::FLOAT.map(|(_, number)| csr(number) as u32),
            core: registers::CORE.map(|(_, number)| csr(number)),
            network: registers::NETWORK
                .map(|(_, number)| self.subject.network().map_or(0, |node| node.network_csr(core, number))),
        };
        // The word that a read would take, which stays where it is.
        if let Some(word) = self.subject.peek_word(core) {
            registers.x[usize::from(RX_REGISTER)] = word;
        }
        registers
    }

    fn cores(&self) -> std::ops::Range<usize> {
        0..self.subject.cores()
    }
}

impl Target for Debuggee<'_> {
    type Arch = Nanopu;
    type Error = &'static str;

    fn base_ops(&mut self) -> BaseOps<'_, Nanopu, &'static str> {
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
    fn read_registers(&mut self, registers: &mut Registers, thread: Tid) -> TargetResult<(), Self> {
        self.last = self.core_of(thread);
        *registers = self.registers(self.last);
        Ok(())
    }

    fn write_registers(&mut self, registers: &Registers, thread: Tid) -> TargetResult<(), Self> {
        let core = self.core_of(thread);
        // The debugger writes all registers to change one.
        if !self.registers(core).may_become(registers) {
            return Err(TargetError::NonFatal);
        }
        self.missed = None;
        let core = self.subject.core_mut(core);
        core.hart.x[1..30].copy_from_slice(&registers.x[1..30]);
        core.hart.f = registers.f;
        if registers.pc != core.hart.pc {
            core.restart_at(registers.pc);
            self.stops.take();
        }
        Ok(())
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], _: Tid) -> TargetResult<usize, Self> {
        let ram = &self.subject.platform().ram;
        match (1..=data.len()).rev().find_map(|length| ram.slice(start, length)) {
            Some(bytes) => {
                data[..bytes.len()].copy_from_slice(bytes);
                Ok(bytes.len())
            }
            None => Err(TargetError::NonFatal),
        }
    }

    fn write_addrs(&mut self, start: u64, data: &[u8], _: Tid) -> TargetResult<(), Self> {
        let ram = self.subject.memory_mut();
        self.missed = None;
        // All of the bytes or none.
        ram.slice(start, data.len()).ok_or(TargetError::NonFatal)?;
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
        let mut info = format!("core {core}, cycle {}", self.subject.cycle());
        if let Some(node) = self.subject.network() {
            info.push_str(&format!(", context {}", node.current_context(core)));
            match node.queued_words(core) {
                0 => {}
                1 => info.push_str(", a word to read"),
                words => info.push_str(&format!(", {words} words to read")),
            }
            if let Some(since) = node.waiting_since(core) {
                info.push_str(&format!(", waits for a word since cycle {since}"));
            }
        }
        let length = info.len().min(text.len());
        text[..length].copy_from_slice(&info.as_bytes()[..length]);
        Ok(length)
    }
}

impl MultiThreadResume for Debuggee<'_> {
    fn resume(&mut self) -> Result<(), &'static str> {
        self.is_under_way = false;
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), &'static str> {
        self.stops.prepare();
        Ok(())
    }

    // The cores share a clock: while one runs, all do.
    fn set_resume_action_continue(&mut self, thread: Tid, _: Option<Signal>) -> Result<(), &'static str> {
        let core = self.core_of(thread);
        self.stops.go_on(core);
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
    // Debuggers ask for it when they step; the other cores' clock runs nevertheless.
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), &'static str> {
        self.stops.lock();
        Ok(())
    }
}

impl MultiThreadSingleStep for Debuggee<'_> {
    fn set_resume_action_step(&mut self, thread: Tid, _: Option<Signal>) -> Result<(), &'static str> {
        let core = self.core_of(thread);
        self.stops.step(core);
        Ok(())
    }
}

impl Breakpoints for Debuggee<'_> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl SwBreakpoint for Debuggee<'_> {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        self.stops.add_breakpoint(address);
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.stops.remove_breakpoint(address))
    }
}

// No breakpoint is in the program's memory, so both kinds are the same here.
impl HwBreakpoint for Debuggee<'_> {
    fn add_hw_breakpoint(&mut self, address: u64, kind: usize) -> TargetResult<bool, Self> {
        self.add_sw_breakpoint(address, kind)
    }

    fn remove_hw_breakpoint(&mut self, address: u64, kind: usize) -> TargetResult<bool, Self> {
        self.remove_sw_breakpoint(address, kind)
    }
}

impl HwWatchpoint for Debuggee<'_> {
    fn add_hw_watchpoint(&mut self, address: u64, bytes: u64, kind: WatchKind) -> TargetResult<bool, Self> {
        self.stops.add_watch(Watch { address, bytes, kind });
        Ok(true)
    }

    fn remove_hw_watchpoint(
        &mut self,
        address: u64,
        bytes: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        Ok(self.stops.remove_watch(Watch { address, bytes, kind }))
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
                self.subject.reset(self.program).map_err(|_| "the program no longer fits")?;
                self.stops.take();
                (self.missed, self.printed) = (None, 0);
                output.write_raw(b"all cores are at the entry, cycle 0; what gdb remembers of them goes with: maintenance flush register-cache\n");
            }
            b"cycle" => output.write_raw(format!("{}\n", self.subject.cycle()).as_bytes()),
            b"console" => output.write_raw(self.subject.platform().console()),
            _ => output.write_raw(b"monitor reset | cycle | console\n"),
        }
        Ok(())
    }
}

/// Runs the cores while the debugger sends nothing.
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
            let reason = debuggee.run();
            debuggee.print_console();
            if let Some(reason) = reason {
                return Ok(Event::TargetStopped(reason));
            }
            if connection.peek().map_err(WaitForStopReasonError::Connection)?.is_some() {
                let byte = ConnectionExt::read(connection).map_err(WaitForStopReasonError::Connection)?;
                return Ok(Event::IncomingData(byte));
            }
        }
    }

    fn on_interrupt(debuggee: &mut Debuggee<'a>) -> Result<Option<StopReason>, &'static str> {
        Ok(Some(StopReason::SignalWithThread { tid: thread(debuggee.last), signal: Signal::SIGINT }))
    }
}
