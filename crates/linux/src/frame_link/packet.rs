//! Sends and receives GeoNetworking frames on an interface through a packet socket.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{SockFilter, Socket};

use super::{ETHER_TYPE_GEONETWORKING, FrameDropReason, MacAddress};
use crate::packet_socket::{self, BPF_JUMP_IF_AT_LEAST, BPF_LOAD_WORD, BPF_RETURN, OFFSET_PACKET_TYPE};

/// Length of an Ethernet header in octets.
pub(super) const ETHERNET_HEADER_LENGTH: usize = 14;

/// Opens a socket that receives GeoNetworking frames on the interface with this index.
pub(super) fn open_packet_socket(index: u32) -> io::Result<Socket> {
    packet_socket::open_frame_socket(index, ETHER_TYPE_GEONETWORKING, &geonetworking_filter())
}

/// Returns a socket filter that accepts frames to this machine, to groups and to broadcast. It rejects frames
/// to other stations (`PACKET_OTHERHOST`, 3), which arrive on a promiscuous interface, and this station's own
/// frames (`PACKET_OUTGOING`, 4).
fn geonetworking_filter() -> [SockFilter; 4] {
    [
        SockFilter::new(BPF_LOAD_WORD, 0, 0, OFFSET_PACKET_TYPE),
        SockFilter::new(BPF_JUMP_IF_AT_LEAST, 1, 0, 3),
        SockFilter::new(BPF_RETURN, 0, 0, u32::MAX),
        SockFilter::new(BPF_RETURN, 0, 0, 0),
    ]
}

/// Returns the socket priority (SO_PRIORITY) for a DCC profile. EN 302 663 assigns the access categories
/// AC_VO to DP0, AC_VI to DP1, AC_BE to DP2 and AC_BK to DP3. The kernel's mac80211 takes 256 plus a user
/// priority of IEEE 802.1D; the priorities 7, 5, 3 and 1 give these categories.
pub(super) const fn socket_priority(profile: u8) -> u16 {
    match profile {
        0 => 256 + 7,
        1 => 256 + 5,
        2 => 256 + 3,
        _ => 256 + 1,
    }
}

/// Returns source, destination and the octets after the EtherType of an Ethernet frame.
pub(super) fn parse(frame: &[u8]) -> Result<(MacAddress, MacAddress, &[u8]), FrameDropReason> {
    let (header, payload) =
        frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>().ok_or(FrameDropReason::Malformed)?;
    let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, _, _] = header;
    // IEEE 802-2014 8.2.2: a source address cannot be a group address.
    if s0 & 1 != 0 {
        return Err(FrameDropReason::Malformed);
    }
    Ok(([s0, s1, s2, s3, s4, s5], [d0, d1, d2, d3, d4, d5], payload))
}

/// Returns the octets of the frames that the kernel has accepted and the interface has not sent (`SIOCOUTQ`),
/// including the kernel's overhead. Returns 0 if the kernel does not report them, or if the driver releases
/// frames before it sends them.
pub(super) fn unsent_octets(socket: &Socket) -> u32 {
    let mut octets: libc::c_int = 0;
    // SAFETY: the kernel writes one integer to the pointer's target.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) };
    if result == 0 { u32::try_from(octets).unwrap_or(0) } else { 0 }
}

/// Returns the number of frames that the kernel dropped since the last call, because the socket's buffer was
/// full.
pub(super) fn take_overruns(socket: &Socket) -> u64 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: `statistics` is writable for `length` octets, and any octets are a valid value of its type.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    };
    if result == 0 { u64::from(statistics.tp_drops) } else { 0 }
}
