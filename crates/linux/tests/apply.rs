//! Tests that the platform adds and removes entries; `ip` shows the kernel's state.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use carnet_nemo::forwarding::desired::*;

/// Creates two virtual Ethernet pairs; `v0` and `i0` are their ends that carnet uses.
fn create_two_links() {
    for (here, there) in [("v0", "v1"), ("i0", "i1")] {
        run_ip(&format!("link add {here} type veth peer name {there}"));
        // Without `addrgenmode none`, the kernel would add link-local addresses in the middle of a test.
        run_ip(&format!("link set {here} addrgenmode none up"));
        run_ip(&format!("link set {there} addrgenmode none up"));
        wait_until_link_is_up(here);
        wait_until_link_is_up(there);
    }
}

/// The kernel joins the solicited-node group of an address in a worker that needs the lock of all interfaces.
/// Before that, a neighbour's solicitation is lost, and the neighbour repeats it only after a second. In this
/// test, other threads hold the lock all the time.
#[test]
fn assigned_address_is_announced_to_neighbours() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        let mut platform = scratch.open_platform();
        let joined = |group: &str| {
            let groups = std::fs::read_to_string("/proc/thread-self/net/igmp6").unwrap();
            groups.contains(group)
        };
        let stop = Arc::new(AtomicBool::new(false));
        let others: Vec<_> = (0..3)
            .map(|number| {
                let stop = stop.clone();
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        run_ip(&format!("link add x{number} type veth peer name y{number}"));
                        run_ip(&format!("link del x{number}"));
                    }
                })
            })
            .collect();
        for number in 1..=30u16 {
            let entry = address_entry("v0", &format!("2001:db8::1:{number:x}/128"));
            let group = format!("ff0200000000000000000001ff01{number:04x}");
            platform.apply_change(&set_entry(entry.clone())).unwrap();
            assert!(joined(&group), "{group}");
            platform.apply_change(&remove_entry(entry)).unwrap();
            assert!(!joined(&group), "{group} is left");
        }
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// Returns the route that `ip route get` prints for a socket that is bound to the uplink and this address.
fn route_from_source(address: &str) -> String {
    run_ip(&format!("-4 route get 198.51.100.2 from {address} oif v0"))
        .lines()
        .next()
        .unwrap()
        .trim()
        .to_owned()
}

