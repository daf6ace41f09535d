use super::*;
use crate::rows::Kind;
use highwire_stdx::Rng;

/// A folder that is removed with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn scratch(name: &str) -> Scratch {
    let path = std::env::temp_dir().join(format!("highwire-backup-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder");
    Scratch(path)
}

fn cell(number: u64, bytes: usize) -> BackupEntry {
    let kind = if number.is_multiple_of(5) { Kind::Fields } else { Kind::Bytes };
    let table = format!("table-{}", number % 3).into_bytes();
    let expires = number.is_multiple_of(7).then_some(number + 1);
    BackupEntry { table, key: number.to_le_bytes().to_vec(), kind, expires, value: vec![number as u8; bytes] }
}

fn write(path: &Path, identity: u64, cells: &[BackupEntry]) -> BackupContents {
    let mut writer = Writer::create(path, identity, 7, 3).expect("a file");
    cells.iter().for_each(|cell| writer.add(cell).expect("written"));
    writer.finish().expect("durable")
}

fn read(path: &Path) -> Result<Vec<BackupEntry>, BackupFileError> {
    let mut reader = Reader::open(path)?;
    let mut cells = Vec::new();
    while let Some(block) = reader.next_block()? {
        cells.extend(block);
    }
    Ok(cells)
}

#[test]
fn a_backup_comes_back_as_it_was_written_and_no_draft_stays() {
    let folder = scratch("whole");
    let path = folder.0.join("bank");
    for count in [0, 1, 64, 65, 500] {
        let cells: Vec<BackupEntry> =
            (0..count).map(|number| cell(number, (number * 7 % 3500) as usize)).collect();
        let written = write(&path, 11, &cells);
        assert_eq!(read(&path).expect("it is whole"), cells);
        assert_eq!(Reader::open(&path).and_then(Reader::survey).expect("it is whole"), written);
        assert_eq!(written.entries(), count);
        assert_eq!(written.bytes, std::fs::metadata(&path).expect("a file").len());
    }
    assert_eq!(std::fs::read_dir(&folder.0).expect("a folder").count(), 1);
    drop(Writer::create(&folder.0.join("other"), 1, 1, 1).expect("a file"));
    assert_eq!(std::fs::read_dir(&folder.0).expect("a folder").count(), 1, "a draft stays behind");
}

#[test]
fn a_backup_of_the_format_without_times_is_read() {
    let folder = scratch("earlier");
    let path = folder.0.join("bank");
    let cells: Vec<BackupEntry> =
        (0..100).map(|number| BackupEntry { expires: None, ..cell(number, 30) }).collect();
    write(&path, 11, &cells);
    let mut bytes = std::fs::read(&path).expect("a file");
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    let check = check_of(&[&bytes[..HEADER_BYTES]]);
    bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&check.to_le_bytes());
    std::fs::write(&path, bytes).expect("written");
    assert_eq!(read(&path).expect("it is whole"), cells);
}

#[test]
fn a_file_that_is_cut_bent_or_longer_is_refused_wherever_that_is() {
    let folder = scratch("damage");
    let path = folder.0.join("bank");
    let cells: Vec<BackupEntry> = (0..150).map(|number| cell(number, 9)).collect();
    write(&path, 11, &cells);
    let whole = std::fs::read(&path).expect("a file");
    let refusal = |bytes: &[u8]| {
        let file = Box::new(io::Cursor::new(bytes.to_vec()));
        Reader::over(&path, file).and_then(Reader::survey).expect_err("it is refused")
    };
    for end in 0..whole.len() {
        match (refusal(&whole[..end]), end) {
            (BackupFileError::Foreign(_), ..8) => {}
            (BackupFileError::Truncated(_, at), _) => assert_eq!(at, end as u64),
            (error, _) => panic!("cut at {end}: {error}"),
        }
    }
    let mut rng = Rng::new(1);
    for at in 0..whole.len() {
        let mut bent = whole.clone();
        bent[at] ^= 1 << rng.below(8);
        match (refusal(&bent), at) {
            (BackupFileError::Foreign(_), ..8) | (BackupFileError::Newer(..), 8..12) => {}
            // A longer length reaches beyond the end.
            (BackupFileError::Damaged(..) | BackupFileError::Truncated(..), 8..) => {}
            (error, _) => panic!("bent at {at}: {error}"),
        }
    }
    assert!(refusal(&[&whole[..], &[0]].concat()).to_string().contains("is damaged"));
    let newer = [&MAGIC[..], &3u32.to_le_bytes(), b"whatever"].concat();
    assert!(refusal(&newer).to_string().contains("has format 3; this program knows format 2"));
    assert!(refusal(b"dear reader").to_string().contains("is no backup of a store"));
}

#[test]
fn blocks_of_another_file_or_in_another_order_are_refused() {
    let folder = scratch("blocks");
    let (path, other) = (folder.0.join("bank"), folder.0.join("other"));
    // All blocks have one length, so that they fit into each other's places.
    let cells: Vec<BackupEntry> =
        (0..192).map(|number| BackupEntry { expires: None, ..cell(number, 9) }).collect();
    write(&path, 11, &cells);
    write(&other, 12, &cells);
    let [whole, foreign] = [&path, &other].map(|path| std::fs::read(path).expect("a file"));
    let header = HEADER_BYTES + 4;
    let block = 8 + u32::from_le_bytes(whole[header..header + 4].try_into().expect("four")) as usize;
    let check = |bytes: Vec<u8>| {
        std::fs::write(&path, bytes).expect("written");
        let error = Reader::open(&path).and_then(Reader::survey).expect_err("it is refused");
        assert!(matches!(error, BackupFileError::Damaged(..)), "{error}");
    };
    let (first, second, third) = (header, header + block, header + 2 * block);
    check([&whole[..first], &whole[second..third], &whole[first..second], &whole[third..]].concat());
    check([&whole[..second], &foreign[second..third], &whole[third..]].concat());
    // One block less, and one more.
    check([&whole[..third], &whole[third + block..]].concat());
    check([&whole[..second], &whole[first..second], &whole[second..]].concat());
}

/// A reader learns of a block in the wrong place before it uses it, and not at the end of the file.
#[test]
fn a_block_in_the_place_of_another_is_refused_itself() {
    let folder = scratch("places");
    let path = folder.0.join("bank");
    let cells: Vec<BackupEntry> = (0..4 * BLOCK_ENTRIES_MAX as u64).map(|number| cell(number, 10)).collect();
    write(&path, 11, &cells);
    let whole = std::fs::read(&path).expect("a file");
    let mut at = HEADER_BYTES + 4;
    let mut blocks = Vec::new();
    loop {
        let length = u32::from_le_bytes(whole[at..at + 4].try_into().expect("four")) as usize;
        if length == 0 {
            break;
        }
        blocks.push(at..at + 8 + length);
        at += 8 + length;
    }
    assert!(blocks.len() >= 3, "{blocks:?}");
    for place in 0..blocks.len() {
        for other in (0..blocks.len()).filter(|&other| other != place) {
            let mut bytes = whole[..blocks[place].start].to_vec();
            bytes.extend_from_slice(&whole[blocks[other].clone()]);
            bytes.extend_from_slice(&whole[blocks[place].end..]);
            let mut reader = Reader::over(&path, Box::new(std::io::Cursor::new(bytes))).expect("a header");
            for _ in 0..place {
                assert!(reader.next_block().expect("it is in its place").is_some());
            }
            assert!(reader.next_block().is_err(), "block {other} was taken for block {place}");
        }
    }
}
