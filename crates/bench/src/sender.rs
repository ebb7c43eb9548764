//! Sends the packets of the benchmark through a packet socket (packet(7)), which sends a batch with each
//! call.
//!
//! * One by one: each packet is a message, which goes to the interface without a queue in between.
//!   Measurements use this if each packet has another destination.
//! * In bursts: [`SEGMENTS_PER_BURST`] packets are one message, a super packet of UDP (`PACKET_VNET_HDR`,
//!   `VIRTIO_GSO_UDP_L4` of virtio's network header). The kernel cuts it before the interface, because the
//!   interface accepts no super packets. The interface gets a list of single packets, as from a network card,
//!   with their checksums in place (see `packet`). So source and sink take a smaller part of the time, and
//!   receivers handle several packets at once, as after a network card. A BPF program adds the outer header
//!   before the cut (`bpf/source.bpf.c`).
//!
//! Before a measurement, [`check_frames_arrive`] checks that the single packets arrive unchanged.

use std::io::{IoSlice, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use aya::Ebpf;
use aya::maps::Array;
use aya::programs::tc::{SchedClassifier, TcAttachType, qdisc_add_clsact};
use nix::errno::Errno;
use nix::sys::socket::sockopt::SndBufForce;
use nix::sys::socket::{MsgFlags, MultiHeaders, sendmmsg, setsockopt};
use nix::{setsockopt_impl, sockopt_impl};
use socket2::Socket;

use super::packet::{
    ETHERNET_HEADER_LENGTH, Frame, IPV6_HEADER_LENGTH, UDP_HEADER_LENGTH, pseudo_header_sum, set_ipv4_length,
};
use super::world::{NodeInterface, TestNetwork, run_in_node};
use carnet_testbed::frame_socket::packet_socket;
use carnet_testbed::process::{command_in_node, run_for_output};
use carnet_testbed::tools;

/// Maximum number of packets per system call.
pub const FRAMES_PER_BATCH: usize = 64;
/// Number of packets in a burst.
pub const SEGMENTS_PER_BURST: usize = 32;
/// Size of the socket's send buffer in octets.
const SOCKET_BUFFER_SIZE: usize = 16 << 20;
/// Length in octets of `struct virtio_net_hdr` of <linux/virtio_net.h>; the constants below are values of its
/// fields.
const VIRTIO_HEADER_LENGTH: usize = 10;
const VIRTIO_NEEDS_CHECKSUM: u8 = 1;
const VIRTIO_GSO_UDP_L4: u8 = 5;
/// Socket option `PACKET_VNET_HDR` of <linux/if_packet.h>.
const PACKET_VNET_HDR: libc::c_int = 15;
/// Offset of the checksum in a UDP header.
const UDP_CHECKSUM_OFFSET: usize = 6;

sockopt_impl!(
/// Option `PACKET_QDISC_BYPASS` of packet(7): packets skip the interface's queue.
QdiscBypass,
SetOnly,
libc::SOL_PACKET,
libc::PACKET_QDISC_BYPASS,
bool
);
sockopt_impl!(
/// Option `PACKET_VNET_HDR`: a virtio header precedes each packet.
VirtioHeader,
SetOnly,
libc::SOL_PACKET,
PACKET_VNET_HDR,
bool
);

/// Sends frames out of an interface.
pub struct PacketSource {
    socket: Socket,
    message_headers: MultiHeaders<()>,
    burst_sender: Option<BurstSender>,
}

/// State of a sender of bursts.
struct BurstSender {
    /// Virtio header and headers of a super packet, for each number of packets from one to
    /// [`SEGMENTS_PER_BURST`].
    frame_headers: Vec<Vec<u8>>,
    /// Payload of the frame, repeated [`SEGMENTS_PER_BURST`] times.
    segments_after_headers: Vec<u8>,
    _offloads: DisabledOffloads,
    _program: Ebpf,
}

impl std::fmt::Debug for PacketSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl PacketSource {
    /// Creates a sender of single packets at an interface.
    pub fn for_single_frames(
        network: &TestNetwork,
        interface: NodeInterface,
    ) -> anyhow::Result<PacketSource> {
        let socket =
            open_socket_at(network, interface, |socket| Ok(setsockopt(socket, QdiscBypass, &true)?))?;
        Ok(PacketSource {
            socket,
            message_headers: MultiHeaders::preallocate(FRAMES_PER_BATCH, None),
            burst_sender: None,
        })
    }

    /// Creates a sender of bursts at an interface. The frames must equal `frame` except for their numbers.
    pub fn for_bursts(
        network: &TestNetwork,
        interface: NodeInterface,
        frame: &Frame,
    ) -> anyhow::Result<PacketSource> {
        let socket =
            open_socket_at(network, interface, |socket| Ok(setsockopt(socket, VirtioHeader, &true)?))?;
        let node = network.node_name(interface.node);
        let program =
            run_in_node(&node, || attach_segment_program(interface.interface, frame.outer_header()))
                .with_context(|| {
                    format!("cannot attach the source's program to {} of {node}", interface.interface)
                })?;
        let bursts = BurstSender {
            frame_headers: (1..=SEGMENTS_PER_BURST).map(|count| burst_headers(frame, count)).collect(),
            segments_after_headers: Vec::new(),
            _offloads: DisabledOffloads::disable(&node, interface.interface)?,
            _program: program,
        };
        Ok(PacketSource {
            socket,
            message_headers: MultiHeaders::preallocate(FRAMES_PER_BATCH, None),
            burst_sender: Some(bursts),
        })
    }

    /// Sends `count` of the frames; continues with the first frame after the last one. Returns the number of
    /// frames that the interface accepted, at most [`FRAMES_PER_BATCH`].
    pub fn send_frames(&mut self, frames: &[Frame], count: usize) -> anyhow::Result<usize> {
        let (fd, count) = (self.socket.as_raw_fd(), count.min(FRAMES_PER_BATCH));
        let addresses: [Option<()>; FRAMES_PER_BATCH] = [None; FRAMES_PER_BATCH];
        let result = match &mut self.burst_sender {
            None => {
                let slices: [[IoSlice<'_>; 1]; FRAMES_PER_BATCH] =
                    std::array::from_fn(|i| [IoSlice::new(frames[i % frames.len()].octets())]);
                let slices = slices.iter().take(count);
                sendmmsg(fd, &mut self.message_headers, slices, addresses, [], MsgFlags::empty())
                    .map(|results| results.count())
            }
            Some(bursts) => {
                if let [frame] = frames {
                    bursts.set_repeated_frame(frame);
                }
                let messages = (0..count).step_by(SEGMENTS_PER_BURST).map(|start| {
                    let count = SEGMENTS_PER_BURST.min(count - start);
                    let front = IoSlice::new(&bursts.frame_headers[count - 1]);
                    match frames {
                        [frame] => {
                            let payload = &bursts.segments_after_headers[..count * frame.payload().len()];
                            vec![front, IoSlice::new(payload)]
                        }
                        _ => {
                            let frames = frames.iter().cycle().skip(start % frames.len()).take(count);
                            std::iter::once(front)
                                .chain(frames.map(|frame| IoSlice::new(frame.payload())))
                                .collect()
                        }
                    }
                });
                let messages: Vec<Vec<IoSlice<'_>>> = messages.collect();
                sendmmsg(fd, &mut self.message_headers, &messages, addresses, [], MsgFlags::empty())
                    .map(|results| (results.count() * SEGMENTS_PER_BURST).min(count))
            }
        };
        match result {
            Ok(sent) => Ok(sent),
            // The interface had no room, so it has accepted no frame.
            Err(Errno::ENOBUFS) => Ok(0),
            Err(error) => Err(anyhow!("sendmmsg: {error}")),
        }
    }
}

impl BurstSender {
    /// Sets [`Self::segments_after_headers`] to the payload of this frame.
    fn set_repeated_frame(&mut self, frame: &Frame) {
        let payload = frame.payload();
        if !self.segments_after_headers.starts_with(payload) {
            self.segments_after_headers = payload.repeat(SEGMENTS_PER_BURST);
        }
    }
}

/// Returns the headers of a super packet of `count` packets.
fn burst_headers(frame: &Frame, count: usize) -> Vec<u8> {
    let (mut headers, payload) = (frame.header_octets(), frame.payload());
    let length = UDP_HEADER_LENGTH + count * payload.len();
    let size = (length as u16).to_be_bytes();
    let start = headers.len() - UDP_HEADER_LENGTH;
    if is_ipv4(&headers) {
        set_ipv4_length(&mut headers[ETHERNET_HEADER_LENGTH..start], start - ETHERNET_HEADER_LENGTH + length);
    } else {
        headers[ETHERNET_HEADER_LENGTH + 4..ETHERNET_HEADER_LENGTH + 6].copy_from_slice(&size);
    }
    let (pseudo, datagram) = headers.split_at_mut(start);
    datagram[4..6].copy_from_slice(&size);
    // The checksum field has the sum of the pseudo-header. The kernel adds the rest of the sum, or leaves
    // that to the interface.
    datagram[UDP_CHECKSUM_OFFSET..UDP_CHECKSUM_OFFSET + 2]
        .copy_from_slice(&pseudo_header_sum(&pseudo[ETHERNET_HEADER_LENGTH..], length).to_be_bytes());
    let mut front = vec![VIRTIO_NEEDS_CHECKSUM, VIRTIO_GSO_UDP_L4];
    for value in [headers.len(), payload.len(), start, UDP_CHECKSUM_OFFSET] {
        front.extend((value as u16).to_ne_bytes());
    }
    debug_assert_eq!(front.len(), VIRTIO_HEADER_LENGTH);
    front.extend(headers);
    front
}

fn is_ipv4(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x08, 0x00])
}

/// Returns a frame without the octets that the kernel changes when it cuts a super packet: identification and
/// checksum of an IPv4 header.
fn without_changeable_octets(frame: &[u8]) -> Vec<u8> {
    let mut octets = frame.to_vec();
    if is_ipv4(frame) && frame.len() >= ETHERNET_HEADER_LENGTH + 12 {
        octets[ETHERNET_HEADER_LENGTH + 4..ETHERNET_HEADER_LENGTH + 6].fill(0);
        octets[ETHERNET_HEADER_LENGTH + 10..ETHERNET_HEADER_LENGTH + 12].fill(0);
    }
    octets
}

/// Attaches a BPF program to packets that leave by an interface. It makes room in front of each packet and
/// writes the outer header there, if one is given. Dropping the returned value detaches the program.
fn attach_segment_program(interface: &str, outer: Option<&[u8]>) -> anyhow::Result<Ebpf> {
    let mut ebpf = Ebpf::load(&carnet_bpf::SOURCE.unpack()).context("cannot load the source's programs")?;
    if let Some(header) = outer {
        let mut value = [0; IPV6_HEADER_LENGTH];
        value.copy_from_slice(header);
        let map = ebpf
            .map_mut("OUTER")
            .ok_or_else(|| anyhow!("bug: the BPF object of the packet source has no map OUTER"))?;
        Array::<_, [u8; IPV6_HEADER_LENGTH]>::try_from(map)?.set(0, value, 0)?;
    }
    let name = if outer.is_some() { "push" } else { "reserve" };
    let program = ebpf
        .program_mut(name)
        .ok_or_else(|| anyhow!("bug: the BPF object of the packet source has no program {name}"))?;
    let program: &mut SchedClassifier = program.try_into()?;
    program.load().with_context(|| format!("the kernel refuses program {name}"))?;
    // Kernels older than 6.6 need clsact, which may exist already.
    let _ = qdisc_add_clsact(interface);
    program.attach(interface, TcAttachType::Egress)?;
    Ok(ebpf)
}

/// Turns off super packets and checksums of an interface until it is dropped.
struct DisabledOffloads {
    node: String,
    interface: &'static str,
    /// Whether the kernel left checksums to the interface before the change.
    had_checksum_offload: bool,
}

impl DisabledOffloads {
    fn disable(node: &str, interface: &'static str) -> anyhow::Result<DisabledOffloads> {
        let shown =
            run_for_output(command_in_node(node, tools::path_of_program("ethtool")).args(["-k", interface]))?;
        let checksums = shown.lines().any(|line| line.trim() == "tx-checksumming: on");
        let offloads = DisabledOffloads { node: node.to_owned(), interface, had_checksum_offload: checksums };
        offloads.set_offloads(true, false)?;
        Ok(offloads)
    }

    fn set_offloads(&self, checksums: bool, segmentation: bool) -> anyhow::Result<()> {
        let [checksums, segmentation] = [checksums, segmentation].map(|on| if on { "on" } else { "off" });
        let arguments = ["-K", self.interface, "tx", checksums, "tx-udp-segmentation", segmentation];
        run_for_output(command_in_node(&self.node, tools::path_of_program("ethtool")).args(arguments))?;
        Ok(())
    }
}

impl Drop for DisabledOffloads {
    fn drop(&mut self) {
        if let Err(error) = self.set_offloads(self.had_checksum_offload, true) {
            carnet_testbed::console::print_step(&format!(
                "cannot restore the offloads of {}: {error:#}",
                self.interface
            ));
        }
    }
}

fn open_socket_at(
    network: &TestNetwork,
    place: NodeInterface,
    prepare: impl FnOnce(&Socket) -> anyhow::Result<()> + Send,
) -> anyhow::Result<Socket> {
    let node = network.node_name(place.node);
    run_in_node(&node, || {
        // With protocol 0 the socket receives no packets.
        let socket = packet_socket(place.interface, None)?;
        setsockopt(&socket, SndBufForce, &SOCKET_BUFFER_SIZE)?;
        prepare(&socket)?;
        Ok(socket)
    })
    .with_context(|| format!("cannot open a packet socket at {} of {node}", place.interface))
}

/// Fails unless the frames arrive at `there` one by one, unchanged. `there` is the peer of the sender's
/// interface.
pub fn check_frames_arrive(
    network: &TestNetwork,
    place: NodeInterface,
    there: NodeInterface,
    frame: &Frame,
) -> anyhow::Result<()> {
    let mut sender = PacketSource::for_bursts(network, place, frame)?;
    let node = network.node_name(there.node);
    // The socket receives packets of all protocols: those of the benchmark and perhaps others.
    let mut socket = run_in_node(&node, || packet_socket(there.interface, Some(libc::ETH_P_ALL as u16)))
        .with_context(|| format!("cannot open a receiving socket at {} of {node}", there.interface))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    // Send one complete burst and a part of another.
    let frames: Vec<Frame> = (0..SEGMENTS_PER_BURST + 5)
        .map(|number| {
            let mut frame = frame.clone();
            frame.set_packet_number(number as u32);
            frame
        })
        .collect();
    let sent = sender.send_frames(&frames, frames.len())?;
    ensure!(sent == frames.len(), "the packet source sent {sent} packets, expected {}", frames.len());
    let mut buffer = vec![0; 1 << 16];
    for (number, frame) in frames.iter().enumerate() {
        loop {
            let length =
                socket.read(&mut buffer).with_context(|| format!("packet {number} did not arrive"))?;
            let octets = &buffer[..length];
            if without_changeable_octets(octets) == without_changeable_octets(frame.octets()) {
                break;
            }
            // Skip a frame of another sender. A frame of the source must have the expected octets.
            let headers = frame.header_octets();
            ensure!(
                octets.get(..2 * 6) != Some(&headers[..2 * 6]) || length < frame.octets().len(),
                "packet {number} arrives as {} octets {:02x?}, expected {} octets {:02x?}",
                length,
                &octets[..octets.len().min(128)],
                frame.octets().len(),
                &frame.octets()[..frame.octets().len().min(128)]
            );
        }
    }
    Ok(())
}
