//! Configures the network with a few ioctls instead of a DHCP client.

use std::fs;
use std::io;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::base::sys;

const CLASS: &str = "/sys/class/net";

/// Returns the name of the first interface of the virtio driver, or else of the first one with a
/// device.
pub fn find_interface() -> Option<String> {
    let mut names: Vec<String> = fs::read_dir(CLASS)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name != "lo" && Path::new(CLASS).join(name).join("device").exists())
        .collect();
    names.sort();
    let is_virtio = |name: &String| {
        fs::read_link(Path::new(CLASS).join(name).join("device/driver")).is_ok_and(|link| link.ends_with("virtio_net"))
    };
    let virtio = names.iter().position(is_virtio);
    names.into_iter().nth(virtio.unwrap_or(0))
}

/// Fails with the error of the system, as do the functions below.
pub fn bring_up_loopback() -> io::Result<()> {
    let socket = socket()?;
    set_up(&socket, "lo")
}

/// Sets the address, then brings the interface up, then sets the route: the kernel requires this
/// order. `prefix` is the number of bits of the network's part.
pub fn configure(name: &str, address: Ipv4Addr, prefix: u8, gateway: Option<Ipv4Addr>) -> io::Result<()> {
    // The network has no IPv6, whose timers and announcements would only cost time.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    let socket = socket()?;
    let netmask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    set_address(&socket, name, libc::SIOCSIFADDR, address)?;
    set_address(&socket, name, libc::SIOCSIFNETMASK, Ipv4Addr::from(netmask))?;
    set_up(&socket, name)?;
    match gateway {
        Some(gateway) => add_default_route(&socket, gateway),
        None => Ok(()),
    }
}

/// Changes the hardware address of an interface, which may be up.
pub fn set_mac(socket: &OwnedFd, name: &str, mac: [u8; 6]) -> io::Result<()> {
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_hwaddr.sa_family = libc::ARPHRD_ETHER;
    // SAFETY: the union's member was just set; sa_data has 14 bytes.
    let data = unsafe { &mut request.ifr_ifru.ifru_hwaddr.sa_data };
    for (slot, byte) in data.iter_mut().zip(mac) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    sys::ioctl(socket.as_fd(), libc::SIOCSIFHWADDR, &mut request).map(|_| ())
}

/// Adds a routing rule that keeps every user but root from an address (ip-rule(8), `uidrange`). A
/// rule that exists already stays.
pub fn keep_users_from(address: Ipv4Addr) -> io::Result<()> {
    match send_rule(&uid_rule(address)) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result,
    }
}

// linux/fib_rules.h, linux/rtnetlink.h
const FR_ACT_PROHIBIT: u8 = 8;
const FRA_DST: u16 = 1;
const FRA_PRIORITY: u16 = 6;
const FRA_UID_RANGE: u16 = 20;
/// The rule comes between the tables local and main, which have 0 and 32766 (ip-rule(8)).
const RULE_PRIORITY: u32 = 445;

/// Returns a message RTM_NEWRULE: nlmsghdr, fib_rule_hdr, attributes.
fn uid_rule(address: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![0; 16];
    message.extend([libc::AF_INET as u8, 32, 0, 0, 0, 0, 0, FR_ACT_PROHIBIT, 0, 0, 0, 0]);
    let mut add = |kind: u16, value: &[u8]| {
        message.extend((value.len() as u16 + 4).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
    };
    add(FRA_DST, &address.octets());
    add(FRA_PRIORITY, &RULE_PRIORITY.to_ne_bytes());
    // u32::MAX is no user.
    add(
        FRA_UID_RANGE,
        &[1_u32.to_ne_bytes(), (u32::MAX - 1).to_ne_bytes()].concat(),
    );
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_NEWRULE.to_ne_bytes());
    message[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
    message
}

fn send_rule(message: &[u8]) -> io::Result<()> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let socket = sys::own(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    sys::write(socket.as_fd(), message)?;
    let mut reply = [0; 256];
    let length = sys::read(socket.as_fd(), &mut reply)?;
    // nlmsghdr is followed by nlmsgerr, whose first member is the negative error or 0.
    let error = reply[..length].get(16..20).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(-number)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Opens a socket for ioctls that change the network.
pub fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    sys::own(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last byte stays zero and ends the name.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(request)
}

fn set_up(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request_for(name)?;
    sys::ioctl(socket.as_fd(), libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has filled this member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    sys::ioctl(socket.as_fd(), libc::SIOCSIFFLAGS, &mut request).map(|_| ())
}

fn set_address(socket: &OwnedFd, name: &str, which: libc::c_ulong, address: Ipv4Addr) -> io::Result<()> {
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_addr = socket_address(address);
    sys::ioctl(socket.as_fd(), which, &mut request).map(|_| ())
}

fn add_default_route(socket: &OwnedFd, gateway: Ipv4Addr) -> io::Result<()> {
    // SAFETY: rtentry is plain data, for which zero is a valid value.
    let mut route: libc::rtentry = unsafe { zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    match sys::ioctl(socket.as_fd(), libc::SIOCADDRT, &mut route) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result.map(|_| ()),
    }
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    // The first two bytes are the port.
    for (slot, byte) in data[2..].iter_mut().zip(address.octets()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as u16,
        sa_data: data,
    }
}
