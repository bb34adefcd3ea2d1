//! The first process: from the initramfs to a root file system with a server.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::mount::MountFlags;

use super::cmdline::{Cmdline, InitChoice};
use super::root_device::{self, Root};
use super::{drivers, file_system, supervise};
use crate::base::log::note;
use crate::base::sys;
use crate::kernel::{disk, initramfs, modprobe, mounts, network};
use crate::machine::boot_times::BootTimes;
use crate::machine::hostfiles;

const NEW_ROOT: &str = "/sysroot";
const SETTLE: Duration = Duration::from_secs(1);

/// Runs the first process. `init_s` is the uptime in seconds at which it started. Process 1 must
/// not end, so this never returns.
pub fn run(init_s: f64) -> ! {
    let mut boot = BootTimes {
        init_s,
        ..BootTimes::default()
    };
    mounts::mount_kernel_filesystems();
    sys::open_missing_streams(&[c"/dev/console", c"/dev/null"]);
    sys::allow_many_files();
    let cmdline = Cmdline::read();
    let old_root = sys::open(c"/", libc::O_RDONLY | libc::O_DIRECTORY).ok();
    let is_ours = initramfs::load_modules();
    if !is_ours {
        drivers::load();
    }
    if let Some(device) = &cmdline.root {
        enter_root(device, &cmdline);
        if !is_ours {
            // An initramfs may lack what the root is not needed for, such as the network's.
            drivers::load();
        }
    }
    boot.root_s = sys::uptime_s();
    set_up_network(&cmdline);
    boot.network_s = sys::uptime_s();
    let next_init = choose_init(&cmdline.init);
    mounts::mount_user_filesystems(next_init.is_none());
    name_host(&cmdline);
    let [init, root, network] = [boot.init_s, boot.root_s, boot.network_s].map(|seconds| (seconds * 1e3) as u64);
    note(&format!(
        "started at {init} ms, root at {root} ms, network at {network} ms"
    ));
    match next_init {
        None => {
            modprobe::stand_in();
            let server = supervise::start_server(boot);
            // On a single CPU the server should have its turn first.
            std::thread::sleep(SETTLE);
            forget_initramfs(old_root);
            supervise::run_as_init(server, boot)
        }
        Some(path) => {
            supervise::start_supervisor(boot);
            forget_initramfs(old_root);
            exec_init(&path)
        }
    }
}

fn enter_root(wanted: &str, cmdline: &Cmdline) {
    let Root { device, kind } = root_device::wait_for(wanted).unwrap_or_else(|error| panic_with(&error));
    let shown = device.display();
    let _ = fs::create_dir_all(NEW_ROOT);
    let root = Path::new(NEW_ROOT);
    if let Err(error) = mount_root(&device, kind, root, cmdline) {
        panic_with(&format!("root device {shown} cannot be mounted: {error}"));
    }
    if !cmdline.read_only {
        grow_root(&device, root);
    }
    if let Err(error) = mounts::switch_root(root) {
        panic_with(&format!("switching to root device {shown}: {error}"));
    }
}

fn mount_root(device: &Path, kind: Option<&str>, target: &Path, cmdline: &Cmdline) -> io::Result<()> {
    let flags = if cmdline.read_only {
        MountFlags::RDONLY
    } else {
        MountFlags::empty()
    };
    let options = cmdline.root_flags.as_deref();
    let source = device.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let mut result = Err(io::ErrorKind::NotFound.into());
    let known = cmdline.root_fstype.as_deref().or(kind);
    for fstype in known
        .as_slice()
        .iter()
        .chain(file_system::KINDS.iter().filter(|_| known.is_none()))
    {
        if fstype == &"ext4" && options.is_none() {
            // Reading all block bitmaps in advance takes longer than most sandboxes live.
            result = mounts::mount(source, target, fstype, flags, "no_prefetch_block_bitmaps");
        }
        if result.is_err() {
            result = mounts::mount(source, target, fstype, flags, options.unwrap_or(""));
        }
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Grows the file system when the disk was enlarged after it was made.
fn grow_root(device: &Path, root: &Path) {
    match disk::grow(device, root) {
        Ok((before, after)) if after > before => note(&format!("root grown from {before} to {after} bytes")),
        Ok(_) => {}
        // File systems other than ext4 keep their size.
        Err(error) if error.raw_os_error() == Some(libc::ENOTSUP) => {}
        Err(error) => note(&format!("root not grown: {error}")),
    }
}

fn set_up_network(cmdline: &Cmdline) {
    if let Err(error) = network::bring_up_loopback() {
        note(&format!("lo: {error}"));
    }
    let Some((address, prefix)) = cmdline.ip else {
        return;
    };
    let Some(name) = network::find_interface() else {
        note("network: no interface");
        return;
    };
    if let Err(error) = network::configure(&name, address, prefix, cmdline.gateway) {
        note(&format!("network {name}: {error}"));
    }
    if let Some(dns) = cmdline.dns
        && let Err(error) = hostfiles::write_resolv_conf(Path::new("/"), dns)
    {
        note(&format!("resolv.conf: {error}"));
    }
}

fn name_host(cmdline: &Cmdline) {
    let stored = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let name = match &cmdline.hostname {
        Some(name) => name.as_str(),
        None => stored.trim(),
    };
    if name.is_empty() {
        return;
    }
    if let Err(error) = sys::set_hostname(name) {
        note(&format!("hostname: {error}"));
    }
    if cmdline.hostname.is_some()
        && let Err(error) = hostfiles::name_host(Path::new("/"), name)
    {
        note(&format!("hosts: {error}"));
    }
}

fn choose_init(choice: &InitChoice) -> Option<String> {
    match choice {
        InitChoice::None => None,
        InitChoice::Path(path) => Some(path.clone()),
        InitChoice::Auto => is_init("/sbin/init").then(|| "/sbin/init".to_owned()),
    }
}

/// Tells whether the path is an init. A link that points nowhere is none; the root may not be
/// complete yet.
fn is_init(path: &str) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file())
}

/// Frees the memory of the initramfs, except for the program that runs from it.
fn forget_initramfs(old_root: Option<OwnedFd>) {
    let Some(old_root) = old_root else { return };
    if let Err(error) = initramfs::delete(File::from(old_root)) {
        note(&format!("initramfs: {error}"));
    }
}

fn exec_init(path: &str) -> ! {
    let error = match CString::new(path) {
        Ok(program) => {
            let argv = [program.as_ptr(), std::ptr::null()];
            // SAFETY: program and argv are terminated.
            unsafe { libc::execv(program.as_ptr(), argv.as_ptr()) };
            io::Error::last_os_error()
        }
        Err(error) => error.into(),
    };
    note(&format!("{path}: {error}; staying as init"));
    supervise::reap_forever()
}

/// Ends process 1, so that the kernel panics. The reason is the last line before that.
fn panic_with(reason: &str) -> ! {
    note(&format!("panic: {reason}"));
    std::process::exit(1)
}
