//! carnet's table of the packet filter has the rules of the desired state. carnet restores it after a change
//! by another program. The table stays after a crash, and is gone at the end.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;
use std::time::Duration;

use carnet_nemo::forwarding::desired::{EntryChange, ForwardingEntry};
use carnet_nemo::forwarding::packet_rules::{
    ConnectionState, CountedTraffic, HostIdentity, HostRate, LimitedHosts, Mark, PacketCount, PacketMatch,
    PacketRule, PortRange, RuleChain, RuleVerdict, TrafficKind,
};
use common::{events_until, in_new_namespace, route_entry, run_command, run_ip};

fn rule(order: u32, packets: PacketMatch, verdict: RuleVerdict) -> PacketRule {
    PacketRule { chain: RuleChain::Forward, order, packets, counts: false, total: None, verdict }
}

fn set_rule(rule: &PacketRule) -> EntryChange {
    EntryChange::Set(ForwardingEntry::PacketRule(Box::new(rule.clone())).into())
}

fn remove_rule(rule: &PacketRule) -> EntryChange {
    EntryChange::Remove(ForwardingEntry::PacketRule(Box::new(rule.clone())).into())
}

/// Returns the rules of carnet's table as `nft` prints them; `None` if the table does not exist.
fn printed_table() -> Option<Vec<String>> {
    let output = Command::new("nft").args(["-n", "list", "table", "inet", "carnet_rules"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| text.lines().map(|line| line.trim().to_owned()).collect())
}

fn table_has_line(line: &str) -> bool {
    printed_table().is_some_and(|lines| lines.iter().any(|it| it == line))
}

/// Two rules that pass only answers to connections into `lan0`.
fn inbound_filter_rules() -> [PacketRule; 2] {
    let to_lan = PacketMatch { output_interface: Some("lan0".into()), ..PacketMatch::default() };
    let states = vec![ConnectionState::Established, ConnectionState::Related];
    [
        rule(1, PacketMatch { states, ..to_lan.clone() }, RuleVerdict::Accept),
        rule(2, to_lan, RuleVerdict::Drop),
    ]
}

#[test]
fn nft_prints_each_kind_of_rule_of_the_table() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        let all = PacketMatch::default;
        let prefix = |text: &str| Some(text.parse().unwrap());
        let nat = |order, packets, verdict| PacketRule {
            chain: RuleChain::SourceNat,
            order,
            packets,
            counts: true,
            total: None,
            verdict,
        };
        let mark = Mark { mask: 0xff, value: 5 };
        let destination = |order, source, server: &str| PacketRule {
            chain: RuleChain::DestinationNat,
            order,
            packets: PacketMatch {
                source,
                protocol: Some(17),
                ports: Some(PortRange { first: 53, last: 53 }),
                ..all()
            },
            counts: false,
            total: None,
            verdict: RuleVerdict::DestinationAddress(server.parse().unwrap()),
        };
        let mut rules = vec![
            (
                rule(
                    1,
                    PacketMatch {
                        input_interface: Some("wan0".into()),
                        destination: prefix("::ffff:10.0.0.0/105"),
                        protocol: Some(6),
                        ports: Some(PortRange { first: 80, last: 90 }),
                        source_ports: Some(PortRange { first: 1024, last: 2047 }),
                        ..all()
                    },
                    RuleVerdict::Drop,
                ),
                "iifname \"wan0\" ip daddr 10.0.0.0/9 tcp sport 1024-2047 tcp dport 80-90 drop",
            ),
            (
                rule(
                    2,
                    PacketMatch {
                        destination: prefix("2001:db8:a::77/128"),
                        protocol: Some(58),
                        icmp_type: Some(128),
                        ..all()
                    },
                    RuleVerdict::Accept,
                ),
                "ip6 daddr 2001:db8:a::77 icmpv6 type 128 accept",
            ),
            (
                rule(
                    3,
                    PacketMatch { states: inbound_filter_rules()[0].packets.states.clone(), ..all() },
                    RuleVerdict::Accept,
                ),
                "ct state 0x2,0x4 accept",
            ),
            (
                PacketRule {
                    chain: RuleChain::Prerouting,
                    ..rule(
                        4,
                        PacketMatch { link_source: Some([2, 0, 0, 0, 0, 9]), ..all() },
                        RuleVerdict::SetMark(mark),
                    )
                },
                "ether saddr 02:00:00:00:00:09 meta mark set meta mark & 0xffffff05 | 0x00000005",
            ),
            (
                PacketRule {
                    chain: RuleChain::Output,
                    ..rule(5, PacketMatch { mark: Some(mark), ..all() }, RuleVerdict::SetConnectionMark(mark))
                },
                "meta mark & 0x000000ff == 0x00000005 ct mark set ct mark & 0xffffff05 | 0x00000005",
            ),
            (
                PacketRule {
                    chain: RuleChain::Prerouting,
                    ..rule(
                        6,
                        PacketMatch { source: prefix("2001:db8:a::/63"), dscp: Some(46), ..all() },
                        RuleVerdict::Accept,
                    )
                },
                "ip6 saddr 2001:db8:a::/63 ip6 dscp 0x2e accept",
            ),
            (
                PacketRule {
                    chain: RuleChain::Prerouting,
                    ..rule(9, PacketMatch { connection_mark: Some(mark), ..all() }, RuleVerdict::Accept)
                },
                "ct mark & 0x000000ff == 0x00000005 accept",
            ),
            (
                PacketRule { chain: RuleChain::Early, ..rule(10, all(), RuleVerdict::Zone(13_500)) },
                "ct original zone set 13500",
            ),
            (
                nat(
                    7,
                    PacketMatch { output_interface: Some("wan0".into()), ..all() },
                    RuleVerdict::Masquerade,
                ),
                "oifname \"wan0\" counter packets 0 bytes 0 masquerade",
            ),
            (
                nat(
                    8,
                    PacketMatch { source: prefix("fd00:1::/64"), ..all() },
                    RuleVerdict::SourcePrefix("2001:db8:1::/64".parse().unwrap()),
                ),
                "ip6 saddr fd00:1::/64 counter packets 0 bytes 0 snat ip6 prefix to 2001:db8:1::/64",
            ),
            (
                destination(11, prefix("::ffff:10.42.7.0/120"), "192.0.2.53"),
                "ip saddr 10.42.7.0/24 udp dport 53-53 dnat ip to 192.0.2.53",
            ),
            (
                destination(12, prefix("2001:db8:a::/64"), "2001:db8::53"),
                "ip6 saddr 2001:db8:a::/64 udp dport 53-53 dnat ip6 to 2001:db8::53",
            ),
        ];
        let limit = |by, hosts| {
            let over_rate = Some(HostRate { octets_per_s: 102_400, hosts, by });
            let source = prefix("::/0").filter(|_| by == HostIdentity::Address);
            let packets =
                PacketMatch { input_interface: Some("lan0".to_owned()), source, over_rate, ..all() };
            PacketRule { chain: RuleChain::Forward, ..rule(13, packets, RuleVerdict::Drop) }
        };
        let rate = "limit rate over 100 kbytes/second burst 64 kbytes";
        let (each, shared) = (
            format!("meta iiftype != 1 update @from6-lan0 {{ ip6 saddr {rate} }} drop"),
            format!("!= @from6-lan0 {rate} drop"),
        );
        let by_link = format!("update @from-lan0 {{ ether saddr {rate} }} drop");
        let others_by_link = format!("!= @from-lan0 {rate} drop");
        rules.extend([
            (
                PacketRule {
                    chain: RuleChain::DestinationNat,
                    ..rule(
                        14,
                        PacketMatch { destination: prefix("2001:db8:1::/64"), ..all() },
                        RuleVerdict::DestinationPrefix("fd00:1::/64".parse().unwrap()),
                    )
                },
                "ip6 daddr 2001:db8:1::/64 dnat ip6 prefix to fd00:1::/64",
            ),
            (limit(HostIdentity::Address, LimitedHosts::Each), each.as_str()),
            (limit(HostIdentity::Address, LimitedHosts::Others), shared.as_str()),
            (limit(HostIdentity::LinkAddress, LimitedHosts::Each), by_link.as_str()),
            (limit(HostIdentity::LinkAddress, LimitedHosts::Others), others_by_link.as_str()),
        ]);
        for (rule, _) in &rules {
            platform.apply_change(&set_rule(rule)).unwrap();
        }
        assert_eq!(printed_table(), None);
        platform.commit_to_fast_path();
        assert_eq!(platform.obstacle_messages(), Vec::<String>::new());
        let lines = printed_table().unwrap().join("\n");
        for (_, line) in &rules {
            assert!(lines.contains(line), "{line} is not in\n{lines}");
        }
        platform.close().unwrap();
        assert_eq!(printed_table(), None);
    });
}

