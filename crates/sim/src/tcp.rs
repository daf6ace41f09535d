//! iWARP's transport: a full TCP, sans-IO.
