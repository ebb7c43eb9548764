//! Tests how bursts are cut and merged: unit tests, properties, and a check by tshark of lengths, sequence
//! numbers and checksums.

use std::cell::RefCell;
use std::io;
use std::process::Command;

use carnet_wire::{checksum, ipv4};
use proptest::prelude::*;

use super::coalescing::{BurstKinds, FrameSink, PacketCoalescer};
use super::reader::{ReadOutcome, check_packet_checksum};
use super::segmentation::{BurstSegments, put_number};
use super::virtio::{BurstProperties, Transport, UnfinishedChecksum, VIRTIO_HEADER_LENGTH, VirtioHeader};
use super::writer::{BurstDevice, DeviceOutput};

const TCP_FLAG_ACK: u8 = 0x10;
const TCP_FLAG_PSH: u8 = 0x08;
const TCP_FLAG_FIN: u8 = 0x01;
const TCP_FLAG_CWR: u8 = 0x80;

/// A packet of a flow, with a correct checksum.
#[derive(Debug, Clone)]
struct FlowPacket {
    transport: Transport,
    flow_number: u8,
    hop_limit: u8,
    sequence: u32,
    flags: u8,
    timestamp: bool,
    payload: Vec<u8>,
}

impl FlowPacket {
    fn tcp_packet(sequence: u32, payload: Vec<u8>) -> FlowPacket {
        FlowPacket {
            transport: Transport::Tcp,
            flow_number: 1,
            hop_limit: 63,
            sequence,
            flags: TCP_FLAG_ACK,
            timestamp: true,
            payload,
        }
    }

    fn udp_packet(payload: Vec<u8>) -> FlowPacket {
        FlowPacket { transport: Transport::Udp, ..FlowPacket::tcp_packet(0, payload) }
    }

    /// Returns the packet without its checksum.
    fn without_checksum(&self) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0x12, 0x34, 0, 0, self.transport.protocol(), self.hop_limit];
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0xc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        packet.extend([0x40, self.flow_number, 0x10, 0x01]);
        match self.transport {
            Transport::Udp => packet.extend([0; 4]),
            Transport::Tcp => {
                packet.extend(self.sequence.to_be_bytes());
                packet.extend([9, 8, 7, 6]);
                packet.extend([if self.timestamp { 8 << 4 } else { 5 << 4 }, self.flags, 1, 0, 0, 0, 0, 0]);
                if self.timestamp {
                    packet.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
                }
            }
        }
        packet.extend(&self.payload);
        let length = packet.len() as u16 - 40;
        put_number(&mut packet, 4, length);
        if self.transport == Transport::Udp {
            put_number(&mut packet, 44, length);
        }
        packet
    }

    /// Returns the packet with its checksum, as a sender without checksum offload sends it.
    fn with_checksum(&self) -> Vec<u8> {
        let mut packet = self.without_checksum();
        let address = |from: usize| <[u8; 16]>::try_from(&packet[from..from + 16]).expect("an address");
        let (source, destination) = (address(8).into(), address(24).into());
        let protocol = self.transport.protocol();
        let sum = match checksum::upper_layer_checksum(source, destination, protocol, &packet[40..]) {
            0 => 0xffff,
            sum => sum,
        };
        put_number(&mut packet, 40 + self.transport.checksum_offset(), sum);
        packet
    }

    /// Returns the packet as a burst in the kernel's format.
    fn as_burst(&self, segment: u16) -> (VirtioHeader, Vec<u8>) {
        let mut packet = self.without_checksum();
        let length = packet.len() - 40;
        let sum = checksum::ones_complement_add(
            checksum::ones_complement_sum(&packet[8..40]),
            checksum::sum_of_protocol_and_length(self.transport.protocol(), length),
        );
        let offset = self.transport.checksum_offset();
        put_number(&mut packet, 40 + offset, sum);
        let header = VirtioHeader {
            unfinished_checksum: Some(UnfinishedChecksum {
                checksum_start: 40,
                checksum_offset: offset as u16,
            }),
            burst_properties: Some(BurstProperties { transport: self.transport, segment_size: segment }),
            headers_length: 0,
        };
        (header, packet)
    }
}

