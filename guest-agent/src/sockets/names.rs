//! Looks host names up, as the guest's programs do.
//!
//! The agent has no name service of its own: its C library is linked in, and the guest's modules
//! for names fit only the guest's. So it reads `/etc/hosts`, and asks `getent` for all other names.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;

use crate::base::blocking;
use crate::base::error::{Error, Result};
use crate::processes::command::Command;
use crate::processes::exec::{self, Commands, Ties};

const HOSTS: &str = "/etc/hosts";
/// The file is read up to this many bytes.
const READ_LIMIT: u64 = 1 << 20;
const ADDRESSES_MAX: usize = 16;
/// The exit code of getent(1) for a name that nobody knows.
const UNKNOWN: i32 = 2;

/// Returns the addresses of a name, at least one. Fails with `NotFound` when nobody knows the name,
/// and with `Missing` when the guest has no `getent`.
pub async fn look_up(commands: &Commands, name: &str, ties: Ties<'_>) -> Result<Vec<IpAddr>> {
    let wanted = name.to_owned();
    let mut found = blocking::run(move || Ok(find_in_hosts(&read_bounded(HOSTS).unwrap_or_default(), &wanted))).await?;
    if found.is_empty() {
        found = ask(commands, name, ties).await?;
    }
    found.truncate(ADDRESSES_MAX);
    if found.is_empty() {
        return Err(Error::NotFound(format!("host {name:?}")));
    }
    Ok(found)
}

fn read_bounded(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the addresses of a name in the text of a hosts file; see hosts(5).
fn find_in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let entry = |line: &str| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    };
    text.lines().filter_map(entry).collect()
}

/// Asks the guest's own resolver.
async fn ask(commands: &Commands, name: &str, ties: Ties<'_>) -> Result<Vec<IpAddr>> {
    let command = Command::of_agent(&["getent", "ahosts", name], &commands.me);
    let answer = exec::collect(commands, command, None, ties).await?;
    match answer.exit_code {
        0 | UNKNOWN => Ok(parse_answer(&answer.stdout)),
        code => Err(Error::failed("getent", format!("exit code {code}"))),
    }
}

/// Reads the addresses at the beginnings of the lines. Each is there once for every type of socket.
fn parse_answer(text: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let word = line.split_ascii_whitespace().next().unwrap_or_default();
        if let Ok(address) = word.parse()
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_hosts_file_are_found_in_any_case() {
        let text = "# 1.1.1.1 db\n10.0.0.1 db.lan DB # db2\nnonsense db\n\n::5 db\n10.0.0.2 db2";
        let found: Vec<_> = find_in_hosts(text, "dB").iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1", "::5"]);
        assert!(find_in_hosts(text, "none").is_empty());
    }

    #[test]
    fn each_address_of_an_answer_is_taken_once() {
        let text = "10.0.0.1 STREAM db\n10.0.0.1 DGRAM\n::5 STREAM\nrubbish\n\n";
        let found: Vec<_> = parse_answer(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1", "::5"]);
    }
}
