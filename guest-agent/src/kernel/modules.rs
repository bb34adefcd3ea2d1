//! Kernel modules in an initramfs that has no `modprobe`, such as booster's: which there are, and
//! which a device needs. Everything is in the modules themselves (their section `.modinfo`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::initramfs::load_module;
use crate::base::log::note;

/// A module larger than this is none: the largest of a distribution has some 10 MiB.
const SIZE_MAX: u64 = 64 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct Module {
    path: PathBuf,
    aliases: Vec<String>,
    depends: Vec<String>,
}

/// The modules below a directory, by name.
#[derive(Debug, Default)]
pub struct Modules {
    found: BTreeMap<String, Module>,
    loaded: BTreeSet<String>,
}

impl Modules {
    /// Reads all modules below a directory that are not compressed.
    pub fn read(directory: &Path) -> Self {
        let mut modules = Self::default();
        modules.add(directory, true);
        modules
    }

    /// Reads the modules in a directory itself.
    pub fn read_flat(directory: &Path) -> Self {
        let mut modules = Self::default();
        modules.add(directory, false);
        modules
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn add(&mut self, directory: &Path, deep: bool) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && deep => self.add(&path, true),
                Ok(kind) if kind.is_file() => {
                    if let Some(name) = module_name(&path) {
                        match read(&path) {
                            Ok(module) => _ = self.found.insert(name, module),
                            Err(error) => note(&format!("module {}: {error}", path.display())),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Loads each module that has an alias which matches one of these, with those it depends on.
    pub fn load(&mut self, aliases: &[String]) {
        let names: Vec<_> = self
            .found
            .iter()
            .filter(|(_, module)| {
                let matches = |pattern: &String| {
                    aliases
                        .iter()
                        .any(|alias| is_match(pattern.as_bytes(), alias.as_bytes()))
                };
                module.aliases.iter().any(matches)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.load_with_dependencies(&name);
        }
    }

    fn load_with_dependencies(&mut self, name: &str) {
        // Entered first, so that modules that depend on each other end.
        if !self.loaded.insert(name.to_owned()) {
            return;
        }
        let Some(module) = self.found.get(name) else { return };
        let (path, depends) = (module.path.clone(), module.depends.clone());
        for needed in depends {
            self.load_with_dependencies(&needed);
        }
        match load_module(&path, "") {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => note(&format!("module {}: {error}", path.display())),
        }
    }
}

/// The name of the module in a file `NAME.ko`. The kernel writes `_` for `-`.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".ko")?;
    Some(name.replace('-', "_"))
}

fn read(path: &Path) -> io::Result<Module> {
    if fs::metadata(path)?.len() > SIZE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let data = fs::read(path)?;
    let info = section(&data, b".modinfo").ok_or(io::ErrorKind::InvalidData)?;
    let mut module = Module {
        path: path.to_owned(),
        ..Module::default()
    };
    for field in info.split(|byte| *byte == 0) {
        let field = String::from_utf8_lossy(field);
        match field.split_once('=') {
            Some(("alias", alias)) => module.aliases.push(alias.to_owned()),
            Some(("depends", names)) => {
                let names = names.split(',').filter(|name| !name.is_empty());
                module.depends.extend(names.map(|name| name.replace('-', "_")));
            }
            _ => {}
        }
    }
    Ok(module)
}

/// The contents of a section of a little-endian 64-bit ELF file (elf(5)).
fn section<'a>(elf: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(elf.get(at..)?.first_chunk().copied()?)));
    let word = |at: usize| usize::try_from(u32::from_le_bytes(elf.get(at..)?.first_chunk().copied()?)).ok();
    let long = |at: usize| usize::try_from(u64::from_le_bytes(elf.get(at..)?.first_chunk().copied()?)).ok();
    let (headers, size, count, names) = (long(0x28)?, half(0x3a)?, half(0x3c)?, half(0x3e)?);
    let header = |number: usize| headers.checked_add(number.checked_mul(size)?);
    let contents = |at: usize| {
        let (start, length) = (long(at.checked_add(0x18)?)?, long(at.checked_add(0x20)?)?);
        elf.get(start..start.checked_add(length)?)
    };
    let strings = contents(header(names)?)?;
    for number in 0..count {
        let at = header(number)?;
        let name = strings.get(word(at)?..)?;
        if name.strip_prefix(wanted).is_some_and(|rest| rest.first() == Some(&0)) {
            return contents(at);
        }
    }
    None
}

/// Matches a pattern of an alias, with `*`, `?` and sets such as `[02-4]` (fnmatch(3)).
pub fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else {
        return text.is_empty();
    };
    match first {
        b'*' => (0..=text.len()).any(|skipped| is_match(rest, &text[skipped..])),
        b'[' => {
            let (Some(end), Some((&byte, text))) = (rest.iter().position(|byte| *byte == b']'), text.split_first())
            else {
                return false;
            };
            is_in(&rest[..end], byte) && is_match(&rest[end + 1..], text)
        }
        _ => match text.split_first() {
            Some((&byte, text)) => (first == b'?' || first == byte) && is_match(rest, text),
            None => false,
        },
    }
}

fn is_in(set: &[u8], byte: u8) -> bool {
    match set {
        [low, b'-', high, rest @ ..] => (*low..=*high).contains(&byte) || is_in(rest, byte),
        [one, rest @ ..] => *one == byte || is_in(rest, byte),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_aliases() {
        for (pattern, text, expected) in [
            ("virtio:d00000002v*", "virtio:d00000002v00001AF4", true),
            ("virtio:d00000002v*", "virtio:d00000001v00001AF4", false),
            (
                "pci:v*d*sv*sd*bc01sc06i01*",
                "pci:v00008086d00002922sv1sd2bc01sc06i01",
                true,
            ),
            (
                "pci:v*d*sv*sd*bc01sc06i01*",
                "pci:v00008086d00002922sv1sd2bc01sc05i01",
                false,
            ),
            ("usb:v1d[02-4]x", "usb:v1d3x", true),
            ("usb:v1d[02-4]x", "usb:v1d1x", false),
            ("a[b", "ab", false),
            ("a?", "a", false),
            ("", "", true),
        ] {
            assert_eq!(
                is_match(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    /// An ELF file with the sections `.modinfo` and `.shstrtab`.
    fn elf(info: &[u8]) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut file = vec![0; 0x40];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let header = |name: u32, data: &[u8], file: &mut Vec<u8>| {
            let mut header = vec![0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(file.len() as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(data.len() as u64).to_le_bytes());
            file.extend(data);
            header
        };
        let headers = [header(10, names, &mut file), header(1, info, &mut file)].concat();
        let at = file.len() as u64;
        file[0x28..0x30].copy_from_slice(&at.to_le_bytes());
        file[0x3a..0x40].copy_from_slice(&[64, 0, 2, 0, 0, 0]);
        file.extend(headers);
        file
    }

    #[test]
    fn a_module_tells_its_aliases_and_what_it_needs() {
        let directory = std::env::temp_dir().join(format!("modules-{}", std::process::id()));
        let inner = directory.join("kernel/drivers");
        fs::create_dir_all(&inner).unwrap();
        let info = b"license=GPL\0alias=virtio:d00000001v*\0alias=x\0depends=net-failover,other\0";
        fs::write(inner.join("virtio-net.ko"), elf(info)).unwrap();
        fs::write(inner.join("broken.ko"), b"\x7fELF\x02\x01").unwrap();
        fs::write(inner.join("packed.ko.gz"), b"").unwrap();
        let modules = Modules::read(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(modules.found.len(), 1);
        let module = &modules.found["virtio_net"];
        assert_eq!(module.aliases, ["virtio:d00000001v*", "x"]);
        assert_eq!(module.depends, ["net_failover", "other"]);
    }

    #[test]
    fn those_in_a_directory_itself_are_read_without_those_of_other_kernels() {
        let directory = std::env::temp_dir().join(format!("flat-{}", std::process::id()));
        fs::create_dir_all(directory.join("6.1.0/kernel")).unwrap();
        fs::write(directory.join("6.1.0/kernel/ext4.ko"), elf(b"alias=fs-ext4\0")).unwrap();
        fs::write(directory.join("virtio_blk.ko"), elf(b"alias=x\0")).unwrap();
        let modules = Modules::read_flat(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(modules.found.keys().collect::<Vec<_>>(), ["virtio_blk"]);
    }

    #[test]
    fn a_file_that_ends_early_has_the_section_or_none() {
        let whole = elf(b"alias=x\0");
        let info = Some(&b"alias=x\0"[..]);
        for length in 0..whole.len() {
            let found = section(&whole[..length], b".modinfo");
            assert!(found.is_none() || (found == info && length > 0x40 + 8), "{length}");
        }
        assert_eq!(section(&whole, b".modinfo"), info);
        assert_eq!(section(&whole, b".mod"), None);
    }
}
