//! The files and directories that a client has open.

use std::collections::HashMap;
use std::fs::{File, ReadDir};
use std::io;
use std::path::PathBuf;

/// The most that may be open at a time, which `limits@openssh.com` tells.
pub const MAX: usize = 1000;

/// An open file or directory.
#[derive(Debug)]
pub enum Opened {
    File {
        file: File,
        /// Writes go to the end, whatever offset they have.
        appends: bool,
    },
    Directory {
        path: PathBuf,
        entries: ReadDir,
        is_begun: bool,
    },
}

#[derive(Debug, Default)]
pub struct Handles {
    opened: HashMap<u32, Opened>,
    last: u32,
}

impl Handles {
    /// Fails with EMFILE when too many are open.
    pub fn add(&mut self, opened: Opened) -> io::Result<[u8; 4]> {
        if self.opened.len() >= MAX {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        self.last = self.last.wrapping_add(1);
        self.opened.insert(self.last, opened);
        Ok(self.last.to_be_bytes())
    }

    /// Fails with EBADF when there is none of this name.
    pub fn find(&mut self, name: &[u8]) -> io::Result<&mut Opened> {
        number(name).and_then(|number| self.opened.get_mut(&number).ok_or_else(bad))
    }

    pub fn file(&mut self, name: &[u8]) -> io::Result<(&File, bool)> {
        match self.find(name)? {
            Opened::File { file, appends } => Ok((file, *appends)),
            Opened::Directory { .. } => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        }
    }

    pub fn close(&mut self, name: &[u8]) -> io::Result<()> {
        number(name).and_then(|number| self.opened.remove(&number).map(drop).ok_or_else(bad))
    }
}

fn number(name: &[u8]) -> io::Result<u32> {
    name.try_into().map(u32::from_be_bytes).map_err(|_| bad())
}

fn bad() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}
