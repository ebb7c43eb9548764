//! Malformed packets: valid packets with random changes.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;

use carnet_wire::extension::Extensions;
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::icmpv6::{self, ErrorMessage};
use carnet_wire::ipv6::protocol;
use carnet_wire::mobility::{
    BindingUpdateFlags, Builder, ControlPacket, MobilityOption, message_type, set_checksum,
};
use carnet_wire::nd;

use crate::hosts::{possible, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CARE_OF, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT, Testbed, address};
use crate::traffic::{Cannon, Sniffer, index};

const ALL_ROUTERS: &str = "ff02::2";
const WARM_UP: usize = 30_000;
const MUTATIONS: usize = 100_000;

/// A generator of random numbers (xorshift64*) that returns the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn under(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }
}

/// Destination of a packet, and the host that sends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Target {
    /// Packets from the core network to the home agent's address.
    Agent,
    /// Packets from the core network to the care-of address.
    Router,
    /// All routers on the LAN; the host inside sends.
    Lan,
}

struct Golden {
    target: Target,
    packet: Vec<u8>,
}

/// Returns the two halves of a packet as fragments.
fn fragments(packet: &[u8]) -> [Vec<u8>; 2] {
    let middle = (40 + (packet.len() - 40) / 2) & !7;
    let part = |from: usize, to: usize, more: bool| {
        let offset = u16::try_from(from - 40).expect("a small packet");
        let header =
            FragmentHeader { next_header: packet[6], offset, more_fragments: more, identification: 7 }.emit();
        let mut fragment = [&packet[..40], &header, &packet[from..to]].concat();
        fragment[6] = protocol::FRAGMENT;
        set_length(&mut fragment);
        fragment
    };
    [part(40, middle, true), part(middle, packet.len(), false)]
}

fn set_length(packet: &mut [u8]) {
    let length = u16::try_from(packet.len() - 40).expect("a small packet");
    packet[4..6].copy_from_slice(&length.to_be_bytes());
}

