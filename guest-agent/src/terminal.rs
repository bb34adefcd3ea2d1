//! The system calls of pseudo terminals.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, fchown};

use crate::passwd::User;
use crate::sys;

/// A non-blocking master and its slave.
pub fn open(cols: u16, rows: u16, user: &User) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let master = sys::open(c"/dev/ptmx", flags | libc::O_NONBLOCK)?;
    let mut unlocked: libc::c_int = 0;
    sys::ioctl(master.as_fd(), libc::TIOCSPTLCK, &mut unlocked)?;
    let peer_flags = (flags | libc::O_CLOEXEC) as libc::c_ulong;
    // By the master, not by name: it works whatever is mounted on /dev/pts.
    let slave = sys::own(sys::ioctl_number(master.as_fd(), libc::TIOCGPTPEER, peer_flags)?)?;
    resize(master.as_fd(), cols, rows)?;
    make_utf8(slave.as_fd());
    give_to(slave.as_fd(), user);
    Ok((master, slave))
}

pub fn resize(master: BorrowedFd<'_>, cols: u16, rows: u16) -> io::Result<()> {
    let mut size = libc::winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    sys::ioctl(master, libc::TIOCSWINSZ, &mut size).map(|_| ())
}

/// The foreground process group.
pub fn foreground(master: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: no memory is passed.
    let group = unsafe { libc::tcgetpgrp(master.as_raw_fd()) };
    (group > 0).then_some(group)
}

/// Backspace then removes a character, not a byte. Best effort.
fn make_utf8(slave: BorrowedFd<'_>) {
    // SAFETY: termios is plain data, for which zero is a valid value.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: one termios is stored, then read.
    unsafe {
        if libc::tcgetattr(slave.as_raw_fd(), &mut modes) == 0 {
            modes.c_iflag |= libc::IUTF8;
            libc::tcsetattr(slave.as_raw_fd(), libc::TCSANOW, &modes);
        }
    }
}

/// The user may open his own terminal again. Best effort: not everybody may give.
fn give_to(slave: BorrowedFd<'_>, user: &User) {
    let _ = fchown(slave, Some(user.uid), None);
    if let Ok(file) = slave.try_clone_to_owned().map(std::fs::File::from) {
        let _ = file.set_permissions(Permissions::from_mode(0o620));
    }
}
