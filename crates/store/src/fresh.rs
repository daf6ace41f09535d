//! Names that nobody else has chosen. Process numbers are no such names: in containers that share a folder, all processes may have the same
//! number.

use std::io;

/// 32 hexadecimal digits, drawn by the system.
///
/// # Errors
/// The system has no random numbers.
pub fn fresh_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}
