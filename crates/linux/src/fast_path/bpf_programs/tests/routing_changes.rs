//! Tests that the programs follow changes of the kernel's routing and of the bindings.

use std::time::{Duration, Instant};

use carnet_nemo::forwarding::desired::TunnelEnd;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::bench::{NEIGHBOUR_ADDRESSES, ProgramOutcome, TestBench, run_ip, run_on_every_bench, set_polling};
use super::packets::*;
use crate::fast_path::InterfaceRoles;
use crate::fast_path::bpf_programs::{AttachmentKind, programs_to_attach};
use crate::netlink::LinkInfo;

fn packet_into_tunnel(bench: &TestBench) -> Vec<u8> {
    match bench.station_end {
        TunnelEnd::MobileRouter => udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 100),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => udp_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, 100),
    }
}

/// A routing rule of another program, packets that it redirects, and packets that it does not match.
type RoutingRuleCase<'a> = (&'a str, &'a [&'a [u8]], &'a [&'a [u8]]);

pub(super) fn is_frame_sent(did: &ProgramOutcome) -> bool {
    matches!(did, ProgramOutcome::Sent(_))
}

/// Binds the thread to one processor, because each processor has its own cache.
pub(super) fn pin_to_one_processor() {
    let mut processors = CpuSet::new();
    processors.set(sched_getcpu().unwrap()).unwrap();
    sched_setaffinity(Pid::from_raw(0), &processors).unwrap();
}

/// An operator's routing rules precede carnet's rules; they match port, protocol, traffic class or source.
#[test]
fn foreign_routing_rule_redirects_flow_from_fast_path() {
    run_on_every_bench(|bench| {
        let (_, interface) = bench.entrance_program_and_interface();
        let packet = packet_into_tunnel(bench);
        let mut other_port = packet.clone();
        other_port[43] ^= 1;
        let source =
            if bench.station_end == TunnelEnd::MobileRouter { HOST_ADDRESS } else { CORRESPONDENT_ADDRESS };
        let destination =
            if bench.station_end == TunnelEnd::MobileRouter { CORRESPONDENT_ADDRESS } else { HOST_ADDRESS };
        let fragment = super::packets::ipv6_packet(
            44,
            source,
            destination,
            &[&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp_payload(48)].concat(),
        );
        let sctp = super::packets::ipv6_packet(132, source, destination, &udp_payload(60));
        run_ip("-6 route add unreachable default table 77");
        let (packet, other_port, fragment, sctp) = (&packet[..], &other_port[..], &fragment[..], &sctp[..]);
        let cases: [RoutingRuleCase<'_>; 7] = [
            ("ipproto udp dport 4242", &[packet], &[other_port, fragment, sctp]),
            ("ipproto udp sport 12345", &[packet, other_port], &[fragment, sctp]),
            ("ipproto udp", &[packet, other_port, fragment], &[sctp]),
            ("ipproto sctp dport 4242", &[sctp], &[packet, fragment]),
            ("ipproto 44", &[], &[packet, fragment]),
            (&format!("from {source}"), &[packet, fragment, sctp], &[]),
            (&format!("to {destination} iif {interface}"), &[packet, fragment, sctp], &[]),
        ];
        for (rule, away, untouched) in cases {
            // The lookups were cached before the rule existed. The programs must not use them any more.
            for packet in away.iter().chain(untouched) {
                assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(packet)), "before {rule}");
            }
            run_ip(&format!("-6 rule add pref 50 {rule} lookup 77"));
            bench.invalidate_lookups();
            for packet in away {
                assert_eq!(bench.run_on_packet_into_tunnel(packet), ProgramOutcome::Left("route"), "{rule}");
            }
            for packet in untouched {
                assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(packet)), "{rule}");
            }
            run_ip("-6 rule del pref 50");
            bench.invalidate_lookups();
        }
    });
}

