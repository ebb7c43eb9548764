//! Tests the platform's events about interfaces, and that it installs entries again that the kernel or an
//! operator has removed.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_linux::PlatformEvent;
use carnet_nemo::forwarding::desired::*;
use carnet_station::io::{Interface, NeighbourState};
use ipnet::Ipv6Net;

fn parse_addresses(texts: &[&str]) -> Vec<Ipv6Addr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn ipv6_gateways(interface: &Interface) -> Vec<Ipv6Addr> {
    interface.routers.iter().map(|router| router.gateway).collect()
}

fn ipv4_gateways(interface: &Interface) -> Vec<Ipv4Addr> {
    interface.ipv4_routers.iter().map(|router| router.gateway).collect()
}

fn ipv4_addresses(interface: &Interface) -> Vec<Ipv4Addr> {
    interface.ipv4_addresses.iter().map(|known| known.addr()).collect()
}

#[test]
fn observer_reports_each_interface_once_at_start() {
    in_new_namespace(|scratch| async move {
        run_ip("link add v0 address 02:00:00:00:00:0a mtu 1400 type veth peer name v1");
        run_ip("link set v0 addrgenmode none up");
        run_ip("-6 addr add 2001:db8::1/64 dev v0 nodad");
        run_ip("-6 addr add 2001:db8::2 peer 2001:db8::3/128 dev v0 nodad preferred_lft 0");
        let mut platform = scratch.open_platform();
        let events = events_during(&mut platform, Duration::from_millis(200)).await;
        let mut told: BTreeMap<&str, u32> = BTreeMap::new();
        for event in &events {
            let PlatformEvent::Interface(interface) = event else { panic!("{event:?}") };
            *told.entry(&interface.name).or_default() += 1;
        }
        assert_eq!(told, BTreeMap::from([("lo", 1), ("v0", 1), ("v1", 1)]));

        let lo = latest_interface_state(&events, "lo").unwrap();
        assert_eq!((lo.running, lo.link_address), (true, None));
        let v0 = latest_interface_state(&events, "v0").unwrap();
        assert_eq!((v0.running, v0.mtu, v0.link_address), (false, 1400, Some([2, 0, 0, 0, 0, 10])));
        assert!(v0.routers.is_empty());
        let mut known: Vec<_> =
            v0.addresses.iter().map(|a| (a.address.to_string(), a.prefix_length, a.deprecated)).collect();
        known.sort();
        assert_eq!(known, [("2001:db8::1".into(), 64, false), ("2001:db8::2".into(), 128, true)]);

        run_ip("link set v1 up");
        let events =
            events_until(&mut platform, |seen| latest_interface_state(seen, "v0").is_some_and(|i| i.running))
                .await;
        assert!(latest_interface_state(&events, "lo").is_none(), "nothing about it has changed");
        run_ip("link set v0 mtu 1500");
        events_until(&mut platform, |seen| latest_interface_state(seen, "v0").is_some_and(|i| i.mtu == 1500))
            .await;
        run_ip("link set v0 name w0");
        let renamed = |seen: &[PlatformEvent]| {
            seen.contains(&PlatformEvent::InterfaceGone { name: "v0".into() })
                && latest_interface_state(seen, "w0").is_some()
        };
        events_until(&mut platform, renamed).await;
        run_ip("link del w0");
        let gone = PlatformEvent::InterfaceGone { name: "w0".into() };
        events_until(&mut platform, |seen| seen.contains(&gone)).await;
    });
}

