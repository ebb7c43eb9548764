//! Messages under IPsec, with a minimal kernel at each station. Its ESP does not encrypt: behind the ESP
//! header the message is in clear text.

mod common;

use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::Authentication;
use carnet_nemo::forwarding::desired::{
    EntryChange, ForwardingEntry, Rule, TABLE_CAPTURE, TABLE_PROTECTED_BY_IPSEC,
};
use carnet_station::StationConfig;
use carnet_station::io::{Command, Event, Input, NemoOutput, Output};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{
    BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption, RevocationFlags, RevocationKind,
};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{
    AGENT_ADDRESS, FIRST_CARE_OF_ADDRESS, HOME_ADDRESS, SECOND_CARE_OF_ADDRESS, address, agent_config,
    interface, router_config,
};

const MOBILE_NETWORK_PREFIX: &str = "2001:db8:a::/64";

fn config_with_ipsec(mut config: StationConfig) -> StationConfig {
    if let Some(agent) = &mut config.home_agent {
        agent.nodes.iter_mut().for_each(|node| node.authentication = Authentication::Ipsec);
    }
    if let Some(router) = &mut config.mobile_router {
        router.router.authentication = Authentication::Ipsec;
    }
    config
}

/// Returns a packet between the two addresses of a security association.
fn ipv6_packet(source: &str, destination: &str, label: u32, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: label,
        payload_length: u16::try_from(payload.len()).expect("a short payload"),
        next_header,
        hop_limit: 64,
        source: address(source),
        destination: address(destination),
    };
    [&header.emit()[..], payload].concat()
}

/// Returns an ESP packet without encryption: a header with SPI and sequence number, and the message.
fn esp_packet(source: &str, destination: &str, label: u32, message: &[u8]) -> Vec<u8> {
    ipv6_packet(source, destination, label, protocol::ESP, &[&[0; 8][..], message].concat())
}

/// Simulated kernels of a home agent and of a mobile router, and the packets that they sent.
#[derive(Default)]
struct SimulatedKernels {
    /// Whether the kernels lack security associations, so that they send without ESP.
    has_no_associations: bool,
    /// Packets that were sent between the stations.
    sent_packets: Vec<Vec<u8>>,
    events: Vec<Event>,
    rules: Vec<Rule>,
}

type IpsecWorld = common::world::TestNetwork<SimulatedKernels>;

impl NetworkBehaviour for SimulatedKernels {
    fn handle_output(world: &mut IpsecWorld, who: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Protect { source, destination, label, message }) => {
                let (source, destination) = (source.to_string(), destination.to_string());
                let packet = match world.network_behaviour.has_no_associations {
                    false => esp_packet(&source, &destination, label, &message),
                    true => ipv6_packet(&source, &destination, label, protocol::MOBILITY, &message),
                };
                world.send_now(who, Input::Packet(packet));
            }
            Output::Nemo(NemoOutput::Packet(packet)) => {
                let header = Header::parse(&packet).expect("a packet");
                let own = [AGENT_ADDRESS, HOME_ADDRESS].map(address)[who];
                if header.destination == own && header.next_header == protocol::ESP {
                    let message = packet[HEADER_LEN + 8..].to_vec();
                    let Header { source, destination, flow_label: label, .. } = header;
                    let protected = Input::Protected { source, destination, label, message };
                    world.send_now(who, protected);
                } else if who == 0
                    && [FIRST_CARE_OF_ADDRESS, SECOND_CARE_OF_ADDRESS, HOME_ADDRESS]
                        .map(address)
                        .contains(&header.destination)
                    || who == 1 && header.destination == address(AGENT_ADDRESS)
                {
                    world.network_behaviour.sent_packets.push(packet.clone());
                    world.send_now(1 - who, Input::Packet(packet));
                }
            }
            Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(entry))) => {
                if let ForwardingEntry::Rule(rule) = &*entry {
                    world.network_behaviour.rules.push((**rule).clone());
                }
            }
            Output::Nemo(NemoOutput::Event(event)) => world.network_behaviour.events.push(event),
            _ => {}
        }
    }
}

impl IpsecWorld {
    fn new() -> IpsecWorld {
        let configs = [agent_config(&[MOBILE_NETWORK_PREFIX]), router_config(&[MOBILE_NETWORK_PREFIX])];
        IpsecWorld::with_stations(
            configs.map(|config| station_at_time_zero(config_with_ipsec(config), 7)),
            SimulatedKernels::default(),
        )
    }

