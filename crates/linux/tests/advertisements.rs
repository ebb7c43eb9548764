//! Tests Router Advertisements on a machine that carnet makes a router. Also tests that carnet does not
//! change an `accept_ra` that another program has set to 0.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::time::{Duration, Instant};

use carnet_linux::{Platform, PlatformEvent};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Makes `p0` in the peer's namespace advertise itself as default router for ten minutes.
fn send_router_advertisement(peer: &PeerNamespace) {
    peer.run_in_namespace(|| {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        let index = nix::net::if_::if_nametoindex("p0").unwrap();
        socket.set_multicast_hops_v6(255).unwrap();
        let all_nodes = std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
        let message = [134, 0, 0, 0, 64, 0, 2, 88, 0, 0, 0, 0, 0, 0, 0, 0];
        socket.send_to(&message, &SockAddr::from(all_nodes)).unwrap();
    });
}

fn has_learnt_default_route() -> bool {
    run_ip("-6 route show default").contains("proto ra")
}

/// Settings of the home link `h0` that a home agent needs to be 0.
const STOPPED_SETTINGS: [&str; 2] = ["accept_ra_defrtr", "accept_ra_pinfo"];

fn stopped_setting_values() -> [String; 2] {
    STOPPED_SETTINGS.map(|name| read_sysctl(&format!("h0/{name}")))
}

/// Opens the platform of a home agent on the home link `h0`, whose other end is the peer's `p0`.
fn open_home_agent(scratch: &ScratchFolder, peer: &PeerNamespace) -> Platform {
    peer.create_link("h0", "p0");
    peer.run_in_namespace(|| {
        run_ip("-6 addr flush dev p0");
        run_ip("-6 addr add fe80::aa/64 dev p0 nodad");
        wait_until_address_is_usable("p0", "fe80::aa");
    });
    let mut platform = scratch.open_platform_watching("h0", true);
    platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
    for name in STOPPED_SETTINGS {
        platform.apply_change(&set_entry(setting_entry("h0", name, "0"))).unwrap();
    }
    platform
}

/// Lets the peer advertise until the platform has received one more advertisement.
async fn wait_for_advertisement(platform: &mut Platform, peer: &PeerNamespace) {
    let is_advertisement = |event: &PlatformEvent| match event {
        PlatformEvent::Icmpv6(heard) => heard.message.first() == Some(&134),
        _ => false,
    };
    events_until(platform, |seen| {
        send_router_advertisement(peer);
        seen.iter().any(is_advertisement)
    })
    .await;
}

/// Waits until the platform reports an obstacle with each of these texts.
async fn wait_for_obstacle_messages(platform: &mut Platform, texts: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_told =
        |platform: &Platform, text: &&str| platform.obstacle_messages().iter().any(|it| it.contains(text));
    while !texts.iter().all(|text| is_told(platform, text)) {
        assert!(Instant::now() < deadline, "{:?}", platform.obstacle_messages());
        events_during(platform, Duration::from_millis(20)).await;
    }
}

/// If the machine has another default route, the home agent's kernel takes no routes from advertisements on
/// the home link. Otherwise a host there could redirect the home agent's packets to itself.
#[test]
fn home_agent_ignores_advertised_default_route_if_it_has_another() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        let mut platform = open_home_agent(&scratch, &peer);
        wait_for_obstacle_messages(
            &mut platform,
            &["this machine has no other default route", "it has no permanent address on that link"],
        )
        .await;
        assert_eq!(stopped_setting_values(), ["1", "1"], "it may be the only way out");

        run_ip("link add up0 type veth peer name up1");
        run_ip("link set up1 up");
        run_ip("link set up0 up");
        wait_until_link_is_up("up0");
        run_ip("-6 route add default via fe80::1 dev up0");
        add_address("h0", "2001:db8:1::ff/64");
        events_until(&mut platform, |_| stopped_setting_values() == ["0", "0"]).await;
        assert_eq!(platform.obstacle_messages(), [""; 0]);
        // The home agent still receives advertisements, for its Home Agents List (RFC 6275 8.4).
        wait_for_advertisement(&mut platform, &peer).await;
        assert!(!has_learnt_default_route(), "{}", run_ip("-6 route show"));
        run_ip("-6 route del default dev up0");
        wait_for_advertisement(&mut platform, &peer).await;
        assert!(
            !has_learnt_default_route() && stopped_setting_values() == ["0", "0"],
            "{}",
            run_ip("-6 route show")
        );
        platform.close().unwrap();
        assert_eq!(stopped_setting_values(), ["1", "1"]);
    });
}

#[test]
fn home_agent_keeps_only_default_route_of_home_link() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        let mut platform = open_home_agent(&scratch, &peer);
        events_until(&mut platform, |_| {
            send_router_advertisement(&peer);
            has_learnt_default_route()
        })
        .await;
        run_ip("link add up0 type veth peer name up1");
        run_ip("link set up1 up");
        run_ip("link set up0 up");
        wait_until_link_is_up("up0");
        run_ip("-6 route add default via fe80::1 dev up0 metric 2048");
        let why = "a Router Advertisement has already given this machine a default route";
        wait_for_obstacle_messages(&mut platform, &[why]).await;
        assert_eq!(stopped_setting_values()[0], "1");
        platform.close().unwrap();
        assert!(has_learnt_default_route());
    });
}

