//! Invalid octets: no parser may panic.

mod common;

use common::{RandomNumbers, fixtures, parse_everything};

/// Number of mutations; `CARNET_ROUNDS` overrides it.
const MUTATION_ROUNDS: usize = match option_env!("CARNET_ROUNDS") {
    Some(text) => match usize::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("CARNET_ROUNDS is no number"),
    },
    None => 100_000,
};

#[test]
fn mobility_message_truncated_at_any_octet_causes_no_panic() {
    for packet in fixtures::all_packets() {
        for end in 0..=packet.len() {
            parse_everything(&packet[..end]);
            // Parses the packet again with a payload length that fits the remaining octets.
            let mut shorter = packet[..end].to_vec();
            if let Some(payload) = end.checked_sub(40) {
                shorter[4..6].copy_from_slice(&u16::try_from(payload).expect("short").to_be_bytes());
                parse_everything(&shorter);
            }
        }
        for start in 0..packet.len() {
            parse_everything(&packet[start..]);
        }
    }
}

#[test]
fn every_octet_value_in_mobility_message_causes_no_panic() {
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
fn mutated_mobility_messages_cause_no_panic() {
    let packets = fixtures::all_packets();
    let mut numbers = RandomNumbers::new(0x6275_3963_4285_4861);
    for _ in 0..MUTATION_ROUNDS {
        let mut octets = packets[numbers.number_below(packets.len())].clone();
        for _ in 0..=numbers.number_below(4) {
            mutate_octets(&mut octets, &packets, &mut numbers);
        }
        parse_everything(&octets);
        if octets.len() > 40 && numbers.number_below(2) == 0 {
            let payload = u16::try_from(octets.len() - 40).unwrap_or(u16::MAX);
            octets[4..6].copy_from_slice(&payload.to_be_bytes());
            parse_everything(&octets);
        }
    }
}

fn mutate_octets(octets: &mut Vec<u8>, packets: &[Vec<u8>], numbers: &mut RandomNumbers) {
    if octets.is_empty() {
        octets.push(0x60);
    }
    let at = numbers.number_below(octets.len());
    match numbers.number_below(7) {
        0 => octets[at] ^= 1 << numbers.number_below(8),
        1 => octets[at] = numbers.next_u64() as u8,
        2 => octets[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][numbers.number_below(6)],
        // Values of next headers, message types and option types that the parsers know.
        3 => octets[at] = [0, 2, 3, 6, 8, 9, 10, 41, 43, 44, 58, 59, 60, 135, 0xc9][numbers.number_below(15)],
        4 => octets.truncate(at),
        5 => octets.insert(at, numbers.next_u64() as u8),
        _ => {
            let other = &packets[numbers.number_below(packets.len())];
            let from = numbers.number_below(other.len());
            octets.splice(at.., other[from..].iter().copied());
        }
    }
}
