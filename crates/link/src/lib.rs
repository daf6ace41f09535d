//! Packets in and out of a real machine: UDP, shared memory, fault and capture decorators.