/// Another program provides the uplink's default route. The gateway need not be in the uplink's subnet.
#[test]
fn ipv4_table_of_an_uplink_is_restored_after_every_kind_of_removal() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        run_ip("addr add 10.2.0.185/24 dev v0");
        run_ip("addr add 10.3.0.7/24 dev i0");
        run_ip("route add default via 10.3.0.1 dev i0");
        // Another program, such as a network manager, has a rule of the same priority.
        run_ip("-4 rule add pref 130 from 10.2.0.185 lookup 77");
        let before = kernel_state();
        let (alone, by_table) = ("198.51.100.2 from 10.2.0.185 dev v0", "via 10.64.0.1 dev v0 table 13510");
        assert!(route_from_source("10.2.0.185").starts_with(alone), "the kernel looks for it on the link");

        let mut platform = scratch.open_platform();
        let entries = entries_of_mobile_router("v0", "i0");
        for entry in &entries {
            platform.apply_change(&set_entry(entry.clone())).unwrap();
        }
        assert!(route_from_source("10.2.0.185").contains(by_table), "{}", route_from_source("10.2.0.185"));
        // The lookup ignores the main table's default route over the uplink, and uses the main table's other
        // routes.
        run_ip("route add default via 10.2.0.77 dev v0 metric 5");
        run_ip("route add 203.0.113.0/24 via 10.2.0.88 dev v0");
        assert!(route_from_source("10.2.0.185").contains(by_table), "{}", route_from_source("10.2.0.185"));
        let by_operator = run_ip("-4 route get 203.0.113.9 from 10.2.0.185 oif v0");
        assert!(by_operator.contains("via 10.2.0.88 dev v0"), "{by_operator}");
        let neighbour = run_ip("-4 route get 10.2.0.9 from 10.2.0.185 oif v0");
        assert!(neighbour.starts_with("10.2.0.9 from 10.2.0.185 dev v0"), "{neighbour}");
        run_ip("route del default via 10.2.0.77 dev v0 metric 5");
        run_ip("route del 203.0.113.0/24");
        let unbound = run_ip("-4 route get 198.51.100.2 from 10.2.0.185");
        assert!(unbound.contains("via 10.3.0.1 dev i0"), "other programs' packets: {unbound}");
        let whole =
            |text: String| trimmed_lines(&text).into_iter().collect::<std::collections::BTreeSet<_>>();
        let installed = || whole(run_ip("-4 route show table 13510") + &run_ip("-4 rule show"));
        let complete = installed();
        assert!(complete.contains("default via 10.64.0.1 dev v0 proto 135 onlink"), "{complete:?}");
        events_during(&mut platform, Duration::from_millis(50)).await;

        for loss in [
            "-4 route flush table 13510",
            "-4 rule del pref 130 from 10.2.0.185 oif v0",
            "-4 rule del pref 129",
            "addr del 10.2.0.185/24 dev v0",
            "link set v0 down",
        ] {
            run_ip(loss);
            run_ip("link set v0 up");
            if loss.starts_with("addr") {
                run_ip("addr add 10.2.0.185/24 dev v0");
            }
            events_until(&mut platform, |_| installed() == complete).await;
        }
        // The uplink gets another gateway, as after a DHCP renewal.
        platform.apply_change(&set_entry(ipv4_route_entry("v0", Some("10.2.0.1")))).unwrap();
        assert!(route_from_source("10.2.0.185").contains("via 10.2.0.1 dev v0 table 13510"));
        // The uplink has no gateway, as with a modem.
        platform.apply_change(&set_entry(ipv4_route_entry("v0", None))).unwrap();
        assert!(
            route_from_source("10.2.0.185").contains("dev v0 table 13510"),
            "{}",
            route_from_source("10.2.0.185")
        );
        for entry in entries.iter().rev() {
            platform.apply_change(&remove_entry(entry.clone())).unwrap();
        }
        assert!(route_from_source("10.2.0.185").starts_with(alone));
        platform.close().unwrap();
        assert_eq!(kernel_state(), before);
    });
}

#[test]
fn every_kind_of_kernel_entry_is_added_and_removed() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        let before = kernel_state();
        let mut platform = scratch.open_platform();
        let link = &run_ip_json("link show carnet0")[0];
        assert_eq!((link["mtu"].as_u64(), link["txqlen"].as_u64()), (Some(1452), Some(4000)));
        assert_eq!(link["inet6_addr_gen_mode"], "none");
        assert!(link["flags"].as_array().unwrap().contains(&"UP".into()), "{link}");
        assert_eq!(run_ip("-6 addr show dev carnet0"), "");

        let entries = entries_of_mobile_router("v0", "i0");
        for entry in &entries {
            platform.apply_change(&set_entry(entry.clone())).unwrap();
        }
        assert_eq!((read_sysctl("all/forwarding"), read_sysctl("v0/accept_ra")), ("1".into(), "2".into()));
        let address = &run_ip_json("-6 addr show dev i0")[0]["addr_info"][0];
        assert_eq!((&address["local"], &address["prefixlen"]), (&"2001:db8:a::1".into(), &64.into()));
        assert_eq!((&address["nodad"], &address["tentative"]), (&true.into(), &serde_json::Value::Null));

        let capture = routes_of_table("13500");
        assert_eq!(capture.len(), 1, "{capture:?}");
        assert_eq!((&capture[0]["dst"], &capture[0]["dev"]), (&"default".into(), &"carnet0".into()));
        assert_eq!((&capture[0]["protocol"], &capture[0]["metric"]), (&"135".into(), &1024.into()));
        let tunnel = routes_of_table("13501");
        assert_eq!(tunnel.len(), 2, "{tunnel:?}");
        assert_eq!((&tunnel[0]["dev"], &tunnel[0]["metric"]), (&"carnet0".into(), &1024.into()));
        assert_eq!((&tunnel[1]["type"], &tunnel[1]["metric"]), (&"unreachable".into(), &4096.into()));
        let uplink = routes_of_table("13510");
        assert_eq!((&uplink[0]["gateway"], &uplink[0]["dev"]), (&"fe80::1".into(), &"v0".into()));
        assert_eq!(
            policy_rules(),
            [
                "100: from 2001:db8:1::1 iif v0 ipproto ipv6 lookup 13500 proto 135",
                "100: from 2001:db8:1::1 iif v0 ipproto mobility-header lookup 13500 proto 135",
                "100: from 2001:db8:1::1 iif v0 ipproto ipv6-frag lookup 13500 proto 135",
                "110: from all lookup local proto 135",
                "120: from all to 2001:db8:a::/64 lookup main proto 135",
                "130: from 2001:db8:f1::10 lookup 13510 proto 135",
                "140: from 2001:db8:a::/64 lookup 13501 proto 135",
                "32766: from all lookup main proto kernel",
            ]
        );

        for entry in entries.iter().rev() {
            platform.apply_change(&remove_entry(entry.clone())).unwrap();
        }
        assert_eq!(
            policy_rules(),
            ["0: from all lookup local proto kernel", "32766: from all lookup main proto kernel"]
        );
        assert!(
            routes_of_table("13500").is_empty()
                && routes_of_table("13501").is_empty()
                && routes_of_table("13510").is_empty()
        );
        assert_eq!(run_ip("-6 addr show dev i0"), "");
        assert_eq!(read_sysctl("v0/accept_ra"), "1");
        platform.close().unwrap();
        assert_eq!(kernel_state(), before);
        assert!(!scratch.undo_file().exists());
    });
}

