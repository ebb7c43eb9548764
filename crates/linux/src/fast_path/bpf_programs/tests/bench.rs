//! A test bench: a network namespace with the routes, rules and neighbours of a station, the loaded programs,
//! and the slow path as the oracle.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::process::Command;
use std::sync::LazyLock;

use aya::programs::{SchedClassifier, Xdp};
use aya::{TestRun, TestRunOptions};
use carnet_base::{Endpoint, Rng, Time};
use carnet_nemo::forwarding::desired::{FlowDistribution, Tunnel, TunnelEnd};
use carnet_nemo::forwarding::distribution::FlowDistributor;
use carnet_nemo::forwarding::forwarder::{Forwarder, ForwardingVerdict};
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use nix::sched::{CloneFlags, unshare};

use super::packets::{encapsulated_in_ipv4, parse_address};
use crate::fast_path::bpf_programs::{AttachmentKind, LoadedPrograms, find_program, load_program};
use crate::fast_path::routing_knowledge::RoutingKnowledge;
use crate::fast_path::{FastPathConfig, InterfaceRoles, flow_rules};
use crate::netlink::{LinkInfo, NetlinkRequests, RoutingFields};

pub(super) const HOME_AGENT: &str = "2001:db8:1::1";
pub(super) const HOME_ADDRESS: &str = "2001:db8:1::1234";
pub(super) const CARE_OF_ADDRESSES: [&str; 2] = ["2001:db8:f1::10", "2001:db8:f2::10"];
pub(super) const TUNNEL_MTU: u32 = 1460;
pub(super) const HOME_AGENT_IPV4: &str = "198.51.100.2";
/// IPv4 care-of addresses of the router's two uplinks.
pub(super) const CARE_OF_IPV4: [&str; 2] = ["192.0.2.10", "203.0.113.10"];
/// Addresses and ports that a NAT puts in place of `CARE_OF_IPV4`, as the home agent sees them.
pub(super) const ENDPOINTS_BEHIND_NAT: [&str; 2] = ["192.0.2.77:40001", "203.0.113.77:40002"];

/// Link-layer addresses of neighbours: interface, IPv6 address, link-layer address.
pub(super) const NEIGHBOUR_ADDRESSES: [(&str, &str, [u8; 6]); 4] = [
    ("lan0", "2001:db8:a::10", [2, 0, 0, 0, 1, 0]),
    ("wan0", "2001:db8:f1::1", [2, 0, 0, 0, 2, 0]),
    ("wan1", "2001:db8:f2::1", [2, 0, 0, 0, 3, 0]),
    ("ha0", "2001:db8:f0::1", [2, 0, 0, 0, 4, 0]),
];

pub(super) const ROUTER_SETUP: &str = "
    addr add 2001:db8:a::1/64 dev lan0
    addr add 2001:db8:f1::10/64 dev wan0
    addr add 2001:db8:f2::10/64 dev wan1
    addr add 2001:db8:1::1234/128 dev carnet0
    rule add pref 100 iif wan0 from 2001:db8:1::1 ipproto 41 lookup 13500
    rule add pref 100 iif wan1 from 2001:db8:1::1 ipproto 41 lookup 13500
    rule add pref 110 lookup local
    rule del pref 0
    rule add pref 115 iif wan0 lookup 13502
    rule add pref 115 iif wan1 lookup 13502
    rule add pref 120 to 2001:db8:a::/64 lookup main
    rule add pref 130 iif carnet0 from 2001:db8:f1::10 lookup 13510
    rule add pref 130 iif carnet0 from 2001:db8:f2::10 lookup 13511
    rule add pref 140 iif lan0 from 2001:db8:a::/64 lookup 13501
    rule add pref 145 iif lan0 lookup 13502
    route add default dev carnet0 table 13500
    route add default dev carnet0 table 13501
    route add unreachable default table 13502
    route add default via 2001:db8:f1::1 dev wan0 table 13510
    route add default via 2001:db8:f2::1 dev wan1 table 13511
    neigh add 2001:db8:a::10 lladdr 02:00:00:00:01:00 dev lan0
    neigh add 2001:db8:f1::1 lladdr 02:00:00:00:02:00 dev wan0
    neigh add 2001:db8:f2::1 lladdr 02:00:00:00:03:00 dev wan1
    -4 addr add 192.0.2.10/24 dev wan0
    -4 addr add 203.0.113.10/24 dev wan1
    -4 route add default via 192.0.2.1 dev wan0 metric 100
    -4 route add default via 203.0.113.1 dev wan1 metric 200
    -4 neigh add 192.0.2.1 lladdr 02:00:00:00:02:00 dev wan0
    -4 neigh add 203.0.113.1 lladdr 02:00:00:00:03:00 dev wan1";

