//! The memory layout that applications and the RNIC share: rings, doorbells.
