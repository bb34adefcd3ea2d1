//! Describes the guest and its present state.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::base::error::{Error, Result};
use crate::base::sys;

/// The reply to `info`. Sizes are in bytes.
#[derive(Debug, Serialize)]
pub struct Info {
    hostname: String,
    kernel: String,
    os: String,
    arch: String,
    cpus: usize,
    uptime_s: f64,
    load: Vec<f64>,
    memory: Memory,
    disk: Disk,
    processes: usize,
    boot_id: String,
    unix_ns: i64,
}

#[derive(Debug, Serialize)]
struct Memory {
    total: u64,
    available: u64,
    free: u64,
    cached: u64,
}

#[derive(Debug, Serialize)]
struct Disk {
    total: u64,
    free: u64,
    used: u64,
}

/// Reads the present state of the guest.
pub fn info() -> Result<Info> {
    // SAFETY: utsname is plain data, for which zero is a valid value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: one utsname is stored.
    sys::check(unsafe { libc::uname(&mut names) }).map_err(|error| Error::io("uname", error))?;
    Ok(Info {
        hostname: c_text(&names.nodename),
        kernel: c_text(&names.release),
        os: os_name(),
        arch: c_text(&names.machine),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        uptime_s: sys::uptime_s(),
        load: load(),
        memory: memory(&read("/proc/meminfo")),
        disk: disk()?,
        processes: sys::pids().map_or(0, Iterator::count),
        boot_id: boot_id(),
        unix_ns: sys::unix_ns(),
    })
}

/// Reads the boot id. The kernel makes it when it is first read. If that happens before a template
/// is taken, all guests that start from the template have the same one.
fn boot_id() -> String {
    read("/proc/sys/kernel/random/boot_id").trim().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Decodes a field of utsname, which ends with NUL.
fn c_text(field: &[libc::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().flat_map(|c| c.to_ne_bytes()).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn os_name() -> String {
    let text = read("/etc/os-release");
    text.lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or("Linux", |name| name.trim_matches('"'))
        .to_owned()
}

fn load() -> Vec<f64> {
    let text = read("/proc/loadavg");
    text.split_whitespace().take(3).filter_map(hundredths).collect()
}

/// Parses a number such as `1.25`, which always has two decimal places.
fn hundredths(word: &str) -> Option<f64> {
    let (whole, part) = word.split_once('.')?;
    Some(whole.parse::<u32>().ok()? as f64 + part.parse::<u8>().ok()? as f64 / 100.0)
}

fn memory(text: &str) -> Memory {
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024
    };
    Memory {
        total: bytes("MemTotal"),
        available: bytes("MemAvailable"),
        free: bytes("MemFree"),
        cached: bytes("Cached"),
    }
}

fn disk() -> Result<Disk> {
    let fs = sys::statfs(Path::new("/")).map_err(|error| Error::io("/", error))?;
    let size = fs.f_bsize as u64;
    Ok(Disk {
        total: fs.f_blocks * size,
        free: fs.f_bavail * size,
        used: (fs.f_blocks - fs.f_bfree) * size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes_and_keys_are_whole() {
        let text = "MemTotal:  2048 kB\nSwapCached: 7 kB\nCached: 1 kB\n";
        let memory = memory(text);
        assert_eq!((memory.total, memory.cached, memory.free), (2 << 20, 1024, 0));
    }

    #[test]
    fn every_field_is_there() {
        let info = info().unwrap();
        assert!(info.cpus > 0);
        assert_eq!(info.load.len(), 3);
        assert!(info.disk.total > 0);
    }
}
