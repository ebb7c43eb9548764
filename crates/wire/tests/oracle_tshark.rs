//! Tshark as independent check: it reads carnet's packets as intended and reports none as malformed.
//!
//! The test writes a capture of raw IPv6 packets, lets tshark print the fields of all packets, and compares.
//! The expectations avoid known faults of tshark 4.0.17. It shows only ten of the twelve octets of
//! authentication data. It prints the R flag of home agent discovery as reserved bits, and takes bit 0x0040
//! of the Binding Update for PMIPv6's B. It knows neither BID-PRI nor the flow options of RFC 6089. It looks
//! for options in the middle of the addresses of a Home Agent Switch message. It does not verify the Mobility
//! Header's checksum; other tests check it with packets of scapy and UMIP.

mod common;

use carnet_wire::discovery::{HomeAgentDiscoveryRequest, emit_discovery_reply};
use carnet_wire::icmpv6::{Icmpv6ErrorMessage, emit_packet, error_packet};
use carnet_wire::mld::MldQueryRepr;
use carnet_wire::mobility::{
    BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption, RevocationFlags, RevocationKind,
};
use carnet_wire::nd::nd_option::option_type;
use carnet_wire::nd::{
    CaptivePortal, DnsSearchList, HomeAgentInformation, NdOption, NeighborAdvertisement,
    NeighborSolicitation, Pref64, PrefixInformation, RecursiveDnsServers, RouteInformation, RoutePreference,
    RouterAdvertisementRepr, RouterSolicitation, emit_router_advertisement,
};
use carnet_wire::prefix_discovery::{MobilePrefixSolicitation, emit_prefix_advertisement};
use common::{fixtures, parse_address, parse_hex, tools};
use std::collections::BTreeSet;
use std::path::Path;

/// A packet, and the values that tshark must read in it: field and value, several occurrences joined by
/// commas.
struct DissectionCase {
    packet: Vec<u8>,
    fields: Vec<(&'static str, &'static str)>,
}

/// Fields that the test asks for in every packet: no packet may be malformed or cause a warning.
const EXPERT_FIELDS: [&str; 2] = ["_ws.malformed", "_ws.expert.severity"];
/// Lowest expert severity of tshark for warnings and errors; notes are lower.
const WARNING_SEVERITY: u32 = 0x0060_0000;

fn control_packet(home: bool, routing: bool, builder: MobilityHeaderBuilder) -> Vec<u8> {
    let (inside, outside) = ("2001:db8:1::1234", "2001:db8:f1::10");
    let agent = "2001:db8:1::1";
    let (source, destination) = if routing { (agent, outside) } else { (outside, agent) };
    ControlPacket {
        source: parse_address(source),
        destination: parse_address(destination),
        hop_limit: 61,
        home_address: home.then(|| parse_address(inside)),
        routing_home_address: routing.then(|| parse_address(inside)),
        mobility_header: &mut builder.finish(),
    }
    .emit()
}

/// Returns a Router Advertisement with DNS, NAT64 and captive portal.
fn host_configuration_advertisement() -> Vec<u8> {
    let servers = vec![parse_address("2001:db8:53::53"), parse_address("fe80::1")];
    let domains = vec!["bus.example".to_owned(), "example".to_owned()];
    let pref64 = Pref64::new("64:ff9b::/96".parse().expect("a prefix"), 180).expect("a length");
    let options = [
        (option_type::RECURSIVE_DNS_SERVER, RecursiveDnsServers { lifetime: 180, servers }.emit_data()),
        (option_type::DNS_SEARCH_LIST, DnsSearchList { lifetime: 180, domains }.emit_data()),
        (option_type::PREF64, pref64.emit_data()),
        (
            option_type::CAPTIVE_PORTAL,
            CaptivePortal { uri: "https://portal.example/api?bus=42".into() }.emit_data(),
        ),
    ];
    let options: Vec<NdOption<'_>> = options
        .iter()
        .map(|(option_type, data)| NdOption::Unknown { option_type: *option_type, data })
        .collect();
    emit_router_advertisement(&RouterAdvertisementRepr {
        options: &options,
        ..RouterAdvertisementRepr::default()
    })
}

