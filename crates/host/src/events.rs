//! Asynchronous events of a device, waiting for the application.

use highwire_verbs::AsyncEvent;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Events kept at most; an application that never asks loses the oldest.
const EVENTS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<AsyncEvent>>,
    arrived: Condvar,
}

impl EventQueue {
    pub(crate) fn push(&self, event: AsyncEvent) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
        drop(events);
        self.arrived.notify_one();
    }

    pub(crate) fn pop(&self) -> Option<AsyncEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    pub(crate) fn wait(&self, timeout: Duration) -> Option<AsyncEvent> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.arrived.wait_timeout_while(events, timeout, |events| events.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.pop_front()
    }
}
