//! What to run: checks the parameters of a command and makes a `Launch` of them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::params::{Params, wrong};
use crate::passwd::{self, User};
use crate::spawn::{self, Child, Launch, Leads, SpawnError, Step};
use crate::{blocking, environment, sys};

/// Where a distribution keeps its programs, which is on the root file system.
const LOCAL_DIRS: [&str; 3] = ["/bin/", "/sbin/", "/usr/"];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command as a client asked for it. Nothing of it was looked up in the guest but the user and
/// its home directory.
#[derive(Debug)]
pub struct Command {
    pub argv: Vec<String>,
    /// What errors call the program: `shell` or `command`.
    role: &'static str,
    program: String,
    cwd: String,
    pub user: User,
    user_is_given: bool,
    env: Vec<(String, String)>,
    pub timeout: Option<Duration>,
    pub exclusive: bool,
}

impl Command {
    /// `me` is the user that the agent runs as. Fails with `Param` or `BadRequest` when the
    /// parameters are wrong, and with `NotFound` when the user is unknown.
    pub fn from_params(params: &Params, me: &User) -> Result<Self> {
        let mut command = Self::base(params, me)?;
        match (params.opt_str("command")?, params.opt_strings("argv")?) {
            (Some(text), None) => {
                let shell = params.opt_str("shell")?.unwrap_or("/bin/sh").to_owned();
                command.role = "shell";
                command.argv = vec![shell.clone(), "-c".into(), text.to_owned()];
                command.program = shell;
            }
            (None, Some(argv)) => command.set_argv(argv)?,
            (None, None) => return Err(wrong("command", "or argv is required")),
            (Some(_), Some(_)) => return Err(wrong("command", "and argv exclude each other")),
        }
        Ok(command)
    }

    /// Like `from_params`, but the command runs on a terminal, and without a command it is a login
    /// shell.
    pub fn for_terminal(params: &Params, me: &User) -> Result<Self> {
        let is_login = params.opt_str("command")?.is_none() && params.opt_strings("argv")?.is_none();
        let mut command = if is_login {
            let mut command = Self::base(params, me)?;
            let shell = params.opt_str("shell")?.unwrap_or(&command.user.shell).to_owned();
            let name = shell.rsplit('/').next().unwrap_or(&shell);
            command.role = "shell";
            command.argv = vec![format!("-{name}")];
            command.program = shell;
            if params.opt_str("cwd")?.is_none() {
                command.cwd = existing_home(&command.user);
            }
            command
        } else {
            Self::from_params(params, me)?
        };
        if !command.env.iter().any(|(key, _)| key == "TERM") {
            command.env.push(("TERM".into(), "xterm-256color".into()));
        }
        Ok(command)
    }

    fn base(params: &Params, me: &User) -> Result<Self> {
        let given = params.opt_str("user")?;
        let user = match given {
            Some(name) if name != me.name => passwd::require_user(name)?,
            _ => me.clone(),
        };
        let cwd = match params.opt_str("cwd")? {
            Some(cwd) => cwd.to_owned(),
            None if given.is_some() => existing_home(&user),
            None => "/".to_owned(),
        };
        let env = params.string_map("env")?;
        if let Some((key, _)) = env.iter().find(|(key, _)| key.is_empty() || key.contains('=')) {
            return Err(Error::BadRequest(format!("env: {key:?} is not a variable name")));
        }
        Ok(Self {
            argv: Vec::new(),
            role: "command",
            program: String::new(),
            cwd,
            user_is_given: user.uid != me.uid,
            user,
            env: env
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            timeout: params.opt_seconds("timeout")?,
            exclusive: params.flag("exclusive", false)?,
        })
    }

    fn set_argv(&mut self, argv: Vec<String>) -> Result<()> {
        match argv.first() {
            Some(program) if !program.is_empty() => {
                self.program.clone_from(program);
                self.argv = argv;
                Ok(())
            }
            _ => Err(wrong("argv", "must name a program")),
        }
    }

    /// Starts the program. The future must run to its end: if it is dropped, nobody reaps the
    /// child. Errors name the program, the directory or the user that was at fault.
    pub async fn spawn(self, stdio: [Arc<OwnedFd>; 3], leads: Leads) -> Result<Child> {
        if self.may_hang() {
            blocking::run(move || self.spawn_now(&stdio, leads)).await
        } else {
            self.spawn_now(&stdio, leads)
        }
    }

    /// Whether starting the program may touch a mounted share whose server is gone: the thread that
    /// starts a child waits until it execs.
    fn may_hang(&self) -> bool {
        let is_local = |path: &str| LOCAL_DIRS.iter().any(|dir| path.starts_with(dir));
        let is_named = self.program.contains('/');
        self.cwd != "/"
            || is_named && !is_local(&self.program)
            || !is_named && self.env.iter().any(|(key, _)| key == "PATH")
    }

