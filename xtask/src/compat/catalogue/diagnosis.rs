//! Programs that look at devices and send no packets.

use super::super::case::Case;
use super::super::judge;

pub(super) fn add(cases: &mut Vec<Case>) {
    cases.push(Case::one("ibverbs-utils", "ibv_devices", judge::lists_device).quick());
    cases.push(Case::one("ibverbs-utils", "ibv_devinfo -v", judge::devinfo).quick());
    cases.push(Case::one("infiniband-diags", "ibstat", judge::lists_device).quick());
    cases.push(Case::one("infiniband-diags", "ibstatus", judge::lists_device));
    cases.push(Case::one("libfabric", "fi_info -p verbs", judge::lists_device));
    cases.push(Case::one("ucx", "ucx_info -d", judge::lists_device));
    cases.push(Case::one(
        "pyverbs",
        "env PYTHONPATH= /usr/bin/python3 /usr/share/doc/python3-pyverbs/examples/ib_devices.py",
        judge::lists_device,
    ));
}
