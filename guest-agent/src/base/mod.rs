//! The ground that all rooms stand on: system calls, errors and the log, the decoding of
//! parameters, threads for calls that may hang, and starting a program.
//!
//! Nothing here knows of clients, or of a sandbox.

pub mod base64;
pub mod blocking;
pub mod closed;
pub mod error;
pub mod log;
pub mod mutex;
pub mod oom;
pub mod params;
pub mod spawn;
pub mod sys;
