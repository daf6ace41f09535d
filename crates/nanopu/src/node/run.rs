//! A node's time: one cycle, many, and idle ones that need not be simulated.

use highwire_riscv::{Bus, Cause, Interrupt};

use super::port::{CorePort, deed};
use super::{Node, NodeEvent};
use crate::core::{Core, Event, Turn};
use crate::idle::{self, Watch};
use crate::interface::Interface;
use crate::nic::Transport;
use crate::unhandled::{Exceptions, Unhandled};

impl<T: Transport> Node<T> {
    /// One cycle. `on_event` sees what each core does in it.
    pub fn tick(&mut self, mut on_event: impl FnMut(usize, Event)) {
        let cycle = self.cycle;
        self.nic.accept(cycle, &mut self.interfaces);
        self.advance_cores(|number, core, turn| on_event(number, core.event(turn)));
        self.end_cycle(cycle);
    }

    /// One cycle of each core. `on_event` sees what each core does in it. Returns the deeds of all of them.
    #[inline(always)]
    fn advance_cores(&mut self, mut on_event: impl FnMut(usize, &Core, Turn)) -> u8 {
        let Node { cores, interfaces, platform, shared_cache, watches, skips_idle, cycle, .. } = self;
        let (events, exceptions) = (&mut self.events, &mut self.exceptions);
        let cores = &mut cores[..];
        let (interfaces, watches) = (&mut interfaces[..cores.len()], &mut watches[..cores.len()]);
        let mut all_deeds = 0;
        for number in 0..cores.len() {
            let core = &mut cores[number];
            debug_assert_eq!(core.cycle(), *cycle, "all cores are as far as their node");
            let (shared_cache, interface) = (shared_cache.as_mut(), &mut interfaces[number]);
            let recalled = Vec::new();
            let mut port = CorePort { platform, shared_cache, interface, deeds: 0, stored_at: 0, recalled };
            let turn = core.advance(&mut port);
            let CorePort { deeds, stored_at, recalled, .. } = port;
            on_event(number, core, turn);
            if deeds != 0 || turn == Turn::TRAP {
                all_deeds |= deeds;
                note(core, turn, deeds, (&mut watches[number], *skips_idle));
                if turn == Turn::TRAP {
                    note_trap(number, core, turn, &mut exceptions[number], events);
                }
                if deeds & deed::RECALLED != 0 {
                    recall(cores, &recalled);
                }
                if deeds & deed::STORED != 0 && cores.len() > 1 {
                    let others = cores.iter_mut().enumerate().filter(|&(other, _)| other != number);
                    others.for_each(|(_, other)| other.hart.on_foreign_store(stored_at));
                }
            }
        }
        all_deeds
    }

    /// The rest of a cycle, behind the cores.
    #[inline(always)]
    fn end_cycle(&mut self, cycle: u64) {
        if let Some((first, packet)) = self.nic.tick(cycle, &mut self.interfaces) {
            self.events.push(NodeEvent::Sent { first, packet });
        }
        self.interfaces.iter_mut().for_each(|interface| interface.tick(cycle));
        // Between ticks and devices' wishes, neither the clock nor a device changes.
        if cycle >= self.next_tick || self.platform.wants_attention() {
            self.serve_platform(cycle);
        }
        self.cycle += 1;
    }

    /// Serves the program's calls to its host, and moves the clock.
    fn serve_platform(&mut self, cycle: u64) {
        self.platform.serve_program();
        if let Some(code) = self.platform.exit_code() {
            self.report_traps(code);
        }
        if cycle >= self.next_tick {
            let ticks = cycle / self.cycles_per_tick;
            self.platform.advance_clock(ticks);
            self.next_tick = (ticks + 1) * self.cycles_per_tick;
        }
        self.platform.raise_interrupts(&mut self.cores[0].hart.csrs);
        for (number, core) in self.cores.iter_mut().enumerate().skip(1) {
            self.platform.raise_timer(number, &mut core.hart.csrs);
        }
    }

    /// The program has ended with `code`: no handler that has not returned will.
    fn report_traps(&mut self, code: u64) {
        let cores = self.cores.iter().zip(&mut self.exceptions).enumerate();
        let trapped = cores.filter_map(|(number, (core, exceptions))| {
            let Unhandled { cycle, pc, trap } = exceptions.on_exit(code, &core.hart)?;
            Some(NodeEvent::Trapped { core: number, cycle, pc, trap })
        });
        self.events.extend(trapped);
    }

    /// Runs up to `cycle`, that one excluded.
    pub fn run_until(&mut self, cycle: u64) {
        // No packet arrives from outside before `cycle`, so the time of the next event, once computed, holds
        // until then.
        let mut quiet_until = 0;
        while self.cycle < cycle {
            if self.skips_idle && self.cycle >= quiet_until {
                quiet_until = self.skip(cycle);
            }
            let before = self.cycle;
            self.run_cores(cycle, quiet_until);
            if self.cycle == before && before < cycle {
                self.tick(|_, _| {});
            }
        }
    }

