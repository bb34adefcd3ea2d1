//! The files of the guest for clients: describing and changing them, and reading, writing and
//! watching them.
//!
//! All of it may hang on a slow disk or a share, so callers run it on threads.

pub mod metadata;
pub mod reader;
pub mod sparse;
pub mod tree;
pub mod volatile;
pub mod watch;
pub mod writer;
