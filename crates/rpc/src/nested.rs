//! Collects the responses of a batch with nested handlers, which may be made in any order.

use crate::core::{Core, Execution, Origin, push_message};
use crate::wire::{HEADER_LEN, Messages};
use std::cell::RefCell;
use std::rc::Rc;

/// A status and the bytes behind it.
type Answer = (u8, Vec<u8>);

/// The responses so far. The last one completes the batch.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    core: Rc<RefCell<Core>>,
    origin: Origin,
    responses: Rc<RefCell<Vec<Option<Answer>>>>,
}

impl Collector {
    /// For a batch of which the first `answered` requests have their responses in `behind`.
    pub(crate) fn new(
        core: Rc<RefCell<Core>>,
        execution: &Execution,
        behind: &[u8],
        answered: usize,
    ) -> Collector {
        let mut responses = Vec::new();
        if let Ok(messages) = Messages::parse(behind, answered as u8) {
            responses.extend(messages.map(|message| Some((message.tag, message.bytes.to_vec()))));
        }
        responses.resize(usize::from(execution.count), None);
        Collector { core, origin: execution.origin, responses: Rc::new(RefCell::new(responses)) }
    }

    /// The response to request `index`.
    pub(crate) fn put(&self, index: usize, status: u8, bytes: Vec<u8>) {
        let mut responses = self.responses.borrow_mut();
        responses[index] = Some((status, bytes));
        if !responses.iter().all(Option::is_some) {
            return;
        }
        let mut batch = vec![0; HEADER_LEN];
        for (status, bytes) in responses.iter().flatten() {
            push_message(&mut batch, *status, bytes);
        }
        self.core.borrow_mut().executed(self.origin, responses.len() as u8, batch);
    }
}