fn segment_burst(header: &VirtioHeader, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut buffer = [0; 70_000];
    let mut segments = BurstSegments::new(header, packet).expect("a burst");
    let mut cut = Vec::new();
    while let Some(length) = segments.next_segment(packet, &mut buffer) {
        cut.push(buffer[..length].to_vec());
    }
    assert!(segments.has_returned_all_segments(packet));
    cut
}

/// Collects the frames that a coalescer writes, and splits them into packets again.
#[derive(Default)]
struct CollectedFrames {
    frame_count: usize,
    packets: Vec<Vec<u8>>,
}

impl FrameSink for CollectedFrames {
    fn receive_frame(&mut self, header: &VirtioHeader, frame: &[u8]) {
        let read = frame.first_chunk().map(VirtioHeader::parse).expect("a header").expect("a known burst");
        assert_eq!(
            (read.unfinished_checksum, read.burst_properties),
            (header.unfinished_checksum, header.burst_properties)
        );
        assert!(frame.len() <= VIRTIO_HEADER_LENGTH + 65_535);
        self.frame_count += 1;
        match header.burst_properties {
            Some(_) => self.packets.extend(segment_burst(header, &frame[VIRTIO_HEADER_LENGTH..])),
            None => self.packets.push(frame[VIRTIO_HEADER_LENGTH..].to_vec()),
        }
    }
}

const TCP_AND_UDP: BurstKinds = BurstKinds { accepts_tcp: true, accepts_udp: true };

/// Returns the frames that a coalescer writes for these packets.
fn coalesce_packets(packets: &[Vec<u8>]) -> CollectedFrames {
    let (mut coalescer, mut out) = (PacketCoalescer::new(TCP_AND_UDP), CollectedFrames::default());
    for packet in packets {
        if !coalescer.push_packet(packet, &mut out) {
            out.frame_count += 1;
            out.packets.push(packet.clone());
        }
    }
    coalescer.flush_bursts(&mut out);
    out
}

/// An IPv4 burst has the lengths, the Identifications and both checksums of single packets after it is cut.
#[test]
fn ipv4_gso_packet_is_segmented_with_valid_headers() {
    let whole =
        FlowPacket { timestamp: false, ..FlowPacket::tcp_packet(1000, vec![7; 2500]) }.without_checksum();
    let mut packet = vec![0x45, 0xb8, 0, 0, 0xff, 0xff, 0x40, 0, 63, 6, 0, 0, 10, 42, 7, 5, 192, 0, 2, 1];
    packet.extend_from_slice(&whole[40..]);
    let length = packet.len() as u16;
    put_number(&mut packet, 2, length);
    ipv4::set_checksum(&mut packet);
    let pseudo = |packet: &[u8], length: u16| {
        checksum::ones_complement_add(
            checksum::ones_complement_sum(&packet[12..20]),
            checksum::sum_of_protocol_and_length(6, length.into()),
        )
    };
    let sum = pseudo(&packet, length - 20);
    put_number(&mut packet, 36, sum);
    let header = VirtioHeader {
        unfinished_checksum: Some(UnfinishedChecksum { checksum_start: 20, checksum_offset: 16 }),
        burst_properties: Some(BurstProperties { transport: Transport::Tcp, segment_size: 1000 }),
        headers_length: 40,
    };
    let mut segments = BurstSegments::new(&header, &packet).expect("an IPv4 burst");
    let (mut payload, mut buffer) = (0, [0; 2000]);
    for (number, expected) in [(0xffff, 1040), (0, 1040), (1, 540)] {
        let length = segments.next_segment(&packet, &mut buffer).expect("a segment");
        let segment = &buffer[..length];
        assert_eq!((length, u16::from_be_bytes([segment[4], segment[5]])), (expected, number));
        assert_eq!(u16::from_be_bytes([segment[2], segment[3]]), length as u16);
        assert_eq!(checksum::ones_complement_sum(&segment[..20]), 0xffff);
        let sum = pseudo(segment, length as u16 - 20);
        assert_eq!(checksum::ones_complement_add(sum, checksum::ones_complement_sum(&segment[20..])), 0xffff);
        assert_eq!(u32::from_be_bytes([segment[24], segment[25], segment[26], segment[27]]), 1000 + payload);
        payload += length as u32 - 40;
    }
    assert_eq!(segments.next_segment(&packet, &mut buffer), None);
}

