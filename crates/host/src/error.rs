//! Why an object could not be made. Every text says what to do about it, where something can be done.

use crate::config::{ADDRESS_VARIABLE, WAKE_VARIABLE};
use highwire_shmem::{LayoutError, PoolError};
use highwire_verbs::{ModifyError, PostError, RegisterError};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a device could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// `HIGHWIRE_ADDR` holds no IP address.
    BadAddress(String),
    /// `HIGHWIRE_WAKE` is set to something else than a mode; the text says so.
    BadWake(String),
    /// The number of lanes is out of its range.
    BadLanes(u32),
    /// A device that shares its address has one lane.
    SharedLanes(u32),
    /// The broker of a shared address could not be reached or started; the text says why.
    Broker(String),
    /// The socket could not be opened; its own text says why.
    Udp(highwire_link::OpenError),
    /// The directory of this user's devices could not be used.
    Registry(io::Error),
    /// Another device of this user has the address.
    AddressInUse(std::net::IpAddr),
    /// The capture file could not be made.
    Capture(PathBuf, io::Error),
    /// The faults ask for something impossible; its own text says what.
    Faults(String),
    /// The interface's MTU is too small for RoCE.
    MtuTooSmall(std::net::IpAddr),
    /// Anything else that the system refused.
    System(&'static str, io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::BadAddress(text) => write!(
                f,
                "{ADDRESS_VARIABLE} is `{text}`, which is no IP address; unset it to use one of 127.0.0.0/8"
            ),
            OpenError::BadWake(why) => write!(f, "{WAKE_VARIABLE}: {why}"),
            OpenError::BadLanes(lanes) => write!(f, "a device has 1 to 64 lanes, not {lanes}"),
            OpenError::SharedLanes(lanes) => {
                write!(f, "a device that shares its address has one lane, not {lanes}")
            }
            OpenError::Broker(why) => write!(f, "no part of a shared address: {why}"),
            OpenError::Udp(error) => error.fmt(f),
            OpenError::Registry(error) => {
                write!(f, "cannot use the directory of this user's devices: {error}")
            }
            OpenError::AddressInUse(ip) => write!(
                f,
                "{ip} already is the address of a device of this user; choose another, or none to have one chosen"
            ),
            OpenError::Capture(path, error) => {
                write!(f, "cannot record packets in {}: {error}", path.display())
            }
            OpenError::Faults(text) => write!(f, "cannot inject these faults: {text}"),
            OpenError::MtuTooSmall(ip) => {
                write!(
                    f,
                    "the interface of {ip} carries less than the smallest RoCE packet: raise its MTU to 356"
                )
            }
            OpenError::System(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Registry(e) | OpenError::Capture(_, e) | OpenError::System(_, e) => Some(e),
            _ => None,
        }
    }
}

impl From<highwire_link::OpenError> for OpenError {
    fn from(error: highwire_link::OpenError) -> OpenError {
        OpenError::Udp(error)
    }
}

/// Why memory was not registered or allocated.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// The RNIC refused; nothing is registered.
    Register(RegisterError),
    /// There is no memory to allocate from.
    Pool(PoolError),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Register(error) => error.fmt(f),
            MemoryError::Pool(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MemoryError {}

/// A completion queue that has no channel cannot report to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoChannel;

impl fmt::Display for NoChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the completion queue was made without a channel")
    }
}

impl std::error::Error for NoChannel {}

/// Why a queue was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// The RNIC refused, and says why.
    Refused(String),
    /// The queues it needs belong to different lanes, or to another device.
    OtherLane,
    /// There is no such lane.
    NoSuchLane(u32),
    /// A size is zero or absurd.
    BadSize(LayoutError),
    /// The lane has as many queues as its doorbells can tell apart.
    TooManyQueues,
    /// No memory for the rings.
    Memory(io::Error),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Refused(why) => f.write_str(why),
            CreateError::OtherLane => f.write_str(
                "a queue pair and its completion and receive queues belong to one lane of one device",
            ),
            CreateError::NoSuchLane(lane) => write!(f, "the device has no lane {lane}"),
            CreateError::BadSize(error) => write!(f, "{error:?}"),
            CreateError::TooManyQueues => f.write_str("the lane has no doorbell left for another queue"),
            CreateError::Memory(error) => write!(f, "no memory for the rings: {error}"),
        }
    }
}

impl std::error::Error for CreateError {}

impl From<LayoutError> for CreateError {
    fn from(error: LayoutError) -> CreateError {
        CreateError::BadSize(error)
    }
}

/// A chain of requests stopped: those before `index` were taken, that one and the rest were not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainError {
    /// The position of the refused request in the chain.
    pub index: usize,
    /// Why it was refused.
    pub error: PostError,
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of the chain: {}", self.index, self.error)
    }
}

impl std::error::Error for ChainError {}

/// Why a queue pair could not be connected; it is in the error state then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectError(pub ModifyError);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect: {}", self.0)
    }
}

impl std::error::Error for ConnectError {}
