//! The root file system and its disk.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::base::sys;

const BLKGETSIZE64: u64 = 0x8008_1272;
const EXT4_IOC_RESIZE_FS: u64 = 0x4008_6610;
const FITRIM: u64 = 0xc018_5879;
const FIFREEZE: u64 = 0xc004_5877;
const FITHAW: u64 = 0xc004_5878;
const EXT4_MAGIC: u16 = 0xef53;

/// Grows a mounted ext4 to the size of its device. Returns its sizes before and after in bytes.
/// Fails with ENOTSUP for other file systems.
pub fn grow(device: &Path, mount_point: &Path) -> io::Result<(u64, u64)> {
    let disk = File::open(device)?;
    let mut disk_size = 0u64;
    sys::ioctl(disk.as_fd(), BLKGETSIZE64, &mut disk_size)?;
    let (blocks, block_size) = ext4_size(&disk)?;
    let before = blocks * block_size;
    let mut wanted = disk_size / block_size;
    // The kernel rounds down to whole groups, and growing by a few megabytes is not worth the time.
    if wanted <= blocks || (wanted - blocks) * block_size < 8 << 20 {
        return Ok((before, before));
    }
    let root = File::open(mount_point)?;
    sys::ioctl(root.as_fd(), EXT4_IOC_RESIZE_FS, &mut wanted)?;
    Ok((before, wanted * block_size))
}

/// Reads the number of blocks and the block size in bytes from the superblock.
fn ext4_size(disk: &File) -> io::Result<(u64, u64)> {
    let mut superblock = [0u8; 1024];
    disk.read_exact_at(&mut superblock, 1024)?;
    let word = |at: usize| {
        superblock[at..]
            .first_chunk::<4>()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let is_ext4 = word(0x38) as u16 == EXT4_MAGIC;
    let log_block_size = word(0x18);
    if !is_ext4 || log_block_size > 6 {
        return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
    }
    let has_64bit = word(0x60) & 0x80 != 0;
    let high = if has_64bit { u64::from(word(0x150)) << 32 } else { 0 };
    Ok((high | u64::from(word(0x04)), 1024 << log_block_size))
}

/// Returns the device node of the root file system.
pub fn root_device() -> io::Result<PathBuf> {
    let device = fs::metadata("/")?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let uevent = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"))?;
    uevent
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))
        .map(|name| Path::new("/dev").join(name))
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    min_length: u64,
}

/// Tells the disk which blocks of the file system at `mount_point` are free. Returns their size in
/// bytes.
pub fn trim(mount_point: &Path) -> io::Result<u64> {
    let mut range = TrimRange {
        start: 0,
        length: u64::MAX,
        min_length: 0,
    };
    sys::ioctl(File::open(mount_point)?.as_fd(), FITRIM, &mut range)?;
    Ok(range.length)
}

/// A mounted file system that is held open, so that it can be frozen and thawed.
#[derive(Debug)]
pub struct Mounted(File);

impl Mounted {
    /// Opens the file system at `mount_point`.
    pub fn open(mount_point: &Path) -> io::Result<Self> {
        File::open(mount_point).map(Self)
    }

    /// Writes the dirty pages to the disk.
    pub fn sync(&self) -> io::Result<()> {
        sys::syncfs(self.0.as_fd())
    }

    /// Waits for the writes that run. Writes that come later wait until the file system is thawed.
    pub fn freeze(&self) -> io::Result<()> {
        sys::ioctl_number(self.0.as_fd(), FIFREEZE, 0).map(|_| ())
    }

    /// Fails with EINVAL when it is not frozen.
    pub fn thaw(&self) -> io::Result<()> {
        sys::ioctl_number(self.0.as_fd(), FITHAW, 0).map(|_| ())
    }
}

/// Thaws the file system if a process has left it frozen and ended. Returns whether one had.
pub fn thaw_left_frozen(mount_point: &Path) -> bool {
    Mounted::open(mount_point).and_then(|root| root.thaw()).is_ok()
}

/// Drops the page cache. Only clean pages can be dropped, so dirty ones are written first.
pub fn drop_caches() -> io::Result<()> {
    sys::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}
