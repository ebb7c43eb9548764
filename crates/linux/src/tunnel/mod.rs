//! The TUN device: packets that the kernel routes to carnet, and packets that carnet gives the kernel.
//!
//! The device is not persistent: it disappears with the process, whatever the reason, and with it every
//! route into it. Creating it is also the lock that keeps a second station out of a network namespace.
//!
//! A system call and a way through the kernel's routing for each packet is what the slow path costs; the
//! station's own share is small. So the device has a virtio header (`IFF_VNET_HDR`) where the kernel knows it:
//! a burst of TCP or UDP that the kernel has in one piece is read in one piece and cut here
//! ([`TunnelReader`], [`segmentation`]), and packets of one flow that come out of a tunnel are written in one
//! piece ([`TunnelWriter`], [`coalescing`]). Without it packets come and go one by one. What goes *into* a
//! tunnel is always written packet by packet: virtio has no burst of IPv6 in IPv6.
//!
//! One queue. More of them (`IFF_MULTI_QUEUE`) would be read by the same thread, since one thread owns the
//! station; and with two or more the kernel hashes each packet in either direction to choose among them. Measured
//! on Linux 6.18 (64 flows, one core): 50 ns more for each packet routed into the device and for each written, of
//! some 700 ns, and nothing gained by the reader.

mod coalescing;
mod reader;
mod segmentation;
mod virtio;
mod writer;

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use carnet_station::forwarding::desired::TUNNEL_DEVICE;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};
use crate::readable::watch;

use coalescing::Kinds;
pub use reader::TunnelReader;
pub use writer::TunnelWriter;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// A device that is deleted shows an error and nothing to read.
const READABLE: Interest = Interest::READABLE.add(Interest::ERROR);

/// The tunnel device. Cheap to clone; valid until the platform is closed or somebody else deletes the device,
/// after which everything fails with [`Error::TunnelGone`] as its reason.
#[derive(Debug, Clone)]
pub struct TunnelIo(Arc<Device>);

#[derive(Debug)]
struct Device {
    file: AsyncFd<OwnedFd>,
    /// Each packet has a virtio header before it.
    has_header: bool,
    /// Bursts that the kernel takes.
    kinds: Kinds,
}

impl TunnelIo {
    /// Waits until there may be a packet to read. Safe to cancel.
    ///
    /// # Errors
    /// At once and every time when the device is gone.
    pub async fn readable(&self) -> io::Result<()> {
        let guard = self.0.file.ready(READABLE).await?;
        if guard.ready().is_error() { Err(io::Error::other(Error::tunnel_gone())) } else { Ok(()) }
    }

    /// Reads whatever comes next, with its virtio header if the device has them.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = |fd: &OwnedFd| nix::unistd::read(fd, &mut *buffer).map_err(explain);
        // Not both at once: `try_io` knows no combinations.
        match self.0.file.try_io(Interest::READABLE, &mut read) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.0.file.try_io(Interest::ERROR, read)
            }
            other => other,
        }
    }

    /// Hands one IPv6 packet to the kernel, which routes it.
    pub fn try_write(&self, packet: &[u8]) -> io::Result<usize> {
        if !self.0.has_header {
            return nix::unistd::write(self.0.file.get_ref(), packet).map_err(explain);
        }
        let parts = [IoSlice::new(&[0; virtio::LENGTH]), IoSlice::new(packet)];
        let written = nix::sys::uio::writev(self.0.file.get_ref(), &parts).map_err(explain)?;
        Ok(written.saturating_sub(virtio::LENGTH))
    }

    /// Writes a packet that has its virtio header before it.
    fn try_write_frame(&self, frame: &[u8]) -> io::Result<usize> {
        nix::unistd::write(self.0.file.get_ref(), frame).map_err(explain)
    }

    /// Creates the device, down.
    pub(crate) fn create() -> Result<TunnelIo> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(CLONE_DEVICE)
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOTDIR) => {
                    Error::TunMissing { path: PathBuf::from(CLONE_DEVICE), source }
                }
                Some(libc::EACCES | libc::EPERM) => {
                    Error::TunPermission { path: PathBuf::from(CLONE_DEVICE), source }
                }
                _ => Error::kernel(format!("open {CLONE_DEVICE}"), source),
            })?;
        let has_header = knows_header(&file);
        attach(&file, has_header)?;
        let kinds = if has_header { offload(&file) } else { Kinds::default() };
        if !(kinds.tcp && kinds.udp) {
            let missing = if kinds.tcp { "UDP" } else { "TCP and UDP" };
            tracing::info!("this kernel's TUN device has no bursts of {missing}: packets go one by one");
        }
        let file = watch(OwnedFd::from(file))
            .map_err(|e| Error::kernel(format!("wait for packets of {TUNNEL_DEVICE}"), e))?;
        Ok(TunnelIo(Arc::new(Device { file, has_header, kinds })))
    }
}

/// The descriptor outlives the device, and this is what it says then.
fn explain(error: nix::errno::Errno) -> io::Error {
    match error {
        nix::errno::Errno::EBADFD => io::Error::other(Error::tunnel_gone()),
        other => other.into(),
    }
}

/// `TUNGETFEATURES`: whether the driver knows virtio headers.
fn knows_header(file: &impl AsRawFd) -> bool {
    let mut features: libc::c_uint = 0;
    // SAFETY: the descriptor is open, and the kernel writes one `unsigned int` into `features`.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETFEATURES as _, &raw mut features) };
    result == 0 && features & libc::IFF_VNET_HDR as libc::c_uint != 0
}

/// `TUNSETOFFLOAD`: asks for bursts, as many kinds as the kernel has. UDP came with Linux 6.2, where both
/// versions of IP have to be asked for together.
fn offload(file: &impl AsRawFd) -> Kinds {
    let set = |flags: libc::c_uint| {
        // SAFETY: the descriptor is open; the argument is a number.
        let result =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) };
        result == 0
    };
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO6;
    if set(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6) {
        return Kinds { tcp: true, udp: true };
    }
    Kinds { tcp: set(tcp), udp: false }
}

/// `TUNSETIFF`: makes the device.
fn attach(file: &impl AsRawFd, has_header: bool) -> Result<()> {
    // SAFETY: `ifreq` is a plain C structure for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(TUNNEL_DEVICE.bytes()) {
        *to = from as libc::c_char;
    }
    let header = if has_header { libc::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL | header) as libc::c_short;
    // SAFETY: the descriptor is open, and `request` is a live `ifreq` that the kernel reads and writes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(match source.raw_os_error() {
        // EINVAL: an interface of that name that is no TUN device.
        Some(libc::EBUSY | libc::EEXIST | libc::EINVAL) => Error::Busy { device: TUNNEL_DEVICE.to_owned() },
        Some(libc::EPERM) => Error::Kernel {
            operation: format!("create {TUNNEL_DEVICE}"),
            detail:
                ": this network namespace belongs to another user namespace; enter one of your own with it \
                     (`unshare -Urn`)"
                    .to_owned(),
            source,
        },
        _ => Error::kernel(format!("create {TUNNEL_DEVICE}"), source),
    })
}

#[cfg(test)]
mod tests;
