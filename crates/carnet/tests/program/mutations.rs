//! Malformed packets: valid packets with random changes.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;

use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::protocol;
use carnet_wire::mobility::{
    BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption, message_type, set_checksum,
};
use carnet_wire::nd;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{
    CARE_OF_ADDRESSES, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT_ADDRESS, Testbed, parse_address,
};
use crate::traffic::{PacketSniffer, RawSender, interface_index};

const ALL_ROUTERS_GROUP: &str = "ff02::2";
const WARM_UP_COUNT: usize = 30_000;
const MUTATION_COUNT: usize = 100_000;

/// A generator of random numbers (xorshift64*) that returns the same numbers in every run.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn next_below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }
}

/// Destination of a packet, and the host that sends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum TargetMachine {
    /// Packets from the core network to the home agent's address.
    Agent,
    /// Packets from the core network to the care-of address.
    Router,
    /// Packets to all routers on the LAN. The host on board sends them.
    Lan,
}

struct ValidPacket {
    target: TargetMachine,
    packet: Vec<u8>,
}

/// Returns the two halves of a packet as fragments.
fn split_into_fragments(packet: &[u8]) -> [Vec<u8>; 2] {
    let middle = (40 + (packet.len() - 40) / 2) & !7;
    let part = |from: usize, to: usize, more: bool| {
        let offset = u16::try_from(from - 40).expect("a small packet");
        let header =
            FragmentHeader { next_header: packet[6], offset, more_fragments: more, identification: 7 }.emit();
        let mut fragment = [&packet[..40], &header, &packet[from..to]].concat();
        fragment[6] = protocol::FRAGMENT;
        set_payload_length(&mut fragment);
        fragment
    };
    [part(40, middle, true), part(middle, packet.len(), false)]
}

fn set_payload_length(packet: &mut [u8]) {
    let length = u16::try_from(packet.len() - 40).expect("a small packet");
    packet[4..6].copy_from_slice(&length.to_be_bytes());
}

/// Returns valid packets: the messages that the stations have sent, and further packets.
fn valid_packets(packets: &[Vec<u8>]) -> Vec<ValidPacket> {
    let (agent, care_of, home) =
        (parse_address(HOME_AGENT_ADDRESS), parse_address(CARE_OF_ADDRESSES[0]), parse_address(HOME_ADDRESS));
    let mut all = Vec::new();
    let mut add = |target, packet: Vec<u8>| all.push(ValidPacket { target, packet });
    let kind =
        |packet: &[u8]| ExtensionHeaders::parse(packet).ok().map(|e| (e.protocol, e.upper_layer_offset));
    let between = |from: Ipv6Addr, to: Ipv6Addr, wanted: u8| {
        let found = packets.iter().find(|packet| {
            packet[8..24] == from.octets()
                && packet[24..40] == to.octets()
                && kind(packet).is_some_and(|(protocol, _)| protocol == wanted)
        });
        found.unwrap_or_else(|| panic!("no packet of protocol {wanted} from {from} to {to}")).clone()
    };
    let update = between(care_of, agent, protocol::MOBILITY);
    let acknowledgement = between(agent, care_of, protocol::MOBILITY);
    let (outwards, inwards) =
        (between(care_of, agent, protocol::IPV6), between(agent, care_of, protocol::IPV6));
    for whole in [&update, &outwards] {
        split_into_fragments(whole).into_iter().for_each(|fragment| add(TargetMachine::Agent, fragment));
    }
    for whole in [&acknowledgement, &inwards] {
        split_into_fragments(whole).into_iter().for_each(|fragment| add(TargetMachine::Router, fragment));
    }
    let too_big = Icmpv6ErrorMessage::PacketTooBig { mtu: 1400 };
    add(
        TargetMachine::Router,
        icmpv6::error_packet(parse_address("2001:db8:f1::1"), care_of, too_big, &outwards),
    );
    add(
        TargetMachine::Agent,
        icmpv6::error_packet(parse_address("2001:db8:f0::1"), agent, too_big, &inwards),
    );
    add(TargetMachine::Agent, update);
    add(TargetMachine::Router, acknowledgement);
    add(TargetMachine::Agent, outwards);
    add(TargetMachine::Router, inwards);

    let flags = BindingUpdateFlags {
        acknowledge: true,
        home_registration: true,
        mobile_router: true,
        ..BindingUpdateFlags::default()
    };
    let prefix =
        MobilityOption::MobileNetworkPrefix { prefix: parse_address("2001:db8:a::"), prefix_length: 64 };
    let unsigned = MobilityHeaderBuilder::binding_update(9, flags, 15)
        .option(&MobilityOption::AlternateCareOfAddress(care_of))
        .option(&prefix)
        .finish();
    for mut header in [unsigned, MobilityHeaderBuilder::binding_refresh_request().finish()] {
        let home_address = (header[2] == message_type::BINDING_UPDATE).then_some(home);
        add(TargetMachine::Agent, control_packet(care_of, agent, home_address, &mut header));
    }
    for mut header in [
        MobilityHeaderBuilder::binding_error(1, home).finish(),
        MobilityHeaderBuilder::binding_refresh_request().finish(),
    ] {
        add(TargetMachine::Router, control_packet(agent, care_of, None, &mut header));
    }

    let lan = parse_address("fe80::99");
    let link = Some([2, 0, 0, 0, 0, 9]);
    let solicitation = nd::RouterSolicitation { source_link_address: link }.emit();
    let neighbour =
        nd::NeighborSolicitation { target: parse_address("2001:db8:a::1"), source_link_address: link }.emit();
    let routers = parse_address(ALL_ROUTERS_GROUP);
    let advertisement = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr::default());
    for message in [solicitation, neighbour, advertisement] {
        add(TargetMachine::Lan, icmpv6::emit_packet(lan, routers, 255, message.clone()));
        add(
            TargetMachine::Router,
            icmpv6::emit_packet(parse_address("2001:db8:f1::99"), care_of, 255, message),
        );
    }
    add(
        TargetMachine::Agent,
        icmpv6::emit_packet(parse_address("2001:db8:f0::1"), agent, 64, vec![128, 0, 0, 0, 0, 1, 0, 1, 5, 5]),
    );
    all
}

