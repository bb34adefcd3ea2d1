//! Clients that the host connects by virtio-serial, or by a Unix socket in tests: their sessions,
//! and what runs on the channels of one.
//!
//! All that needs no channel is done by `requests`.

pub mod carrying;
pub mod connections;
pub mod datagrams;
pub mod exec;
pub mod files;
pub mod kept;
pub mod listening;
pub mod pty;
pub mod requests;
pub mod serial;
pub mod serving;
pub mod state;
pub mod udp;
pub mod waiting;
pub mod watching;
