//! Access of one host on board to the captive portal of an uplink: rules, end, and refusals.

mod common;

use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_base::{Rng, Time};
use carnet_nemo::forwarding::desired::{ForwardingEntry, TABLE_BREAKOUT, TABLE_UNREACHABLE, priority};
use carnet_nemo::forwarding::packet_rules::{PacketRule, RuleChain, RuleVerdict, TrafficKind};
use carnet_station::io::{Command, Event, Input, NemoOutput, Output, PortalAccessRequest};
use carnet_station::{PersistentState, Station, StationConfig};
use common::{FIRST_CARE_OF_ADDRESS, SECOND_CARE_OF_ADDRESS, WALL_TIME, interface, router_config};

const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const PORTAL_MARK: u32 = 0x7e00_0000;

fn config() -> StationConfig {
    let mut config = router_config(&["2001:db8:a::/64"]);
    let router = &mut config.mobile_router.as_mut().expect("a mobile router").router;
    router.ipv4_prefixes = vec!["10.42.7.0/24".parse().expect("a prefix")];
    config
}

fn uplink_input(name: &str, address: &str, ipv4: Option<&str>) -> Input {
    let mut uplink = interface(name, address, true);
    uplink.ipv4_addresses = ipv4.iter().map(|it| it.parse().expect("an address")).collect();
    let gateway: Ipv4Addr = "192.0.2.1".parse().expect("an address");
    uplink.ipv4_routers = ipv4.iter().map(|_| gateway.into()).collect();
    Input::Interface(uplink)
}

/// A station whose uplink `w0` has both address families, and `w1` only IPv6.
struct PortalBench {
    station: Station,
    now: Time,
    events: Vec<Event>,
}

impl PortalBench {
    fn new() -> PortalBench {
        let station = Station::new(config(), PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
        let mut bench = PortalBench { station, now: Time::ZERO, events: Vec::new() };
        bench.collect_outputs();
        for input in [
            uplink_input("w0", FIRST_CARE_OF_ADDRESS, Some("192.0.2.10/24")),
            uplink_input("w1", SECOND_CARE_OF_ADDRESS, None),
            Input::Interface(interface("i0", "2001:db8:a::1", true)),
        ] {
            bench.feed_input(input).expect("accepted");
        }
        bench
    }

    fn collect_outputs(&mut self) {
        while let Some(output) = self.station.poll_output() {
            if let Output::Nemo(NemoOutput::Event(event)) = output {
                self.events.push(event);
            }
        }
    }

    fn feed_input(&mut self, input: Input) -> Result<(), String> {
        let result = self.station.handle_input(self.now, WALL_TIME, input);
        self.collect_outputs();
        result
    }

    fn command_portal(&mut self, order: PortalAccessRequest) -> Result<(), String> {
        self.feed_input(Input::Command(Command::Portal(order)))
    }

    fn end_portal(&mut self, uplink: &str) -> Result<(), String> {
        self.feed_input(Input::Command(Command::EndPortal { uplink: uplink.into() }))
    }

    /// Runs the timers that are due up to this time.
    fn advance_until(&mut self, end: Time) {
        while let Some(next) = self.station.poll_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.feed_input(Input::Timeout).expect("accepted");
        }
        self.now = end;
    }

    /// Returns the routing rules for the portal's mark, as text.
    fn describe_routing(&self) -> Vec<String> {
        let mut rules: Vec<String> = self
            .station
            .nemo()
            .desired_entries()
            .filter_map(|entry| match entry {
                ForwardingEntry::Rule(rule) if rule.mark.is_some_and(|mark| mark.value == PORTAL_MARK) => {
                    Some(format!(
                        "{} {} {} {}",
                        rule.priority,
                        rule.input_interface.as_deref().unwrap_or("*"),
                        rule.from.map_or("any".into(), mapped::format_prefix),
                        rule.table
                    ))
                }
                _ => None,
            })
            .collect();
        rules.sort();
        rules
    }

    fn packet_rules(&self) -> Vec<PacketRule> {
        let rules = self.station.nemo().desired_entries().filter_map(|entry| match entry {
            ForwardingEntry::PacketRule(rule) => Some((**rule).clone()),
            _ => None,
        });
        rules.collect()
    }

    fn forwards_ipv4_of_uplinks(&self) -> bool {
        let is_it = |entry: &ForwardingEntry| {
            matches!(entry, ForwardingEntry::Setting(setting)
                if setting.interface == "w0" && setting.name == "ipv4_forwarding" && setting.value == "1")
        };
        self.station.nemo().desired_entries().any(is_it)
    }

    fn has_access(&self) -> bool {
        let uplinks = self.station.nemo().uplink_status(self.now);
        uplinks.iter().any(|uplink| uplink.portal_access.is_some())
    }

