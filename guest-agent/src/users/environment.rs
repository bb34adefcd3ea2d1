//! Reads `/etc/environment`. An image sets variables there for every program in it, and the logins
//! of most distributions read it, too (pam_env(8)). A desktop names its display there.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE: &str = "/etc/environment";
/// The bytes of the file that are read at most.
const SIZE_MAX: u64 = 16 * 1024;

/// Reads the variables of the file, which may be any bytes. The file need not exist.
pub fn read() -> Vec<(OsString, OsString)> {
    read_small(Path::new(FILE), SIZE_MAX).map_or_else(Vec::new, |text| parse(&text))
}

/// Reads at most the first `most` bytes of a file. Returns `None` for what is no file, or empty.
pub fn read_small(path: &Path, most: u64) -> Option<Vec<u8>> {
    // A pipe without a writer must not hold the agent up.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() == 0 {
        return None;
    }
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Parses lines of the form `NAME=value`, perhaps with `export` before and quotes around the value.
/// Other lines are skipped.
fn parse(text: &[u8]) -> Vec<(OsString, OsString)> {
    let mut found: Vec<(OsString, OsString)> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"export ").unwrap_or(line);
        let Some(equals) = line.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (&line[..equals], &line[equals + 1..]);
        if is_name(name) && !value.contains(&0) {
            let [name, value] = [name, unquote(value)].map(|bytes| OsStr::from_bytes(bytes).to_owned());
            found.retain(|(known, _)| *known != name);
            found.push((name, value));
        }
    }
    found
}

fn is_name(text: &[u8]) -> bool {
    text.first().is_some_and(|first| !first.is_ascii_digit())
        && text.iter().all(|byte| *byte == b'_' || byte.is_ascii_alphanumeric())
}

fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(OsString, OsString)> {
        parse(text.as_bytes())
    }

    #[test]
    fn variables_are_read_with_and_without_quotes_and_the_last_one_counts() {
        let text = "# a comment\nDISPLAY=:1\n export A='b c' \nB=\"x=y\"\nDISPLAY=:0\nC=\n";
        let expected = [("A", "b c"), ("B", "x=y"), ("DISPLAY", ":0"), ("C", "")];
        let expected = expected.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        assert_eq!(pairs(text), expected);
    }

    #[test]
    fn a_value_may_be_any_bytes_and_takes_no_other_with_it() {
        let found = parse(b"A=\xff\nB=b\n\xfe=c");
        let expected = [("A", &b"\xff"[..]), ("B", b"b")];
        let expected = expected.map(|(name, value)| (OsString::from(name), OsStr::from_bytes(value).to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_variable_is_left_out() {
        assert_eq!(pairs("no equals sign\n=x\n1A=x\nA B=x\nA-B=x\nA=\0\n#A=x\n"), []);
    }

    #[test]
    fn a_directory_a_pipe_and_a_missing_file_are_no_environment() {
        let root = std::env::temp_dir().join(format!("quicksand-environment-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let pipe = root.join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [&root, &pipe, &root.join("missing")] {
            assert_eq!(read_small(path, SIZE_MAX), None);
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
