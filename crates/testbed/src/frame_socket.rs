//! Packet sockets for frames, which handle many frames per system call and get a kernel timestamp of every
//! frame.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, recvmsg, sendmmsg, setsockopt,
    sockopt,
};
use nix::sys::time::TimeVal;
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of frames per system call.
pub const FRAMES_PER_BATCH: usize = 64;
const SOCKET_BUFFER_SIZE: usize = 32 << 20;
/// The EtherType of GeoNetworking.
pub const ETHER_TYPE_GEONETWORKING: u16 = 0x8947;
/// `ETH_P_ALL`: frames of all EtherTypes, in both directions.
pub const ETHER_TYPE_ALL: u16 = 3;

/// Opens a packet socket on an interface. With `None` as protocol (`ETH_P_*`), the socket only sends.
///
/// # Errors
///
/// Fails if there is no such interface, if it is down, or without `CAP_NET_RAW`.
pub fn packet_socket(interface: &str, protocol: Option<u16>) -> anyhow::Result<Socket> {
    let protocol = protocol.map(|protocol| Protocol::from(i32::from(protocol.to_be())));
    let socket = Socket::new(Domain::PACKET, Type::RAW, protocol).context("cannot open a packet socket")?;
    carnet_linux::bind_packet_socket(&socket, interface)
        .with_context(|| format!("cannot bind a packet socket to the interface {interface}"))?;
    Ok(socket)
}

/// A packet socket on an interface.
#[derive(Debug)]
pub struct FrameSocket {
    socket: Socket,
}

impl FrameSocket {
    /// Opens a socket for frames of an EtherType; with `None` the socket only sends.
    pub fn open(interface: &str, ether_type: Option<u16>) -> anyhow::Result<FrameSocket> {
        let socket = packet_socket(interface, ether_type)?;
        // Without privileges on the host the kernel refuses to exceed its limit for socket buffers
        // (`SO_RCVBUFFORCE`). Then ask for the size within the limit.
        if setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_SIZE).is_err() {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_SIZE);
        }
        Ok(FrameSocket { socket })
    }

    /// Sends all frames, or fails with the kernel's error.
    pub fn send<'a>(
        &self,
        headers: &mut MultiHeaders<()>,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> anyhow::Result<()> {
        let none: [ControlMessage<'_>; 0] = [];
        let slices: Vec<[IoSlice<'_>; 1]> = frames.map(|frame| [IoSlice::new(frame)]).collect();
        let to = [None::<()>; FRAMES_PER_BATCH];
        let mut rest = &slices[..];
        while !rest.is_empty() {
            let sent = sendmmsg(self.socket.as_raw_fd(), headers, rest, to, none, MsgFlags::empty())
                .map(Iterator::count);
            match sent {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::EINTR | Errno::ENOBUFS | Errno::EAGAIN) => {}
                Err(error) => return Err(error).context("cannot send frames"),
            }
        }
        Ok(())
    }

    /// Receives a batch into `frames`, and writes the length of each frame into `lengths`.
    pub fn receive(
        &self,
        headers: &mut MultiHeaders<()>,
        frames: &mut [Vec<u8>],
        lengths: &mut Vec<usize>,
    ) -> anyhow::Result<()> {
        lengths.clear();
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            frames.iter_mut().map(|frame| [IoSliceMut::new(frame)]).collect();
        match recvmmsg(self.socket.as_raw_fd(), headers, &mut slices, MsgFlags::MSG_WAITFORONE, None) {
            Ok(received) => lengths.extend(received.map(|message| message.bytes)),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(error) => return Err(error).context("cannot receive frames"),
        }
        Ok(())
    }

    /// Limits the time that a receive waits.
    pub fn wait_at_most(&self, limit: Duration) -> anyhow::Result<()> {
        Ok(self.socket.set_read_timeout(Some(limit))?)
    }

    /// Lets the kernel stamp each frame in both directions.
    pub fn enable_timestamps(&self) -> anyhow::Result<()> {
        setsockopt(&self.socket, sockopt::ReceiveTimestampns, &true)
            .context("the kernel cannot write timestamps for received frames")
    }

    /// Returns the next frame and its time, in nanoseconds since 1970; `None` if no frame arrives in time.
    pub fn receive_with_timestamp<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> anyhow::Result<Option<(&'a [u8], u64)>> {
        let mut space = nix::cmsg_space!(TimeVal, TimeVal);
        let (length, time) = {
            let mut slice = [IoSliceMut::new(buffer)];
            let message =
                recvmsg::<()>(self.socket.as_raw_fd(), &mut slice, Some(&mut space), MsgFlags::empty());
            let message = match message {
                Ok(message) => message,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
                Err(error) => return Err(error).context("cannot receive frames"),
            };
            let time = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(time) => Some(time),
                _ => None,
            });
            (message.bytes, time.context("the kernel wrote no timestamp for a received frame")?)
        };
        let time = time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64;
        Ok(Some((&buffer[..length], time)))
    }
}

/// Allocates the message headers for receiving or sending one batch of frames.
pub fn message_headers() -> MultiHeaders<()> {
    MultiHeaders::preallocate(FRAMES_PER_BATCH, None)
}
