//! Tests how bursts are cut and merged: unit tests, properties, and a check by tshark of lengths, sequence
//! numbers and checksums.

use std::cell::RefCell;
use std::io;
use std::process::Command;

use carnet_wire::{checksum, ipv4};
use proptest::prelude::*;

use super::coalescing::{BurstKinds, Coalescer, Sink};
use super::reader::{ReadOutcome, check_packet};
use super::segmentation::{Segments, put};
use super::virtio::{Burst, Header, LENGTH, Transport, Unfinished};
use super::writer::{Device, Output};

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;
const CWR: u8 = 0x80;

/// A packet of a flow, with a correct checksum.
#[derive(Debug, Clone)]
struct Packet {
    transport: Transport,
    flow: u8,
    hop_limit: u8,
    sequence: u32,
    flags: u8,
    timestamp: bool,
    payload: Vec<u8>,
}

impl Packet {
    fn tcp(sequence: u32, payload: Vec<u8>) -> Packet {
        Packet {
            transport: Transport::Tcp,
            flow: 1,
            hop_limit: 63,
            sequence,
            flags: ACK,
            timestamp: true,
            payload,
        }
    }

    fn udp(payload: Vec<u8>) -> Packet {
        Packet { transport: Transport::Udp, ..Packet::tcp(0, payload) }
    }

    /// Returns the packet without its checksum.
    fn bare(&self) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0x12, 0x34, 0, 0, self.transport.protocol(), self.hop_limit];
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0xc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        packet.extend([0x40, self.flow, 0x10, 0x01]);
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
        put(&mut packet, 4, length);
        if self.transport == Transport::Udp {
            put(&mut packet, 44, length);
        }
        packet
    }

    /// Returns the packet with its checksum, as a sender without checksum offload sends it.
    fn whole(&self) -> Vec<u8> {
        let mut packet = self.bare();
        let address = |from: usize| <[u8; 16]>::try_from(&packet[from..from + 16]).expect("an address");
        let (source, destination) = (address(8).into(), address(24).into());
        let protocol = self.transport.protocol();
        let sum = match checksum::upper_layer_checksum(source, destination, protocol, &packet[40..]) {
            0 => 0xffff,
            sum => sum,
        };
        put(&mut packet, 40 + self.transport.checksum_offset(), sum);
        packet
    }

    /// Returns the packet as a burst in the kernel's format.
    fn burst(&self, segment: u16) -> (Header, Vec<u8>) {
        let mut packet = self.bare();
        let length = packet.len() - 40;
        let sum = checksum::ones_complement_add(
            checksum::ones_complement_sum(&packet[8..40]),
            checksum::protocol_and_length(self.transport.protocol(), length),
        );
        let offset = self.transport.checksum_offset();
        put(&mut packet, 40 + offset, sum);
        let header = Header {
            unfinished: Some(Unfinished { start: 40, offset: offset as u16 }),
            burst: Some(Burst { transport: self.transport, segment }),
            headers: 0,
        };
        (header, packet)
    }
}

fn cut(header: &Header, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut buffer = [0; 70_000];
    let mut segments = Segments::new(header, packet).expect("a burst");
    let mut cut = Vec::new();
    while let Some(length) = segments.next(packet, &mut buffer) {
        cut.push(buffer[..length].to_vec());
    }
    assert!(segments.is_done(packet));
    cut
}

/// Collects the frames that a coalescer writes, and splits them into packets again.
#[derive(Default)]
struct Collected {
    frames: usize,
    packets: Vec<Vec<u8>>,
}

impl Sink for Collected {
    fn frame(&mut self, header: &Header, frame: &[u8]) {
        let read = frame.first_chunk().map(Header::parse).expect("a header").expect("a known burst");
        assert_eq!((read.unfinished, read.burst), (header.unfinished, header.burst));
        assert!(frame.len() <= LENGTH + 65_535);
        self.frames += 1;
        match header.burst {
            Some(_) => self.packets.extend(cut(header, &frame[LENGTH..])),
            None => self.packets.push(frame[LENGTH..].to_vec()),
        }
    }
}

const BOTH: BurstKinds = BurstKinds { tcp: true, udp: true };

/// Returns the frames that a coalescer writes for these packets.
fn coalesce(packets: &[Vec<u8>]) -> Collected {
    let (mut coalescer, mut out) = (Coalescer::new(BOTH), Collected::default());
    for packet in packets {
        if !coalescer.push(packet, &mut out) {
            out.frames += 1;
            out.packets.push(packet.clone());
        }
    }
    coalescer.flush(&mut out);
    out
}

