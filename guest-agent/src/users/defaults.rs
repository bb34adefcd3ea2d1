//! Reads the defaults that an image has for the commands of its users. An image that was made of a
//! container image has such a file, with what that one says of how it is run; others have none.
//!
//! It applies to a request that asks for it (`defaults`), which those of users do, and not to what
//! the host runs by itself.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Deserialize;

use super::environment::read_small;
use super::passwd::{self, User};
use crate::base::error::Result;

const FILE: &str = "/usr/lib/quicksand/defaults.json";
/// The bytes that the file may have.
const SIZE_MAX: u64 = 64 * 1024;

/// The contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Defaults {
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    /// Each is `NAME=value`.
    env: Vec<String>,
    /// `USER` or `USER:GROUP`, by name or number; empty for root.
    user: String,
    cwd: String,
}

impl Defaults {
    /// Reads the file. One that is missing, or that something else has spoilt, gives nothing.
    pub fn read() -> Option<Self> {
        Self::parse(&read_small(Path::new(FILE), SIZE_MAX)?)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the user that commands run as, or `None` for the agent's own. Fails with `NotFound`
    /// for one that the guest does not have.
    pub fn user(&self) -> Result<Option<User>> {
        let is_said = !self.user.is_empty();
        is_said.then(|| passwd::require_user(&self.user)).transpose()
    }

    /// Returns the directory that commands run in, if it is there.
    pub fn cwd(&self) -> Option<OsString> {
        let is_there = std::fs::metadata(&self.cwd).is_ok_and(|found| found.is_dir());
        is_there.then(|| self.cwd.clone().into())
    }

    /// Returns the variables.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.env
            .iter()
            .filter_map(|item| item.split_once('='))
            .filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'))
            .map(|(name, value)| (OsStr::from_bytes(name.as_bytes()), OsStr::from_bytes(value.as_bytes())))
    }

    /// Returns the command of the image: its entrypoint with `words` behind it or, if there are
    /// none, with its own.
    pub fn command(&self, words: Vec<OsString>) -> Vec<OsString> {
        let mut argv: Vec<OsString> = self.entrypoint.iter().map(OsString::from).collect();
        if words.is_empty() {
            argv.extend(self.cmd.iter().map(OsString::from));
        } else {
            argv.extend(words);
        }
        argv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    #[test]
    fn words_take_the_place_of_the_images_own() {
        let found = Defaults::parse(br#"{"entrypoint": ["/app", "-v"], "cmd": ["serve"]}"#).unwrap();
        assert_eq!(found.command(Vec::new()), words(&["/app", "-v", "serve"]));
        assert_eq!(found.command(words(&["check"])), words(&["/app", "-v", "check"]));
        let bare = Defaults::parse(br#"{"cmd": ["sh"]}"#).unwrap();
        assert_eq!(bare.command(Vec::new()), words(&["sh"]));
        assert_eq!(bare.command(words(&["ls"])), words(&["ls"]));
    }

    #[test]
    fn a_spoilt_file_gives_nothing_and_what_is_no_variable_is_left_out() {
        assert!(Defaults::parse(b"{").is_none());
        assert!(Defaults::parse(br#"{"env": 1}"#).is_none());
        let found = Defaults::parse(br#"{"env": ["A=b=c", "=x", "none", "B="], "later": 1}"#).unwrap();
        let pairs: Vec<_> = found.variables().collect();
        let expected = [("A", "b=c"), ("B", "")].map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        assert_eq!(pairs, expected);
    }

    #[test]
    fn an_image_may_say_no_user() {
        let user = |text: &str| {
            Defaults {
                user: text.to_owned(),
                ..Defaults::default()
            }
            .user()
        };
        assert!(user("").unwrap().is_none());
        assert_eq!(
            user("4242:4343").unwrap(),
            Some(passwd::require_user("4242:4343").unwrap())
        );
        assert!(user("nobody has this name").is_err());
    }

    #[test]
    fn a_directory_that_is_not_there_is_none() {
        let cwd = |text: &str| {
            Defaults {
                cwd: text.to_owned(),
                ..Defaults::default()
            }
            .cwd()
        };
        assert_eq!(cwd("/"), Some("/".into()));
        assert_eq!((cwd(""), cwd("/there is none")), (None, None));
    }
}