    fn spawn_now(&self, stdio: &[Arc<OwnedFd>; 3], leads: Leads) -> Result<Child> {
        let stdio = [stdio[0].as_raw_fd(), stdio[1].as_raw_fd(), stdio[2].as_raw_fd()];
        let launch = self
            .launch()
            .map_err(|error| Error::io(format!("{} {:?}", self.role, self.program), error))?;
        spawn::spawn(&launch, stdio, leads).map_err(|error| self.explain(error))
    }

    fn launch(&self) -> io::Result<Launch> {
        let common = environment::read();
        let env = self.environment(&common);
        let path = env
            .iter()
            .find(|(key, _)| *key == "PATH")
            .map_or(PATH, |(_, value)| value);
        Ok(Launch {
            candidates: self.candidates(path)?,
            argv: self
                .argv
                .iter()
                .map(|text| sys::c_string(text.as_bytes()))
                .collect::<io::Result<_>>()?,
            env: env
                .iter()
                .map(|(key, value)| sys::c_string(format!("{key}={value}").as_bytes()))
                .collect::<io::Result<_>>()?,
            cwd: sys::c_string(self.cwd.as_bytes())?,
            credentials: self.user_is_given.then(|| passwd::credentials(&self.user)),
        })
    }

    fn candidates(&self, path: &str) -> io::Result<Vec<CString>> {
        if self.program.contains('/') {
            return Ok(vec![sys::c_string(self.program.as_bytes())?]);
        }
        path.split(':')
            .map(|dir| if dir.is_empty() { "." } else { dir })
            .map(|dir| sys::c_string(format!("{dir}/{}", self.program).as_bytes()))
            .collect()
    }

    /// The default variables, those that are `common` to the whole system beside them, and those of
    /// the client added or in their place.
    fn environment<'a>(&'a self, common: &'a [(String, String)]) -> Vec<(&'a str, &'a str)> {
        let user = &self.user;
        let mut env = vec![
            ("PATH", PATH),
            ("HOME", user.home.as_str()),
            ("USER", user.name.as_str()),
            ("LOGNAME", user.name.as_str()),
            ("SHELL", user.shell.as_str()),
            ("LANG", "C.UTF-8"),
            ("PWD", self.cwd.as_str()),
        ];
        for (key, value) in common {
            if !env.iter().any(|(name, _)| name == key) {
                env.push((key, value));
            }
        }
        for (key, value) in &self.env {
            env.retain(|(name, _)| name != key);
            env.push((key, value));
        }
        env
    }

    fn explain(&self, error: SpawnError) -> Error {
        let what = match error.step {
            Step::Cwd => format!("cwd {:?}", self.cwd),
            Step::User => format!("user {:?}", self.user.name),
            Step::Exec => format!("{} {:?}", self.role, self.program),
            Step::Clone => "new process".to_owned(),
            Step::Terminal => "controlling terminal".to_owned(),
            Step::Stdio => "standard streams".to_owned(),
        };
        // To a client, a directory that is a file is as missing as one that does not exist.
        match (error.step, error.source.raw_os_error()) {
            (Step::Cwd, Some(libc::ENOENT | libc::ENOTDIR)) | (Step::Exec, Some(libc::ENOENT)) => Error::NotFound(what),
            _ => Error::io(what, error.source),
        }
    }
}

/// A user without a home directory starts in the root directory.
fn existing_home(user: &User) -> String {
    if std::fs::metadata(&user.home).is_ok_and(|home| home.is_dir()) {
        user.home.clone()
    } else {
        "/".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn command(params: Value) -> Result<Command> {
        Command::from_params(&Params::new(params)?, &User::nameless(0))
    }

    #[test]
    fn a_command_is_a_shell_or_an_argv() {
        let shell = command(json!({"command": "echo hi"})).unwrap();
        assert_eq!(shell.argv, ["/bin/sh", "-c", "echo hi"]);
        assert!(command(json!({})).is_err());
        assert!(command(json!({"argv": []})).is_err());
        assert!(command(json!({"command": "a", "argv": ["b"]})).is_err());
    }

    #[test]
    fn a_program_without_slash_is_looked_up_in_the_given_path() {
        let found = command(json!({"argv": ["ls"], "env": {"PATH": "/a::/b"}})).unwrap();
        let launch = found.launch().unwrap();
        let paths: Vec<_> = launch.candidates.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(paths, ["/a/ls", "./ls", "/b/ls"]);
        assert_eq!(
            launch.env.iter().filter(|e| e.as_bytes().starts_with(b"PATH=")).count(),
            1
        );
    }

    #[test]
    fn names_that_are_no_variables_are_refused() {
        assert!(command(json!({"command": "a", "env": {"A=B": "c"}})).is_err());
        assert!(command(json!({"command": "a\0b"})).unwrap().launch().is_err());
    }
}
