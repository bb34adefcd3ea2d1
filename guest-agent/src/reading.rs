//! Opening a file for a client to read.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::about;
use crate::params::Params;

/// A file that is open, and the part of it that is wanted.
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    offset: u64,
    left: u64,
    pub size: u64,
    pub mode: u32,
}

impl Reader {
    pub fn open(path: PathBuf, offset: u64, length: Option<u64>) -> Result<Self> {
        let before = fs::metadata(&path).map_err(|error| about(&path, error))?;
        // Looked at first: opening a device may already do something.
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
            offset,
            left: length.unwrap_or(u64::MAX),
            size: meta.len(),
            mode: meta.mode() & 0o7777,
        })
    }

    pub fn from_params(params: &Params) -> Result<impl FnOnce() -> Result<Self> + Send + 'static> {
        let path = params.path("path")?;
        let offset = params.opt_u64("offset")?.unwrap_or(0);
        let length = params.opt_u64("length")?;
        Ok(move || Self::open(path, offset, length))
    }

    /// Fills the buffer from the front; 0 at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let limit = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        loop {
            match self.file.read_at(&mut buffer[..limit], self.offset) {
                Ok(count) => {
                    self.offset += count as u64;
                    self.left -= count as u64;
                    return Ok(count);
                }
                // A log of the kernel's: what is there now is what there is.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A file that knows no positions is read as it comes.
                Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => {
                    return self.read_on(&mut buffer[..limit]);
                }
                Err(error) => return Err(about(&self.path, error)),
            }
        }
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