/// An IPv4 burst has the lengths, the Identifications and both checksums of single packets after it is cut.
#[test]
fn ipv4_burst_is_cut_into_packets_with_right_headers() {
    let whole = Packet { timestamp: false, ..Packet::tcp(1000, vec![7; 2500]) }.bare();
    let mut packet = vec![0x45, 0xb8, 0, 0, 0xff, 0xff, 0x40, 0, 63, 6, 0, 0, 10, 42, 7, 5, 192, 0, 2, 1];
    packet.extend_from_slice(&whole[40..]);
    let length = packet.len() as u16;
    put(&mut packet, 2, length);
    ipv4::set_checksum(&mut packet);
    let pseudo = |packet: &[u8], length: u16| {
        checksum::ones_complement_add(
            checksum::ones_complement_sum(&packet[12..20]),
            checksum::protocol_and_length(6, length.into()),
        )
    };
    let sum = pseudo(&packet, length - 20);
    put(&mut packet, 36, sum);
    let header = Header {
        unfinished: Some(Unfinished { start: 20, offset: 16 }),
        burst: Some(Burst { transport: Transport::Tcp, segment: 1000 }),
        headers: 40,
    };
    let mut segments = Segments::new(&header, &packet).expect("an IPv4 burst");
    let (mut payload, mut buffer) = (0, [0; 2000]);
    for (number, expected) in [(0xffff, 1040), (0, 1040), (1, 540)] {
        let length = segments.next(&packet, &mut buffer).expect("a segment");
        let segment = &buffer[..length];
        assert_eq!((length, u16::from_be_bytes([segment[4], segment[5]])), (expected, number));
        assert_eq!(u16::from_be_bytes([segment[2], segment[3]]), length as u16);
        assert_eq!(checksum::ones_complement_sum(&segment[..20]), 0xffff);
        let sum = pseudo(segment, length as u16 - 20);
        assert_eq!(checksum::ones_complement_add(sum, checksum::ones_complement_sum(&segment[20..])), 0xffff);
        assert_eq!(u32::from_be_bytes([segment[24], segment[25], segment[26], segment[27]]), 1000 + payload);
        payload += length as u32 - 40;
    }
    assert_eq!(segments.next(&packet, &mut buffer), None);
}

#[test]
fn tcp_segments_have_own_sequence_numbers_and_flags() {
    let payload: Vec<u8> = (0..2500).map(|n| n as u8).collect();
    let whole = Packet { flags: ACK | PSH | FIN | CWR, ..Packet::tcp(u32::MAX - 500, payload.clone()) };
    let (header, packet) = whole.burst(1000);
    let expected: Vec<Vec<u8>> = [(0, 1000, ACK | CWR), (1000, 2000, ACK), (2000, 2500, ACK | PSH | FIN)]
        .into_iter()
        .map(|(from, to, flags)| {
            let sequence = (u32::MAX - 500).wrapping_add(from as u32);
            Packet { flags, ..Packet::tcp(sequence, payload[from..to].to_vec()) }.whole()
        })
        .collect();
    assert_eq!(cut(&header, &packet), expected);

    let (header, packet) = Packet::udp(payload.clone()).burst(1000);
    let expected: Vec<Vec<u8>> =
        payload.chunks(1000).map(|part| Packet::udp(part.to_vec()).whole()).collect();
    assert_eq!(cut(&header, &packet), expected);
}

#[test]
fn tshark_finds_nothing_wrong_in_segments() {
    let payload: Vec<u8> = (0..9000u32).map(|n| (n * 7) as u8).collect();
    let (tcp, burst) = Packet { flags: ACK | PSH, ..Packet::tcp(100, payload.clone()) }.burst(1388);
    let mut packets = cut(&tcp, &burst);
    let (udp, burst) = Packet::udp(payload).burst(999);
    packets.extend(cut(&udp, &burst));
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
        .map(|word| Packet::udp(word.to_be_bytes().to_vec()))
        .find(|packet| packet.whole()[46..48] == [0xff, 0xff])
        .expect("one sum of all that are possible");
    let (header, mut packet) = zero.burst(2);
    assert_eq!(cut(&header, &packet), [zero.whole()]);
    assert!(header.unfinished.expect("a checksum").finish(&mut packet));
    assert_eq!(packet, zero.whole());
}

