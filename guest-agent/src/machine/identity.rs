//! Makes this guest differ from its clones: in its randomness, names and keys.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::mount_bind;
use serde::{Deserialize, Serialize};

use super::hostfiles;
use crate::base::error::{Error, Result, about};
use crate::base::params::{Raw, wrong};
use crate::base::{spawn, sys};
use crate::kernel::network;

const RNDADDENTROPY: u64 = 0x4008_5203;
const RNDRESEEDCRNG: u64 = 0x5207;
const MAX_ENTROPY: usize = 512;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const BOOT_ID_COVER: &str = "/run/.quicksand-boot-id";
const SSH_DIR: &str = "/etc/ssh";

/// Facts for the first requests after a restore, which the agent finds out in advance. The code
/// that a guest runs just after a restore is emulated for the first time. That is slow, so there
/// should be little of it.
#[derive(Debug)]
pub struct Prepared {
    random: Option<OwnedFd>,
    interface: Option<String>,
    socket: Option<OwnedFd>,
    /// Tells whether process 1 is the agent, which does not read the boot id. Then no program has
    /// read it before the first command runs.
    is_init_ours: bool,
}

impl Prepared {
    /// Finds out what can be known in advance.
    pub fn find() -> Self {
        Self {
            random: open_random().ok(),
            interface: network::find_interface(),
            socket: network::socket().ok(),
            // SAFETY: it cannot fail.
            is_init_ours: unsafe { libc::getppid() } == 1,
        }
    }
}

fn open_random() -> io::Result<OwnedFd> {
    sys::open(c"/dev/random", libc::O_RDWR)
}

/// struct rand_pool_info of linux/random.h, with room for its bytes.
#[repr(C)]
struct Entropy {
    bits: libc::c_int,
    size: libc::c_int,
    bytes: [u8; MAX_ENTROPY],
}

/// Randomness from the host.
#[derive(Debug, Deserialize)]
pub struct Seed {
    entropy: Raw,
}

/// Adds a seed to the kernel's pool and makes its generator use it.
pub fn reseed(seed: &Seed, prepared: &Prepared) -> Result<()> {
    let given = &seed.entropy.0;
    if given.is_empty() || given.len() > MAX_ENTROPY {
        return Err(wrong("entropy_b64", "must be 1 to 512 bytes"));
    }
    let mut entropy = Entropy {
        bits: (given.len() * 8) as libc::c_int,
        size: given.len() as libc::c_int,
        bytes: [0; MAX_ENTROPY],
    };
    entropy.bytes[..given.len()].copy_from_slice(given);
    let failed = |error| Error::io("/dev/random", error);
    let opened;
    let random = match &prepared.random {
        Some(random) => random,
        None => {
            opened = open_random().map_err(failed)?;
            &opened
        }
    };
    sys::ioctl(random.as_fd(), RNDADDENTROPY, &mut entropy).map_err(failed)?;
    sys::ioctl_number(random.as_fd(), RNDRESEEDCRNG, 0).map_err(failed)?;
    Ok(())
}

/// The parameters of `set_identity`. A value that is absent stays as it is.
#[derive(Debug, Deserialize)]
pub struct Identity {
    hostname: Option<String>,
    /// `new`, or 32 hex digits.
    machine_id: Option<String>,
    mac: Option<String>,
    boot_id: Option<NewBootId>,
    ssh_host_keys: Option<New>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum NewBootId {
    New,
    /// Only if a program may have read the present one.
    IfRead,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum New {
    New,
}

/// The new values of what was changed.
#[derive(Debug, Default, Serialize)]
pub struct Changed {
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<String>,
    /// The names of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh_host_keys: Option<Vec<String>>,
    /// The clock at the end. It tells the host how late its time arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_ns: Option<i64>,
}

impl Identity {
    /// Tells whether `set_identity` generates keys.
    pub fn makes_keys(&self) -> Result<bool> {
        let dir = Path::new(SSH_DIR);
        Ok(self.ssh_host_keys.is_some() && !host_keys(dir).map_err(|error| about(dir, error))?.is_empty())
    }
}

/// Changes the values that are given. Returns the new ones.
pub fn set_identity(wanted: &Identity, prepared: &Prepared) -> Result<Changed> {
    let mut changed = Changed::default();
    if let Some(name) = &wanted.hostname {
        check_hostname(name)?;
        sys::set_hostname(name).map_err(|error| Error::io("hostname", error))?;
        hostfiles::name_host(Path::new("/"), name).map_err(|error| Error::io("/etc/hosts", error))?;
        changed.hostname = Some(name.clone());
    }
    if let Some(id) = &wanted.machine_id {
        changed.machine_id = Some(set_machine_id(id)?);
    }
    if let Some(mac) = &wanted.mac {
        set_mac(mac, prepared)?;
        changed.mac = Some(mac.clone());
    }
    match wanted.boot_id {
        None => {}
        Some(NewBootId::IfRead) if prepared.is_init_ours => {}
        Some(_) => changed.boot_id = Some(renew_boot_id()?),
    }
    if wanted.ssh_host_keys.is_some() {
        changed.ssh_host_keys = Some(renew_host_keys(Path::new(SSH_DIR))?);
    }
    Ok(changed)
}

fn check_hostname(name: &str) -> Result<()> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if (1..=63).contains(&name.len()) && name.bytes().all(is_good) && !name.starts_with(['-', '.']) {
        Ok(())
    } else {
        Err(wrong("hostname", "must be 1 to 63 letters, digits, - and ."))
    }
}

fn set_machine_id(id: &str) -> Result<String> {
    let id = match id {
        "new" => sys::random_hex::<16>().map_err(|error| Error::io("random", error))?,
        id if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => id.to_ascii_lowercase(),
        _ => return Err(wrong("machine_id", "must be \"new\" or 32 hex digits")),
    };
    let text = format!("{id}\n");
    let path = Path::new("/etc/machine-id");
    hostfiles::replace(path, &text).map_err(|error| about(path, error))?;
    // If this is a link, it leads to the file above.
    let copy = Path::new("/var/lib/dbus/machine-id");
    if fs::symlink_metadata(copy).is_ok_and(|file| file.is_file()) {
        hostfiles::replace(copy, &text).map_err(|error| about(copy, error))?;
    }
    Ok(id)
}

/// Mounts a new boot id over the kernel's, which cannot be changed.
fn renew_boot_id() -> Result<String> {
    let path = Path::new(BOOT_ID);
    let id = random_uuid().map_err(|error| Error::io("random", error))?;
    let cover = Path::new(BOOT_ID_COVER);
    // If the cover exists from an earlier call, it is mounted already and only its text has to
    // change.
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(cover);
    let (file, is_new) = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            (fs::OpenOptions::new().write(true).open(cover), false)
        }
        made => (made, true),
    };
    file.and_then(|file| file.write_all_at(format!("{id}\n").as_bytes(), 0))
        .map_err(|error| about(cover, error))?;
    if is_new {
        mount_bind(BOOT_ID_COVER, path).map_err(|error| about(path, error.into()))?;
    }
    Ok(id)
}

