//! The one error type of the agent, and the code that a client sees for each error.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use serde::Serialize;

pub type Result<T> = std::result::Result<T, Error>;

/// The variants for mistakes of clients come first, then those for the state of the guest, then
/// those for failures of the system.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("parameter {name:?}: {want}")]
    Param { name: String, want: Cow<'static, str> },
    #[error("{0}")]
    BadRequest(String),
    #[error("no such method: {0:?}")]
    Method(String),
    #[error("wrong or missing token")]
    Unauthorized,
    #[error("no token is set yet")]
    TokenUnset,
    #[error("this agent does not own the machine")]
    NotOwner,
    #[error("{0}")]
    Forbidden(String),
    #[error("{0} not found")]
    NotFound(String),
    #[error("{0} exists")]
    Exists(String),
    #[error("{0}")]
    Busy(&'static str),
    #[error("{0}")]
    TooMany(&'static str),
    #[error("the root file system is frozen already")]
    Frozen,
    #[error("the root file system is not frozen{0}")]
    NotFrozen(&'static str),
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("{what} exceeds {limit} bytes")]
    TooLarge { what: &'static str, limit: usize },
    #[error("the session ended")]
    Gone,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A program could not be started.
    #[error("{what}: {source}")]
    Start {
        parameter: &'static str,
        what: String,
        source: io::Error,
    },
    /// A program or its directory is not there.
    #[error("{what} not found")]
    Missing {
        parameter: &'static str,
        what: String,
        source: io::Error,
    },
    #[error("{what}: {why}")]
    Failed { what: &'static str, why: String },
}

/// The word by which a client tells errors apart; see docs/internals/agent-protocol.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    NoSuchMethod,
    Exists,
    Busy,
    TooMany,
    Frozen,
    NotFrozen,
    TooLarge,
    NoSpace,
    Io,
    Unsupported,
    Unavailable,
    Internal,
}

impl Code {
    pub fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound | Self::NoSuchMethod => 404,
            Self::Exists | Self::Busy | Self::Frozen | Self::NotFrozen => 409,
            Self::TooLarge => 413,
            Self::TooMany => 429,
            Self::Io | Self::Internal => 500,
            Self::Unsupported => 501,
            Self::Unavailable => 503,
            Self::NoSpace => 507,
        }
    }
}

/// An error as it stands in replies and events.
#[derive(Debug, Serialize)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// The number of the error, if it came from the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The name of the parameter that is at fault, if one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
}

impl Error {
    /// Makes an error of the system. `what` names the object of the operation, such as a path, a
    /// user or a device.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }

    /// Makes an error of a failure for which neither the client nor a system call is to blame.
    pub fn failed(what: &'static str, why: impl ToString) -> Self {
        let why = why.to_string();
        Self::Failed { what, why }
    }

    pub fn code(&self) -> Code {
        match self {
            Self::Param { .. } | Self::BadRequest(_) => Code::BadRequest,
            Self::Unauthorized => Code::Unauthorized,
            Self::Forbidden(_) => Code::Forbidden,
            Self::NotFound(_) | Self::Missing { .. } => Code::NotFound,
            Self::Method(_) => Code::NoSuchMethod,
            Self::Exists(_) => Code::Exists,
            Self::Busy(_) => Code::Busy,
            Self::TooMany(_) => Code::TooMany,
            Self::Frozen => Code::Frozen,
            Self::NotFrozen(_) => Code::NotFrozen,
            Self::Unsupported(_) => Code::Unsupported,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::TokenUnset | Self::NotOwner | Self::Gone => Code::Unavailable,
            Self::Io { source, .. } | Self::Start { source, .. } => io_code(source),
            Self::Failed { .. } => Code::Internal,
        }
    }

    fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::Start { source, .. } | Self::Missing { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }

    fn parameter(&self) -> Option<String> {
        match self {
            Self::Param { name, .. } => Some(name.clone()),
            Self::Start { parameter, .. } | Self::Missing { parameter, .. } => Some((*parameter).to_owned()),
            _ => None,
        }
    }

    /// Returns the error as it stands in replies and events.
    pub fn refusal(&self) -> Refusal {
        Refusal {
            code: self.code(),
            message: self.to_string(),
            errno: self.errno(),
            parameter: self.parameter(),
        }
    }
}

/// Makes an error of a system call on `path`.
pub fn about(path: &Path, error: io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}

fn io_code(error: &io::Error) -> Code {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Code::NotFound,
        Some(libc::EEXIST | libc::ENOTEMPTY) => Code::Exists,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => Code::Forbidden,
        Some(libc::ENOSPC | libc::EDQUOT) => Code::NoSpace,
        Some(libc::EBUSY | libc::ETXTBSY) => Code::Busy,
        Some(libc::ENOTDIR | libc::EISDIR | libc::EINVAL | libc::ENAMETOOLONG | libc::ELOOP | libc::EXDEV) => {
            Code::BadRequest
        }
        Some(libc::EFBIG) => Code::TooLarge,
        // A path contains a NUL byte, which is found before any system call is made.
        None if error.kind() == io::ErrorKind::InvalidInput => Code::BadRequest,
        _ => Code::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn system_errors_map_to_the_codes_of_the_contract() {
        let code = |n| Error::io("/x", io::Error::from_raw_os_error(n)).code();
        assert_eq!(code(libc::ENOENT), Code::NotFound);
        assert_eq!(code(libc::EEXIST), Code::Exists);
        assert_eq!(code(libc::EACCES), Code::Forbidden);
        assert_eq!(code(libc::ENOSPC), Code::NoSpace);
        assert_eq!(code(libc::EIO), Code::Io);
    }

    #[test]
    fn messages_name_the_path() {
        let error = Error::io("/etc/nothing", io::Error::from_raw_os_error(libc::ENOENT));
        assert!(error.to_string().contains("/etc/nothing"));
        assert_eq!(error.code().http_status(), 404);
    }

    #[test]
    fn a_refusal_has_the_number_of_the_system_and_the_parameter_at_fault() {
        let told = |error: Error| serde_json::to_value(error.refusal()).unwrap();
        let down = told(Error::io("/mnt", io::Error::from_raw_os_error(libc::EHOSTDOWN)));
        assert_eq!(
            (&down["code"], &down["errno"], down.get("parameter")),
            (&json!("io"), &json!(112), None)
        );
        let method = told(Error::Method("x".into()));
        assert_eq!(
            method,
            json!({"code": "no_such_method", "message": "no such method: \"x\""})
        );
        let missing = told(Error::Missing {
            parameter: "argv",
            what: "command \"x\"".into(),
            source: io::Error::from_raw_os_error(libc::ENOENT),
        });
        let fields = ["code", "message", "errno", "parameter"].map(|key| missing[key].clone());
        assert_eq!(
            json!(fields),
            json!(["not_found", "command \"x\" not found", 2, "argv"])
        );
    }
}
