//! Creates TUN and TAP devices with `/dev/net/tun` and its ioctls.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::coalescing::BurstKinds;
use crate::error::{Error, Result};

const TUN_CLONE_DEVICE: &str = "/dev/net/tun";

/// Kind of data that a device carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// IP packets.
    Tun,
    /// Ethernet frames.
    Tap,
}

/// Abilities of the kernel's TUN driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceFeatures {
    /// Whether a virtio header precedes each packet.
    pub(crate) has_header: bool,
    /// Kinds of bursts (several segments in one buffer: GSO, GRO) that the kernel accepts and delivers.
    pub(crate) burst_kinds: BurstKinds,
}

/// Creates a device, which is still down. The device vanishes when its descriptor is closed.
pub(crate) fn create_device(name: &str, kind: DeviceKind) -> Result<(OwnedFd, DeviceFeatures)> {
    make_device(name, kind, libc::IFF_TUN_EXCL)
}

/// Creates a TUN device, which is down, with `N` further queues and the program that selects a packet's
/// queue. The device vanishes when its last descriptor is closed.
pub(crate) fn create_steered_tun_device<const N: usize>(
    name: &str,
    program: &OwnedFd,
) -> Result<(OwnedFd, [OwnedFd; N], DeviceFeatures)> {
    let (first, abilities) = make_device(name, DeviceKind::Tun, libc::IFF_TUN_EXCL | libc::IFF_MULTI_QUEUE)?;
    // Attach the program while the device has only one queue, so that the kernel never selects a queue by
    // itself.
    attach_steering_program(&first, program)?;
    let mut others = Vec::with_capacity(N);
    for _ in 0..N {
        let other = open_clone_device()?;
        attach_queue(&other, name, DeviceKind::Tun, abilities.has_header, libc::IFF_MULTI_QUEUE)?;
        others.push(other);
    }
    let others = others.try_into().map_err(|_| Error::Busy { device: name.to_owned() })?;
    Ok((first, others, abilities))
}

/// Attaches the program that selects a queue (`TUNSETSTEERINGEBPF`, Linux 4.16). The device keeps the program
/// after the descriptor is closed.
fn attach_steering_program(file: &impl AsRawFd, program: &OwnedFd) -> Result<()> {
    let program: libc::c_int = program.as_raw_fd();
    // SAFETY: the descriptors are open, and the kernel reads one `int` from `program`.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETSTEERINGEBPF as _, &raw const program) };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::from_kernel_refusal(
            "attach the steering program to the TUN queues",
            io::Error::last_os_error(),
        ))
    }
}

fn make_device(name: &str, kind: DeviceKind, flags: libc::c_int) -> Result<(OwnedFd, DeviceFeatures)> {
    let file = open_clone_device()?;
    let has_header = supports_virtio_header(&file);
    attach_queue(&file, name, kind, has_header, flags)?;
    let kinds = if has_header { enable_offload(&file) } else { BurstKinds::default() };
    if !(kinds.accepts_tcp && kinds.accepts_udp) {
        let missing = if kinds.accepts_tcp { "UDP" } else { "TCP and UDP" };
        tracing::info!(
            "this kernel's TUN device has no segmentation offload for {missing}: carnet handles these \
             packets one by one"
        );
    }
    Ok((file, DeviceFeatures { has_header, burst_kinds: kinds }))
}

fn open_clone_device() -> Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(TUN_CLONE_DEVICE)
        .map_err(|answer| match answer.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOTDIR) => {
                Error::TunMissing { path: PathBuf::from(TUN_CLONE_DEVICE), answer }
            }
            Some(libc::EACCES | libc::EPERM) => {
                Error::TunPermission { path: PathBuf::from(TUN_CLONE_DEVICE), answer }
            }
            _ => Error::from_kernel_refusal(format!("open {TUN_CLONE_DEVICE}"), answer),
        })?;
    Ok(OwnedFd::from(file))
}

/// Returns whether the driver supports virtio headers (`TUNGETFEATURES`).
fn supports_virtio_header(file: &impl AsRawFd) -> bool {
    let mut features: libc::c_uint = 0;
    // SAFETY: the descriptor is open, and the kernel writes one `unsigned int` into `features`.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETFEATURES as _, &raw mut features) };
    result == 0 && features & libc::IFF_VNET_HDR as libc::c_uint != 0
}

/// Turns on segmentation offload for all kinds of bursts that the kernel supports (`TUNSETOFFLOAD`), and
/// returns them. Linux supports UDP since 6.2, for IPv4 and IPv6 together.
fn enable_offload(file: &impl AsRawFd) -> BurstKinds {
    let set = |flags: libc::c_uint| {
        // SAFETY: the descriptor is open, and the argument is a number.
        let result =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) };
        result == 0
    };
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO6 | libc::TUN_F_TSO4;
    if set(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6) {
        return BurstKinds { accepts_tcp: true, accepts_udp: true };
    }
    BurstKinds { accepts_tcp: set(tcp), accepts_udp: false }
}

/// Creates the TUN device, or adds a queue to it (`TUNSETIFF`).
fn attach_queue(
    file: &impl AsRawFd,
    name: &str,
    kind: DeviceKind,
    has_header: bool,
    flags: libc::c_int,
) -> Result<()> {
    // SAFETY: `ifreq` is a plain C structure for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    let mode = if kind == DeviceKind::Tap { libc::IFF_TAP } else { libc::IFF_TUN };
    let header = if has_header { libc::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags = (mode | libc::IFF_NO_PI | flags | header) as libc::c_short;
    // SAFETY: the descriptor is open, and `request` is a live `ifreq` that the kernel reads and writes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result == 0 {
        return Ok(());
    }
    let answer = io::Error::last_os_error();
    Err(match answer.raw_os_error() {
        // EINVAL: an interface of another kind has this name.
        Some(libc::EBUSY | libc::EEXIST | libc::EINVAL) => Error::Busy { device: name.to_owned() },
        Some(libc::EPERM) => Error::Kernel {
            operation: format!("create {name}"),
            detail:
                ": this network namespace belongs to another user namespace; run carnet in your own user \
                 and network namespace (`unshare -Urn`)"
                    .to_owned(),
            answer,
        },
        _ => Error::from_kernel_refusal(format!("create {name}"), answer),
    })
}