#[test]
fn packets_of_one_tcp_stream_are_coalesced() {
    let stream = |flow, count: u32| -> Vec<Vec<u8>> {
        (0..count).map(|n| Packet { flow, ..Packet::tcp(n * 1388, vec![n as u8; 1388]) }.whole()).collect()
    };
    let one = stream(1, 40);
    let out = coalesce(&one);
    assert_eq!((out.frames, &out.packets), (1, &one));
    // A burst of 65,535 octets has room for 47 of these packets.
    assert_eq!(coalesce(&stream(1, 47)).frames, 1);
    assert_eq!(coalesce(&stream(1, 48)).frames, 2);

    let two: Vec<Vec<u8>> = one.iter().cloned().zip(stream(2, 40)).flat_map(|(a, b)| [a, b]).collect();
    let out = coalesce(&two);
    assert_eq!(out.frames, 2);
    assert_eq!(out.packets, [one, stream(2, 40)].concat());

    let datagrams: Vec<Vec<u8>> = (0..64).map(|n| Packet::udp(vec![n; 16]).whole()).collect();
    let out = coalesce(&datagrams);
    assert_eq!((out.frames, out.packets), (1, datagrams));
}

#[test]
fn packets_of_different_streams_are_not_coalesced() {
    let base = Packet::tcp(0, vec![1; 100]);
    let next = Packet::tcp(100, vec![2; 100]);
    let apart = [
        Packet { sequence: 101, ..next.clone() },
        Packet { hop_limit: 62, ..next.clone() },
        Packet { flow: 9, ..next.clone() },
        Packet { timestamp: false, ..next.clone() },
        Packet { flags: ACK | FIN, ..next.clone() },
        Packet { payload: vec![2; 101], ..next.clone() },
        Packet { payload: vec![], ..next.clone() },
    ];
    assert_eq!(coalesce(&[base.whole(), next.whole()]).frames, 1);
    for packet in apart {
        let packets = [base.whole(), packet.whole()];
        let out = coalesce(&packets);
        assert_eq!((out.frames, &out.packets[..]), (2, &packets[..]), "{packet:?}");
    }
    // The coalescer does not merge packets that differ in traffic class, flow label, acknowledgement, window,
    // urgent pointer, or an option.
    for (offset, value) in [(0, 0x61), (1, 1), (3, 1), (51, 1), (55, 1), (59, 1), (71, 1)] {
        let mut other = next.whole();
        other[offset] = value;
        let mut expected = other.clone();
        let sum = checksum::ones_complement_add(
            checksum::ones_complement_sum(&other[40..]),
            checksum::ones_complement_sum(&other[8..40]),
        );
        let sum = checksum::ones_complement_add(sum, checksum::protocol_and_length(6, other.len() - 40));
        let old = u16::from_be_bytes([other[56], other[57]]);
        put(&mut expected, 56, checksum::ones_complement_add(old, !sum));
        let packets = [base.whole(), expected];
        assert_eq!(coalesce(&packets).frames, 2, "{offset}");
    }
    // After PSH, and after a shorter packet, a new burst begins.
    for second in
        [Packet { flags: ACK | PSH, ..next.clone() }, Packet { payload: vec![2; 99], ..next.clone() }]
    {
        let end = 100 + second.payload.len() as u32;
        let packets =
            [base.clone(), second, Packet::tcp(end, vec![3; 50]), Packet::tcp(end + 50, vec![3; 50])];
        let packets = packets.map(|packet| packet.whole());
        let out = coalesce(&packets);
        assert_eq!((out.frames, &out.packets[..]), (2, &packets[..]));
    }
}

#[test]
fn a_wrong_checksum_is_never_made_right() {
    for damaged in 0..4 {
        for packet in [Packet::udp(vec![7; 64]), Packet::tcp(0, vec![7; 64])] {
            let mut packets: Vec<Vec<u8>> =
                (0..4).map(|n| Packet { sequence: n * 64, ..packet.clone() }.whole()).collect();
            packets[damaged][90] ^= 1;
            let out = coalesce(&packets);
            assert_eq!(out.packets, packets, "{damaged}");
            assert!(out.frames < 4, "{damaged}");
        }
    }
    // The coalescer does not merge UDP datagrams without a checksum, which some tunnels send (RFC 6935).
    let packets = [Packet::udp(vec![7; 64]).bare(), Packet::udp(vec![7; 64]).bare()];
    assert_eq!(coalesce(&packets).frames, 2);
}

/// A device that refuses bursts with this error.
#[derive(Debug)]
struct RefusingDevice(i32, RefCell<Vec<Vec<u8>>>);

impl Device for RefusingDevice {
    fn packet(&self, packet: &[u8]) -> io::Result<usize> {
        self.1.borrow_mut().push(packet.to_vec());
        Ok(packet.len())
    }

