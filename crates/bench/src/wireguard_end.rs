//! A plain WireGuard end: the thinnest program on the library `sanstun`, with which the benchmark compares
//! encrypted tunnels.
//!
//! The library has no command of its own. So this program joins it with carnet's TUN device, which has bursts
//! of TCP and UDP. The UDP socket has bursts too (`UDP_SEGMENT`, `UDP_GRO`). A packet from the device is
//! encrypted directly into the burst that the socket sends. A datagram is decrypted directly into the buffer
//! from which the device writes it. The end has one peer, and sends it all packets.
//!
//! Left out: cryptokey routing, roaming, several peers, cookies under load. Each private key derives from a
//! number in the arguments, so the end is no program for real traffic.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use carnet_linux::{TunDevice, TunnelReader, TunnelWriter};
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_wireguard::datagram_length;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use sanstun::{Committed, Event, Interface, Received, ReceivedMessage, Tunnel, TunnelConfig};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use zeroize::Zeroizing;

/// Maximum number of packets or datagrams that the end handles before it turns to the other direction.
const MAX_PACKETS_PER_TURN: usize = 256;
/// Maximum number of datagrams in a burst, as carnet's own sockets use it.
const MAX_DATAGRAMS_PER_BURST: usize = 64;
/// Maximum length of a burst in octets.
const MAX_BURST_LENGTH: usize = 65_535 - 48;
/// Size of the socket's buffer in octets, for each direction.
const SOCKET_BUFFER_SIZE: usize = 4 << 20;
/// Interval of keepalives, so that the tunnel does not expire between two measurements.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(25);
/// Text that the end prints when its device and its socket are open.
pub const READY_MESSAGE: &str = "the WireGuard end is ready";

/// Arguments of `wireguard-end`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Args {
    /// Local address and UDP port.
    #[arg(long, value_name = "ADDRESS")]
    local: SocketAddr,
    /// Address and UDP port of the peer.
    #[arg(long, value_name = "ADDRESS")]
    remote: SocketAddr,
    /// Number from which the own key derives.
    #[arg(long, value_name = "NUMBER")]
    key: u8,
    /// Number from which the peer's key derives. The end with the larger number begins the handshake.
    #[arg(long, value_name = "NUMBER")]
    peer_key: u8,
}

/// Runs the end until its device is gone or its tunnel expires.
pub fn run_wireguard_end(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut end = WireguardEnd::open(args)?;
        println!("{READY_MESSAGE}");
        end.run().await
    })
}

struct WireguardEnd {
    interface: Interface,
    tunnel: Tunnel,
    socket: UdpSocket,
    remote: SocketAddr,
    device: TunDevice,
    reader: TunnelReader,
    writer: TunnelWriter,
    packet: PacketBuffer,
    /// Datagrams that leave with the next system call, and the length of each but the last.
    burst: Vec<u8>,
    burst_length: usize,
    segment_length: usize,
    datagrams_in_burst: usize,
    received: Vec<u8>,
    control: Vec<u8>,
}

fn interface_of(key: u8, now: Instant) -> anyhow::Result<Interface> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(Interface::new(Zeroizing::new([key; 32]), now, unix))
}

impl WireguardEnd {
    fn open(args: &Args) -> anyhow::Result<WireguardEnd> {
        let now = Instant::now();
        let mut interface = interface_of(args.key, now)?;
        let peer = interface_of(args.peer_key, now)?.static_public();
        let config = TunnelConfig::default().with_persistent_keepalive(KEEPALIVE_INTERVAL);
        let mut tunnel = interface.new_tunnel(peer, config, now).context("the peer's key is invalid")?;
        let socket = Socket::new(Domain::for_address(args.local), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_SIZE)?;
        setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER_SIZE)?;
        socket.bind(&args.local.into())?;
        socket.connect(&args.remote.into())?;
        let device = TunDevice::create_with_one_queue()?;
        let initiation = (args.key > args.peer_key).then(|| tunnel.initiate_handshake(now)).flatten();
        let end = WireguardEnd {
            interface,
            tunnel,
            socket: UdpSocket::from_std(socket.into())?,
            remote: args.remote,
            reader: TunnelReader::new(device.clone()),
            writer: TunnelWriter::new(device.clone()),
            device,
            packet: PacketBuffer::new(),
            burst: vec![0; MAX_BURST_LENGTH],
            burst_length: 0,
            segment_length: 0,
            datagrams_in_burst: 0,
            received: vec![0; 1 << 16],
            control: nix::cmsg_space!(i32),
        };
        if let Some(initiation) = initiation {
            end.send_datagrams(&initiation, None);
        }
        Ok(end)
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        loop {
            let due = self.tunnel.poll_timeout().unwrap_or_else(|| Instant::now() + KEEPALIVE_INTERVAL);
            tokio::select! {
                ready = self.device.readable(None) => ready.context("the TUN device is gone")?,
                ready = self.socket.readable() => ready?,
                () = tokio::time::sleep_until(due.into()) => {}
            }
            let now = Instant::now();
            let has_more = self.encrypt_packets(now) | self.decrypt_datagrams(now);
            self.handle_timers(now)?;
            if has_more {
                // Let the runtime ask the kernel which of the two is ready.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Encrypts packets from the device. Returns whether the device may have more.
    fn encrypt_packets(&mut self, now: Instant) -> bool {
        let mut count = 0;
        while (count < MAX_PACKETS_PER_TURN || self.reader.is_inside_burst())
            && self.reader.try_read(&mut self.packet).is_ok()
        {
            count += 1;
            let length = datagram_length(self.packet.as_slice().len());
            let fits = length <= self.segment_length
                && self.datagrams_in_burst < MAX_DATAGRAMS_PER_BURST
                && self.burst_length + length <= MAX_BURST_LENGTH;
            if !fits {
                self.send_burst();
                self.segment_length = length;
            }
            let Ok(pending) = self.tunnel.begin_encapsulate(now) else { continue };
            let room = &mut self.burst[self.burst_length..self.burst_length + length];
            if pending.encrypt(self.packet.as_slice(), room).is_err() {
                continue;
            }
            self.burst_length += length;
            self.datagrams_in_burst += 1;
            if length < self.segment_length {
                self.send_burst();
            }
        }
        self.send_burst();
        count >= MAX_PACKETS_PER_TURN
    }

    fn send_burst(&mut self) {
        if self.datagrams_in_burst > 0 {
            let segment = (self.datagrams_in_burst > 1).then_some(self.segment_length as u16);
            self.send_datagrams(&self.burst[..self.burst_length], segment);
        }
        (self.burst_length, self.segment_length, self.datagrams_in_burst) = (0, 0, 0);
    }

    /// Sends one datagram, or with `segment` several of this length. Drops what the socket has no room for.
    fn send_datagrams(&self, octets: &[u8], segment: Option<u16>) {
        let sizes = segment.as_ref().map(ControlMessage::UdpGsoSegments);
        let _ = sendmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(octets)],
            sizes.as_slice(),
            MsgFlags::MSG_DONTWAIT,
            None,
        );
    }

