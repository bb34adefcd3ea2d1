//! Users who log in, and the beginnings of their sessions.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::defaults::Defaults;
use super::passwd::{self, User};
use crate::base::error::Result;

/// A user as a client is told of it.
#[derive(Debug, Serialize)]
pub struct Login {
    name: String,
    uid: u32,
    gid: u32,
    /// The home directory, or the root directory if the user has none.
    home: String,
    /// The shell that runs commands.
    shell: String,
}

/// Finds the user that a client names. Without a name that is whom `image` says, or else `me`, the
/// user that the agent runs as. Fails with `NotFound`.
pub fn find(name: Option<&str>, image: Option<&Defaults>, me: &User) -> Result<User> {
    match name {
        Some(name) if name != me.name => passwd::require_user(name),
        Some(_) => Ok(me.clone()),
        None => {
            let user = image.map(Defaults::user).transpose()?.flatten();
            Ok(user.unwrap_or_else(|| me.clone()))
        }
    }
}

/// Describes the user that `find` finds. Fails as that does.
pub fn describe(name: Option<&str>, me: &User) -> Result<Login> {
    let image = Defaults::read();
    let user = find(name, image.as_ref(), me)?;
    let shell = usual_shell(&user, image.is_some());
    Ok(Login {
        home: home_of(&user).to_owned(),
        shell: shell.into_string().unwrap_or_else(|_| "/bin/sh".into()),
        name: user.name,
        uid: user.uid,
        gid: user.gid,
    })
}

/// Returns the user's home directory, or the root directory if the user has none.
pub fn home_of(user: &User) -> &str {
    let is_dir = fs::metadata(&user.home).is_ok_and(|home| home.is_dir());
    if is_dir { &user.home } else { "/" }
}

/// Returns the user's shell. In an image of a container that is often a program that lets nobody
/// in, or none.
pub fn usual_shell(user: &User, is_of_container: bool) -> OsString {
    let own = Path::new(&user.shell);
    let lets_in = !own.ends_with("nologin") && !own.ends_with("false") && own.exists();
    if !is_of_container || lets_in {
        own.into()
    } else {
        "/bin/sh".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number_and_without_a_name_it_is_the_agents_own() {
        let me = User::nameless(0);
        assert_eq!(find(None, None, &me).unwrap(), me);
        assert_eq!(find(Some("root"), None, &me).unwrap(), me);
        assert_eq!(describe(Some("4711"), &me).unwrap().uid, 4711);
        assert!(find(Some("nobody-here"), None, &me).is_err());
    }

    #[test]
    fn who_has_no_home_begins_at_the_root() {
        let user = User {
            home: "/no/such/home".into(),
            ..User::nameless(4711)
        };
        assert_eq!(home_of(&user), "/");
    }
}
