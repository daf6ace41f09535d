//! RDMA on any Linux machine, as a library: one dependency, three features.
//!
//! | feature | module | what |
//! |---|---|---|
//! | `host` | `host` | devices, queue pairs, memory regions, completions |
//! | `rpc` | `rpc` | requests and responses over datagrams, from `async` code |
//! | `store` | `store` | a transactional store: nodes and clients |
//!
//! `cargo install highwire` installs the program of that name, so the default features are the program's. A library leaves
//! them out:
//!
//! ```toml
//! highwire = { version = "0.1", default-features = false, features = ["host"] }
//! ```
//!
//! The modules are crates of Highwire's under a shorter name. Programs that were written for RDMA cards need none of this: the
//! program `highwire` runs them as they are.
#![forbid(unsafe_code)]

/// The verbs, in this process.
///
/// Two devices, and a WRITE into the memory of the second, which does nothing:
///
/// ```
/// use highwire::host::verbs::{Access, CompletionStatus, Operation, SendWr, Service};
/// use highwire::host::{ConnectOptions, Device, DeviceConfig, QueuePairConfig, WaitFor};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (near, far) = (Device::open(&DeviceConfig::default())?, Device::open(&DeviceConfig::default())?);
/// let (near_cq, far_cq) = (near.completion_queue(8)?, far.completion_queue(8)?);
/// let (near_pd, far_pd) = (near.protection_domain(), far.protection_domain());
/// let near_qp = near_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &near_cq))?;
/// let far_qp = far_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &far_cq))?;
/// near_qp.connect(&far_qp.endpoint(), &ConnectOptions::default())?;
/// far_qp.connect(&near_qp.endpoint(), &ConnectOptions::default())?;
///
/// let source = near_pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let target = far_pd.allocate(4096, Access::ALL)?;
/// source.write(0, b"no hands");
/// near_qp.post_send(&[SendWr::new(1, Operation::Write(target.remote(64)), &[source.sge(0, 8)])])?;
/// assert!(near_cq.wait(WaitFor::Any, Duration::from_secs(60)));
/// let done = near_cq.poll_one().expect("it waited for one");
/// assert_eq!((done.wr_id, done.status), (1, CompletionStatus::Success));
/// assert_eq!(target.to_vec(64, 8), b"no hands");
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "host")]
pub mod host {
    pub use highwire_host::*;
}

/// RPCs over unreliable datagrams: at most once, batched, from `async` code.
///
/// A server in a thread of its own, and a client that asks it once:
///
/// ```
/// use highwire::host::{Device, DeviceConfig};
/// use highwire::rpc::{Node, RequestType, Rpc, RpcConfig};
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::sync::{Arc, mpsc};
/// use std::thread;
///
/// const SHOUT: RequestType = RequestType(1);
/// let open = |node| Rpc::open(&Device::open(&DeviceConfig::default()).unwrap(), RpcConfig::new(node)).unwrap();
///
/// let mut client = open(Node(0));
/// let (to_client, from_server) = mpsc::channel();
/// let is_over = Arc::new(AtomicBool::new(false));
/// let server = thread::spawn({
///     let (is_over, client) = (is_over.clone(), client.address());
///     move || {
///         let mut server = open(Node(1));
///         server.register(SHOUT, |request, response| response.write(&request.bytes.to_ascii_uppercase()));
///         server.connect(Node(0), &client).unwrap();
///         to_client.send(server.address()).unwrap();
///         while !is_over.load(Ordering::Relaxed) {
///             server.step();
///         }
///     }
/// });
///
/// client.connect(Node(1), &from_server.recv().unwrap()).unwrap();
/// let reply = client.block_on(|worker| async move {
///     worker.call(Node(1), SHOUT, b"hello").await.map(|reply| reply.to_vec())
/// });
/// assert_eq!(reply.unwrap().unwrap(), b"HELLO");
/// is_over.store(true, Ordering::Relaxed);
/// server.join().unwrap();
/// ```
#[cfg(feature = "rpc")]
pub mod rpc {
    pub use highwire_host::rpc::*;
}

/// A transactional store whose nodes hold the data in memory.
///
/// A cluster of one node in this process, and a client that moves money:
///
/// ```
/// use highwire::store::{Client, ClusterConfig, Engine};
/// use std::net::TcpListener;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("highwire-example-{}", std::process::id()));
/// # let register = folder.display();
/// let door = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// let cluster = format!("f = 0\nregister = \"{register}\"\n[[node]]\nid = 0\ndoor = \"{door}\"\n");
/// let node = Engine::start(&ClusterConfig::parse(&cluster)?, 0)?;
///
/// let mut client = Client::new([door.to_string()]);
/// client.put("accounts", "alice", "100")?;
/// client.put("accounts", "bob", "0")?;
/// client.transact(|transaction| {
///     transaction.put("accounts", "alice", "70");
///     transaction.put("accounts", "bob", "30");
///     Ok(())
/// })?;
/// assert_eq!(client.get("accounts", "bob")?.as_deref(), Some(&b"30"[..]));
///
/// client.stop_node()?;
/// node.join()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "store")]
pub mod store {
    pub use highwire_store::*;
}