#[test]
fn duplicate_address_detection_is_visible() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        peer.create_link("v0", "p0");
        peer.run_in_namespace(|| add_address("p0", "2001:db8::66/64"));
        let mut platform = scratch.open_platform();
        run_ip("-6 addr add 2001:db8::1/64 dev v0");
        run_ip("-6 addr add 2001:db8::66/64 dev v0");
        let find = |seen: &[PlatformEvent], text: &str| {
            let address: Ipv6Addr = text.parse().unwrap();
            latest_interface_state(seen, "v0")
                .and_then(|i| i.addresses.iter().find(|a| a.address == address).cloned())
        };
        let is = |seen: &[PlatformEvent], text: &str, state: (bool, bool)| {
            find(seen, text).is_some_and(|a| (a.tentative, a.duplicate) == state)
        };
        events_until(&mut platform, |seen| is(seen, "2001:db8::1", (true, false))).await;
        let both = |seen: &[PlatformEvent]| {
            is(seen, "2001:db8::1", (false, false)) && is(seen, "2001:db8::66", (false, true))
        };
        let events = events_until(&mut platform, both).await;
        assert!(events.len() < 10, "{events:#?}");
    });
}

/// RFC 4429: the kernel uses an optimistic address during duplicate address detection, so carnet may use it,
/// too.
#[test]
fn optimistic_address_is_usable_during_duplicate_address_detection() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        peer.create_link("v0", "p0");
        let folder = "/proc/sys/net/ipv6/conf/v0";
        if !std::path::Path::new(folder).join("use_optimistic").exists() {
            println!("\nSKIPPED: this kernel is without CONFIG_IPV6_OPTIMISTIC_DAD");
            return;
        }
        // With these settings, duplicate address detection lasts longer than the test.
        for (name, value) in [("optimistic_dad", "1"), ("use_optimistic", "1"), ("dad_transmits", "1000")] {
            std::fs::write(format!("{folder}/{name}"), value).unwrap();
        }
        let mut platform = scratch.open_platform();
        run_ip("-6 addr add 2001:db8::1/64 dev v0 optimistic");
        run_ip("-6 addr add 2001:db8::2/64 dev v0");
        let is = |seen: &[PlatformEvent], text: &str, tentative: bool| {
            let address: Ipv6Addr = text.parse().unwrap();
            latest_interface_state(seen, "v0").is_some_and(|interface| {
                interface.addresses.iter().any(|it| it.address == address && it.tentative == tentative)
            })
        };
        let both = |seen: &[PlatformEvent]| is(seen, "2001:db8::1", false) && is(seen, "2001:db8::2", true);
        events_until(&mut platform, both).await;
    });
}

#[test]
fn observer_lists_default_routers_in_order_without_carnets_routes() {
    in_new_namespace(|scratch| async move {
        for name in ["v0", "i0"] {
            run_ip(&format!("link add {name} type veth peer name {name}p"));
            run_ip(&format!("link set {name} up"));
            run_ip(&format!("link set {name}p up"));
        }
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(route_entry(TABLE_MAIN, "::/0", 1, "fe80::99 v0"))).unwrap();
        run_ip("-6 route add default via fe80::1 dev v0 metric 1024 pref low");
        run_ip("-6 route add default via fe80::2 dev v0 metric 512");
        run_ip("-6 route add default via fe80::4 dev v0 metric 600 pref high");
        run_ip("-6 route append default metric 600 nexthop via fe80::3 dev v0 nexthop via fe80::5 dev i0");
        run_ip("-6 route add default via fe80::7 dev v0 table 77");
        run_ip("-6 route add 2001:db8::/32 via fe80::8 dev v0");
        let wanted = parse_addresses(&["fe80::2", "fe80::4", "fe80::3", "fe80::1"]);
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0").is_some_and(|i| ipv6_gateways(i) == wanted)
                && latest_interface_state(seen, "i0")
                    .is_some_and(|i| ipv6_gateways(i) == parse_addresses(&["fe80::5"]))
        })
        .await;
        run_ip("-6 route del default via fe80::2 dev v0");
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0")
                .is_some_and(|i| ipv6_gateways(i) == parse_addresses(&["fe80::4", "fe80::3", "fe80::1"]))
        })
        .await;
        // carnet makes no netlink request after an event about a route that it does not use.
        events_during(&mut platform, Duration::from_millis(100)).await;
        let reads = platform.counters().read_requests;
        run_ip("-6 route add 2001:db8:77::/48 via fe80::8 dev v0");
        assert_eq!(events_during(&mut platform, Duration::from_millis(100)).await, []);
        assert_eq!(platform.counters().read_requests, reads);
    });
}

