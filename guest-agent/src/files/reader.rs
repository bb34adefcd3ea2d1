//! Reads a file for a client, as a whole or without its holes.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use serde::Deserialize;

use super::tree::allocated;
use crate::base::error::{Error, Result, about};
use crate::base::params::{Place, wrong};

/// The parameters of a request that reads a file.
#[derive(Debug, Deserialize)]
pub struct ReadRequest {
    path: Place,
    /// The beginning of the wanted part, in bytes.
    offset: Option<u64>,
    /// The size of the wanted part in bytes. Without it everything up to the end is wanted.
    length: Option<u64>,
    /// Tells whether holes are left out.
    #[serde(default)]
    pub sparse: bool,
}

/// An open file and the part of it that is wanted.
#[derive(Debug)]
pub struct FileReader {
    file: File,
    path: PathBuf,
    offset: u64,
    left: u64,
    pub size: u64,
    pub mode: u32,
    /// The bytes that the file occupies on its file system.
    allocated: u64,
}

impl FileReader {
    /// Opens a regular file. Fails with `BadRequest` for anything else.
    pub fn open(request: ReadRequest) -> Result<Self> {
        let ReadRequest {
            path: Place(path),
            offset,
            length,
            sparse,
        } = request;
        if sparse && (offset.is_some() || length.is_some()) {
            return Err(wrong("sparse", "goes with neither offset nor length"));
        }
        let before = fs::metadata(&path).map_err(|error| about(&path, error))?;
        // The kind is checked before the file is opened, because opening a device may already have
        // an effect.
        require_regular(&before, &path)?;
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&path)
            .map_err(|error| about(&path, error))?;
        let meta = file.metadata().map_err(|error| about(&path, error))?;
        require_regular(&meta, &path)?;
        Ok(Self {
            file,
            path,
            offset: offset.unwrap_or(0),
            left: length.unwrap_or(u64::MAX),
            size: meta.len(),
            mode: meta.mode() & 0o7777,
            allocated: allocated(&meta),
        })
    }

    /// Fills the buffer from the front. Returns the number of bytes, which is 0 at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let limit = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        loop {
            match self.file.read_at(&mut buffer[..limit], self.offset) {
                Ok(count) => {
                    self.offset += count as u64;
                    self.left -= count as u64;
                    return Ok(count);
                }
                // This is a log of the kernel: what it holds now is all there is.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // This file cannot be read at a position, so it is read in sequence.
                Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => {
                    return self.read_on(&mut buffer[..limit]);
                }
                Err(error) => return Err(about(&self.path, error)),
            }
        }
    }

    /// Tells whether the file has fewer blocks than its size needs. Only then `next_data` can find
    /// a hole.
    pub fn may_have_holes(&self) -> bool {
        self.allocated < self.size
    }

    /// Returns the size of the file in bytes, which may have changed since it was opened.
    pub fn size_now(&self) -> Result<u64> {
        let meta = self.file.metadata().map_err(|error| about(&self.path, error))?;
        Ok(meta.len())
    }

    /// Returns the first range of data at or after `offset`, as the positions of its start and its
    /// end in bytes. Returns `None` when only a hole is left up to the end of the file.
    pub fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let start = match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // The file system cannot tell, so everything is taken for data.
            Err(_) => return Ok(Some((offset, u64::MAX))),
        };
        let end = match seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end,
            // The file has changed in between; reading finds out where the data ends.
            _ => u64::MAX,
        };
        Ok(Some((start, end)))
    }

    /// Makes the next read begin at this byte.
    pub fn go_to(&mut self, offset: u64) {
        self.offset = offset;
    }

    fn read_on(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let result = io::Read::read(&mut self.file, buffer);
        let count = match result {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            result => result.map_err(|error| about(&self.path, error))?,
        };
        self.left -= count as u64;
        Ok(count)
    }
}

fn require_regular(meta: &Metadata, path: &Path) -> Result<()> {
    if meta.is_file() {
        Ok(())
    } else {
        Err(Error::BadRequest(format!("{}: not a regular file", path.display())))
    }
}

/// The size in bytes of the header of a record: 8 bytes of position and 4 bytes of length, both
/// big-endian.
pub const RECORD_HEADER: usize = 12;

/// A file as a sequence of records without its holes. Each record is a header and its data. The
/// last one has no data and stands at the end of the file.
#[derive(Debug)]
pub struct Extents {
    reader: FileReader,
    at: u64,
    /// There is data up to this position.
    data_end: u64,
    is_ended: bool,
}

