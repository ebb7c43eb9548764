//! Frames on an interface.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, SockFilter, Socket, Type};

use super::{ETHER_TYPE, FrameDrop, MacAddress};

/// Octets of an Ethernet header.
pub(super) const HEADER: usize = 14;

/// A socket that hears frames of GeoNetworking on the interface with this index.
pub(super) fn open(index: u32) -> io::Result<Socket> {
    // Protocol 0: it hears nothing before it is bound, by when the filter is there.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(&filter())?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: ETHER_TYPE.to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `address` is a live `sockaddr_ll`, and the length is its own.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Passes frames to this machine, to groups and to all. What goes to others (`PACKET_OTHERHOST`, 3) is heard
/// where somebody has made the interface promiscuous; what this machine sends (4) the kernel shows only to
/// sockets of all EtherTypes, so the second line of defence is free.
fn filter() -> [SockFilter; 4] {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    [
        SockFilter::new(LOAD_WORD, 0, 0, PACKET_TYPE),
        SockFilter::new(AT_LEAST, 1, 0, 3),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// Source, destination and what stands behind the EtherType.
pub(super) fn parse(frame: &[u8]) -> Result<(MacAddress, MacAddress, &[u8]), FrameDrop> {
    let (header, payload) = frame.split_first_chunk::<HEADER>().ok_or(FrameDrop::Malformed)?;
    let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, _, _] = header;
    // IEEE 802-2014 8.2.2: a source is no group.
    if s0 & 1 != 0 {
        return Err(FrameDrop::Malformed);
    }
    Ok(([s0, s1, s2, s3, s4, s5], [d0, d1, d2, d3, d4, d5], payload))
}

/// Frames that the kernel dropped for lack of room since this was last asked.
pub(super) fn take_overruns(socket: &Socket) -> u64 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: `statistics` is writable for `length` octets, and any octets are a valid value of it.
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
