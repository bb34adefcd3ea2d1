//! Accepts sessions on virtio-serial ports, or on a Unix socket in tests.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tokio::io::Interest;
use tokio::net::UnixListener;
use tokio::time::{Instant, sleep};

use super::serving;
use crate::base::log::note;
use crate::base::sys;
use crate::kernel::uevents::Uevents;
use crate::link::events::Event;
use crate::link::port::Link;
use crate::link::wire;
use crate::requests::agent::Agent;

const PORT_CLASS: &str = "/sys/class/virtio-ports";
const PORT_SUBSYSTEM: &str = "virtio-ports";
const PORT_PREFIX: &str = "quicksand.agent.";
/// The agent looks for ports for this long at first. The console module may be loaded late, and its
/// events may be lost under load.
const RESCAN_FOR: Duration = Duration::from_secs(30);
/// After a port has appeared, the agent looks for others for this long. The ports of a device
/// appear together.
const STRAGGLERS_FOR: Duration = Duration::from_secs(2);
const RESCAN_EVERY: Duration = Duration::from_millis(500);
/// The time between two checks of a port without a host, in case an event was missed.
const RECHECK_EVERY: Duration = Duration::from_secs(10);
const REOPEN_AFTER: Duration = Duration::from_secs(1);
const MAX_SOCKET_SESSIONS: usize = 64;

/// Serves every port that exists and those that appear later. Never returns.
pub async fn serve_ports(agent: Arc<Agent>) {
    // The socket is opened before the first scan, so that no port is missed between the two.
    let mut uevents = Uevents::open();
    if let Err(error) = &uevents {
        note(&format!("uevents: {error}"));
    }
    let mut rescan_until = Instant::now() + RESCAN_FOR;
    let mut known: Vec<String> = Vec::new();
    loop {
        for node in find_ports() {
            if !known.contains(&node) {
                known.push(node.clone());
                tokio::spawn(serve_port(agent.clone(), node));
                rescan_until = Instant::now() + STRAGGLERS_FOR;
            }
        }
        let polls = Instant::now() < rescan_until || uevents.is_err();
        let changed = async {
            match &mut uevents {
                Ok(uevents) => uevents.changed(PORT_SUBSYSTEM).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = sleep(RESCAN_EVERY), if polls => {}
        }
    }
}

/// Returns the device nodes of the agent's ports, such as `vport1p1`.
fn find_ports() -> Vec<String> {
    let Ok(entries) = fs::read_dir(PORT_CLASS) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = fs::read_to_string(entry.path().join("name")).ok()?;
            let node = entry.file_name().into_string().ok()?;
            name.starts_with(PORT_PREFIX).then_some(node)
        })
        .collect()
}

/// Serves one session after the other for as long as the agent runs.
async fn serve_port(agent: Arc<Agent>, node: String) {
    let path = format!("/dev/{node}");
    loop {
        if let Err(error) = serve_sessions(&agent, &path).await {
            note(&format!("{path}: {error}"));
        }
        sleep(REOPEN_AFTER).await;
    }
}

async fn serve_sessions(agent: &Arc<Agent>, path: &str) -> io::Result<()> {
    let port = sys::open(&sys::c_path(Path::new(path))?, libc::O_RDWR | libc::O_NONBLOCK)?;
    announce(&port);
    agent.note_serving();
    loop {
        wait_for_host(&port).await?;
        // Each session has a descriptor of its own: the runtime keeps it registered, and late
        // writers of an earlier session may still hold theirs.
        let link = Link::new(port.try_clone()?, true)?;
        serving::serve(agent, Arc::new(link)).await;
    }
}

/// Tells a host that was connected to an earlier agent that its session is gone, because the
/// connection itself outlives the agent.
fn announce(port: &OwnedFd) {
    let frame = wire::encode_json(&Event::Started, wire::JSON_LIMIT).unwrap_or_default();
    // This fails when no host is connected, and then nobody needs to know.
    if let Err(error) = sys::write(port.as_fd(), &frame)
        && error.kind() != io::ErrorKind::WouldBlock
    {
        note(&format!("announcing: {error}"));
    }
}

/// Waits until a host has connected.
///
/// The port sits in an epoll of its own, because the runtime would find a descriptor that is hung
/// up ready all the time. Edges of the inner epoll arrive as ordinary readiness of its descriptor.
async fn wait_for_host(port: &OwnedFd) -> io::Result<()> {
    if is_connected(port)? {
        return Ok(());
    }
    let edges = sys::watch(edge_epoll(port)?, Interest::READABLE)?;
    loop {
        if is_connected(port)? {
            return Ok(());
        }
        tokio::select! {
            guard = edges.readable() => {
                let mut guard = guard?;
                consume_edge(edges.get_ref());
                guard.clear_ready();
            }
            () = sleep(RECHECK_EVERY) => {}
        }
    }
}

fn is_connected(port: &OwnedFd) -> io::Result<bool> {
    Ok(!sys::poll_now(port.as_fd())?.contains(PollFlags::HUP))
}

fn edge_epoll(port: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let epoll = sys::own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32,
        u64: 0,
    };
    // SAFETY: one event is read.
    sys::check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, port.as_raw_fd(), &mut event) })?;
    Ok(epoll)
}

fn consume_edge(epoll: &OwnedFd) {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event is passed.
    unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 0) };
}

/// Serves one session on each connection, for tests. Fails when the socket cannot be bound.
pub async fn serve_socket(agent: Arc<Agent>, path: &Path) -> io::Result<()> {
    // A server that was killed has left its socket behind.
    if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    agent.note_serving();
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_SOCKET_SESSIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return Ok(());
        };
        let (stream, _) = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                // Most likely the agent is out of descriptors; sessions that end free some.
                note(&format!("accept: {error}"));
                sleep(REOPEN_AFTER).await;
                continue;
            }
        };
        let link = Link::new(stream.into_std()?.into(), false)?;
        let agent = agent.clone();
        tokio::spawn(async move {
            serving::serve(&agent, Arc::new(link)).await;
            drop(slot);
        });
    }
}
