//! The kernel's list of this process's memory.
//!
//! Programs unmap, map again and move memory without telling the library, so it trusts no other source.

use std::fs;
use std::io;
use std::ops::Range;

/// A stretch of memory of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) nature: Nature,
    /// The rights, as `mprotect` takes them.
    pub(super) rights: libc::c_int,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nature {
    /// Private, readable and writable, behind no file, and not the stack.
    Private,
    /// A private view of a file, readable and writable.
    PrivateFile,
    /// Shared memory of a file.
    Shared { file: FileId, offset: u64 },
    /// Anything else, or nothing.
    Other,
}

/// A file, as the kernel names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FileId {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) inode: u64,
}

/// Every mapping of the process, in order, as the kernel has them.
#[derive(Debug)]
pub(super) struct Mappings(Vec<Piece>);

impl Mappings {
    pub(super) fn read() -> io::Result<Mappings> {
        Ok(Mappings::parse(&fs::read_to_string("/proc/self/maps")?))
    }

    /// The kernel writes its list in parts. What changes between two of them may stand in both: the first line counts.
    fn parse(text: &str) -> Mappings {
        let mut end = 0;
        let mut pieces = Vec::new();
        for piece in text.lines().filter_map(parse) {
            if piece.range.end > end {
                let piece = piece.cut(&(end..usize::MAX));
                end = piece.range.end;
                pieces.push(piece);
            }
        }
        Mappings(pieces)
    }

    /// The pieces of a range, in order and without gaps.
    pub(super) fn pieces(&self, range: &Range<usize>) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = range.start;
        let nothing = |range| Piece { range, nature: Nature::Other, rights: libc::PROT_NONE };
        for piece in self.within(range) {
            if piece.range.start > at {
                append(&mut pieces, nothing(at..piece.range.start));
            }
            at = piece.range.end;
            append(&mut pieces, piece);
        }
        if at < range.end {
            append(&mut pieces, nothing(at..range.end));
        }
        pieces
    }

    /// The kernel's own mappings, as far as they lie in a range. Calls that move memory take one at a time.
    pub(super) fn within(&self, range: &Range<usize>) -> Vec<Piece> {
        let first = self.0.partition_point(|piece| piece.range.end <= range.start);
        let touching = self.0[first..].iter().take_while(|piece| piece.range.start < range.end);
        touching.map(|piece| piece.cut(range)).collect()
    }

    /// Every mapping of a file.
    pub(super) fn of(&self, wanted: FileId) -> impl Iterator<Item = &Piece> {
        self.0
            .iter()
            .filter(move |piece| matches!(piece.nature, Nature::Shared { file, .. } if file == wanted))
    }
}

impl Piece {
    /// The part of it that lies in a range.
    pub(super) fn cut(&self, range: &Range<usize>) -> Piece {
        let (start, end) = (self.range.start.max(range.start), self.range.end.min(range.end));
        let nature = match self.nature {
            Nature::Shared { file, offset } => {
                Nature::Shared { file, offset: offset + (start - self.range.start) as u64 }
            }
            nature => nature,
        };
        Piece { range: start..end.max(start), nature, rights: self.rights }
    }
}

/// The kernel lists stretches separately that differ only in flags that do not matter here.
fn append(pieces: &mut Vec<Piece>, piece: Piece) {
    if let Some(last) = pieces.last_mut() {
        let continues = match (last.nature, piece.nature) {
            (Nature::Shared { file: a, offset }, Nature::Shared { file: b, offset: next }) => {
                a == b && offset + last.range.len() as u64 == next
            }
            (a, b) => a == b,
        };
        if continues && last.range.end == piece.range.start && last.rights == piece.rights {
            last.range.end = piece.range.end;
            return;
        }
    }
    pieces.push(piece);
}