    /// Decrypts datagrams from the socket. Returns whether the socket may have more.
    fn decrypt_datagrams(&mut self, now: Instant) -> bool {
        let mut received = std::mem::take(&mut self.received);
        let mut count = 0;
        while count < MAX_PACKETS_PER_TURN {
            let control = &mut self.control;
            let read = self.socket.try_io(Interest::READABLE, || {
                let mut parts = [IoSliceMut::new(&mut received)];
                let flags = MsgFlags::MSG_DONTWAIT;
                let message =
                    recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, Some(control), flags)?;
                let segment = message.cmsgs()?.find_map(|control| match control {
                    ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
                    _ => None,
                });
                Ok((message.bytes, segment.filter(|size| *size > 0)))
            });
            let Ok((length, segment)) = read else { break };
            for datagram in received[..length].chunks(segment.unwrap_or(length).max(1)) {
                self.decrypt_datagram(now, datagram);
                count += 1;
            }
        }
        self.writer.flush();
        self.received = received;
        count >= MAX_PACKETS_PER_TURN
    }

    fn decrypt_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let Ok(Received::Message(message)) = self.interface.receive(self.remote, datagram, now) else {
            return;
        };
        match message {
            ReceivedMessage::TransportData(message) => {
                let Ok(pending) = self.tunnel.begin_decapsulate(message, now) else { return };
                let decrypted = pending.decrypt(datagram, self.packet.empty_space());
                if let Ok(Committed::Data { buffer, len }) = self.tunnel.commit_decapsulate(decrypted, now) {
                    let length = packet_length(&buffer[..len]);
                    self.packet.set_filled_length(length);
                    self.writer.write_in_place(&mut self.packet);
                }
            }
            ReceivedMessage::HandshakeInitiation(initiation) => {
                if let Ok(response) = self.tunnel.handle_handshake_initiation(initiation, now) {
                    self.send_datagrams(&response, None);
                }
            }
            ReceivedMessage::HandshakeResponse(response) => {
                if let Ok(keepalive) = self.tunnel.handle_handshake_response(response, now) {
                    self.send_datagrams(&keepalive, None);
                }
            }
            ReceivedMessage::CookieReply(_) => {}
        }
    }

    fn handle_timers(&mut self, now: Instant) -> anyhow::Result<()> {
        if self.tunnel.poll_timeout().is_some_and(|due| due <= now) {
            self.tunnel.handle_timeout(now);
        }
        while let Some(event) = self.tunnel.poll_event() {
            match event {
                Event::SendHandshakeInitiation(datagram) | Event::SendKeepalive(datagram) => {
                    self.send_datagrams(&datagram, None)
                }
                Event::Established { .. } => println!("the session is established"),
                Event::ConnectionExpired => bail!("the WireGuard tunnel has expired"),
            }
        }
        Ok(())
    }
}

/// Returns the length of an IP packet by its header, without the padding; 0 if the octets are no IP packet.
fn packet_length(payload: &[u8]) -> usize {
    let length = match payload {
        [first, _, high, low, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*high, *low])),
        [first, _, _, _, high, low, ..] if first >> 4 == 6 => {
            40 + usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => 0,
    };
    if length <= payload.len() { length } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_no_part_of_a_packet() {
        let mut packet = vec![0; 64];
        (packet[0], packet[5]) = (0x60, 7);
        assert_eq!(packet_length(&packet), 47);
        (packet[0], packet[3]) = (0x45, 30);
        assert_eq!(packet_length(&packet), 30);
        for (version, high) in [(0x60, 9), (0x50, 0)] {
            (packet[0], packet[4]) = (version, high);
            assert_eq!(packet_length(&packet), 0, "{version:x}");
        }
        assert_eq!(packet_length(&[]), 0);
    }
}
