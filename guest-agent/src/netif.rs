//! Bringing the network up without a DHCP client: a few ioctls.

use std::fs;
use std::io;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::sys;

const CLASS: &str = "/sys/class/net";

/// The first interface of the virtio driver, else the first that is not `lo`.
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

pub fn bring_up_loopback() -> io::Result<()> {
    let socket = socket()?;
    set_up(&socket, "lo")
}

/// Address, then up, then the route: the kernel wants this order.
pub fn configure(name: &str, address: Ipv4Addr, prefix: u8, gateway: Option<Ipv4Addr>) -> io::Result<()> {
    // The network behind it has none, and its timers and announcements cost time.
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

/// Changes the hardware address of an interface that may be up.
pub fn set_mac(name: &str, mac: [u8; 6]) -> io::Result<()> {
    let socket = socket()?;
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_hwaddr.sa_family = libc::ARPHRD_ETHER;
    // SAFETY: the union's member was just set; sa_data has 14 bytes.
    let data = unsafe { &mut request.ifr_ifru.ifru_hwaddr.sa_data };
    for (slot, byte) in data.iter_mut().zip(mac) {
        *slot = byte.cast_signed();
    }
    sys::ioctl(socket.as_fd(), libc::SIOCSIFHWADDR, &mut request).map(|_| ())
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    sys::own(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last byte stays zero: the name's end.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
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
    // Two bytes of port come first.
    for (slot, byte) in data[2..].iter_mut().zip(address.octets()) {
        *slot = byte.cast_signed();
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as u16,
        sa_data: data,
    }
}