    fn last_reason_for_end(&self) -> &str {
        match self.events.last() {
            Some(Event::PortalAccessEnded { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

fn portal_order() -> PortalAccessRequest {
    let dns = ["192.0.2.53", "2001:db8:f1::53"].map(|it| it.parse().expect("an address"));
    let host = carnet_wire::address::MacAddress(HOST_MAC);
    PortalAccessRequest { uplink: "w0".into(), lan: "i0".into(), host, for_s: 300, dns: dns.into() }
}

#[test]
fn portal_host_uses_the_uplink_and_its_dns_servers() {
    let mut bench = PortalBench::new();
    assert_eq!((bench.packet_rules(), bench.describe_routing()), (Vec::new(), Vec::new()));
    assert!(!bench.forwards_ipv4_of_uplinks());
    bench.command_portal(portal_order()).expect("accepted");
    let expected = [
        (priority::BREAKOUT, "10.42.7.0/24", TABLE_BREAKOUT),
        (priority::BREAKOUT, "2001:db8:a::/64", TABLE_BREAKOUT),
        (priority::PORTAL_UPLINK_ONLY, "10.42.7.0/24", TABLE_UNREACHABLE),
        (priority::PORTAL_UPLINK_ONLY, "2001:db8:a::/64", TABLE_UNREACHABLE),
    ];
    assert_eq!(
        bench.describe_routing(),
        expected.map(|(rule, from, table)| format!("{rule} i0 {from} {table}"))
    );
    assert!(bench.forwards_ipv4_of_uplinks());
    let rules = bench.packet_rules();
    // The mark is set only on packets with the host's MAC address, and on answers of their connections.
    let marks = |rule: &&PacketRule| {
        matches!(rule.verdict, RuleVerdict::SetMark(mark) if mark.value == PORTAL_MARK)
            && rule.packets.connection_mark.is_none()
    };
    let marking: Vec<_> = rules.iter().filter(marks).collect();
    assert_eq!(marking.len(), 6, "two families, each with all packets and with queries by TCP and UDP");
    for rule in marking {
        assert_eq!((rule.packets.link_source, rule.chain), (Some(HOST_MAC), RuleChain::Early));
        assert_eq!(rule.packets.input_interface.as_deref(), Some("i0"));
    }
    let servers: std::collections::BTreeSet<_> = rules
        .iter()
        .filter_map(|rule| match rule.verdict {
            RuleVerdict::DestinationAddress(server) => {
                let source = rule.packets.source.expect("a family");
                assert_eq!(server.is_ipv4(), ALL_IPV4_PREFIX.contains(&source), "{rule:?}");
                assert_eq!(rule.packets.mark.map(|mark| mark.value), Some(PORTAL_MARK));
                Some(server)
            }
            _ => None,
        })
        .collect();
    assert_eq!(servers, portal_order().dns.into_iter().collect());
    let counted: Vec<_> = rules.iter().filter_map(|rule| rule.total.as_deref()).collect();
    assert!(
        counted.iter().all(|total| total.kind == TrafficKind::Portal && total.interface == "w0"),
        "{counted:?}"
    );
    assert_eq!(counted.iter().filter(|total| total.is_outgoing).count(), 1);
    assert_eq!(counted.len(), 2);
    let status = bench.station.nemo().uplink_status(bench.now + Duration::from_secs(60));
    let access = status[0].portal_access.clone().expect("access");
    assert_eq!((access.host.as_str(), access.interface.as_str()), ("02:00:00:00:00:09", "i0"));
    assert_eq!((access.remaining_s, &status[1].portal_access), (240, &None));
    assert!(matches!(bench.events.last(), Some(Event::PortalAccess { for_s: 300, .. })));
    // The station drops answers of the portal that arrive on another interface than the portal's uplink.
    let drops = |rule: &&PacketRule| {
        rule.verdict == RuleVerdict::Drop
            && rule.packets.connection_mark.is_some_and(|it| it.value == PORTAL_MARK)
    };
    let refused: Vec<_> =
        rules.iter().filter(drops).map(|rule| rule.packets.input_interface.as_deref()).collect();
    assert_eq!(refused, [Some("w1")]);
}

#[test]
fn portal_access_expires_and_removes_all_its_entries() {
    let mut bench = PortalBench::new();
    let before: usize = bench.station.nemo().desired_entries().count();
    bench.command_portal(portal_order()).expect("accepted");
    bench.advance_until(Time::from_secs(200));
    // A new order for the same host replaces the old one, so its time starts again.
    bench.command_portal(PortalAccessRequest { for_s: 120, ..portal_order() }).expect("accepted");
    bench.advance_until(Time::from_secs(319));
    assert!(bench.has_access());
    bench.advance_until(Time::from_secs(321));
    assert!(!bench.has_access());
    assert_eq!(bench.last_reason_for_end(), "its time is over");
    assert_eq!((bench.packet_rules(), bench.describe_routing()), (Vec::new(), Vec::new()));
    assert!(!bench.forwards_ipv4_of_uplinks());
    assert_eq!(bench.station.nemo().desired_entries().count(), before);
}

#[test]
fn portal_access_ends_by_command_uplink_loss_filter_loss_or_reload() {
    let mut bench = PortalBench::new();
    bench.command_portal(portal_order()).expect("accepted");
    bench.end_portal("w0").expect("accepted");
    assert_eq!(bench.last_reason_for_end(), "an operator has ended it");
    bench.command_portal(portal_order()).expect("accepted");
    bench.feed_input(Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, false))).expect("accepted");
    assert_eq!(bench.last_reason_for_end(), "the uplink has no address with a default router");
    assert!(bench.packet_rules().is_empty());
    bench.feed_input(uplink_input("w0", FIRST_CARE_OF_ADDRESS, Some("192.0.2.10/24"))).expect("accepted");
    bench.command_portal(portal_order()).expect("accepted");
    // A reload of the same config changes nothing.
    bench.station.reconfigure(bench.now, WALL_TIME, config());
    bench.collect_outputs();
    assert!(bench.has_access() && bench.forwards_ipv4_of_uplinks() && !bench.packet_rules().is_empty());
    let mut without = config();
    without.mobile_router.as_mut().expect("a mobile router").lan = vec!["i1".into()];
    bench.station.reconfigure(bench.now, WALL_TIME, without);
    bench.collect_outputs();
    assert!(!bench.has_access() && bench.packet_rules().is_empty() && !bench.forwards_ipv4_of_uplinks());
    bench.station.reconfigure(bench.now, WALL_TIME, config());
    bench.collect_outputs();
    bench.command_portal(portal_order()).expect("accepted");
    bench.feed_input(Input::PacketRules(Some("no nf_tables".into()))).expect("accepted");
    assert_eq!(bench.last_reason_for_end(), "no nf_tables");
    assert!(bench.command_portal(portal_order()).expect_err("refused").ends_with("no nf_tables"));
}

#[test]
fn refused_portal_order_names_found_and_expected_values() {
    let mut bench = PortalBench::new();
    let refused = |bench: &mut PortalBench, order, expected: &str| {
        let error = bench.command_portal(order).expect_err("refused");
        assert!(error.contains(expected), "{error}");
        assert!(!bench.has_access());
    };
    let other = |uplink: &str| PortalAccessRequest { uplink: uplink.into(), ..portal_order() };
    refused(&mut bench, other("w9"), "cannot find the uplink w9, expected one of: w0, w1");
    for for_s in [0, 3601, u32::MAX] {
        let expected = format!("found a duration of {for_s} s, expected 1 s to 3600 s");
        refused(&mut bench, PortalAccessRequest { for_s, ..portal_order() }, &expected);
    }
    for octets in [[0xff; 6], [0; 6], [1, 0, 0x5e, 0, 0, 1]] {
        let host = carnet_wire::address::MacAddress(octets);
        refused(&mut bench, PortalAccessRequest { host, ..portal_order() }, "expected its own MAC address");
    }
    refused(&mut bench, PortalAccessRequest { lan: "w1".into(), ..portal_order() }, "found the host at w1");
    for server in ["0.0.0.0", "255.255.255.255", "127.0.0.1", "ff02::fb", "::1", "fe80::1"] {
        let dns = vec![server.parse().expect("an address")];
        refused(
            &mut bench,
            PortalAccessRequest { dns, ..portal_order() },
            &format!("found the DNS server {server}"),
        );
    }
    let dns = vec![portal_order().dns[0]; 5];
    refused(
        &mut bench,
        PortalAccessRequest { dns, ..portal_order() },
        "found 5 DNS servers, expected at most 4",
    );
    assert!(bench.end_portal("w0").expect_err("refused").contains("no host has access to it"));
    assert!(bench.end_portal("w9").expect_err("refused").contains("cannot find the uplink w9"));
    bench.feed_input(Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, false))).expect("accepted");
    refused(&mut bench, other("w1"), "the uplink has no address with a default router");

    // Only one host at a time has access.
    bench.command_portal(portal_order()).expect("accepted");
    let host = carnet_wire::address::MacAddress([2, 0, 0, 0, 0, 7]);
    let error = bench.command_portal(PortalAccessRequest { host, ..portal_order() }).expect_err("refused");
    assert!(error.contains("02:00:00:00:00:09 has access to that of w0 for 300 s more"), "{error}");
    assert!(bench.end_portal("w1").expect_err("refused").contains("no host has access to it"));
    let status = bench.station.nemo().uplink_status(bench.now);
    assert_eq!(status[0].portal_access.as_ref().expect("access").host, "02:00:00:00:00:09");
}
