//! Uses veth pairs as radios. The medium's ends of the pairs are in a separate namespace, with one packet
//! socket for all.

use std::collections::HashMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::Context;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, sendto, setsockopt, socket,
};
use nix::sys::time::TimeSpec;

use super::{
    FRAMES_PER_BATCH, FrameTransport, MAX_FRAME_LENGTH, MEDIUM_NAMESPACE, RECEIVE_BUFFER_SIZE, port_name,
};
use crate::clock;
use crate::medium::channel::{Channel, ChannelOutput};

/// The socket in the medium's namespace, with the addresses of its ports and the radios to which they belong.
#[derive(Debug)]
pub(super) struct VethRadios {
    socket: OwnedFd,
    /// Address of each port, by number of the radio.
    port_addresses: Vec<LinkAddr>,
    /// Number of the radio, by index of the interface.
    radios_by_index: HashMap<usize, usize>,
}

impl VethRadios {
    /// Moves this thread into the namespace of the medium, and opens the socket there.
    pub(super) fn open_ports(count: usize) -> anyhow::Result<VethRadios> {
        let path = format!("/run/netns/{MEDIUM_NAMESPACE}");
        let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        setns(&namespace, CloneFlags::CLONE_NEWNET).context("cannot enter the namespace of the medium")?;
        let mut found = HashMap::new();
        for interface in nix::ifaddrs::getifaddrs()? {
            if let Some(address) = interface.address.as_ref().and_then(|a| a.as_link_addr()) {
                found.insert(interface.interface_name.clone(), *address);
            }
        }
        let port = |n| found.get(&port_name(n)).copied().with_context(|| format!("radio {n} has no port"));
        let ports = (0..count).map(port).collect::<anyhow::Result<Vec<LinkAddr>>>()?;
        let radios = ports.iter().enumerate().map(|(n, port)| (port.ifindex(), n)).collect();
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )
        .context("cannot open a packet socket for the medium")?;
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        // In a user namespace the kernel refuses to exceed its limit for socket buffers (`SO_RCVBUFFORCE`).
        // Then ask for the size within the limit.
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_SIZE).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER_SIZE);
        }
        Ok(VethRadios { socket, port_addresses: ports, radios_by_index: radios })
    }
}

impl FrameTransport for VethRadios {
    fn receive(&mut self, channel: &mut Channel) -> anyhow::Result<u64> {
        let mut buffer = [0_u8; MAX_FRAME_LENGTH];
        let mut control = nix::cmsg_space!(TimeSpec);
        // Difference from the kernel's wall clock to the monotonic clock.
        let shift = clock::wall_to_monotonic_offset();
        for _ in 0..FRAMES_PER_BATCH {
            let mut iov = [IoSliceMut::new(&mut buffer)];
            let message = match recvmsg::<LinkAddr>(
                self.socket.as_raw_fd(),
                &mut iov,
                Some(&mut control),
                MsgFlags::empty(),
            ) {
                Ok(message) => message,
                Err(Errno::EAGAIN) => break,
                // An interface is gone, or a signal interrupted the call.
                Err(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV | Errno::EINTR) => continue,
                Err(error) => return Err(error).context("the medium cannot receive"),
            };
            let at = clock::arrival_time(&message, shift);
            let radio = message.address.and_then(|from| self.radios_by_index.get(&from.ifindex()).copied());
            let length = message.bytes;
            if let (Some(radio), true) = (radio, length >= 14) {
                channel.enqueue(at, radio, Arc::from(&buffer[..length]));
            }
        }
        Ok(0)
    }

    fn execute_output(&mut self, output: &ChannelOutput) -> anyhow::Result<Option<bool>> {
        let ChannelOutput::Received { radio, frame, .. } = output else { return Ok(None) };
        match sendto(self.socket.as_raw_fd(), frame, &self.port_addresses[*radio], MsgFlags::empty()) {
            Ok(_) => Ok(Some(true)),
            // The frame is lost: the interface is down or removed, its send queue is full, or the frame is
            // too long.
            Err(
                Errno::ENETDOWN
                | Errno::ENXIO
                | Errno::ENODEV
                | Errno::ENOBUFS
                | Errno::EAGAIN
                | Errno::EINTR
                | Errno::EMSGSIZE,
            ) => Ok(Some(false)),
            Err(error) => Err(error).context("the medium cannot deliver a frame"),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
