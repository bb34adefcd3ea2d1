//! Checks the parameters of a command and makes a `Launch` of them.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::base::error::{Error, Result};
use crate::base::params::{Raw, Seconds, wrong};
use crate::base::spawn::{self, Child, Launch, Leads, SpawnError, Step};
use crate::base::{blocking, sys};
use crate::users::defaults::Defaults;
use crate::users::passwd::{self, User};
use crate::users::{environment, login};

/// The directories of a distribution's programs, which lie on the root file system.
const LOCAL_DIRS: [&str; 3] = ["/bin/", "/sbin/", "/usr/"];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// This program, also after its file is gone with the initial file system.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The program is the command itself, or the shell that runs it.
#[derive(Clone, Copy, Debug)]
enum Role {
    Command,
    Shell,
}

/// A command as a client asked for it. Only the user and its home directory have been looked up in
/// the guest.
#[derive(Debug)]
pub struct Command {
    pub argv: Vec<OsString>,
    role: Role,
    program: OsString,
    cwd: OsString,
    pub user: User,
    /// Tells whether it is started by the user's rights, and not by the agent's.
    takes_on: bool,
    env: Vec<(OsString, OsString)>,
    /// The defaults of the image, if the client asked for them.
    image: Option<Defaults>,
    pub timeout: Option<Duration>,
    pub exclusive: bool,
}

/// The parameters of a request that starts a program.
#[derive(Debug, Default, Deserialize)]
pub struct Program {
    /// A text for the shell. A request has either this or `argv`.
    command: Option<Raw>,
    argv: Option<Vec<Raw>>,
    shell: Option<Raw>,
    cwd: Option<Raw>,
    user: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// More variables, each as `NAME=value`.
    #[serde(default)]
    env_b64: Vec<Raw>,
    #[serde(default)]
    timeout: Seconds,
    /// Tells whether no other command may run beside this one.
    #[serde(default)]
    exclusive: bool,
    /// Tells whether the image's variables, user and directory apply where the request has none.
    #[serde(default)]
    defaults: bool,
    /// Tells whether the image's command is run, with `argv` in place of its own words.
    #[serde(default)]
    entrypoint: bool,
}

impl Program {
    /// Returns the variables of `env` and of `env_b64`.
    fn variables(&mut self) -> Result<Vec<(OsString, OsString)>> {
        let texts = std::mem::take(&mut self.env).into_iter();
        let mut found: Vec<(OsString, OsString)> = texts.map(|(key, value)| (key.into(), value.into())).collect();
        for Raw(item) in &self.env_b64 {
            let equals = item.iter().position(|byte| *byte == b'=');
            let equals = equals.ok_or_else(|| wrong("env_b64", "has an item without an equals sign"))?;
            let [key, value] = [&item[..equals], &item[equals + 1..]].map(|bytes| OsStr::from_bytes(bytes).to_owned());
            found.push((key, value));
        }
        let is_wrong = |key: &OsStr| key.is_empty() || key.as_bytes().contains(&b'=');
        match found.iter().find(|(key, _)| is_wrong(key)) {
            Some((key, _)) => Err(wrong("env", format!("{key:?} is not a variable name"))),
            None => Ok(found),
        }
    }
}

impl Command {
    /// Checks the parameters. `me` is the user that the agent runs as. Fails with `Param` when a
    /// parameter is wrong, and with `NotFound` when the user is unknown.
    pub fn new(mut program: Program, me: &User) -> Result<Self> {
        let mut command = Self::base(&mut program, me)?;
        if program.entrypoint {
            let words = program.argv.take().unwrap_or_default();
            let image = command.image.as_ref();
            let argv = image.map(|image| image.command(words.into_iter().map(OsString::from).collect()));
            let argv = argv.filter(|argv| !argv.is_empty());
            let argv = argv.ok_or_else(|| wrong("entrypoint", "needs an image with a command of its own"))?;
            command.set_argv(argv)?;
            return Ok(command);
        }
        match (program.command, program.argv) {
            (Some(text), None) => {
                let shell = program.shell.map_or_else(|| "/bin/sh".into(), OsString::from);
                command.role = Role::Shell;
                command.argv = vec![shell.clone(), "-c".into(), text.into()];
                command.program = shell;
            }
            (None, Some(argv)) => command.set_argv(argv.into_iter().map(OsString::from).collect())?,
            (None, None) => return Err(wrong("command", "or argv is required")),
            (Some(_), Some(_)) => return Err(wrong("command", "and argv exclude each other")),
        }
        Ok(command)
    }

    /// Makes a command that the agent needs for itself. `argv` must not be empty.
    pub fn of_agent(argv: &[&str], me: &User) -> Self {
        Self::of_user(argv, me.clone(), "/".into())
    }

    /// Makes the SFTP server of a user, which is this program in another role. It begins in the
    /// user's home directory.
    pub fn of_sftp(user: Option<&str>, me: &User) -> Result<Self> {
        let user = login::find(user, Defaults::read().as_ref(), me)?;
        let mut argv = vec!["quicksand-agent".to_owned(), "sftp".to_owned()];
        if let Some(credentials) = passwd::credentials(&user) {
            // It takes on the user's rights itself: by those, this program could not be executed.
            argv.extend(credentials.to_words());
        }
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let cwd = login::home_of(&user).into();
        let mut command = Self::of_user(&argv, user, cwd);
        command.program = THIS_PROGRAM.into();
        Ok(command)
    }

