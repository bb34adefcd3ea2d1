//! The programs that run for a client: commands and terminals, with their input, output and end.
//!
//! A client is a channel here, over whichever transport it came.

pub mod command;
pub mod exec;
pub mod feed;
pub mod gate;
pub mod kept;
pub mod outcome;
pub mod output;
pub mod proc;
pub mod pty;
pub mod scrollback;
pub mod signals;
pub mod utf8;