/// XDP leaves a packet to the slow path if its interface accepts no redirected frames. The packet is not
/// lost.
#[test]
fn frames_are_not_redirected_to_interface_that_refuses_them() {
    run_on_every_bench(|bench| {
        // Skip a home agent: it uses all interfaces, and the kernel creates some in this namespace that do
        // not support XDP.
        if bench.kind == AttachmentKind::Tc || bench.station_end == TunnelEnd::HomeAgent {
            return;
        }
        let packet = packet_into_tunnel(bench);
        let exit = "wan0";
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)));
        set_polling(&format!("{exit}x"), false);
        let complaints = bench.programs.update_redirect_targets();
        assert!(
            matches!(&complaints[..], [one] if one.starts_with(&format!("interface {exit} "))),
            "{complaints:?}"
        );
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left("neighbour"));
        // The error is reported only once.
        assert_eq!(bench.programs.update_redirect_targets(), Vec::<String>::new());
        set_polling(&format!("{exit}x"), true);
        assert_eq!(bench.programs.update_redirect_targets(), Vec::<String>::new());
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)));
    });
}

/// The programs use a changed route at once if carnet invalidates their lookups, otherwise after a second.
#[test]
fn fast_path_uses_changed_route() {
    run_on_every_bench(|bench| {
        pin_to_one_processor();
        let packet = packet_into_tunnel(bench);
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)));
        let rule = "pref 50 to 2001:db8::/32 lookup 77";
        run_ip("-6 route add unreachable default table 77");
        run_ip(&format!("-6 rule add {rule}"));
        bench.invalidate_lookups();
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left("route"));
        // With a rule of another program, the packet takes the slow path even if the rule's table has a
        // route.
        let (gateway, interface) = match bench.station_end {
            TunnelEnd::MobileRouter => ("2001:db8:f1::1", "wan0"),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("2001:db8:f0::1", "ha0"),
        };
        run_ip(&format!("-6 route replace default via {gateway} dev {interface} table 77"));
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left("route"));
        run_ip("-6 rule del pref 50");
        // The programs do not cache that the kernel had no route.
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)));
        run_ip(&format!("-6 rule add {rule}"));
        let start = Instant::now();
        while is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)) {
            assert!(start.elapsed() < Duration::from_secs(5), "remembered for ever");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// After a handover the outer packet leaves by the route of its new source address.
#[test]
fn handover_moves_packets_to_other_uplink() {
    run_on_every_bench(|bench| {
        if bench.station_end == TunnelEnd::HomeAgent || bench.kind == AttachmentKind::Tc {
            return;
        }
        let packet = packet_into_tunnel(bench);
        for (way, interface) in [(0, "wan0"), (1, "wan1"), (0, "wan0")] {
            for number in 0..2 {
                let tunnel = bench.ipv6_tunnel_over_uplink(number, number == way);
                bench.set_tunnel(tunnel);
            }
            let ProgramOutcome::Sent(frame) = bench.run_on_packet_into_tunnel(&packet) else {
                panic!("left to the slow path")
            };
            let neighbour = NEIGHBOUR_ADDRESSES.iter().find(|(name, ..)| *name == interface).unwrap().2;
            assert_eq!(frame[..6], neighbour, "{interface}");
        }
    });
}

/// The kernel resolves an unknown neighbour: for tc when the program has sent the packet, for XDP when the
/// slow path sends it. Afterwards the programs send packets of all sizes.
#[test]
fn kernel_resolves_unknown_neighbour_of_fast_path() {
    run_on_every_bench(|bench| {
        let (interface, neighbour) = match bench.station_end {
            TunnelEnd::MobileRouter => ("wan0", "2001:db8:f1::1"),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("ha0", "2001:db8:f0::1"),
        };
        run_ip(&format!("-6 neigh del {neighbour} dev {interface}"));
        bench.invalidate_lookups();
        let (small, mut large) =
            (packet_into_tunnel(bench), udp_packet(HOST_ADDRESS, CORRESPONDENT_ADDRESS, 1400));
        if bench.station_end == TunnelEnd::HomeAgent {
            large = udp_packet(CORRESPONDENT_ADDRESS, HOST_ADDRESS, 1400);
        }
        for packet in [&small, &large] {
            match bench.kind {
                AttachmentKind::Tc => assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(packet))),
                AttachmentKind::Xdp => {
                    assert_eq!(bench.run_on_packet_into_tunnel(packet), ProgramOutcome::Left("neighbour"))
                }
            }
        }
        run_ip(&format!("-6 neigh add {neighbour} lladdr 02:00:00:00:09:00 dev {interface}"));
        bench.invalidate_lookups();
        assert!(
            is_frame_sent(&bench.run_on_packet_into_tunnel(&small))
                && is_frame_sent(&bench.run_on_packet_into_tunnel(&large))
        );
    });
}