    fn of_user(argv: &[&str], user: User, cwd: OsString) -> Self {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        Self {
            program: argv[0].clone(),
            argv,
            role: Role::Command,
            cwd,
            user,
            takes_on: false,
            env: Vec::new(),
            image: None,
            timeout: None,
            exclusive: false,
        }
    }

    /// Like `new`, but the command runs on a terminal, and without a command it is a login shell.
    pub fn for_terminal(mut program: Program, me: &User) -> Result<Self> {
        let is_login = program.command.is_none() && program.argv.is_none() && !program.entrypoint;
        let mut command = if is_login {
            let lacks_cwd = program.cwd.is_none();
            let mut command = Self::base(&mut program, me)?;
            let shell = program.shell.map_or_else(
                || login::usual_shell(&command.user, command.image.is_some()),
                OsString::from,
            );
            // A login shell would read /etc/profile, which sets PATH anew.
            let mut login = OsString::from(if command.image.is_some() { "" } else { "-" });
            login.push(Path::new(&shell).file_name().unwrap_or(&shell));
            command.role = Role::Shell;
            command.argv = vec![login];
            command.program = shell;
            if lacks_cwd && command.image.as_ref().and_then(Defaults::cwd).is_none() {
                command.cwd = login::home_of(&command.user).into();
            }
            command
        } else {
            Self::new(program, me)?
        };
        if !command.env.iter().any(|(key, _)| key == "TERM") {
            command.env.push(("TERM".into(), "xterm-256color".into()));
        }
        Ok(command)
    }

    /// Tells a session of SSH the name of its terminal, as sshd does (ssh(1)): editors and tmux look
    /// at it.
    pub fn tell_terminal(&mut self, name: &str) {
        let has = |wanted: &str| self.env.iter().any(|(key, _)| key == wanted);
        if has("SSH_CONNECTION") && !has("SSH_TTY") {
            self.env.push(("SSH_TTY".into(), name.into()));
        }
    }

    fn base(program: &mut Program, me: &User) -> Result<Self> {
        let image = if program.defaults || program.entrypoint {
            Defaults::read()
        } else {
            None
        };
        let given = program.user.as_deref();
        let user = login::find(given, image.as_ref(), me)?;
        let usual = image.as_ref().and_then(Defaults::cwd);
        let cwd = match (program.cwd.take(), usual) {
            (Some(cwd), _) => cwd.into(),
            (None, Some(usual)) => usual,
            (None, None) if given.is_some() => login::home_of(&user).into(),
            (None, None) => "/".into(),
        };
        Ok(Self {
            argv: Vec::new(),
            role: Role::Command,
            program: OsString::new(),
            cwd,
            takes_on: true,
            user,
            env: program.variables()?,
            image,
            timeout: program.timeout.0,
            exclusive: program.exclusive,
        })
    }

    fn set_argv(&mut self, argv: Vec<OsString>) -> Result<()> {
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

    /// Tells whether the start may touch a mounted share. Its server may be gone, and the thread
    /// that starts a child waits until the child execs.
    fn may_hang(&self) -> bool {
        let is_local = |path: &OsStr| LOCAL_DIRS.iter().any(|dir| path.as_bytes().starts_with(dir.as_bytes()));
        let is_named = is_path(&self.program);
        self.cwd != "/"
            || is_named && !is_local(&self.program)
            || !is_named && self.env.iter().any(|(key, _)| key == "PATH")
            || !is_named && self.image.is_some()
    }

    fn spawn_now(&self, stdio: &[Arc<OwnedFd>; 3], leads: Leads) -> Result<Child> {
        let stdio = [stdio[0].as_raw_fd(), stdio[1].as_raw_fd(), stdio[2].as_raw_fd()];
        let launch = self.launch().map_err(|source| Error::Start {
            parameter: self.parameter(),
            what: self.describe_program(),
            source,
        })?;
        spawn::spawn(&launch, stdio, leads).map_err(|error| self.explain(error))
    }

    fn launch(&self) -> io::Result<Launch> {
        let common = environment::read();
        let env = self.environment(&common);
        let path = env
            .iter()
            .find(|(key, _)| *key == "PATH")
            .map_or(OsStr::new(PATH), |(_, value)| value);
        Ok(Launch {
            candidates: self.candidates(path)?,
            argv: self
                .argv
                .iter()
                .map(|text| sys::c_string(text.as_bytes()))
                .collect::<io::Result<_>>()?,
            env: env
                .iter()
                .map(|(key, value)| sys::c_string(&[key.as_bytes(), b"=", value.as_bytes()].concat()))
                .collect::<io::Result<_>>()?,
            cwd: sys::c_string(self.cwd.as_bytes())?,
            credentials: if self.takes_on {
                passwd::credentials(&self.user)
            } else {
                None
            },
        })
    }

    fn candidates(&self, path: &OsStr) -> io::Result<Vec<CString>> {
        let program = self.program.as_bytes();
        if is_path(&self.program) {
            return Ok(vec![sys::c_string(program)?]);
        }
        path.as_bytes()
            .split(|byte| *byte == b':')
            .map(|dir| if dir.is_empty() { b"." } else { dir })
            .map(|dir| sys::c_string(&[dir, b"/", program].concat()))
            .collect()
    }

    /// Returns the default variables, those that are `common` to the whole system, those of the image
    /// and those of the client. A later one replaces an earlier one, except that a common one
    /// replaces no default.
    fn environment<'a>(&'a self, common: &'a [(OsString, OsString)]) -> Vec<(&'a OsStr, &'a OsStr)> {
        let user = &self.user;
        let mut env = [
            ("PATH", PATH),
            ("HOME", user.home.as_str()),
            ("USER", user.name.as_str()),
            ("LOGNAME", user.name.as_str()),
            ("SHELL", user.shell.as_str()),
            ("LANG", "C.UTF-8"),
        ]
        .map(|(name, value)| (OsStr::new(name), OsStr::new(value)))
        .to_vec();
        env.push((OsStr::new("PWD"), &self.cwd));
        for (key, value) in common {
            if !env.iter().any(|(name, _)| name == key) {
                env.push((key, value));
            }
        }
        let image = self.image.iter().flat_map(Defaults::variables);
        let given = self.env.iter().map(|(key, value)| (key.as_os_str(), value.as_os_str()));
        for (key, value) in image.chain(given) {
            env.retain(|(name, _)| *name != key);
            env.push((key, value));
        }
        env
    }

