//! Loads the drivers of the devices that are there.
//!
//! An initramfs that was made for the agent lists its modules (`kernel::initramfs`). Those of most other
//! images carry `modprobe` and the kernel's tables: it is given the aliases of the devices that have
//! no driver yet, as udev and mdev do. Where there is none, the modules themselves are looked through.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::file_system::KINDS;
use crate::base::log::note;
use crate::kernel::modules::Modules;

const BUSES: &str = "/sys/bus";
const MODPROBE: [&str; 4] = [
    "/sbin/modprobe",
    "/usr/sbin/modprobe",
    "/bin/modprobe",
    "/usr/bin/modprobe",
];
/// Where modules are, with a directory for each kernel.
const PLACES: [&str; 2] = ["/lib/modules", "/usr/lib/modules"];
/// The driver of a bus finds further devices, so their aliases are looked for again.
const ROUNDS: usize = 4;

/// Loads the drivers of all devices that have none, and of the file systems that a root may have, as
/// far as their modules are here.
pub fn load() {
    match MODPROBE.iter().map(Path::new).find(|path| path.exists()) {
        // The kernel calls it by itself for a file system.
        Some(modprobe) => load_by(|aliases| probe(modprobe, aliases)),
        None => load_from(find_modules()),
    }
}

/// The modules of the running kernel. In booster's initramfs they have no directory for it.
fn find_modules() -> Modules {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let deep = |place: &str| Modules::read(&Path::new(place).join(release.as_ref()));
    let flat = |place: &str| Modules::read_flat(Path::new(place));
    PLACES
        .iter()
        .map(|place| deep(place))
        .chain(PLACES.iter().map(|place| flat(place)))
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn load_from(mut modules: Modules) {
    if modules.is_empty() {
        return;
    }
    load_by(|aliases| modules.load(aliases));
    modules.load(&KINDS.map(|kind| format!("fs-{kind}")));
}

/// Calls `load` with the aliases of devices that have no driver, until it finds no more.
fn load_by(mut load: impl FnMut(&[String])) {
    let mut asked = BTreeSet::new();
    for _ in 0..ROUNDS {
        let aliases = aliases_without_driver(Path::new(BUSES));
        let new: Vec<_> = aliases.difference(&asked).cloned().collect();
        if new.is_empty() {
            return;
        }
        load(&new);
        asked.extend(new);
    }
}

fn probe(modprobe: &Path, aliases: &[String]) {
    // Those that no module has are passed over (-q), and those that are switched off (-b).
    let result = Command::new(modprobe)
        .args(["-a", "-q", "-b"])
        .args(aliases)
        .stdin(Stdio::null())
        .status();
    // It also fails if one of many has no module.
    if let Err(error) = result {
        note(&format!("{}: {error}", modprobe.display()));
    }
}

/// The aliases of the devices below `buses` that have no driver.
fn aliases_without_driver(buses: &Path) -> BTreeSet<String> {
    entries(buses)
        .into_iter()
        .flat_map(|bus| entries(&bus.join("devices")))
        .filter(|device| !device.join("driver").exists())
        .filter_map(|device| fs::read_to_string(device.join("modalias")).ok())
        .map(|alias| alias.trim().to_owned())
        .filter(|alias| !alias.is_empty() && !alias.starts_with('-'))
        .collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .map(|found| found.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_devices_without_a_driver_count() {
        let buses = std::env::temp_dir().join(format!("buses-{}", std::process::id()));
        for (bus, name, alias, has_driver) in [
            ("virtio", "virtio0", "virtio:d00000002v00001AF4\n", false),
            ("virtio", "virtio1", "virtio:d00000001v00001AF4\n", true),
            ("pci", "0000:00:01.0", "pci:v00001AF4d00001041\n", false),
            ("pci", "0000:00:02.0", "\n", false),
            ("pci", "0000:00:03.0", "-r\n", false),
        ] {
            let device = buses.join(bus).join("devices").join(name);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("modalias"), alias).unwrap();
            if has_driver {
                symlink(&buses, device.join("driver")).unwrap();
            }
        }
        let found = aliases_without_driver(&buses);
        fs::remove_dir_all(&buses).unwrap();
        let found: Vec<_> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["pci:v00001AF4d00001041", "virtio:d00000002v00001AF4"]);
    }
}
