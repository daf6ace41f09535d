//! Floating-point instructions: registers, boxing and flags around the arithmetic of [`crate::float`].

use super::{illegal, load, store};
use crate::arithmetic::Arithmetic;
use crate::bus::Bus;
use crate::csr::status;
use crate::float::{self, F32, F64, Format};
use crate::hart::Hart;
use crate::instruction::Instruction;
use crate::op::Op;
use crate::trap::Trap;

const BOX: u64 = 0xffff_ffff_0000_0000;
const SIGN_32: u64 = 1 << 31;
const SIGN_64: u64 = 1 << 63;

/// The result of an instruction and the register file in which it is stored.
enum Value {
    X(u64),
    Single(u64),
    Double(u64),
    None,
}

impl Hart {
    pub(super) fn execute_float<B: Bus>(&mut self, i: &Instruction, bus: &mut B) -> Result<(), Trap> {
        if !self.csrs.is_float_on() {
            return Err(illegal(i));
        }
        let mut flags = self.csrs.fflags;
        let value = self.float_value(i, bus, &mut flags)?;
        let rd = usize::from(i.rd);
        let changes_float = !matches!(value, Value::X(_) | Value::None) || flags != self.csrs.fflags;
        match value {
            Value::X(value) => self.x[rd] = value,
            Value::Single(value) => self.f[rd] = value & !BOX | BOX,
            Value::Double(value) => self.f[rd] = value,
            Value::None => {}
        }
        self.csrs.fflags = flags;
        if changes_float {
            self.csrs.mstatus |= status::FS;
        }
        Ok(())
    }

