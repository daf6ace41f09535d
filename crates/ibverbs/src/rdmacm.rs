//! `librdmacm.so.1`: connection management.
