//! Reads the user database without the name services of the C library.

use std::fs;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::spawn::Credentials;
use crate::base::sys;

/// A user, as /etc/passwd or a request describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Groups,
    pub home: String,
    pub shell: String,
}

/// The groups that a user is in besides the one of its `gid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Those of which /etc/group says so.
    OfName,
    None,
}

impl User {
    /// Returns a user without an entry: in group 0 and no other, since the files of container images
    /// for any number belong to that group. With uid 0 it is root.
    pub fn nameless(uid: u32) -> Self {
        let root = uid == 0;
        Self {
            name: if root { "root".into() } else { uid.to_string() },
            uid,
            gid: 0,
            groups: Groups::None,
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
            uid: parse_id(uid)?,
            gid: parse_id(gid)?,
            groups: Groups::OfName,
            home: or_default(home, "/"),
            shell: or_default(shell, "/bin/sh"),
        })
    })
}

/// A group, as /etc/group describes it.
#[derive(Debug)]
pub struct Group<'a> {
    pub name: &'a str,
    pub gid: u32,
    /// The names of the members, with commas between them.
    members: &'a str,
}

/// Parses /etc/group. Lines that are not entries are skipped.
pub fn parse_group(text: &str) -> impl Iterator<Item = Group<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = parse_id(fields.nth(1)?)?;
        let members = fields.next().unwrap_or_default();
        Some(Group { name, gid, members })
    })
}

/// Reads the number of a user or a group. The largest is none: to the kernel it means "as it is"
/// (setresuid(2)), which is root.
fn parse_id(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| is_number && *id != u32::MAX)
}

fn or_default(field: &str, default: &str) -> String {
    if field.is_empty() { default } else { field }.to_owned()
}

/// Returns the ids of the groups in /etc/group that list `name` as a member.
pub fn parse_memberships(text: &str, name: &str) -> Vec<u32> {
    parse_group(text)
        .filter(|group| group.members.split(',').any(|member| member == name))
        .map(|group| group.gid)
        .collect()
}

/// Returns the id of the group `name` in the text of /etc/group.
pub fn find_gid(text: &str, name: &str) -> Option<u32> {
    parse_group(text)
        .find(|group| group.name == name)
        .map(|group| group.gid)
}

/// Reads a database file. A missing file counts as empty, and bytes that are not UTF-8 are
/// replaced.
pub fn read_database(path: &str) -> String {
    fs::read(Path::new(path))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Finds the user that a text means, be it of a request or of an image: `USER` or `USER:GROUP`, each
/// by name or by number, as containers have it. With a group the user is in that one and no other.
/// A number need not have an entry, and no user means root. Fails with `NotFound`.
pub fn require_user(text: &str) -> Result<User> {
    let (name, group) = text.split_once(':').unwrap_or((text, ""));
    let is_group_alone = name.is_empty() && !group.is_empty();
    let user = find_user(if is_group_alone { "root" } else { name })?;
    if group.is_empty() {
        return Ok(user);
    }
    let gid = find_gid(&read_database("/etc/group"), group).or_else(|| parse_id(group));
    Ok(User {
        gid: gid.ok_or_else(|| Error::NotFound(format!("group {group:?}")))?,
        groups: Groups::None,
        ..user
    })
}

fn find_user(name: &str) -> Result<User> {
    let text = read_database("/etc/passwd");
    if let Some(user) = parse_passwd(&text).find(|user| user.name == name) {
        return Ok(user);
    }
    match parse_id(name) {
        Some(uid) => Ok(user_of(uid, &text)),
        None if name == "root" => Ok(User::nameless(0)),
        None => Err(Error::NotFound(format!("user {name:?}"))),
    }
}

/// Finds a user by number in the text of /etc/passwd. It need not have an entry.
pub fn user_of(uid: u32, text: &str) -> User {
    parse_passwd(text)
        .find(|user| user.uid == uid)
        .unwrap_or_else(|| User::nameless(uid))
}

/// Returns the user that the agent runs as.
pub fn me() -> User {
    User {
        gid: sys::egid(),
        ..user_of(sys::euid(), &read_database("/etc/passwd"))
    }
}

/// Returns what a program of the user's has to take on, or `None` if that is what the agent has.
pub fn credentials(user: &User) -> Option<Credentials> {
    if (user.uid, user.gid) == (sys::euid(), sys::egid()) {
        return None;
    }
    let mut groups = match user.groups {
        Groups::OfName => parse_memberships(&read_database("/etc/group"), &user.name),
        Groups::None => Vec::new(),
    };
    groups.retain(|gid| *gid != user.gid);
    groups.insert(0, user.gid);
    Some(Credentials {
        uid: user.uid,
        gid: user.gid,
        groups,
    })
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
        assert_eq!(
            (users[1].groups, user_of(7, PASSWD).groups),
            (Groups::OfName, Groups::None)
        );
    }

    #[test]
    fn memberships_are_by_whole_name() {
        let groups = "sudo:x:27:bob,alice\nusers:x:100:bobby\nbob:x:1000:\n:::\n";
        assert_eq!(parse_memberships(groups, "bob"), [27]);
        assert_eq!(find_gid(groups, "users"), Some(100));
        assert_eq!(find_gid(groups, "nobody"), None);
    }

    #[test]
    fn a_user_may_have_a_group_and_need_no_entry() {
        let ids = |text: &str| require_user(text).map(|user| (user.uid, user.gid));
        assert_eq!(ids("4242").unwrap(), (4242, 0));
        assert_eq!(ids("4242:").unwrap(), (4242, 0));
        assert_eq!(ids("4242:4343").unwrap(), (4242, 4343));
        assert_eq!(ids("root:4343").unwrap(), (0, 4343));
        assert_eq!(ids(":4343").unwrap(), (0, 4343));
        for wrong in [
            "",
            ":",
            "nobody has this name",
            "4242:no group has this name",
            "+1",
            "1:2:3",
        ] {
            assert!(require_user(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn who_was_named_with_a_group_is_in_no_other() {
        let of = |text: &str| credentials(&require_user(text).unwrap()).unwrap().groups;
        for name in all_users().into_iter().map(|user| user.name) {
            assert_eq!(of(&format!("{name}:4343")), [4343]);
        }
        assert_eq!(of("4242"), [0]);
    }

    #[test]
    fn a_number_that_would_leave_the_agents_rights_is_none() {
        assert!(require_user("4294967295").is_err());
        assert!(require_user("1000:4294967295").is_err());
        assert_eq!(parse_passwd("evil:x:4294967295:0::/:/bin/sh").count(), 0);
    }
}
