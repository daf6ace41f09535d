//! Attributes of queue pairs as words: a mask of those given, with `libibverbs`' bits, and one word for each.

use super::protocol::{Refusal, Status, narrow};
use highwire_rnic::QpSnapshot;
use highwire_verbs::{Access, Address, AttrMask, Gid, Mtu, QpAttr, QpState, Recovery};
use highwire_wire::{Psn, Qpn};

/// Bit of the first word: the last one is given. `libibverbs` has none for it.
const RECOVERY: u64 = 1 << 32;
/// Words of the attributes, the mask included.
pub(super) const WORDS: usize = 18;

/// The permissions of a program's key or queue pair. Bits that mean nothing here are refused: a program that sets them expects something.
pub(super) fn access(word: u64) -> Result<Access, Refusal> {
    let known = u32::try_from(word).ok().filter(|bits| bits & !Access::ALL.bits() == 0);
    known.map(Access::from_bits_truncate).ok_or_else(|| {
        let all = Access::ALL.bits();
        Refusal::refused(format!(
            "access {word:#x} has bits beyond {all:#x}: local write, remote write, read and atomic"
        ))
    })
}

/// The attributes in the words.
pub(super) fn from_words(words: &[u64; WORDS]) -> Result<QpAttr, Refusal> {
    let [mask, state, access, qkey, gid_low, gid_high, marks, remote_qpn, mtu, rq_psn, sq_psn, rest @ ..] =
        *words;
    let [max_dest_rd_atomic, max_rd_atomic, min_rnr_timer, timeout, retry_count, rnr_retry, recovery] = rest;
    let has = |bit: AttrMask| AttrMask(mask as u32).contains(bit);
    let small = |bit, word, name| has(bit).then(|| narrow::<u8>(word, name)).transpose();
    let wide = |bit, word, name| has(bit).then(|| narrow::<u32>(word, name)).transpose();
    let bad = |name: &str, word| Refusal::new(Status::Malformed, format!("`{name}` cannot be {word}"));
    let state = if has(AttrMask::STATE) {
        let found = QpState::ALL.get(usize::try_from(state).unwrap_or(usize::MAX));
        Some(*found.ok_or_else(|| bad("state", state))?)
    } else {
        None
    };
    let path_mtu = match wide(AttrMask::PATH_MTU, mtu, "path_mtu")? {
        Some(bytes) => Some(Mtu::from_bytes(bytes).ok_or_else(|| bad("path_mtu", mtu))?),
        None => None,
    };
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&gid_low.to_le_bytes());
    gid[8..].copy_from_slice(&gid_high.to_le_bytes());
    let address = Address {
        gid: Gid(gid),
        hop_limit: marks as u8,
        traffic_class: (marks >> 8) as u8,
        flow_label: (marks >> 32) as u32 & 0xF_FFFF,
    };
    Ok(QpAttr {
        state,
        access: has(AttrMask::ACCESS).then(|| self::access(access)).transpose()?,
        qkey: wide(AttrMask::QKEY, qkey, "qkey")?,
        address: has(AttrMask::ADDRESS).then_some(address),
        remote_qpn: wide(AttrMask::REMOTE_QPN, remote_qpn, "remote_qpn")?.map(Qpn::new),
        path_mtu,
        rq_psn: wide(AttrMask::RQ_PSN, rq_psn, "rq_psn")?.map(Psn::new),
        sq_psn: wide(AttrMask::SQ_PSN, sq_psn, "sq_psn")?.map(Psn::new),
        max_dest_rd_atomic: small(AttrMask::MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, "max_dest_rd_atomic")?,
        max_rd_atomic: small(AttrMask::MAX_RD_ATOMIC, max_rd_atomic, "max_rd_atomic")?,
        min_rnr_timer: small(AttrMask::MIN_RNR_TIMER, min_rnr_timer, "min_rnr_timer")?,
        timeout: small(AttrMask::TIMEOUT, timeout, "timeout")?,
        retry_count: small(AttrMask::RETRY_COUNT, retry_count, "retry_count")?,
        rnr_retry: small(AttrMask::RNR_RETRY, rnr_retry, "rnr_retry")?,
        recovery: (mask & RECOVERY != 0).then_some(if recovery == 0 {
            Recovery::GoBackN
        } else {
            Recovery::Irn
        }),
        notify_drained: None,
    })
}

/// A queue pair as it is now; the mask says that all words mean something.
pub(super) fn to_words(qp: &QpSnapshot) -> Vec<u64> {
    let gid = qp.address.gid.0;
    let word =
        |range: std::ops::Range<usize>| u64::from_le_bytes(gid[range].try_into().expect("eight bytes"));
    let address = qp.address;
    let marks = u64::from(address.hop_limit)
        | u64::from(address.traffic_class) << 8
        | u64::from(address.flow_label) << 32;
    let state = QpState::ALL.iter().position(|state| *state == qp.state).unwrap_or_default();
    vec![
        u64::from(u32::MAX) | RECOVERY,
        state as u64,
        u64::from(qp.access.bits()),
        u64::from(qp.qkey),
        word(0..8),
        word(8..16),
        marks,
        u64::from(qp.remote_qpn.value()),
        u64::from(qp.mtu.bytes()),
        u64::from(qp.rq_psn.value()),
        u64::from(qp.sq_psn.value()),
        u64::from(qp.max_dest_rd_atomic),
        u64::from(qp.max_rd_atomic),
        u64::from(qp.min_rnr_timer),
        u64::from(qp.timeout),
        u64::from(qp.retry_count),
        u64::from(qp.rnr_retry),
        u64::from(qp.recovery == Recovery::Irn),
    ]
}
