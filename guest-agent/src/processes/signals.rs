//! The names and numbers of signals.

use serde::Deserialize;
use serde_json::Value;

const NAMES: [(&str, i32); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// A signal, which a client gives as a number, or as a name with or without `SIG`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub struct Signal(pub i32);

impl TryFrom<Value> for Signal {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, &'static str> {
        find(&value).map(Self).ok_or("must be a signal's name or number")
    }
}

fn find(value: &Value) -> Option<i32> {
    match value {
        Value::Number(number) => number.as_i64().filter(|n| (0..=64).contains(n)).map(|n| n as i32),
        Value::String(name) => {
            let name = name.to_ascii_uppercase();
            let name = name.strip_prefix("SIG").unwrap_or(&name);
            NAMES.iter().find(|(known, _)| *known == name).map(|(_, n)| *n)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signals_have_names_and_numbers() {
        for value in [json!("INT"), json!("sigint"), json!(2)] {
            assert_eq!(find(&value), Some(libc::SIGINT));
        }
        for value in [json!("NONE"), json!(65), json!(-1), json!(null)] {
            assert_eq!(find(&value), None);
        }
    }
}
