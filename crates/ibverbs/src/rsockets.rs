//! rsockets: sockets over RDMA, part of `librdmacm.so.1`.
