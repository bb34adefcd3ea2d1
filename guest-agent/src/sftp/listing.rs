//! Lines about files as `ls -l` writes them, which old clients show as they are.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use crate::base::sys;
use crate::users::passwd;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY_S: i64 = 86_400;
/// `ls` writes the year instead of the time of day for what is older than this.
const RECENT_S: i64 = 182 * DAY_S;

/// The names of users and groups by their numbers.
#[derive(Debug)]
pub struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    pub fn read() -> Self {
        let users = passwd::all_users().into_iter().map(|user| (user.uid, user.name));
        let text = passwd::read_database("/etc/group");
        let groups = passwd::parse_group(&text).map(|group| (group.gid, group.name.to_owned()));
        Self {
            users: users.collect(),
            groups: groups.collect(),
        }
    }

    /// Returns the line about a file.
    pub fn describe(&self, name: &[u8], data: &Metadata) -> Vec<u8> {
        let number = |id: u32| id.to_string();
        let user = self
            .users
            .get(&data.uid())
            .cloned()
            .unwrap_or_else(|| number(data.uid()));
        let group = self
            .groups
            .get(&data.gid())
            .cloned()
            .unwrap_or_else(|| number(data.gid()));
        let (mode, links, size) = (mode_text(data.mode()), data.nlink(), data.size());
        let time = time_text(data.mtime(), sys::unix_ns() / 1_000_000_000);
        let mut line = format!("{mode} {links:3} {user:8} {group:8} {size:8} {time} ").into_bytes();
        line.extend_from_slice(name);
        line
    }
}

fn mode_text(mode: u32) -> String {
    let kind = match mode & libc::S_IFMT {
        libc::S_IFDIR => 'd',
        libc::S_IFLNK => 'l',
        libc::S_IFBLK => 'b',
        libc::S_IFCHR => 'c',
        libc::S_IFIFO => 'p',
        libc::S_IFSOCK => 's',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, true) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// Returns the time of the last change in UTC. Both times are in seconds since 1970.
fn time_text(seconds: i64, now: i64) -> String {
    let (year, month, day) = date(seconds.div_euclid(DAY_S));
    let month = MONTHS[month - 1];
    if (0..RECENT_S).contains(&(now - seconds)) {
        let minutes = seconds.rem_euclid(DAY_S) / 60;
        format!("{month} {day:2} {:02}:{:02}", minutes / 60, minutes % 60)
    } else {
        format!("{month} {day:2}  {year}")
    }
}

/// Converts a number of days since 1970-01-01 into year, month and day.
fn date(mut day: i64) -> (i64, usize, i64) {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // 400 years have 146,097 days, whichever they are.
    let mut year = 1970 + 400 * day.div_euclid(146_097);
    day = day.rem_euclid(146_097);
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    (year, month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_does() {
        assert_eq!(mode_text(libc::S_IFREG | 0o644), "-rw-r--r--");
        assert_eq!(mode_text(libc::S_IFDIR | 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(libc::S_IFREG | 0o6744), "-rwsr-Sr--");
    }

    #[test]
    fn times_are_written_as_ls_does() {
        assert_eq!(time_text(1_700_000_000, 1_700_000_100), "Nov 14 22:13");
        assert_eq!(time_text(951_782_400, 1_700_000_000), "Feb 29  2000");
        assert_eq!(time_text(-1, 1_700_000_000), "Dec 31  1969");
        assert_eq!(time_text(1_700_000_100, 1_700_000_000), "Nov 14  2023", "the future");
    }
}
