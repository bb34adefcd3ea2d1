//! Short lines on the console for people who read the log of a boot.

use std::io::Write;

/// Writes one line. Failures are ignored, because a full console must not stop the agent.
pub fn note(line: &str) {
    let text = format!("quicksand: {line}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}