    /// Returns the upper-layer protocols of the packets between the two stations, except for packets in the
    /// tunnel.
    fn take_protocols(&mut self) -> Vec<u8> {
        let all = self
            .network_behaviour
            .sent_packets
            .drain(..)
            .map(|packet| ExtensionHeaders::parse(&packet).expect("a packet").protocol);
        all.filter(|found| *found != protocol::IPV6).collect()
    }

    fn registered_addresses(&self) -> Vec<String> {
        let bindings = self.stations[0].home_agent().expect("a home agent").bindings();
        bindings
            .bindings_of(address(HOME_ADDRESS))
            .map(|binding| binding.care_of_address.to_string())
            .collect()
    }

    fn dropped_packets(&self, who: usize) -> u64 {
        let counters = self.stations[who].counters();
        let named =
            |(name, count): (String, u64)| (name == "mobility.dropped.not_protected").then_some(count);
        counters.into_iter().find_map(named).unwrap_or_default()
    }
}

#[test]
fn mobile_router_registers_and_moves_with_esp_only() {
    let mut world = IpsecWorld::new();
    world.pass_recorded_input(1, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)));
    assert_eq!(world.registered_addresses(), [FIRST_CARE_OF_ADDRESS]);
    // The care-of address must be in the outer header (RFC 6275 6.3, 6.4).
    let protected = |to: &str| {
        let is = |packet: &&Vec<u8>| {
            let (header, extensions) = (Header::parse(packet), ExtensionHeaders::parse(packet));
            header.is_ok_and(|it| it.destination == address(to))
                && extensions.is_ok_and(|it| it.protocol == protocol::ESP)
        };
        world.network_behaviour.sent_packets.iter().find(is).expect("a message under ESP")
    };
    let (update, acknowledgement) = (protected(AGENT_ADDRESS), protected(FIRST_CARE_OF_ADDRESS));
    let (header, extensions) =
        (Header::parse(update).expect("a packet"), ExtensionHeaders::parse(update).expect("a packet"));
    assert_eq!((header.source, header.destination), (address(FIRST_CARE_OF_ADDRESS), address(AGENT_ADDRESS)));
    assert_eq!((extensions.home_address, header.flow_label), (Some(address(HOME_ADDRESS)), 0));
    let header = Header::parse(acknowledgement).expect("a packet");
    let extensions = ExtensionHeaders::parse(acknowledgement).expect("a packet");
    assert_eq!((header.source, header.destination), (address(AGENT_ADDRESS), address(FIRST_CARE_OF_ADDRESS)));
    assert_eq!(extensions.routing_home_address, Some(address(HOME_ADDRESS)));
    assert!(world.take_protocols().iter().all(|found| *found == protocol::ESP));

    world.pass_recorded_input(1, Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, true)));
    world.pass_recorded_input(
        1,
        Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }),
    );
    assert_eq!(world.registered_addresses(), [SECOND_CARE_OF_ADDRESS]);
    world.pass_recorded_input(1, Input::Command(Command::Shutdown));
    assert!(world.registered_addresses().is_empty());
    assert!(world.take_protocols().iter().all(|found| *found == protocol::ESP));
    assert_eq!((world.dropped_packets(0), world.dropped_packets(1)), (0, 0));
    // The stations must have requested these policy rules, so that the kernels can apply IPsec.
    let is = |table, from: &str, to: &str, esp| {
        let host = |text: &str| (!text.is_empty()).then(|| address(text).into());
        world.network_behaviour.rules.iter().any(|rule| {
            rule.table == table
                && rule.from == host(from)
                && rule.to == host(to)
                && rule.protocol == Some(esp)
        })
    };
    assert!(
        is(TABLE_PROTECTED_BY_IPSEC, "", AGENT_ADDRESS, protocol::ESP),
        "{:?}",
        world.network_behaviour.rules
    );
    assert!(is(TABLE_CAPTURE, AGENT_ADDRESS, "", protocol::MOBILITY), "{:?}", world.network_behaviour.rules);
    assert!(is(TABLE_CAPTURE, AGENT_ADDRESS, "", protocol::ESP), "{:?}", world.network_behaviour.rules);
}

