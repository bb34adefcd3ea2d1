//! Loading kernel modules that the initramfs carries.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::log::note;
use crate::sys;

const LIST: &str = "/quicksand/modules";

/// One path a line, in the order of their dependencies. A line may go on with
/// the module's options.
pub fn load_listed() {
    let Ok(list) = fs::read_to_string(LIST) else {
        return;
    };
    for line in list.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (path, options) = line.split_once(' ').unwrap_or((line, ""));
        match load(Path::new(path), options) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                note(&format!("module {path}: built in or loaded already"));
            }
            Err(error) => note(&format!("module {path}: {error}, skipped")),
        }
    }
}

fn load(path: &Path, options: &str) -> io::Result<()> {
    let file = sys::open(&sys::c_path(path)?, libc::O_RDONLY)?;
    let options = sys::c_string(options.as_bytes())?;
    // SAFETY: the options end with NUL.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), options.as_ptr(), 0) };
    sys::check(result as libc::c_int).map(|_| ())
}
