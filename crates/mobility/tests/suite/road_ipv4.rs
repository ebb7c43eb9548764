//! Uplinks with IPv4 only, with IPv6 only and with both: the mobile router's side of RFC 5555, and of RFC
//! 5648 8.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use carnet_base::Endpoint;
use carnet_mobility::mobile_router::{HeartbeatIntervals, MobileRouterConfig};

use crate::test_messages::*;
use crate::vehicle_on_road::*;

const PRIVATE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PUBLIC_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const NAT_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn config_without_identifiers() -> MobileRouterConfig {
    let mut config = config();
    for uplink in &mut config.uplinks {
        uplink.bid = None;
    }
    config
}

fn road_behind_nat(config: MobileRouterConfig, timeout: u64) -> VehicleOnRoad {
    let mut road = VehicleOnRoad::new(config);
    road.network_mut("cell").nat = Some(TestNat::new(NAT_ADDRESS, Duration::from_secs(timeout)));
    road.attach_uplink("cell", None, Some(PRIVATE_ADDRESS));
    road.advance_seconds(1.0);
    assert!(road.is_traffic_carried(), "{}", road.describe_state());
    road
}

fn endpoint_text(endpoint: Endpoint) -> String {
    endpoint.to_string()
}

/// RFC 5555 4.2, 4.4.2: the Binding Update leaves in UDP, with the home address and the IPv4 Care-of Address
/// option. Behind a NAT data goes in UDP too.
#[test]
fn router_registers_over_a_single_ipv4_uplink_behind_nat() {
    for config in [config(), config_without_identifiers()] {
        let identified = config.uplinks[0].bid.is_some();
        let road = road_behind_nat(config, 120);
        let update = road.last_update();
        assert_eq!(update.tunnel_end.map(endpoint_text), Some(format!("udp:{PRIVATE_ADDRESS}:4191")));
        assert_eq!(update.received_packet.source, addr(HOME_ADDRESS), "the IPv6 source is the home address");
        assert_eq!(update.received_packet.home_address, None);
        if identified {
            assert_eq!(update.binding_identifiers[0].2, Some(PRIVATE_ADDRESS.into()), "RFC 5648 8.1");
        }
        assert_eq!(update.ipv4_care_of, (!identified).then_some(PRIVATE_ADDRESS));
        let path = road.router.paths()[0];
        assert!(path.may_transmit);
        assert_eq!(endpoint_text(path.local), format!("udp:{PRIVATE_ADDRESS}:4191"));
        assert_eq!(endpoint_text(path.remote), format!("udp:{AGENT_IPV4}:4191"));
        assert_eq!(road.registered_endpoints(), [Endpoint::Udp(SocketAddrV4::new(NAT_ADDRESS, 20_001))]);
    }
}

/// RFC 5555 4.2: without a NAT data goes in plain IPv4, unless the router asks for UDP; Binding Updates
/// always go in UDP.
#[test]
fn router_encapsulates_in_plain_ipv4_without_a_nat() {
    for (force_udp, config) in [
        (false, config()),
        (true, config()),
        (false, config_without_identifiers()),
        (true, config_without_identifiers()),
    ] {
        let mut road = VehicleOnRoad::new(MobileRouterConfig { force_udp, ..config });
        road.attach_uplink("cell", None, Some(PUBLIC_ADDRESS));
        road.advance_seconds(1.0);
        assert!(road.is_traffic_carried());
        assert!(matches!(road.last_update().tunnel_end, Some(Endpoint::Udp(_))));
        let ReceivedMessage::Update { flags, .. } = road.last_update().received_packet.message else {
            panic!("an update")
        };
        assert_eq!(flags.force_udp, force_udp, "3.1.3: the F flag");
        let local = road.router.paths()[0].local;
        assert_eq!(matches!(local, Endpoint::Udp(_)), force_udp, "{local}");
        assert_eq!(matches!(road.registered_endpoints()[0], Endpoint::Udp(_)), force_udp);
    }
}

