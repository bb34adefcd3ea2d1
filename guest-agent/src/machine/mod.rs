//! The guest as a whole: its clock, its names and keys, its accounts, the freezing of its root, the
//! times of its boot, and its end.
//!
//! Most of it is changed by the host only when a sandbox starts, is cloned, saved or continued.

pub mod accounts;
pub mod boot_times;
pub mod freeze;
pub mod host_time;
pub mod hostfiles;
pub mod identity;
pub mod info;
pub mod shutdown;