/// Creates the interfaces `v0` and `i0`, which are up and have no addresses from the kernel.
fn create_two_links() {
    for name in ["v0", "i0"] {
        run_ip(&format!("link add {name} type veth peer name {name}p"));
        run_ip(&format!("link set {name} addrgenmode none up"));
        run_ip(&format!("link set {name}p up"));
    }
}

/// Tests routes for certain sources, a next-hop object with several next hops, and tables to which rules
/// lead. Also tests a route whose lifetime ends, and a router that does not answer.
#[test]
fn observer_reports_the_default_routes_that_the_kernel_would_use() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        run_ip("-6 addr add fe80::99/64 dev v0 nodad");
        let mut platform = scratch.open_platform();
        run_ip("-6 route add default from 2001:db8:1::/64 via fe80::1 dev v0 metric 2000");
        run_ip("-6 route add default via fe80::2 dev v0 metric 100");
        run_ip("-6 route add unreachable default metric 50");
        run_ip("nexthop add id 1 via fe80::3 dev v0");
        run_ip("nexthop add id 2 via fe80::4 dev i0");
        run_ip("nexthop add id 3 group 1/2");
        run_ip("-6 route add default nhid 3 metric 200");
        run_ip("-6 route add default via fe80::5 dev v0 table 77");
        run_ip("-6 rule add from 2001:db8:5::/64 lookup 77 pref 500");
        run_ip("-6 rule add from 2001:db8:6::/64 fwmark 9 lookup 78 pref 501");
        run_ip("-6 route add default via fe80::6 dev v0 table 78");
        let prefix = |text: &str| -> Option<Ipv6Net> { text.parse().ok() };
        let wanted = [
            ("fe80::5", prefix("2001:db8:5::/64")),
            ("fe80::1", prefix("2001:db8:1::/64")),
            ("fe80::2", None),
            ("fe80::3", None),
        ];
        let wanted = wanted.map(|(gateway, source)| (gateway.parse::<Ipv6Addr>().unwrap(), source));
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0")
                .is_some_and(|i| i.routers.iter().map(|router| (router.gateway, router.source)).eq(wanted))
                && latest_interface_state(seen, "i0")
                    .is_some_and(|i| ipv6_gateways(i) == parse_addresses(&["fe80::4"]))
        })
        .await;
        // The kernel lists a route for some time after it has expired, and sends no event.
        run_ip("-6 route add default via fe80::7 dev i0 metric 40 expires 1");
        let first = |seen: &[PlatformEvent]| {
            latest_interface_state(seen, "i0").and_then(|i| ipv6_gateways(i).first().copied())
        };
        events_until(&mut platform, |seen| first(seen) == parse_addresses(&["fe80::7"]).first().copied())
            .await;
        events_until(&mut platform, |seen| first(seen) == parse_addresses(&["fe80::4"]).first().copied())
            .await;
        // The kernel reports the failure of a neighbour that was reachable, but not of one that is added as
        // failed.
        run_ip("-6 neigh add fe80::2 dev v0 lladdr 02:00:00:00:00:02 nud reachable");
        run_ip("-6 neigh replace fe80::2 dev v0 nud failed");
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0").is_some_and(|i| {
                let failed = |gateway: &str| {
                    let gateway: Ipv6Addr = gateway.parse().unwrap();
                    let router = i.routers.iter().find(|router| router.gateway == gateway);
                    router.is_some_and(|router| router.neighbour == NeighbourState::Failed)
                };
                failed("fe80::2") && !failed("fe80::1")
            })
        })
        .await;
    });
}