/// RFC 5555 4.4.1: the router soon asks for UDP in a network that drops protocol 41.
#[test]
fn router_uses_udp_if_network_drops_protocol_41() {
    let mut road = VehicleOnRoad::new(config());
    road.network_mut("cell").loses_protocol41 = true;
    road.attach_uplink("cell", None, Some(PUBLIC_ADDRESS));
    road.advance_while(3.0, "carried", |road| !road.is_traffic_carried());
    assert!(matches!(road.registered_endpoints()[0], Endpoint::Udp(_)));
    road.advance_seconds(60.0);
    assert!(road.is_traffic_carried());
}

/// RFC 8305: the router prefers IPv6, and does not try IPv4 if IPv6 works.
#[test]
fn router_prefers_ipv6_if_both_ip_versions_work() {
    for config in [config(), config_without_identifiers()] {
        let mut road = VehicleOnRoad::new(config);
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
        road.advance_seconds(10.0);
        assert!(road.sent_updates.iter().all(|update| update.tunnel_end.is_none()));
        assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f1::10")]);
    }
}

/// RFC 8305 5: if IPv6 leads nowhere, the router tries IPv4 after 250 ms, and stays with it.
#[test]
fn ipv4_registration_starts_250_ms_after_ipv6() {
    for config in [config(), config_without_identifiers()] {
        let mut road = VehicleOnRoad::new(config);
        road.network_mut("wifi").loses_ipv6 = true;
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
        road.advance_while(0.3, "carried", |road| !road.is_traffic_carried());
        assert_eq!(road.sent_updates.len(), 2);
        let gap = road.sent_updates[1].sent_at.saturating_since(road.sent_updates[0].sent_at);
        assert_eq!(gap, Duration::from_millis(250));
        road.clear_records();
        road.advance_seconds(29.0);
        assert!(
            road.sent_updates.iter().all(|update| update.tunnel_end.is_some()),
            "the loser is not tried first again"
        );
        road.advance_seconds(271.0);
        assert!(
            road.sent_updates.iter().filter(|update| update.tunnel_end.is_none()).count() <= 10,
            "but now and then"
        );
        assert!(road.sent_updates.len() < 30);
        assert!(road.is_traffic_carried());
    }
}

/// RFC 8305 5: a slow IPv6 that answers first wins, and the router drops IPv4.
#[test]
fn first_acknowledged_address_of_uplink_is_used() {
    for config in [config(), config_without_identifiers()] {
        let mut road = VehicleOnRoad::new(config);
        road.network_mut("wifi").delay_range = (Duration::from_millis(140), Duration::from_millis(140));
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
        road.advance_seconds(3.0);
        assert_eq!(road.sent_updates.len(), 3, "IPv6, IPv4, and IPv6 again to undo that");
        assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f1::10")]);
        assert!(road.is_traffic_carried());
        road.advance_seconds(100.0);
        assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f1::10")]);
    }
}

/// If the IP version in use fails, the uplink uses the other version, and no other uplink takes over.
#[test]
fn uplink_switches_to_the_other_ip_version_when_one_fails() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
    road.advance_seconds(5.0);
    road.network_mut("wifi").loses_ipv6 = true;
    road.advance_while(1.5, "carried by IPv4", |road| !road.is_traffic_carried());
    assert!(road.registered_endpoints()[0].ipv4().is_some());
    road.advance_seconds(30.0);
    assert!(road.is_traffic_carried());
    // In a new network the router prefers IPv6 again.
    road.network_mut("wifi").loses_ipv6 = false;
    road.attach_uplink("wifi", Some("2001:db8:f9::10"), Some(PUBLIC_ADDRESS));
    road.advance_seconds(1.0);
    assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f9::10")]);
}

/// IPv4 comes up before or after IPv6, depending on DHCP and Router Advertisements.
#[test]
fn ipv4_and_ipv6_addresses_may_appear_in_any_order() {
    for config in [config(), config_without_identifiers()] {
        let mut road = VehicleOnRoad::new(config);
        road.attach_uplink("wifi", None, Some(PUBLIC_ADDRESS));
        road.advance_seconds(1.0);
        assert!(road.is_traffic_carried());
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
        let end = road.now + Duration::from_secs(2);
        while road.handle_next_event(end) {
            assert!(road.is_traffic_to_agent_carried(), "make before break");
        }
        assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f1::10")]);
        // IPv6 goes: IPv4 takes over.
        road.attach_uplink("wifi", None, Some(PUBLIC_ADDRESS));
        road.advance_while(1.0, "carried", |road| !road.is_traffic_carried());
        assert!(road.registered_endpoints()[0].ipv4().is_some());
    }
}