fn mobility_cases() -> Vec<DissectionCase> {
    let flags = BindingUpdateFlags::from_bits;
    let prefix = |text, prefix_length| MobilityOption::MobileNetworkPrefix {
        prefix: parse_address(text),
        prefix_length,
    };
    let mut cases = vec![
        DissectionCase {
            packet: control_packet(
                true,
                false,
                MobilityHeaderBuilder::binding_update(4711, flags(0xc400), 15)
                    .option(&MobilityOption::AlternateCareOfAddress(parse_address("2001:db8:f2::20")))
                    .option(&prefix("2001:db8:a::", 64))
                    .option(&prefix("2001:db8:b::", 56))
                    .option(&MobilityOption::MobileNodeIdentifier {
                        subtype: 1,
                        identifier: b"bus42@example.net",
                    })
                    .option(&MobilityOption::Authentication { subtype: 1, spi: 300, data: &[0xa5; 12] }),
            ),
            fields: vec![
                ("ipv6.src", "2001:db8:f1::10"),
                ("ipv6.dst", "2001:db8:1::1"),
                ("ipv6.hlim", "61"),
                ("ipv6.dstopts.nxt", "135"),
                ("ipv6.opt.mipv6.home_address", "2001:db8:1::1234"),
                ("mip6.proto", "59"),
                ("mip6.hlen", "14"),
                ("mip6.mhtype", "5"),
                ("mip6.bu.seqnr", "4711"),
                ("mip6.bu.a_flag", "1"),
                ("mip6.bu.h_flag", "1"),
                ("mip6.bu.l_flag", "0"),
                ("mip6.bu.k_flag", "0"),
                ("mip6.nemo.bu.r_flag", "1"),
                ("mip6.bu.lifetime", "15"),
                ("mip6.acoa.acoa", "2001:db8:f2::20"),
                ("mip6.nemo.mnp.mnp", "2001:db8:a::,2001:db8:b::"),
                ("mip6.nemo.mnp.pfl", "64,56"),
                ("mip6.mnid.subtype", "1"),
                ("mip6.mnid.identifier", "bus42@example.net"),
                ("mip6.auth.subtype", "1"),
                ("mip6.auth.mobility_spi", "300"),
                ("mip6.auth.auth_data", "a5a5a5a5a5a5a5a5a5a5"),
            ],
        },
        DissectionCase {
            packet: control_packet(
                false,
                true,
                MobilityHeaderBuilder::binding_acknowledgement(142, true, true, 4711, 14)
                    .option(&MobilityOption::BindingRefreshAdvice(10)),
            ),
            fields: vec![
                ("ipv6.dst", "2001:db8:f1::10"),
                ("ipv6.routing.type", "2"),
                ("ipv6.routing.segleft", "1"),
                ("ipv6.routing.mipv6.home_address", "2001:db8:1::1234"),
                ("mip6.mhtype", "6"),
                ("mip6.ba.status", "142"),
                ("mip6.ba.k_flag", "1"),
                ("mip6.nemo.ba.r_flag", "1"),
                ("mip6.ba.seqnr", "4711"),
                ("mip6.ba.lifetime", "14"),
                ("mip6.bra.interval", "10"),
            ],
        },
        DissectionCase {
            packet: control_packet(false, true, MobilityHeaderBuilder::binding_refresh_request()),
            fields: vec![("mip6.mhtype", "0"), ("mip6.hlen", "0")],
        },
        DissectionCase {
            packet: control_packet(
                false,
                false,
                MobilityHeaderBuilder::binding_error(1, parse_address("2001:db8:1::99")),
            ),
            fields: vec![("mip6.mhtype", "7"), ("mip6.be.status", "1"), ("mip6.be.haddr", "2001:db8:1::99")],
        },
    ];
    cases.extend(multihoming_and_dual_stack_cases());
    cases.extend(revocation_cases());
    let named = [
        (0x8000, "mip6.bu.a_flag"),
        (0x4000, "mip6.bu.h_flag"),
        (0x2000, "mip6.bu.l_flag"),
        (0x1000, "mip6.bu.k_flag"),
        (0x0800, "mip6.bu.m_flag"),
        (0x0400, "mip6.nemo.bu.r_flag"),
        (0x0200, "mip6.bu.p_flag"),
        (0x0100, "mip6.bu.f_flag"),
        (0x0080, "mip6.bu.t_flag"),
        (0x0040, "mip6.bu.b_flag"),
    ];
    for (bit, field) in named {
        let fields = named.map(|(other, name)| (name, if other == bit { "1" } else { "0" }));
        assert!(fields.contains(&(field, "1")));
        cases.push(DissectionCase {
            packet: control_packet(true, false, MobilityHeaderBuilder::binding_update(1, flags(bit), 1)),
            fields: fields.to_vec(),
        });
    }
    cases
}

