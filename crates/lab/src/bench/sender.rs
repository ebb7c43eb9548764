//! The source of packets: a packet socket that takes a batch with each call and puts it on the interface without a
//! queue in between.

use std::io::IoSlice;
use std::os::fd::AsRawFd;

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::sys::socket::sockopt::SndBufForce;
use nix::sys::socket::{MsgFlags, MultiHeaders, bind, sendmmsg, setsockopt};
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, Socket, Type};

use super::packet::Frame;
use super::world::{Place, World, inside};

/// Packets of one call.
pub const BATCH: usize = 64;
/// Octets that the socket may have under way.
const BUFFER: usize = 16 << 20;

sockopt_impl!(
    /// `PACKET_QDISC_BYPASS` of packet(7).
    QdiscBypass,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_QDISC_BYPASS,
    bool
);

/// Sends frames out of an interface.
pub struct Sender {
    socket: Socket,
    headers: MultiHeaders<()>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Sender {
    /// At this place.
    pub fn open(world: &World, place: Place) -> anyhow::Result<Sender> {
        let node = world.node(place.node);
        let socket = inside(&node, || open(place.interface))
            .with_context(|| format!("cannot open a packet socket at {} of {node}", place.interface))?;
        Ok(Sender { socket, headers: MultiHeaders::preallocate(BATCH, None) })
    }

    /// Sends the first `count` of the frames, beginning anew when there are fewer; returns how many the interface
    /// took, at most [`BATCH`].
    pub fn send(&mut self, frames: &[Frame], count: usize) -> anyhow::Result<usize> {
        let slices: [[IoSlice<'_>; 1]; BATCH] =
            std::array::from_fn(|i| [IoSlice::new(frames[i % frames.len()].octets())]);
        let addresses: [Option<()>; BATCH] = [None; BATCH];
        let fd = self.socket.as_raw_fd();
        let slices = slices.iter().take(count);
        match sendmmsg(fd, &mut self.headers, slices, addresses, [], MsgFlags::empty()) {
            Ok(results) => Ok(results.count()),
            // The interface had no room.
            Err(Errno::ENOBUFS) => Ok(0),
            Err(error) => Err(anyhow!("sendmmsg: {error}")),
        }
    }
}

fn open(interface: &str) -> anyhow::Result<Socket> {
    // Protocol 0: nothing is received.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let address = nix::ifaddrs::getifaddrs()?
        .filter(|one| one.interface_name == interface)
        .find_map(|one| one.address?.as_link_addr().copied())
        .ok_or_else(|| anyhow!("there is no interface {interface}"))?;
    bind(socket.as_raw_fd(), &address)?;
    setsockopt(&socket, QdiscBypass, &true)?;
    setsockopt(&socket, SndBufForce, &BUFFER)?;
    Ok(socket)
}
