//! Invalid octets: no parser may panic.

use crate::common::RandomNumbers;
use crate::everything::parse_everything;
use crate::fixtures;

#[test]
fn geonetworking_packet_truncated_at_any_octet_causes_no_panic() {
    for packet in fixtures::all_packets() {
        for end in 0..=packet.len() {
            parse_everything(&packet[..end]);
        }
        for start in 0..packet.len() {
            parse_everything(&packet[start..]);
        }
    }
}

#[test]
fn every_octet_value_in_geonetworking_packet_causes_no_panic() {
    for packet in fixtures::all_packets() {
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            for value in 0..=255 {
                changed[at] = value;
                parse_everything(&changed);
            }
        }
    }
}

#[test]
fn mutated_geonetworking_packets_cause_no_panic() {
    let packets = fixtures::all_packets();
    let mut numbers = RandomNumbers::new(0x3026_3636_0004_0001);
    let mut taken = 0;
    for _ in 0..100_000 {
        let mut octets = packets[numbers.number_below(packets.len())].clone();
        for _ in 0..=numbers.number_below(4) {
            mutate_octets(&mut octets, &packets, &mut numbers);
        }
        taken += u32::from(parse_everything(&octets));
        // Sets the payload length to the octets that follow, so that parsing goes further.
        if let Some(length) = octets.len().checked_sub(36)
            && numbers.number_below(2) == 0
        {
            octets[8..10].copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
            parse_everything(&octets);
        }
    }
    // The generator must make valid and invalid packets; otherwise the test proves nothing.
    assert!((10_000..90_000).contains(&taken), "{taken} of the mutations were packets");
}

fn mutate_octets(octets: &mut Vec<u8>, packets: &[Vec<u8>], numbers: &mut RandomNumbers) {
    if octets.is_empty() {
        octets.push(0x11);
    }
    let at = numbers.number_below(octets.len());
    match numbers.number_below(8) {
        0 => octets[at] ^= 1 << numbers.number_below(8),
        1 => octets[at] = numbers.next_u64() as u8,
        2 => octets[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][numbers.number_below(6)],
        3 => {
            octets[at] =
                [0x10, 0x11, 0x12, 0x20, 0x30, 0x41, 0x42, 0x50, 0x51, 0x60, 0x61][numbers.number_below(11)]
        }
        // Change an octet of the first two headers, which a choice among all octets seldom does.
        4 => {
            let at = at % 12;
            if let Some(octet) = octets.get_mut(at) {
                *octet = numbers.next_u64() as u8;
            }
        }
        5 => octets.truncate(at),
        6 => octets.insert(at, numbers.next_u64() as u8),
        _ => {
            let other = &packets[numbers.number_below(packets.len())];
            let from = numbers.number_below(other.len());
            octets.splice(at.., other[from..].iter().copied());
        }
    }
}
