//! Tests packets that match rules of the packet filter, or that belong to flows which the rules use
//! (`bpf/tracked.h`).

use carnet_nemo::forwarding::desired::TunnelEnd;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::bench::{ProgramOutcome, TestBench, run_on_every_bench};
use super::packets::*;
use super::routing_changes::{is_frame_sent, pin_to_one_processor};
use crate::fast_path::bpf_programs::{AttachmentKind, CONNTRACK_NOTE_PROGRAM};
use crate::fast_path::map_values::{RuleScope, RulesetValue};
use crate::generic_netlink::{
    FLAG_ACKNOWLEDGE, MESSAGE_ERROR, encode_attribute, encode_request, find_attribute, split_attributes,
    split_received,
};

/// Message types of connection tracking: new entry, read an entry, delete an entry.
const CTNETLINK_NEW: u16 = 0x100;
const CTNETLINK_GET: u16 = 0x101;
const CTNETLINK_DELETE: u16 = 0x102;
const NESTED_ATTRIBUTE: u16 = 0x8000;
const ATTRIBUTE_ORIGINAL_TUPLE: u16 = 1;
const ATTRIBUTE_REPLY_TUPLE: u16 = 2;
const ATTRIBUTE_STATUS: u16 = 3;
const ATTRIBUTE_PROTOCOL_STATE: u16 = 4;
const ATTRIBUTE_SOURCE_NAT: u16 = 6;
const ATTRIBUTE_TIMEOUT: u16 = 7;

/// Bits of an entry's status: packets in both directions, assured, confirmed.
const STATUS_SEEN_REPLY: u32 = 2;
const STATUS_ASSURED: u32 = 4;
const STATUS_CONFIRMED: u32 = 8;
const STATUS_USABLE: u32 = STATUS_SEEN_REPLY | STATUS_ASSURED | STATUS_CONFIRMED;
/// States of TCP: established, after the first FIN.
const TCP_ESTABLISHED: u8 = 3;
const TCP_FIN_WAIT: u8 = 4;

const RULESET_OF_FLOWS: RulesetValue = RulesetValue {
    ruleset_generation: 1,
    ipv4_scope: RuleScope::Flow as u32,
    ipv6_scope: RuleScope::Flow as u32,
    tcp_timeout_ms: 1_000_000,
    unacknowledged_timeout_ms: 300_000,
    udp_timeout_ms: 120_000,
};

fn nested_attribute(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    encode_attribute(kind | NESTED_ATTRIBUTE, &parts.concat())
}

/// Returns the attribute with a packet's addresses, protocol and ports; with `is_reversed`, those of a packet
/// in the other direction.
fn tuple_attribute(kind: u16, packet: &[u8], is_reversed: bool) -> Vec<u8> {
    let order = if is_reversed { [1, 0] } else { [0, 1] };
    let of = |parts: [&[u8]; 2]| order.map(|at| parts[at].to_vec());
    let [source, destination] = of([&packet[8..24], &packet[24..40]]);
    let [from, to] = of([&packet[40..42], &packet[42..44]]);
    let addresses = nested_attribute(1, &[encode_attribute(3, &source), encode_attribute(4, &destination)]);
    let ports = nested_attribute(
        2,
        &[encode_attribute(1, &[packet[6]]), encode_attribute(2, &from), encode_attribute(3, &to)],
    );
    nested_attribute(kind, &[addresses, ports])
}

/// Sends a request to connection tracking, and returns the attributes of the answer.
fn request_conntrack(kind: u16, flags: u16, attributes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(
        &encode_request(kind, flags | FLAG_ACKNOWLEDGE, 1, [libc::AF_INET6 as u8, 0, 0, 0], attributes),
        0,
    )?;
    let mut found = Vec::new();
    loop {
        let mut buffer = Vec::with_capacity(32 * 1024);
        socket.recv(&mut buffer, 0)?;
        for answer in split_received(&buffer) {
            if answer.kind == MESSAGE_ERROR {
                return answer.check_error().map(|()| found);
            }
            found = answer.attributes().unwrap_or_default().to_vec();
        }
    }
}

/// Adds the entry of a connection that began with this packet.
fn add_conntrack_entry(packet: &[u8], status: u32, state: u8) {
    let mut parts = vec![
        tuple_attribute(ATTRIBUTE_ORIGINAL_TUPLE, packet, false),
        tuple_attribute(ATTRIBUTE_REPLY_TUPLE, packet, true),
    ];
    parts.push(encode_attribute(ATTRIBUTE_STATUS, &status.to_be_bytes()));
    parts.push(encode_attribute(ATTRIBUTE_TIMEOUT, &600_u32.to_be_bytes()));
    if packet[6] == 6 {
        parts.push(nested_attribute(
            ATTRIBUTE_PROTOCOL_STATE,
            &[nested_attribute(1, &[encode_attribute(1, &[state])])],
        ));
    }
    // The flags 0x600 create an entry, and fail if the entry exists.
    request_conntrack(CTNETLINK_NEW, 0x600, &parts.concat()).unwrap();
}