/// With `nexthop_compat_mode` off, a route has only the number of its next-hop object. A change of the object
/// causes an event about the object only.
#[test]
fn observer_finds_router_of_default_route_with_next_hop_object() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        run_ip("-6 addr add fe80::99/64 dev v0 nodad");
        run_ip("-6 addr add fe80::98/64 dev i0 nodad");
        run_ip("addr add 192.0.2.5/24 dev v0");
        if std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").is_err() {
            eprintln!("SKIPPED: this kernel has no nexthop_compat_mode");
            return;
        }
        let mut platform = scratch.open_platform();
        run_ip("nexthop add id 1 via fe80::3 dev v0");
        run_ip("nexthop add id 2 via fe80::4 dev i0");
        run_ip("nexthop add id 3 group 1/2");
        run_ip("nexthop add id 4 via 192.0.2.1 dev v0");
        run_ip("-6 route add default nhid 3");
        run_ip("route add default nhid 4");
        let has = |seen: &[PlatformEvent], name: &str, ipv6: &str, ipv4: &[&str]| {
            let ipv4: Vec<Ipv4Addr> = ipv4.iter().map(|text| text.parse().unwrap()).collect();
            latest_interface_state(seen, name)
                .is_some_and(|i| ipv6_gateways(i) == parse_addresses(&[ipv6]) && ipv4_gateways(i) == ipv4)
        };
        events_until(&mut platform, |seen| {
            has(seen, "v0", "fe80::3", &["192.0.2.1"]) && has(seen, "i0", "fe80::4", &[])
        })
        .await;
        run_ip("nexthop replace id 4 via 192.0.2.2 dev v0");
        events_until(&mut platform, |seen| has(seen, "v0", "fe80::3", &["192.0.2.2"])).await;
        run_ip("nexthop replace id 1 via fe80::7 dev v0");
        events_until(&mut platform, |seen| has(seen, "v0", "fe80::7", &["192.0.2.2"])).await;
    });
}

#[test]
fn observer_reports_ipv4_addresses_and_routes() {
    in_new_namespace(|scratch| async move {
        for name in ["v0", "i0"] {
            run_ip(&format!("link add {name} type veth peer name {name}p"));
            run_ip(&format!("link set {name} up"));
            run_ip(&format!("link set {name}p up"));
        }
        run_ip("addr add 192.0.2.5/24 dev v0");
        let mut platform = scratch.open_platform();
        let v4 = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<Ipv4Addr>>();
        let events = events_during(&mut platform, Duration::from_millis(200)).await;
        let v0 = latest_interface_state(&events, "v0").unwrap();
        assert_eq!((ipv4_addresses(v0), ipv4_gateways(v0)), (v4(&["192.0.2.5"]), v4(&[])));
        assert_eq!(latest_interface_state(&events, "lo").unwrap().ipv4_addresses, [], "scope host");

        run_ip("addr add 192.0.2.4/24 dev v0");
        run_ip("addr add 169.254.7.7/16 dev v0 scope link");
        run_ip("addr add 198.51.100.2 peer 198.51.100.1/32 dev i0");
        run_ip("route add default via 192.0.2.1 dev v0 metric 200");
        run_ip("route add default via 192.0.2.2 dev v0 metric 100");
        run_ip("route add default dev i0 metric 300");
        run_ip("route add default via 192.0.2.9 dev v0 table 77");
        run_ip("route add 203.0.113.0/24 via 192.0.2.8 dev v0");
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0").is_some_and(|v0| {
                ipv4_addresses(v0) == v4(&["192.0.2.5", "192.0.2.4"])
                    && ipv4_gateways(v0) == v4(&["192.0.2.2", "192.0.2.1"])
            }) && latest_interface_state(seen, "i0").is_some_and(|i0| {
                ipv4_addresses(i0) == v4(&["198.51.100.2"]) && ipv4_gateways(i0) == v4(&["0.0.0.0"])
            })
        })
        .await;
        // A ConnMan service without the default route has only a route to its gateway.
        run_ip("route add 198.51.100.254 dev i0");
        run_ip("route del default dev i0");
        events_until(&mut platform, |seen| {
            let gateways = v4(&["198.51.100.254", "198.51.100.1"]);
            latest_interface_state(seen, "i0").is_some_and(|i0| {
                let found = ipv4_gateways(i0);
                found.len() == 2 && gateways.iter().all(|gateway| found.contains(gateway))
            })
        })
        .await;
        run_ip("route del default via 192.0.2.2 dev v0");
        run_ip("addr del 192.0.2.4/24 dev v0");
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0").is_some_and(|v0| {
                ipv4_addresses(v0) == v4(&["192.0.2.5"]) && ipv4_gateways(v0) == v4(&["192.0.2.1"])
            })
        })
        .await;
    });
}