#[test]
fn tcp_segments_have_own_sequence_numbers_and_flags() {
    let payload: Vec<u8> = (0..2500).map(|n| n as u8).collect();
    let whole = FlowPacket {
        flags: TCP_FLAG_ACK | TCP_FLAG_PSH | TCP_FLAG_FIN | TCP_FLAG_CWR,
        ..FlowPacket::tcp_packet(u32::MAX - 500, payload.clone())
    };
    let (header, packet) = whole.as_burst(1000);
    let expected: Vec<Vec<u8>> = [
        (0, 1000, TCP_FLAG_ACK | TCP_FLAG_CWR),
        (1000, 2000, TCP_FLAG_ACK),
        (2000, 2500, TCP_FLAG_ACK | TCP_FLAG_PSH | TCP_FLAG_FIN),
    ]
    .into_iter()
    .map(|(from, to, flags)| {
        let sequence = (u32::MAX - 500).wrapping_add(from as u32);
        FlowPacket { flags, ..FlowPacket::tcp_packet(sequence, payload[from..to].to_vec()) }.with_checksum()
    })
    .collect();
    assert_eq!(segment_burst(&header, &packet), expected);

    let (header, packet) = FlowPacket::udp_packet(payload.clone()).as_burst(1000);
    let expected: Vec<Vec<u8>> =
        payload.chunks(1000).map(|part| FlowPacket::udp_packet(part.to_vec()).with_checksum()).collect();
    assert_eq!(segment_burst(&header, &packet), expected);
}

#[test]
fn tshark_finds_no_error_in_segmented_packets() {
    let payload: Vec<u8> = (0..9000u32).map(|n| (n * 7) as u8).collect();
    let (tcp, burst) =
        FlowPacket { flags: TCP_FLAG_ACK | TCP_FLAG_PSH, ..FlowPacket::tcp_packet(100, payload.clone()) }
            .as_burst(1388);
    let mut packets = segment_burst(&tcp, &burst);
    let (udp, burst) = FlowPacket::udp_packet(payload).as_burst(999);
    packets.extend(segment_burst(&udp, &burst));
    let mut capture = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    // The link type 229 is LINKTYPE_IPV6.
    capture.extend(229u32.to_le_bytes());
    for packet in &packets {
        let length = (packet.len() as u32).to_le_bytes();
        capture.extend([0; 8].into_iter().chain(length).chain(length).chain(packet.iter().copied()));
    }
    let file = std::env::temp_dir().join(format!("carnet-segments-{}.pcap", std::process::id()));
    std::fs::write(&file, capture).expect("a file");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&file).args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    command.args(["-o", "tcp.relative_sequence_numbers:FALSE", "-T", "fields", "-E", "separator=,"]);
    for field in
        ["tcp.checksum.status", "tcp.seq", "tcp.len", "tcp.flags", "udp.checksum.status", "udp.length"]
    {
        command.args(["-e", field]);
    }
    let output = command.output();
    std::fs::remove_file(&file).expect("a file");
    let Ok(output) = output else {
        println!("\nSKIPPED: no tshark");
        return;
    };
    let text = String::from_utf8(output.stdout).expect("text");
    // tshark shows 1 for a good checksum.
    let mut expected: Vec<String> = (0..7)
        .map(|n| match n {
            6 => format!("1,{},672,0x0018,,", 100 + n * 1388),
            _ => format!("1,{},1388,0x0010,,", 100 + n * 1388),
        })
        .collect();
    expected.extend((0..10).map(|n| format!(",,,,1,{}", if n == 9 { 17 } else { 1007 })));
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ffff() {
    let zero = (0..=u16::MAX)
        .map(|word| FlowPacket::udp_packet(word.to_be_bytes().to_vec()))
        .find(|packet| packet.with_checksum()[46..48] == [0xff, 0xff])
        .expect("one sum of all that are possible");
    let (header, mut packet) = zero.as_burst(2);
    assert_eq!(segment_burst(&header, &packet), [zero.with_checksum()]);
    assert!(header.unfinished_checksum.expect("a checksum").finish_checksum(&mut packet));
    assert_eq!(packet, zero.with_checksum());
}

