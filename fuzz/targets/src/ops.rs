//! Bytes as a sequence of small decisions: how a state machine is driven by a fuzzer.

/// Draws decisions from an input until it is used up.
#[derive(Debug)]
pub(crate) struct Decisions<'a>(&'a [u8]);

impl<'a> Decisions<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Two bytes; enough for distances around a window.
    pub(crate) fn short(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }

    /// Any 24-bit number.
    pub(crate) fn wide(&mut self) -> Option<u32> {
        Some(u32::from(self.short()?) | u32::from(self.byte()?) << 16)
    }
}
