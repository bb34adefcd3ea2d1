//! The requests of a client and their answers.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfs;

use super::attributes::{self, Attributes, Subject};
use super::handles::{self, Handles, Opened};
use super::listing::Names;
use super::paths;
use super::wire::{Answers, Fields, PACKET_LIMIT, Short};
use crate::base::sys;

const VERSION: u32 = 3;

/// The types of packets (draft-ietf-secsh-filexfer-02, section 3).
mod kind {
    pub const INIT: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const REALPATH: u8 = 16;
    pub const STAT: u8 = 17;
    pub const RENAME: u8 = 18;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const STATUS: u8 = 101;
    pub const HANDLE: u8 = 102;
    pub const DATA: u8 = 103;
    pub const NAME: u8 = 104;
    pub const ATTRS: u8 = 105;
    pub const EXTENDED: u8 = 200;
    pub const EXTENDED_REPLY: u8 = 201;
}

/// The flags of `OPEN` (section 6.3).
mod flag {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const APPEND: u32 = 4;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const EXCLUSIVE: u32 = 32;
}

/// The codes of `STATUS` (section 7).
mod code {
    pub const OK: u32 = 0;
    pub const EOF: u32 = 1;
    pub const NO_SUCH_FILE: u32 = 2;
    pub const PERMISSION_DENIED: u32 = 3;
    pub const FAILURE: u32 = 4;
    pub const BAD_MESSAGE: u32 = 5;
    pub const UNSUPPORTED: u32 = 8;
}

const EXTENSIONS: [(&str, &str); 8] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
];
/// A packet has room for a header beside so many bytes of data, as with OpenSSH's server.
const DATA_LIMIT: usize = PACKET_LIMIT - 1024;
/// One answer to `READDIR` has at most so many entries, as with OpenSSH's server, and at most so
/// many bytes.
const ENTRIES_MAX: usize = 100;
const ENTRIES_BYTES: usize = 64 * 1024;
/// The mode of what is made when the client gives none. The umask is applied.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;

/// Why a request has no other answer than a status.
#[derive(Debug)]
enum Failure {
    Io(io::Error),
    /// There is nothing more to read.
    End,
    Malformed,
    Unsupported,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<Short> for Failure {
    fn from(_: Short) -> Self {
        Self::Malformed
    }
}

impl Failure {
    fn status(&self) -> (u32, String) {
        match self {
            Self::End => (code::EOF, "end of file".into()),
            Self::Malformed => (code::BAD_MESSAGE, "bad message".into()),
            Self::Unsupported => (code::UNSUPPORTED, "unsupported".into()),
            Self::Io(error) => {
                let code = match error.kind() {
                    ErrorKind::NotFound => code::NO_SUCH_FILE,
                    ErrorKind::PermissionDenied => code::PERMISSION_DENIED,
                    _ => code::FAILURE,
                };
                (code, error.to_string())
            }
        }
    }
}

type Outcome = Result<(), Failure>;

#[derive(Debug, Default)]
pub struct Server {
    is_greeted: bool,
    handles: Handles,
    names: Option<Names>,
}

impl Server {
    /// Adds the answer to a request. Fails only if the client does not begin with `INIT`.
    pub fn answer(&mut self, packet: &[u8], answers: &mut Answers) -> io::Result<()> {
        let mut fields = Fields::new(packet);
        let kind = fields.byte().unwrap_or_default();
        if !self.is_greeted {
            if kind != kind::INIT {
                return Err(io::Error::other("the first packet is not INIT"));
            }
            self.is_greeted = true;
            greet(answers);
            return Ok(());
        }
        // A packet without a number cannot be answered in another way.
        let id = fields.u32().unwrap_or_default();
        let begun = answers.bytes.len();
        let outcome = self.carry_out(kind, id, &mut fields, answers);
        if let Err(failure) = outcome {
            answers.bytes.truncate(begun);
            let (code, message) = failure.status();
            write_status(answers, id, code, &message);
        } else if answers.bytes.len() == begun {
            write_status(answers, id, code::OK, "success");
        }
        Ok(())
    }