/// Lets the peer advertise itself as a router for some seconds, with high preference.
fn send_router_advertisement(peer: &PeerNamespace, lifetime: u16) {
    peer.run_in_namespace(move || {
        std::thread::sleep(Duration::from_millis(100));
        run_ip("-6 addr flush dev p0");
        run_ip("-6 addr add fe80::aa/64 dev p0 nodad");
        use socket2::{Domain, Protocol, SockAddr, Socket, Type};
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        let index = nix::net::if_::if_nametoindex("p0").unwrap();
        socket.set_multicast_hops_v6(255).unwrap();
        let all_nodes = std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
        let [high, low] = lifetime.to_be_bytes();
        let mut message = vec![134, 0, 0, 0, 64, 0x08, high, low];
        message.extend([0; 8]);
        socket.send_to(&message, &SockAddr::from(all_nodes)).unwrap();
    });
}

/// The kernel still lists an expired route for a while. An advertisement renews the route, without an event.
#[test]
fn observer_reports_expired_default_router_when_it_advertises_again() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        peer.create_link("v0", "p0");
        std::fs::write("/proc/sys/net/ipv6/route/gc_interval", "3600").unwrap();
        let mut platform = scratch.open_platform_watching("v0", false);
        let routers = |seen: &[PlatformEvent]| latest_interface_state(seen, "v0").map(ipv6_gateways);
        send_router_advertisement(&peer, 1);
        events_until(&mut platform, |seen| routers(seen) == Some(parse_addresses(&["fe80::aa"]))).await;
        events_until(&mut platform, |seen| routers(seen) == Some(Vec::new())).await;
        assert!(run_ip("-6 route show default").contains("fe80::aa"), "the kernel has collected it");
        send_router_advertisement(&peer, 600);
        events_until(&mut platform, |seen| routers(seen) == Some(parse_addresses(&["fe80::aa"]))).await;
    });
}

#[test]
fn router_advertisement_is_reported() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        peer.create_link("v0", "p0");
        let mut platform = scratch.open_platform();
        send_router_advertisement(&peer, 600);
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0")
                .is_some_and(|i| ipv6_gateways(i) == parse_addresses(&["fe80::aa"]))
        })
        .await;
    });
}

