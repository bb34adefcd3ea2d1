//! The way to a client: frames, the channels that share it, and the flow control of each.
//!
//! It moves bytes, and does not know which requests there are. The format is described in
//! docs/internals/agent-protocol.md.

pub mod channel;
pub mod events;
pub mod outbox;
pub mod port;
pub mod source;
pub mod wire;