fn delete_conntrack_entry(packet: &[u8]) {
    request_conntrack(CTNETLINK_DELETE, 0, &tuple_attribute(ATTRIBUTE_ORIGINAL_TUPLE, packet, false))
        .unwrap();
}

/// Returns the remaining time of an entry in seconds.
fn remaining_timeout(packet: &[u8]) -> u32 {
    let entry =
        request_conntrack(CTNETLINK_GET, 0, &tuple_attribute(ATTRIBUTE_ORIGINAL_TUPLE, packet, false))
            .unwrap();
    assert!(split_attributes(&entry).next().is_some());
    u32::from_be_bytes(*find_attribute(&entry, ATTRIBUTE_TIMEOUT).unwrap().first_chunk().unwrap())
}

/// Runs the program at the egress on a packet that the packet filter has accepted.
fn run_note_program(bench: &mut TestBench, from: &str, to: &str, packet: &[u8]) {
    let kind = std::mem::replace(&mut bench.kind, AttachmentKind::Tc);
    let verdict = bench.run_program_from(CONNTRACK_NOTE_PROGRAM, from, to, &ethernet_frame(0x86dd, packet)).0;
    bench.kind = kind;
    assert_eq!(verdict, -1);
}

/// Returns the interface on which packets arrive before encapsulation, and by which they leave after
/// decapsulation.
fn outer_interface(bench: &TestBench) -> &'static str {
    match bench.station_end {
        TunnelEnd::MobileRouter => "lan0",
        TunnelEnd::HomeAgent | TunnelEnd::Direct => "ha0",
    }
}

fn host_and_correspondent(bench: &TestBench) -> (&'static str, &'static str) {
    match bench.station_end {
        TunnelEnd::MobileRouter => (HOST_ADDRESS, CORRESPONDENT_ADDRESS),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (CORRESPONDENT_ADDRESS, HOST_ADDRESS),
    }
}

/// Runs `body` on every bench whose programs can call the kernel's connection tracking, with rules about
/// flows.
fn run_with_rules(body: impl Fn(&mut TestBench) + Copy + Send + 'static) {
    run_on_every_bench(move |bench| {
        if let Some(why) = bench.programs.conntrack_obstacle_message() {
            println!("\nSKIPPED: {why}");
            return;
        }
        pin_to_one_processor();
        bench.programs.set_ruleset(RULESET_OF_FLOWS).unwrap();
        body(bench);
    });
}

/// Runs the program for packets that come out of the tunnel on this packet inside a tunnel.
fn run_on_packet_out_of_tunnel(bench: &mut TestBench, packet: &[u8]) -> ProgramOutcome {
    let (from, to) = bench.arriving_outer_addresses(0);
    bench.run_on_packet_out_of_tunnel(&encapsulated_in_ipv6(from, to, packet))
}

#[test]
fn program_forwards_flow_only_after_rules_have_accepted_it() {
    run_with_rules(|bench| {
        let (source, destination) = host_and_correspondent(bench);
        let there = udp_packet(source, destination, 100);
        let back = {
            let mut back = udp_packet(destination, source, 100);
            back[40..42].copy_from_slice(&there[42..44]);
            back[42..44].copy_from_slice(&there[40..42]);
            back
        };
        let filter = ProgramOutcome::Left("filter");
        assert_eq!(bench.run_on_packet_into_tunnel(&there), filter);
        // Without an entry of connection tracking, the program at the egress does not mark the flow as
        // accepted.
        run_note_program(bench, outer_interface(bench), "carnet0", &there);
        assert_eq!(bench.run_on_packet_into_tunnel(&there), filter);
        add_conntrack_entry(&there, STATUS_USABLE, 0);
        assert_eq!(bench.run_on_packet_into_tunnel(&there), filter);
        run_note_program(bench, outer_interface(bench), "carnet0", &there);
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&there)) && remaining_timeout(&there) <= 120);
        // The packet filter must accept a packet of the other direction, before the program forwards that
        // direction.
        assert_eq!(run_on_packet_out_of_tunnel(bench, &back), filter);
        run_note_program(bench, "carnet0", outer_interface(bench), &back);
        assert!(
            is_frame_sent(&run_on_packet_out_of_tunnel(bench, &back))
                && is_frame_sent(&bench.run_on_packet_into_tunnel(&there))
        );
        // After a change of the rules (a new generation), the packet filter must accept the flow again.
        bench.programs.set_ruleset(RulesetValue { ruleset_generation: 2, ..RULESET_OF_FLOWS }).unwrap();
        assert_eq!(
            (bench.run_on_packet_into_tunnel(&there), run_on_packet_out_of_tunnel(bench, &back)),
            (filter.clone(), filter.clone())
        );
        run_note_program(bench, outer_interface(bench), "carnet0", &there);
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&there)));
        delete_conntrack_entry(&there);
        bench.invalidate_lookups();
        assert_eq!(bench.run_on_packet_into_tunnel(&there), filter);
        // The programs forward no packet while carnet does not know the rules, or if the rules need to see
        // each packet.
        add_conntrack_entry(&there, STATUS_USABLE, 0);
        for (ruleset, is) in [
            (RulesetValue { ruleset_generation: 2, ..RULESET_OF_FLOWS }, true),
            (RulesetValue { ruleset_generation: 0, ..RULESET_OF_FLOWS }, false),
            (RulesetValue { ruleset_generation: 2, ipv4_scope: 0, ..RULESET_OF_FLOWS }, true),
            (
                RulesetValue {
                    ruleset_generation: 2,
                    ipv6_scope: RuleScope::Packet as u32,
                    ..RULESET_OF_FLOWS
                },
                false,
            ),
            (RulesetValue { ipv6_scope: 0, ..RULESET_OF_FLOWS }, true),
        ] {
            bench.programs.set_ruleset(ruleset).unwrap();
            assert_eq!(is_frame_sent(&bench.run_on_packet_into_tunnel(&there)), is, "{ruleset:?}");
        }
    });
}

