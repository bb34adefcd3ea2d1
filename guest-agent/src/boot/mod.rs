//! The processes of the agent: the first one, which goes from the initramfs to a root file system;
//! the one that keeps a server running; and the server.
//!
//! `main` picks which of them this process is. No other room knows this one.

pub mod cmdline;
pub mod drivers;
pub mod file_system;
pub mod init;
pub mod root_device;
pub mod server;
pub mod supervise;