impl Extents {
    /// Makes records of a file. `reader` must stand at its beginning.
    pub fn new(reader: FileReader) -> Self {
        // Files that the kernel makes up have no blocks and may not know where their data is.
        let data_end = if reader.may_have_holes() { 0 } else { u64::MAX };
        Self {
            reader,
            at: 0,
            data_end,
            is_ended: false,
        }
    }

    /// Puts the next record into `buffer`, which must be larger than a header. Returns the size of
    /// the record in bytes, which is 0 after the last one.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.is_ended {
            return Ok(0);
        }
        let (header, room) = buffer.split_at_mut(RECORD_HEADER);
        if self.at >= self.data_end {
            self.find_data()?;
        }
        let wanted = usize::try_from(self.data_end - self.at)
            .unwrap_or(usize::MAX)
            .min(room.len());
        let count = if self.is_ended {
            0
        } else {
            self.reader.read(&mut room[..wanted])?
        };
        self.is_ended = count == 0;
        header[..8].copy_from_slice(&self.at.to_be_bytes());
        header[8..].copy_from_slice(&(count as u32).to_be_bytes());
        self.at += count as u64;
        Ok(RECORD_HEADER + count)
    }

    fn find_data(&mut self) -> Result<()> {
        // The size is taken first, so that what is appended in between is not taken for a hole.
        let size = self.reader.size_now()?;
        match self.reader.next_data(self.at)? {
            Some((start, end)) => (self.at, self.data_end) = (start, end),
            None => {
                self.at = self.at.max(size);
                self.data_end = self.at;
                self.is_ended = true;
            }
        }
        self.reader.go_to(self.at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("quicksand-sparse-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn records(path: PathBuf, room: usize) -> Vec<(u64, Vec<u8>)> {
        let request = ReadRequest {
            path: Place(path),
            offset: None,
            length: None,
            sparse: true,
        };
        let mut extents = Extents::new(FileReader::open(request).unwrap());
        let mut found = Vec::new();
        let mut buffer = vec![0; RECORD_HEADER + room];
        loop {
            let count = extents.read(&mut buffer).unwrap();
            if count == 0 {
                return found;
            }
            let place = u64::from_be_bytes(buffer[..8].try_into().unwrap());
            let length = u32::from_be_bytes(buffer[8..RECORD_HEADER].try_into().unwrap()) as usize;
            assert_eq!(count, RECORD_HEADER + length);
            found.push((place, buffer[RECORD_HEADER..count].to_vec()));
        }
    }

    #[test]
    fn holes_are_left_out_and_the_end_is_told() {
        let scratch = Scratch::new("holes");
        let file = File::create(&scratch.0).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"here", 32 << 20).unwrap();
        let found = records(scratch.0.clone(), 1 << 20);
        let bytes: usize = found.iter().map(|(_, data)| data.len()).sum();
        assert!(bytes < 1 << 20, "{bytes} bytes of data");
        assert!(found.iter().any(|(at, data)| {
            let start = (32 << 20) - at;
            data.get(start as usize..start as usize + 4) == Some(b"here")
        }));
        assert_eq!(found.last().unwrap(), &(64 << 20, Vec::new()));
    }

    #[test]
    fn a_file_without_holes_comes_whole_in_pieces() {
        let scratch = Scratch::new("whole");
        fs::write(&scratch.0, b"0123456789").unwrap();
        let found = records(scratch.0.clone(), 4);
        let expected = [(0, "0123"), (4, "4567"), (8, "89"), (10, "")];
        assert_eq!(found, expected.map(|(at, data)| (at, data.as_bytes().to_vec())));
    }

    #[test]
    fn an_empty_file_and_a_hole_alone_are_their_ends() {
        let scratch = Scratch::new("empty");
        let file = File::create(&scratch.0).unwrap();
        assert_eq!(records(scratch.0.clone(), 9), [(0, Vec::new())]);
        file.set_len(5 << 30).unwrap();
        assert_eq!(records(scratch.0.clone(), 9), [(5 << 30, Vec::new())]);
    }

    #[test]
    fn files_that_the_kernel_makes_up_are_read_to_their_end() {
        let found = records("/proc/self/status".into(), 100);
        let text: Vec<u8> = found.iter().flat_map(|(_, data)| data.clone()).collect();
        assert!(String::from_utf8(text).unwrap().contains("VmRSS"));
        let found = records("/sys/kernel/mm/transparent_hugepage/enabled".into(), 4096);
        assert!(found[0].1.ends_with(b"\n"));
        assert_eq!(found[1], (found[0].1.len() as u64, Vec::new()));
    }
}