/// RFC 6275 11.5.5: from home the source is the home address, without a Home Address option, also under ESP.
#[test]
fn mobile_router_returns_home_with_esp_only() {
    let mut world = IpsecWorld::new();
    world.pass_recorded_input(1, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)));
    assert_eq!(world.registered_addresses(), [FIRST_CARE_OF_ADDRESS]);
    world.network_behaviour.sent_packets.clear();
    world.pass_recorded_input(1, Input::Interface(interface("w0", "2001:db8:1::99", true)));
    world.run_for(Duration::from_secs(2));
    assert!(world.registered_addresses().is_empty(), "the router has de-registered");
    let between = |packet: &Vec<u8>| {
        let (header, extensions) = (Header::parse(packet), ExtensionHeaders::parse(packet));
        let (header, extensions) = (header.expect("a packet"), extensions.expect("a packet"));
        let is_plain = extensions.home_address.is_none() && extensions.routing_home_address.is_none();
        (extensions.protocol == protocol::ESP).then_some((header.source, header.destination, is_plain))
    };
    let sent: Vec<_> = world.network_behaviour.sent_packets.iter().filter_map(between).collect();
    assert_eq!(
        sent,
        [
            (address(HOME_ADDRESS), address(AGENT_ADDRESS), true),
            (address(AGENT_ADDRESS), address(HOME_ADDRESS), true)
        ]
    );
    let status = world.stations[1].nemo().mobile_router_status().expect("a mobile router");
    assert_eq!(status.state, "home");
    world.pass_recorded_input(1, Input::Interface(interface("w0", SECOND_CARE_OF_ADDRESS, true)));
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.registered_addresses(), [SECOND_CARE_OF_ADDRESS]);
    assert_eq!((world.dropped_packets(0), world.dropped_packets(1)), (0, 0));
}

#[test]
fn without_security_association_messages_are_dropped_and_logged() {
    let mut world = IpsecWorld::new();
    world.network_behaviour.has_no_associations = true;
    world.pass_recorded_input(1, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)));
    world.run_for(Duration::from_secs(10));
    assert!(world.network_behaviour.sent_packets.is_empty());
    assert!(world.dropped_packets(1) > 1);
    let told =
        |event: &&Event| matches!(event, Event::Warning { message } if message.contains("IPsec policy"));
    assert_eq!(
        world.network_behaviour.events.iter().filter(told).count(),
        1,
        "{:?}",
        world.network_behaviour.events
    );
    world.network_behaviour.has_no_associations = false;
    world.run_for(Duration::from_secs(40));
    assert_eq!(world.registered_addresses(), [FIRST_CARE_OF_ADDRESS]);
}

fn binding_update(sequence: u16, alternate: Option<&str>) -> Vec<u8> {
    let flags = BindingUpdateFlags {
        acknowledge: true,
        home_registration: true,
        mobile_router: true,
        ..BindingUpdateFlags::default()
    };
    let mut builder = MobilityHeaderBuilder::binding_update(sequence, flags, 15);
    if let Some(alternate) = alternate {
        builder = builder.option(&MobilityOption::AlternateCareOfAddress(address(alternate)));
    }
    builder.finish()
}

#[test]
fn home_agent_under_ipsec_rejects_unprotected_messages_and_addresses() {
    let mut world = IpsecWorld::new();
    let mut message = binding_update(1, Some(FIRST_CARE_OF_ADDRESS));
    let clear = ControlPacket {
        source: address(FIRST_CARE_OF_ADDRESS),
        destination: address(AGENT_ADDRESS),
        hop_limit: 64,
        home_address: Some(address(HOME_ADDRESS)),
        routing_home_address: None,
        mobility_header: &mut message,
    };
    world.pass_recorded_input(0, Input::Packet(clear.emit()));
    assert_eq!(world.dropped_packets(0), 1);

    // The station accepts a message from the kernel's IPsec only once, and only if
    // it gave a message with this label to the kernel before.
    let protected = |label, message: &[u8]| Input::Protected {
        source: address(HOME_ADDRESS),
        destination: address(AGENT_ADDRESS),
        label,
        message: message.to_vec(),
    };
    world.pass_recorded_input(0, protected(77, &message));
    assert_eq!(world.dropped_packets(0), 2);

    // RFC 6275 11.7.1: under ESP a Binding Update must contain the care-of address, in an Alternate Care-of
    // Address option.
    let arrive = |world: &mut IpsecWorld, message: &[u8]| {
        let options =
            carnet_wire::extension::emit_home_address_options_header(protocol::ESP, address(HOME_ADDRESS));
        let payload = [&options[..], &[0; 8], message].concat();
        world.pass_recorded_input(
            0,
            Input::Packet(ipv6_packet(
                FIRST_CARE_OF_ADDRESS,
                AGENT_ADDRESS,
                0,
                protocol::DESTINATION_OPTIONS,
                &payload,
            )),
        );
    };
    arrive(&mut world, &binding_update(2, None));
    assert_eq!(world.dropped_packets(0), 3);
    assert!(world.registered_addresses().is_empty());
    arrive(&mut world, &binding_update(3, Some(FIRST_CARE_OF_ADDRESS)));
    assert_eq!(
        (world.dropped_packets(0), world.registered_addresses()),
        (3, vec![FIRST_CARE_OF_ADDRESS.to_owned()])
    );

    // If the kernel refuses a received ESP packet, the packet reaches the station a second time. The station
    // must not pass it to the kernel again.
    world.pass_recorded_input(0, Input::Packet(esp_packet(HOME_ADDRESS, AGENT_ADDRESS, 1, b"nothing")));
}

