//! Loads kernel modules of the root file system, as modprobe(8) does, in guests that have none. An
//! image that was made of a container image seldom has it, and has the modules all the same.
//!
//! The kernel is told of this program, and calls it for the modules that it needs itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::initramfs::load_module;
use super::modules::is_match;
use crate::base::log::note;

/// Where the kernel has the path of modprobe.
const SETTING: &str = "/proc/sys/kernel/modprobe";
/// The program of process 1, which is the agent if there is no other init. It has no other path,
/// since its file was deleted.
const SELF: &str = "/proc/1/exe";

/// Makes the kernel call this program where the guest has no modprobe. To be called in the final root
/// by a process 1 that stays.
pub fn stand_in() {
    let usual = fs::read_to_string(SETTING).unwrap_or_default();
    if usual.trim().is_empty() || Path::new(usual.trim()).exists() {
        return;
    }
    if let Err(error) = fs::write(SETTING, SELF) {
        note(&format!("modprobe: {error}"));
    }
}

/// Loads the module of this name, or those with this alias, and first those that they depend on.
/// Fails with `NotFound` when there is none.
pub fn load(name: &str) -> io::Result<()> {
    Tables::read(&directory())?.load(name)
}

fn directory() -> PathBuf {
    let release = rustix::system::uname();
    Path::new("/lib/modules").join(release.release().to_string_lossy().as_ref())
}

/// The tables that depmod(8) made.
#[derive(Debug)]
struct Tables {
    directory: PathBuf,
    dependencies: String,
    aliases: String,
    built_in: String,
}

impl Tables {
    fn read(directory: &Path) -> io::Result<Self> {
        let text = |name: &str| fs::read_to_string(directory.join(name));
        Ok(Self {
            directory: directory.to_owned(),
            dependencies: text("modules.dep")?,
            aliases: text("modules.alias").unwrap_or_default(),
            built_in: text("modules.builtin").unwrap_or_default(),
        })
    }

    fn load(&self, name: &str) -> io::Result<()> {
        let name = plain(name);
        if let Some(files) = self.files(&name) {
            return self.load_files(&files);
        }
        let named: Vec<_> = self.named_by(&name).filter_map(|module| self.files(module)).collect();
        if named.is_empty() && !self.built_in.lines().any(|path| module_of(path) == name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        named.iter().try_for_each(|files| self.load_files(files))
    }

    /// Returns the files of a module and of those that it depends on, in the order in which they
    /// have to be loaded.
    fn files(&self, module: &str) -> Option<Vec<&str>> {
        let line = self
            .dependencies
            .lines()
            .find(|line| line.split_once(':').is_some_and(|(path, _)| module_of(path) == module))?;
        let (path, depends) = line.split_once(':')?;
        let mut files: Vec<_> = depends.split_whitespace().collect();
        files.reverse();
        files.push(path);
        Some(files)
    }

    fn named_by<'a>(&'a self, alias: &'a str) -> impl Iterator<Item = &'a str> {
        self.aliases.lines().filter_map(move |line| {
            let (pattern, module) = line.strip_prefix("alias ")?.rsplit_once(' ')?;
            is_match(plain(pattern).as_bytes(), alias.as_bytes()).then_some(module)
        })
    }

    fn load_files(&self, files: &[&str]) -> io::Result<()> {
        for file in files {
            match load_module(&self.directory.join(file), "") {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns a name as the kernel writes it.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the name of the module in a file such as `kernel/fs/fuse/fuse.ko.xz`.
fn module_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    plain(file.split(".ko").next().unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Tables {
        Tables {
            directory: PathBuf::from("/there is none"),
            dependencies: "kernel/a/low-one.ko:\nkernel/b/mid.ko.xz: kernel/a/low-one.ko\n\
                kernel/c/top.ko.zst: kernel/b/mid.ko.xz kernel/a/low-one.ko\n"
                .into(),
            aliases: "# text\nalias crypto-cmac top\nalias fs-x* mid\nalias fs-xy low_one\n".into(),
            built_in: "kernel/d/in-it.ko\n".into(),
        }
    }

    #[test]
    fn files_come_after_those_that_they_need() {
        let tables = tables();
        let expected = ["kernel/a/low-one.ko", "kernel/b/mid.ko.xz", "kernel/c/top.ko.zst"];
        assert_eq!(tables.files("top").unwrap(), expected);
        assert_eq!(tables.files("low_one").unwrap(), ["kernel/a/low-one.ko"]);
        assert!(tables.files("absent").is_none());
    }

    #[test]
    fn aliases_may_name_several_modules() {
        let tables = tables();
        let found = |alias: &str| tables.named_by(&plain(alias)).collect::<Vec<_>>().join(" ");
        assert_eq!(found("crypto-cmac"), "top");
        assert_eq!(found("fs-xy"), "mid low_one");
        assert_eq!(found("other"), "");
    }

    #[test]
    fn what_is_in_the_kernel_need_not_be_loaded_and_what_is_nowhere_cannot() {
        let tables = tables();
        assert!(tables.load("in-it").is_ok());
        let kind = |name: &str| tables.load(name).unwrap_err().kind();
        assert_eq!(
            (kind("absent"), kind("low-one")),
            (io::ErrorKind::NotFound, io::ErrorKind::NotFound)
        );
    }
}
