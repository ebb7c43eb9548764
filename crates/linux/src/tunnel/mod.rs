//! The TUN device. It returns packets that the kernel routes to carnet, and passes packets from carnet to the
//! kernel.
//!
//! The device is not persistent. When the process ends, for any reason, the device vanishes with every route
//! into it. The device also prevents a second station in the network namespace, which could not create it.
//!
//! The slow path costs a system call and a pass through the kernel's routing for each packet; the station's
//! own share is small. So the device has a virtio header (`IFF_VNET_HDR`) if the kernel supports it. A burst
//! of TCP or UDP that the kernel has in one piece is read in one piece and cut here ([`TunnelReader`],
//! [`segmentation`]). Packets of one flow that come out of a tunnel are written in one piece
//! ([`TunnelWriter`], [`coalescing`]). Without the header the module reads and writes packets one by one.
//! Packets *into* a tunnel are always written one by one: virtio has no burst of IPv6 in IPv6.
//!
//! **One queue at a mobile router.** Tunnelled packets of its home agent directly follow the acknowledgement
//! that creates the tunnel. The station must not read them before the acknowledgement, so one queue keeps the
//! order.
//!
//! **Three queues at a home agent** (`IFF_MULTI_QUEUE`). They are possible there, because a router sends no
//! data before its acknowledgement. With three queues, a flood of requests does not displace forwarded
//! packets. Messages of unauthenticated sources do not displace messages of known sources. Packets into and
//! out of tunnels are in the first queue. Control messages (Mobility Header, Destination Options, fragments,
//! ICMPv6 without echoes) from known tunnel ends are in the second queue. All other control messages are in
//! the third. [`steering`] also says why messages of one source stay in order. So a registration from a new
//! care-of address waits in the third queue, and its renewals in the second. One thread owns the station and
//! reads all queues, a limited number of packets from each in turn (`run/packets.rs` of the program). Written
//! packets go through the first queue.
//!
//! A BPF program selects the queue. Without a program the kernel would hash each packet in either direction.
//! On Linux 6.18 (64 flows, one core) the hash costs 50 ns for each packet, routed into the device or
//! written. A packet takes about 700 ns in total. With a program the kernel runs the program for packets that
//! it routes into the device, and does not hash written packets. If the kernel allows no program, the device
//! has one queue. A kernel before Linux 5.1 allows none, and a station without the right to load BPF programs
//! has none.

pub(crate) mod coalescing;
mod control;
pub(crate) mod device;
mod reader;
pub(crate) mod segmentation;
mod steering;
pub(crate) mod virtio;
mod writer;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use carnet_nemo::forwarding::desired::TUNNEL_DEVICE;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::async_descriptor::watch_readable;
use crate::error::{Error, Result};

use coalescing::BurstKinds;
use control::ControlQueues;
use device::DeviceFeatures;
pub use reader::TunnelReader;
pub(crate) use steering::KnownSenders;
use steering::SteeringProgram;
pub use writer::TunnelWriter;

/// Largest number of packets that wait in a queue of the TUN device, about five milliseconds of traffic. A
/// whole TCP window at the kernel's default limit (`tcp_rmem`, 6 MB) fits. So one connection's burst does not
/// overrun the queue.
pub(crate) const QUEUE_LENGTH: u32 = 4000;

/// Wait for errors as well: the descriptor of a deleted device reports an error and is never readable.
const READABLE_OR_ERROR: Interest = Interest::READABLE.add(Interest::ERROR);

/// The TUN device; cheap to clone. If the platform is closed or another program deletes the device, each call
/// fails with [`Error::TunnelGone`].
#[derive(Debug, Clone)]
pub struct TunDevice(Arc<SharedTunDevice>);

#[derive(Debug)]
struct SharedTunDevice {
    file: AsyncFd<OwnedFd>,
    /// Queues of control messages; `None` if the device has one queue.
    control_queues: Option<SteeredControlQueues>,
    /// Whether a virtio header precedes each packet.
    has_header: bool,
    /// Kinds of bursts that the kernel accepts.
    burst_kinds: BurstKinds,
}

/// Queues of control messages, and the program that selects a queue.
#[derive(Debug)]
struct SteeredControlQueues {
    queues: ControlQueues,
    steering: Arc<SteeringProgram>,
}

/// Queues of the device, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceQueue {
    /// Forwarded packets; all packets if the device has one queue.
    Forwarded = 0,
    /// Control messages of known senders: remote ends of the station's tunnels.
    Known = 1,
    /// Control messages of all other senders.
    OtherSenders = 2,
}

impl DeviceQueue {
    const QUEUE_COUNT: u32 = 3;
}

impl TunDevice {
    /// Waits until a packet may be ready. If control messages have separate queues, they do not wake the
    /// caller before `control_from`. Safe to cancel.
    ///
    /// # Errors
    /// Fails at once, every time, if the device is gone.
    pub async fn readable(&self, control_from: Option<Instant>) -> io::Result<()> {
        let first = async || {
            let guard = self.0.file.ready(READABLE_OR_ERROR).await?;
            if guard.ready().is_error() {
                Err(io::Error::other(Error::tunnel_device_gone_error()))
            } else {
                Ok(())
            }
        };
        let Some(queues) = self.control_queues() else { return first().await };
        let (mut first, mut others) = (pin!(first()), pin!(queues.queue_readable(control_from)));
        poll_fn(|cx| match first.as_mut().poll(cx) {
            Poll::Pending => others.as_mut().poll(cx),
            ready => ready,
        })
        .await
    }