/// Returns cases of Binding Revocation (RFC 5846).
fn revocation_cases() -> Vec<DissectionCase> {
    let bid = MobilityOption::BindingIdentifier {
        bid: 7,
        status: 0,
        home: false,
        priority: 0,
        care_of_address: None,
    };
    let indication = RevocationKind::Indication { trigger: 1 };
    let acknowledgement = RevocationKind::Acknowledgement { status: 128 };
    let global = RevocationFlags { global: true, ..RevocationFlags::default() };
    vec![
        DissectionCase {
            packet: control_packet(
                false,
                true,
                MobilityHeaderBuilder::binding_revocation(indication, 4712, RevocationFlags::default())
                    .option(&bid),
            ),
            fields: vec![
                ("mip6.mhtype", "16"),
                ("mip6.bri_br.type", "1"),
                ("mip6.bri_r.trigger", "1"),
                ("mip6.bri_seqnr", "4712"),
                ("mip6.bri_ip", "0"),
                ("mip6.bri_iv", "0"),
                ("mip6.bri_ig", "0"),
            ],
        },
        DissectionCase {
            packet: control_packet(
                true,
                false,
                MobilityHeaderBuilder::binding_revocation(acknowledgement, 4713, global),
            ),
            fields: vec![
                ("mip6.mhtype", "16"),
                ("mip6.bri_br.type", "2"),
                ("mip6.bri_status", "128"),
                ("mip6.bri_seqnr", "4713"),
                ("mip6.bri_ap", "0"),
                ("mip6.bri_ag", "1"),
            ],
        },
    ]
}

