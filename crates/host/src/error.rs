//! Why an object could not be made. Every text says what to do, if anything can be done, and is complete by
//! itself; the cause is kept beside it for programs that tell causes apart.

use crate::config::{ADDRESS_VARIABLE, WAKE_VARIABLE};
use highwire_broker::JoinError;
use highwire_link::ConfigError;
use highwire_link::shm::{ClaimError, RegistryError};
use highwire_shmem::{LayoutError, PoolError};
use highwire_verbs::{FlowError, ModifyError, PostError, RegisterError};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use thiserror::Error;

/// Why a device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// `HIGHWIRE_ADDR` holds no IP address.
    #[error("{ADDRESS_VARIABLE} is `{0}`, which is no IP address; unset it to use one of 127.0.0.0/8")]
    BadAddress(String),
    /// `HIGHWIRE_WAKE` is set to something else than a mode; the text says so.
    #[error("{WAKE_VARIABLE}: {0}")]
    BadWake(String),
    /// The number of lanes is out of its range.
    #[error("a device has 1 to 64 lanes, not {0}")]
    BadLanes(u32),
    /// A device that shares its address has one lane.
    #[error("a device that shares its address has one lane, not {0}")]
    SharedLanes(u32),
    /// The broker of a shared address could not be reached or started, or gave no part of it.
    #[error("no part of the shared address {address}: {source}")]
    Broker {
        /// The address.
        address: IpAddr,
        /// Why there is no part of it.
        source: JoinError,
    },
    /// The socket could not be opened; its own text says why.
    #[error(transparent)]
    Udp(#[from] highwire_link::OpenError),
    /// The directory of this user's devices could not be used.
    #[error("cannot use the directory of this user's devices: {0}")]
    Registry(#[from] RegistryError),
    /// The device's own directory in it could not be made.
    #[error("cannot use the directory of this user's devices: {0}")]
    Claim(#[from] ClaimError),
    /// Another device of this user has the address.
    #[error(
        "{0} already is the address of a device of this user; choose another, or none to have one chosen"
    )]
    AddressInUse(IpAddr),
    /// The capture file could not be made.
    #[error("cannot record packets in {path}: {cause}", path = .0.display(), cause = .1)]
    Capture(PathBuf, #[source] io::Error),
    /// The faults ask for something impossible.
    #[error("cannot inject these faults: {0}")]
    Faults(#[from] ConfigError),
    /// The interface's MTU is too small for RoCE.
    #[error("the interface of {0} carries less than the smallest RoCE packet: raise its MTU to 356")]
    MtuTooSmall(IpAddr),
    /// Anything else that the system refused.
    #[error("cannot {0}: {1}")]
    System(&'static str, #[source] io::Error),
}

/// Why memory was not registered or allocated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The RNIC refused; nothing is registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// There is no memory to allocate from.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// A completion queue that has no channel cannot report to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the completion queue was made without a channel")]
pub struct NoChannel;

/// Why a queue was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The RNIC refused, and says why.
    #[error(transparent)]
    Refused(#[from] highwire_rnic::CreateError),
    /// Its frames cannot be spread over these queue pairs.
    #[error(transparent)]
    Spread(#[from] ModifyError),
    /// Requests of that size do not exist.
    #[error("a request has at most {sges} SGEs and {inline_bytes} inline bytes")]
    RequestTooLarge {
        /// Most SGEs of a request.
        sges: usize,
        /// Most bytes that a request itself may carry.
        inline_bytes: usize,
    },
    /// A queue that is made smaller has more in it than would fit.
    #[error("more completions wait than would fit")]
    CompletionsWait,
    /// The queues it needs belong to different lanes, or to another device.
    #[error("a queue pair and its completion and receive queues belong to one lane of one device")]
    OtherLane,
    /// There is no such lane.
    #[error("the device has no lane {0}")]
    NoSuchLane(u32),
    /// A size is zero or absurd.
    #[error(transparent)]
    BadSize(#[from] LayoutError),
    /// The lane has as many queues as its doorbells can tell apart.
    #[error("the lane has no doorbell left for another queue")]
    TooManyQueues,
    /// No memory for the rings.
    #[error("no memory for the rings: {0}")]
    Memory(#[source] PoolError),
}

/// A chain of requests stopped: those before `index` were taken, that one and the rest were not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("request {index} of the chain: {error}")]
pub struct ChainError {
    /// The position of the refused request in the chain.
    pub index: usize,
    /// Why it was refused.
    #[source]
    pub error: PostError,
}

/// Why a queue pair could not be connected; it is in the error state then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("cannot connect: {0}")]
pub struct ConnectError(#[source] pub ModifyError);

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    /// The cause of type `T`, as a program finds it.
    fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
        let next = error.source()?;
        next.downcast_ref().or_else(|| cause(next))
    }

    #[test]
    fn an_error_keeps_what_the_system_said() {
        let refused = || io::Error::from_raw_os_error(libc::EACCES);
        let broker = JoinError::Start { program: "/nowhere/highwire".into(), source: refused() };
        let errors: [Box<dyn Error>; 6] = [
            Box::new(OpenError::Broker { address: IpAddr::from([127, 0, 0, 9]), source: broker }),
            Box::new(OpenError::Registry(RegistryError::Io("/nowhere".into(), refused()))),
            Box::new(OpenError::Claim(ClaimError::Io("/nowhere".into(), refused()))),
            Box::new(OpenError::Capture("/nowhere".into(), refused())),
            Box::new(OpenError::System("start the device's thread", refused())),
            Box::new(crate::GsiError::Broker(refused())),
        ];
        for error in errors {
            let found: &io::Error = cause(&*error).unwrap_or_else(|| panic!("{error}: no cause"));
            assert_eq!(found.raw_os_error(), Some(libc::EACCES), "{error}");
            assert!(error.to_string().contains(&found.to_string()), "{error}: complete by itself");
        }
    }

    #[test]
    fn an_error_keeps_what_the_rnic_said() {
        let post = ChainError { index: 3, error: PostError::QueueFull };
        assert_eq!(cause(&crate::rpc::RpcError::Post(post)), Some(&PostError::QueueFull));
        let connect = ConnectError(ModifyError::NoSuchQp);
        assert_eq!(cause(&crate::rpc::RpcError::Connect(connect)), Some(&ModifyError::NoSuchQp));
    }
}

/// Why a rule that steers frames is not in force.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SteerError {
    /// The RNIC refused.
    #[error(transparent)]
    Refused(FlowError),
    /// The system did not let us join the segment.
    #[error("cannot join the Ethernet segment: {0}")]
    Join(#[source] io::Error),
}
