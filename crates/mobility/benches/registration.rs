//! Measures the cost of one authenticated Binding Update at a home agent, from octets to signed
//! acknowledgement, without any system call. For comparison, measures the bare HMAC over as many octets,
//! which every home agent must compute.
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]

use std::hint::black_box;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents};
use carnet_mobility::{Authentication, HomeAgent, MobilityMessage, ReplayProtection, SecurityAssociation};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::ipv6::Header;
use carnet_wire::mobility::{BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const HOME_AGENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const HOME_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x1234);
const CARE_OF_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf1, 0, 0, 0, 0, 0x10);

fn association() -> SecurityAssociation {
    SecurityAssociation { spi: 300, key: [7; 16].into(), replay: ReplayProtection::Sequence }
}

fn binding_update(sequence: u16) -> Vec<u8> {
    let flags = BindingUpdateFlags {
        acknowledge: true,
        home_registration: true,
        mobile_router: true,
        ..BindingUpdateFlags::default()
    };
    let mut message = MobilityHeaderBuilder::binding_update(sequence, flags, 15)
        .option(&MobilityOption::AlternateCareOfAddress(CARE_OF_ADDRESS))
        .option(&MobilityOption::MobileNetworkPrefix {
            prefix: "2001:db8:a::".parse().expect("an address"),
            prefix_length: 64,
        })
        .option(&association().empty_authentication_option())
        .finish();
    association().sign(&mut message, CARE_OF_ADDRESS, HOME_ADDRESS);
    ControlPacket {
        source: CARE_OF_ADDRESS,
        destination: HOME_AGENT_ADDRESS,
        hop_limit: 64,
        home_address: Some(HOME_ADDRESS),
        routing_home_address: None,
        mobility_header: &mut message,
    }
    .emit()
}

fn benchmark_registrations(criterion: &mut Criterion) {
    let mut agent = HomeAgent::new(HomeAgentConfig {
        other_agents: OtherAgents::default(),
        address: HOME_AGENT_ADDRESS,
        home_prefix: "2001:db8:1::/64".parse().expect("a prefix"),
        home_network: None,
        home_link: None,
        ndp_proxy: None,
        nat: Default::default(),
        max_lifetime: Duration::from_secs(600),
        force_udp: false,
        ipv4_address: None,
        multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
        nodes: vec![AuthorizedNode {
            nat: true,
            care_of_test: false,
            home_address: HOME_ADDRESS,
            prefixes: ["2001:db8:a::/64".parse().expect("a prefix")].into(),
            authentication: Authentication::SharedKey(association()),
        }],
    });
    // One update for each sequence number; used in a cycle, each is newer than the one before.
    let updates: Vec<Vec<u8>> = (0..=u16::MAX).map(binding_update).collect();
    let mut next = updates.iter().cycle();
    // The clock advances, so that the node stays below its limit of Binding Updates.
    let mut now = Time::ZERO;
    let mut group = criterion.benchmark_group("home agent");
    group.throughput(Throughput::Elements(1));
    group.bench_function("MAC only", |b| {
        let mut message = updates[0][64..].to_vec();
        b.iter(|| {
            association().sign(black_box(&mut message), CARE_OF_ADDRESS, HOME_ADDRESS);
            association().verify(&message, CARE_OF_ADDRESS, HOME_ADDRESS)
        });
    });
    group.bench_function("authenticated refresh", |b| {
        b.iter(|| {
            let packet = next.next().expect("cycles");
            let header = Header::parse(packet).expect("a header");
            let extensions = ExtensionHeaders::parse(packet).expect("extensions");
            let message = MobilityMessage::new(packet, &header, &extensions).expect("a message");
            now += Duration::from_millis(200);
            agent.handle_message(now, WallTime::default(), message).expect("accepted");
            while let Some(output) = agent.poll_output() {
                black_box(output);
            }
        });
    });
    // A forged update without the key, from an address where no node is bound. In one run 1000 updates arrive
    // per second, so the home agent verifies all of them. In the other run all arrive at one instant, so the
    // home agent drops those above its limit without verification.
    let forged = {
        let mut message = MobilityHeaderBuilder::binding_update(1, BindingUpdateFlags::default(), 15)
            .option(&MobilityOption::AlternateCareOfAddress(HOME_AGENT_ADDRESS))
            .option(&association().empty_authentication_option())
            .finish();
        let (source, home_address) = (Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 1), Some(HOME_ADDRESS));
        let mobility_header = &mut message;
        ControlPacket {
            source,
            destination: HOME_AGENT_ADDRESS,
            hop_limit: 64,
            home_address,
            routing_home_address: None,
            mobility_header,
        }
        .emit()
    };
    for (name, interval) in
        [("forged and verified", Duration::from_millis(1)), ("forged, of a flood", Duration::ZERO)]
    {
        group.bench_function(name, |b| {
            b.iter(|| {
                now += interval;
                let header = Header::parse(&forged).expect("a header");
                let extensions = ExtensionHeaders::parse(&forged).expect("extensions");
                let message = MobilityMessage::new(&forged, &header, &extensions).expect("a message");
                black_box(agent.handle_message(now, WallTime::default(), message)).expect_err("forged");
                while let Some(output) = agent.poll_output() {
                    black_box(output);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, benchmark_registrations);
criterion_main!(benches);