    fn float_value<B: Bus>(&self, i: &Instruction, bus: &mut B, flags: &mut u8) -> Result<Value, Trap> {
        use Op::*;
        use Value::{Double as D, Single as S, X};
        let x = self.x[usize::from(i.rs1)];
        let address = x.wrapping_add(i.immediate as i64 as u64);
        let [a, b, c] = [i.rs1, i.rs2, i.rs3].map(|number| self.f[usize::from(number)]);
        let [s, t, u] = [a, b, c].map(unbox);
        let mode = if i.mode == 7 { self.csrs.frm } else { i.mode };
        let round = || float::rounding(mode).ok_or_else(|| illegal(i));
        Ok(match i.op {
            Flw => S(load(bus, address, 4)?),
            Fsw => store(bus, address, 4, b).map(|_| Value::None)?,
            Fld => D(load(bus, address, 8)?),
            Fsd => store(bus, address, 8, b).map(|_| Value::None)?,

            FaddS => S(float::arithmetic::<F32>(Arithmetic::Add, [s, t, 0], round()?, flags)),
            FsubS => S(float::arithmetic::<F32>(Arithmetic::Sub, [s, t, 0], round()?, flags)),
            FmulS => S(float::arithmetic::<F32>(Arithmetic::Mul, [s, t, 0], round()?, flags)),
            FdivS => S(float::arithmetic::<F32>(Arithmetic::Div, [s, t, 0], round()?, flags)),
            FmaddS => S(float::arithmetic::<F32>(Arithmetic::Fused, [s, t, u], round()?, flags)),
            FmsubS => S(float::arithmetic::<F32>(Arithmetic::Fused, [s, t, u ^ SIGN_32], round()?, flags)),
            FnmsubS => S(float::arithmetic::<F32>(Arithmetic::Fused, [s ^ SIGN_32, t, u], round()?, flags)),
            FnmaddS => {
                S(float::arithmetic::<F32>(Arithmetic::Fused, [s ^ SIGN_32, t, u ^ SIGN_32], round()?, flags))
            }
            FaddD => D(float::arithmetic::<F64>(Arithmetic::Add, [a, b, 0], round()?, flags)),
            FsubD => D(float::arithmetic::<F64>(Arithmetic::Sub, [a, b, 0], round()?, flags)),
            FmulD => D(float::arithmetic::<F64>(Arithmetic::Mul, [a, b, 0], round()?, flags)),
            FdivD => D(float::arithmetic::<F64>(Arithmetic::Div, [a, b, 0], round()?, flags)),
            FmaddD => D(float::arithmetic::<F64>(Arithmetic::Fused, [a, b, c], round()?, flags)),
            FmsubD => D(float::arithmetic::<F64>(Arithmetic::Fused, [a, b, c ^ SIGN_64], round()?, flags)),
            FnmsubD => D(float::arithmetic::<F64>(Arithmetic::Fused, [a ^ SIGN_64, b, c], round()?, flags)),
            FnmaddD => {
                D(float::arithmetic::<F64>(Arithmetic::Fused, [a ^ SIGN_64, b, c ^ SIGN_64], round()?, flags))
            }
            FsqrtS => S(float::square_root::<F32>(s, round()?, flags)),
            FsqrtD => D(float::square_root::<F64>(a, round()?, flags)),

            FsgnjS => S(s & !SIGN_32 | t & SIGN_32),
            FsgnjnS => S(s & !SIGN_32 | !t & SIGN_32),
            FsgnjxS => S(s ^ t & SIGN_32),
            FsgnjD => D(a & !SIGN_64 | b & SIGN_64),
            FsgnjnD => D(a & !SIGN_64 | !b & SIGN_64),
            FsgnjxD => D(a ^ b & SIGN_64),
            FminS => S(float::extreme::<F32>(s, t, false, flags)),
            FmaxS => S(float::extreme::<F32>(s, t, true, flags)),
            FminD => D(float::extreme::<F64>(a, b, false, flags)),
            FmaxD => D(float::extreme::<F64>(a, b, true, flags)),

            FeqS => X(float::equal::<F32>(s, t, flags).into()),
            FltS => X(float::less::<F32>(s, t, false, flags).into()),
            FleS => X(float::less::<F32>(s, t, true, flags).into()),
            FeqD => X(float::equal::<F64>(a, b, flags).into()),
            FltD => X(float::less::<F64>(a, b, false, flags).into()),
            FleD => X(float::less::<F64>(a, b, true, flags).into()),
            FclassS => X(float::classify::<F32>(s)),
            FclassD => X(float::classify::<F64>(a)),

            FmvXW => X(a as i32 as u64),
            FmvWX => S(x),
            FmvXD => X(a),
            FmvDX => D(x),
            FcvtSD => S(float::double_to_single(a, round()?, flags)),
            FcvtDS => {
                round()?;
                D(float::single_to_double(s, flags))
            }
            FcvtWS => X(to_integer::<F32, i32>(s, round()?, flags)),
            FcvtWuS => X(to_integer::<F32, u32>(s, round()?, flags)),
            FcvtLS => X(to_integer::<F32, i64>(s, round()?, flags)),
            FcvtLuS => X(to_integer::<F32, u64>(s, round()?, flags)),
            FcvtWD => X(to_integer::<F64, i32>(a, round()?, flags)),
            FcvtWuD => X(to_integer::<F64, u32>(a, round()?, flags)),
            FcvtLD => X(to_integer::<F64, i64>(a, round()?, flags)),
            FcvtLuD => X(to_integer::<F64, u64>(a, round()?, flags)),
            FcvtSW => S(float::from_integer::<F32>((x as i32).into(), round()?, flags)),
            FcvtSWu => S(float::from_integer::<F32>((x as u32).into(), round()?, flags)),
            FcvtSL => S(float::from_integer::<F32>((x as i64).into(), round()?, flags)),
            FcvtSLu => S(float::from_integer::<F32>(x.into(), round()?, flags)),
            FcvtDW => D(float::from_integer::<F64>((x as i32).into(), round()?, flags)),
            FcvtDWu => D(float::from_integer::<F64>((x as u32).into(), round()?, flags)),
            FcvtDL => D(float::from_integer::<F64>((x as i64).into(), round()?, flags)),
            FcvtDLu => D(float::from_integer::<F64>(x.into(), round()?, flags)),
            _ => return Err(illegal(i)),
        })
    }
}

/// A single-precision value out of its box; an unboxed value counts as a NaN (RISC-V Unpriv §21.2).
fn unbox(register: u64) -> u64 {
    if register & BOX == BOX { register & !BOX } else { F32::CANONICAL_NAN }
}

/// The result types of conversions to integers. Words are sign-extended, unsigned ones too.
trait Integer {
    const LOW: i128;
    const HIGH: i128;
    fn extend(value: i128) -> u64;
}

macro_rules! integer {
    ($($integer:ty, $signed:ty;)*) => {
        $(impl Integer for $integer {
            const LOW: i128 = <$integer>::MIN as i128;
            const HIGH: i128 = <$integer>::MAX as i128;
            fn extend(value: i128) -> u64 {
                value as $signed as u64
            }
        })*
    };
}

integer! { i32, i32; u32, i32; i64, i64; u64, i64; }

fn to_integer<F: Format, N: Integer>(a: u64, round: rustc_apfloat::Round, flags: &mut u8) -> u64 {
    N::extend(float::to_integer::<F>(a, N::LOW, N::HIGH, round, flags))
}
