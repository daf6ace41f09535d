//! The captures of `vectors/roce`, each an exchange between two kernels.

use highwire_wire::pcap;

macro_rules! captures {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../../../vectors/roce/", $name, ".pcap"))),)*]
    };
}

/// Name and bytes of every capture.
pub(crate) const CAPTURES: &[(&str, &[u8])] = captures! {
    "cm_rping" "rc_atomic_cas" "rc_atomic_faa" "rc_bad_range" "rc_bad_rkey" "rc_noaccess" "rc_pingpong" "rc_psn_wrap"
    "rc_read" "rc_read_seg" "rc_read_zero" "rc_rnr" "rc_send" "rc_send_imm" "rc_send_odd" "rc_send_seg" "rc_toolong"
    "rc_write" "rc_write_big" "rc_write_imm" "rc_write_seg" "rc_write_zero" "srq_pingpong" "uc_send" "ud_pingpong"
    "ud_send"
};

/// Every frame of every capture, with the capture's name.
pub(crate) fn frames() -> impl Iterator<Item = (&'static str, pcap::Record<'static>)> {
    CAPTURES.iter().flat_map(|&(name, file)| {
        pcap::Reader::new(file).expect(name).map(move |record| (name, record.expect(name)))
    })
}
