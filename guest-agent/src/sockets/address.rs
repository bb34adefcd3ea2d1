//! Addresses in the guest that a client may connect to or listen at.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::{names, unix};
use crate::base::blocking;
use crate::base::error::{Error, Result};
use crate::base::params::{Place, wrong};
use crate::processes::exec::{Commands, Ties};
use crate::users::defaults::Defaults;
use crate::users::login;
use crate::users::passwd::User;

/// A connection that is not made within this time fails. The kernel would try for two minutes.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest name that DNS allows (RFC 1035, section 2.3.4).
const NAME_LIMIT: usize = 253;

/// The parameters that name an address: `host` and `port`, or `path`.
#[derive(Debug, Deserialize)]
pub struct Address {
    host: Option<String>,
    port: Option<u16>,
    #[serde(default)]
    protocol: Protocol,
    path: Option<Place>,
    /// The user by whose rights a Unix socket is opened or made.
    user: Option<String>,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

/// An address whose form has been checked.
#[derive(Debug)]
pub enum Target {
    Tcp { host: String, port: u16 },
    Udp { host: String, port: u16 },
    Unix { path: PathBuf, user: User },
}

/// The result of a dial.
#[derive(Debug)]
pub enum Connected {
    Stream(Socket),
    Datagrams(UdpSocket),
}

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(OwnedFd::from),
            Self::Unix(stream) => Ok(stream.into()),
        }
    }
}

impl Address {
    /// Checks the form. `me` is the user that the agent runs as.
    pub fn target(self, me: &User) -> Result<Target> {
        match (self.port, self.path) {
            (Some(port), None) => {
                let host = self.host.unwrap_or_else(|| "127.0.0.1".to_owned());
                check_name(&host)?;
                Ok(match self.protocol {
                    Protocol::Tcp => Target::Tcp { host, port },
                    Protocol::Udp => Target::Udp { host, port },
                })
            }
            (None, Some(_)) if self.protocol != Protocol::Tcp => Err(wrong("protocol", "is for a port only")),
            (None, Some(Place(path))) => {
                let user = login::find(self.user.as_deref(), Defaults::read().as_ref(), me)?;
                Ok(Target::Unix { path, user })
            }
            (None, None) => Err(wrong("port", "or path is required")),
            (Some(_), Some(_)) => Err(wrong("port", "and path exclude each other")),
        }
    }
}

/// Refuses what can be no name. It will be an argument of a program.
fn check_name(host: &str) -> Result<()> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    let is_fine = !host.is_empty() && host.len() <= NAME_LIMIT && host.bytes().all(is_name) && !host.starts_with('-');
    is_fine
        .then_some(())
        .ok_or_else(|| wrong("host", "must be a name or an address"))
}

/// Returns the addresses of a host for which nobody needs to be asked.
fn resolve_here(host: &str) -> Option<Vec<IpAddr>> {
    if let Ok(address) = host.parse() {
        return Some(vec![address]);
    }
    // RFC 6761, section 6.3: these names never leave the machine.
    let is_local = host == "localhost" || host.ends_with(".localhost");
    is_local.then(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
}

/// Returns the addresses of a host.
async fn resolve(commands: &Commands, host: &str, ties: Ties<'_>) -> Result<Vec<IpAddr>> {
    match resolve_here(host) {
        Some(addresses) => Ok(addresses),
        None => names::look_up(commands, host, ties).await,
    }
}

async fn connect_tcp(address: SocketAddr) -> io::Result<Connected> {
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await;
    let stream = stream.unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)))?;
    // Keystrokes must not wait for the acknowledgement of those before.
    let _ = stream.set_nodelay(true);
    Ok(Connected::Stream(Socket::Tcp(stream)))
}

/// Makes a socket that sends to the address, and receives from it only.
async fn connect_udp(address: SocketAddr) -> io::Result<Connected> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    Ok(Connected::Datagrams(socket))
}

