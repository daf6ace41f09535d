//! The words of a scenario, which are those of verbs: functions, errnos, statuses, operations.

use highwire_verbs::{CompletionOp, CompletionStatus};

/// How a function says that it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It returns the errno.
    Errno,
    /// It returns -1 and sets `errno`.
    MinusOne,
    /// It returns null and sets `errno`.
    Null,
}

/// The functions that a scenario may refuse, and how each says so.
pub const FUNCTIONS: &[(&str, Refusal)] = {
    use Refusal::{Errno, MinusOne, Null};
    &[
        ("ibv_get_device_list", Null),
        ("ibv_open_device", Null),
        ("ibv_query_device", Errno),
        ("ibv_query_device_ex", Errno),
        ("ibv_query_port", Errno),
        ("ibv_query_gid", MinusOne),
        ("ibv_query_gid_ex", Errno),
        ("ibv_query_pkey", MinusOne),
        ("ibv_alloc_pd", Null),
        ("ibv_alloc_parent_domain", Null),
        ("ibv_alloc_td", Null),
        ("ibv_reg_mr", Null),
        ("ibv_reg_dmabuf_mr", Null),
        ("ibv_rereg_mr", Errno),
        ("ibv_dereg_mr", Errno),
        ("ibv_alloc_mw", Null),
        ("ibv_create_comp_channel", Null),
        ("ibv_create_cq", Null),
        ("ibv_create_cq_ex", Null),
        ("ibv_resize_cq", Errno),
        ("ibv_get_cq_event", MinusOne),
        ("ibv_req_notify_cq", Errno),
        ("ibv_poll_cq", MinusOne),
        ("ibv_create_srq", Null),
        ("ibv_create_srq_ex", Null),
        ("ibv_modify_srq", Errno),
        ("ibv_post_srq_recv", Errno),
        ("ibv_create_qp", Null),
        ("ibv_create_qp_ex", Null),
        ("ibv_modify_qp", Errno),
        ("ibv_query_qp", Errno),
        ("ibv_create_ah", Null),
        ("ibv_attach_mcast", Errno),
        ("ibv_post_send", Errno),
        ("ibv_post_recv", Errno),
        ("ibv_wr_complete", Errno),
        ("ibv_get_async_event", MinusOne),
        ("rdma_create_event_channel", Null),
        ("rdma_create_id", MinusOne),
        ("rdma_bind_addr", MinusOne),
        ("rdma_listen", MinusOne),
        ("rdma_resolve_addr", MinusOne),
        ("rdma_resolve_route", MinusOne),
        ("rdma_create_qp", MinusOne),
        ("rdma_connect", MinusOne),
        ("rdma_accept", MinusOne),
        ("rdma_get_cm_event", MinusOne),
    ]
};

/// The name under which a scenario knows a function of the library; `None` if it cannot be refused.
///
/// Headers call some functions through a table, without the prefix; three functions register memory.
pub fn function(name: &str) -> Option<(&'static str, Refusal)> {
    let name = match name {
        "ibv_reg_mr_iova" | "ibv_reg_mr_iova2" => "ibv_reg_mr",
        // It calls the one of the table, which counts.
        "ibv_query_port" => return None,
        "query_port" => "ibv_query_port",
        "_ibv_query_gid_ex" => "ibv_query_gid_ex",
        name => name,
    };
    let matches = |known: &str| {
        known == name
            || known.strip_prefix("ibv_").is_some_and(|bare| bare == name && !bare.starts_with("ibv"))
    };
    FUNCTIONS.iter().find(|(known, _)| matches(known)).copied()
}

/// Errnos by name, with Linux' numbers, which are alike on all machines that this project supports.
pub const ERRNOS: &[(&str, i32)] = &[
    ("EPERM", 1),
    ("ENOENT", 2),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("EMFILE", 24),
    ("ENOSPC", 28),
    ("ENOSYS", 38),
    ("ENODATA", 61),
    ("EPROTO", 71),
    ("EMSGSIZE", 90),
    ("EOPNOTSUPP", 95),
    ("EADDRINUSE", 98),
    ("EADDRNOTAVAIL", 99),
    ("ENETUNREACH", 101),
    ("ECONNRESET", 104),
    ("ENOBUFS", 105),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EHOSTUNREACH", 113),
];

/// An errno's name.
pub fn errno_name(errno: i32) -> &'static str {
    ERRNOS.iter().find(|(_, number)| *number == errno).map_or("an errno", |(name, _)| name)
}

/// Statuses that may replace a completion's.
pub const STATUSES: &[(&str, CompletionStatus)] = &[
    ("IBV_WC_LOC_LEN_ERR", CompletionStatus::LocalLength),
    ("IBV_WC_LOC_QP_OP_ERR", CompletionStatus::LocalQpOperation),
    ("IBV_WC_LOC_PROT_ERR", CompletionStatus::LocalProtection),
    ("IBV_WC_WR_FLUSH_ERR", CompletionStatus::Flushed),
    ("IBV_WC_MW_BIND_ERR", CompletionStatus::WindowBind),
    ("IBV_WC_BAD_RESP_ERR", CompletionStatus::BadResponse),
    ("IBV_WC_LOC_ACCESS_ERR", CompletionStatus::LocalAccess),
    ("IBV_WC_REM_INV_REQ_ERR", CompletionStatus::RemoteInvalidRequest),
    ("IBV_WC_REM_ACCESS_ERR", CompletionStatus::RemoteAccess),
    ("IBV_WC_REM_OP_ERR", CompletionStatus::RemoteOperation),
    ("IBV_WC_RETRY_EXC_ERR", CompletionStatus::RetryExceeded),
    ("IBV_WC_RNR_RETRY_EXC_ERR", CompletionStatus::RnrRetryExceeded),
];

/// A status' name.
pub fn status_name(status: CompletionStatus) -> &'static str {
    STATUSES.iter().find(|(_, known)| *known == status).map_or("IBV_WC_SUCCESS", |(name, _)| name)
}

/// Operations by which completions are told apart.
pub const OPERATIONS: &[(&str, &[CompletionOp])] = {
    use CompletionOp as Op;
    &[
        ("send", &[Op::Send]),
        ("write", &[Op::Write]),
        ("read", &[Op::Read]),
        ("atomic", &[Op::CompareSwap, Op::FetchAdd]),
        ("receive", &[Op::Receive, Op::ReceiveWriteImm, Op::ReceiveTagged, Op::ReceiveNoTag]),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_tables_have_their_public_names() {
        let check = |name, expected: Option<&str>| {
            assert_eq!(function(name).map(|(name, _)| name), expected, "{name}")
        };
        check("ibv_create_cq", Some("ibv_create_cq"));
        check("create_cq_ex", Some("ibv_create_cq_ex"));
        check("query_port", Some("ibv_query_port"));
        check("ibv_query_port", None);
        check("ibv_reg_mr_iova2", Some("ibv_reg_mr"));
        check("_ibv_query_gid_ex", Some("ibv_query_gid_ex"));
        check("rdma_connect", Some("rdma_connect"));
        check("ibv_free_device_list", None);
    }
}
