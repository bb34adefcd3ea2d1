//! Lets commands run beside each other, or one alone.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;

/// Lets either several commands run together or an exclusive one alone.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    running: usize,
    exclusive: bool,
}

impl Gate {
    /// Fails with `Busy` when the command may not run beside those that run now.
    pub fn enter(&self, exclusive: bool) -> Result<Slot> {
        let mut inside = self.0.lock();
        if inside.exclusive {
            return Err(Error::Busy("an exclusive command is running"));
        }
        if exclusive && inside.running > 0 {
            return Err(Error::Busy("another command is running"));
        }
        inside.running += 1;
        inside.exclusive = exclusive;
        drop(inside);
        Ok(Slot(self.clone()))
    }
}

/// The place of a running command. Dropping it gives the place back.
#[derive(Debug)]
pub struct Slot(Gate);

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inside = self.0.0.lock();
        inside.running -= 1;
        inside.exclusive = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;

    #[test]
    fn an_exclusive_command_runs_alone() {
        let gate = Gate::default();
        let first = gate.enter(false).unwrap();
        let second = gate.enter(false).unwrap();
        assert!(gate.enter(true).is_err());
        drop((first, second));
        let alone = gate.enter(true).unwrap();
        assert_eq!(gate.enter(false).unwrap_err().code(), Code::Busy);
        drop(alone);
        assert!(gate.enter(false).is_ok());
    }
}