    fn frame(&self, frame: &[u8]) -> io::Result<usize> {
        match frame.first_chunk().map(Header::parse) {
            Some(Ok(Header { burst: None, .. })) => self.packet(&frame[LENGTH..]),
            _ => Err(io::Error::from_raw_os_error(self.0)),
        }
    }
}

#[test]
fn a_burst_that_the_kernel_refuses_is_written_packet_by_packet() {
    let stream = |packet: Packet| -> Vec<Vec<u8>> {
        (0..5).map(|n| Packet { sequence: n * 64, ..packet.clone() }.whole()).collect()
    };
    let packets = [stream(Packet::tcp(0, vec![7; 64])), stream(Packet::udp(vec![7; 64]))].concat();
    let written = |error| {
        let mut output = Output::new(RefusingDevice(error, RefCell::default()), BOTH);
        let mut coalescer = Coalescer::new(BOTH);
        packets.iter().for_each(|packet| assert!(coalescer.push(packet, &mut output)));
        coalescer.flush(&mut output);
        output
    };
    let refused = written(libc::EINVAL);
    assert_eq!((refused.kinds, refused.errors), (BurstKinds::default(), 0));
    assert_eq!(refused.device.1.into_inner(), packets);
    // Any other error concerns only these packets, and the writer continues to write bursts.
    let failed = written(libc::ENOBUFS);
    assert_eq!((failed.kinds, failed.errors), (BOTH, 10));
}

#[test]
fn coalescing_keeps_order_and_does_not_delay_tunnelled_packets() {
    let udp = Packet::udp(vec![1; 10]).whole();
    let with = |next_header| {
        let mut packet = udp.clone();
        packet[6] = next_header;
        packet
    };
    let packets = [udp.clone(), with(41), udp.clone(), with(44), udp.clone()];
    let out = coalesce(&packets);
    assert_eq!(out.packets, [with(41), udp.clone(), udp.clone(), with(44), udp]);
    assert_eq!(out.frames, 4);
}

#[test]
fn headers_beyond_packet_end_are_refused() {
    let (header, packet) = Packet::tcp(0, vec![0; 3000]).burst(1000);
    assert!(Segments::new(&header, &packet).is_some());
    let with = |change: &dyn Fn(&mut Unfinished, &mut Burst)| {
        let mut changed = header;
        if let (Some(unfinished), Some(burst)) = (&mut changed.unfinished, &mut changed.burst) {
            change(unfinished, burst);
        }
        changed
    };
    let bad = [
        with(&|_, burst| burst.segment = 0),
        with(&|_, burst| burst.transport = Transport::Udp),
        with(&|unfinished, _| unfinished.start = 39),
        with(&|unfinished, _| unfinished.start = 3072),
        with(&|unfinished, _| unfinished.start = u16::MAX),
        with(&|unfinished, _| unfinished.offset = 17),
        with(&|unfinished, _| unfinished.offset = u16::MAX),
        Header { unfinished: None, ..header },
    ];
    for header in bad {
        assert!(Segments::new(&header, &packet).is_none(), "{header:?}");
    }
    // A UDP header has a fixed length, so only the check of `start` finds a wrong value.
    let (datagram, octets) = Packet::udp(vec![0; 3000]).burst(1000);
    let early = Header { unfinished: Some(Unfinished { start: 39, offset: 6 }), ..datagram };
    assert!(Segments::new(&datagram, &octets).is_some() && Segments::new(&early, &octets).is_none());
    for empty in [Packet::tcp(0, vec![]), Packet::udp(vec![])] {
        let (header, octets) = empty.burst(1000);
        assert!(Segments::new(&header, &octets).is_none());
    }
    let mut longer = packet.clone();
    longer.push(0);
    assert!(Segments::new(&header, &longer).is_none());
    assert!(Segments::new(&header, &packet[..72]).is_none());
    let mut short_header = packet.clone();
    short_header[52] = 4 << 4;
    assert!(Segments::new(&header, &short_header).is_none());
    let mut ipv4 = packet;
    ipv4[0] = 0x45;
    assert!(Segments::new(&header, &ipv4).is_none());

    let mut lone = [0; LENGTH + 60];
    let checksum =
        |start, offset| Header { unfinished: Some(Unfinished { start, offset }), ..Header::default() };
    for (start, offset, sense) in
        [(40, 18, true), (40, 19, false), (60, 0, false), (61, 0, false), (65_535, 65_535, false)]
    {
        lone[..LENGTH].copy_from_slice(&checksum(start, offset).emit());
        assert_eq!(matches!(check_packet(&mut lone), ReadOutcome::Packet(_)), sense, "{start} {offset}");
    }
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(vec![0xff; 100]), Just(vec![3; 100]), prop::collection::vec(any::<u8>(), 0..120)]
}

