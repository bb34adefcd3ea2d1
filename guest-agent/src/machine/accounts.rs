//! Creates and deletes users by editing the database files under /etc.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::base::error::{Error, Result, about};
use crate::base::params::wrong;
use crate::base::sys;
use crate::users::passwd::{find_gid, parse_passwd};

const FIRST_UID: u32 = 1000;
const LAST_UID: u32 = 59_999;
/// The groups whose members may become root. Distributions differ in which of them they have.
const ADMIN_GROUPS: [&str; 2] = ["sudo", "wheel"];

/// A user that was created.
#[derive(Debug, Serialize)]
pub struct Account {
    uid: u32,
    home: String,
}

/// The user database below `root`, which is `/` except in tests.
#[derive(Debug)]
pub struct Accounts {
    root: PathBuf,
    /// This lock is held while the files are read and replaced, as useradd does it.
    _lock: fs::File,
}

impl Accounts {
    /// Waits for other programs that edit the user database, which may take long.
    pub fn lock(root: &Path) -> Result<Self> {
        let path = root.join("etc/.pwd.lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| about(&path, error))?;
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        // SAFETY: one flock is read; waiting blocks only this thread.
        sys::check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &mut lock) })
            .map_err(|error| about(&path, error))?;
        Ok(Self {
            root: root.to_owned(),
            _lock: file,
        })
    }

    /// Creates a user with a group and a home directory of its own, and with the right to use sudo
    /// without a password if `sudo` is set. Fails with `Exists` when the user or the group exists.
    pub fn create(&self, name: &str, sudo: bool) -> Result<Account> {
        check_name(name)?;
        let passwd = self.read("passwd")?;
        let group = self.read("group")?;
        if parse_passwd(&passwd).any(|user| user.name == name) || find_gid(&group, name).is_some() {
            return Err(Error::Exists(format!("user {name:?}")));
        }
        let uid = free_id(&passwd, &group)?;
        let home = format!("/home/{name}");
        let shell = if self.root.join("bin/bash").exists() {
            "/bin/bash"
        } else {
            "/bin/sh"
        };
        let mut group = append(&group, &format!("{name}:x:{uid}:"));
        if sudo {
            group = ADMIN_GROUPS
                .iter()
                .fold(group, |text, admin| join_group(&text, admin, name));
        }
        self.replace("group", &group)?;
        if let Ok(shadow) = self.read("shadow") {
            // No password matches `*`. Keys and sudo still work.
            self.replace("shadow", &append(&shadow, &format!("{name}:*::0:99999:7:::")))?;
        }
        self.replace(
            "passwd",
            &append(&passwd, &format!("{name}:x:{uid}:{uid}::{home}:{shell}")),
        )?;
        self.make_home(&home, uid)?;
        if sudo {
            self.allow_sudo(name)?;
        }
        Ok(Account { uid, home })
    }

    /// Deletes a user, its group and its memberships. Fails with `NotFound` for an unknown user and
    /// with `Forbidden` for root.
    pub fn delete(&self, name: &str, remove_home: bool) -> Result<()> {
        let passwd = self.read("passwd")?;
        let user = parse_passwd(&passwd)
            .find(|user| user.name == name)
            .ok_or_else(|| Error::NotFound(format!("user {name:?}")))?;
        if user.uid == 0 {
            return Err(Error::Forbidden(format!("user {name:?} is root")));
        }
        self.replace("passwd", &without(&passwd, name))?;
        for file in ["shadow", "gshadow"] {
            if let Ok(text) = self.read(file) {
                self.replace(file, &without(&text, name))?;
            }
        }
        let group = self.read("group")?;
        self.replace("group", &leave_groups(&group, name, user.gid))?;
        let rule = self.sudo_rule(name);
        remove_if_there(fs::remove_file(&rule)).map_err(|error| about(&rule, error))?;
        // The agent removes nothing but a directory directly below /home.
        let home = Path::new(&user.home);
        if remove_home && home.parent() == Some(Path::new("/home")) {
            let home = self.root.join("home").join(home.file_name().unwrap_or_default());
            remove_if_there(fs::remove_dir_all(&home)).map_err(|error| about(&home, error))?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("etc").join(name)
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        let bytes = fs::read(&path).map_err(|error| about(&path, error))?;
        String::from_utf8(bytes).map_err(|_| Error::BadRequest(format!("{}: not UTF-8", path.display())))
    }

    /// Replaces a file by a new one with the same attributes, so that a reader sees either the old
    /// text or the new one.
    fn replace(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        let temporary = self.path(&format!("{name}.quicksand"));
        let work = || {
            let meta = fs::metadata(&path)?;
            fs::write(&temporary, "")?;
            fs::set_permissions(&temporary, meta.permissions())?;
            use std::os::unix::fs::MetadataExt;
            lchown(&temporary, Some(meta.uid()), Some(meta.gid()))?;
            fs::write(&temporary, text)?;
            fs::rename(&temporary, &path)
        };
        work().map_err(|error: io::Error| about(&path, error))
    }

    fn make_home(&self, home: &str, uid: u32) -> Result<()> {
        let path = self.root.join(home.trim_start_matches('/'));
        let work = || {
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            match DirBuilder::new().mode(0o755).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                result => result?,
            }
            let skeleton = self.path("skel");
            if skeleton.is_dir() {
                copy_tree(&skeleton, &path, uid)?;
            }
            lchown(&path, Some(uid), Some(uid))
        };
        work().map_err(|error| about(&path, error))
    }

    fn sudo_rule(&self, name: &str) -> PathBuf {
        self.path("sudoers.d").join(format!("quicksand-{name}"))
    }

    /// Lets the user run sudo without a password, because it has none to type. Does nothing on a
    /// system without sudo.
    fn allow_sudo(&self, name: &str) -> Result<()> {
        let path = self.sudo_rule(name);
        if !path.parent().is_some_and(Path::is_dir) {
            return Ok(());
        }
        fs::write(&path, format!("{name} ALL=(ALL:ALL) NOPASSWD: ALL\n"))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o440)))
            .map_err(|error| about(&path, error))
    }
}

