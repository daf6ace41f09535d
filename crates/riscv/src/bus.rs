//! What a hart sees of the world: memory, and the CSRs that somebody else implements.

/// No memory answers at this address, or not in this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessFault;

/// Memory and devices, as one hart reaches them.
///
/// Addresses are physical. `bytes` is 1, 2, 4 or 8, and the hart never asks for a misaligned access: it traps, with an access
/// fault if the address is a device's.
pub trait Bus {
    /// Reads `bytes` little-endian bytes, zero-extended.
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault>;

    /// Writes the low `bytes` bytes of `value`, little-endian.
    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault>;

    /// Whether `address` is a device's, which no cache may hold. Memory begins where it does on Rocket.
    #[inline(always)]
    fn is_device(&self, address: u64) -> bool {
        address < 0x8000_0000
    }

    /// Reads 16 bits of an instruction. `address` is even.
    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        self.load(address, 2).map(|value| value as u16)
    }

    /// Reads the 32 bits at `address`, a multiple of four, as an instruction fetch does.
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        let low = self.fetch(address)?;
        Ok(u32::from(self.fetch(address | 2)?) << 16 | u32::from(low))
    }

    /// Reads a CSR that the hart itself does not have, such as `time` or a device's; nothing if there is none.
    fn read_csr(&mut self, number: u16) -> Option<u64> {
        let _ = number;
        None
    }

    /// Writes a CSR that the hart itself does not have; false if there is none.
    fn write_csr(&mut self, number: u16, value: u64) -> bool {
        let _ = (number, value);
        false
    }

    /// Asks [`crate::Hart::run`] to return after the current instruction.
    fn wants_attention(&self) -> bool {
        false
    }
}

/// Plain memory from a base address upward.
#[derive(Clone, Debug)]
pub struct Ram {
    base: u64,
    bytes: Vec<u8>,
}

impl Ram {
    /// `size_bytes` zeroes at `base`.
    pub fn new(base: u64, size_bytes: usize) -> Ram {
        Ram { base, bytes: vec![0; size_bytes] }
    }

    /// The first address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The bytes `address .. address + length`, if all of them lie in this memory.
    pub fn slice(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// The same bytes, to change them.
    pub fn slice_mut(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get_mut(start..start.checked_add(length)?)
    }
}

impl Bus for Ram {
    /// Devices, if any, lie below.
    #[inline(always)]
    fn is_device(&self, address: u64) -> bool {
        address < self.base
    }

    #[inline(always)]
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        let slice = self.slice(address, usize::from(bytes)).ok_or(AccessFault)?;
        Ok(match *slice {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return Err(AccessFault),
        })
    }

    #[inline(always)]
    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        let length = usize::from(bytes.min(8));
        self.slice_mut(address, length).ok_or(AccessFault)?.copy_from_slice(&value.to_le_bytes()[..length]);
        Ok(())
    }

    #[inline(always)]
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        let start = usize::try_from(address.wrapping_sub(self.base)).map_err(|_| AccessFault)?;
        let word = self.bytes.get(start..).and_then(|rest| rest.first_chunk()).ok_or(AccessFault)?;
        Ok(u32::from_le_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_where_it_ends() {
        let mut ram = Ram::new(0x1000, 16);
        assert_eq!(ram.store(0x1008, 8, u64::MAX), Ok(()));
        assert_eq!(ram.load(0x100c, 4), Ok(0xffff_ffff));
        assert_eq!(ram.load(0x100e, 4), Err(AccessFault));
        assert_eq!(ram.load(0x0fff, 1), Err(AccessFault));
        assert_eq!(ram.load(u64::MAX, 8), Err(AccessFault));
        assert_eq!(ram.store(0x1010, 1, 0), Err(AccessFault));
    }
}
