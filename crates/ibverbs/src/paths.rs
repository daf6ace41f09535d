//! Files that programs look for below `/sys/class/infiniband` and `/dev/infiniband`.
