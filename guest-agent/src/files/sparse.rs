//! Writes a file that comes as records without its holes, as `reader::Extents` makes them.

use super::reader::RECORD_HEADER;
use super::writer::FileWriter;
use crate::base::error::{Error, Result};

/// A write of records. The holes between them become holes of the file.
#[derive(Debug)]
pub struct SparseWriter {
    writer: FileWriter,
    header: Vec<u8>,
    /// The position of the next byte.
    at: u64,
    /// The number of bytes that are missing of the present record.
    left: usize,
    is_ended: bool,
}

impl SparseWriter {
    /// Makes a writer of records. `writer` must have written nothing yet.
    pub fn new(writer: FileWriter) -> Self {
        Self {
            writer,
            header: Vec::with_capacity(RECORD_HEADER),
            at: 0,
            left: 0,
            is_ended: false,
        }
    }

    /// Takes the next bytes of the records, which may be cut anywhere. Fails with `BadRequest` when
    /// positions do not rise, and when something follows the last record.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.is_ended {
                return Err(wrong("has bytes after its last record"));
            }
            if self.left > 0 {
                let (data, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.writer.write_at(data, self.at)?;
                self.at += data.len() as u64;
                self.left -= data.len();
                bytes = rest;
            } else {
                let missing = RECORD_HEADER - self.header.len();
                let (part, rest) = bytes.split_at(missing.min(bytes.len()));
                self.header.extend_from_slice(part);
                bytes = rest;
                self.begin_record()?;
            }
        }
        Ok(())
    }

    /// Reads the header, once it is whole.
    fn begin_record(&mut self) -> Result<()> {
        let Some((position, length)) = self.header.split_first_chunk::<8>() else {
            return Ok(());
        };
        let Ok(length) = <[u8; 4]>::try_from(length) else {
            return Ok(());
        };
        let (position, length) = (u64::from_be_bytes(*position), u32::from_be_bytes(length));
        self.header.clear();
        if position < self.at || position > i64::MAX as u64 - u64::from(length) {
            return Err(wrong("has its records in the wrong order"));
        }
        (self.at, self.left) = (position, length as usize);
        self.is_ended = length == 0;
        Ok(())
    }

    /// Puts the file in place and returns the number of bytes of data. Fails with `BadRequest` when
    /// the last record is missing.
    pub fn commit(&mut self) -> Result<u64> {
        if !self.is_ended {
            return Err(wrong("lacks its last record"));
        }
        self.writer.end_at(self.at)?;
        self.writer.commit()
    }
}

fn wrong(what: &str) -> Error {
    Error::BadRequest(format!("the content {what}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::base::error::Code;
    use crate::base::params::Params;

    fn record(position: u64, data: &[u8]) -> Vec<u8> {
        [&position.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("quicksand-records-{}-{name}", std::process::id()))
    }

    fn writer(path: &PathBuf) -> SparseWriter {
        let request = serde_json::from_value::<Params>(json!({"path": path}))
            .unwrap()
            .take()
            .unwrap();
        SparseWriter::new(FileWriter::open(&request).unwrap())
    }

    #[test]
    fn holes_become_holes_however_the_records_are_cut() {
        let whole = [record(0, b"begin"), record(1 << 30, b"middle"), record(3 << 30, b"")].concat();
        for step in [1, 7, 13, whole.len()] {
            let path = path(&format!("holes-{step}"));
            let mut writer = writer(&path);
            for part in whole.chunks(step) {
                writer.write(part).unwrap();
            }
            assert_eq!(writer.commit().unwrap(), 11);
            let meta = fs::metadata(&path).unwrap();
            assert_eq!(meta.len(), 3 << 30);
            assert!(meta.blocks() * 512 < 1 << 20);
            let file = fs::File::open(&path).unwrap();
            let mut middle = [0; 6];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut middle, 1 << 30).unwrap();
            assert_eq!(&middle, b"middle");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_is_not_whole_or_not_in_order_leaves_no_file() {
        let ended = record(0, b"");
        for bytes in [
            record(0, b"abc"),
            record(0, b"abc")[..13].to_vec(),
            record(0, b"")[..5].to_vec(),
            [record(5, b"abc"), record(7, b"")].concat(),
            [ended.clone(), ended.clone()].concat(),
            record(u64::MAX, b""),
            record(i64::MAX as u64, b"x"),
        ] {
            let path = path("bad");
            let mut writer = writer(&path);
            let result = writer.write(&bytes).and_then(|()| writer.commit());
            assert_eq!(result.unwrap_err().code(), Code::BadRequest, "{bytes:?}");
            assert!(!path.exists());
        }
    }
}