impl Target {
    /// Connects. Fails as connect(2) does, after 10 s with ETIMEDOUT, and as `names::look_up`.
    pub async fn connect(&self, commands: &Commands, ties: Ties<'_>) -> Result<Connected> {
        let (host, port) = match self {
            Self::Tcp { host, port } | Self::Udp { host, port } => (host, *port),
            Self::Unix { path, user } => {
                let (path, user, what) = (path.clone(), user.clone(), self.describe());
                let connect = move || unix::connect(&path, &user, PATIENCE).map_err(|error| Error::io(what, error));
                let stream = blocking::run(connect).await?;
                return Ok(Connected::Stream(Socket::Unix(stream)));
            }
        };
        let mut failure = Error::NotFound(format!("host {host:?}"));
        for address in resolve(commands, host, ties).await? {
            let address = SocketAddr::new(address, port);
            let connected = match self {
                Self::Udp { .. } => connect_udp(address).await,
                _ => connect_tcp(address).await,
            };
            match connected {
                Ok(connected) => return Ok(connected),
                Err(error) => failure = Error::io(self.describe(), error),
            }
        }
        Err(failure)
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Tcp { host, port } | Self::Udp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port } | Self::Udp { host, port } => format!("{host}:{port}"),
            Self::Unix { path, .. } => format!("{path:?}"),
        }
    }

    /// Returns the loopback address to listen at. Fails with `Forbidden` for any other: only the
    /// client is to be reached, not the guest's network.
    pub fn loopback(&self) -> Result<SocketAddr> {
        let Self::Tcp { host, port } = self else {
            return Err(wrong("protocol", "must be tcp"));
        };
        let address = match host.as_str() {
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            host => host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        };
        if address.is_loopback() {
            Ok(SocketAddr::new(address, *port))
        } else {
            Err(Error::Forbidden(format!(
                "{}: only loopback addresses of the guest may be listened at",
                self.describe()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::params::Params;
    use serde_json::{Value, json};

    fn target(params: Value) -> Result<Target> {
        let mut params: Params = serde_json::from_value(params).unwrap();
        params.take::<Address>()?.target(&User::nameless(0))
    }

    #[test]
    fn an_address_is_a_port_or_a_path() {
        let tcp = target(json!({"port": 80})).unwrap();
        assert_eq!(tcp.describe(), "127.0.0.1:80");
        assert_eq!(
            target(json!({"host": "::1", "port": 80})).unwrap().describe(),
            "[::1]:80"
        );
        assert_eq!(target(json!({"path": "/run/a b"})).unwrap().describe(), "\"/run/a b\"");
        for bad in [
            json!({}),
            json!({"port": 80, "path": "/x"}),
            json!({"port": 65536}),
            json!({"path": "x"}),
            json!({"path": "/x", "protocol": "udp"}),
            json!({"port": 80, "protocol": "sctp"}),
        ] {
            assert!(target(bad).is_err());
        }
    }

    #[test]
    fn what_can_be_no_host_is_refused() {
        for bad in ["", "-x", "a b", "a\0b", "a/b", "a;b", "é", &"a".repeat(254)] {
            assert!(target(json!({"host": bad, "port": 80})).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_loopback_is_listened_at() {
        let loopback = |host: &str| target(json!({"host": host, "port": 0})).unwrap().loopback();
        for fine in ["localhost", "127.0.0.1", "127.3.2.1", "::1"] {
            assert!(loopback(fine).is_ok(), "{fine}");
        }
        for bad in ["0.0.0.0", "::", "10.0.2.15", "example.org", "::ffff:10.0.2.15"] {
            assert_eq!(
                loopback(bad).unwrap_err().code(),
                crate::base::error::Code::Forbidden,
                "{bad}"
            );
        }
    }

    #[test]
    fn datagrams_are_not_listened_for() {
        let udp = target(json!({"port": 53, "protocol": "udp"})).unwrap();
        assert!(udp.loopback().is_err());
    }

    #[test]
    fn local_names_are_not_looked_up() {
        let found = resolve_here("db.localhost").unwrap();
        assert!(found.iter().all(IpAddr::is_loopback));
        assert_eq!(found.len(), 2);
    }
}