/// Returns cases of the options of RFC 5094, 5555 and 5648, and of the Heartbeat of RFC 5847.
fn multihoming_and_dual_stack_cases() -> Vec<DissectionCase> {
    let flags = BindingUpdateFlags::from_bits;
    let bid = |bid, status, home, priority, care_of_address| MobilityOption::BindingIdentifier {
        bid,
        status,
        home,
        priority,
        care_of_address,
    };
    let v4: std::net::Ipv4Addr = "192.0.2.77".parse().expect("address");
    vec![
        DissectionCase {
            packet: control_packet(
                true,
                false,
                MobilityHeaderBuilder::binding_update(7, flags(0xc540), 15)
                    .option(&bid(1, 0, false, 0, Some(parse_address("2001:db8:f2::20").into())))
                    .option(&bid(2, 0, true, 0, Some(v4.into())))
                    .option(&bid(65_535, 0, false, 0, None))
                    .option(&MobilityOption::Ipv4HomeAddress { prefix_length: 24, prefix: true, address: v4 })
                    .option(&MobilityOption::Ipv4CareOfAddress("198.51.100.9".parse().expect("address")))
                    .option(&MobilityOption::VendorSpecific {
                        vendor: 32_473,
                        sub_type: 1,
                        data: &[1, 2, 3],
                    }),
            ),
            fields: vec![
                ("mip6.bu.f_flag", "1"),
                ("mip6.bi.bid", "1,2,65535"),
                ("mip6.bi.h_flag", "0,1,0"),
                ("mip6.bi.coa_ipv6", "2001:db8:f2::20"),
                ("mip6.bi.coa_ipv4", "192.0.2.77"),
                ("mip6.ipv4ha.preflen", "24"),
                ("mip6.ipv4ha.p_flag", "1"),
                ("mip6.ipv4ha.ha", "192.0.2.77"),
                ("mip6.ipv4coa.addr", "198.51.100.9"),
                ("mip6.vsm.vendorId", "32473"),
                ("mip6.vsm.subtype", "1"),
            ],
        },
        DissectionCase {
            packet: control_packet(
                false,
                true,
                MobilityHeaderBuilder::binding_acknowledgement(4, false, true, 7, 15)
                    .option(&bid(1, 0, false, 0, None))
                    .option(&bid(2, 169, true, 0, None))
                    .option(&MobilityOption::Ipv4AddressAcknowledgement {
                        status: 132,
                        prefix_length: 0,
                        address: v4,
                    })
                    .option(&MobilityOption::NatDetection { force_udp: true, refresh: u32::MAX }),
            ),
            fields: vec![
                ("mip6.ba.status", "4"),
                ("mip6.bi.bid", "1,2"),
                ("mip6.bi.status", "0,169"),
                ("mip6.bi.h_flag", "0,1"),
                ("mip6.ipv4aa.sts", "132"),
                ("mip6.natd.f_flag", "1"),
                ("mip6.natd.refresh_t", "4294967295"),
            ],
        },
        DissectionCase {
            packet: control_packet(false, false, MobilityHeaderBuilder::heartbeat_request(0x0102_0304)),
            fields: vec![
                ("mip6.mhtype", "13"),
                ("mip6.hb.u_flag", "0"),
                ("mip6.hb.r_flag", "0"),
                ("mip6.hb.seqnr", "16909060"),
            ],
        },
        DissectionCase {
            packet: control_packet(
                false,
                false,
                MobilityHeaderBuilder::heartbeat_response(9).option(&MobilityOption::RestartCounter(41)),
            ),
            fields: vec![
                ("mip6.hb.u_flag", "0"),
                ("mip6.hb.r_flag", "1"),
                ("mip6.hb.seqnr", "9"),
                ("mip6.rc", "41"),
            ],
        },
        DissectionCase {
            packet: control_packet(false, false, MobilityHeaderBuilder::unsolicited_heartbeat()),
            fields: vec![("mip6.hb.u_flag", "1"), ("mip6.hb.r_flag", "1"), ("mip6.hb.seqnr", "0")],
        },
    ]
}

fn mld_cases() -> Vec<DissectionCase> {
    let sources = [parse_address("2001:db8::1"), parse_address("2001:db8::2")];
    let query = MldQueryRepr {
        maximum_response_delay: 10_000,
        group: None,
        suppress_router_timers: false,
        robustness_variable: 2,
        query_interval: 125,
        sources: &[],
    };
    let about = MldQueryRepr {
        group: Some(parse_address("ff1e::42")),
        suppress_router_timers: true,
        sources: &sources,
        ..query
    };
    vec![
        DissectionCase {
            packet: query.emit_packet(parse_address("fe80::5")),
            fields: vec![
                ("icmpv6.type", "130"),
                ("icmpv6.mld.maximum_response_code", "10000"),
                ("icmpv6.mld.multicast_address", "::"),
                ("icmpv6.mld.flag.qrv", "2"),
                ("icmpv6.mld.nb_sources", "0"),
                ("icmpv6.checksum.status", "1"),
            ],
        },
        DissectionCase {
            packet: about.emit_packet(parse_address("fe80::5")),
            fields: vec![
                ("icmpv6.mld.multicast_address", "ff1e::42"),
                ("icmpv6.mld.qqi", "125"),
                ("icmpv6.mld.source_address", "2001:db8::1,2001:db8::2"),
                ("icmpv6.checksum.status", "1"),
            ],
        },
    ]
}