pub(super) const HOME_AGENT_SETUP: &str = "
    addr add 2001:db8:f0::2/64 dev ha0
    route add default via 2001:db8:f0::1 dev ha0
    route add 2001:db8:1::1/128 dev carnet0
    route add 2001:db8:1::1234/128 dev carnet0
    route add 2001:db8:a::/64 dev carnet0
    neigh add 2001:db8:f0::1 lladdr 02:00:00:00:04:00 dev ha0
    -4 addr add 198.51.100.2/24 dev ha0
    -4 route add default via 198.51.100.1 dev ha0
    -4 neigh add 198.51.100.1 lladdr 02:00:00:00:04:00 dev ha0";

/// Treatment of a packet by a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramOutcome {
    /// The program sent this frame.
    Sent(Vec<u8>),
    /// The program left the packet unchanged. The value is the name of the counter that it incremented.
    Left(&'static str),
}

pub(super) fn run_ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn set_sysctl(switch: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{switch}"), value).unwrap();
}

/// Returns whether this machine cannot run the programs, and prints why.
fn has_reason_to_skip() -> bool {
    static SKIP_REASON: LazyLock<Option<String>> = LazyLock::new(|| {
        let refusal = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("cannot make a network namespace: {error}"))?;
            [AttachmentKind::Tc, AttachmentKind::Xdp].into_iter().try_for_each(|kind| {
                LoadedPrograms::open_for(kind, &fast_path_config(0, 0, InterfaceRoles::default()), 1, &[])
                    .map(drop)
                    .map_err(|why| format!("the kernel takes no BPF programs: {why}"))
            })
        });
        refusal.join().unwrap().err()
    });
    let Some(reason) = &*SKIP_REASON else { return false };
    assert!(std::env::var("CARNET_REQUIRE_ROOT").as_deref() != Ok("1"), "{reason}");
    println!("\nSKIPPED: {reason}");
    true
}