#[test]
fn packets_of_one_tcp_stream_are_coalesced() {
    let stream = |flow, count: u32| -> Vec<Vec<u8>> {
        (0..count)
            .map(|n| {
                FlowPacket { flow_number: flow, ..FlowPacket::tcp_packet(n * 1388, vec![n as u8; 1388]) }
                    .with_checksum()
            })
            .collect()
    };
    let one = stream(1, 40);
    let out = coalesce_packets(&one);
    assert_eq!((out.frame_count, &out.packets), (1, &one));
    // A burst of 65,535 octets has room for 47 of these packets.
    assert_eq!(coalesce_packets(&stream(1, 47)).frame_count, 1);
    assert_eq!(coalesce_packets(&stream(1, 48)).frame_count, 2);

    let two: Vec<Vec<u8>> = one.iter().cloned().zip(stream(2, 40)).flat_map(|(a, b)| [a, b]).collect();
    let out = coalesce_packets(&two);
    assert_eq!(out.frame_count, 2);
    assert_eq!(out.packets, [one, stream(2, 40)].concat());

    let datagrams: Vec<Vec<u8>> =
        (0..64).map(|n| FlowPacket::udp_packet(vec![n; 16]).with_checksum()).collect();
    let out = coalesce_packets(&datagrams);
    assert_eq!((out.frame_count, out.packets), (1, datagrams));
}

#[test]
fn packets_of_different_streams_are_not_coalesced() {
    let base = FlowPacket::tcp_packet(0, vec![1; 100]);
    let next = FlowPacket::tcp_packet(100, vec![2; 100]);
    let apart = [
        FlowPacket { sequence: 101, ..next.clone() },
        FlowPacket { hop_limit: 62, ..next.clone() },
        FlowPacket { flow_number: 9, ..next.clone() },
        FlowPacket { timestamp: false, ..next.clone() },
        FlowPacket { flags: TCP_FLAG_ACK | TCP_FLAG_FIN, ..next.clone() },
        FlowPacket { payload: vec![2; 101], ..next.clone() },
        FlowPacket { payload: vec![], ..next.clone() },
    ];
    assert_eq!(coalesce_packets(&[base.with_checksum(), next.with_checksum()]).frame_count, 1);
    for packet in apart {
        let packets = [base.with_checksum(), packet.with_checksum()];
        let out = coalesce_packets(&packets);
        assert_eq!((out.frame_count, &out.packets[..]), (2, &packets[..]), "{packet:?}");
    }
    // The coalescer does not merge packets that differ in traffic class, flow label, acknowledgement, window,
    // urgent pointer, or an option.
    for (offset, value) in [(0, 0x61), (1, 1), (3, 1), (51, 1), (55, 1), (59, 1), (71, 1)] {
        let mut other = next.with_checksum();
        other[offset] = value;
        let mut expected = other.clone();
        let sum = checksum::ones_complement_add(
            checksum::ones_complement_sum(&other[40..]),
            checksum::ones_complement_sum(&other[8..40]),
        );
        let sum =
            checksum::ones_complement_add(sum, checksum::sum_of_protocol_and_length(6, other.len() - 40));
        let old = u16::from_be_bytes([other[56], other[57]]);
        put_number(&mut expected, 56, checksum::ones_complement_add(old, !sum));
        let packets = [base.with_checksum(), expected];
        assert_eq!(coalesce_packets(&packets).frame_count, 2, "{offset}");
    }
    // After PSH, and after a shorter packet, a new burst begins.
    for second in [
        FlowPacket { flags: TCP_FLAG_ACK | TCP_FLAG_PSH, ..next.clone() },
        FlowPacket { payload: vec![2; 99], ..next.clone() },
    ] {
        let end = 100 + second.payload.len() as u32;
        let packets = [
            base.clone(),
            second,
            FlowPacket::tcp_packet(end, vec![3; 50]),
            FlowPacket::tcp_packet(end + 50, vec![3; 50]),
        ];
        let packets = packets.map(|packet| packet.with_checksum());
        let out = coalesce_packets(&packets);
        assert_eq!((out.frame_count, &out.packets[..]), (2, &packets[..]));
    }
}

