//! The kernel's list of a range of this process's memory.
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
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nature {
    /// Private, readable and writable, behind no file, and not the stack.
    Private,
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

/// The pieces of a range, in order and without gaps.
pub(super) fn pieces_of(range: &Range<usize>) -> io::Result<Vec<Piece>> {
    Ok(pieces(&fs::read_to_string("/proc/self/maps")?, range))
}

fn pieces(text: &str, range: &Range<usize>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = range.start;
    for piece in text.lines().filter_map(parse) {
        let (start, end) = (piece.range.start.max(at), piece.range.end.min(range.end));
        if start >= end {
            continue;
        }
        if start > at {
            append(&mut pieces, Piece { range: at..start, nature: Nature::Other });
        }
        let nature = match piece.nature {
            Nature::Shared { file, offset } => {
                Nature::Shared { file, offset: offset + (start - piece.range.start) as u64 }
            }
            nature => nature,
        };
        append(&mut pieces, Piece { range: start..end, nature });
        at = end;
    }
    if at < range.end {
        append(&mut pieces, Piece { range: at..range.end, nature: Nature::Other });
    }
    pieces
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
        if continues && last.range.end == piece.range.start {
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
    let nature = match permissions {
        "rw-p" if inode == 0 && (name.is_empty() || name == "[heap]" || name.starts_with("[anon:")) => {
            Nature::Private
        }
        "rw-s" if inode != 0 => {
            let file = FileId { major: hex(major)? as u32, minor: hex(minor)? as u32, inode };
            Nature::Shared { file, offset }
        }
        _ => Nature::Other,
    };
    Some(Piece { range, nature })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        00001000-00003000 rw-p 00000000 00:00 0                          [heap]\n\
        00003000-00004000 rw-p 00000000 00:00 0 \n\
        00005000-00006000 rw-s 00002000 00:19 77                         /dev/shm/a b (deleted)\n\
        00006000-00007000 rw-s 00003000 00:19 77                         /dev/shm/a b (deleted)\n\
        00007000-00008000 rw-s 00009000 00:19 77                         /dev/shm/a b (deleted)\n\
        00008000-00009000 r--p 00000000 00:00 0 \n\
        0000a000-0000b000 rw-p 00000000 00:00 0                          [stack]\n";

    #[test]
    fn a_range_falls_into_pieces_of_one_nature() {
        let file = FileId { major: 0, minor: 0x19, inode: 77 };
        let piece = |range, nature| Piece { range, nature };
        assert_eq!(
            pieces(MAPS, &(0x2000..0xb000)),
            [
                piece(0x2000..0x4000, Nature::Private),
                piece(0x4000..0x5000, Nature::Other),
                piece(0x5000..0x7000, Nature::Shared { file, offset: 0x2000 }),
                piece(0x7000..0x8000, Nature::Shared { file, offset: 0x9000 }),
                piece(0x8000..0xb000, Nature::Other),
            ]
        );
        let within = pieces(MAPS, &(0x5800..0x6800));
        assert_eq!(within, [piece(0x5800..0x6800, Nature::Shared { file, offset: 0x2800 })]);
    }

    #[test]
    fn this_process_is_understood() {
        let bytes = vec![1u8; 1 << 20];
        let start = bytes.as_ptr() as usize;
        let pieces = pieces_of(&(start..start + bytes.len())).expect("the kernel tells");
        assert_eq!(pieces, [Piece { range: start..start + bytes.len(), nature: Nature::Private }]);
    }
}
