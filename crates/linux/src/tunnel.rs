//! The TUN device: packets that the kernel routes to carnet, and packets that carnet gives the kernel.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::unix::AsyncFd;

/// Reads and writes IPv6 packets of the tunnel device. Cheap to clone; valid until the platform is closed,
/// after which reads and writes fail.
#[derive(Debug, Clone)]
pub struct TunnelIo(Arc<AsyncFd<OwnedFd>>);

impl TunnelIo {
    /// Waits until there may be a packet to read. Safe to cancel.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await.map(|_| ())
    }

    /// Reads one packet into `buffer` and returns its length; a longer packet is cut off.
    /// [`io::ErrorKind::WouldBlock`] when there is none.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(tokio::io::Interest::READABLE, |fd| Ok(nix::unistd::read(fd, buffer)?))
    }

    /// Hands one IPv6 packet to the kernel, which routes it.
    pub fn try_write(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(self.0.get_ref(), packet)?)
    }
}
