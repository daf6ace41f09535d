//! Atomic operations (RISC-V Unpriv §13).
//!
//! Harts take turns on the bus, so a load and a store are atomic by themselves; stores of other harts break a
//! reservation, which the driver of several harts reports by [`Hart::on_foreign_store`].

use super::{load, store, word};
use crate::bus::Bus;
use crate::hart::{Hart, RESERVATION_BYTES};
use crate::instruction::Instruction;
use crate::op::Op;
use crate::trap::{Cause, Exception, Trap};

impl Hart {
    pub(super) fn execute_atomic<B: Bus>(&mut self, i: &Instruction, bus: &mut B) -> Result<(), Trap> {
        use Op::*;
        let address = self.x[usize::from(i.rs1)];
        let operand = self.x[usize::from(i.rs2)];
        let bytes = i.op.access_bytes().unwrap_or(8);
        let is_word = bytes == 4;
        let extend = |value: u64| if is_word { word(value) } else { value };
        let value = match i.op {
            LrW | LrD => {
                reservable(bus, address).map_err(|()| Trap::new(Exception::LoadAccessFault, address))?;
                let value = extend(load(bus, address, bytes)?);
                self.reservation = Some(address / RESERVATION_BYTES);
                value
            }
            ScW | ScD => {
                reservable(bus, address).map_err(|()| Trap::new(Exception::StoreAccessFault, address))?;
                let holds = self.reservation.take() == Some(address / RESERVATION_BYTES);
                if holds {
                    store(bus, address, bytes, operand)?;
                } else {
                    // A store that fails still checks its address.
                    load(bus, address, bytes).map_err(as_store)?;
                }
                u64::from(!holds)
            }
            _ => {
                let old = extend(load(bus, address, bytes).map_err(as_store)?);
                let new = combine(i.op, old, extend(operand), is_word);
                store(bus, address, bytes, new)?;
                old
            }
        };
        self.x[usize::from(i.rd)] = value;
        Ok(())
    }
}

/// Reservations are the cache's business: Rocket has none on a device, with or without a reservation before (RISC-V Priv §3.6.3.3).
fn reservable<B: Bus>(bus: &B, address: u64) -> Result<(), ()> {
    if bus.is_device(address) { Err(()) } else { Ok(()) }
}

/// The new value of memory. Both values are sign-extended, which keeps the order of unsigned words too.
fn combine(op: Op, old: u64, operand: u64, is_word: bool) -> u64 {
    use Op::*;
    debug_assert!(!is_word || (old == word(old) && operand == word(operand)), "words are sign-extended");
    match op {
        AmoswapW | AmoswapD => operand,
        AmoaddW | AmoaddD => old.wrapping_add(operand),
        AmoxorW | AmoxorD => old ^ operand,
        AmoandW | AmoandD => old & operand,
        AmoorW | AmoorD => old | operand,
        AmominW | AmominD => (old as i64).min(operand as i64) as u64,
        AmomaxW | AmomaxD => (old as i64).max(operand as i64) as u64,
        AmominuW | AmominuD => old.min(operand),
        AmomaxuW | AmomaxuD => old.max(operand),
        _ => unreachable!("the other atomic operations are handled before"),
    }
}

/// A read-modify-write operation that cannot load reports what its store would have.
fn as_store(trap: Trap) -> Trap {
    let exception = match trap.cause {
        Cause::Exception(Exception::LoadMisaligned) => Exception::StoreMisaligned,
        _ => Exception::StoreAccessFault,
    };
    Trap::new(exception, trap.value)
}
