//! Tells by its first blocks which file system a disk or a partition holds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The names that a file system has.
#[derive(Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The name by which it is mounted.
    pub kind: &'static str,
    /// In the usual notation: lower-case hexadecimal digits with hyphens.
    pub uuid: String,
    pub label: String,
}

/// The file systems that a root may have. They are tried in this order when nothing tells which it
/// is.
pub const KINDS: [&str; 4] = ["ext4", "xfs", "btrfs", "ext2"];

/// Where a kind of file system has its fields, in bytes from the start of the disk.
struct Layout {
    kind: &'static str,
    magic: (u64, &'static [u8]),
    uuid: u64,
    label: (u64, usize),
}

/// ext2 to ext4: Linux, Documentation/filesystems/ext4/super.rst. XFS: fs/xfs/libxfs/xfs_format.h,
/// `xfs_dsb`. Btrfs: include/uapi/linux/btrfs_tree.h, `btrfs_super_block`.
const LAYOUTS: [Layout; 3] = [
    Layout {
        kind: "ext4",
        magic: (0x438, b"\x53\xef"),
        uuid: 0x468,
        label: (0x478, 16),
    },
    Layout {
        kind: "xfs",
        magic: (0, b"XFSB"),
        uuid: 32,
        label: (108, 12),
    },
    Layout {
        kind: "btrfs",
        magic: (0x1_0040, b"_BHRfS_M"),
        uuid: 0x1_0020,
        label: (0x1_012b, 256),
    },
];

/// Returns `None` if the device holds none that is known here.
pub fn probe(device: &File) -> io::Result<Option<FileSystem>> {
    for layout in &LAYOUTS {
        let (at, magic) = layout.magic;
        if read(device, at, magic.len())? == magic {
            let label = read(device, layout.label.0, layout.label.1)?;
            let end = label.iter().position(|byte| *byte == 0).unwrap_or(label.len());
            return Ok(Some(FileSystem {
                kind: layout.kind,
                uuid: uuid_text(&read(device, layout.uuid, 16)?),
                label: String::from_utf8_lossy(&label[..end]).into_owned(),
            }));
        }
    }
    Ok(None)
}

/// Reads so many bytes; fewer at the end of the device.
fn read(device: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match device.read_at(&mut data[filled..], at + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    data.truncate(filled);
    Ok(data)
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(fields: &[(u64, &[u8])]) -> File {
        let path = std::env::temp_dir().join(format!("disk-{}-{:?}", std::process::id(), std::thread::current().id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(0x2_0000).unwrap();
        for (at, data) in fields {
            file.write_all_at(data, *at).unwrap();
        }
        file
    }

    const UUID: [u8; 16] = [0x48, 0xac, 6, 0x0d, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

    #[test]
    fn known_kinds_are_told_with_their_names() {
        for layout in &LAYOUTS {
            let file = disk(&[layout.magic, (layout.uuid, &UUID), (layout.label.0, b"my root\0x")]);
            assert_eq!(
                probe(&file).unwrap(),
                Some(FileSystem {
                    kind: layout.kind,
                    uuid: "48ac060d-0102-0304-0506-0708090a0b0c".to_owned(),
                    label: "my root".to_owned(),
                })
            );
        }
    }

    #[test]
    fn anything_else_is_none_also_if_it_is_short() {
        assert_eq!(probe(&disk(&[(0x1fe, b"\x55\xaa")])).unwrap(), None);
        let short = disk(&[(0x438, b"\x53")]);
        short.set_len(0x439).unwrap();
        assert_eq!(probe(&short).unwrap(), None);
    }
}