fn control_packet(
    from: Ipv6Addr,
    to: Ipv6Addr,
    home_address: Option<Ipv6Addr>,
    header: &mut [u8],
) -> Vec<u8> {
    ControlPacket {
        source: from,
        destination: to,
        hop_limit: 64,
        home_address,
        routing_home_address: None,
        mobility_header: header,
    }
    .emit()
}

/// Changes a packet at random. In half of the cases it corrects the checksum, and in most cases the length,
/// so that the packet passes these checks.
fn mutate_packet(golden: &[u8], numbers: &mut RandomNumbers) -> Vec<u8> {
    let mut packet = golden.to_vec();
    for _ in 0..=numbers.next_below(3) {
        packet.resize(packet.len().max(48), 0);
        let whole = packet.len();
        // Most changes are behind the IPv6 header: the kernel drops most packets with a wrong IPv6 header,
        // and the station never sees them.
        let at = match numbers.next_below(8) {
            0 => 1 + numbers.next_below(23),
            _ => 40 + numbers.next_below(whole - 40),
        };
        match numbers.next_below(8) {
            0 if whole > 48 => packet.truncate(40 + numbers.next_below(whole - 40)),
            1 if whole < 1200 => {
                let more = 1 + numbers.next_below(64);
                packet.extend((0..more).map(|_| numbers.next() as u8));
            }
            2 if at < whole => {
                let end = (at + 1 + numbers.next_below(24)).min(whole);
                let slice = packet[at..end].to_vec();
                let to = 40 + numbers.next_below(whole - 40);
                packet.splice(to..to, slice);
            }
            3 if at < whole => {
                let end = (at + 1 + numbers.next_below(8)).min(whole);
                packet.drain(at..end);
            }
            choice => {
                if let Some(octet) = packet.get_mut(at) {
                    *octet = match choice {
                        4 => 0,
                        5 => 0xff,
                        6 => numbers.next() as u8,
                        _ => *octet ^ (1 << numbers.next_below(8)),
                    };
                }
            }
        }
    }
    packet.resize(packet.len().max(40), 0);
    if numbers.next_below(8) != 0 {
        set_payload_length(&mut packet);
    }
    if numbers.next_below(2) == 0 {
        set_checksums(&mut packet);
    }
    packet
}

fn set_checksums(packet: &mut [u8]) {
    let Ok(extensions) = ExtensionHeaders::parse(packet) else { return };
    let at =
        |from: usize| <[u8; 16]>::try_from(&packet[from..from + 16]).map(Ipv6Addr::from).expect("16 octets");
    let source = extensions.home_address.unwrap_or(at(8));
    let destination = extensions.routing_home_address.unwrap_or(at(24));
    let upper = &mut packet[extensions.upper_layer_offset..];
    match extensions.protocol {
        protocol::MOBILITY => set_checksum(upper, source, destination),
        protocol::ICMPV6 => icmpv6::set_checksum(upper, source, destination),
        _ => {}
    }
}

