//! The one error type of the agent, and the code that a client sees for each error.

use std::io;

use serde_json::{Value, json};

pub type Result<T> = std::result::Result<T, Error>;

/// The mistakes of clients come first, then the state of the guest, then failures of the system.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("parameter {name:?}: {want}")]
    Param { name: String, want: &'static str },
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
    #[error("{what}: {why}")]
    Failed { what: &'static str, why: String },
}

impl Error {
    /// `what` names the object of the operation, such as a path, a user or a device.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }

    /// The stable name that clients compare; see docs/internals/agent-protocol.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Param { .. } | Self::BadRequest(_) => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::Method(_) | Self::NotFound(_) => "not_found",
            Self::Exists(_) => "exists",
            Self::Busy(_) => "busy",
            Self::Frozen => "frozen",
            Self::NotFrozen(_) => "not_frozen",
            Self::Unsupported(_) => "unsupported",
            Self::TooLarge { .. } => "too_large",
            Self::TokenUnset | Self::NotOwner | Self::Gone => "unavailable",
            Self::Io { source, .. } => io_code(source),
            Self::Failed { .. } => "internal",
        }
    }

    pub fn http_status(&self) -> u16 {
        match self.code() {
            "bad_request" => 400,
            "unauthorized" => 401,
            "forbidden" => 403,
            "not_found" => 404,
            "exists" | "busy" | "frozen" | "not_frozen" => 409,
            "too_large" => 413,
            "unsupported" => 501,
            "unavailable" => 503,
            "no_space" => 507,
            _ => 500,
        }
    }

    /// The error as it stands in replies and events.
    pub fn to_json(&self) -> Value {
        json!({"code": self.code(), "message": self.to_string()})
    }
}

fn io_code(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => "not_found",
        Some(libc::EEXIST | libc::ENOTEMPTY) => "exists",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => "forbidden",
        Some(libc::ENOSPC | libc::EDQUOT) => "no_space",
        Some(libc::EBUSY | libc::ETXTBSY) => "busy",
        Some(libc::ENOTDIR | libc::EISDIR | libc::EINVAL | libc::ENAMETOOLONG | libc::ELOOP | libc::EXDEV) => {
            "bad_request"
        }
        Some(libc::EFBIG) => "too_large",
        // A path contains a NUL byte, which is found before any system call is made.
        None if error.kind() == io::ErrorKind::InvalidInput => "bad_request",
        _ => "io",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_map_to_the_codes_of_the_contract() {
        let code = |n| Error::io("/x", io::Error::from_raw_os_error(n)).code();
        assert_eq!(code(libc::ENOENT), "not_found");
        assert_eq!(code(libc::EEXIST), "exists");
        assert_eq!(code(libc::EACCES), "forbidden");
        assert_eq!(code(libc::ENOSPC), "no_space");
        assert_eq!(code(libc::EIO), "io");
    }

    #[test]
    fn messages_name_the_path() {
        let error = Error::io("/etc/nothing", io::Error::from_raw_os_error(libc::ENOENT));
        assert!(error.to_string().contains("/etc/nothing"));
        assert_eq!(error.http_status(), 404);
    }
}