#[test]
fn kernel_entry_is_installed_when_its_interface_appears() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        events_during(&mut platform, Duration::from_millis(50)).await;
        for entry in entries_of_mobile_router("v0", "i0") {
            platform.apply_change(&set_entry(entry)).unwrap();
        }
        assert!(routes_of_table("13510").is_empty());
        run_ip("link add i0 type veth peer name i1");
        events_until(&mut platform, |_| run_ip("-6 addr show dev i0").contains("2001:db8:a::1/64")).await;
        run_ip("link add v0 type veth peer name v1");
        events_until(&mut platform, |_| read_sysctl("v0/accept_ra") == "2").await;
        assert!(routes_of_table("13510").is_empty(), "v0 is down");
        run_ip("link set v0 up");
        events_until(&mut platform, |_| routes_of_table("13510").len() == 1).await;
        assert_eq!(platform.counters().restored_entries, 0);

        // carnet does not install an entry later that was removed while it waited.
        run_ip("link set v0 down");
        events_until(&mut platform, |_| routes_of_table("13510").is_empty()).await;
        platform.apply_change(&remove_entry(route_entry(TABLE_UPLINK, "::/0", 1024, "fe80::1 v0"))).unwrap();
        run_ip("link set v0 up");
        events_during(&mut platform, Duration::from_millis(100)).await;
        assert!(routes_of_table("13510").is_empty());

        // While the new entry waits, the former entry must not stay in the kernel.
        platform.apply_change(&set_entry(route_entry(TABLE_TUNNEL, "::/0", 1024, "fe80::1 later"))).unwrap();
        assert_eq!(routes_of_table("13501").len(), 1);
        run_ip("link add later type veth peer name later1");
        run_ip("link set later up");
        events_until(&mut platform, |_| routes_of_table("13501").len() == 2).await;
        platform.close().unwrap();
        assert!(routes_of_table("13501").is_empty());
    });
}

#[test]
fn lost_entries_of_interface_are_installed_again() {
    in_new_namespace(|scratch| async move {
        for (here, there) in [("v0", "v1"), ("i0", "i1")] {
            run_ip(&format!("link add {here} type veth peer name {there}"));
            run_ip(&format!("link set {here} up"));
            run_ip(&format!("link set {there} up"));
        }
        let mut platform = scratch.open_platform();
        for entry in entries_of_mobile_router("v0", "i0") {
            platform.apply_change(&set_entry(entry)).unwrap();
        }
        platform.apply_change(&set_entry(address_entry("v0", "2001:db8:f1::10/64"))).unwrap();
        events_during(&mut platform, Duration::from_millis(50)).await;
        let complete = || {
            routes_of_table("13510").len() == 1
                && run_ip("-4 route show table all").matches("table 13510").count() == 1
                && read_sysctl("v0/accept_ra") == "2"
                && run_ip("-6 addr show dev v0").contains("2001:db8:f1::10/64")
        };
        assert!(complete());
        // When the link goes down and up, routes and addresses vanish.
        run_ip("link set v0 down");
        assert!(!complete());
        events_during(&mut platform, Duration::from_millis(50)).await;
        run_ip("link set v0 up");
        events_until(&mut platform, |_| complete()).await;
        // carnet has restored three entries that vanished when the link went down: an IPv6 route, an IPv6
        // address and an IPv4 route.
        assert_eq!(platform.counters().restored_entries, 3);
        // The link goes down and up again before the platform reads the first event.
        run_command("ip link set v0 down");
        run_command("ip link set v0 up");
        events_until(&mut platform, |_| complete()).await;
        assert_eq!(platform.counters().restored_entries, 6);
        // The link is deleted and created again with default settings. In the second round this happens so
        // fast that only the new index of the interface shows it.
        for pause in [50, 0] {
            run_ip("link del v0");
            if pause > 0 {
                events_during(&mut platform, Duration::from_millis(pause)).await;
            }
            run_ip("link add v0 type veth peer name v1");
            run_ip("link set v1 up");
            run_ip("link set v0 up");
            let events = events_until(&mut platform, |_| complete()).await;
            let gone = PlatformEvent::InterfaceGone { name: "v0".into() };
            assert!(pause > 0 || events.contains(&gone), "{events:#?}");
        }
        assert_eq!(platform.counters().restored_entries, 14);
        platform.close().unwrap();
        assert_eq!(read_sysctl("v0/accept_ra"), "1");
    });
}

