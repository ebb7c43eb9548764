//! Changes packets at random. A program must forward the same packet as the slow path, or leave the packet
//! unchanged.

use carnet_base::Rng;
use carnet_nemo::forwarding::desired::TunnelEnd;

use super::bench::{
    CARE_OF_ADDRESSES, HOME_ADDRESS, HOME_AGENT, ProgramOutcome, TestBench, run_on_every_bench,
};
use super::packets::*;

/// Number of changed packets for each kind of program and each end of the tunnel.
const MUTATION_COUNT: usize = 5000;

/// Returns the packets that the test mutates, of all kinds that the programs inspect closely.
fn seed_packets(bench: &TestBench) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let (from, to) = bench.arriving_outer_addresses(0);
    for (source, destination) in [
        (HOST_ADDRESS, CORRESPONDENT_ADDRESS),
        (CORRESPONDENT_ADDRESS, HOST_ADDRESS),
        (CORRESPONDENT_ADDRESS, HOME_ADDRESS),
    ] {
        let plain = [
            udp_packet(source, destination, 40),
            tcp_segment(source, destination, 0x10),
            ipv6_packet(58, source, destination, &[128, 0, 0, 0, 1, 2, 3, 4]),
            ipv6_packet(
                44,
                source,
                destination,
                &[&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp_payload(24)].concat(),
            ),
        ];
        seeds.extend(plain.iter().map(|packet| encapsulated_in_ipv6(from, to, packet)));
        seeds.extend(plain);
    }
    seeds
}

fn mutate_packet(rng: &mut Rng, packet: &mut Vec<u8>) {
    const TRIED_ADDRESSES: [&str; 10] = [
        HOST_ADDRESS,
        CORRESPONDENT_ADDRESS,
        HOME_ADDRESS,
        HOME_AGENT,
        CARE_OF_ADDRESSES[0],
        CARE_OF_ADDRESSES[1],
        "::",
        "ff02::1",
        "fe80::1",
        "2001:db8:b::1",
    ];
    let mut below = |bound: usize| rng.number_below(bound as u64) as usize;
    match below(8) {
        0 => {
            let at = below(packet.len());
            packet[at] ^= 1 << below(8);
        }
        1 => {
            let at = below(packet.len());
            packet[at] = below(256) as u8;
        }
        // Mutate one octet of the headers, which are within the first 100 octets.
        2 => {
            let at = below(packet.len().min(100));
            packet[at] = [0, 1, 2, 6, 17, 41, 43, 44, 58, 60, 0x60, 135, 255][below(13)];
        }
        3 => packet.truncate(1 + below(packet.len())),
        4 => packet.extend((0..below(20)).map(|at| at as u8)),
        5 => {
            let at = [8, 24, 48, 64][below(4)];
            let address = parse_address(TRIED_ADDRESSES[below(TRIED_ADDRESSES.len())]).octets();
            if let Some(place) = packet.get_mut(at..at + 16) {
                place.copy_from_slice(&address);
            }
        }
        6 => {
            // Correct the lengths in the headers.
            let length = packet.len();
            for at in [4, 44] {
                if length > at + 36 {
                    let value = u16::try_from(length - at - 36).unwrap();
                    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
                }
            }
        }
        _ => {
            let at = [6, 7, 46, 47][below(4)];
            if let Some(place) = packet.get_mut(at) {
                *place = [0, 1, 2, 6, 17, 41, 44, 58][below(8)];
            }
        }
    }
}

#[test]
fn mutated_packets_are_forwarded_correctly_or_left_to_slow_path() {
    run_on_every_bench(|bench| {
        let seed = 0x5eed + bench.kind as u64 * 2 + u64::from(bench.station_end == TunnelEnd::HomeAgent);
        let mut rng = Rng::new(seed);
        let seeds = seed_packets(bench);
        let (mut sent, mut left) = (0, 0);
        for _ in 0..MUTATION_COUNT {
            let mut packet = seeds[rng.number_below(seeds.len() as u64) as usize].clone();
            for _ in 0..1 + rng.number_below(3) {
                mutate_packet(&mut rng, &mut packet);
            }
            if packet.len() + 14 < bench.shortest_frame_length() {
                continue;
            }
            let places = [bench.entrance_program_and_interface(), bench.exit_program_and_interface()];
            let (program, interface) = places[rng.number_below(2) as usize];
            match bench.program_outcome(program, interface, &ethernet_frame(0x86dd, &packet)) {
                ProgramOutcome::Sent(out) => {
                    // The packet is compared as a tunnelled one if it is addressed to this end. The home
                    // agent's single program handles both directions.
                    let own = bench.station_end == TunnelEnd::MobileRouter
                        || packet[24..40] == parse_address(HOME_AGENT).octets();
                    bench.assert_equals_slow_path(&packet, program != "lan" && own, &out);
                    sent += 1;
                }
                ProgramOutcome::Left(_) => left += 1,
            }
        }
        println!("{:?} at the {:?}'s end: {sent} sent on, {left} left alone", bench.kind, bench.station_end);
        assert!(sent > MUTATION_COUNT / 50 && left > MUTATION_COUNT / 10, "{sent}, {left}");
    });
}
