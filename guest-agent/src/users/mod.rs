//! The users of the guest, as its files under /etc and its image describe them, and what a program of
//! a user's begins with.
//!
//! The name services of the guest's C library are out of reach: the agent has its own C library
//! linked in, since it also runs where the guest has none.

pub mod defaults;
pub mod environment;
pub mod login;
pub mod passwd;