    fn explain(&self, error: SpawnError) -> Error {
        let SpawnError { step, source } = error;
        let (parameter, what) = match step {
            Step::Cwd => ("cwd", format!("cwd {:?}", self.cwd)),
            Step::User => ("user", format!("user {:?}", self.user.name)),
            Step::Exec => (self.parameter(), self.describe_program()),
            Step::Clone => return Error::io("new process", source),
            Step::Terminal => return Error::io("controlling terminal", source),
            Step::Stdio => return Error::io("standard streams", source),
        };
        // To a client, a directory that is a file is as missing as one that does not exist.
        match (step, source.raw_os_error()) {
            (Step::Cwd, Some(libc::ENOENT | libc::ENOTDIR)) | (Step::Exec, Some(libc::ENOENT)) => Error::Missing {
                parameter,
                what,
                source,
            },
            _ => Error::Start {
                parameter,
                what,
                source,
            },
        }
    }

    /// Returns the parameter that names the program.
    fn parameter(&self) -> &'static str {
        match self.role {
            Role::Shell => "shell",
            Role::Command => "argv",
        }
    }

    fn describe_program(&self) -> String {
        let role = match self.role {
            Role::Shell => "shell",
            Role::Command => "command",
        };
        format!("{role} {:?}", self.program)
    }
}

/// Tells whether a program is named by its path. Then it is not looked up in `PATH`.
fn is_path(program: &OsStr) -> bool {
    program.as_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::params::Params;
    use serde_json::{Value, json};

    fn command(params: Value) -> Result<Command> {
        let mut params: Params = serde_json::from_value(params).unwrap();
        Command::new(params.take()?, &User::nameless(0))
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
    fn every_part_of_a_command_may_be_any_bytes() {
        let coded = |bytes: &[u8]| crate::base::base64::encode(bytes);
        let found = command(json!({
            "argv_b64": [coded(b"/bin/x\xff"), coded(b"\xfe=")],
            "cwd_b64": coded(b"/tmp/\xfd"),
            "env": {"A": "a"},
            "env_b64": [coded(b"\xfc=\xfb=\xfa"), coded(b"B=")],
        }));
        let launch = found.unwrap().launch().unwrap();
        assert_eq!(launch.candidates[0].as_bytes(), b"/bin/x\xff");
        assert_eq!(launch.argv[1].as_bytes(), b"\xfe=");
        assert_eq!(launch.cwd.as_bytes(), b"/tmp/\xfd");
        for variable in [&b"\xfc=\xfb=\xfa"[..], b"A=a", b"B=", b"PWD=/tmp/\xfd"] {
            assert!(launch.env.iter().any(|set| set.as_bytes() == variable));
        }
        let shell = command(json!({"command_b64": coded(b"echo \xff"), "shell_b64": coded(b"/bin/\xff")}));
        let launch = shell.unwrap().launch().unwrap();
        assert_eq!(launch.candidates[0].as_bytes(), b"/bin/\xff");
        assert_eq!(launch.argv[2].as_bytes(), b"echo \xff");
    }

    #[test]
    fn names_that_are_no_variables_are_refused() {
        for item in [&b"=x"[..], b"no equals sign"] {
            let env = json!([crate::base::base64::encode(item)]);
            assert!(command(json!({"command": "a", "env_b64": env})).is_err());
        }
        assert!(command(json!({"command": "a", "env": {"A=B": "c"}})).is_err());
        assert!(command(json!({"command": "a\0b"})).unwrap().launch().is_err());
    }
}
