//! Linux below the agent: its modules, mounts, disks, network devices, and its news of devices.
//!
//! The boot and the requests of clients need the same of it. Each function does one thing, and
//! leaves it to its caller when that is done.

pub mod disk;
pub mod initramfs;
pub mod modprobe;
pub mod modules;
pub mod mountinfo;
pub mod mounts;
pub mod network;
pub mod uevents;
