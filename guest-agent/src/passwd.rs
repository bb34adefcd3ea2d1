//! Reads the user database without the name services of the C library.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::spawn::Credentials;

/// An entry of /etc/passwd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
    pub shell: String,
}

impl User {
    /// Returns a user without an entry. With uid 0 it is root.
    pub fn nameless(uid: u32) -> Self {
        let root = uid == 0;
        Self {
            name: if root { "root".into() } else { uid.to_string() },
            uid,
            gid: uid,
            home: if root { "/root".into() } else { "/".into() },
            shell: "/bin/sh".into(),
        }
    }
}

/// Parses /etc/passwd. Lines that are not entries are skipped, because a guest's file may contain
/// anything.
pub fn parse_passwd(text: &str) -> impl Iterator<Item = User> {
    text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields.as_slice() else {
            return None;
        };
        Some(User {
            name: (*name).to_owned(),
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            home: or_default(home, "/"),
            shell: or_default(shell, "/bin/sh"),
        })
    })
}

fn or_default(field: &str, default: &str) -> String {
    if field.is_empty() { default } else { field }.to_owned()
}

/// Returns the ids of the groups in /etc/group that list `name` as a member.
pub fn parse_memberships(text: &str, name: &str) -> Vec<u32> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':').skip(2);
            let gid = fields.next()?.parse().ok()?;
            let is_member = fields.next()?.split(',').any(|member| member == name);
            is_member.then_some(gid)
        })
        .collect()
}

/// Returns the id of the group `name` in the text of /etc/group.
pub fn find_gid(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)?.parse().ok()
    })
}

/// Reads a database file. A missing file counts as empty, and bytes that are not UTF-8 are
/// replaced.
pub fn read_database(path: &str) -> String {
    fs::read(Path::new(path))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Finds a user by name or by number. A number need not have an entry. Fails with `NotFound`.
pub fn require_user(name: &str) -> Result<User> {
    let text = read_database("/etc/passwd");
    if let Some(user) = parse_passwd(&text).find(|user| user.name == name) {
        return Ok(user);
    }
    match name.parse::<u32>() {
        Ok(uid) => Ok(user_of(uid, &text)),
        Err(_) if name == "root" => Ok(User::nameless(0)),
        Err(_) => Err(Error::NotFound(format!("user {name:?}"))),
    }
}

/// Finds a user by number in the text of /etc/passwd. It need not have an entry.
pub fn user_of(uid: u32, text: &str) -> User {
    parse_passwd(text)
        .find(|user| user.uid == uid)
        .unwrap_or_else(|| User::nameless(uid))
}

/// Returns the user's ids and those of all its groups.
pub fn credentials(user: &User) -> Credentials {
    let mut groups = parse_memberships(&read_database("/etc/group"), &user.name);
    groups.retain(|gid| *gid != user.gid);
    groups.insert(0, user.gid);
    Credentials {
        uid: user.uid,
        gid: user.gid,
        groups,
    }
}

/// Parses `user` or `user:group`, by name or by number, into (uid, gid). The default group is the
/// user's. Fails with `NotFound` for an unknown name.
pub fn require_owner(text: &str) -> Result<(u32, u32)> {
    let (name, group) = text.split_once(':').map_or((text, None), |(n, g)| (n, Some(g)));
    let user = require_user(name)?;
    let gid = match group {
        None => user.gid,
        Some(group) => find_gid(&read_database("/etc/group"), group)
            .or_else(|| group.parse().ok())
            .ok_or_else(|| Error::NotFound(format!("group {group:?}")))?,
    };
    Ok((user.uid, gid))
}

/// Returns every entry of /etc/passwd.
pub fn all_users() -> Vec<User> {
    parse_passwd(&read_database("/etc/passwd")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        broken line\n\
        bob:x:1000:1000:Bob,,,:/home/bob:\n\
        big:x:99999999999:1::/:/bin/sh\n";

    #[test]
    fn entries_are_read_and_junk_is_skipped() {
        let users: Vec<_> = parse_passwd(PASSWD).collect();
        assert_eq!(users.len(), 2);
        assert_eq!(users[0].shell, "/bin/bash");
        assert_eq!((users[1].uid, users[1].shell.as_str()), (1000, "/bin/sh"));
        assert_eq!(user_of(7, PASSWD).name, "7");
    }

    #[test]
    fn memberships_are_by_whole_name() {
        let groups = "sudo:x:27:bob,alice\nusers:x:100:bobby\nbob:x:1000:\n:::\n";
        assert_eq!(parse_memberships(groups, "bob"), [27]);
        assert_eq!(find_gid(groups, "users"), Some(100));
        assert_eq!(find_gid(groups, "nobody"), None);
    }
}
