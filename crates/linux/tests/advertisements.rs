//! Tests Router Advertisements on a machine that carnet makes a router, and that `accept_ra` of other
//! programs stays.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::time::{Duration, Instant};

use carnet_linux::{Platform, PlatformEvent};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Makes `p0` in the peer's namespace advertise itself as default router for ten minutes.
fn advertise(peer: &Peer) {
    peer.run(|| {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        let index = nix::net::if_::if_nametoindex("p0").unwrap();
        socket.set_multicast_hops_v6(255).unwrap();
        let all_nodes = std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
        let message = [134, 0, 0, 0, 64, 0, 2, 88, 0, 0, 0, 0, 0, 0, 0, 0];
        socket.send_to(&message, &SockAddr::from(all_nodes)).unwrap();
    });
}

fn learnt() -> bool {
    ip("-6 route show default").contains("proto ra")
}

/// Settings that a home agent needs to be 0 on its home link `h0`.
const STOPPED: [&str; 2] = ["accept_ra_defrtr", "accept_ra_pinfo"];

fn stopped() -> [String; 2] {
    STOPPED.map(|name| sysctl(&format!("h0/{name}")))
}

/// Opens the platform of a home agent on the home link `h0`, whose other end is the peer's `p0`.
fn home_agent(scratch: &Scratch, peer: &Peer) -> Platform {
    peer.link("h0", "p0");
    peer.run(|| {
        ip("-6 addr flush dev p0");
        ip("-6 addr add fe80::aa/64 dev p0 nodad");
        wait_until_own("p0", "fe80::aa");
    });
    let mut platform = scratch.open_watching("h0", true);
    platform.apply(&set(setting("all", "forwarding", "1"))).unwrap();
    for name in STOPPED {
        platform.apply(&set(setting("h0", name, "0"))).unwrap();
    }
    platform
}

/// Lets the peer advertise until the platform has received one more advertisement.
async fn heard(platform: &mut Platform, peer: &Peer) {
    let is_advertisement = |event: &PlatformEvent| match event {
        PlatformEvent::Icmpv6(heard) => heard.message.first() == Some(&134),
        _ => false,
    };
    events_until(platform, |seen| {
        advertise(peer);
        seen.iter().any(is_advertisement)
    })
    .await;
}

/// Waits until the obstacles contain each of these texts.
async fn obstacles(platform: &mut Platform, texts: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_told = |platform: &Platform, text: &&str| platform.obstacles().iter().any(|it| it.contains(text));
    while !texts.iter().all(|text| is_told(platform, text)) {
        assert!(Instant::now() < deadline, "{:?}", platform.obstacles());
        events_for(platform, Duration::from_millis(20)).await;
    }
}

/// On a machine with another default route, the home agent takes no routes from advertisements on the home
/// link. Otherwise a host there could redirect the home agent's packets to itself.
#[test]
fn home_agent_ignores_advertised_default_route_if_it_has_another() {
    in_namespace(|scratch| async move {
        let peer = Peer::new();
        let mut platform = home_agent(&scratch, &peer);
        obstacles(
            &mut platform,
            &["this machine has no other default route", "it has no permanent address on that link"],
        )
        .await;
        assert_eq!(stopped(), ["1", "1"], "it may be the only way out");

        ip("link add up0 type veth peer name up1");
        ip("link set up1 up");
        ip("link set up0 up");
        wait_until_up("up0");
        ip("-6 route add default via fe80::1 dev up0");
        add_address("h0", "2001:db8:1::ff/64");
        events_until(&mut platform, |_| stopped() == ["0", "0"]).await;
        assert_eq!(platform.obstacles(), [""; 0]);
        // The home agent still receives advertisements for its list (RFC 6275 8.4).
        heard(&mut platform, &peer).await;
        assert!(!learnt(), "{}", ip("-6 route show"));
        ip("-6 route del default dev up0");
        heard(&mut platform, &peer).await;
        assert!(!learnt() && stopped() == ["0", "0"], "{}", ip("-6 route show"));
        platform.close().unwrap();
        assert_eq!(stopped(), ["1", "1"]);
    });
}

#[test]
fn home_agent_keeps_only_default_route_of_home_link() {
    in_namespace(|scratch| async move {
        let peer = Peer::new();
        let mut platform = home_agent(&scratch, &peer);
        events_until(&mut platform, |_| {
            advertise(&peer);
            learnt()
        })
        .await;
        ip("link add up0 type veth peer name up1");
        ip("link set up1 up");
        ip("link set up0 up");
        wait_until_up("up0");
        ip("-6 route add default via fe80::1 dev up0 metric 2048");
        let why = "a Router Advertisement has already given this machine a default route";
        obstacles(&mut platform, &[why]).await;
        assert_eq!(stopped()[0], "1");
        platform.close().unwrap();
        assert!(learnt());
    });
}

