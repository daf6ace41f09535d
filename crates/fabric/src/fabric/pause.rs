//! Priority flow control: an input about to overflow stops the sender at the other end of its link.
//!
//! A pause frame says which priorities pause and holds until the next one; it waits for the packet being sent, overtakes
//! all others and takes its time on the wire. Real frames carry a duration and are refreshed; that only
//! matters when one is lost, and here none is.

use super::forward::scaled;
use super::{FREE, Fabric, key};
use crate::packet::{CONTROL, Record};
use crate::{Buffering, Host, Observer, Packet, Pfc, PortId, Priorities, Time};

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// The threshold of an input now: a shared pool that runs full lowers it.
    #[inline]
    fn xoff_bytes(&self, pfc: &Pfc, input: u32) -> u64 {
        match self.config.buffering {
            Buffering::InputQueued { .. } => pfc.xoff_bytes,
            Buffering::OutputQueued { alpha_log2, .. } => {
                let switch = &self.switches[self.ports[input as usize].switch as usize];
                let free = switch.shared_bytes.saturating_sub(switch.used_bytes);
                pfc.xoff_bytes.min(scaled(free, alpha_log2.min(0)))
            }
        }
    }

    #[inline]
    pub(super) fn pause_if_over(&mut self, now: Time, input: u32, priority: u8) {
        let Some(pfc) = &self.config.pfc else { return };
        let held = self.inputs[self.input_at(input) + 1 + usize::from(priority)];
        let bit = 1 << priority;
        if held <= self.xoff_bytes(pfc, input)
            || self.ports[input as usize].pause_wanted & bit != 0
            || !pfc.priorities.contains(priority)
        {
            return;
        }
        self.ports[input as usize].pause_wanted |= bit;
        self.counters[input as usize].xoffs += 1;
        self.wake(now, input);
    }

    #[inline]
    pub(super) fn resume_if_under(&mut self, now: Time, input: u32, priority: u8) {
        let bit = 1 << priority;
        if self.ports[input as usize].pause_wanted & bit == 0 {
            return;
        }
        let Some(pfc) = &self.config.pfc else { return };
        let held = self.inputs[self.input_at(input) + 1 + usize::from(priority)];
        // An empty input must resume even where a full pool leaves it no threshold: none of its packets will
        // leave later and cause the XON.
        if held == 0 || held <= pfc.xon_bytes.min(self.xoff_bytes(pfc, input)) {
            self.ports[input as usize].pause_wanted &= !bit;
            self.wake(now, input);
        }
    }

    /// Tells the peer of an idle port which priorities it shall pause.
    pub(super) fn send_pause_frame(&mut self, now: Time, port: u32) {
        let Some(pfc) = &self.config.pfc else { return };
        let state = &mut self.ports[port as usize];
        state.pause_told = state.pause_wanted;
        let hash = u32::from(state.pause_told);
        let record = Record { bytes: pfc.frame_bytes, flags: CONTROL, hash, ..Record::default() };
        let index = self.store.insert(record, None);
        self.counters[port as usize].pause_frames += 1;
        self.launch(now, port, index);
        let state = &mut self.ports[port as usize];
        if state.waiting != 0 {
            state.is_awaited = true;
            self.events.push(state.busy_until, key(FREE, port));
        }
    }

    /// The peer of `port` says which priorities pause.
    pub(super) fn handle_pause_frame(&mut self, now: Time, port: u32, paused: u8) {
        self.counters[port as usize].pause_frames_received += 1;
        self.set_paused(now, port, paused);
    }

    pub(super) fn set_paused(&mut self, now: Time, port: u32, paused: u8) {
        let state = &mut self.ports[port as usize];
        let before = std::mem::replace(&mut state.paused, paused);
        let freed = before & !paused;
        let is_host = state.switch == u32::MAX;
        let wake = freed & state.waiting != 0 || is_host && freed != 0;
        if before == 0 && paused != 0 {
            self.paused_since[port as usize] = now;
        } else if before != 0 && paused == 0 {
            let counters = &mut self.counters[port as usize];
            counters.paused = counters.paused + now.since(self.paused_since[port as usize]);
        }
        self.observer.on_pause(now, PortId(port), Priorities(paused));
        if wake {
            self.wake(now, port);
        }
    }
}