/// Three uplinks: IPv4 only, IPv6 only, and both.
#[test]
fn uplinks_of_all_tunnel_kinds_register_together() {
    let mut road = VehicleOnRoad::new(config());
    road.network_mut("cell").nat = Some(TestNat::new(NAT_ADDRESS, Duration::from_secs(30)));
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.attach_uplink("cell", None, Some(PRIVATE_ADDRESS));
    road.attach_uplink("sat", Some("2001:db8:f3::10"), Some(PUBLIC_ADDRESS));
    road.advance_seconds(3.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.transmitting_uplinks(), ["wifi", "cell", "sat"]);
    for (down, up) in [("wifi", "cell"), ("cell", "sat")] {
        road.detach_uplink(down);
        assert_eq!(road.transmitting_uplinks()[0], up);
        road.advance_seconds(0.1);
        assert!(road.is_traffic_carried());
    }
    // The router de-registers an IPv6 uplink over an IPv4 uplink, and an IPv4 uplink over an IPv6 uplink.
    assert_eq!(road.bound_bids(), [3]);
}

/// Two modems of one make, each a NAT that gives the router the same address. The router distinguishes them
/// by its ports (RFC 5555 4.1 permits any port). The modems come and go in any order, with bulk registration
/// or without.
#[test]
fn two_nats_with_equal_inner_address_are_distinguished() {
    for identified in [true, false] {
        for [first, second] in [["wifi", "cell"], ["cell", "wifi"]] {
            let mut road =
                VehicleOnRoad::new(if identified { config() } else { config_without_identifiers() });
            for (uplink, nat) in [("wifi", NAT_ADDRESS), ("cell", PUBLIC_ADDRESS)] {
                road.network_mut(uplink).nat = Some(TestNat::new(nat, Duration::from_secs(120)));
            }
            road.attach_uplink(first, None, Some(PRIVATE_ADDRESS));
            road.advance_seconds(2.0);
            road.attach_uplink(second, None, Some(PRIVATE_ADDRESS));
            road.advance_seconds(3.0);
            assert!(road.is_traffic_carried(), "{}", road.describe_state());
            let ports: Vec<u16> = road.router.uplinks().iter().take(2).map(|u| u.udp_port).collect();
            let expected = if first == "wifi" { [4191, 4192] } else { [4192, 4191] };
            assert_eq!(ports, expected, "who came first keeps its port");
            if identified {
                assert_eq!(road.bound_bids(), [1, 2]);
                let mut ends: Vec<Endpoint> = road.router.paths().iter().map(|path| path.local).collect();
                ends.retain(|end| matches!(end, Endpoint::Udp(_)));
                ends.dedup();
                assert_eq!(ends.len(), 2, "{ends:?}");
            }
            // The better modem goes and comes back, and then the other modem.
            for (uplink, other) in [("wifi", "cell"), ("cell", "wifi")] {
                road.detach_uplink(uplink);
                road.advance_seconds(2.0);
                assert!(road.is_traffic_carried(), "without {uplink}: {}", road.describe_state());
                let path = road.router.paths()[0];
                assert_eq!(road.router.uplinks()[path.uplink].config.interface, other);
                road.attach_uplink(uplink, None, Some(PRIVATE_ADDRESS));
                road.advance_seconds(3.0);
                assert!(road.is_traffic_carried(), "{uplink} is back: {}", road.describe_state());
            }
        }
    }
}

