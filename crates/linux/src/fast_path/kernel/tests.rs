//! Tests the computation of entries for a set of tunnels, without a kernel.

use carnet_nemo::forwarding::desired::{Rule, TABLE_MAIN, TABLE_TUNNEL, TunnelEnd};

use super::*;
use crate::netlink::KernelRuleAction;

const HOME_AGENT_ADDRESS: &str = "2001:db8:1::1";
const HOME_ADDRESS: &str = "2001:db8:1::1234";
const MOBILE_NETWORK_PREFIX: &str = "2001:db8:a::/64";

fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn parse_ipv6_net(text: &str) -> Ipv6Net {
    text.parse().expect("a prefix")
}

fn new_tunnel(end: TunnelEnd, care_of_address: &str, transmit: bool) -> Ipv6Tunnel {
    let (agent, care_of_address) = (parse_address(HOME_AGENT_ADDRESS), parse_address(care_of_address));
    let (local, remote) = match end {
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (agent, care_of_address),
        TunnelEnd::MobileRouter => (care_of_address, agent),
    };
    let inner = vec![Ipv6Net::from(parse_address(HOME_ADDRESS)), parse_ipv6_net(MOBILE_NETWORK_PREFIX)];
    Ipv6Tunnel {
        end,
        home_address: parse_address(HOME_ADDRESS),
        local,
        remote,
        inner_prefixes: inner,
        may_transmit: transmit,
        mtu: 1460,
    }
}

/// Returns the entries in the notation of `ip`, in order of installation.
fn planned_entries(tunnels: &DesiredTunnels, slow: &[(u32, &str)]) -> Vec<String> {
    let numbers = tunnels.addresses_of_devices().into_iter().enumerate();
    let devices: BTreeMap<TunnelAddresses, String> =
        numbers.map(|(n, ends)| (ends, format!("cn{n}"))).collect();
    let slow = slow.iter().map(|(table, prefix)| (*table, parse_ipv6_net(prefix))).collect();
    let plan = plan_entries(tunnels, &devices, &slow, &["wlan0".to_owned()]);
    plan.iter().map(|(key, value)| describe_entry(key, value)).collect()
}

fn describe_entry(key: &KernelEntryKey, value: &KernelEntryValue) -> String {
    match key {
        KernelEntryKey::AgentRoute => "agent route".into(),
        KernelEntryKey::Guard(rule) | KernelEntryKey::Accept(rule) => describe_rule(rule),
        KernelEntryKey::Address(address) => format!("address {address}"),
        KernelEntryKey::Device((local, remote)) => {
            format!("{} local {local} remote {remote} mtu {}", value.device_name, value.mtu)
        }
        KernelEntryKey::Route(table, destination) => {
            format!("{destination} dev {} table {table}", value.device_name)
        }
    }
}

fn describe_rule((rule, action): &(Rule, KernelRuleAction)) -> String {
    let mut text = format!("{}:", rule.priority);
    let parts = [
        ("iif", rule.input_interface.clone()),
        ("from", rule.from.map(|net| net.to_string())),
        ("to", rule.to.map(|net| net.to_string())),
        ("ipproto", rule.protocol.map(|number| number.to_string())),
    ];
    for (word, value) in parts {
        text += &value.map(|value| format!(" {word} {value}")).unwrap_or_default();
    }
    text + &match action {
        KernelRuleAction::Lookup => format!(" lookup {}", rule.table),
        KernelRuleAction::Goto(priority) => format!(" goto {priority}"),
        KernelRuleAction::Nothing => " nop".into(),
        KernelRuleAction::Discard => " blackhole".into(),
        KernelRuleAction::Other => " ?".into(),
    }
}

#[test]
fn binding_of_home_agent_gets_a_tunnel_device() {
    let mut tunnels = DesiredTunnels::default();
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", true));
    let home = format!("{HOME_ADDRESS}/128");
    assert_eq!(
        planned_entries(&tunnels, &[(TABLE_MAIN, &home), (TABLE_MAIN, MOBILE_NETWORK_PREFIX)]),
        [
            "agent route",
            "90: iif cn0 from 2001:db8:1::1234/128 goto 94",
            "90: iif cn0 from 2001:db8:a::/64 goto 94",
            "92: iif cn0 blackhole",
            "94: nop",
            "95: iif carnet0 to 2001:db8:1::1/128 ipproto 58 lookup 255",
            "98: to 2001:db8:1::1/128 lookup 13503",
            "address 2001:db8:1::1",
            "cn0 local 2001:db8:1::1 remote 2001:db8:f1::10 mtu 1460",
            "95: from 2001:db8:f1::10/128 to 2001:db8:1::1/128 ipproto 41 lookup 255",
            "2001:db8:1::1234/128 dev cn0 table 254",
            "2001:db8:a::/64 dev cn0 table 254",
        ]
    );
}