#[test]
fn mobile_router_keeps_advertised_routes_of_uplinks() {
    in_new_namespace(|scratch| async move {
        let peer = PeerNamespace::new();
        peer.create_link("transit", "p0");
        peer.run_in_namespace(|| {
            run_ip("-6 addr flush dev p0");
            run_ip("-6 addr add fe80::aa/64 dev p0 nodad");
            std::thread::sleep(Duration::from_millis(50));
        });
        run_ip("link add quiet type veth peer name quiet1");
        set_sysctl("quiet/accept_ra", "0");
        let mut platform = scratch.open_platform();
        send_router_advertisement(&peer);
        events_until(&mut platform, |_| has_learnt_default_route()).await;

        platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        assert!(has_learnt_default_route(), "{}", run_ip("-6 route show"));
        let state =
            || ["transit", "quiet", "quiet1", "default"].map(|i| read_sysctl(&format!("{i}/accept_ra")));
        assert_eq!(state(), ["2", "0", "2", "1"]);
        run_ip("-6 route flush proto ra");
        send_router_advertisement(&peer);
        events_until(&mut platform, |_| has_learnt_default_route()).await;

        // An interface appears later, and another program changes a setting back.
        run_ip("link add late type veth peer name later");
        events_until(&mut platform, |_| read_sysctl("late/accept_ra") == "2").await;
        set_sysctl("transit/accept_ra", "1");
        run_ip("link del late");
        events_until(&mut platform, |_| read_sysctl("transit/accept_ra") == "2").await;

        platform.apply_change(&remove_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        assert_eq!(
            (state(), read_sysctl("all/forwarding")),
            (["1", "0", "1", "1"].map(str::to_owned), "0".into())
        );
        assert!(has_learnt_default_route());
        platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        platform.close().unwrap();
        assert_eq!(state(), ["1", "0", "1", "1"]);

        // The machine is already a router before carnet starts. Then carnet does not change `accept_ra`.
        set_sysctl("all/forwarding", "1");
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        events_during(&mut platform, Duration::from_millis(50)).await;
        assert_eq!(state(), ["1", "0", "1", "1"]);
    });
}

#[test]
fn accept_ra_of_crashed_run_is_restored() {
    in_new_namespace(|scratch| async move {
        run_ip("link add v0 type veth peer name v1");
        let before = kernel_state();
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        assert_eq!((read_sysctl("v0/accept_ra"), read_sysctl("v1/accept_ra")), ("2".into(), "2".into()));
        std::mem::forget(platform);
        run_ip("link del carnet0");
        scratch.open_platform().close().unwrap();
        assert_eq!(kernel_state(), before);
    });
}

#[test]
fn accept_ra_of_0_stays_unchanged() {
    in_new_namespace(|scratch| async move {
        run_ip("link add v0 type veth peer name v1");
        run_ip("link set v1 up");
        set_sysctl("v0/accept_ra", "0");
        let mut platform = scratch.open_platform();
        for entry in entries_of_mobile_router("v0", "v1") {
            platform.apply_change(&set_entry(entry)).unwrap();
        }
        run_ip("link set v0 up");
        events_during(&mut platform, Duration::from_millis(100)).await;
        assert_eq!(read_sysctl("v0/accept_ra"), "0");
        // Another program sets `accept_ra` to 1, and then to 0 again.
        set_sysctl("v0/accept_ra", "1");
        run_ip("link set v0 mtu 1400");
        events_until(&mut platform, |_| read_sysctl("v0/accept_ra") == "2").await;
        set_sysctl("v0/accept_ra", "0");
        run_ip("link set v0 mtu 1500");
        events_during(&mut platform, Duration::from_millis(100)).await;
        assert_eq!(read_sysctl("v0/accept_ra"), "0");
        platform.close().unwrap();
        assert_eq!(read_sysctl("v0/accept_ra"), "0");
    });
}

#[test]
fn settings_changed_by_other_programs_are_restored_at_next_link_event() {
    in_new_namespace(|scratch| async move {
        run_ip("link add v0 type veth peer name v1");
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(setting_entry("all", "forwarding", "1"))).unwrap();
        platform.apply_change(&set_entry(setting_entry("v0", "forwarding", "0"))).unwrap();
        events_during(&mut platform, Duration::from_millis(50)).await;
        set_sysctl("all/forwarding", "0");
        set_sysctl("v0/accept_ra", "1");
        set_sysctl("v0/forwarding", "1");
        run_ip("link set v0 up");
        let state = || ["all/forwarding", "v0/forwarding", "v1/forwarding", "v0/accept_ra"].map(read_sysctl);
        events_until(&mut platform, |_| state() == ["1", "0", "1", "2"]).await;
        assert_eq!(platform.counters().restored_entries, 2);
        let writes = platform.counters().write_calls;
        run_ip("link set v0 down");
        events_during(&mut platform, Duration::from_millis(100)).await;
        assert_eq!(platform.counters().write_calls, writes);
        platform.close().unwrap();
        assert_eq!(state(), ["0", "0", "0", "1"]);
    });
}
