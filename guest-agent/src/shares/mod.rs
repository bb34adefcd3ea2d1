//! Directories of the host in the guest: mounting them, and telling programs of what the host
//! changes in them.
//!
//! Their server is gone after a revert, so nothing here may wait for it without a limit.

pub mod changes;
pub mod ciphers;
pub mod mounting;
pub mod watched;