#[test]
fn closing_and_dropping_platform_restores_kernel() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        let before = kernel_state();
        for close in [true, false] {
            let mut platform = scratch.open_platform();
            let tunnel = platform.tunnel_device();
            for entry in entries_of_mobile_router("v0", "i0") {
                platform.apply_change(&set_entry(entry)).unwrap();
            }
            assert!(scratch.undo_file().exists());
            assert_ne!(kernel_state(), before);
            if close {
                platform.close().unwrap();
            } else {
                drop(platform);
            }
            // The TUN device is gone, although another process still has a copy of its descriptor.
            assert_eq!(kernel_state(), before);
            assert!(!scratch.undo_file().exists());
            assert!(tunnel.try_write(&[0x60; 40]).is_err());
        }
    });
}

/// A netlink request would wait for the RTNL mutex, and the packets of the slow path would have to wait too.
#[test]
fn counters_of_interfaces_are_read_without_a_request_to_the_kernel() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        let platform = scratch.open_platform();
        let before = platform.counters();
        let first = platform.interface_octets("v0").unwrap().unwrap();
        run_ip("-6 addr add 2001:db8::1/64 dev v0 nodad");
        let socket = UdpSocket::bind("[::]:0").unwrap();
        run_ip("-6 neigh add 2001:db8::2 lladdr 02:00:00:00:00:01 dev v0");
        socket.send_to(&[0; 1000], "[2001:db8::2]:9").unwrap();
        let second = platform.interface_octets("v0").unwrap().unwrap();
        assert_eq!((second.epoch, second.received), (first.epoch, first.received));
        // The counters include Ethernet, IPv6 and UDP headers, and MLD reports that the kernel may send
        // meanwhile.
        assert!(second.total >= first.total + 1062, "{first:?} {second:?}");
        run_ip("link del v0");
        assert_eq!(platform.interface_octets("v0").unwrap(), None);
        run_ip("link add v0 type veth peer name v1");
        let again = platform.interface_octets("v0").unwrap().unwrap();
        assert!(again.epoch != first.epoch && again.total < second.total, "{again:?}");
        assert_eq!(platform.counters().read_requests, before.read_requests);
    });
}