    fn control_queues(&self) -> Option<&ControlQueues> {
        self.0.control_queues.as_ref().map(|control| &control.queues)
    }

    fn file(&self, queue: DeviceQueue) -> Option<&OwnedFd> {
        match queue {
            DeviceQueue::Forwarded => Some(self.0.file.get_ref()),
            DeviceQueue::Known => self.control_queues().map(ControlQueues::known_senders_queue),
            DeviceQueue::OtherSenders => self.control_queues().map(ControlQueues::unknown_senders_queue),
        }
    }

    /// Reads the next packet of a queue, with its virtio header if the device has headers.
    fn try_read(&self, queue: DeviceQueue, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = |fd: &OwnedFd| nix::unistd::read(fd, &mut *buffer).map_err(explain_device_error);
        if queue != DeviceQueue::Forwarded {
            let file = self
                .file(queue)
                .filter(|_| !self.control_queues().is_some_and(ControlQueues::are_queues_empty));
            return read(file.ok_or(io::ErrorKind::WouldBlock)?);
        }
        // `try_io` accepts only one interest, so try both.
        match self.0.file.try_io(Interest::READABLE, &mut read) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.0.file.try_io(Interest::ERROR, read)
            }
            other => other,
        }
    }

    /// Returns whether a queue has no packet, even if the runtime still considers it readable.
    fn is_empty(&self, queue: DeviceQueue) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let Some(file) = self.file(queue) else { return true };
        let mut asked = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut asked, PollTimeout::ZERO), Ok(0))
    }

    /// Writes an IPv6 packet to the kernel, which routes it.
    pub fn try_write(&self, packet: &[u8]) -> io::Result<usize> {
        if !self.0.has_header {
            return nix::unistd::write(self.0.file.get_ref(), packet).map_err(explain_device_error);
        }
        let parts = [IoSlice::new(&[0; virtio::VIRTIO_HEADER_LENGTH]), IoSlice::new(packet)];
        let written = nix::sys::uio::writev(self.0.file.get_ref(), &parts).map_err(explain_device_error)?;
        Ok(written.saturating_sub(virtio::VIRTIO_HEADER_LENGTH))
    }

    /// Writes a packet with its virtio header.
    fn try_write_frame(&self, frame: &[u8]) -> io::Result<usize> {
        nix::unistd::write(self.0.file.get_ref(), frame).map_err(explain_device_error)
    }

    /// Creates the TUN device with one queue, which is down, for a program that is no station.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the device.
    pub fn create_with_one_queue() -> Result<TunDevice> {
        Self::create_tun_device(0).map(|(device, _)| device)
    }

    /// Creates the TUN device, which is down. Also returns the list of known senders; `None` if the device
    /// has only one queue, for example because `senders` is 0.
    pub(crate) fn create_tun_device(senders: usize) -> Result<(TunDevice, Option<KnownSenders>)> {
        let unwatched =
            |error| Error::from_kernel_refusal(format!("wait for packets of {TUNNEL_DEVICE}"), error);
        let (file, control, DeviceFeatures { has_header, burst_kinds: kinds }) =
            match create_steered_tun_device(senders) {
                Ok((file, others, abilities, steering)) => {
                    let queues = ControlQueues::new(others).map_err(unwatched)?;
                    let control = SteeredControlQueues { queues, steering: Arc::new(steering) };
                    (file, Some(control), abilities)
                }
                Err(why) => {
                    tracing::debug!(
                        "cannot give the TUN device {TUNNEL_DEVICE} several queues, so it has one: {why}"
                    );
                    let (file, abilities) = device::create_device(TUNNEL_DEVICE, device::DeviceKind::Tun)?;
                    (file, None, abilities)
                }
            };
        let file = watch_readable(file).map_err(unwatched)?;
        let known = control.as_ref().map(|control| KnownSenders::new(Arc::clone(&control.steering)));
        Ok((
            TunDevice(Arc::new(SharedTunDevice {
                file,
                control_queues: control,
                has_header,
                burst_kinds: kinds,
            })),
            known,
        ))
    }
}

/// Creates the TUN device with three queues. The error says why the kernel cannot, in one line.
fn create_steered_tun_device(
    senders: usize,
) -> std::result::Result<(OwnedFd, [OwnedFd; 2], DeviceFeatures, SteeringProgram), String> {
    if senders == 0 {
        return Err("the config names no router or home agent at the other end".to_owned());
    }
    let steering = SteeringProgram::open(senders)?;
    let (first, others, abilities) = device::create_steered_tun_device(TUNNEL_DEVICE, steering.program_fd())
        .map_err(|error| error.to_string())?;
    Ok((first, others, abilities, steering))
}

/// Turns an error of a deleted device into [`Error::TunnelGone`]. The descriptor of a deleted device still
/// exists and returns EBADFD.
fn explain_device_error(error: nix::errno::Errno) -> io::Error {
    match error {
        nix::errno::Errno::EBADFD => io::Error::other(Error::tunnel_device_gone_error()),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
