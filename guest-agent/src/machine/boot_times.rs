//! The times at which the boot of the guest reached each step.

/// Seconds of guest uptime. The first process measures them and hands them to the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootTimes {
    /// The uptime at which the first process started.
    pub init_s: f64,
    /// The uptime at which the root file system was in place.
    pub root_s: f64,
    /// The uptime at which the network was configured.
    pub network_s: f64,
}

impl BootTimes {
    /// Returns the times as one command line argument, in whole nanoseconds. Printing fractions
    /// would link in code that nothing else needs.
    pub fn to_arg(self) -> String {
        [self.init_s, self.root_s, self.network_s]
            .map(|seconds| ((seconds * 1e9) as u64).to_string())
            .join("/")
    }

    /// Parses the result of `to_arg`. A word that is not a number counts as 0.
    pub fn from_arg(text: &str) -> Self {
        let mut times = text.split('/').map(|time| time.parse().unwrap_or(0u64) as f64 / 1e9);
        let mut next = || times.next().unwrap_or(0.0);
        Self {
            init_s: next(),
            root_s: next(),
            network_s: next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_times_survive_the_command_line() {
        let boot = BootTimes {
            init_s: 0.25,
            root_s: 0.5,
            network_s: 1.0,
        };
        let back = BootTimes::from_arg(&boot.to_arg());
        assert_eq!((back.init_s, back.root_s, back.network_s), (0.25, 0.5, 1.0));
        assert_eq!(BootTimes::from_arg("junk").root_s, 0.0);
    }
}
