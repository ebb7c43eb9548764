//! Tests packets at which rules of the packet filter look (`bpf/tracked.h`).

use carnet_nemo::forwarding::desired::TunnelEnd;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::bench::{Bench, ProgramAction, on_every_bench};
use super::following::{is_sent, pin_to_one_processor};
use super::packets::*;
use crate::fast_path::programs::{Kind, NOTE};
use crate::fast_path::values::{RuleScope, RulesetValue};
use crate::generic_netlink::{ACKNOWLEDGE, ERROR, attribute, attributes, encode, find_attribute, received};

/// Message types of connection tracking: new entry, read an entry, delete an entry.
const NEW: u16 = 0x100;
const GET: u16 = 0x101;
const DELETE: u16 = 0x102;
const NESTED: u16 = 0x8000;
const TUPLE: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const SOURCE_NAT: u16 = 6;
const TIMEOUT: u16 = 7;

/// Bits of an entry's status: packets in both directions, assured, confirmed.
const SEEN_REPLY: u32 = 2;
const ASSURED: u32 = 4;
const CONFIRMED: u32 = 8;
const USABLE: u32 = SEEN_REPLY | ASSURED | CONFIRMED;
/// States of TCP: established, after the first FIN.
const ESTABLISHED: u8 = 3;
const FIN_WAIT: u8 = 4;

const RULES: RulesetValue = RulesetValue {
    generation: 1,
    ipv4: RuleScope::Flow as u32,
    ipv6: RuleScope::Flow as u32,
    tcp_timeout: 1_000_000,
    unacknowledged_timeout: 300_000,
    udp_timeout: 120_000,
};

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &parts.concat())
}

/// Returns the attribute with a packet's addresses, protocol and ports, perhaps in the other direction.
fn tuple(kind: u16, packet: &[u8], is_reversed: bool) -> Vec<u8> {
    let order = if is_reversed { [1, 0] } else { [0, 1] };
    let of = |parts: [&[u8]; 2]| order.map(|at| parts[at].to_vec());
    let [source, destination] = of([&packet[8..24], &packet[24..40]]);
    let [from, to] = of([&packet[40..42], &packet[42..44]]);
    let addresses = nested(1, &[attribute(3, &source), attribute(4, &destination)]);
    let ports = nested(2, &[attribute(1, &[packet[6]]), attribute(2, &from), attribute(3, &to)]);
    nested(kind, &[addresses, ports])
}

/// Sends a request to connection tracking, and returns the attributes of the answer.
fn ask(kind: u16, flags: u16, attributes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&encode(kind, flags | ACKNOWLEDGE, 1, [libc::AF_INET6 as u8, 0, 0, 0], attributes), 0)?;
    let mut found = Vec::new();
    loop {
        let mut buffer = Vec::with_capacity(32 * 1024);
        socket.recv(&mut buffer, 0)?;
        for answer in received(&buffer) {
            if answer.kind == ERROR {
                return answer.result().map(|()| found);
            }
            found = answer.attributes().unwrap_or_default().to_vec();
        }
    }
}

/// Adds the entry of a connection that began with this packet.
fn track(packet: &[u8], status: u32, state: u8) {
    let mut parts = vec![tuple(TUPLE, packet, false), tuple(REPLY, packet, true)];
    parts.push(attribute(STATUS, &status.to_be_bytes()));
    parts.push(attribute(TIMEOUT, &600_u32.to_be_bytes()));
    if packet[6] == 6 {
        parts.push(nested(PROTOCOL_STATE, &[nested(1, &[attribute(1, &[state])])]));
    }
    // The flags create an entry, and fail if it exists.
    ask(NEW, 0x600, &parts.concat()).unwrap();
}

fn forget(packet: &[u8]) {
    ask(DELETE, 0, &tuple(TUPLE, packet, false)).unwrap();
}

/// Returns the remaining time of an entry in seconds.
fn timeout(packet: &[u8]) -> u32 {
    let entry = ask(GET, 0, &tuple(TUPLE, packet, false)).unwrap();
    assert!(attributes(&entry).next().is_some());
    u32::from_be_bytes(*find_attribute(&entry, TIMEOUT).unwrap().first_chunk().unwrap())
}

/// Runs the program at the egress on a packet that the packet filter has accepted.
fn note(bench: &mut Bench, from: &str, to: &str, packet: &[u8]) {
    let kind = std::mem::replace(&mut bench.kind, Kind::Tc);
    let verdict = bench.run_from(NOTE, from, to, &frame(0x86dd, packet)).0;
    bench.kind = kind;
    assert_eq!(verdict, -1);
}

/// Returns the interface outside of the tunnel.
fn outer(bench: &Bench) -> &'static str {
    match bench.end {
        TunnelEnd::MobileRouter => "lan0",
        TunnelEnd::HomeAgent | TunnelEnd::Direct => "ha0",
    }
}

fn ends(bench: &Bench) -> (&'static str, &'static str) {
    match bench.end {
        TunnelEnd::MobileRouter => (INSIDE, OUTSIDE),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (OUTSIDE, INSIDE),
    }
}

/// Runs `body` on every bench whose programs can call the kernel's connection tracking, with rules about
/// flows.
fn with_rules(body: impl Fn(&mut Bench) + Copy + Send + 'static) {
    on_every_bench(move |bench| {
        if let Some(why) = bench.programs.conntrack_obstacle() {
            println!("\nSKIPPED: {why}");
            return;
        }
        pin_to_one_processor();
        bench.programs.set_ruleset(RULES).unwrap();
        body(bench);
    });
}

/// Puts a packet with these addresses into a tunnel that arrives.
fn arrives(bench: &mut Bench, packet: &[u8]) -> ProgramAction {
    let (from, to) = bench.arriving(0);
    bench.arrives(&within(from, to, packet))
}