/// Generates packets of a few flows, in which consecutive packets can often be merged.
fn traffic() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = (0..10u8, payload(), 0..20u8, any::<u16>());
    prop::collection::vec(one, 0..120).prop_map(|packets| {
        let mut sequences = [u32::MAX - 3000; 10];
        packets
            .into_iter()
            .map(|(flow, payload, odd, damage)| {
                let transport = if flow % 3 == 0 { Transport::Udp } else { Transport::Tcp };
                let sequence = &mut sequences[usize::from(flow)];
                let flags = match odd {
                    0 => ACK | FIN,
                    1 => CWR | ACK,
                    2 | 3 => ACK | PSH,
                    _ => ACK,
                };
                *sequence = sequence.wrapping_add(u32::from(odd == 4));
                let hop_limit = if odd == 5 { 10 } else { 63 };
                let timestamp = odd != 6;
                let packet =
                    Packet { transport, flow, hop_limit, sequence: *sequence, flags, timestamp, payload };
                *sequence = sequence.wrapping_add(packet.payload.len() as u32);
                let mut octets = packet.whole();
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
fn flow(packet: &[u8]) -> Vec<u8> {
    [packet.get(6..7), packet.get(8..44)].into_iter().flatten().flatten().copied().collect()
}

proptest! {
    #[test]
    fn coalesced_packets_are_segmented_unchanged(packets in traffic()) {
        let mut out = coalesce(&packets).packets;
        let mut packets = packets;
        // Flows may overtake each other. The sort keeps the order within each flow.
        packets.sort_by_key(|packet| flow(packet));
        out.sort_by_key(|packet| flow(packet));
        prop_assert_eq!(packets, out);
    }

    #[test]
    fn segmented_burst_is_coalesced_unchanged(
        payload in prop::collection::vec(any::<u8>(), 1..9000), segment in 200..2000u16, udp: bool, push: bool
    ) {
        let packet = if udp { Packet::udp(payload) } else { Packet::tcp(0xffff_f000, payload) };
        let packet = Packet { flags: if push { ACK | PSH } else { ACK }, ..packet };
        let (header, whole) = packet.burst(segment);
        let segments = cut(&header, &whole);
        prop_assert_eq!(segments.len(), packet.payload.len().div_ceil(usize::from(segment)));
        for segment in &segments {
            let pseudo_header = checksum::protocol_and_length(segment[6], segment.len() - 40);
            let sum =
                checksum::ones_complement_add(checksum::ones_complement_sum(&segment[8..]), pseudo_header);
            prop_assert_eq!(sum, 0xffff);
        }
        let out = coalesce(&segments);
        prop_assert_eq!((out.frames, out.packets), (1, segments));
    }

    #[test]
    fn random_packets_from_tun_cause_no_panic(
        front in any::<[u8; LENGTH]>(), small in any::<bool>(),
        packet in prop::collection::vec(any::<u8>(), 0..300),
        cut_off in 0..100usize
    ) {
        let mut frame = front.to_vec();
        if small {
            // Use values that the parser is likely to accept.
            let kind = if front[1] % 2 == 0 { Transport::Tcp } else { Transport::Udp };
            let start = 40 + u16::from(front[0] % 8) * 4;
            let header = Header {
                unfinished: Some(Unfinished { start, offset: kind.checksum_offset() as u16 }),
                burst: Some(Burst { transport: kind, segment: u16::from(front[4]) }),
                headers: 0,
            };
            frame = header.emit().to_vec();
        }
        frame.extend(&packet);
        if small && frame.len() > LENGTH + 40 {
            let length = (frame.len() - LENGTH - 40) as u16;
            frame[LENGTH] = 0x60;
            put(&mut frame[LENGTH..], 4, length);
        }
        let mut buffer = [0; 250];
        let room = buffer.len() - cut_off;
        let mut count = 0;
        let whole = frame.clone();
        if let ReadOutcome::Burst(mut segments) = check_packet(&mut frame) {
            while let Some(length) = segments.next(&whole[LENGTH..], &mut buffer[..room]) {
                prop_assert!(length <= room);
                count += 1;
            }
        }
        prop_assert!(count <= packet.len());
        let mut out = Collected::default();
        let mut coalescer = Coalescer::new(BOTH);
        coalescer.push(&packet, &mut out);
        coalescer.push(&packet, &mut out);
        coalescer.flush(&mut out);
    }
}