    /// Runs up to `limit` while only the cores do anything: the NIC waits, and so do clock and devices. Returns as well when a core has
    /// begun to idle, from `quiet_until` on.
    fn run_cores(&mut self, limit: u64, quiet_until: u64) {
        let limit = limit.min(self.nic.quiet_until()).min(self.next_tick);
        let is_asked = |interface: &Interface| interface.has_sent() || interface.has_demands();
        if self.interfaces.iter().any(is_asked) || self.platform.wants_attention() {
            return;
        }
        if self.cores.len() == 1 {
            return self.run_core(limit, quiet_until);
        }
        while self.cycle < limit {
            let cycle = self.cycle;
            let all_deeds = self.advance_cores(|_, _, _| {});
            let is_quiet = all_deeds & deed::SPOKE == 0
                && (all_deeds & deed::STORED == 0 || !self.platform.wants_attention());
            if !is_quiet {
                return self.end_cycle(cycle);
            }
            self.interfaces.iter_mut().for_each(|interface| interface.tick(cycle));
            self.cycle += 1;
            let may_idle = self.skips_idle && all_deeds & (deed::LOOKED | deed::WAITED) != 0;
            if may_idle
                && self.cycle >= quiet_until
                && self.watches.iter().all(|watch| watch.turn().is_some())
            {
                return;
            }
        }
    }

    /// Like [`Node::run_cores`], with a single core.
    fn run_core(&mut self, limit: u64, quiet_until: u64) {
        let first = self.cycle;
        if first >= limit {
            return;
        }
        let Node { cores, interfaces, platform, shared_cache, watches, skips_idle, .. } = self;
        let ([core], [interface], [watch]) = (&mut cores[..], &mut interfaces[..], &mut watches[..]) else {
            return;
        };
        debug_assert_eq!(core.cycle(), first, "all cores are as far as their node");
        let shared_cache = shared_cache.as_mut();
        let recalled = Vec::new();
        let mut port = CorePort { platform, shared_cache, interface, deeds: 0, stored_at: 0, recalled };
        let mut cycle = first;
        // The deeds of the last cycle, as long as it has not ended.
        let mut open = None;
        core.run(&mut port, |hart, port, turn| {
            let deeds = std::mem::take(&mut port.deeds);
            if deeds != 0 || turn == Turn::TRAP {
                let is_heard = deeds & (deed::SPOKE | deed::WAITED | deed::RECALLED) != 0
                    || deeds & deed::STORED != 0 && port.platform.wants_attention();
                if is_heard || turn == Turn::TRAP {
                    open = Some((turn, deeds));
                    return false;
                }
                if deeds & deed::ACTED != 0 {
                    watch.on_action();
                } else if *skips_idle {
                    watch.on_look(cycle, hart);
                }
            }
            port.interface.tick(cycle);
            cycle += 1;
            let is_idle = *skips_idle && cycle >= quiet_until && watch.turn().is_some();
            cycle < limit && !is_idle
        });
        self.cycle = cycle;
        let recalled = port.recalled;
        if let Some((turn, deeds)) = open {
            recall(&mut self.cores, &recalled);
            note(&self.cores[0], turn, deeds, (&mut self.watches[0], self.skips_idle));
            if turn == Turn::TRAP {
                note_trap(0, &self.cores[0], turn, &mut self.exceptions[0], &mut self.events);
            }
            self.end_cycle(cycle);
        }
    }

    /// Passes over whole turns of polling before `limit`, if all cores poll. Returns the cycle before which there is nothing more to pass over.
    fn skip(&mut self, limit: u64) -> u64 {
        let is_quiet = self.interfaces.iter().all(Interface::is_quiet);
        let timer = Interrupt::TIMER;
        let is_alone = self.cores.iter().all(|core| !core.hart.csrs.is_enabled(timer));
        let turns = || self.watches.iter().map(Watch::turn);
        if !is_quiet || !is_alone || turns().any(|turn| turn.is_none()) {
            return self.cycle + 1;
        }
        let Some(common) = idle::common(turns().flatten().map(|(cycles, _)| cycles)) else { return limit };
        let next = self.nic.next_event().min(limit);
        let cycles = next.saturating_sub(self.cycle + 1) / common * common;
        if cycles == 0 {
            return next.max(self.cycle + 1);
        }
        for (core, watch) in self.cores.iter_mut().zip(&mut self.watches) {
            let (turn, per_turn) = watch.turn().expect("asked before");
            let instructions = cycles / turn * per_turn;
            core.pass(cycles, instructions);
            watch.pass(cycles, instructions);
        }
        self.cycle += cycles;
        self.skipped += cycles;
        self.platform.advance_clock(self.cycle.saturating_sub(1) / self.cycles_per_tick);
        next
    }
}

/// Notes the consequences of a core's last cycle. Whether the core idles matters only where idle cycles are skipped.
#[inline(always)]
fn note(core: &Core, turn: Turn, deeds: u8, (watch, skips_idle): (&mut Watch, bool)) {
    let cycle = core.cycle() - 1;
    if deeds & deed::ACTED != 0 || turn == Turn::TRAP {
        watch.on_action();
    } else if deeds & deed::LOOKED != 0 {
        if skips_idle {
            watch.on_look(cycle, &core.hart);
        }
    } else if deeds & deed::WAITED != 0 {
        watch.on_wait(cycle, core.is_at_rest());
    }
}

/// Notes an exception that has no handler.
#[cold]
fn note_trap(
    number: usize,
    core: &Core,
    turn: Turn,
    exceptions: &mut Exceptions,
    events: &mut Vec<NodeEvent>,
) {
    if let Event::Trap { cycle, pc, trap } = core.event(turn)
        && matches!(trap.cause, Cause::Exception(_))
        && let Some(Unhandled { cycle, pc, trap }) = exceptions.on_exception(cycle, (pc, trap), &core.hart)
    {
        events.push(NodeEvent::Trapped { core: number, cycle, pc, trap });
    }
}

/// The second-level cache recalls lines: every first-level data cache drops them.
#[cold]
fn recall(cores: &mut [Core], lines: &[u64]) {
    for &line in lines {
        cores.iter_mut().for_each(|core| _ = core.take_line(line));
    }
}
