//! rsockets: sockets over RDMA, part of `librdmacm.so.1`.
//!
//! A stream is a connection of `rdma_cm` whose ends write into each other's buffers ([`wire`]); it speaks to
//! rdma-core's rsockets as well. Datagram sockets are the kernel's, because over RDMA they offer no more than
//! UDP does. The calls use connection management and verbs as any program would.

mod background;
mod c;
mod calls;
mod changes;
mod ending;
mod epoll;
mod flow;
mod iomap;
mod listening;
mod mapped;
mod memory;
mod options;
mod poll;
mod socket;
mod stream;
mod transfer;
mod wire;
