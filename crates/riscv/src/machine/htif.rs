//! The host-target interface: a program asks its host by writing the word `tohost`, and reads answers from `fromhost`.
//!
//! An odd word ends the program. An even one is the address of a request; this crate serves those that write
//! to the console and those that exit. The top byte 1 is the console by character.

use std::collections::VecDeque;

use crate::bus::{Bus, Ram};

const SYSTEM_CALL: u64 = 0;
const CONSOLE: u64 = 1;
const CALL_WRITE: u64 = 64;
const CALL_EXIT: u64 = 93;
/// ENOSYS, as a negative result.
const NO_SUCH_CALL: u64 = -38i64 as u64;
/// EFAULT, as a negative result.
const BAD_ADDRESS: u64 = -14i64 as u64;

/// The interface of one program.
#[derive(Clone, Debug)]
pub(super) struct Htif {
    /// The word's address, or one to which nothing is ever stored.
    tohost: u64,
    fromhost: Option<u64>,
    exit_code: Option<u64>,
    console: Vec<u8>,
    typed: VecDeque<u8>,
}

impl Htif {
    pub(super) fn new(tohost: Option<u64>, fromhost: Option<u64>) -> Htif {
        let tohost = tohost.filter(|address| address % 8 == 0).unwrap_or(u64::MAX);
        Htif { tohost, fromhost, exit_code: None, console: Vec::new(), typed: VecDeque::new() }
    }

    #[inline(always)]
    pub(super) fn is_doorbell(&self, address: u64) -> bool {
        address & !7 == self.tohost
    }

    pub(super) fn exit_code(&self) -> Option<u64> {
        self.exit_code
    }

    pub(super) fn console(&self) -> &[u8] {
        &self.console
    }

    pub(super) fn type_in(&mut self, bytes: &[u8]) {
        self.typed.extend(bytes);
    }

    /// Answers the request in `tohost`, if there is one.
    pub(super) fn serve(&mut self, ram: &mut Ram) {
        let Ok(word @ 1..) = ram.load(self.tohost, 8) else { return };
        let (device, command) = (word >> 56, word >> 48 & 0xff);
        match (device, command) {
            (SYSTEM_CALL, 0) if word & 1 != 0 => self.exit_code = Some(word >> 1),
            (SYSTEM_CALL, 0) => {
                self.call(word, ram);
                self.answer(1, ram);
            }
            (CONSOLE, 0) => {
                // Without a character, there is no answer yet, as from a keyboard.
                if let Some(byte) = self.typed.pop_front() {
                    self.answer(word & 0xffff << 48 | u64::from(byte), ram);
                }
            }
            (CONSOLE, 1) => self.console.push(word as u8),
            _ => {}
        }
        // The program that wrote the word waits for it to become zero; the word is in memory, since it could
        // be loaded.
        let _ = ram.store(self.tohost, 8, 0);
    }

    /// Serves the request of eight words at `address`: a number, arguments, and the result in place of the number.
    fn call(&mut self, address: u64, ram: &mut Ram) {
        let mut word = |index: u64| ram.load(address.wrapping_add(8 * index), 8).unwrap_or(0);
        let (call, first, second, third) = (word(0), word(1), word(2), word(3));
        let result = match call {
            CALL_WRITE => {
                let text = usize::try_from(third).ok().and_then(|length| ram.slice(second, length));
                self.console.extend_from_slice(text.unwrap_or(&[]));
                if text.is_some() { third } else { BAD_ADDRESS }
            }
            CALL_EXIT => {
                self.exit_code = Some(first);
                0
            }
            _ => NO_SUCH_CALL,
        };
        let _ = ram.store(address, 8, result);
    }

    fn answer(&self, word: u64, ram: &mut Ram) {
        if let Some(address) = self.fromhost {
            // If the symbol lies outside the memory, the program gets no answer.
            let _ = ram.store(address, 8, word);
        }
    }
}
