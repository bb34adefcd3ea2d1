//! Short lines on the console, for people who read a boot log.

use std::io::Write;

/// Never fails: a full console must not stop the agent.
pub fn note(line: &str) {
    let text = format!("quicksand: {line}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}
