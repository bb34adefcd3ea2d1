//! The requests and answers that are the same over every transport, and the state of the agent that
//! they share.
//!
//! The families of files and of shares stand in the rooms that carry them out.

pub mod agent;
pub mod machine;
pub mod methods;
pub mod token;