#[test]
fn coalescing_never_corrects_a_wrong_checksum() {
    for damaged in 0..4 {
        for packet in [FlowPacket::udp_packet(vec![7; 64]), FlowPacket::tcp_packet(0, vec![7; 64])] {
            let mut packets: Vec<Vec<u8>> =
                (0..4).map(|n| FlowPacket { sequence: n * 64, ..packet.clone() }.with_checksum()).collect();
            packets[damaged][90] ^= 1;
            let out = coalesce_packets(&packets);
            assert_eq!(out.packets, packets, "{damaged}");
            assert!(out.frame_count < 4, "{damaged}");
        }
    }
    // The coalescer does not merge UDP datagrams without a checksum, which some tunnels send (RFC 6935).
    let packets = [
        FlowPacket::udp_packet(vec![7; 64]).without_checksum(),
        FlowPacket::udp_packet(vec![7; 64]).without_checksum(),
    ];
    assert_eq!(coalesce_packets(&packets).frame_count, 2);
}

/// A device that refuses bursts with this error.
#[derive(Debug)]
struct RefusingDevice(i32, RefCell<Vec<Vec<u8>>>);

impl BurstDevice for RefusingDevice {
    fn write_packet(&self, packet: &[u8]) -> io::Result<usize> {
        self.1.borrow_mut().push(packet.to_vec());
        Ok(packet.len())
    }

    fn write_frame(&self, frame: &[u8]) -> io::Result<usize> {
        match frame.first_chunk().map(VirtioHeader::parse) {
            Some(Ok(VirtioHeader { burst_properties: None, .. })) => {
                self.write_packet(&frame[VIRTIO_HEADER_LENGTH..])
            }
            _ => Err(io::Error::from_raw_os_error(self.0)),
        }
    }
}

#[test]
fn gso_packet_that_the_kernel_refuses_is_written_packet_by_packet() {
    let stream = |packet: FlowPacket| -> Vec<Vec<u8>> {
        (0..5).map(|n| FlowPacket { sequence: n * 64, ..packet.clone() }.with_checksum()).collect()
    };
    let packets =
        [stream(FlowPacket::tcp_packet(0, vec![7; 64])), stream(FlowPacket::udp_packet(vec![7; 64]))]
            .concat();
    let written = |error| {
        let mut output = DeviceOutput::new(RefusingDevice(error, RefCell::default()), TCP_AND_UDP);
        let mut coalescer = PacketCoalescer::new(TCP_AND_UDP);
        packets.iter().for_each(|packet| assert!(coalescer.push_packet(packet, &mut output)));
        coalescer.flush_bursts(&mut output);
        output
    };
    let refused = written(libc::EINVAL);
    assert_eq!((refused.burst_kinds, refused.write_error_count), (BurstKinds::default(), 0));
    assert_eq!(refused.device.1.into_inner(), packets);
    // Any other error concerns only these packets, and the writer continues to write bursts.
    let failed = written(libc::ENOBUFS);
    assert_eq!((failed.burst_kinds, failed.write_error_count), (TCP_AND_UDP, 10));
}

#[test]
fn coalescing_keeps_order_and_does_not_delay_tunnelled_packets() {
    let udp = FlowPacket::udp_packet(vec![1; 10]).with_checksum();
    let with = |next_header| {
        let mut packet = udp.clone();
        packet[6] = next_header;
        packet
    };
    let packets = [udp.clone(), with(41), udp.clone(), with(44), udp.clone()];
    let out = coalesce_packets(&packets);
    assert_eq!(out.packets, [with(41), udp.clone(), udp.clone(), with(44), udp]);
    assert_eq!(out.frame_count, 4);
}