#[test]
fn unchanged_desired_state_makes_no_system_call() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        let mut platform = scratch.open_platform();
        let entries = entries_of_mobile_router("v0", "i0");
        for entry in &entries {
            platform.apply_change(&set_entry(entry.clone())).unwrap();
        }
        events_during(&mut platform, Duration::from_millis(200)).await;
        let before = platform.counters();
        for entry in &entries {
            platform.apply_change(&set_entry(entry.clone())).unwrap();
        }
        assert_eq!(platform.counters(), before);
        // carnet's own changes also cause no events that lead to requests or repairs.
        platform.apply_change(&set_entry(route_entry(TABLE_TUNNEL, "::/0", 1024, "unreachable"))).unwrap();
        events_during(&mut platform, Duration::from_millis(200)).await;
        let after = platform.counters();
        assert_eq!(
            (after.write_calls, after.read_requests, after.restored_entries),
            (before.write_calls + 1, before.read_requests, 0)
        );
    });
}

#[test]
fn route_is_replaced_without_gap() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        add_address("v0", "2001:db8:f1::10/64");
        let mut platform = scratch.open_platform();
        let ways = [
            "fe80::1 v0",
            "fe80::2 v0",
            "i0",
            "fe80::1 i0",
            TUNNEL_DEVICE,
            "fe80::1 v0",
            "v0",
            TUNNEL_DEVICE,
        ];
        platform
            .apply_change(&set_entry(route_entry(TABLE_MAIN, "2001:db8:c::/64", 512, "fe80::3 i0")))
            .unwrap();
        // Two observers check that the route exists all the time: a monitor of the kernel's events, and a
        // socket that looks the route up repeatedly.
        let account = scratch.path().join("account");
        let mut monitor = Command::new("ip")
            .args(["-6", "monitor", "route"])
            .stdout(std::fs::File::create(&account).unwrap())
            .spawn()
            .unwrap();
        let told = |what: &str| std::fs::read_to_string(&account).unwrap().contains(what);
        // When the monitor reports this first route, it has begun to listen.
        while !told("2001:db8:77::") {
            run_ip("-6 route add 2001:db8:77::/48 dev v0");
            std::thread::sleep(Duration::from_millis(20));
            run_ip("-6 route del 2001:db8:77::/48 dev v0");
        }
        let (stop, gaps, tries) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let socket = UdpSocket::bind("[::]:0").unwrap();
        let looker = std::thread::spawn({
            let (stop, gaps, tries) = (stop.clone(), gaps.clone(), tries.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    tries.fetch_add(1, Ordering::Relaxed);
                    // While the kernel replaces a route, a lookup may find the old route just as its last
                    // reference is dropped (ip6_rt_pcpu_alloc). The kernel then returns ENETUNREACH once, for
                    // any program with NLM_F_REPLACE. So the test fails only if the next lookup fails, too.
                    let fails = || socket.connect("[2001:db8:c::1]:9").is_err();
                    if fails() && fails() {
                        gaps.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        let mut rounds = 0;
        while rounds < 100 || tries.load(Ordering::Relaxed) < 20_000 {
            for way in ways {
                platform
                    .apply_change(&set_entry(route_entry(TABLE_MAIN, "2001:db8:c::/64", 512, way)))
                    .unwrap();
                if rounds == 0 {
                    let now = run_ip_json("-6 route show 2001:db8:c::/64");
                    assert_eq!(now.len(), 1, "{way}: {now:?}");
                    assert_eq!(now[0]["nexthops"], serde_json::Value::Null, "{now:?}");
                    let device = now[0]["dev"].as_str().unwrap();
                    match now[0]["gateway"].as_str() {
                        Some(gateway) => assert_eq!(way, format!("{gateway} {device}")),
                        None => assert_eq!(way, device),
                    }
                }
            }
            rounds += 1;
        }
        run_ip("-6 route add 2001:db8:78::/48 dev v0");
        while !told("2001:db8:78::") {
            std::thread::sleep(Duration::from_millis(20));
        }
        monitor.kill().unwrap();
        monitor.wait().unwrap();
        assert!(told("2001:db8:c::/64") && !told("Deleted 2001:db8:c::/64"));
        stop.store(true, Ordering::Relaxed);
        looker.join().unwrap();
        assert_eq!(gaps.load(Ordering::Relaxed), 0, "of {} look-ups", tries.load(Ordering::Relaxed));
        for way in ["unreachable", "v0", "unreachable", "fe80::1 v0"] {
            platform.apply_change(&set_entry(route_entry(TABLE_MAIN, "2001:db8:c::/64", 512, way))).unwrap();
            assert_eq!(run_ip_json("-6 route show 2001:db8:c::/64").len(), 1);
        }
    });
}

#[test]
fn foreign_kernel_entries_stay() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        add_address("i0", "2001:db8:a::1/64");
        run_ip("-6 route add 2001:db8:c::/64 dev v0 metric 512 proto static");
        run_ip("-6 route add 2001:db8:d::/64 dev v0 metric 512 proto 135");
        let before = kernel_state();
        let mut platform = scratch.open_platform();
        // carnet has removed this route at its start, because the route has carnet's mark.
        assert!(run_ip_json("-6 route show 2001:db8:d::/64").is_empty());

        platform.apply_change(&set_entry(address_entry("i0", "2001:db8:a::1/128"))).unwrap();
        let error = platform
            .apply_change(&set_entry(route_entry(TABLE_MAIN, "2001:db8:c::/64", 512, TUNNEL_DEVICE)))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot add route 2001:db8:c::/64 dev carnet0 to table 254: another program (routing \
             protocol number 4) has installed a route with the same destination and metric (`ip -6 route \
             show table 254`)"
        );
        platform.apply_change(&remove_entry(address_entry("i0", "2001:db8:a::1/128"))).unwrap();
        platform.apply_change(&set_entry(address_entry("i0", "2001:db8:a::1/64"))).unwrap();
        platform.close().unwrap();
        run_ip("-6 route add 2001:db8:d::/64 dev v0 metric 512 proto 135");
        assert_eq!(kernel_state(), before);
    });
}

