//! Paths as clients name them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::users::passwd;

/// Returns the path that a client means. An empty one is the directory where the server began.
pub fn path(bytes: &[u8]) -> PathBuf {
    if bytes.is_empty() {
        return ".".into();
    }
    OsStr::from_bytes(bytes).into()
}

/// Returns the absolute path without links, dots and double slashes. Only its last part
/// may be missing, as with OpenSSH's server.
pub fn real(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(Component::Normal(name)) = path.components().next_back() else {
                return Err(error);
            };
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(parent.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        result => result,
    }
}

/// Replaces a leading `~` or `~user` by that user's home directory (`expand-path@openssh.com`).
/// Fails with ENOENT for an unknown user.
pub fn expand(bytes: &[u8]) -> io::Result<PathBuf> {
    let Some(rest) = bytes.strip_prefix(b"~") else {
        return Ok(path(bytes));
    };
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (name, below) = rest.split_at(slash);
    let home = if name.is_empty() {
        std::env::var_os("HOME").map(PathBuf::from)
    } else {
        passwd::all_users()
            .into_iter()
            .find(|user| user.name.as_bytes() == name)
            .map(|user| user.home.into())
    };
    let mut found: PathBuf = home.ok_or(io::ErrorKind::NotFound)?;
    let below = below.strip_prefix(b"/").unwrap_or(below);
    if !below.is_empty() {
        // An absolute path would replace the home directory.
        let below: PathBuf = path(below)
            .components()
            .filter(|part| *part != Component::RootDir)
            .collect();
        found.push(below);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_a_home_directory() {
        assert_eq!(expand(b"a/~b").unwrap(), Path::new("a/~b"));
        assert_eq!(expand(b"~root").unwrap(), Path::new("/root"));
        assert_eq!(expand(b"~root//x/y").unwrap(), Path::new("/root/x/y"));
        assert!(expand(b"~no-such-user/x").is_err());
    }

    #[test]
    fn only_the_last_part_may_be_missing() {
        assert_eq!(
            real(Path::new("/tmp/../no such file")).unwrap(),
            Path::new("/no such file")
        );
        assert!(real(Path::new("/no such dir/x")).is_err());
        assert!(real(Path::new(".")).unwrap().is_absolute());
    }
}
