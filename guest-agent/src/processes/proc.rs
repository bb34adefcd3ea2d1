//! Lists the processes of the guest from /proc.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::Serialize;

use crate::base::sys;
use crate::users::passwd::{self, User};

/// The number of processes that are listed at most. A client may give another.
const DEFAULT_LIMIT: u64 = 500;
const MAX_LIMIT: u64 = 1000;
/// The limit in characters of a command line. It keeps the reply within a frame even when every
/// byte has to be escaped.
const COMMAND_LIMIT: usize = 160;

/// The reply to `processes`.
#[derive(Debug, Serialize)]
pub struct Processes {
    processes: Vec<Process>,
    /// The number of processes, listed or not.
    total: usize,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    ppid: u32,
    user: String,
    state: String,
    /// The resident memory in bytes.
    rss: u64,
    cpu_s: f64,
    /// The start in seconds after boot.
    start_s: f64,
    command: String,
}

/// Lists at most `limit` processes.
pub fn list(limit: Option<u64>) -> Processes {
    let users = passwd::all_users();
    let mut pids: Vec<u32> = sys::pids().into_iter().flatten().collect();
    pids.sort_unstable();
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT) as usize;
    let processes = pids
        .iter()
        .filter_map(|pid| describe(*pid, &users))
        .take(limit)
        .collect();
    Processes {
        processes,
        total: pids.len(),
    }
}

/// Returns `None` for a process that has ended in between.
fn describe(pid: u32, users: &[User]) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = parse_stat(&String::from_utf8_lossy(&stat))?;
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let user = users.iter().find(|user| user.uid == uid);
    let user = user.map_or_else(|| uid.to_string(), |user| user.name.clone());
    Some(Process {
        pid,
        ppid: stat.ppid,
        user,
        command: command_text(&command, &stat.name),
        state: stat.state,
        rss: stat.rss,
        cpu_s: stat.cpu_s,
        start_s: stat.start_s,
    })
}

#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    state: String,
    ppid: u32,
    cpu_s: f64,
    /// The start in seconds after boot.
    start_s: f64,
    rss: u64,
}

/// Parses the contents of `stat`. The name stands in parentheses and may itself contain some, so
/// the last one ends it.
fn parse_stat(text: &str) -> Option<Stat> {
    let (head, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // SAFETY: no memory is passed.
    let (ticks, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
    Some(Stat {
        name: head.split_once('(')?.1.to_owned(),
        state: (*fields.first()?).to_owned(),
        ppid: number(1)? as u32,
        cpu_s: (number(11)? + number(12)?) as f64 / ticks as f64,
        start_s: number(19)? as f64 / ticks as f64,
        rss: number(21)? * page as u64,
    })
}

/// Returns the arguments on one line. A kernel thread has none, so its name is shown.
fn command_text(cmdline: &[u8], name: &str) -> String {
    let cmdline = cmdline.strip_suffix(b"\0").unwrap_or(cmdline);
    if cmdline.is_empty() {
        return format!("[{name}]");
    }
    let text = String::from_utf8_lossy(cmdline).replace('\0', " ");
    text.chars().take(COMMAND_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4 1 2 3 4 500 100 0 0 20 0 1 0 2000 9 3 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.name, "a) b (c)");
        assert_eq!((stat.state.as_str(), stat.ppid), ("S", 1));
        assert!(stat.cpu_s > 0.0 && stat.start_s > 0.0 && stat.rss > 0);
        assert_eq!(parse_stat("junk"), None);
    }

    #[test]
    fn this_process_is_listed() {
        let all = list(Some(MAX_LIMIT));
        assert!(all.processes.iter().any(|process| process.pid == std::process::id()));
        assert_eq!(list(Some(1)).processes.len(), 1);
    }
}
