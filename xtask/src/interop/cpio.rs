//! The archive format of an initramfs ("newc" cpio).
//!
//! Written here because it is sixty lines, needs no root for owners, and gives the same bytes for the same input.

/// An archive under construction.
#[derive(Default)]
pub(super) struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    pub(super) fn dir(&mut self, path: &str) {
        self.entry(path, 0o040_755, &[]);
    }

    /// A file that every user may read and run.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, 0o100_755, content);
    }

    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, 0o120_777, target.as_bytes());
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// A header of thirteen hexadecimal fields, the name, the content; name and content padded to four bytes.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let name = path.trim_start_matches('/');
        let content_len = u32::try_from(content.len()).expect("a file of the initramfs is far below 4 GiB");
        let name_len = u32::try_from(name.len() + 1).expect("a path is short");
        // inode, mode, uid, gid, links, mtime, size, device and rdev (major, minor), name size, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, content_len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Cpio;

    #[test]
    fn an_archive_lists_its_entries_in_order() {
        let mut cpio = Cpio::default();
        cpio.dir("/bin");
        cpio.file("/bin/sh", b"#!");
        let bytes = cpio.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let positions: Vec<_> =
            ["bin\0", "bin/sh\0", "#!", "TRAILER!!!"].iter().map(|s| text.find(s)).collect();
        assert!(positions.iter().all(Option::is_some) && positions.is_sorted());
    }
}