/// Returns valid packets: the messages that the stations have sent, and further packets.
fn golden(heard: &[Vec<u8>]) -> Vec<Golden> {
    let (agent, care_of, home) = (address(HOME_AGENT), address(CARE_OF[0]), address(HOME_ADDRESS));
    let mut all = Vec::new();
    let mut add = |target, packet: Vec<u8>| all.push(Golden { target, packet });
    let kind = |packet: &[u8]| Extensions::parse(packet).ok().map(|e| (e.protocol, e.upper_layer_offset));
    let between = |from: Ipv6Addr, to: Ipv6Addr, wanted: u8| {
        let found = heard.iter().find(|packet| {
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
        fragments(whole).into_iter().for_each(|fragment| add(Target::Agent, fragment));
    }
    for whole in [&acknowledgement, &inwards] {
        fragments(whole).into_iter().for_each(|fragment| add(Target::Router, fragment));
    }
    let too_big = ErrorMessage::PacketTooBig { mtu: 1400 };
    add(Target::Router, icmpv6::error_packet(address("2001:db8:f1::1"), care_of, too_big, &outwards));
    add(Target::Agent, icmpv6::error_packet(address("2001:db8:f0::1"), agent, too_big, &inwards));
    add(Target::Agent, update);
    add(Target::Router, acknowledgement);
    add(Target::Agent, outwards);
    add(Target::Router, inwards);

    let flags = BindingUpdateFlags {
        acknowledge: true,
        home_registration: true,
        mobile_router: true,
        ..BindingUpdateFlags::default()
    };
    let prefix = MobilityOption::MobileNetworkPrefix { prefix: address("2001:db8:a::"), prefix_length: 64 };
    let unsigned = Builder::binding_update(9, flags, 15)
        .option(&MobilityOption::AlternateCareOfAddress(care_of))
        .option(&prefix)
        .finish();
    for mut header in [unsigned, Builder::binding_refresh_request().finish()] {
        let home_address = (header[2] == message_type::BINDING_UPDATE).then_some(home);
        add(Target::Agent, control(care_of, agent, home_address, &mut header));
    }
    for mut header in [Builder::binding_error(1, home).finish(), Builder::binding_refresh_request().finish()]
    {
        add(Target::Router, control(agent, care_of, None, &mut header));
    }

    let lan = address("fe80::99");
    let link = Some([2, 0, 0, 0, 0, 9]);
    let solicitation = nd::RouterSolicitation { source_link_address: link }.emit();
    let neighbour =
        nd::NeighborSolicitation { target: address("2001:db8:a::1"), source_link_address: link }.emit();
    let routers = address(ALL_ROUTERS);
    let advertisement = nd::router_advertisement(&nd::RouterAdvertisementRepr::default());
    for message in [solicitation, neighbour, advertisement] {
        add(Target::Lan, icmpv6::packet(lan, routers, 255, message.clone()));
        add(Target::Router, icmpv6::packet(address("2001:db8:f1::99"), care_of, 255, message));
    }
    add(
        Target::Agent,
        icmpv6::packet(address("2001:db8:f0::1"), agent, 64, vec![128, 0, 0, 0, 0, 1, 0, 1, 5, 5]),
    );
    all
}

fn control(from: Ipv6Addr, to: Ipv6Addr, home_address: Option<Ipv6Addr>, header: &mut [u8]) -> Vec<u8> {
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
fn mutate(golden: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut packet = golden.to_vec();
    for _ in 0..=numbers.under(3) {
        packet.resize(packet.len().max(48), 0);
        let whole = packet.len();
        // Most changes are behind the IPv6 header, because the kernel drops most packets with a wrong header.
        let at = match numbers.under(8) {
            0 => 1 + numbers.under(23),
            _ => 40 + numbers.under(whole - 40),
        };
        match numbers.under(8) {
            0 if whole > 48 => packet.truncate(40 + numbers.under(whole - 40)),
            1 if whole < 1200 => {
                let more = 1 + numbers.under(64);
                packet.extend((0..more).map(|_| numbers.next() as u8));
            }
            2 if at < whole => {
                let end = (at + 1 + numbers.under(24)).min(whole);
                let slice = packet[at..end].to_vec();
                let to = 40 + numbers.under(whole - 40);
                packet.splice(to..to, slice);
            }
            3 if at < whole => {
                let end = (at + 1 + numbers.under(8)).min(whole);
                packet.drain(at..end);
            }
            choice => {
                if let Some(octet) = packet.get_mut(at) {
                    *octet = match choice {
                        4 => 0,
                        5 => 0xff,
                        6 => numbers.next() as u8,
                        _ => *octet ^ (1 << numbers.under(8)),
                    };
                }
            }
        }
    }
    packet.resize(packet.len().max(40), 0);
    if numbers.under(8) != 0 {
        set_length(&mut packet);
    }
    if numbers.under(2) == 0 {
        set_checksums(&mut packet);
    }
    packet
}

fn set_checksums(packet: &mut [u8]) {
    let Ok(extensions) = Extensions::parse(packet) else { return };
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
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let wire = Sniffer::start(&bed.core, &["wlan", "ha"]);
    let (mut agent, mut router) = bed.start();
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    let golden = golden(&wire.stop());
    let outside = Cannon::new(&bed.core);
    let inside = Cannon::new(&bed.host);
    let lan = bed.host.run(|| index("eth0"));
    let mut numbers = Numbers(0x5eed_0000_ca12_4e70);
    let mut sent: HashMap<Target, usize> = HashMap::new();
    let mut throw = |count: usize| {
        let mut hits = 0;
        while hits < count {
            let Golden { target, packet } = &golden[numbers.under(golden.len())];
            let mutant = mutate(packet, &mut numbers);
            let is_advertisement = packet.get(40) == Some(&icmpv6::types::ROUTER_ADVERTISEMENT);
            if mutant == *packet || *target == Target::Router && is_advertisement && is_good(&mutant) {
                // If a changed Router Advertisement is valid, the kernel would rightly accept it, so the test
                // does not send it.
                continue;
            }
            let hit = match target {
                Target::Agent => outside.fire(&mutant, address(HOME_AGENT), 0),
                Target::Router => outside.fire(&mutant, address(CARE_OF[0]), 0),
                Target::Lan => inside.fire(&mutant, address(ALL_ROUTERS), lan),
            };
            if !hit {
                continue;
            }
            hits += 1;
            *sent.entry(*target).or_default() += 1;
            if hits % 50 == 0 {
                // With this pause between packets, the stations can process all of them.
                thread::sleep(Duration::from_millis(4));
            }
        }
    };

    let bindings = agent.bindings();
    throw(WARM_UP);
    let drops =
        |station: &Station| station.counters("mobility.dropped.") + station.counters("tunnel.dropped.");
    let memory = (agent.allocated(), router.allocated());
    let before = (drops(&agent), drops(&router));
    throw(MUTATIONS);
    let after = (drops(&agent), drops(&router));
    let grown = (agent.allocated() - memory.0, router.allocated() - memory.1);
    println!(
        "mutations sent {sent:?} ({WARM_UP} to warm up); dropped by the agent {}, by the router {}; \
         allocated: agent {} kB {:+} kB, router {} kB {:+} kB",
        after.0 - before.0,
        after.1 - before.1,
        memory.0,
        grown.0,
        memory.1,
        grown.1
    );
    assert!(agent.lives() && router.lives());
    assert!(!(agent.log() + &router.log()).contains("panicked"));
    // Any host can cause refused Binding Updates, so log lines about them must not fill the disk.
    let lines = agent.log().lines().count();
    assert!(lines < 200, "{lines} lines in the agent's log");
    assert!(after.0 - before.0 > 5_000 && after.1 - before.1 > 2_000, "too few arrived");
    assert!(grown.0 < 512 && grown.1 < 512, "memory grew by {grown:?} kB");
    assert_eq!(agent.bindings(), bindings);
    assert_eq!(agent.log().matches("binding created").count(), 1, "{}", agent.log());
    assert_eq!(agent.log().matches("binding moved").count(), 0, "{}", agent.log());
    assert_eq!(router.state(), "registered");
    // The kernels may have to resolve their neighbours again before packets pass.
    wait_until("traffic flows", seconds(60), || bed.host.pings(CORRESPONDENT));
    router.terminate();
    agent.terminate();
}

/// Returns whether a Neighbor Discovery message is valid.
fn is_good(packet: &[u8]) -> bool {
    packet[7] == 255 && {
        let at =
            |from: usize| <[u8; 16]>::try_from(&packet[from..from + 16]).map(Ipv6Addr::from).expect("16");
        icmpv6::verify_checksum(at(8), at(24), &packet[40..]).is_ok()
    }
}
