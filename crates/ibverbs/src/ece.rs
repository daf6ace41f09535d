//! Enhanced connection establishment: options that two Highwires agree on through a connection manager.
//!
//! The vendor is a locally administered OUI, "HW". The only option is IRN (bit 0). A peer that answers with
//! another vendor, or without the bit, gets go-back-N; a peer that was not asked this way is asked over the
//! side band (`docs/wire-irn.md`).

use crate::abi::*;
use crate::boundary::{c_api, code, input};
use crate::env;
use crate::qp::Qp;
use crate::registry;
use highwire_verbs::Recovery;
use std::sync::PoisonError;

/// 02-48-57: locally administered, and not a multicast address.
pub(crate) const VENDOR: u32 = 0x02_48_57;
/// The peer understands IRN's packets.
pub(crate) const IRN: u32 = 1;

/// The peer's options, if the program has set them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ece {
    set: Option<(u32, u32)>,
}

impl Ece {
    /// Whether IRN may be asked for.
    pub(crate) fn allows_irn(&self) -> bool {
        self.set.is_none_or(|(vendor, options)| vendor == VENDOR && options & IRN != 0)
    }

    fn options(&self) -> (u32, u32) {
        let wishes_irn = env::settings().is_some_and(|settings| settings.recovery == Recovery::Irn);
        self.set.unwrap_or((VENDOR, if wishes_irn { IRN } else { 0 }))
    }
}

c_api! {
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
        let run = || {
            let qp = registry::find::<Qp>(qp)?;
            if ece.is_null() {
                return Err(libc::EINVAL);
            }
            let (vendor_id, options) = qp.ece.lock().unwrap_or_else(PoisonError::into_inner).options();
            unsafe { ece.write(ibv_ece { vendor_id, options, comp_mask: 0 }) };
            Ok(())
        };
        code(run())
    }

    /// The options are a wish: unknown ones are dropped from it, as `ibv_set_ece(3)` says.
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
        let run = || {
            let qp = registry::find::<Qp>(qp)?;
            let asked = unsafe { input(ece)? };
            if asked.comp_mask != 0 {
                return Err(libc::EINVAL);
            }
            let is_ours = asked.vendor_id == VENDOR;
            let set = if is_ours { (VENDOR, asked.options & IRN) } else { (0, 0) };
            qp.ece.lock().unwrap_or_else(PoisonError::into_inner).set = Some(set);
            Ok(())
        };
        code(run())
    }
}
