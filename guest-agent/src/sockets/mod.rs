//! Services in the guest, and sockets at which a client listens: by name, by port or by path.
//!
//! A Unix socket is opened and made by the rights of a user, and not by those of the agent.

pub mod address;
pub mod names;
pub mod unix;