#[test]
fn mobile_router_keeps_advertised_routes_of_uplinks() {
    in_namespace(|scratch| async move {
        let peer = Peer::new();
        peer.link("transit", "p0");
        peer.run(|| {
            ip("-6 addr flush dev p0");
            ip("-6 addr add fe80::aa/64 dev p0 nodad");
            std::thread::sleep(Duration::from_millis(50));
        });
        ip("link add quiet type veth peer name quiet1");
        set_sysctl("quiet/accept_ra", "0");
        let mut platform = scratch.open();
        advertise(&peer);
        events_until(&mut platform, |_| learnt()).await;

        platform.apply(&set(setting("all", "forwarding", "1"))).unwrap();
        assert!(learnt(), "{}", ip("-6 route show"));
        let state = || ["transit", "quiet", "quiet1", "default"].map(|i| sysctl(&format!("{i}/accept_ra")));
        assert_eq!(state(), ["2", "0", "2", "1"]);
        ip("-6 route flush proto ra");
        advertise(&peer);
        events_until(&mut platform, |_| learnt()).await;

        // An interface appears later, and another program changes a setting back.
        ip("link add late type veth peer name later");
        events_until(&mut platform, |_| sysctl("late/accept_ra") == "2").await;
        set_sysctl("transit/accept_ra", "1");
        ip("link del late");
        events_until(&mut platform, |_| sysctl("transit/accept_ra") == "2").await;

        platform.apply(&remove(setting("all", "forwarding", "1"))).unwrap();
        assert_eq!(
            (state(), sysctl("all/forwarding")),
            (["1", "0", "1", "1"].map(str::to_owned), "0".into())
        );
        assert!(learnt());
        platform.apply(&set(setting("all", "forwarding", "1"))).unwrap();
        platform.close().unwrap();
        assert_eq!(state(), ["1", "0", "1", "1"]);

        // A machine that is a router already keeps its operator's `accept_ra`.
        set_sysctl("all/forwarding", "1");
        let mut platform = scratch.open();
        platform.apply(&set(setting("all", "forwarding", "1"))).unwrap();
        events_for(&mut platform, Duration::from_millis(50)).await;
        assert_eq!(state(), ["1", "0", "1", "1"]);
    });
}

#[test]
fn accept_ra_of_crashed_run_is_restored() {
    in_namespace(|scratch| async move {
        ip("link add v0 type veth peer name v1");
        let before = whole_state();
        let mut platform = scratch.open();
        platform.apply(&set(setting("all", "forwarding", "1"))).unwrap();
        assert_eq!((sysctl("v0/accept_ra"), sysctl("v1/accept_ra")), ("2".into(), "2".into()));
        std::mem::forget(platform);
        ip("link del carnet0");
        scratch.open().close().unwrap();
        assert_eq!(whole_state(), before);
    });
}

#[test]
fn accept_ra_of_0_stays_unchanged() {
    in_namespace(|scratch| async move {
        ip("link add v0 type veth peer name v1");
        ip("link set v1 up");
        set_sysctl("v0/accept_ra", "0");
        let mut platform = scratch.open();
        for entry in mobile_router("v0", "v1") {
            platform.apply(&set(entry)).unwrap();
        }
        ip("link set v0 up");
        events_for(&mut platform, Duration::from_millis(100)).await;
        assert_eq!(sysctl("v0/accept_ra"), "0");
        // Another program sets `accept_ra` to 1, and then to 0 again.
        set_sysctl("v0/accept_ra", "1");
        ip("link set v0 mtu 1400");
        events_until(&mut platform, |_| sysctl("v0/accept_ra") == "2").await;
        set_sysctl("v0/accept_ra", "0");
        ip("link set v0 mtu 1500");
        events_for(&mut platform, Duration::from_millis(100)).await;
        assert_eq!(sysctl("v0/accept_ra"), "0");
        platform.close().unwrap();
        assert_eq!(sysctl("v0/accept_ra"), "0");
    });
}

#[test]
fn settings_changed_by_others_come_back_with_the_next_link_event() {
    in_namespace(|scratch| async move {
        ip("link add v0 type veth peer name v1");
        let mut platform = scratch.open();
        platform.apply(&set(setting("all", "forwarding", "1"))).unwrap();
        platform.apply(&set(setting("v0", "forwarding", "0"))).unwrap();
        events_for(&mut platform, Duration::from_millis(50)).await;
        set_sysctl("all/forwarding", "0");
        set_sysctl("v0/accept_ra", "1");
        set_sysctl("v0/forwarding", "1");
        ip("link set v0 up");
        let state = || ["all/forwarding", "v0/forwarding", "v1/forwarding", "v0/accept_ra"].map(sysctl);
        events_until(&mut platform, |_| state() == ["1", "0", "1", "2"]).await;
        assert_eq!(platform.counters().restored, 2);
        let writes = platform.counters().writes;
        ip("link set v0 down");
        events_for(&mut platform, Duration::from_millis(100)).await;
        assert_eq!(platform.counters().writes, writes);
        platform.close().unwrap();
        assert_eq!(state(), ["0", "0", "0", "1"]);
    });
}