/// Returns a random UUID, version 4 (RFC 9562, section 5.4), as the kernel's own boot id is.
fn random_uuid() -> io::Result<String> {
    let mut bytes = [0; 16];
    sys::random(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = sys::hex(&bytes);
    let parts = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    Ok(parts.join("-"))
}

fn set_mac(text: &str, prepared: &Prepared) -> Result<()> {
    let mac = parse_mac(text).ok_or_else(|| wrong("mac", "must be like 52:54:00:12:34:56, not multicast"))?;
    if let (Some(name), Some(socket)) = (&prepared.interface, &prepared.socket)
        && network::set_mac(socket, name, mac).is_ok()
    {
        return Ok(());
    }
    // The interface has appeared later, or its name has changed.
    let name = network::find_interface().ok_or_else(|| Error::NotFound("network interface".into()))?;
    network::socket()
        .and_then(|socket| network::set_mac(&socket, &name, mac))
        .map_err(|error| Error::io(format!("interface {name}"), error))
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2))
        .collect::<Option<_>>()?;
    let mac: [u8; 6] = bytes.try_into().ok()?;
    (mac[0] & 1 == 0).then_some(mac)
}

/// Replaces the SSH host keys and returns the names of the new ones. A guest without keys gets
/// none.
fn renew_host_keys(dir: &Path) -> Result<Vec<String>> {
    let old = host_keys(dir).map_err(|error| about(dir, error))?;
    let Some(keygen) = find_keygen().filter(|_| !old.is_empty()) else {
        return Ok(Vec::new());
    };
    for key in &old {
        fs::remove_file(key).map_err(|error| about(key, error))?;
    }
    let code = spawn::run_tool(&[keygen, "-A"]).map_err(|error| Error::io(keygen, error))?;
    if code != 0 {
        return Err(Error::failed(keygen, format!("exit code {code}")));
    }
    reload_sshd();
    let new = host_keys(dir).map_err(|error| about(dir, error))?;
    let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    Ok(new
        .iter()
        .filter_map(name)
        .filter(|name| !name.ends_with(".pub"))
        .collect())
}

fn host_keys(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut keys: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            name.starts_with("ssh_host_") && (name.ends_with("_key") || name.ends_with("_key.pub"))
        })
        .collect();
    keys.sort();
    Ok(keys)
}

fn find_keygen() -> Option<&'static str> {
    ["/usr/bin/ssh-keygen", "/bin/ssh-keygen"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Makes a running server read its keys again. One that starts later reads the new keys anyway.
fn reload_sshd() {
    let pid = fs::read_to_string("/run/sshd.pid")
        .ok()
        .and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(pid) = pid.filter(|pid| *pid > 1) {
        let _ = sys::kill(pid, libc::SIGHUP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_unicast_and_whole() {
        assert_eq!(parse_mac("52:54:00:12:34:ff"), Some([0x52, 0x54, 0, 0x12, 0x34, 0xff]));
        for bad in [
            "",
            "52:54:00:12:34",
            "53:54:00:12:34:56",
            "52:54:00:12:34:5",
            "5g:54:00:12:34:56",
        ] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }

    #[test]
    fn boot_ids_are_uuids() {
        let id = random_uuid().unwrap();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]));
        assert_ne!(id, random_uuid().unwrap());
    }

    #[test]
    fn hostnames_are_plain() {
        assert!(check_hostname("box-1.local").is_ok());
        for bad in ["", "-x", "a b", "a\nb", &"x".repeat(64)] {
            assert!(check_hostname(bad).is_err(), "{bad}");
        }
    }
}