/// The test needs a kernel that stores marks of addresses (5.18 or later). On such a kernel, the kernel's own
/// address on `lo` has a mark.
#[test]
fn address_taken_over_by_operator_stays() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        run_ip("link set lo up");
        let entry = || address_entry("i0", "2001:db8:a::1/64");
        for anew in [true, false] {
            let mut platform = scratch.open_platform();
            platform.apply_change(&set_entry(entry())).unwrap();
            if anew {
                run_ip("-6 addr del 2001:db8:a::1/64 dev i0");
            }
            run_ip("-6 addr replace 2001:db8:a::1/64 dev i0 nodad");
            events_during(&mut platform, Duration::from_millis(100)).await;
            platform.apply_change(&remove_entry(entry())).unwrap();
            platform.close().unwrap();
            assert_eq!(
                run_ip_json("-6 addr show dev i0")[0]["addr_info"][0]["local"],
                "2001:db8:a::1",
                "anew: {anew}"
            );
            run_ip("-6 addr del 2001:db8:a::1/64 dev i0");
        }
    });
}

#[test]
fn an_address_can_change_its_prefix_length() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        let mut platform = scratch.open_platform();
        for length in ["64", "128", "64"] {
            platform
                .apply_change(&set_entry(address_entry("i0", &format!("2001:db8:a::1/{length}"))))
                .unwrap();
            let info = &run_ip_json("-6 addr show dev i0")[0]["addr_info"];
            assert_eq!(info.as_array().unwrap().len(), 1);
            assert_eq!(info[0]["prefixlen"].to_string(), length);
        }
        platform.apply_change(&remove_entry(address_entry("i0", "2001:db8:a::1/64"))).unwrap();
        assert_eq!(run_ip("-6 addr show dev i0"), "");
    });
}