/// A NAT loses its mapping, and only keepalives are sent: the interruption lasts one keepalive interval, and
/// the interval adapts.
#[test]
fn lost_nat_mapping_is_repaired_within_a_keepalive() {
    for (timeout, longest) in [(20_u64, 27.0), (45, 60.0), (300, 1.0)] {
        let mut config = config();
        config.liveness = None;
        config.lifetime = Duration::from_secs(600);
        let mut road = road_behind_nat(config, timeout);
        let mut worst = Duration::ZERO;
        let mut since = None;
        let end = road.now + Duration::from_secs(1800);
        let mut late = Duration::ZERO;
        while road.handle_next_event(end) {
            let now = road.now;
            if road.is_traffic_carried() {
                since = None;
            } else {
                let start = *since.get_or_insert(now);
                worst = worst.max(now.saturating_since(start));
            }
            if now.saturating_since(end - Duration::from_secs(600)) > Duration::ZERO
                && !road.is_traffic_carried()
            {
                late = late.max(now.saturating_since(since.unwrap_or(now)));
            }
        }
        assert!(worst.as_secs_f64() < longest, "timeout {timeout} s: out for {worst:?}");
        let intervals: Vec<f64> = road
            .sent_heartbeats
            .windows(2)
            .map(|pair| pair[1].sent_at.saturating_since(pair[0].sent_at).as_secs_f64())
            .filter(|gap| *gap > 2.0)
            .collect();
        let last = *intervals.last().expect("keepalives");
        assert!(last <= 110.5, "{last}");
        if timeout == 300 {
            assert!(last > 100.0, "grows up to 110 s: {intervals:?}");
        } else {
            assert!(last < timeout as f64, "timeout {timeout}: {intervals:?}");
        }
    }
}

/// A restarted NAT gives the router another port while heartbeats run: the interruption lasts less than a
/// second.
#[test]
fn changed_nat_mapping_is_repaired_within_a_second() {
    for (config, no_errors) in [
        (config(), false),
        (config_without_identifiers(), false),
        (config(), true),
        (config_without_identifiers(), true),
    ] {
        let mut road = road_behind_nat(config, 120);
        road.sends_no_binding_errors = no_errors;
        road.advance_seconds(10.0);
        let before = road.registered_endpoints();
        road.network_mut("cell").nat.as_mut().expect("a NAT").mappings.clear();
        road.advance_while(1.0, "carried", |road| !road.is_traffic_carried());
        assert_ne!(road.registered_endpoints(), before);
        assert!(!road.router.has_path_failed(1), "the path is the same, and is not given up");
    }
}

/// A carrier-grade NAT has short-lived mappings; the router keeps the idle uplink registered.
#[test]
fn second_uplink_behind_carrier_grade_nat_registers() {
    let mut road = VehicleOnRoad::new(config());
    road.network_mut("cell").nat = Some(TestNat::new(NAT_ADDRESS, Duration::from_secs(10)));
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.attach_uplink("cell", None, Some(PRIVATE_ADDRESS));
    road.advance_seconds(120.0);
    road.detach_uplink("wifi");
    assert_eq!(road.transmitting_uplinks(), ["cell"]);
    road.advance_seconds(0.1);
    assert!(road.is_traffic_carried());
}

/// The router drops packets inside IPv4 that do not come from the home agent.
#[test]
fn router_accepts_ipv4_tunnel_packets_only_from_home_agent() {
    let mut road = road_behind_nat(config(), 120);
    let mut octets =
        carnet_wire::mobility::MobilityHeaderBuilder::binding_error(1, addr(HOME_ADDRESS)).finish();
    let packet = control_packet(addr(HOME_AGENT_ADDRESS), addr(HOME_ADDRESS), None, &mut octets);
    let local = road.router.paths()[0].local;
    road.clear_records();
    for (stranger, heard) in [(Ipv4Addr::new(203, 0, 113, 66), false), (AGENT_IPV4, true)] {
        road.deliver_to_router(Some((local, Endpoint::Udp(SocketAddrV4::new(stranger, 4191)))), &packet);
        assert_eq!(!road.sent_updates.is_empty(), heard, "from {stranger}");
    }
}