fn icmpv6_cases() -> Vec<DissectionCase> {
    let link = |source: &str, destination: &str, message| {
        emit_packet(parse_address(source), parse_address(destination), 255, message)
    };
    let options = [
        NdOption::SourceLinkAddress([2, 0, 0, 0, 0, 0xa]),
        NdOption::Mtu(1460),
        NdOption::PrefixInformation(PrefixInformation {
            prefix: parse_address("2001:db8:1::1"),
            prefix_length: 64,
            on_link: true,
            autonomous: true,
            router_address: true,
            valid_lifetime: 7200,
            preferred_lifetime: 3600,
        }),
        NdOption::HomeAgentInformation(HomeAgentInformation {
            mobile_router_support: true,
            preference: 10,
            lifetime: 1800,
        }),
        NdOption::RouteInformation(RouteInformation {
            prefix: parse_address("2001:db8:a::"),
            prefix_length: 64,
            preference: RoutePreference::Low,
            lifetime: 600,
        }),
    ];
    let advertisement = emit_router_advertisement(&RouterAdvertisementRepr {
        hop_limit: 64,
        managed: false,
        other_configuration: true,
        home_agent: true,
        preference: RoutePreference::High,
        router_lifetime: 1800,
        reachable_time: 30000,
        retrans_timer: 1000,
        options: &options,
    });
    let (router, agent) = (parse_address("2001:db8:f1::10"), parse_address("2001:db8:1::1"));
    let quoted = link("2001:db8:1::1", "2001:db8:f1::10", vec![128, 0, 0, 0, 0, 1, 0, 2]);
    let about = |error| error_packet(agent, router, error, &quoted);
    vec![
        DissectionCase {
            packet: link("fe80::1", "ff02::1", advertisement),
            fields: vec![
                ("ipv6.hlim", "255"),
                ("icmpv6.type", "134"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.nd.ra.cur_hop_limit", "64"),
                ("icmpv6.nd.ra.flag.m", "0"),
                ("icmpv6.nd.ra.flag.o", "1"),
                ("icmpv6.nd.ra.flag.h", "1"),
                ("icmpv6.nd.ra.flag.prf", "1"),
                ("icmpv6.nd.ra.router_lifetime", "1800"),
                ("icmpv6.nd.ra.reachable_time", "30000"),
                ("icmpv6.nd.ra.retrans_timer", "1000"),
                ("icmpv6.opt.type", "1,5,3,8,24"),
                ("icmpv6.opt.length", "1,1,4,1,2"),
                ("icmpv6.opt.src_linkaddr", "02:00:00:00:00:0a"),
                ("icmpv6.opt.mtu", "1460"),
                ("icmpv6.opt.prefix", "2001:db8:1::1,2001:db8:a::"),
                ("icmpv6.opt.prefix.length", "64,64"),
                ("icmpv6.opt.prefix.flag.l", "1"),
                ("icmpv6.opt.prefix.flag.a", "1"),
                ("icmpv6.opt.prefix.flag.r", "1"),
                ("icmpv6.opt.prefix.valid_lifetime", "7200"),
                ("icmpv6.opt.prefix.preferred_lifetime", "3600"),
                ("icmpv6.opt.home_agent_preference", "10"),
                ("icmpv6.opt.home_agent_lifetime", "1800"),
                ("icmpv6.opt.route_info.flag.route_preference", "3"),
                ("icmpv6.opt.route_lifetime", "600"),
            ],
        },
        DissectionCase {
            packet: link("fe80::1", "ff02::1", host_configuration_advertisement()),
            fields: vec![
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.opt.type", "25,31,38,37"),
                ("icmpv6.opt.length", "5,4,2,5"),
                ("icmpv6.opt.rdnss.lifetime", "180"),
                ("icmpv6.opt.rdnss", "2001:db8:53::53,fe80::1"),
                ("icmpv6.opt.dnssl.lifetime", "180"),
                ("icmpv6.opt.dnssl", "bus.example,example"),
                ("icmpv6.opt.pref64.scaled_lifetime", "23"),
                ("icmpv6.opt.pref64.plc", "0"),
                ("icmpv6.opt.pref64.prefix", "64:ff9b::"),
                ("icmpv6.opt.captive_portal", "https://portal.example/api?bus=42"),
            ],
        },
        DissectionCase {
            packet: link(
                "fe80::1",
                "ff02::2",
                RouterSolicitation { source_link_address: Some([2; 6]) }.emit(),
            ),
            fields: vec![
                ("icmpv6.type", "133"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.opt.src_linkaddr", "02:02:02:02:02:02"),
            ],
        },
        DissectionCase {
            packet: link(
                "::",
                "ff02::1:ff00:1234",
                NeighborSolicitation { target: parse_address("2001:db8:1::1234"), source_link_address: None }
                    .emit(),
            ),
            fields: vec![
                ("icmpv6.type", "135"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.nd.ns.target_address", "2001:db8:1::1234"),
            ],
        },
        DissectionCase {
            packet: link(
                "2001:db8:1::1",
                "ff02::1",
                NeighborAdvertisement {
                    target: parse_address("2001:db8:1::1234"),
                    router: true,
                    solicited: false,
                    override_: true,
                    target_link_address: Some([2, 0, 0, 0, 0, 0xb]),
                }
                .emit(),
            ),
            fields: vec![
                ("icmpv6.type", "136"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.nd.na.target_address", "2001:db8:1::1234"),
                ("icmpv6.nd.na.flag.r", "1"),
                ("icmpv6.nd.na.flag.s", "0"),
                ("icmpv6.nd.na.flag.o", "1"),
                ("icmpv6.opt.target_linkaddr", "02:00:00:00:00:0b"),
            ],
        },
        DissectionCase {
            packet: emit_packet(
                router,
                agent,
                64,
                HomeAgentDiscoveryRequest { identifier: 77, mobile_router: true }.emit(),
            ),
            fields: vec![
                ("icmpv6.type", "144"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.mip6.identifier", "77"),
                ("icmpv6.reserved", "8000"),
            ],
        },
        DissectionCase {
            packet: emit_packet(
                agent,
                router,
                64,
                emit_discovery_reply(77, false, &[agent, parse_address("2001:db8:1::2")]),
            ),
            fields: vec![
                ("icmpv6.type", "145"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.mip6.identifier", "77"),
                ("icmpv6.reserved", "0000"),
                ("icmpv6.mip6.home_agent_address", "2001:db8:1::1,2001:db8:1::2"),
            ],
        },
        DissectionCase {
            packet: emit_packet(router, agent, 64, MobilePrefixSolicitation { identifier: 78 }.emit()),
            fields: vec![
                ("icmpv6.type", "146"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.mip6.identifier", "78"),
            ],
        },
        DissectionCase {
            packet: emit_packet(agent, router, 64, emit_prefix_advertisement(79, &options[2..3])),
            fields: vec![
                ("icmpv6.type", "147"),
                ("icmpv6.checksum.status", "1"),
                ("icmpv6.mip6.identifier", "79"),
                ("icmpv6.mip6.flag.m", "0"),
                ("icmpv6.opt.prefix.length", "64"),
                ("icmpv6.opt.prefix.flag.r", "1"),
                ("icmpv6.opt.prefix", "2001:db8:1::1"),
            ],
        },
        DissectionCase {
            packet: about(Icmpv6ErrorMessage::PacketTooBig { mtu: 1400 }),
            fields: vec![("icmpv6.type", "2,128"), ("icmpv6.mtu", "1400"), ("icmpv6.checksum.status", "1,2")],
        },
        DissectionCase {
            packet: about(Icmpv6ErrorMessage::ParameterProblem { code: 2, pointer: 46 }),
            fields: vec![("icmpv6.type", "4,128"), ("icmpv6.code", "2,0"), ("icmpv6.pointer", "46")],
        },
        DissectionCase {
            packet: about(Icmpv6ErrorMessage::DestinationUnreachable { code: 3 }),
            fields: vec![("icmpv6.type", "1,128"), ("icmpv6.code", "3,0")],
        },
        DissectionCase {
            packet: about(Icmpv6ErrorMessage::TimeExceeded { code: 0 }),
            fields: vec![("icmpv6.type", "3,128"), ("icmpv6.code", "0,0")],
        },
    ]
}

/// Writes a capture of raw IP packets (link type 101).
fn write_capture(path: &Path, cases: &[DissectionCase]) {
    let mut octets = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65535, 101] {
        octets.extend(word.to_be_bytes());
    }
    for (second, case) in cases.iter().enumerate() {
        let length = u32::try_from(case.packet.len()).expect("short");
        for word in [u32::try_from(second).expect("few"), 0, length, length] {
            octets.extend(word.to_be_bytes());
        }
        octets.extend(&case.packet);
    }
    std::fs::write(path, octets).expect("a capture");
}

/// Returns a common form of the field values of different tshark versions: numbers in decimal, truth as 1 and
/// 0.
fn normalize_value(value: &str) -> String {
    let one = |value: &str| match value {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => match value.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
            Some(Ok(number)) => number.to_string(),
            _ => value.to_owned(),
        },
    };
    value.split(',').map(one).collect::<Vec<_>>().join(",")
}

/// Runs tshark over the cases; returns one row of values for each case, in the order of `names`. Returns
/// `None` if tshark is not installed.
fn dissect_with_tshark(cases: &[DissectionCase], file: &str, names: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = tools::find_tshark()?;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    write_capture(&path, cases);
    command.args(["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=,"]);
    for name in names {
        command.args(["-e", name]);
    }
    let output = command.arg("-r").arg(&path).output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<Vec<String>> =
        text.lines().map(|line| line.split('|').map(normalize_value).collect()).collect();
    assert_eq!(rows.len(), cases.len());
    assert!(rows.iter().all(|row| row.len() == names.len()));
    Some(rows)
}

fn compare_with_tshark(cases: &[DissectionCase], file: &str) {
    let names: BTreeSet<&str> = cases
        .iter()
        .flat_map(|case| case.fields.iter().map(|(name, _)| *name))
        .chain(EXPERT_FIELDS)
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    let Some(rows) = dissect_with_tshark(cases, file, &names) else { return };
    for (number, (case, row)) in cases.iter().zip(rows).enumerate() {
        let value = |name: &str| {
            let column = names.iter().position(|other| *other == name).expect("asked for");
            row[column].as_str()
        };
        let hex = common::to_hex(&case.packet);
        assert_eq!(value("_ws.malformed"), "", "packet {number}: {hex}");
        for severity in value("_ws.expert.severity").split(',').filter(|text| !text.is_empty()) {
            let severity: u32 = severity.parse().expect("a number");
            assert!(
                severity < WARNING_SEVERITY,
                "packet {number} draws expert severity {severity:#x}: {hex}"
            );
        }
        for (name, expected) in &case.fields {
            assert_eq!(value(name), *expected, "{name} of packet {number}: {hex}");
        }
    }
}

#[test]
fn tshark_decodes_mobility_messages_equally() {
    compare_with_tshark(&mobility_cases(), "wire-mobility.pcap");
}

#[test]
fn tshark_decodes_icmpv6_messages_equally() {
    compare_with_tshark(&icmpv6_cases(), "wire-icmpv6.pcap");
}

#[test]
fn tshark_decodes_mld_messages_equally() {
    compare_with_tshark(&mld_cases(), "wire-mld.pcap");
}

/// Checks that tshark reports a broken packet as malformed.
#[test]
fn tshark_reports_broken_packet() {
    let mut packet = fixtures::golden_packet(fixtures::GOLDEN_EXPLICIT);
    // The last option of the Binding Update exceeds the message.
    let at = 64 + 37;
    assert_eq!(packet[at], 18);
    packet[at] = 60;
    let cases = [
        DissectionCase { packet, fields: vec![] },
        DissectionCase { packet: parse_hex(fixtures::UMIP_DUPLICATE_DETECTION), fields: vec![] },
    ];
    let names = ["_ws.expert.severity", "icmpv6.checksum.status"];
    let Some(rows) = dissect_with_tshark(&cases, "wire-broken.pcap", &names) else { return };
    let severity: u32 = rows[0][0].parse().expect("tshark sees the option run past the end");
    assert!(severity >= WARNING_SEVERITY);
    assert_eq!(rows[1][1], "0", "tshark sees UMIP's wrong checksum");
}