#[test]
fn segmentation_refuses_headers_beyond_the_packet_end() {
    let (header, packet) = FlowPacket::tcp_packet(0, vec![0; 3000]).as_burst(1000);
    assert!(BurstSegments::new(&header, &packet).is_some());
    let with = |change: &dyn Fn(&mut UnfinishedChecksum, &mut BurstProperties)| {
        let mut changed = header;
        if let (Some(unfinished), Some(burst)) =
            (&mut changed.unfinished_checksum, &mut changed.burst_properties)
        {
            change(unfinished, burst);
        }
        changed
    };
    let bad = [
        with(&|_, burst| burst.segment_size = 0),
        with(&|_, burst| burst.transport = Transport::Udp),
        with(&|unfinished, _| unfinished.checksum_start = 39),
        with(&|unfinished, _| unfinished.checksum_start = 3072),
        with(&|unfinished, _| unfinished.checksum_start = u16::MAX),
        with(&|unfinished, _| unfinished.checksum_offset = 17),
        with(&|unfinished, _| unfinished.checksum_offset = u16::MAX),
        VirtioHeader { unfinished_checksum: None, ..header },
    ];
    for header in bad {
        assert!(BurstSegments::new(&header, &packet).is_none(), "{header:?}");
    }
    // A UDP header has a fixed length, so only the check of `start` finds a wrong value.
    let (datagram, octets) = FlowPacket::udp_packet(vec![0; 3000]).as_burst(1000);
    let early = VirtioHeader {
        unfinished_checksum: Some(UnfinishedChecksum { checksum_start: 39, checksum_offset: 6 }),
        ..datagram
    };
    assert!(
        BurstSegments::new(&datagram, &octets).is_some() && BurstSegments::new(&early, &octets).is_none()
    );
    for empty in [FlowPacket::tcp_packet(0, vec![]), FlowPacket::udp_packet(vec![])] {
        let (header, octets) = empty.as_burst(1000);
        assert!(BurstSegments::new(&header, &octets).is_none());
    }
    let mut longer = packet.clone();
    longer.push(0);
    assert!(BurstSegments::new(&header, &longer).is_none());
    assert!(BurstSegments::new(&header, &packet[..72]).is_none());
    let mut short_header = packet.clone();
    short_header[52] = 4 << 4;
    assert!(BurstSegments::new(&header, &short_header).is_none());
    let mut ipv4 = packet;
    ipv4[0] = 0x45;
    assert!(BurstSegments::new(&header, &ipv4).is_none());

    let mut lone = [0; VIRTIO_HEADER_LENGTH + 60];
    let checksum = |start, offset| VirtioHeader {
        unfinished_checksum: Some(UnfinishedChecksum { checksum_start: start, checksum_offset: offset }),
        ..VirtioHeader::default()
    };
    for (start, offset, sense) in
        [(40, 18, true), (40, 19, false), (60, 0, false), (61, 0, false), (65_535, 65_535, false)]
    {
        lone[..VIRTIO_HEADER_LENGTH].copy_from_slice(&checksum(start, offset).emit());
        assert_eq!(
            matches!(check_packet_checksum(&mut lone), ReadOutcome::Packet(_)),
            sense,
            "{start} {offset}"
        );
    }
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(vec![0xff; 100]), Just(vec![3; 100]), prop::collection::vec(any::<u8>(), 0..120)]
}

/// Generates packets of a few flows, in which consecutive packets can often be merged.
fn packets_of_few_flows() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = (0..10u8, any_payload(), 0..20u8, any::<u16>());
    prop::collection::vec(one, 0..120).prop_map(|packets| {
        let mut sequences = [u32::MAX - 3000; 10];
        packets
            .into_iter()
            .map(|(flow, payload, odd, damage)| {
                let transport = if flow % 3 == 0 { Transport::Udp } else { Transport::Tcp };
                let sequence = &mut sequences[usize::from(flow)];
                let flags = match odd {
                    0 => TCP_FLAG_ACK | TCP_FLAG_FIN,
                    1 => TCP_FLAG_CWR | TCP_FLAG_ACK,
                    2 | 3 => TCP_FLAG_ACK | TCP_FLAG_PSH,
                    _ => TCP_FLAG_ACK,
                };
                *sequence = sequence.wrapping_add(u32::from(odd == 4));
                let hop_limit = if odd == 5 { 10 } else { 63 };
                let timestamp = odd != 6;
                let packet = FlowPacket {
                    transport,
                    flow_number: flow,
                    hop_limit,
                    sequence: *sequence,
                    flags,
                    timestamp,
                    payload,
                };
                *sequence = sequence.wrapping_add(packet.payload.len() as u32);
                let mut octets = packet.with_checksum();
                if odd == 7 {
                    let at = usize::from(damage) % octets.len();
                    octets[at] ^= 1 << (damage % 8);
                }
                if odd == 8 {
                    octets.truncate(usize::from(damage) % octets.len());
                }
                octets
            })
            .collect()
    })
}