    /// Carries out a request. If it adds no answer, the status is `OK`.
    fn carry_out(&mut self, kind: u8, id: u32, fields: &mut Fields<'_>, answers: &mut Answers) -> Outcome {
        match kind {
            kind::OPEN => self.open(id, fields, answers),
            kind::CLOSE => Ok(self.handles.close(fields.string()?)?),
            kind::READ => self.read(id, fields, answers),
            kind::WRITE => self.write(fields),
            kind::STAT => write_attributes(answers, id, &fs::metadata(paths::path(fields.string()?))?),
            kind::LSTAT => write_attributes(answers, id, &fs::symlink_metadata(paths::path(fields.string()?))?),
            kind::FSTAT => self.fstat(id, fields, answers),
            kind::SETSTAT => {
                let path = paths::path(fields.string()?);
                Ok(Attributes::read(fields)?.apply(Subject::Path(&path))?)
            }
            kind::FSETSTAT => {
                let name = fields.string()?;
                let wanted = Attributes::read(fields)?;
                Ok(wanted.apply(Subject::Open(self.handles.file(name)?.0))?)
            }
            kind::OPENDIR => self.open_directory(id, fields, answers),
            kind::READDIR => self.read_directory(id, fields, answers),
            kind::REMOVE => Ok(fs::remove_file(paths::path(fields.string()?))?),
            kind::RMDIR => Ok(fs::remove_dir(paths::path(fields.string()?))?),
            kind::MKDIR => {
                let path = paths::path(fields.string()?);
                let mode = Attributes::read(fields)?.mode.unwrap_or(DIRECTORY_MODE);
                Ok(DirBuilder::new().mode(mode).create(path)?)
            }
            kind::REALPATH => write_name(answers, id, &paths::real(&paths::path(fields.string()?))?),
            kind::RENAME => {
                let [from, to] = two_paths(fields)?;
                // In this version of the protocol nothing is replaced (section 6.5).
                Ok(sys::rename(&from, &to, false)?)
            }
            kind::READLINK => write_name(answers, id, &fs::read_link(paths::path(fields.string()?))?),
            kind::SYMLINK => {
                // OpenSSH's clients and servers have the target first (PROTOCOL, section 4.1).
                let [target, link] = two_paths(fields)?;
                Ok(symlink(target, link)?)
            }
            kind::EXTENDED => self.extended(id, fields, answers),
            _ => Err(Failure::Unsupported),
        }
    }

    fn open(&mut self, id: u32, fields: &mut Fields<'_>, answers: &mut Answers) -> Outcome {
        let path = paths::path(fields.string()?);
        let flags = fields.u32()?;
        let mode = Attributes::read(fields)?.mode.unwrap_or(FILE_MODE);
        let has = |flag| flags & flag != 0;
        let mut options = OpenOptions::new();
        options
            .read(has(flag::READ))
            .write(has(flag::WRITE))
            .append(has(flag::APPEND) && has(flag::WRITE))
            // Nothing is written to what is only to be read.
            .truncate(has(flag::TRUNCATE) && has(flag::WRITE))
            .create(has(flag::CREATE) && has(flag::WRITE))
            .create_new(has(flag::CREATE) && has(flag::WRITE) && has(flag::EXCLUSIVE))
            .mode(mode)
            // A pipe that nobody writes to must not hang the server.
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR).into());
        }
        let appends = has(flag::APPEND);
        let handle = self.handles.add(Opened::File { file, appends })?;
        answers.begin(kind::HANDLE).u32(id).string(&handle).end();
        Ok(())
    }

    fn read(&mut self, id: u32, fields: &mut Fields<'_>, answers: &mut Answers) -> Outcome {
        let (file, _) = self.handles.file(fields.string()?)?;
        let (offset, length) = (fields.u64()?, fields.u32()? as usize);
        let limit = length.min(DATA_LIMIT);
        answers.begin(kind::DATA).u32(id);
        match answers.fill(limit, |buffer| file.read_at(buffer, offset))? {
            0 => Err(Failure::End),
            _ => {
                answers.end();
                Ok(())
            }
        }
    }

    fn write(&mut self, fields: &mut Fields<'_>) -> Outcome {
        let (mut file, appends) = self.handles.file(fields.string()?)?;
        let offset = fields.u64()?;
        let data = fields.string()?;
        if appends {
            io::Write::write_all(&mut file, data)?;
        } else {
            file.write_all_at(data, offset)?;
        }
        Ok(())
    }

    fn fstat(&mut self, id: u32, fields: &mut Fields<'_>, answers: &mut Answers) -> Outcome {
        let data = match self.handles.find(fields.string()?)? {
            Opened::File { file, .. } => file.metadata()?,
            Opened::Directory { path, .. } => fs::metadata(path)?,
        };
        write_attributes(answers, id, &data)
    }

    fn open_directory(&mut self, id: u32, fields: &mut Fields<'_>, answers: &mut Answers) -> Outcome {
        let path = paths::path(fields.string()?);
        let entries = fs::read_dir(&path)?;
        let opened = Opened::Directory {
            path,
            entries,
            is_begun: false,
        };
        let handle = self.handles.add(opened)?;
        answers.begin(kind::HANDLE).u32(id).string(&handle).end();
        Ok(())
    }

    fn read_directory(&mut self, id: u32, fields: &mut Fields<'_>, answers: &mut Answers) -> Outcome {
        let name = fields.string()?;
        let names = self.names.get_or_insert_with(Names::read);
        let Opened::Directory {
            path,
            entries,
            is_begun,
        } = self.handles.find(name)?
        else {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR).into());
        };
        let mut listed = Answers::default();
        let mut count = 0;
        let mut add = |name: &[u8], path: &Path| {
            // What was removed meanwhile is left out.
            if let Ok(data) = fs::symlink_metadata(path) {
                listed.string(name).string(&names.describe(name, &data));
                attributes::write(&mut listed, &data);
                count += 1;
            }
            count < ENTRIES_MAX && listed.bytes.len() < ENTRIES_BYTES
        };
        if !*is_begun {
            *is_begun = true;
            add(b".", path);
            add(b"..", &path.join(".."));
        }
        for entry in entries.by_ref() {
            let entry = entry?;
            if !add(entry.file_name().as_bytes(), &entry.path()) {
                break;
            }
        }
        if count == 0 {
            return Err(Failure::End);
        }
        answers.begin(kind::NAME).u32(id).u32(count as u32);
        answers.bytes.extend_from_slice(&listed.bytes);
        answers.end();
        Ok(())
    }

    fn extended(&mut self, id: u32, fields: &mut Fields<'_>, answers: &mut Answers) -> Outcome {
        match fields.string()? {
            b"posix-rename@openssh.com" => {
                let [from, to] = two_paths(fields)?;
                Ok(fs::rename(from, to)?)
            }
            b"hardlink@openssh.com" => {
                let [from, to] = two_paths(fields)?;
                Ok(fs::hard_link(from, to)?)
            }
            b"fsync@openssh.com" => Ok(self.handles.file(fields.string()?)?.0.sync_all()?),
            b"statvfs@openssh.com" => {
                write_space(answers, id, &rustix::fs::statvfs(paths::path(fields.string()?))?);
                Ok(())
            }
            b"fstatvfs@openssh.com" => {
                let (file, _) = self.handles.file(fields.string()?)?;
                write_space(answers, id, &rustix::fs::fstatvfs(file)?);
                Ok(())
            }
            b"lsetstat@openssh.com" => {
                let path = paths::path(fields.string()?);
                Ok(Attributes::read(fields)?.apply(Subject::Link(&path))?)
            }
            b"limits@openssh.com" => {
                let data = DATA_LIMIT as u64;
                answers.begin(kind::EXTENDED_REPLY).u32(id).u64(PACKET_LIMIT as u64);
                answers.u64(data).u64(data).u64(handles::MAX as u64).end();
                Ok(())
            }
            b"expand-path@openssh.com" => {
                let path = paths::expand(fields.string()?)?;
                write_name(answers, id, &paths::real(&path)?)
            }
            _ => Err(Failure::Unsupported),
        }
    }
}

