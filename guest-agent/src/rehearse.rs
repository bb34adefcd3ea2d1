//! Runs the shell in a guest that waits for a revert, so that the emulator has translated its code.
//!
//! The first command after a revert most likely needs the shell and its dynamic loader. Running
//! them leaves no trace. A script in the shell's place, or a preloaded library, might leave one.
//! Then only this program itself runs. A shell that a user has compiled is not recognised.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

const SHELL: &str = "bin/sh";
/// The loader puts the libraries that are named here into every program.
const PRELOADED: &str = "etc/ld.so.preload";
/// A script with output, a fork and a pipe. It uses only commands that the shell has built in.
const FIRST_STEPS: &str = "echo ready; true | read line";
const ELF: [u8; 4] = *b"\x7fELF";

/// Becomes the shell, or returns if the shell is not plain.
pub fn run() -> ExitCode {
    let root = Path::new("/");
    if !is_plain(root) {
        return ExitCode::SUCCESS;
    }
    let error = Command::new(root.join(SHELL))
        .args(["-c", FIRST_STEPS])
        .env_clear()
        .exec();
    eprintln!("{SHELL}: {error}");
    ExitCode::FAILURE
}

/// Tells whether the shell below `root` is a program, not a script, and the loader adds nothing to
/// it.
fn is_plain(root: &Path) -> bool {
    let mut start = [0; ELF.len()];
    let is_read = File::open(root.join(SHELL)).and_then(|mut file| file.read_exact(&mut start));
    is_read.is_ok() && start == ELF && !root.join(PRELOADED).exists()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_a_program_is_run_that_nothing_is_added_to() {
        let root = std::env::temp_dir().join(format!("rehearse-{}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        assert!(!is_plain(&root), "there is no shell");
        fs::write(root.join(SHELL), "#!/bin/dash\necho seen >>/log\n").unwrap();
        assert!(!is_plain(&root));
        fs::write(root.join(SHELL), b"\x7fE").unwrap();
        assert!(!is_plain(&root));
        fs::write(root.join(SHELL), b"\x7fELF\x02\x01").unwrap();
        assert!(is_plain(&root));
        fs::write(root.join(PRELOADED), "/lib/notes.so\n").unwrap();
        assert!(!is_plain(&root));
        fs::remove_dir_all(&root).unwrap();
    }
}