#[test]
fn settings_are_restored_unless_another_program_changed_them() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        set_sysctl("i0/forwarding", "1");
        set_sysctl("v0/accept_ra", "2");
        let mut platform = scratch.open_platform();
        let writes = platform.counters().write_calls;
        platform.apply_change(&set_entry(setting_entry("v0", "accept_ra", "2"))).unwrap();
        assert_eq!(platform.counters().write_calls, writes, "it was right already");

        platform.apply_change(&set_entry(setting_entry("i0", "accept_ra", "0"))).unwrap();
        platform.apply_change(&set_entry(setting_entry("i0", "accept_ra", "2"))).unwrap();
        platform.apply_change(&set_entry(setting_entry("i0", "proxy_ndp", "1"))).unwrap();
        platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        assert_eq!(
            (read_sysctl("v0/forwarding"), read_sysctl("default/forwarding")),
            ("1".into(), "1".into())
        );
        let undo = std::fs::read_to_string(scratch.undo_file()).unwrap();
        assert!(undo.contains("accept_ra") && undo.contains("proxy_ndp"), "{undo}");

        set_sysctl("i0/proxy_ndp", "2");
        platform.apply_change(&remove_entry(setting_entry("i0", "accept_ra", "2"))).unwrap();
        assert_eq!(read_sysctl("i0/accept_ra"), "2", "like all others while the machine forwards");
        platform.close().unwrap();
        assert_eq!(read_sysctl("i0/accept_ra"), "1");
        assert_eq!(read_sysctl("i0/proxy_ndp"), "2", "that was the operator");
        assert_eq!(read_sysctl("v0/accept_ra"), "2");
        assert_eq!(read_sysctl("all/forwarding"), "0");
        assert_eq!(
            (read_sysctl("v0/forwarding"), read_sysctl("default/forwarding")),
            ("0".into(), "0".into())
        );
        // `forwarding` was 1 before the write of 0 to `all` overwrote it. carnet must restore it.
        assert_eq!(read_sysctl("i0/forwarding"), "1");
    });
}

#[test]
fn settings_of_all_and_of_one_interface_are_independent() {
    in_new_namespace(|scratch| async move {
        // In the alphabet, one interface's name precedes `all`, and the other's follows it.
        run_ip("link add a0 type veth peer name v0");
        let (all, early, late) = (
            setting_entry("all", "forwarding", "1"),
            setting_entry("a0", "forwarding", "0"),
            setting_entry("v0", "forwarding", "0"),
        );
        let state =
            || ["all", "a0", "v0", "lo"].map(|name| read_sysctl(&format!("{name}/forwarding"))).concat();
        set_sysctl("v0/forwarding", "1");
        assert_eq!(state(), "0010");
        for order in [[&all, &early, &late], [&early, &all, &late], [&late, &early, &all]] {
            for removal in [[&all, &early, &late], [&late, &all, &early], [&early, &late, &all]] {
                let mut platform = scratch.open_platform();
                for entry in order {
                    platform.apply_change(&set_entry(entry.clone())).unwrap();
                }
                assert_eq!(state(), "1001");
                for entry in removal {
                    platform.apply_change(&remove_entry(entry.clone())).unwrap();
                }
                assert_eq!(state(), "0010");
                platform.close().unwrap();
            }
        }
    });
}

#[test]
fn setting_name_cannot_leave_its_sysctl_directory() {
    in_new_namespace(|scratch| async move {
        let mut platform = scratch.open_platform();
        for (interface, name) in
            [("..", "flowlabel_consistency"), ("all", "../../ip6frag_time"), ("a/b", "x")]
        {
            let error = platform.apply_change(&set_entry(setting_entry(interface, name, "0"))).unwrap_err();
            assert!(error.to_string().starts_with("setting: expected"), "{error}");
        }
    });
}