#[test]
fn packet_counts_survive_replacement_of_the_nftables_table() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        let kind = TrafficKind::Policy("p".into());
        let traffic = CountedTraffic { kind, interface: "lo".into(), is_outgoing: true };
        let total = Some(Box::new(traffic.clone()));
        let any = PacketMatch { source: Some("::1/128".parse().unwrap()), ..PacketMatch::default() };
        let counting = PacketRule {
            chain: RuleChain::Input,
            counts: true,
            total,
            ..rule(5, any, RuleVerdict::Continue)
        };
        platform.apply_change(&set_rule(&counting)).unwrap();
        platform.commit_to_fast_path();
        let line = "ip6 saddr ::1 counter packets 0 bytes 0";
        assert!(table_has_line(line), "{:?}", printed_table());
        let ping = || run_command("ping -6 -c 1 -s 52 ::1");
        let counted = |platform: &mut carnet_linux::Platform| platform.counted_traffic()[&traffic];
        ping();
        // The rule has counted an Echo Request and its reply, of 100 octets each.
        assert_eq!(counted(&mut platform), PacketCount { packets: 2, octets: 200 });
        platform.apply_change(&set_rule(&inbound_filter_rules()[1])).unwrap();
        platform.commit_to_fast_path();
        assert_eq!(counted(&mut platform), PacketCount { packets: 2, octets: 200 });
        ping();
        platform.apply_change(&remove_rule(&counting)).unwrap();
        platform.commit_to_fast_path();
        assert_eq!(counted(&mut platform), PacketCount { packets: 4, octets: 400 });
        platform.close().unwrap();
    });
}