#[test]
fn program_forwards_flow_only_after_rules_have_accepted_it() {
    with_rules(|bench| {
        let (source, destination) = ends(bench);
        let there = udp(source, destination, 100);
        let back = {
            let mut back = udp(destination, source, 100);
            back[40..42].copy_from_slice(&there[42..44]);
            back[42..44].copy_from_slice(&there[40..42]);
            back
        };
        let filter = ProgramAction::Left("filter");
        assert_eq!(bench.enters(&there), filter);
        // Without an entry, the program at the egress notes nothing.
        note(bench, outer(bench), "carnet0", &there);
        assert_eq!(bench.enters(&there), filter);
        track(&there, USABLE, 0);
        assert_eq!(bench.enters(&there), filter);
        note(bench, outer(bench), "carnet0", &there);
        assert!(is_sent(&bench.enters(&there)) && timeout(&there) <= 120);
        // Packets in the other direction need to be accepted, too.
        assert_eq!(arrives(bench, &back), filter);
        note(bench, "carnet0", outer(bench), &back);
        assert!(is_sent(&arrives(bench, &back)) && is_sent(&bench.enters(&there)));
        // Other interfaces, and other rules.
        bench.programs.set_ruleset(RulesetValue { generation: 2, ..RULES }).unwrap();
        assert_eq!((bench.enters(&there), arrives(bench, &back)), (filter.clone(), filter.clone()));
        note(bench, outer(bench), "carnet0", &there);
        assert!(is_sent(&bench.enters(&there)));
        forget(&there);
        bench.forget();
        assert_eq!(bench.enters(&there), filter);
        // While carnet does not know the rules, and with rules about packets.
        track(&there, USABLE, 0);
        for (ruleset, is) in [
            (RulesetValue { generation: 2, ..RULES }, true),
            (RulesetValue { generation: 0, ..RULES }, false),
            (RulesetValue { generation: 2, ipv4: 0, ..RULES }, true),
            (RulesetValue { generation: 2, ipv6: RuleScope::Packet as u32, ..RULES }, false),
            (RulesetValue { ipv6: 0, ..RULES }, true),
        ] {
            bench.programs.set_ruleset(ruleset).unwrap();
            assert_eq!(is_sent(&bench.enters(&there)), is, "{ruleset:?}");
        }
    });
}

#[test]
fn entries_that_the_kernel_must_handle_take_the_slow_path() {
    with_rules(|bench| {
        let (source, destination) = ends(bench);
        let unusable = [
            (CONFIRMED, ESTABLISHED),
            (SEEN_REPLY | CONFIRMED, ESTABLISHED),
            (USABLE, FIN_WAIT),
            (USABLE, 2),
        ];
        for (status, state) in unusable.into_iter().chain([(USABLE, ESTABLISHED)]) {
            let packet = tcp(source, destination, 0x10);
            track(&packet, status, state);
            note(bench, outer(bench), "carnet0", &packet);
            let is = (status, state) == (USABLE, ESTABLISHED);
            bench.forget();
            assert_eq!(is_sent(&bench.enters(&packet)), is, "{status:#x} {state}");
            if !is {
                forget(&packet);
            }
        }
        // The entry is usable now. The kernel needs packets that change the state.
        for flags in [0x01, 0x02, 0x04, 0x11, 0x12, 0x14, 0x00, 0x08, 0x19] {
            let packet = tcp(source, destination, flags);
            assert!(!is_sent(&bench.enters(&packet)), "{flags:#x}");
            note(bench, outer(bench), "carnet0", &packet);
            assert!(!is_sent(&bench.enters(&packet)), "{flags:#x}");
        }
        assert!(is_sent(&bench.enters(&tcp(source, destination, 0x18))));
    });
}

#[test]
fn nat_takes_the_slow_path() {
    with_rules(|bench| {
        let (source, destination) = ends(bench);
        let packet = udp(source, destination, 100);
        let new_source = address("2001:db8:f0::99").octets();
        let parts = [
            tuple(TUPLE, &packet, false),
            tuple(REPLY, &packet, true),
            attribute(STATUS, &USABLE.to_be_bytes()),
            attribute(TIMEOUT, &600_u32.to_be_bytes()),
            nested(SOURCE_NAT, &[attribute(4, &new_source), attribute(5, &new_source)]),
        ];
        ask(NEW, 0x600, &parts.concat()).unwrap();
        note(bench, outer(bench), "carnet0", &packet);
        assert_eq!(bench.enters(&packet), ProgramAction::Left("filter"));
    });
}

/// The kernel keeps a TCP connection for long only while both ends send.
#[test]
fn tcp_timeout_depends_on_both_ends() {
    with_rules(|bench| {
        let (source, destination) = ends(bench);
        let there = tcp(source, destination, 0x10);
        let mut back = tcp(destination, source, 0x10);
        back[40..42].copy_from_slice(&there[42..44]);
        back[42..44].copy_from_slice(&there[40..42]);
        track(&there, USABLE, ESTABLISHED);
        note(bench, outer(bench), "carnet0", &there);
        assert!(is_sent(&bench.enters(&there)));
        assert!((290..=300).contains(&timeout(&there)), "{}", timeout(&there));
        note(bench, "carnet0", outer(bench), &back);
        assert!(is_sent(&arrives(bench, &back)));
        assert!((990..=1000).contains(&timeout(&there)), "{}", timeout(&there));
        // Icmp and other protocols are the kernel's.
        for protocol in [58, 132] {
            let packet = packet(protocol, source, destination, &[0; 32]);
            assert!(!is_sent(&bench.enters(&packet)));
        }
    });
}
