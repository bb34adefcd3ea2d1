//! The kernel assembles each algorithm of its cryptography on first use. It starts modprobe for the
//! modules, and tests the result, which stays.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::base::sys;

/// The algorithms that Linux's SMB client needs while it mounts, to log in, to derive its keys and
/// to sign (fs/smb/client/smb2transport.c, cifsencrypt.c).
pub const OF_SMB: [&str; 5] = ["hmac(md5)", "hmac(sha256)", "sha256", "sha512", "cmac(aes)"];

/// Makes the kernel assemble a hash. This opens and closes a socket for the hash, which is the way
/// in which programs use the kernel's cryptography (AF_ALG, crypto/userspace-if in the kernel's
/// documents).
pub fn assemble_hash(name: &str) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let socket = sys::check(unsafe { libc::socket(libc::AF_ALG, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just made, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: zeros are a valid address, of no kind and without a name.
    let mut address: libc::sockaddr_alg = unsafe { mem::zeroed() };
    address.salg_family = libc::AF_ALG as libc::sa_family_t;
    fill(&mut address.salg_type, "hash")?;
    fill(&mut address.salg_name, name)?;
    let size = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is as long as is said.
    sys::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(())
}

/// Copies a name into a field, which must have room for the name and a NUL.
fn fill(field: &mut [u8], name: &str) -> io::Result<()> {
    if name.len() >= field.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    field[..name.len()].copy_from_slice(name.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_with_their_end() {
        let mut field = [0; 6];
        fill(&mut field, "sha51").unwrap();
        assert_eq!(&field, b"sha51\0");
        assert!(fill(&mut field, "sha512").is_err());
    }

    #[test]
    fn an_unknown_hash_is_an_error() {
        assert!(assemble_hash("no such hash").is_err());
    }
}
