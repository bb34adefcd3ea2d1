//! Unix sockets that are opened and made by the rights of a user.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::passwd::{self, User};
use crate::{spawn, sys};

/// The rights that a socket of ours has: those of its owner alone, as sshd makes them.
const MODE: u32 = 0o600;

/// Connects to a socket. The server sees the user's ids (`SO_PEERCRED`).
pub fn connect(path: &Path, user: &User) -> io::Result<UnixStream> {
    let path = path.to_owned();
    as_user(user, move || UnixStream::connect(path))
}

/// Makes a socket at a path where there is nothing.
pub fn listen(path: &Path, user: &User) -> io::Result<UnixListener> {
    let path = path.to_owned();
    as_user(user, move || {
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(MODE))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    })
}

/// Removes the file of a socket.
pub fn remove(path: &Path, user: &User) -> io::Result<()> {
    let path = path.to_owned();
    as_user(user, move || std::fs::remove_file(path))
}

/// Has a TCP connection reset when it is closed, instead of ended in good order.
pub fn reset_at_close(fd: BorrowedFd<'_>) {
    // A Unix socket knows no difference.
    let _ = rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// Runs `work` by the rights of a user. A thread of its own takes them on and ends with them, because
/// it could not give all of them back.
fn as_user<T: Send + 'static>(user: &User, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    if user.uid == sys::euid() {
        return work();
    }
    let credentials = passwd::credentials(user);
    let job = move || {
        spawn::take_on(&credentials)?;
        work()
    };
    thread::Builder::new()
        .spawn(job)?
        .join()
        .map_err(|_| io::Error::other("the thread panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_its_owners_alone_and_nothing_is_replaced() {
        let dir = std::env::temp_dir().join(format!("unix-socket-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, me) = (dir.join("s"), User::nameless(sys::euid()));
        let listener = listen(&path, &me).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert!(connect(&path, &me).is_ok());
        assert_eq!(listen(&path, &me).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        remove(&path, &me).unwrap();
        assert!(!path.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