#[test]
fn flows_with_unconfirmed_or_closing_connection_take_the_slow_path() {
    run_with_rules(|bench| {
        let (source, destination) = host_and_correspondent(bench);
        let unusable = [
            (STATUS_CONFIRMED, TCP_ESTABLISHED),
            (STATUS_SEEN_REPLY | STATUS_CONFIRMED, TCP_ESTABLISHED),
            (STATUS_USABLE, TCP_FIN_WAIT),
            (STATUS_USABLE, 2),
        ];
        for (status, state) in unusable.into_iter().chain([(STATUS_USABLE, TCP_ESTABLISHED)]) {
            let packet = tcp_segment(source, destination, 0x10);
            add_conntrack_entry(&packet, status, state);
            run_note_program(bench, outer_interface(bench), "carnet0", &packet);
            let is = (status, state) == (STATUS_USABLE, TCP_ESTABLISHED);
            bench.invalidate_lookups();
            assert_eq!(is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)), is, "{status:#x} {state}");
            if !is {
                delete_conntrack_entry(&packet);
            }
        }
        // The entry is usable now. But the kernel must see segments whose flags change the TCP state.
        for flags in [0x01, 0x02, 0x04, 0x11, 0x12, 0x14, 0x00, 0x08, 0x19] {
            let packet = tcp_segment(source, destination, flags);
            assert!(!is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)), "{flags:#x}");
            run_note_program(bench, outer_interface(bench), "carnet0", &packet);
            assert!(!is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)), "{flags:#x}");
        }
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&tcp_segment(source, destination, 0x18))));
    });
}

#[test]
fn packets_of_a_connection_under_nat_take_the_slow_path() {
    run_with_rules(|bench| {
        let (source, destination) = host_and_correspondent(bench);
        let packet = udp_packet(source, destination, 100);
        let new_source = parse_address("2001:db8:f0::99").octets();
        let parts = [
            tuple_attribute(ATTRIBUTE_ORIGINAL_TUPLE, &packet, false),
            tuple_attribute(ATTRIBUTE_REPLY_TUPLE, &packet, true),
            encode_attribute(ATTRIBUTE_STATUS, &STATUS_USABLE.to_be_bytes()),
            encode_attribute(ATTRIBUTE_TIMEOUT, &600_u32.to_be_bytes()),
            nested_attribute(
                ATTRIBUTE_SOURCE_NAT,
                &[encode_attribute(4, &new_source), encode_attribute(5, &new_source)],
            ),
        ];
        request_conntrack(CTNETLINK_NEW, 0x600, &parts.concat()).unwrap();
        run_note_program(bench, outer_interface(bench), "carnet0", &packet);
        assert_eq!(bench.run_on_packet_into_tunnel(&packet), ProgramOutcome::Left("filter"));
    });
}

/// The programs renew the kernel's entry of a TCP connection with the long timeout only if both ends send.
#[test]
fn tcp_timeout_depends_on_both_ends() {
    run_with_rules(|bench| {
        let (source, destination) = host_and_correspondent(bench);
        let there = tcp_segment(source, destination, 0x10);
        let mut back = tcp_segment(destination, source, 0x10);
        back[40..42].copy_from_slice(&there[42..44]);
        back[42..44].copy_from_slice(&there[40..42]);
        add_conntrack_entry(&there, STATUS_USABLE, TCP_ESTABLISHED);
        run_note_program(bench, outer_interface(bench), "carnet0", &there);
        assert!(is_frame_sent(&bench.run_on_packet_into_tunnel(&there)));
        assert!((290..=300).contains(&remaining_timeout(&there)), "{}", remaining_timeout(&there));
        run_note_program(bench, "carnet0", outer_interface(bench), &back);
        assert!(is_frame_sent(&run_on_packet_out_of_tunnel(bench, &back)));
        assert!((990..=1000).contains(&remaining_timeout(&there)), "{}", remaining_timeout(&there));
        // The kernel handles all packets of ICMPv6 (58) and SCTP (132).
        for protocol in [58, 132] {
            let packet = ipv6_packet(protocol, source, destination, &[0; 32]);
            assert!(!is_frame_sent(&bench.run_on_packet_into_tunnel(&packet)));
        }
    });
}