#[test]
fn router_under_ipsec_rejects_unprotected_acknowledgement() {
    let mut world = IpsecWorld::new();
    world.network_behaviour.has_no_associations = true;
    world.pass_recorded_input(1, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)));
    let before = world.dropped_packets(1);
    let mut message = MobilityHeaderBuilder::binding_acknowledgement(0, false, true, 0, 15).finish();
    let clear = ControlPacket {
        source: address(AGENT_ADDRESS),
        destination: address(FIRST_CARE_OF_ADDRESS),
        hop_limit: 64,
        home_address: None,
        routing_home_address: Some(address(HOME_ADDRESS)),
        mobility_header: &mut message,
    };
    world.pass_recorded_input(1, Input::Packet(clear.emit()));
    assert_eq!(world.dropped_packets(1), before + 1);
}

/// An attacker sends all kinds of messages without ESP from the real addresses of both stations. Some
/// messages are unchanged, and some have one changed octet.
#[test]
fn forged_messages_in_the_clear_change_nothing_under_ipsec() {
    let mut world = IpsecWorld::new();
    world.pass_recorded_input(1, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)));
    world.pass_recorded_input(1, Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, true)));
    assert_eq!(world.registered_addresses(), [FIRST_CARE_OF_ADDRESS]);
    world.network_behaviour.events.clear();
    let mut rng = Rng::new(30);
    let revocation = |kind, sequence| {
        MobilityHeaderBuilder::binding_revocation(kind, sequence, RevocationFlags::default())
    };
    for round in 0..4000_u32 {
        let sequence = rng.random_u16();
        let status = [0, 1, 129, 133, 135, 144, 145, 146][usize::from(rng.random_u16()) % 8];
        let mut message = match round / 2 % 8 {
            0 => binding_update(sequence, Some(SECOND_CARE_OF_ADDRESS)),
            1 => binding_update(sequence, None),
            2 => MobilityHeaderBuilder::binding_acknowledgement(
                status,
                false,
                true,
                sequence % 4,
                sequence % 2,
            )
            .finish(),
            3 => revocation(RevocationKind::Indication { trigger: 1 }, sequence).finish(),
            4 => revocation(RevocationKind::Acknowledgement { status: 0 }, sequence).finish(),
            5 => MobilityHeaderBuilder::home_agent_switch(&[address(SECOND_CARE_OF_ADDRESS)]).finish(),
            6 => MobilityHeaderBuilder::binding_refresh_request().finish(),
            // Mobility Header messages of other types.
            _ => [&[59, 0, sequence as u8][..], &[0; 5]].concat(),
        };
        for _ in 0..rng.random_u16() % 3 {
            let at = usize::from(rng.random_u16()) % message.len();
            message[at] ^= 1 << (rng.random_u16() % 8);
        }
        let (agent, router, home) =
            (address(AGENT_ADDRESS), address(FIRST_CARE_OF_ADDRESS), Some(address(HOME_ADDRESS)));
        let who = (round % 2) as usize;
        let forged = ControlPacket {
            source: [router, agent][who],
            destination: [agent, router][who],
            hop_limit: 64,
            home_address: home.filter(|_| who == 0),
            routing_home_address: home.filter(|_| who == 1),
            mobility_header: &mut message,
        };
        world.pass_recorded_input(who, Input::Packet(forged.emit()));
        assert_eq!(world.registered_addresses(), [FIRST_CARE_OF_ADDRESS], "round {round}");
        if round % 100 == 0 {
            world.run_for(Duration::from_secs(1));
        }
    }
    let is_about_bindings = |event: &&Event| format!("{event:?}").contains("Deregistered");
    assert_eq!(world.network_behaviour.events.iter().find(is_about_bindings), None);
    assert!(world.dropped_packets(0) > 0 && world.dropped_packets(1) > 0);
    // Both stations still communicate after the forged messages.
    world.pass_recorded_input(
        1,
        Input::Command(Command::Handover { uplink: Some("w1".into()), policy: None }),
    );
    assert_eq!(world.registered_addresses(), [SECOND_CARE_OF_ADDRESS]);
}
