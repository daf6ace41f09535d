//! A whole software RNIC, sans-IO: tables, packet dispatch, egress scheduler.