#[test]
fn registered_mobile_router_gets_a_tunnel_device() {
    let mut tunnels = DesiredTunnels::default();
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", true));
    assert_eq!(
        planned_entries(&tunnels, &[(TABLE_TUNNEL, "::/0"), (13_500, "::/0")]),
        [
            "88: iif cn0 from 64:ff9b::/96 goto 90",
            "88: iif cn0 from 64:ff9b:1::/48 goto 90",
            "89: iif cn0 from ::/8 blackhole",
            "90: iif cn0 to 2001:db8:1::1234/128 goto 94",
            "90: iif cn0 to 2001:db8:a::/64 goto 94",
            "92: iif cn0 blackhole",
            "94: nop",
            "96: iif cn0 from 2001:db8:1::1/128 to 2001:db8:1::1234/128 ipproto 58 lookup 13500",
            "97: from 2001:db8:1::1/128 to 2001:db8:f1::10/128 ipproto 41 lookup 13502",
            "cn0 local 2001:db8:f1::10 remote 2001:db8:1::1 mtu 1460",
            "95: iif wlan0 from 2001:db8:1::1/128 to 2001:db8:f1::10/128 ipproto 41 lookup 255",
            "::/0 dev cn0 table 13501",
        ]
    );
}

#[test]
fn handover_replaces_routes_and_old_device_still_receives() {
    let mut tunnels = DesiredTunnels::default();
    let routes = [(TABLE_MAIN, MOBILE_NETWORK_PREFIX)];
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", true));
    let before = planned_entries(&tunnels, &routes);
    // A handover sets the new tunnel before it removes the old one; for a moment both tunnels may transmit.
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f2::10", true));
    let between = planned_entries(&tunnels, &routes);
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", false));
    let after = planned_entries(&tunnels, &routes);
    assert_eq!(between, after);
    let gone: Vec<&String> = before.iter().filter(|line| !after.contains(line)).collect();
    assert_eq!(gone, ["2001:db8:a::/64 dev cn0 table 254"]);
    assert!(after.contains(&"2001:db8:a::/64 dev cn1 table 254".to_owned()));
    // After the old tunnel is removed, the entries are those of a registration from the new care-of address.
    tunnels.remove_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", false));
    let mut fresh = DesiredTunnels::default();
    fresh.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f2::10", true));
    assert_eq!(planned_entries(&tunnels, &routes), planned_entries(&fresh, &routes));
}

#[test]
fn tunnel_device_without_route_only_receives() {
    let mut tunnels = DesiredTunnels::default();
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", true));
    // At home no route leads into the tunnel, but the tunnel still receives packets that are in transit.
    let lines = planned_entries(&tunnels, &[]);
    assert!(lines.iter().any(|line| line.starts_with("cn0 local")));
    assert!(!lines.iter().any(|line| line.contains("dev cn0")), "{lines:?}");
    // A tunnel of a mobile router that may not transmit has no routes into its device.
    let mut tunnels = DesiredTunnels::default();
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", false));
    let lines = planned_entries(&tunnels, &[(TABLE_TUNNEL, "::/0")]);
    assert!(!lines.iter().any(|line| line.contains("dev cn0")), "{lines:?}");
}

#[test]
fn bindings_with_one_care_of_address_share_a_tunnel_device() {
    let mut tunnels = DesiredTunnels::default();
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", true));
    let mut other = new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", true);
    other.home_address = parse_address("2001:db8:1::5678");
    other.inner_prefixes = vec![parse_ipv6_net("2001:db8:b::/64")];
    other.mtu = 1300;
    tunnels.set_tunnel(&other);
    let routes = [(TABLE_MAIN, MOBILE_NETWORK_PREFIX), (TABLE_MAIN, "2001:db8:b::/64")];
    let lines = planned_entries(&tunnels, &routes);
    let devices: Vec<&String> = lines.iter().filter(|line| line.contains(" mtu ")).collect();
    assert_eq!(devices, ["cn0 local 2001:db8:1::1 remote 2001:db8:f1::10 mtu 1300"]);
    assert!(lines.contains(&"90: iif cn0 from 2001:db8:b::/64 goto 94".to_owned()));
    assert!(lines.contains(&"2001:db8:b::/64 dev cn0 table 254".to_owned()));
    // Two tunnel ends get a device only if no outer packet between them must be fragmented.
    assert_eq!(tunnels.addresses_of_paths_with_sufficient_mtu(), tunnels.addresses_of_devices());
    other.mtu = 1279;
    tunnels.set_tunnel(&other);
    assert_eq!(tunnels.addresses_of_paths_with_sufficient_mtu(), BTreeSet::new());
}

