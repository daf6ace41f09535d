//! Requests of a program that the NIC refuses.

use std::fmt;

/// A queue of the NIC's registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Frames to send.
    Send,
    /// Buffers to receive into.
    Receive,
    /// Frames that have been read.
    SendCompletion,
    /// Frames that have been written.
    ReceiveCompletion,
}

/// Why a request was refused. It has no other effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaError {
    /// The queue was full when the program posted another request.
    Full(Queue),
    /// The program took a completion where there was none.
    Empty(Queue),
    /// A frame to send of no bytes, or of more than a frame has.
    Length {
        /// The bytes that the program named.
        bytes: u64,
    },
    /// A frame to send, or a buffer, that is not all memory.
    Address {
        /// Where it begins.
        address: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A receive buffer that does not begin at a multiple of eight.
    Misaligned {
        /// Where it begins.
        address: u64,
    },
}

impl fmt::Display for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Queue::Send => "send requests",
            Queue::Receive => "receive requests",
            Queue::SendCompletion => "send completions",
            Queue::ReceiveCompletion => "receive completions",
        })
    }
}

impl fmt::Display for DmaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DmaError::Full(queue) => write!(out, "the queue of {queue} is full"),
            DmaError::Empty(queue) => write!(out, "there are no {queue} to take"),
            DmaError::Length { bytes } => {
                write!(out, "a frame of {bytes} bytes: it has 1 to {}", super::FRAME_BYTES_MAX)
            }
            DmaError::Address { address, bytes } => {
                write!(out, "{bytes} bytes at {address:#x} are not all memory")
            }
            DmaError::Misaligned { address } => {
                write!(out, "a receive buffer at {address:#x}, no multiple of eight")
            }
        }
    }
}

impl std::error::Error for DmaError {}