#[test]
fn local_rule_moves_with_first_tunnel_rule_and_returns_after_the_last() {
    in_new_namespace(|scratch| async move {
        let usual = ["0: from all lookup local proto kernel", "32766: from all lookup main proto kernel"];
        let mut platform = scratch.open_platform();
        platform
            .apply_change(&set_entry(rule_entry(
                priority::FROM_MOBILE_NETWORK,
                Some("2001:db8:a::/64"),
                None,
                13501,
            )))
            .unwrap();
        assert_eq!(policy_rules()[0], usual[0]);
        let (first, second) = (capture_rule("v0", "2001:db8:1::1/128", 41), capture_rule("v1", "::/0", 41));
        platform.apply_change(&set_entry(first.clone())).unwrap();
        platform.apply_change(&set_entry(second.clone())).unwrap();
        assert_eq!(policy_rules()[2], "110: from all lookup local proto 135");
        assert_eq!(policy_rules().len(), 5);
        platform.apply_change(&remove_entry(first)).unwrap();
        assert_eq!(policy_rules()[1], "110: from all lookup local proto 135");
        platform.apply_change(&remove_entry(second)).unwrap();
        assert_eq!(policy_rules()[0], usual[0]);
        assert_eq!(policy_rules().len(), 3);
        platform.close().unwrap();
        assert_eq!(policy_rules(), usual);

        // An operator has moved the rule of the local table, so carnet neither moves it nor adds it at
        // priority 0.
        run_ip("-6 rule add pref 200 lookup local");
        run_ip("-6 rule del pref 0");
        let before = policy_rules();
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(capture_rule("v0", "2001:db8:1::1/128", 41))).unwrap();
        platform.close().unwrap();
        assert_eq!(policy_rules(), before);
    });
}

#[test]
fn kernel_errors_name_the_attempted_operation() {
    in_new_namespace(|scratch| async move {
        create_two_links();
        let mut platform = scratch.open_platform();
        // The kernel refuses a route whose gateway is not on the link. The gateway may come soon, so carnet
        // reports the refusal only after some attempts.
        let early = set_entry(route_entry(13510, "2001:db8::/64", 1, "2001:db8:9::1 v0"));
        platform.apply_change(&early).expect("it is tried again");
        assert_eq!(routes_of_table("13510"), Vec::<String>::new());
        run_ip("-6 addr add fe80::77/64 dev v0 nodad");
        let error = platform
            .apply_change(&set_entry(route_entry(13511, "::/0", 1, "fe80::77 v0")))
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("(os error 22): Gateway can not be a local address"), "{error}");
        // The route stays desired. When the gateway is on the link, carnet installs the route.
        run_ip("-6 addr add 2001:db8:9::2/64 dev v0 nodad");
        events_until(&mut platform, |_| !routes_of_table("13510").is_empty()).await;

        let error = carnet_linux::Platform::open(scratch.platform_config()).unwrap_err();
        assert!(error.to_string().starts_with("carnet0 exists already: another carnet station"), "{error}");
        // The second station has not changed the entries of the first station.
        assert_eq!(routes_of_table("13510").len(), 1);
        drop(platform);
        for kind in ["link add carnet0 type veth peer name other", "tuntap add mode tun name carnet0"] {
            run_ip(kind);
            let error = carnet_linux::Platform::open(scratch.platform_config()).unwrap_err();
            assert!(error.to_string().starts_with("carnet0 exists already"), "{error}");
            run_ip("link del carnet0");
        }
    });
}

#[test]
fn only_strict_rp_filter_of_uplink_becomes_loose() {
    in_new_namespace(|scratch| async move {
        let path = |interface: &str| format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter");
        let read = |interface: &str| std::fs::read_to_string(path(interface)).unwrap().trim().to_owned();
        let write = |interface: &str, value: &str| std::fs::write(path(interface), value).unwrap();
        for name in ["v0", "v1"] {
            run_ip(&format!("link add {name} type veth peer name {name}p"));
        }
        write("all", "0");
        write("v0", "1");
        write("v1", "0");
        let mut platform = scratch.open_platform();
        let wanted = ["v0", "v1"].map(|name| setting_entry(name, "rp_filter", "2"));
        for entry in &wanted {
            platform.apply_change(&set_entry(entry.clone())).unwrap();
        }
        assert_eq!((read("v0"), read("v1")), ("2".to_owned(), "0".to_owned()));
        for entry in wanted {
            platform.apply_change(&remove_entry(entry)).unwrap();
        }
        assert_eq!((read("v0"), read("v1")), ("1".to_owned(), "0".to_owned()));
        // Now `rp_filter` of `all` is strict.
        write("all", "1");
        platform.apply_change(&set_entry(setting_entry("v1", "rp_filter", "2"))).unwrap();
        assert_eq!(read("v1"), "2");
        drop(platform);
        assert_eq!((read("v1"), read("all")), ("0".to_owned(), "1".to_owned()));
    });
}
