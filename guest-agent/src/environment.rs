//! `/etc/environment`: the variables that an image sets for whatever is started in it, as the logins
//! of most distributions do (pam_env(8)). A desktop names its display there.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE: &str = "/etc/environment";
/// What is read of the file, in bytes.
const SIZE_MAX: u64 = 16 * 1024;

/// The variables of the file, which need not exist.
pub fn read() -> Vec<(String, String)> {
    read_file(Path::new(FILE)).map_or_else(Vec::new, |text| parse(&text))
}

fn read_file(path: &Path) -> Option<String> {
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
    file.take(SIZE_MAX).read_to_end(&mut text).ok()?;
    String::from_utf8(text).ok()
}

/// Lines of the form `NAME=value`, perhaps with `export` before and quotes around the value. All
/// others mean nothing.
fn parse(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let Some((name, value)) = line.strip_prefix("export ").unwrap_or(line).split_once('=') else {
            continue;
        };
        if is_name(name) && !value.contains('\0') {
            found.retain(|(known, _)| known != name);
            found.push((name.to_owned(), unquote(value).to_owned()));
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

fn unquote(value: &str) -> &str {
    ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text)
    }

    #[test]
    fn variables_are_read_with_and_without_quotes_and_the_last_one_counts() {
        let text = "# a comment\nDISPLAY=:1\n export A='b c' \nB=\"x=y\"\nDISPLAY=:0\nC=\n";
        let expected = [("A", "b c"), ("B", "x=y"), ("DISPLAY", ":0"), ("C", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs(text), expected);
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
            assert_eq!(read_file(path), None);
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