#[test]
fn mutated_packets_change_no_binding_and_use_no_memory() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let wire = PacketSniffer::start(&bed.core, &["wlan", "ha"]);
    let (mut agent, mut router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let golden = valid_packets(&wire.stop());
    let outside = RawSender::new(&bed.core);
    let inside = RawSender::new(&bed.host);
    let lan = bed.host.run_in_namespace(|| interface_index("eth0"));
    let mut numbers = RandomNumbers(0x5eed_0000_ca12_4e70);
    let mut sent: HashMap<TargetMachine, usize> = HashMap::new();
    let mut throw = |count: usize| {
        let mut hits = 0;
        while hits < count {
            let ValidPacket { target, packet } = &golden[numbers.next_below(golden.len())];
            let mutant = mutate_packet(packet, &mut numbers);
            let is_advertisement = packet.get(40) == Some(&icmpv6::message_type::ROUTER_ADVERTISEMENT);
            if mutant == *packet
                || *target == TargetMachine::Router && is_advertisement && has_valid_checksum(&mutant)
            {
                // A changed Router Advertisement that is still valid would rightly change the kernel's
                // routes, so do not send it.
                continue;
            }
            let hit = match target {
                TargetMachine::Agent => outside.send_packet(&mutant, parse_address(HOME_AGENT_ADDRESS), 0),
                TargetMachine::Router => outside.send_packet(&mutant, parse_address(CARE_OF_ADDRESSES[0]), 0),
                TargetMachine::Lan => inside.send_packet(&mutant, parse_address(ALL_ROUTERS_GROUP), lan),
            };
            if !hit {
                continue;
            }
            hits += 1;
            *sent.entry(*target).or_default() += 1;
            if hits % 50 == 0 {
                // Pause between packets, so that the stations can process all of them.
                thread::sleep(Duration::from_millis(4));
            }
        }
    };

    let bindings = agent.bindings();
    throw(WARM_UP_COUNT);
    let drops = |station: &Station| {
        station.sum_of_counters("mobility.dropped.") + station.sum_of_counters("tunnel.dropped.")
    };
    let memory = (agent.allocated_memory_kb(), router.allocated_memory_kb());
    let before = (drops(&agent), drops(&router));
    throw(MUTATION_COUNT);
    let after = (drops(&agent), drops(&router));
    let grown = (agent.allocated_memory_kb() - memory.0, router.allocated_memory_kb() - memory.1);
    println!(
        "mutations sent {sent:?} ({WARM_UP_COUNT} to warm up); dropped by the agent {}, by the router {}; \
         allocated: agent {} kB {:+} kB, router {} kB {:+} kB",
        after.0 - before.0,
        after.1 - before.1,
        memory.0,
        grown.0,
        memory.1,
        grown.1
    );
    assert!(agent.is_running() && router.is_running());
    assert!(!(agent.log_text() + &router.log_text()).contains("panicked"));
    // Any host can cause refused Binding Updates, so log lines about them must not fill the disk.
    let lines = agent.log_text().lines().count();
    assert!(lines < 200, "{lines} lines in the agent's log");
    assert!(after.0 - before.0 > 5_000 && after.1 - before.1 > 2_000, "too few arrived");
    assert!(grown.0 < 512 && grown.1 < 512, "memory grew by {grown:?} kB");
    assert_eq!(agent.bindings(), bindings);
    assert_eq!(agent.log_text().matches("binding created").count(), 1, "{}", agent.log_text());
    assert_eq!(agent.log_text().matches("binding moved").count(), 0, "{}", agent.log_text());
    assert_eq!(router.mobile_router_state(), "registered");
    // The kernels may have to resolve their neighbours again before packets pass.
    wait_until("traffic flows", seconds(60), || bed.host.can_ping(CORRESPONDENT));
    router.terminate();
    agent.terminate();
}

/// Returns whether a Neighbor Discovery message has hop limit 255 and a right checksum.
fn has_valid_checksum(packet: &[u8]) -> bool {
    packet[7] == 255 && {
        let at =
            |from: usize| <[u8; 16]>::try_from(&packet[from..from + 16]).map(Ipv6Addr::from).expect("16");
        icmpv6::verify_checksum(at(8), at(24), &packet[40..]).is_ok()
    }
}
