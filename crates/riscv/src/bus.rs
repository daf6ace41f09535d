//! A hart's view of the world: memory, and the CSRs that its platform implements.

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

    /// How often memory that [`Bus::fetch_word`] had read before was written to: while the number stays, the words do. `None` if the bus
    /// does not count.
    #[inline(always)]
    fn code_changes(&self) -> Option<u64> {
        None
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
    /// The lines that instructions were fetched from, by bit.
    fetched: Vec<u64>,
    /// How often a store changed one of them.
    code_changes: u64,
}

/// Bytes, as a power of two, of a line that instructions were fetched from.
const LINE_BITS: u32 = 6;
/// Lines, as a power of two, in a word of bits.
const LINES_BITS: u32 = 6;

impl Ram {
    /// `size_bytes` zeroes at `base`.
    pub fn new(base: u64, size_bytes: usize) -> Ram {
        let fetched = vec![0; (size_bytes >> (LINE_BITS + LINES_BITS)) + 1];
        Ram { base, bytes: vec![0; size_bytes], fetched, code_changes: 0 }
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

    /// The same bytes, mutably.
    pub fn slice_mut(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let range = start..start.checked_add(length)?;
        if range.end <= self.bytes.len() && length > 0 {
            let mut lines = start >> LINE_BITS..=(range.end - 1) >> LINE_BITS;
            self.code_changes += u64::from(lines.any(|line| self.is_fetched(line)));
        }
        self.bytes.get_mut(range)
    }

    #[inline(always)]
    fn is_fetched(&self, line: usize) -> bool {
        self.fetched[line >> LINES_BITS] >> (line % (1 << LINES_BITS)) & 1 != 0
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
        let start = usize::try_from(address.wrapping_sub(self.base)).map_err(|_| AccessFault)?;
        let room = self.bytes.get_mut(start..).ok_or(AccessFault)?;
        let value = value.to_le_bytes();
        match bytes {
            1 => *room.first_chunk_mut().ok_or(AccessFault)? = [value[0]],
            2 => *room.first_chunk_mut().ok_or(AccessFault)? = [value[0], value[1]],
            4 => *room.first_chunk_mut().ok_or(AccessFault)? = [value[0], value[1], value[2], value[3]],
            8 => *room.first_chunk_mut().ok_or(AccessFault)? = value,
            _ => return Err(AccessFault),
        }
        // No access is misaligned here unless its hart allows that; then it also touches the next line.
        let lines = [start >> LINE_BITS, (start + usize::from(bytes) - 1) >> LINE_BITS];
        self.code_changes += u64::from(self.is_fetched(lines[0]) || self.is_fetched(lines[1]));
        Ok(())
    }

    #[inline(always)]
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        let start = usize::try_from(address.wrapping_sub(self.base)).map_err(|_| AccessFault)?;
        let word = self.bytes.get(start..).and_then(|rest| rest.first_chunk()).ok_or(AccessFault)?;
        let line = start >> LINE_BITS;
        self.fetched[line >> LINES_BITS] |= 1 << (line % (1 << LINES_BITS));
        Ok(u32::from_le_bytes(*word))
    }

    #[inline(always)]
    fn code_changes(&self) -> Option<u64> {
        Some(self.code_changes)
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

    #[test]
    fn whoever_writes_where_instructions_were_fetched_is_counted() {
        let mut ram = Ram::new(0x1000, 0x3000);
        assert_eq!(ram.store(0x1080, 8, 0x13), Ok(()));
        assert_eq!(ram.code_changes(), Some(0));
        assert_eq!(ram.fetch_word(0x1080), Ok(0x13));
        // Stores to the lines beside it, and loads, do not count.
        assert_eq!(ram.store(0x1078, 8, 1), Ok(()));
        assert_eq!(ram.store(0x10c0, 1, 1), Ok(()));
        assert_eq!(ram.load(0x1080, 8), Ok(0x13));
        assert!(ram.slice_mut(0x1040, 64).is_some());
        assert!(ram.slice_mut(0x1080, 0).is_some());
        assert_eq!(ram.code_changes(), Some(0));
        assert_eq!(ram.store(0x10bf, 1, 1), Ok(()));
        assert_eq!(ram.code_changes(), Some(1));
        assert!(ram.slice_mut(0x1000, 0x3000).is_some());
        assert_eq!(ram.code_changes(), Some(2));
        assert!(ram.slice_mut(0x1000, 0x3001).is_none());
        assert_eq!(ram.store(0x4000, 1, 1), Err(AccessFault));
        assert_eq!(ram.code_changes(), Some(2));
    }
}