fn check_name(name: &str) -> Result<()> {
    let mut bytes = name.bytes();
    let starts_well = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let goes_on_well =
        bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-'));
    if starts_well && goes_on_well && name.len() <= 32 {
        Ok(())
    } else {
        Err(wrong("name", "must be a user name: a-z, 0-9, _ and -, at most 32"))
    }
}

/// Finds a number that is free as a user id and as a group id.
fn free_id(passwd: &str, group: &str) -> Result<u32> {
    let third = |line: &str| line.split(':').nth(2).and_then(|id| id.parse::<u32>().ok());
    let taken: Vec<u32> = passwd.lines().chain(group.lines()).filter_map(third).collect();
    (FIRST_UID..=LAST_UID)
        .find(|id| !taken.contains(id))
        .ok_or(Error::Busy("no free user id"))
}

fn append(text: &str, line: &str) -> String {
    let gap = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{gap}{line}\n")
}

fn without(text: &str, name: &str) -> String {
    text.lines()
        .filter(|line| line.split(':').next() != Some(name))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn join_group(text: &str, group: &str, name: &str) -> String {
    text.lines()
        .map(|line| match line.strip_prefix(group) {
            Some(rest) if rest.starts_with(':') => {
                let comma = if line.ends_with(':') { "" } else { "," };
                format!("{line}{comma}{name}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect()
}

/// Removes the user from every list of members, and removes the group of its own.
fn leave_groups(text: &str, name: &str, gid: u32) -> String {
    text.lines()
        .filter_map(|line| {
            let Some((head, members)) = line.rsplit_once(':') else {
                return Some(format!("{line}\n"));
            };
            let rest: Vec<&str> = members.split(',').filter(|member| *member != name).collect();
            let is_own = head.starts_with(&format!("{name}:")) && head.ends_with(&format!(":{gid}"));
            (!is_own || !rest.iter().all(|member| member.is_empty())).then(|| format!("{head}:{}\n", rest.join(",")))
        })
        .collect()
}

fn remove_if_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn copy_tree(from: &Path, to: &Path, uid: u32) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir_all(&target)?;
            copy_tree(&entry.path(), &target, uid)?;
        } else if kind.is_symlink() {
            remove_if_there(fs::remove_file(&target))?;
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
        lchown(&target, Some(uid), Some(uid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;

    #[test]
    fn groups_are_joined_and_left_by_whole_names() {
        let groups = "sudo:x:27:\nsudoers:x:28:al\nbob:x:1000:\n";
        let joined = join_group(groups, "sudo", "bob");
        assert_eq!(joined, "sudo:x:27:bob\nsudoers:x:28:al\nbob:x:1000:\n");
        assert_eq!(leave_groups(&joined, "bob", 1000), "sudo:x:27:\nsudoers:x:28:al\n");
    }

    #[test]
    fn names_that_would_break_a_line_are_refused() {
        for name in ["", "a:b", "a\nb", "-a", "Root", "1a", "../x"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name("bob_1-x").is_ok());
    }

    #[test]
    fn a_user_comes_and_goes_below_another_root() {
        let root = std::env::temp_dir().join(format!("quicksand-accounts-{}", std::process::id()));
        fs::create_dir_all(root.join("etc/sudoers.d")).unwrap();
        let passwd = "root:x:0:0::/root:/bin/sh\n";
        fs::write(root.join("etc/passwd"), passwd).unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\nsudo:x:27:").unwrap();
        fs::write(root.join("etc/shadow"), "root:*::::::\n").unwrap();
        let accounts = Accounts::lock(&root).unwrap();
        // Only root may give a home directory to another user.
        if sys::euid() == 0 {
            let made = accounts.create("bob", true).unwrap();
            assert_eq!((made.uid, made.home.as_str()), (1000, "/home/bob"));
            assert!(root.join("home/bob").is_dir());
            assert_eq!(accounts.create("bob", true).unwrap_err().code(), Code::Exists);
            accounts.delete("bob", true).unwrap();
            assert!(!root.join("home/bob").exists());
            assert!(!root.join("etc/sudoers.d/quicksand-bob").exists());
        }
        assert_eq!(fs::read_to_string(root.join("etc/passwd")).unwrap(), passwd);
        assert_eq!(accounts.delete("root", false).unwrap_err().code(), Code::Forbidden);
        assert_eq!(accounts.delete("nobody", false).unwrap_err().code(), Code::NotFound);
        fs::remove_dir_all(&root).unwrap();
    }
}