/// One line: `start-end perms offset major:minor inode name`.
fn parse(line: &str) -> Option<Piece> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = hex(start)? as usize..hex(end)? as usize;
    let permissions = words.next()?;
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode: u64 = words.next()?.parse().ok()?;
    let name = words.next().unwrap_or("");
    let bit = |letter, bit| if permissions.contains(letter) { bit } else { libc::PROT_NONE };
    let rights = bit('r', libc::PROT_READ) | bit('w', libc::PROT_WRITE) | bit('x', libc::PROT_EXEC);
    let nature = match permissions {
        "rw-p" if inode == 0 && (name.is_empty() || name == "[heap]" || name.starts_with("[anon:")) => {
            Nature::Private
        }
        "rw-p" if inode != 0 => Nature::PrivateFile,
        _ if permissions.ends_with('s') && inode != 0 => {
            let file = FileId { major: hex(major)? as u32, minor: hex(minor)? as u32, inode };
            Nature::Shared { file, offset }
        }
        _ => Nature::Other,
    };
    Some(Piece { range, nature, rights })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        00001000-00003000 rw-p 00000000 00:00 0                          [heap]\n\
        00003000-00004000 rw-p 00000000 00:00 0 \n\
        00005000-00006000 rw-s 00002000 00:19 77                         /dev/shm/a b (deleted)\n\
        00006000-00007000 rw-s 00003000 00:19 77                         /dev/shm/a b (deleted)\n\
        00007000-00008000 r--s 00009000 00:19 77                         /dev/shm/a b (deleted)\n\
        00008000-00009000 r--p 00000000 00:00 0 \n\
        00009000-0000a000 rw-p 00001000 00:19 78                         /lib/x\n\
        0000a000-0000b000 rw-p 00000000 00:00 0                          [stack]\n";
    const BOTH: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn a_range_falls_into_pieces_of_one_nature() {
        let file = FileId { major: 0, minor: 0x19, inode: 77 };
        let piece = |range, rights, nature| Piece { range, nature, rights };
        let maps = Mappings::parse(MAPS);
        assert_eq!(
            maps.pieces(&(0x2000..0xb000)),
            [
                piece(0x2000..0x4000, BOTH, Nature::Private),
                piece(0x4000..0x5000, libc::PROT_NONE, Nature::Other),
                piece(0x5000..0x7000, BOTH, Nature::Shared { file, offset: 0x2000 }),
                piece(0x7000..0x8000, libc::PROT_READ, Nature::Shared { file, offset: 0x9000 }),
                piece(0x8000..0x9000, libc::PROT_READ, Nature::Other),
                piece(0x9000..0xa000, BOTH, Nature::PrivateFile),
                piece(0xa000..0xb000, BOTH, Nature::Other),
            ]
        );
        let within = maps.pieces(&(0x5800..0x6800));
        assert_eq!(within, [piece(0x5800..0x6800, BOTH, Nature::Shared { file, offset: 0x2800 })]);
        let single: Vec<_> = maps.within(&(0x2000..0x3800)).into_iter().map(|piece| piece.range).collect();
        assert_eq!(single, [0x2000..0x3000, 0x3000..0x3800]);
        assert_eq!(maps.of(file).count(), 3);
    }

    /// As of a list that was read while a mapping grew, and was written twice.
    #[test]
    fn no_page_stands_in_two_pieces() {
        const TWICE: &str = "\
            00001000-00003000 rw-p 00000000 00:00 0 \n\
            00002000-00005000 rw-s 00000000 00:19 77                         /dev/shm/a\n\
            00002000-00005000 rw-s 00000000 00:19 77                         /dev/shm/a\n\
            00006000-00007000 rw-p 00000000 00:00 0 \n\
            00005000-00008000 rw-p 00000000 00:00 0 \n";
        let mappings = Mappings::parse(TWICE);
        let ranges: Vec<_> = mappings.0.iter().map(|piece| piece.range.clone()).collect();
        assert_eq!(ranges, [0x1000..0x3000, 0x3000..0x5000, 0x6000..0x7000, 0x7000..0x8000]);
        let file = FileId { major: 0, minor: 0x19, inode: 77 };
        assert_eq!(mappings.0[1].nature, Nature::Shared { file, offset: 0x1000 });
        let lengths = |pieces: Vec<Piece>| pieces.iter().map(|piece| piece.range.len()).sum::<usize>();
        for end in [0x2000, 0x3000, 0x4000, 0x6800, 0x8000] {
            assert_eq!(
                lengths(mappings.pieces(&(0x1000..end))),
                end - 0x1000,
                "each page once, up to {end:#x}"
            );
        }
    }

    #[test]
    fn this_process_is_understood() {
        let bytes = vec![1u8; 1 << 20];
        let start = bytes.as_ptr() as usize;
        let range = start..start + bytes.len();
        let pieces = Mappings::read().expect("the kernel tells").pieces(&range);
        assert_eq!(pieces, [Piece { range, nature: Nature::Private, rights: BOTH }]);
    }
}
