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

pub(crate) mod coalescing;
pub(crate) mod device;
mod reader;
pub(crate) mod segmentation;
pub(crate) mod virtio;
mod writer;

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use carnet_station::forwarding::desired::TUNNEL_DEVICE;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};
use crate::readable::watch;

use coalescing::Kinds;
use device::Abilities;
pub use reader::TunnelReader;
pub use writer::TunnelWriter;

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
        let (file, Abilities { has_header, kinds }) = device::create(TUNNEL_DEVICE, device::Kind::Tun)?;
        let file =
            watch(file).map_err(|e| Error::kernel(format!("wait for packets of {TUNNEL_DEVICE}"), e))?;
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

#[cfg(test)]
mod tests;