#[test]
fn slow_path_handles_tunnel_without_a_device() {
    let mut tunnels = DesiredTunnels::default();
    tunnels.set_tunnel(&new_tunnel(TunnelEnd::HomeAgent, "2001:db8:f1::10", true));
    let slow = BTreeSet::from([(TABLE_MAIN, parse_ipv6_net(MOBILE_NETWORK_PREFIX))]);
    assert!(plan_entries(&tunnels, &BTreeMap::new(), &slow, &[]).is_empty());
}

#[test]
fn device_gets_no_name_in_use() {
    assert_eq!(free_device_name(|name| ["cn0", "cn2"].contains(&name)), "cn1");
}

#[test]
fn device_statistics_are_read() {
    let text = "Inter-|   Receive                                                |  Transmit\n \
                face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n\
                \x20  cn1: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n\
                \x20  cn0: 100 1 2 3 0 0 0 0 200 5 6 7 0 0 0 0\n";
    let found = parse_device_counts(text, "cn0");
    let expected = TunnelTraffic {
        encapsulated_packets: 5,
        encapsulated_octets: 200,
        decapsulated_packets: 1,
        decapsulated_octets: 100,
    };
    assert_eq!(found, FastPathCounts { tunnel_traffic: expected, failed_packets: 2 + 3 + 6 + 7 });
    assert_eq!(parse_device_counts(text, "cn"), FastPathCounts::default());
}

/// Returns an ICMPv6 message to `to` that quotes a packet.
fn icmpv6_error_quoting(kind: u8, to: &str, quoted: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 58, 64];
    packet.extend(parse_address("2001:db8:f0::1").octets());
    packet.extend(parse_address(to).octets());
    packet.extend([kind, 0, 0, 0, 0, 0, 5, 0]);
    packet.extend(quoted);
    packet
}

fn outer_packet(next_header: u8, source: &str, destination: &str) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next_header, 64];
    packet.extend(parse_address(source).octets());
    packet.extend(parse_address(destination).octets());
    packet
}

fn quoted_addresses_of_packet(packet: &[u8]) -> Option<TunnelAddresses> {
    let (destination, message) = parse_icmpv6_packet(packet)?;
    quoted_tunnel_addresses(destination, message)
}

#[test]
fn icmp_errors_about_outer_packets_are_recognised() {
    let ends = (parse_address(HOME_AGENT_ADDRESS), parse_address("2001:db8:f1::10"));
    let quoted = outer_packet(41, HOME_AGENT_ADDRESS, "2001:db8:f1::10");
    for kind in 1..=4 {
        assert_eq!(
            quoted_addresses_of_packet(&icmpv6_error_quoting(kind, HOME_AGENT_ADDRESS, &quoted)),
            Some(ends)
        );
    }
    for kind in [0, 5, 128, 129, 135] {
        assert_eq!(
            quoted_addresses_of_packet(&icmpv6_error_quoting(kind, HOME_AGENT_ADDRESS, &quoted)),
            None
        );
    }
    // No tunnel ends result if the quoted packet is a Binding Acknowledgement, another host's packet, or
    // truncated.
    assert_eq!(
        quoted_addresses_of_packet(&icmpv6_error_quoting(
            2,
            HOME_AGENT_ADDRESS,
            &outer_packet(43, HOME_AGENT_ADDRESS, "2001:db8:f1::10")
        )),
        None
    );
    assert_eq!(
        quoted_addresses_of_packet(&icmpv6_error_quoting(
            2,
            HOME_AGENT_ADDRESS,
            &outer_packet(41, HOME_ADDRESS, "2001:db8:f1::10")
        )),
        None
    );
    let whole = icmpv6_error_quoting(2, HOME_AGENT_ADDRESS, &quoted);
    for length in 0..whole.len() {
        assert_eq!(quoted_addresses_of_packet(&whole[..length]), None);
    }
}

/// RFC 8201 4: a node must discard a Packet Too Big that reports an MTU below the minimum.
#[test]
fn only_packet_too_big_with_mtu_from_1280_to_1319_marks_a_narrow_path() {
    let narrow =
        |kind: u8, mtu: u32| parse_small_mtu(&[&[kind, 0, 0, 0][..], &mtu.to_be_bytes(), &[0; 40]].concat());
    assert_eq!([1280, 1300, 1319].map(|mtu| narrow(2, mtu)), [Some(1280), Some(1300), Some(1319)]);
    assert_eq!([0, 68, 1279, 1320, 1500].map(|mtu| narrow(2, mtu)), [None; 5]);
    assert_eq!((narrow(3, 1300), parse_small_mtu(&[2, 0, 0, 0, 0, 0, 5])), (None, None));
}
