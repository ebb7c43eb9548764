//! IPv6 over GeoNetworking with malicious octets from the host and from the air: no panic, and memory does
//! not grow.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::Delivery;
use carnet_geonet::ipv6_adaptation::addresses::{self, Prefix};
use carnet_geonet::ipv6_adaptation::{HostFrame, LinkId};
use carnet_wire::geonet::{CommonNextHeader, GeoAreaShape, HeaderType, Lifetime, TrafficClass};

use crate::host_and_router::{
    ALL_NODES_ADDRESS, HostAndRouter, IPV6_ETHERTYPE, neighbor_solicitation, parse_address,
    router_advertisement, udp_packet,
};
use crate::simulated_stations::{ROUTER_MAC, SimulatedStation, circular_area, etsi_area_1};

const ROUND_COUNT: usize = match option_env!("CARNET_ROUNDS") {
    Some(text) => match usize::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("CARNET_ROUNDS is no number"),
    },
    None => 40_000,
};

/// Returns packets whose content the sublayer inspects.
fn seed_packets() -> Vec<Vec<u8>> {
    let station = SimulatedStation::b();
    let from = addresses::link_local_address(station.mac);
    let own = addresses::link_local_address(ROUTER_MAC);
    let mut report = udp_packet(own, parse_address("ff02::16"), 8 + 8 + 20);
    report[6] = 0;
    report[40..48].copy_from_slice(&[58, 0, 5, 2, 0, 0, 1, 0]);
    report[48..56].copy_from_slice(&[143, 0, 0, 0, 0, 0, 0, 1]);
    report[56..60].copy_from_slice(&[4, 0, 0, 0]);
    report[60..76].copy_from_slice(&parse_address("ff02::2").octets());
    let prefix = Prefix { address: parse_address("3ffe:0:0:9::"), prefix_length: 64 };
    vec![
        udp_packet(from, parse_address(ALL_NODES_ADDRESS), 60),
        udp_packet(own, from, 60),
        udp_packet(own, parse_address("3ffe:0:0:1:fdff:ffff:ffff:fffd"), 60),
        neighbor_solicitation(own, from, Some(ROUTER_MAC)),
        neighbor_solicitation(from, own, Some(station.mac)),
        router_advertisement(&station, prefix, 30),
        report,
    ]
}

/// Returns a copy with some octets changed, removed or added.
fn mutated_packet(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut octets = seed.to_vec();
    for _ in 0..rng.number_below(4) {
        let at = rng.number_below(octets.len() as u64) as usize;
        octets[at] = if rng.is_true_with_probability(0.3) { 0xff } else { rng.random_u64() as u8 };
    }
    match rng.number_below(6) {
        0 => octets.truncate(rng.number_below(octets.len() as u64 + 1) as usize),
        1 => octets.extend(vec![rng.random_u64() as u8; rng.number_below(1500) as usize]),
        _ => {}
    }
    octets
}

#[test]
fn mutated_ipv6_frames_cause_no_panic_and_no_growth() {
    let mut rng = Rng::new(11);
    let mut host = HostAndRouter::with_links();
    let seeds = seed_packets();
    let macs = [
        [0xff; 6],
        [0; 6],
        ROUTER_MAC,
        SimulatedStation::b().mac,
        addresses::ANYCAST_MAC,
        addresses::ALL_NODES_MAC,
    ];
    let mut now = Time::from_secs(1000);
    let (mut taken, mut settled) = (0, 0);
    for _ in 0..ROUND_COUNT {
        let seed = &seeds[rng.number_below(seeds.len() as u64) as usize];
        let payload = mutated_packet(&mut rng, seed);
        let mac = |rng: &mut Rng| macs[rng.number_below(macs.len() as u64) as usize];
        if rng.is_true_with_probability(0.5) {
            let frame = HostFrame {
                destination: mac(&mut rng),
                source: if rng.is_true_with_probability(0.9) { ROUTER_MAC } else { mac(&mut rng) },
                ether_type: if rng.is_true_with_probability(0.9) { IPV6_ETHERTYPE } else { rng.random_u16() },
                payload: &payload,
            };
            let link = LinkId(rng.number_below(7) as u32);
            match host.adaptation.handle_host_frame(host.iut.now, link, frame) {
                Ok(Some(request)) => {
                    assert!(request.payload.len() <= 1398);
                    taken += 1;
                }
                Ok(None) => settled += 1,
                Err(_) => {}
            }
        } else {
            let area = [
                None,
                Some(etsi_area_1()),
                Some(circular_area(SimulatedStation::d().position(), rng.random_u16())),
            ][rng.number_below(3) as usize];
            let header_type = [
                HeaderType::GeoUnicast,
                HeaderType::GeoBroadcast(GeoAreaShape::Circle),
                HeaderType::GeoAnycast(GeoAreaShape::Ellipse),
                HeaderType::TopologicallyScoped,
                HeaderType::SingleHop,
            ][rng.number_below(5) as usize];
            let delivery = Delivery {
                header_type,
                next_header: CommonNextHeader::Ipv6,
                source: SimulatedStation::b().position_vector,
                sequence: None,
                destination: None,
                area,
                traffic_class: TrafficClass::default(),
                remaining_hop_limit: 1,
                maximum_hop_limit: 1,
                remaining_lifetime: Lifetime::from_duration(Duration::from_secs(1)),
                link_layer_sender: SimulatedStation::b().mac,
                payload,
            };
            if let Ok(placed) = host.adaptation.handle_delivery(now, &delivery) {
                host.collect_outputs();
                assert!(host.interfaces.iter().any(|link| link.id == placed.link), "{placed:?}");
                taken += 1;
            }
        }
        if rng.is_true_with_probability(0.01) {
            now += Duration::from_secs(rng.number_below(40));
            host.adaptation.handle_timeout(now);
            assert!(host.adaptation.poll_timeout().is_none_or(|due| due > now));
        }
        host.collect_outputs();
        assert!(host.interfaces.len() <= 5 && host.frames_for_host.len() <= 1, "{:?}", host.interfaces);
        host.frames_for_host.clear();
    }
    // Check that the sublayer accepted enough of the mutated packets; otherwise the test shows nothing.
    assert!(taken > ROUND_COUNT / 20 && settled > ROUND_COUNT / 100, "{taken} {settled}");
}