#[test]
fn silently_dropped_routes_are_installed_again() {
    in_new_namespace(|scratch| async move {
        run_ip("link add v0 type veth peer name v1");
        run_ip("link set v0 up");
        std::fs::write("/proc/sys/net/ipv6/route/skip_notify_on_dev_down", "1").unwrap();
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(route_entry(TABLE_UPLINK, "::/0", 1024, "fe80::1 v0"))).unwrap();
        run_ip("-6 route add default via fe80::2 dev v0");
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0").is_some_and(|i| !i.routers.is_empty())
        })
        .await;
        run_ip("link set v0 down");
        events_until(&mut platform, |seen| {
            latest_interface_state(seen, "v0").is_some_and(|i| i.routers.is_empty())
        })
        .await;
        run_ip("link set v0 up");
        events_until(&mut platform, |_| routes_of_table("13510").len() == 1).await;
    });
}

#[test]
fn deleted_entries_are_installed_again() {
    in_new_namespace(|scratch| async move {
        run_ip("link add v0 type veth peer name v1");
        run_ip("link set v0 up");
        let mut platform = scratch.open_platform();
        for entry in entries_of_mobile_router("v0", "v0") {
            platform.apply_change(&set_entry(entry)).unwrap();
        }
        events_during(&mut platform, Duration::from_millis(50)).await;
        let before = kernel_state();
        let deletions = [
            "-6 route del default dev v0 table 13510",
            "-6 route flush table 13501",
            "-6 addr del 2001:db8:a::1/64 dev v0",
            "-6 rule del pref 130",
            "-6 rule del pref 110",
            "-6 rule flush",
            "-6 route replace default via fe80::2 dev v0 table 13510 proto 135",
        ];
        for deletion in deletions {
            run_ip(deletion);
            assert_ne!(kernel_state(), before, "{deletion}");
            events_until(&mut platform, |_| {
                kernel_state() == before || deletion == "-6 rule flush" && policy_rules().len() == 7
            })
            .await;
            if deletion == "-6 rule flush" {
                // The previous command has also removed the main table's rule, which is not carnet's. Add it
                // again.
                run_ip("-6 rule add pref 32766 lookup main proto kernel");
            }
        }
        assert!(platform.counters().restored_entries >= 8);
        // After the repair the platform makes no further requests.
        let counters = platform.counters();
        events_during(&mut platform, Duration::from_millis(100)).await;
        assert_eq!(platform.counters().write_calls, counters.write_calls);
    });
}

#[test]
fn lost_netlink_events_cause_full_read() {
    in_new_namespace(|scratch| async move {
        run_ip("link add v0 type veth peer name v1");
        run_ip("link set v0 up");
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(route_entry(TABLE_UPLINK, "::/0", 1024, "fe80::1 v0"))).unwrap();
        events_during(&mut platform, Duration::from_millis(50)).await;
        let mut batch = String::new();
        for number in 0..20_000 {
            batch += &format!("route add 2001:db8:{number:x}::/48 dev v0 table 99\n");
        }
        let file = scratch.path().join("batch");
        std::fs::write(&file, batch).unwrap();
        run_ip(&format!("-6 -batch {}", file.display()));
        // The socket's buffer is full, so the kernel loses the following events.
        run_ip("-6 route del default table 13510");
        run_ip("link add late type veth peer name later");
        let events = events_until(&mut platform, |seen| {
            latest_interface_state(seen, "late").is_some() && routes_of_table("13510").len() == 1
        });
        events.await;
        assert!(platform.counters().event_overruns > 0, "{:?}", platform.counters());
    });
}

#[test]
fn cancelled_event_wait_loses_no_event() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        let mut seen = Vec::new();
        for number in 0..20 {
            run_ip(&format!("link add v{number} type veth peer name p{number}"));
            for _ in 0..3 {
                tokio::select! {
                    biased;
                    () = tokio::task::yield_now() => {}
                    event = platform.next_event() => seen.push(event.unwrap()),
                }
            }
        }
        seen.extend(events_during(&mut platform, Duration::from_millis(100)).await);
        for number in 0..20 {
            assert!(
                latest_interface_state(&seen, &format!("v{number}")).is_some()
                    && latest_interface_state(&seen, &format!("p{number}")).is_some()
            );
        }
    });
}