/// On an uplink without traffic the router sends nothing but keepalives.
#[test]
fn nat_keepalives_are_rare() {
    let config = MobileRouterConfig {
        liveness: Some(HeartbeatIntervals {
            busy_interval: Duration::from_millis(250),
            idle_interval: Duration::from_secs(600),
        }),
        lifetime: Duration::from_secs(600),
        ..config()
    };
    let mut road = VehicleOnRoad::new(config);
    road.network_mut("cell").nat = Some(TestNat::new(NAT_ADDRESS, Duration::from_secs(180)));
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.attach_uplink("cell", None, Some(PRIVATE_ADDRESS));
    road.advance_seconds(600.0);
    let count = road.sent_heartbeats.iter().filter(|heartbeat| heartbeat.uplink == "cell").count();
    assert!((6..=16).contains(&count), "{count} in ten minutes");
}

/// Returns the longest interruption within `seconds`, and the sum of all interruptions.
fn measure_outage(road: &mut VehicleOnRoad, seconds: u64) -> (Duration, Duration) {
    let end = road.now + Duration::from_secs(seconds);
    let (mut longest, mut all, mut since) = (Duration::ZERO, Duration::ZERO, None);
    loop {
        let before = road.now;
        let is_carried = road.is_traffic_carried();
        let more = road.handle_next_event(end);
        let took = road.now.saturating_since(before);
        if is_carried {
            since = None;
        } else {
            let start = *since.get_or_insert(before);
            longest = longest.max(road.now.saturating_since(start));
            all += took;
        }
        if !more {
            return (longest, all);
        }
    }
}

/// RFC 5555 4.4.1: after an outage of IPv6 the uplink returns to IPv6 within a minute. The return and the
/// attempts before it lose no packets.
#[test]
fn uplink_goes_back_to_ipv6_after_an_outage_without_loss() {
    for config in [config(), config_without_identifiers()] {
        let mut road = VehicleOnRoad::new(config);
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
        road.advance_seconds(2.0);
        assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f1::10")]);
        road.network_mut("wifi").loses_ipv6 = true;
        road.advance_while(3.0, "carried over IPv4", |road| !road.is_traffic_carried());
        road.advance_seconds(1.0);
        assert_eq!(measure_outage(&mut road, 600), (Duration::ZERO, Duration::ZERO), "while IPv6 is dead");
        assert!(!matches!(road.registered_endpoints()[0], Endpoint::Ipv6(_)));
        road.network_mut("wifi").loses_ipv6 = false;
        assert_eq!(measure_outage(&mut road, 60), (Duration::ZERO, Duration::ZERO), "on the way back");
        assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f1::10")]);
        assert_eq!(road.router.paths()[0].local, endpoint_of("2001:db8:f1::10"));
        road.advance_seconds(60.0);
        assert_eq!(road.registered_endpoints(), [endpoint_of("2001:db8:f1::10")]);
    }
}

/// While the router tries IPv6 again on one uplink, Binding Updates of another uplink must not register that
/// IPv6 address.
#[test]
fn trying_ipv6_does_not_affect_other_uplinks() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
    road.attach_uplink("cell", Some("2001:db8:f2::10"), Some(Ipv4Addr::new(203, 0, 113, 8)));
    road.advance_seconds(2.0);
    for name in ["wifi", "cell"] {
        road.network_mut(name).loses_ipv6 = true;
    }
    road.advance_seconds(5.0);
    assert!(road.is_traffic_carried());
    road.network_mut("cell").loses_ipv6 = false;
    assert_eq!(measure_outage(&mut road, 60), (Duration::ZERO, Duration::ZERO));
    let bound = road.registered_endpoints();
    assert!(matches!(bound[..], [Endpoint::Ipv4(_), Endpoint::Ipv6(_)]), "{bound:?}");
}

/// The network delivers Binding Updates over IPv6 but loses their answers. Attempts to return to IPv6, each
/// of which costs a moment, become rare.
#[test]
fn router_retries_ipv6_that_loses_answers_at_growing_intervals() {
    let mut road = VehicleOnRoad::new(config());
    road.network_mut("wifi").loses_incoming_ipv6 = true;
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), Some(PUBLIC_ADDRESS));
    road.advance_seconds(2.0);
    assert!(road.is_traffic_carried());
    let (longest, all) = measure_outage(&mut road, 3600);
    assert!(longest <= Duration::from_millis(300), "{longest:?}");
    assert!(all <= Duration::from_millis(2500), "{all:?} of an hour");
}
