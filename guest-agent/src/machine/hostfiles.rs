//! The small files under /etc that name this machine and its name server.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::base::sys;

/// The address that Debian and others give to the machine's own name.
const OWN_ADDRESS: &str = "127.0.1.1";
const NAME_WIDTH: usize = 63;

/// Makes `dns` the only name server. `root` is `/` except in tests.
pub fn write_resolv_conf(root: &Path, dns: Ipv4Addr) -> io::Result<()> {
    let path = root.join("etc/resolv.conf");
    let text = format!("nameserver {dns}\n");
    let is_file = fs::symlink_metadata(&path).is_ok_and(|file| file.is_file());
    if is_file && fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    // It may be a link to the file of a resolver that will not run, so it is replaced.
    replace(&path, &text)
}

/// Gives the machine this name, and makes the name resolvable on it.
pub fn name_host(root: &Path, name: &str) -> io::Result<()> {
    let hostname = root.join("etc/hostname");
    if read(&hostname).is_ok_and(|old| String::from_utf8_lossy(&old).trim() != name) {
        replace(&hostname, &format!("{name}\n"))?;
    }
    let path = root.join("etc/hosts");
    let hosts = match read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => "127.0.0.1\tlocalhost\n::1\tlocalhost\n".into(),
        Err(error) => return Err(error),
    };
    if has_host(&hosts, name) {
        return Ok(());
    }
    // Only one line names this machine, so the line that came with the image is left out.
    let mut text: String = hosts
        .lines()
        .filter(|line| line.split_whitespace().next() != Some(OWN_ADDRESS))
        .map(|line| format!("{line}\n"))
        .collect();
    // The name is padded so that the next name fits in its place.
    text += &format!("{OWN_ADDRESS}\t{name:NAME_WIDTH$}\n");
    replace(&path, &text)
}

/// Reads a file without a note of the time, which would need a journal entry.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let open = |flags| fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    // Only the file's owner may ask for that.
    open(libc::O_NOATIME).or_else(|_| open(0))?.read_to_end(&mut text)?;
    Ok(text)
}

fn has_host(hosts: &str, name: &str) -> bool {
    hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""))
        .any(|line| line.split_whitespace().skip(1).any(|host| host == name))
}

/// Changes a file in place with one write. A new file would need an inode, a block and a journal
/// entry, and so more code of the kernel. A file takes the place of a link.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let old = fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    if let Ok(file) = old
        && let Ok(about) = file.metadata()
        && about.is_file()
    {
        file.write_all_at(text.as_bytes(), 0)?;
        let is_longer = about.len() > text.len() as u64;
        return if is_longer {
            file.set_len(text.len() as u64)
        } else {
            Ok(())
        };
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".quicksand");
    fs::write(&temporary, text)?;
    sys::rename(Path::new(&temporary), path, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_once_and_a_linked_resolv_conf_is_replaced() {
        let root = std::env::temp_dir().join(format!("quicksand-hostfiles-{}", std::process::id()));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/hosts"), "127.0.1.1 old\n127.0.0.1 localhost # box").unwrap();
        name_host(&root, "box").unwrap();
        name_host(&root, "box").unwrap();
        let hosts = fs::read_to_string(root.join("etc/hosts")).unwrap();
        let padding = " ".repeat(NAME_WIDTH - "box".len());
        assert_eq!(hosts, format!("127.0.0.1 localhost # box\n127.0.1.1\tbox{padding}\n"));
        name_host(&root, "a-longer-name").unwrap();
        let renamed = fs::read_to_string(root.join("etc/hosts")).unwrap();
        assert_eq!(renamed.len(), hosts.len());
        assert!(has_host(&renamed, "a-longer-name") && !has_host(&renamed, "box"));
        std::os::unix::fs::symlink("/nowhere/stub", root.join("etc/resolv.conf")).unwrap();
        write_resolv_conf(&root, Ipv4Addr::new(10, 0, 2, 3)).unwrap();
        let resolv = fs::read_to_string(root.join("etc/resolv.conf")).unwrap();
        assert_eq!(resolv, "nameserver 10.0.2.3\n");
        fs::remove_dir_all(&root).unwrap();
    }
}