fn greet(answers: &mut Answers) {
    answers.begin(kind::VERSION).u32(VERSION);
    for (name, version) in EXTENSIONS {
        answers.string(name.as_bytes()).string(version.as_bytes());
    }
    answers.end();
}

fn two_paths(fields: &mut Fields<'_>) -> Result<[PathBuf; 2], Short> {
    Ok([paths::path(fields.string()?), paths::path(fields.string()?)])
}

fn write_status(answers: &mut Answers, id: u32, code: u32, message: &str) {
    answers
        .begin(kind::STATUS)
        .u32(id)
        .u32(code)
        .string(message.as_bytes())
        .string(b"en")
        .end();
}

fn write_attributes(answers: &mut Answers, id: u32, data: &fs::Metadata) -> Outcome {
    answers.begin(kind::ATTRS).u32(id);
    attributes::write(answers, data);
    answers.end();
    Ok(())
}

/// Answers with one path. It has no attributes and stands for its own line.
fn write_name(answers: &mut Answers, id: u32, path: &Path) -> Outcome {
    let name = path.as_os_str().as_bytes();
    answers
        .begin(kind::NAME)
        .u32(id)
        .u32(1)
        .string(name)
        .string(name)
        .u32(0)
        .end();
    Ok(())
}

/// Answers with what a file system has room for (OpenSSH's PROTOCOL, section 4.4).
fn write_space(answers: &mut Answers, id: u32, found: &StatVfs) {
    answers.begin(kind::EXTENDED_REPLY).u32(id);
    for value in [
        found.f_bsize,
        found.f_frsize,
        found.f_blocks,
        found.f_bfree,
        found.f_bavail,
        found.f_files,
        found.f_ffree,
        found.f_favail,
        found.f_fsid,
        // ST_RDONLY and ST_NOSUID have the numbers that the protocol has.
        found.f_flag.bits() & 3,
        found.f_namemax,
    ] {
        answers.u64(value);
    }
    answers.end();
}