#[test]
fn nftables_rules_take_effect_before_later_entries() {
    in_new_namespace(|scratch| async move {
        run_command("nft add table inet other");
        let mut platform = scratch.open_platform();
        for rule in &inbound_filter_rules() {
            platform.apply_change(&set_rule(rule)).unwrap();
        }
        platform
            .apply_change(&EntryChange::Set(route_entry(254, "2001:db8:b::/64", 1, "unreachable").into()))
            .unwrap();
        assert!(table_has_line("oifname \"lan0\" drop"), "{:?}", printed_table());
        platform.apply_change(&remove_rule(&inbound_filter_rules()[0])).unwrap();
        platform.commit_to_fast_path();
        assert!(
            table_has_line("oifname \"lan0\" drop")
                && !table_has_line("oifname \"lan0\" ct state 0x2,0x4 accept")
        );
        platform.apply_change(&remove_rule(&inbound_filter_rules()[1])).unwrap();
        platform.commit_to_fast_path();
        assert_eq!(printed_table(), None);
        platform.close().unwrap();
        run_command("nft list table inet other");
    });
}

#[test]
fn changed_nftables_table_is_restored() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        for rule in &inbound_filter_rules() {
            platform.apply_change(&set_rule(rule)).unwrap();
        }
        platform.commit_to_fast_path();
        let installed = printed_table();
        let changes = [
            "flush ruleset",
            "flush table inet carnet_rules",
            "insert rule inet carnet_rules forward accept",
            "add chain inet carnet_rules forward { policy drop ; }",
        ];
        for (number, change) in (1..).zip(changes) {
            run_command(&format!("nft {change}"));
            events_until(&mut platform, |_| printed_table() == installed).await;
            assert_eq!(platform.counters().restored_entries, number, "{change}");
        }
        // carnet ignores a change of another table.
        run_command("nft add table inet other");
        common::events_during(&mut platform, Duration::from_millis(1500)).await;
        assert_eq!(platform.counters().restored_entries, 4);
        platform.close().unwrap();
    });
}

#[test]
fn nftables_table_survives_a_crash_until_the_next_start() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        for rule in &inbound_filter_rules() {
            platform.apply_change(&set_rule(rule)).unwrap();
        }
        platform.commit_to_fast_path();
        let crash = |platform: carnet_linux::Platform| {
            std::mem::forget(platform);
            run_ip("link del carnet0");
        };
        crash(platform);
        assert!(table_has_line("oifname \"lan0\" drop"));
        // The next station has other rules. The former table stays until the station installs them.
        let mut platform = scratch.open_platform();
        assert!(table_has_line("oifname \"lan0\" drop"));
        platform.apply_change(&set_rule(&inbound_filter_rules()[1])).unwrap();
        platform.commit_to_fast_path();
        assert!(
            table_has_line("oifname \"lan0\" drop")
                && !table_has_line("oifname \"lan0\" ct state 0x2,0x4 accept")
        );
        crash(platform);
        // The third station has no rules, and removes the former table.
        let mut platform = scratch.open_platform();
        events_until(&mut platform, |_| printed_table().is_none()).await;
        platform.close().unwrap();
    });
}
