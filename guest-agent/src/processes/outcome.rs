//! How a command ended.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::spawn;
use crate::link::events::Event;

/// The end of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub canceled: bool,
    /// The mistake of the client, if the agent ended the command because of it.
    pub broken: Option<String>,
    pub duration: Duration,
}

impl Outcome {
    /// Makes the outcome of a program that nobody ended, of its wait status.
    pub fn of_itself(status: i32, duration: Duration) -> Self {
        let (exit_code, signal) = spawn::decode_status(status);
        Self {
            exit_code,
            signal,
            timed_out: false,
            canceled: false,
            broken: None,
            duration,
        }
    }

    /// Returns the event that tells a session how the command on its channel ended.
    pub fn exit_event(self, channel: u32) -> Event {
        Event::Exit {
            channel,
            exit_code: self.exit_code,
            signal: self.signal,
            timed_out: self.timed_out,
            canceled: self.canceled,
            duration_s: self.duration.as_secs_f64(),
            error: self.broken.map(|why| Error::BadRequest(why).refusal()),
        }
    }
}
