//! The TUN device: packets that the kernel routes to carnet, and packets that carnet gives the kernel.
//!
//! The device is not persistent: it disappears with the process, whatever the reason, and with it every
//! route into it. Creating it is also the lock that keeps a second station out of a network namespace.
//! Packets are bare IPv6 packets (`IFF_NO_PI`), one per read or write.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use carnet_station::forwarding::desired::TUNNEL_DEVICE;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};
use crate::readable::watch;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// A device that is deleted shows an error and nothing to read.
const READABLE: Interest = Interest::READABLE.add(Interest::ERROR);

/// Reads and writes IPv6 packets of the tunnel device. Cheap to clone; valid until the platform is closed or
/// somebody else deletes the device, after which everything fails with [`Error::TunnelGone`] as its reason.
#[derive(Debug, Clone)]
pub struct TunnelIo(Arc<AsyncFd<OwnedFd>>);

impl TunnelIo {
    /// Waits until there may be a packet to read. Safe to cancel.
    ///
    /// # Errors
    /// At once and every time when the device is gone.
    pub async fn readable(&self) -> io::Result<()> {
        let guard = self.0.ready(READABLE).await?;
        if guard.ready().is_error() { Err(io::Error::other(Error::tunnel_gone())) } else { Ok(()) }
    }

    /// Reads one packet into `buffer` and returns its length; a longer packet is cut off.
    /// [`io::ErrorKind::WouldBlock`] when there is none.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = |fd: &OwnedFd| nix::unistd::read(fd, &mut *buffer).map_err(explain);
        // Not both at once: `try_io` knows no combinations.
        match self.0.try_io(Interest::READABLE, &mut read) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.0.try_io(Interest::ERROR, read),
            other => other,
        }
    }

    /// Hands one IPv6 packet to the kernel, which routes it.
    pub fn try_write(&self, packet: &[u8]) -> io::Result<usize> {
        nix::unistd::write(self.0.get_ref(), packet).map_err(explain)
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
        attach(&file)?;
        let io = watch(OwnedFd::from(file))
            .map_err(|e| Error::kernel(format!("wait for packets of {TUNNEL_DEVICE}"), e))?;
        Ok(TunnelIo(Arc::new(io)))
    }
}

/// The descriptor outlives the device, and this is what it says then.
fn explain(error: nix::errno::Errno) -> io::Error {
    match error {
        nix::errno::Errno::EBADFD => io::Error::other(Error::tunnel_gone()),
        other => other.into(),
    }
}

/// `TUNSETIFF`: makes the device.
fn attach(file: &impl AsRawFd) -> Result<()> {
    // SAFETY: `ifreq` is a plain C structure for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(TUNNEL_DEVICE.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
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
