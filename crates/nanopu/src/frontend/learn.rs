//! Teaching the predictor.

use super::Frontend;
use super::scan::Scan;
use crate::core::{Ask, World};
use crate::port::Port;
use crate::predict::{Flow, NEW, Prediction, Resolution, UNUSED, Update};

impl Frontend {
    /// Moves the predictor's registers at the end of a cycle, in which the lookup answered `seen` and
    /// `update` arrives.
    #[inline(always)]
    pub(super) fn teach<B: Port>(
        &mut self,
        seen: &Prediction,
        update: Option<Update>,
        world: &mut World<'_, B>,
    ) {
        self.clearing_cycles = self.clearing_cycles.saturating_sub(1);
        if let Some(Update { entry, packet, half, flow, is_valid }) = self.pending {
            let what = half | u8::from(is_valid) << 1 | u8::from(seen.is_ambiguous()) << 2;
            world.ask(Ask::Learn, [entry, what, flow as u8], [packet, self.s1_pc]);
        } else if seen.is_ambiguous() {
            world.tell(Ask::ForgetPacket, 0, self.s1_pc);
        }
        if self.is_mistaken {
            world.tell(Ask::Forget, 0, 0);
        }
        self.used = if seen.turns() { seen.entry() } else { UNUSED };
        self.pending = update;
    }

    /// Teaches the predictor the resolution of an instruction of packet `number`.
    #[inline(always)]
    pub(crate) fn resolve<B: Port>(&self, resolution: &Resolution, number: u8, world: &mut World<'_, B>) {
        let Resolution { packet, is_branch, taken, is_wrong, learns } = *resolution;
        let learns = learns && self.clearing_cycles == 0;
        let what =
            u8::from(is_branch) | u8::from(taken) << 1 | u8::from(is_wrong) << 2 | u8::from(learns) << 3;
        world.ask(Ask::Resolve, [self.packets.wrapping_sub(number), what, 0], [packet, 0]);
    }

    /// The update that the second stage makes without the core.
    pub(super) fn own_update(&self, scan: &Scan, known: bool, queued: usize) -> Option<Update> {
        let likely_bubble = queued <= 1;
        let learns = !self.wrong_path && likely_bubble && !known && scan.taken && !scan.is_known;
        learns.then_some(Update {
            entry: NEW,
            packet: self.s2_pc & !3,
            half: scan.half,
            flow: scan.flow,
            is_valid: true,
        })
    }

    /// Follows a jump or branch that enters the queue.
    pub(super) fn follow<B: Port>(
        &mut self,
        scan: &Scan,
        known: bool,
        redirected: bool,
        world: &mut World<'_, B>,
    ) {
        if !self.wrong_path {
            self.train_speculatively(scan, world);
        }
        let lost = !known && scan.taken && scan.target.is_none() && !scan.uses_stack;
        self.wrong_path = !redirected && (self.wrong_path || lost);
    }

    fn train_speculatively<B: Port>(&mut self, scan: &Scan, world: &mut World<'_, B>) {
        if scan.has_branch {
            world.tell(Ask::Speculate, u8::from(self.s2_prediction.bias()), 0);
        }
        match scan.stack {
            Some((Flow::Call, address)) => world.tell(Ask::Push, 0, address),
            Some((Flow::Return, _)) => world.tell(Ask::Pop, 0, 0),
            _ => {}
        }
    }
}
