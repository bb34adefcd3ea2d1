//! Unix sockets that are opened and made by the rights of a user.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::base::{spawn, sys};
use crate::users::passwd::{self, User};

/// The rights that a socket of ours has: those of its owner alone, as sshd makes them.
const MODE: u32 = 0o600;
/// The number of connections that wait in the kernel, as std has it.
const BACKLOG: i32 = 128;

/// Connects to a socket. The server sees the user's ids (`SO_PEERCRED`). Fails with ETIMEDOUT when
/// the server takes no connection within `patience`: its backlog is full, and the kernel would wait
/// for ever.
pub fn connect(path: &Path, user: &User, patience: Duration) -> io::Result<UnixStream> {
    let path = path.to_owned();
    as_user(user, move || {
        let socket = open()?;
        // The time limit of sending is that of connecting, too (unix(7), socket(7)).
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
        match rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?) {
            Err(rustix::io::Errno::AGAIN) => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            result => result?,
        }
        sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
        Ok(socket.into())
    })
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// The file of a socket that was made here.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    user: User,
    dir: OwnedFd,
    name: OsString,
    /// The device and the number of the inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Removes the file, unless another one has taken its place. To be called while the socket is
    /// open: as long as it is, no other file can get the number of its inode.
    pub fn remove(self) -> io::Result<()> {
        let Self {
            user,
            dir,
            name,
            identity,
            ..
        } = self;
        as_user(&user, move || {
            match look(&dir, &name) {
                Ok(found) if identity_of(&found) == identity => {}
                Ok(_) | Err(rustix::io::Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            Ok(rustix::fs::unlinkat(&dir, &name, AtFlags::empty())?)
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn look(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn identity_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Makes a socket at a path where there is nothing.
pub fn listen(path: &Path, user: &User) -> io::Result<(UnixListener, SocketFile)> {
    let (path, owner) = (path.to_owned(), user.clone());
    as_user(user, move || {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent, flags, Mode::empty())?;
        let socket = open()?;
        // The file gets the rights that the socket has already.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(MODE))?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        let made = look(&dir, name)?;
        if FileType::from_raw_mode(made.st_mode) != FileType::Socket {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        rustix::net::listen(&socket, BACKLOG)?;
        sys::set_nonblocking(socket.as_fd())?;
        let file = SocketFile {
            user: owner,
            dir,
            name: name.to_owned(),
            identity: identity_of(&made),
            path,
        };
        Ok((socket.into(), file))
    })
}

/// Has a TCP connection reset when it is closed, instead of ended in good order.
pub fn reset_at_close(fd: BorrowedFd<'_>) {
    // A Unix socket knows no difference.
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// Runs `work` by the rights of a user. A thread of its own takes them on and ends with them, because
/// it could not give all of them back.
fn as_user<T: Send + 'static>(user: &User, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let Some(credentials) = passwd::credentials(user) else {
        return work();
    };
    let job = move || {
        spawn::act_as(&credentials)?;
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
    use std::os::unix::fs::PermissionsExt;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn me() -> User {
        passwd::me()
    }

    /// A directory that goes with the test.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("unix-socket-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_socket_is_its_owners_alone_and_nothing_is_replaced() {
        let dir = Dir::new("owner");
        let path = dir.0.join("s");
        let (listener, file) = listen(&path, &me()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert!(connect(&path, &me(), PATIENCE).is_ok());
        assert_eq!(listen(&path, &me()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        file.remove().unwrap();
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn what_has_taken_the_place_of_a_socket_is_left_alone() {
        let dir = Dir::new("place");
        let path = dir.0.join("s");
        let (_first, of_first) = listen(&path, &me()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (_second, of_second) = listen(&path, &me()).unwrap();
        of_first.remove().unwrap();
        assert!(path.exists());
        // The directory is known by itself, not by its name.
        let moved = Dir::new("moved");
        std::fs::rename(&path, moved.0.join("s")).unwrap();
        std::fs::write(&path, "").unwrap();
        of_second.remove().unwrap();
        assert!(path.exists() && moved.0.join("s").exists());
    }

    #[test]
    fn a_server_that_takes_no_connection_is_not_waited_for_for_ever() {
        let dir = Dir::new("backlog");
        let path = dir.0.join("s");
        let server = open().unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&server, 0).unwrap();
        let waiting = connect(&path, &me(), PATIENCE).unwrap();
        assert_eq!(waiting.write_timeout().unwrap(), None);
        let error = connect(&path, &me(), Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    }

    #[test]
    fn a_user_may_not_signal_the_thread_that_acts_for_it() {
        if sys::euid() != 0 {
            return;
        }
        let other = passwd::require_user("65534:4343").unwrap();
        let read = || std::fs::read_to_string("/proc/thread-self/status");
        let status = as_user(&other, read).unwrap();
        // The real, the effective and the saved id, and that for files.
        assert!(status.contains("\nUid:\t0\t65534\t0\t65534\n"), "{status}");
        assert!(status.contains("\nGid:\t0\t4343\t0\t4343\n"), "{status}");
        assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
        let here = read().unwrap();
        assert!(here.contains("\nUid:\t0\t0\t0\t0\n"), "{here}");
    }
}