/// Runs `body` for tc and XDP programs and for both tunnel ends (mobile router, home agent), each in a new
/// network namespace. For a home agent, `body` runs also with cached next hops. If the machine cannot create
/// a namespace, prints that the test is skipped.
pub(super) fn run_on_every_bench(body: impl Fn(&mut TestBench) + Copy + Send + 'static) {
    if has_reason_to_skip() {
        return;
    }
    for kind in [AttachmentKind::Tc, AttachmentKind::Xdp] {
        for (end, remembers) in
            [(TunnelEnd::MobileRouter, false), (TunnelEnd::HomeAgent, false), (TunnelEnd::HomeAgent, true)]
        {
            let thread = std::thread::spawn(move || {
                unshare(CloneFlags::CLONE_NEWNET).unwrap();
                let mut bench = TestBench::new(kind, end);
                if remembers {
                    bench.record_routing_fields();
                }
                body(&mut bench);
            });
            if let Err(panic) = thread.join() {
                eprintln!("with {kind:?} at the {end:?}'s end, which remembers ways: {remembers}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn fast_path_config(flow_label_key: u64, bindings: usize, ports: InterfaceRoles) -> FastPathConfig {
    FastPathConfig {
        paths_by_preference: Vec::new(),
        flow_label_key,
        binding_capacity: bindings,
        interface_roles: ports,
    }
}

/// The test bench; see the head of the module.
pub(super) struct TestBench {
    pub(super) kind: AttachmentKind,
    pub(super) station_end: TunnelEnd,
    pub(super) programs: LoadedPrograms,
    slow_path: Forwarder,
    interface_indices: BTreeMap<String, u32>,
    pub(super) links_by_name: BTreeMap<String, LinkInfo>,
    reason_counts: BTreeMap<&'static str, u64>,
    /// Routes and rules of the kernel, as the programs know them; `None` in a run without cached next hops.
    pub(super) routing_knowledge: Option<RoutingKnowledge>,
    pub(super) requests: NetlinkRequests,
}

/// Sets whether a virtual Ethernet interface polls for packets (GRO). While it polls, its peer accepts frames
/// that XDP redirects to the peer.
pub(super) fn set_polling(name: &str, is: bool) {
    let done = Command::new("ethtool").args(["-K", name, "gro", if is { "on" } else { "off" }]).status();
    assert!(done.is_ok_and(|status| status.success()), "ethtool (Debian package ethtool)");
}

impl TestBench {
    /// Creates the bench of a mobile router or a home agent, with its first binding.
    pub(super) fn new(kind: AttachmentKind, end: TunnelEnd) -> TestBench {
        set_sysctl("all/forwarding", "1");
        for switch in ["all/accept_dad", "default/accept_dad", "all/accept_ra", "default/accept_ra"] {
            set_sysctl(switch, "0");
        }
        run_ip("link set lo up");
        let (names, lines) = match end {
            TunnelEnd::MobileRouter => (&["carnet0", "lan0", "wan0", "wan1"][..], ROUTER_SETUP),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (&["carnet0", "ha0"][..], HOME_AGENT_SETUP),
        };
        for name in names {
            // Give these two interfaces indices beyond the array of addresses, so that the programs use the
            // map `FAR_ADDRESSES`.
            let index = if ["lan0", "ha0"].contains(name) { "index 500000" } else { "" };
            // Give each interface the link-layer address to which `frame` sends.
            run_ip(&format!("link add {name} {index} address 02:00:00:00:00:09 type veth peer name {name}x"));
            // XDP can redirect only to an interface whose peer polls.
            set_polling(&format!("{name}x"), true);
            run_ip(&format!("link set {name}x up"));
            run_ip(&format!("link set {name} up"));
        }
        run_ip("link set carnet0 arp off mtu 9000");
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            run_ip(&format!("-6 {line}"));
        }
        if end == TunnelEnd::MobileRouter {
            set_sysctl("wan0/forwarding", "0");
            set_sysctl("wan1/forwarding", "0");
        }
        crate::kernel_settings::forward_ipv4_from("carnet0").unwrap();
        let mut requests = NetlinkRequests::open().unwrap();
        let links: BTreeMap<_, _> = requests
            .link_requests()
            .list_links()
            .unwrap()
            .into_iter()
            .map(|link| (link.name.clone(), link))
            .collect();
        let indices: BTreeMap<String, u32> =
            links.iter().map(|(name, link)| (name.clone(), link.index)).collect();
        let ports = match end {
            TunnelEnd::MobileRouter => InterfaceRoles {
                lan_interfaces: vec!["lan0".into()],
                uplinks: vec!["wan0".into(), "wan1".into()],
                is_home_agent: false,
                direct_routes_enabled: false,
            },
            TunnelEnd::HomeAgent | TunnelEnd::Direct => {
                InterfaceRoles { is_home_agent: true, ..InterfaceRoles::default() }
            }
        };
        let forwarder = Forwarder::new(&mut Rng::new(77));
        let config = fast_path_config(forwarder.flow_label_key(), 8, ports);
        let present: Vec<LinkInfo> = links.values().cloned().collect();
        let mut programs = LoadedPrograms::open_for(kind, &config, indices["carnet0"], &present).unwrap();
        programs.begin_watching_redirect_targets();
        // Attaching gives the interface a receive queue, without which the kernel runs no XDP program.
        let complaints = programs.update_interfaces(&links);
        assert!(complaints.is_empty(), "{complaints:?}");
        let mut bench = TestBench {
            kind,
            station_end: end,
            programs,
            slow_path: forwarder,
            interface_indices: indices,
            links_by_name: links,
            reason_counts: BTreeMap::new(),
            routing_knowledge: None,
            requests,
        };
        bench.set_tunnel(bench.ipv6_tunnel_over_uplink(0, true));
        bench
    }

    /// Writes into the programs' maps by which packet fields the kernel routes, so that the programs cache
    /// next hops.
    fn record_routing_fields(&mut self) {
        let mut routing = RoutingKnowledge::default();
        routing.read_all_routes_and_rules(&mut self.programs, &mut self.requests).unwrap();
        self.routing_knowledge = Some(routing);
    }

    /// Makes the programs' cached lookups invalid, as after a change of routes or rules.
    pub(super) fn invalidate_lookups(&mut self) {
        let Some(routing) = &mut self.routing_knowledge else {
            return self.programs.invalidate_lookups().unwrap();
        };
        // Reads all routes and rules, because the bench receives no events of the kernel.
        let mut heard = RoutingFields::read_from_all_routes(&mut self.requests).unwrap();
        heard.rules_changed = true;
        heard.removed_source_or_multipath_route = true;
        routing.handle_changes(&mut self.programs, &mut self.requests, heard).unwrap();
        if routing.may_remove_obstacle() {
            routing.read_all_routes_and_rules(&mut self.programs, &mut self.requests).unwrap();
        }
    }

    pub(super) fn interface_index(&self, name: &str) -> u32 {
        self.interface_indices[name]
    }

    /// Returns the binding's IPv6 tunnel over the care-of address with index `way`.
    pub(super) fn ipv6_tunnel_over_uplink(&self, way: usize, transmit: bool) -> Tunnel {
        let ends = (parse_address(CARE_OF_ADDRESSES[way]), parse_address(HOME_AGENT));
        let (local, remote) = match self.station_end {
            TunnelEnd::MobileRouter => ends,
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (ends.1, ends.0),
        };
        Tunnel {
            end: self.station_end,
            home_address: parse_address(HOME_ADDRESS),
            bid: u16::try_from(way + 1).ok(),
            local: local.into(),
            remote: remote.into(),
            inner: [format!("{HOME_ADDRESS}/128"), "2001:db8:a::/64".into()]
                .map(|p| p.parse().unwrap())
                .into(),
            transmit,
            mtu: TUNNEL_MTU,
            session: None,
        }
    }

    /// Returns a tunnel inside IPv4 or UDP over the care-of address with index `way`, and opens its socket.
    pub(super) fn ipv4_tunnel_over_uplink(&mut self, udp: bool, way: usize, transmit: bool) -> Tunnel {
        let end = |udp_end: String, plain: &str| match udp {
            true => Endpoint::Udp(udp_end.parse().unwrap()),
            false => Endpoint::Ipv4(plain.parse().unwrap()),
        };
        let agent = end(format!("{HOME_AGENT_IPV4}:4191"), HOME_AGENT_IPV4);
        let (local, remote) = match self.station_end {
            TunnelEnd::MobileRouter => (end(format!("{}:4191", CARE_OF_IPV4[way]), CARE_OF_IPV4[way]), agent),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => {
                (agent, end(ENDPOINTS_BEHIND_NAT[way].into(), CARE_OF_IPV4[way]))
            }
        };
        let index = match self.station_end {
            TunnelEnd::MobileRouter => self.interface_index(["wan0", "wan1"][way]),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => 0,
        };
        self.programs.binding_table.set_socket_interface(local, Some(index));
        Tunnel { local, remote, ..self.ipv6_tunnel_over_uplink(way, transmit) }
    }

    pub(super) fn set_distribution(&mut self, distribution: &FlowDistribution) {
        let key = self.slow_path.flow_label_key();
        let rules = flow_rules::flow_rules_of(&FlowDistributor::new(distribution, None, key));
        let binding = (distribution.end, distribution.home_address);
        self.programs.binding_table.set_distribution(binding, Some(rules));
        self.programs.commit_entries().unwrap();
        self.slow_path.set_distribution(distribution);
    }

    pub(super) fn set_tunnel(&mut self, tunnel: Tunnel) {
        self.programs.binding_table.set_tunnel(&tunnel.clone().into());
        self.programs.commit_entries().unwrap();
        self.slow_path.set_tunnel(tunnel);
    }

    pub(super) fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        self.programs.binding_table.remove_tunnel(tunnel);
        self.programs.commit_entries().unwrap();
        self.slow_path.remove_tunnel(tunnel);
    }

    /// Returns the slow path.
    pub(super) fn slow_path_mut(&mut self) -> &mut Forwarder {
        &mut self.slow_path
    }

    /// Returns outer source and destination of packets that arrive over the care-of address with index `way`.
    pub(super) fn arriving_outer_addresses(&self, way: usize) -> (&'static str, &'static str) {
        match self.station_end {
            TunnelEnd::MobileRouter => (HOME_AGENT, CARE_OF_ADDRESSES[way]),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => (CARE_OF_ADDRESSES[way], HOME_AGENT),
        }
    }

    /// Returns the program for packets that go into the tunnel, and the interface on which they arrive.
    pub(super) fn entrance_program_and_interface(&self) -> (&'static str, &'static str) {
        match self.station_end {
            TunnelEnd::MobileRouter => ("lan", "lan0"),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("agent", "ha0"),
        }
    }

    /// Returns the program for packets that come out of the tunnel, and the interface on which they arrive.
    pub(super) fn exit_program_and_interface(&self) -> (&'static str, &'static str) {
        match self.station_end {
            TunnelEnd::MobileRouter => ("uplink", "wan0"),
            TunnelEnd::HomeAgent | TunnelEnd::Direct => ("agent", "ha0"),
        }
    }

    /// Returns the length in octets of the shortest frame that the kernel accepts for a test run.
    pub(super) fn shortest_frame_length(&self) -> usize {
        if self.kind == AttachmentKind::Tc { 14 + HEADER_LEN } else { 14 }
    }

    /// Runs a program on a frame that arrived at an interface. Returns the program's verdict and the frame
    /// after the run.
    pub(super) fn run_program(&mut self, program: &str, interface: &str, frame: &[u8]) -> (i32, Vec<u8>) {
        self.run_program_from(program, interface, interface, frame)
    }

    /// Runs a program on a frame that arrived at one interface and is now at another.
    pub(super) fn run_program_from(
        &mut self,
        program: &str,
        arrival: &str,
        interface: &str,
        frame: &[u8],
    ) -> (i32, Vec<u8>) {
        load_program(&mut self.programs.ebpf, self.kind, program).unwrap();
        let (arrival, index) = (self.interface_indices[arrival], self.interface_indices[interface]);
        let mut out = vec![0; frame.len() + 256];
        let mut context = vec![0; if self.kind == AttachmentKind::Tc { 192 } else { 24 }];
        let mut write = |at: usize, value: u32| context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        match self.kind {
            // Offsets 36 and 40 are the fields ingress_ifindex and ifindex of struct __sk_buff.
            AttachmentKind::Tc => {
                write(36, arrival);
                write(40, index);
            }
            // Offsets 4 and 12 are the fields data_end and ingress_ifindex of struct xdp_md.
            AttachmentKind::Xdp => {
                write(4, u32::try_from(frame.len()).unwrap());
                write(12, index);
            }
        }
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        let result = match self.kind {
            AttachmentKind::Tc => {
                find_program::<SchedClassifier>(&mut self.programs.ebpf, program).unwrap().test_run(options)
            }
            AttachmentKind::Xdp => {
                find_program::<Xdp>(&mut self.programs.ebpf, program).unwrap().test_run(options)
            }
        };
        let result = result.unwrap_or_else(|error| panic!("{program} on {} octets: {error:?}", frame.len()));
        out.truncate(result.data_size_out as usize);
        (result.return_value as i32, out)
    }

    /// Runs a program and returns its action. Panics if verdict, frame and counters contradict each other.
    pub(super) fn program_outcome(&mut self, program: &str, interface: &str, frame: &[u8]) -> ProgramOutcome {
        let (verdict, out) = self.run_program(program, interface, frame);
        let reason = self.last_counted_reason();
        let (pass, redirect) = match self.kind {
            AttachmentKind::Tc => (-1, 7),
            AttachmentKind::Xdp => (2, 4),
        };
        if verdict == pass {
            assert_eq!(out, frame, "{program} changed what it left alone");
            return ProgramOutcome::Left(reason);
        }
        assert_eq!(verdict, redirect, "{program}: verdict for {frame:x?}");
        assert_eq!(reason, "", "{program} counted what it sent on");
        ProgramOutcome::Sent(out)
    }

    /// Returns the reason for which the programs left a packet to the slow path: the counter that increased
    /// since the last call.
    fn last_counted_reason(&mut self) -> &'static str {
        let mut found = Vec::new();
        for (name, number) in self.programs.counters_per_processor().slow_path_packets_by_reason {
            if self.reason_counts.insert(name, number).unwrap_or(0) != number {
                found.push(name);
            }
        }
        assert!(found.len() <= 1, "{found:?}");
        found.first().copied().unwrap_or("")
    }

    /// Returns the packet that slow path and kernel together would forward. Returns `None` if they would
    /// drop, keep or answer it.
    pub(super) fn expected_packet(&mut self, packet: &[u8], tunnelled: bool) -> Option<Vec<u8>> {
        let (header, payload) = Header::parse_packet(packet).ok()?;
        let special = |a: Ipv6Addr| {
            a.is_multicast() || a.is_loopback() || a.is_unspecified() || a.is_unicast_link_local()
        };
        if special(header.source) || special(header.destination) {
            return None;
        }
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(&packet[..HEADER_LEN + payload.len()]);
        let result = if tunnelled && header.next_header == protocol::IPV6 {
            // The kernel passes the packet to the TUN device. The slow path then decapsulates it, and the
            // kernel forwards the inner packet.
            let ends = (header.destination.into(), header.source.into());
            self.slow_path.decapsulate(ends, header.traffic_class, None, HEADER_LEN, &mut buffer).ok()?;
            let octets = buffer.as_mut_slice();
            octets[7] = octets[7].checked_sub(1).filter(|hops| *hops > 0)?;
            buffer.as_slice().to_vec()
        } else {
            let octets = buffer.as_mut_slice();
            octets[7] = octets[7].checked_sub(1).filter(|hops| *hops > 0)?;
            let verdict = self.slow_path.encapsulate(Time::ZERO, &header, &mut buffer);
            let mut rest = false;
            while self.slow_path.poll_output().is_some() {
                rest = true;
            }
            match verdict {
                _ if rest => return None,
                ForwardingVerdict::Forward => {
                    buffer.as_mut_slice()[7] -= 1;
                    buffer.as_slice().to_vec()
                }
                ForwardingVerdict::Encapsulate { local, remote, may_fragment: false, .. } => {
                    encapsulated_in_ipv4(local, remote, header.traffic_class, buffer.as_slice())
                }
                _ => return None,
            }
        };
        Some(result)
    }

    /// Compares a frame that the program sent with the frame that slow path and kernel send for the same
    /// packet.
    pub(super) fn assert_equals_slow_path(&mut self, packet: &[u8], tunnelled: bool, sent: &[u8]) {
        let expected = self.expected_packet(packet, tunnelled);
        let expected = expected.unwrap_or_else(|| panic!("the slow path does not send on {packet:x?}"));
        let ethertype = if expected[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        // With tc, the kernel writes the neighbour's address and the EtherType only after the program.
        assert!(
            (self.kind == AttachmentKind::Tc || sent[12..14] == ethertype) && sent[14..] == expected,
            "in       {packet:02x?}\nsent     {:02x?}\nexpected {expected:02x?}",
            &sent[14..]
        );
    }

    /// Returns the packet that the slow path forwards for an inner packet that arrived in IPv4.
    pub(super) fn expected_ipv4_packet(
        &mut self,
        ends: (Endpoint, Endpoint),
        class: u8,
        inner: &[u8],
    ) -> Option<Vec<u8>> {
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(inner);
        self.slow_path.decapsulate(ends, class, None, 0, &mut buffer).ok()?;
        let octets = buffer.as_mut_slice();
        octets[7] = octets[7].checked_sub(1).filter(|hops| *hops > 0)?;
        Some(buffer.as_slice().to_vec())
    }

    /// Runs the program on a packet inside IPv4 from `remote` to `local`, on an interface.
    pub(super) fn run_on_packet_from_ipv4_tunnel(
        &mut self,
        interface: &str,
        (local, remote): (Endpoint, Endpoint),
        class: u8,
        inner: &[u8],
    ) -> ProgramOutcome {
        let packet = encapsulated_in_ipv4(remote, local, class, inner);
        let did = self.program_outcome(
            self.exit_program_and_interface().0,
            interface,
            &super::packets::ethernet_frame(0x0800, &packet),
        );
        if let ProgramOutcome::Sent(sent) = &did {
            let expected = self.expected_ipv4_packet((local, remote), class, inner);
            assert_eq!(Some(&sent[14..]), expected.as_deref(), "{inner:x?}");
        }
        did
    }

    /// Runs the program for packets that go into the tunnel on an IPv6 packet.
    pub(super) fn run_on_packet_into_tunnel(&mut self, packet: &[u8]) -> ProgramOutcome {
        let (program, interface) = self.entrance_program_and_interface();
        self.run_and_compare(program, interface, packet, false)
    }

    /// Runs the program for packets that come out of the tunnel on a tunnelled packet.
    pub(super) fn run_on_packet_out_of_tunnel(&mut self, packet: &[u8]) -> ProgramOutcome {
        let (program, interface) = self.exit_program_and_interface();
        self.run_and_compare(program, interface, packet, true)
    }

    fn run_and_compare(
        &mut self,
        program: &str,
        interface: &str,
        packet: &[u8],
        tunnelled: bool,
    ) -> ProgramOutcome {
        let did = self.program_outcome(program, interface, &super::packets::ethernet_frame(0x86dd, packet));
        if let ProgramOutcome::Sent(sent) = &did {
            self.assert_equals_slow_path(packet, tunnelled, sent);
        }
        did
    }
}