/// The home agent receives a packet from one mobile router to another one through one tunnel and sends it
/// through another. The slow path handles this packet.
#[test]
fn packets_between_two_tunnels_take_the_slow_path() {
    run_on_every_bench(|bench| {
        if bench.station_end == TunnelEnd::MobileRouter {
            return;
        }
        run_ip("-6 route add 2001:db8:b::/64 dev carnet0");
        let (from, to) = bench.arriving_outer_addresses(0);
        let packet = encapsulated_in_ipv6(from, to, &udp_packet(HOST_ADDRESS, "2001:db8:b::1", 50));
        assert_eq!(bench.run_on_packet_out_of_tunnel(&packet), ProgramOutcome::Left("route"));
    });
}

/// After a new config removes the role of an interface, the interface has no program.
#[test]
fn removed_role_of_interface_detaches_its_program() {
    run_on_every_bench(|bench| {
        if bench.station_end == TunnelEnd::HomeAgent {
            return;
        }
        pin_to_one_processor();
        let packet = packet_into_tunnel(bench);
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)));
        bench.programs.interface_roles = InterfaceRoles { is_home_agent: true, ..InterfaceRoles::default() };
        let links = bench.links_by_name.clone();
        assert!(bench.programs.update_interfaces(&links).is_empty());
        assert_eq!(
            bench.program_outcome("agent", "lan0", &ethernet_frame(0x86dd, &packet)),
            ProgramOutcome::Left("")
        );
    });
}

/// The forwarding thread never waits for the kernel's verifier, because the loading thread has loaded the
/// programs for all interfaces before. This includes interfaces without a link-layer address, and interfaces
/// that appear later.
#[test]
fn programs_of_present_and_configured_interfaces_are_expected() {
    let link = |index: u32, name: &str, bare: bool| LinkInfo {
        index,
        name: name.into(),
        is_up: true,
        is_running: true,
        mtu: 1500,
        link_address: (!bare).then_some([2, 0, 0, 0, 0, 1]),
        is_loopback: name == "lo",
        is_point_to_point: false,
        device_group: 0,
        is_ip6_tunnel: false,
    };
    let links =
        [link(1, "lo", true), link(2, "carnet0", true), link(3, "eth0", false), link(4, "wwan0", true)];
    let names = |kind, ports: &InterfaceRoles, links: &[LinkInfo]| -> Vec<&str> {
        programs_to_attach(kind, ports, 2, links).into_iter().collect()
    };
    let agent = InterfaceRoles { is_home_agent: true, ..InterfaceRoles::default() };
    assert_eq!(names(AttachmentKind::Tc, &agent, &links), ["agent", "agent_bare"]);
    assert_eq!(names(AttachmentKind::Tc, &agent, &links[..3]), ["agent", "agent_bare"]);
    assert_eq!(names(AttachmentKind::Xdp, &agent, &links), ["agent"]);
    let router = InterfaceRoles {
        lan_interfaces: vec!["eth0".into()],
        uplinks: vec!["wwan0".into()],
        ..InterfaceRoles::default()
    };
    assert_eq!(names(AttachmentKind::Tc, &router, &links), ["lan", "uplink_bare"]);
    assert_eq!(names(AttachmentKind::Tc, &router, &links[..3]), ["lan", "uplink", "uplink_bare"]);
    assert_eq!(names(AttachmentKind::Tc, &InterfaceRoles::default(), &links), ["lan"]);
    let direct = InterfaceRoles { direct_routes_enabled: true, ..router };
    assert_eq!(names(AttachmentKind::Tc, &direct, &links), ["agent_lan", "agent_uplink_bare", "lan"]);
}