/// Returns the key of a flow; packets with a damaged key form a separate flow.
fn flow_key(packet: &[u8]) -> Vec<u8> {
    [packet.get(6..7), packet.get(8..44)].into_iter().flatten().flatten().copied().collect()
}

proptest! {
    #[test]
    fn coalesced_packets_are_segmented_unchanged(packets in packets_of_few_flows()) {
        let mut out = coalesce_packets(&packets).packets;
        let mut packets = packets;
        // Flows may overtake each other. The sort keeps the order within each flow.
        packets.sort_by_key(|packet| flow_key(packet));
        out.sort_by_key(|packet| flow_key(packet));
        prop_assert_eq!(packets, out);
    }

    #[test]
    fn segmented_burst_is_coalesced_unchanged(
        payload in prop::collection::vec(any::<u8>(), 1..9000), segment in 200..2000u16, udp: bool, push: bool
    ) {
        let packet =
            if udp { FlowPacket::udp_packet(payload) } else { FlowPacket::tcp_packet(0xffff_f000, payload) };
        let packet = FlowPacket { flags:
            if push { TCP_FLAG_ACK | TCP_FLAG_PSH } else { TCP_FLAG_ACK }, ..packet };
        let (header, whole) = packet.as_burst(segment);
        let segments = segment_burst(&header, &whole);
        prop_assert_eq!(segments.len(), packet.payload.len().div_ceil(usize::from(segment)));
        for segment in &segments {
            let pseudo_header = checksum::sum_of_protocol_and_length(segment[6], segment.len() - 40);
            let sum =
                checksum::ones_complement_add(checksum::ones_complement_sum(&segment[8..]), pseudo_header);
            prop_assert_eq!(sum, 0xffff);
        }
        let out = coalesce_packets(&segments);
        prop_assert_eq!((out.frame_count, out.packets), (1, segments));
    }

    #[test]
    fn random_packets_from_tun_cause_no_panic(
        front in any::<[u8; VIRTIO_HEADER_LENGTH]>(), small in any::<bool>(),
        packet in prop::collection::vec(any::<u8>(), 0..300),
        cut_off in 0..100usize
    ) {
        let mut frame = front.to_vec();
        if small {
            // Use values that the parser probably accepts.
            let kind = if front[1] % 2 == 0 { Transport::Tcp } else { Transport::Udp };
            let start = 40 + u16::from(front[0] % 8) * 4;
            let header = VirtioHeader {
                unfinished_checksum: Some(UnfinishedChecksum { checksum_start: start,
                    checksum_offset: kind.checksum_offset() as u16 }),
                burst_properties: Some(BurstProperties { transport: kind,
                    segment_size: u16::from(front[4]) }),
                headers_length: 0,
            };
            frame = header.emit().to_vec();
        }
        frame.extend(&packet);
        if small && frame.len() > VIRTIO_HEADER_LENGTH + 40 {
            let length = (frame.len() - VIRTIO_HEADER_LENGTH - 40) as u16;
            frame[VIRTIO_HEADER_LENGTH] = 0x60;
            put_number(&mut frame[VIRTIO_HEADER_LENGTH..], 4, length);
        }
        let mut buffer = [0; 250];
        let room = buffer.len() - cut_off;
        let mut count = 0;
        let whole = frame.clone();
        if let ReadOutcome::Burst(mut segments) = check_packet_checksum(&mut frame) {
            while let Some(length) =
                segments.next_segment(&whole[VIRTIO_HEADER_LENGTH..], &mut buffer[..room])
            {
                prop_assert!(length <= room);
                count += 1;
            }
        }
        prop_assert!(count <= packet.len());
        let mut out = CollectedFrames::default();
        let mut coalescer = PacketCoalescer::new(TCP_AND_UDP);
        coalescer.push_packet(&packet, &mut out);
        coalescer.push_packet(&packet, &mut out);
        coalescer.flush_bursts(&mut out);
    }
}
