//! A registered router can make the home agent send packets to a third party. The home agent limits how many
//! copies it sends of each received packet.

use carnet_wire::ipv6::protocol;
use carnet_wire::mobility::flow_identification::emit_sub_options;
use carnet_wire::mobility::traffic_selector::{Ipv6Selector, TrafficSelector};
use carnet_wire::mobility::{BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption};

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_AGENT_ADDRESS, Testbed, parse_address};
use crate::traffic::{PacketSniffer, RawSender};

/// Config of nodes that have no key.
const NODE_ENTRIES: &str = "
[[home_agent.mobile_router]]
home_address = '2001:db8:1::5678'
prefixes = ['2001:db8:c0::/64']
auth = 'none'

[[home_agent.mobile_router]]
home_address = '2001:db8:1::9abc'
prefixes = ['2001:db8:d0::/64']
auth = 'none'
";

/// Returns a Binding Update that registers sixteen care-of addresses of a network, and a flow binding that
/// sends packets to all sixteen.
fn registration_update(home_address: &str, network: &str) -> Vec<u8> {
    let place = |n: u16| parse_address(&format!("{network}{n:x}"));
    let flags = BindingUpdateFlags {
        acknowledge: true,
        home_registration: true,
        mobile_router: true,
        overwrite: true,
        ..Default::default()
    };
    let bids: Vec<u16> = (1..=16).collect();
    let identifiers = bids.iter().map(|bid| MobilityOption::BindingIdentifier {
        bid: *bid,
        status: 0,
        home: false,
        priority: 10,
        care_of_address: Some(place(0x100 + bid).into()),
    });
    let everything = emit_sub_options(Some(&TrafficSelector::Ipv6(Ipv6Selector::default())), &bids);
    let flow =
        MobilityOption::FlowIdentification { fid: 1, priority: 1, status: 0, sub_options: &everything };
    let builder = identifiers
        .fold(MobilityHeaderBuilder::binding_update(1, flags, 100), |builder, option| {
            builder.option(&option)
        });
    ControlPacket {
        source: place(0x101),
        destination: parse_address(HOME_AGENT_ADDRESS),
        hop_limit: 64,
        home_address: Some(parse_address(home_address)),
        routing_home_address: None,
        mobility_header: &mut builder.option(&flow).finish(),
    }
    .emit()
}

/// Returns a UDP packet of 148 octets to this destination.
fn data_packet(destination: &str) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 108, protocol::UDP, 64];
    packet.extend(parse_address(CORRESPONDENT).octets());
    packet.extend(parse_address(destination).octets());
    packet.extend([0x10, 0x92, 0x10, 0x92, 0, 108, 0, 0]);
    packet.resize(148, 0x55);
    packet
}

/// Returns number and octets of the tunnelled packets that the home agent has sent, among the captured ones.
fn count_tunnelled_copies(packets: &[Vec<u8>]) -> (usize, usize) {
    let from_agent =
        |packet: &&Vec<u8>| packet.get(8..24) == Some(&parse_address(HOME_AGENT_ADDRESS).octets()[..]);
    let is_tunnelled = |packet: &&Vec<u8>| {
        packet.get(6).is_some_and(|kind| {
            matches!(*kind, protocol::IPV6 | protocol::DESTINATION_OPTIONS | protocol::FRAGMENT)
        })
    };
    let packets = packets.iter().filter(from_agent).filter(is_tunnelled);
    packets.fold((0, 0), |(packets, octets), packet| (packets + 1, octets + packet.len()))
}

#[test]
fn router_sends_at_most_four_copies_of_a_packet() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    // No node answers at these care-of addresses, so the home agent's care-of test must be off.
    let config = bed.agent_config().replace("[home_agent]\n", "[home_agent]\ncare_of_test = 'off'\n");
    let agent = Station::start(&bed.agent, &(config + NODE_ENTRIES));
    for network in ["2001:db8:c0::/64", "2001:db8:d0::/64"] {
        bed.core.run_ip(&format!("-6 route add {network} via 2001:db8:f0::2"));
    }
    let cannon = RawSender::new(&bed.core);
    // The care-of addresses of the first node belong to a third party. Those of the second node are in the
    // first node's network.
    for (home_address, network) in
        [("2001:db8:1::5678", "2001:db8:f1::"), ("2001:db8:1::9abc", "2001:db8:c0::")]
    {
        let before = agent.bindings().len();
        let update = registration_update(home_address, network);
        wait_until("sixteen bindings", seconds(20), || {
            if agent.bindings().len() == before {
                cannon.send_packet(&update, parse_address(HOME_AGENT_ADDRESS), 0);
            }
            agent.bindings().len() == before + 16
        });
    }
    let sniffer = PacketSniffer::start(&bed.core, &["ha"]);
    let started = std::time::Instant::now();
    for (to, count) in [("2001:db8:c0::5", 100), ("2001:db8:d0::5", 20)] {
        let (before, octets_before) = count_tunnelled_copies(&sniffer.seen_packets());
        for _ in 0..count {
            assert!(cannon.send_packet(&data_packet(to), parse_address(to), 0));
        }
        wait_until("the packets", seconds(10), || {
            count_tunnelled_copies(&sniffer.seen_packets()).0 >= before + count
        });
        std::thread::sleep(seconds(1));
        let (after, octets_after) = count_tunnelled_copies(&sniffer.seen_packets());
        let (packets, octets) = (after - before, octets_after - octets_before);
        // Besides the copies, the home agent sends path MTU probes to two routers. The limits of probing
        // allow at most this number of probes.
        let probes = 2 * (64 + 17 + 10 * (started.elapsed().as_secs() as usize + 1));
        println!("{count} packets to {to}: {packets} packets, {octets} octets of {}", count * 148);
        assert!(packets <= 4 * count + probes, "{packets} packets for {count}");
    }
    assert!(agent.counter("tunnel.not_duplicated") >= 80, "tunnel packets are not copied again");
    sniffer.stop();
}
