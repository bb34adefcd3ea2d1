//! Reads the words of the kernel command line that concern the agent.

use std::fs;
use std::net::Ipv4Addr;

/// The values on the command line. A value that is absent or makes no sense is `None`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cmdline {
    pub root: Option<String>,
    pub root_fstype: Option<String>,
    pub root_flags: Option<String>,
    pub read_only: bool,
    pub hostname: Option<String>,
    pub ip: Option<(Ipv4Addr, u8)>,
    pub gateway: Option<Ipv4Addr>,
    pub dns: Option<Ipv4Addr>,
    pub http_port: Option<u16>,
    pub token: Option<String>,
    pub init: InitChoice,
}

/// The program that becomes process 1 after the agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum InitChoice {
    /// The init of the distribution, if there is one.
    #[default]
    Auto,
    /// The agent stays process 1.
    None,
    Path(String),
}

impl Cmdline {
    /// Reads the command line of the kernel that runs. If it cannot be read, it counts as empty.
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default())
    }

    /// Parses a command line. A later word replaces an earlier one, as it does for the kernel.
    pub fn parse(text: &str) -> Self {
        let mut cmdline = Self::default();
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            cmdline.set(key, value);
        }
        cmdline
    }

    fn set(&mut self, key: &str, value: &str) {
        let text = || Some(value.to_owned()).filter(|text| !text.is_empty());
        match key {
            "root" => self.root = text(),
            "rootfstype" => self.root_fstype = text(),
            "rootflags" => self.root_flags = text(),
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "quicksand.hostname" => self.hostname = text(),
            "quicksand.ip" => self.ip = parse_ip(value),
            "quicksand.gw" => self.gateway = value.parse().ok(),
            "quicksand.dns" => self.dns = value.parse().ok(),
            "quicksand.http" | "quicksand_port" => self.http_port = value.parse().ok(),
            "quicksand_token" => self.token = text(),
            "quicksand.init" => self.init = InitChoice::parse(value),
            _ => {}
        }
    }
}

impl InitChoice {
    fn parse(value: &str) -> Self {
        match value {
            "none" => Self::None,
            path if path.starts_with('/') => Self::Path(path.to_owned()),
            _ => Self::Auto,
        }
    }
}

/// Parses `10.0.2.15/24`. Without a prefix length it is 24.
fn parse_ip(value: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = value.split_once('/').unwrap_or((value, "24"));
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    Some((address.parse().ok()?, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_words_are_found_among_others() {
        let cmdline = Cmdline::parse(
            "console=ttyS0 root=/dev/vda rootfstype=ext4 rw quicksand.hostname=box \
             quicksand.ip=10.0.2.15/24 quicksand.gw=10.0.2.2 quicksand.dns=10.0.2.3 \
             quicksand_token=abc=def quicksand_port=8080 quicksand.init=/bin/init quiet\n",
        );
        assert_eq!(cmdline.root.as_deref(), Some("/dev/vda"));
        assert_eq!(cmdline.ip, Some((Ipv4Addr::new(10, 0, 2, 15), 24)));
        assert_eq!(cmdline.http_port, Some(8080));
        assert_eq!(cmdline.token.as_deref(), Some("abc=def"));
        assert_eq!(cmdline.init, InitChoice::Path("/bin/init".into()));
        assert!(!cmdline.read_only);
    }

    #[test]
    fn nonsense_is_absent() {
        let cmdline = Cmdline::parse("ro root= quicksand.ip=10.0.2.15/99 quicksand.http=70000");
        assert_eq!(
            cmdline,
            Cmdline {
                read_only: true,
                ..Cmdline::default()
            }
        );
    }
}
