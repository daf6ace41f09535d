//! The CSRs of the network, and the effects of writing them.

use std::collections::VecDeque;

use super::bank::Bank;
use super::writing::Writing;
use super::{CONTEXTS_MAX, Context, Demand, Interface, Mistake, NOTHING_TO_DO};
use crate::port::csr;
use crate::timeline::Stage;

impl Interface {
    /// Reads a CSR.
    pub fn read(&self, number: u16) -> u64 {
        match number {
            csr::MESSAGES_READY => self.ready_register,
            csr::CURRENT_CONTEXT => self.current.into(),
            csr::CURRENT_PRIORITY => self.current_priority.into(),
            csr::NIC_READY => {
                1 | u64::from(self.can_block) << 1
                    | u64::from(self.has_banks) << 2
                    | u64::from(self.blocks) << 3
            }
            csr::TARGET_CONTEXT => self.target.map_or(self.current, |(context, _)| context).into(),
            csr::TARGET_PRIORITY => {
                self.target.map_or(self.current_priority, |(_, priority)| priority).into()
            }
            csr::MESSAGE_CYCLES => self.message_cycles,
            csr::IDLE_CYCLES => self.idle_cycles,
            _ => 0,
        }
    }

    /// Writes a CSR.
    pub fn write(&mut self, cycle: u64, number: u16, value: u64) {
        if self.is_idle && (number, value) == (csr::THREAD_COMMAND, NOTHING_TO_DO) {
            return;
        }
        self.unsettle();
        match number {
            csr::CURRENT_CONTEXT => self.switch_to(cycle, value as u16),
            csr::CURRENT_PRIORITY => self.current_priority = value as u8,
            csr::NIC_COMMAND => {
                if value & 1 != 0 {
                    self.insert(cycle);
                }
                self.has_timers |= value & 4 != 0;
                if self.decides_anew && value & 4 != 0 {
                    self.idle_since = self.idle_since.map(|_| cycle);
                }
                self.blocks |= value & 8 != 0 && self.can_block;
            }
            csr::THREAD_COMMAND => {
                if value & 1 != 0 {
                    self.finish_message(cycle);
                }
                if value & NOTHING_TO_DO != 0 {
                    self.on_idle(cycle);
                    self.is_idle = value == NOTHING_TO_DO && self.rests();
                }
            }
            csr::MESSAGE_CYCLES => self.message_cycles = value,
            csr::IDLE_CYCLES => self.idle_cycles = value,
            csr::THREAD_ENTRY => {
                if let Some(entry) = self.running().filter(|entry| entry.bank != Bank::Runs) {
                    entry.bank = Bank::Begins(value);
                }
            }
            _ => {}
        }
    }

    fn insert(&mut self, cycle: u64) {
        let (id, priority) = (self.current, self.current_priority);
        if self.contexts.iter().any(|entry| entry.id == id) {
            return;
        }
        if self.contexts.len() == CONTEXTS_MAX {
            self.misuse.note(Mistake::RefusedContext, self.occurrence(cycle, 0));
            return;
        }
        self.contexts.push(Context {
            id,
            priority,
            base_priority: priority,
            words: VecDeque::new(),
            arrivals: VecDeque::new(),
            is_active: false,
            writing: Writing::default(),
            bank: Bank::Unused,
        });
        self.demands.push_back(Demand::Insert { context: id });
    }

    pub(super) fn switch_to(&mut self, cycle: u64, context: u16) {
        self.current = context;
        self.timeline.mark(cycle, Stage::Switched, context.into());
        self.target = self.target.filter(|&(target, _)| target != context);
        self.began = self.running().is_some_and(|entry| entry.is_active).then_some(cycle);
        if self.began.is_some() || !self.decides_anew {
            self.idle_since = None;
        }
        self.is_waiting = false;
    }

    fn finish_message(&mut self, cycle: u64) {
        self.finish_writing();
        let Some(entry) = self.running() else { return };
        entry.arrivals.pop_front();
        entry.is_active = !entry.arrivals.is_empty();
        entry.priority = entry.base_priority;
        let (context, is_active, priority) = (entry.id, entry.is_active, entry.priority);
        self.current_priority = priority;
        self.began = is_active.then_some(cycle);
        self.timeline.mark_behind(cycle, Stage::Done, Stage::WordRead, context);
        self.demands.push_back(Demand::Done { context });
        self.decide(cycle);
    }
}
