//! A mobile router asks its home agent for changes of the home prefix (RFC 6275 11.4.2, 11.4.3).

mod common;

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::LinkMessage;
use carnet_station::io::{Event, Input, NemoOutput, Output};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{NdOption, PrefixInformation};
use carnet_wire::prefix_discovery::{MobilePrefixSolicitation, emit_prefix_advertisement};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::*;

const HOME_AGENT_INDEX: usize = 0;
const ROUTER_INDEX: usize = 1;

/// The network between the stations, and the messages that the test records.
struct RecordingInternet {
    /// Identifiers of the Mobile Prefix Solicitations that the router has sent.
    solicitation_identifiers: Vec<u16>,
    /// Whether solicitations to the home agent are lost.
    loses_solicitations: bool,
    warnings: Vec<String>,
}

type DiscoveryWorld = common::world::TestNetwork<RecordingInternet>;

impl NetworkBehaviour for RecordingInternet {
    fn handle_output(world: &mut DiscoveryWorld, from: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Packet(packet)) if from == HOME_AGENT_INDEX => {
                if let Some(input) = router_input(packet) {
                    world.send_now(ROUTER_INDEX, input);
                }
            }
            Output::Nemo(NemoOutput::Packet(packet))
                if world.network_behaviour.is_passed_to_agent(&packet) =>
            {
                world.send_now(HOME_AGENT_INDEX, Input::Packet(packet));
            }
            Output::Nemo(NemoOutput::Event(Event::Warning { message })) if from == ROUTER_INDEX => {
                world.network_behaviour.warnings.push(message)
            }
            _ => {}
        }
    }

    /// Ignore a refusal of the home agent.
    fn handle_refusal(&mut self, _reason: &str) {}
}

impl RecordingInternet {
    fn is_passed_to_agent(&mut self, packet: &[u8]) -> bool {
        let extensions = ExtensionHeaders::parse(packet).expect("a packet");
        let header = Header::parse(packet).expect("a packet");
        if let Ok(solicitation) = MobilePrefixSolicitation::parse(&packet[extensions.upper_layer_offset..]) {
            assert_eq!(
                (header.source, header.destination),
                (address(FIRST_CARE_OF_ADDRESS), address(AGENT_ADDRESS))
            );
            assert_eq!(extensions.home_address, Some(address(HOME_ADDRESS)), "RFC 6275 6.7");
            self.solicitation_identifiers.push(solicitation.identifier);
            return !self.loses_solicitations;
        }
        header.destination == address(AGENT_ADDRESS)
    }
}

impl DiscoveryWorld {
    fn new(wanted: bool, deaf: bool) -> DiscoveryWorld {
        let mut config = router_config(&["2001:db8:a::/64"]);
        if let Some(router) = &mut config.mobile_router {
            router.agents.prefix_discovery = wanted;
        }
        let configs = [agent_config(&["2001:db8:a::/64"]), config];
        let internet = RecordingInternet {
            solicitation_identifiers: Vec::new(),
            loses_solicitations: deaf,
            warnings: Vec::new(),
        };
        let mut world =
            DiscoveryWorld::with_stations(configs.map(|config| station_at_time_zero(config, 7)), internet);
        world.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)),
        );
        world.advance_seconds(1);
        world
    }

    fn advance_seconds(&mut self, seconds: u64) {
        self.run_for(Duration::from_secs(seconds));
    }

    /// Sends an advertisement of the home prefix with these lifetimes to the router.
    fn send_advertisement(&mut self, from: &str, to: &str, identifier: u16, valid: u32, preferred: u32) {
        let information = NdOption::PrefixInformation(PrefixInformation {
            prefix: address(AGENT_ADDRESS),
            prefix_length: 64,
            on_link: true,
            autonomous: true,
            router_address: true,
            valid_lifetime: valid,
            preferred_lifetime: preferred,
        });
        let mut message = emit_prefix_advertisement(identifier, &[information]);
        icmpv6::set_checksum(&mut message, address(from), address(to));
        self.pass_recorded_input(
            ROUTER_INDEX,
            Input::Icmpv6(received_message(address(from), address(to), message)),
        );
    }
}

/// Returns the platform's input for a packet to the care-of address.
fn router_input(packet: Vec<u8>) -> Option<Input> {
    let header = Header::parse(&packet).expect("a packet");
    let extensions = ExtensionHeaders::parse(&packet).expect("a packet");
    let input = match extensions.routing_home_address.filter(|_| extensions.protocol == protocol::ICMPV6) {
        Some(home_address) => Input::Icmpv6(received_message(
            header.source,
            home_address,
            packet[extensions.upper_layer_offset..].to_vec(),
        )),
        None => Input::Packet(packet),
    };
    (header.destination == address(FIRST_CARE_OF_ADDRESS)).then_some(input)
}

fn received_message(source: Ipv6Addr, destination: Ipv6Addr, message: Vec<u8>) -> LinkMessage {
    LinkMessage { interface: "w0".into(), source, destination, hop_limit: 64, peer: None, message }
}

#[test]
fn router_solicits_prefixes_after_registration_and_daily() {
    let mut world = DiscoveryWorld::new(true, false);
    assert_eq!(world.network_behaviour.solicitation_identifiers.len(), 1);
    world.advance_seconds(3600);
    assert_eq!(world.network_behaviour.solicitation_identifiers.len(), 1, "it was answered");
    world.advance_seconds(24 * 3600);
    assert_eq!(world.network_behaviour.solicitation_identifiers.len(), 2);
    assert_ne!(
        world.network_behaviour.solicitation_identifiers[0],
        world.network_behaviour.solicitation_identifiers[1]
    );
    assert!(world.network_behaviour.warnings.is_empty(), "{:?}", world.network_behaviour.warnings);
}

#[test]
fn router_sends_no_solicitation_unless_configured() {
    let mut world = DiscoveryWorld::new(false, false);
    world.advance_seconds(3600);
    assert!(world.network_behaviour.solicitation_identifiers.is_empty());
}

#[test]
fn router_sends_three_solicitations_without_answer() {
    let mut world = DiscoveryWorld::new(true, true);
    world.advance_seconds(2 * 3600);
    assert_eq!(world.network_behaviour.solicitation_identifiers.len(), 3);
}

/// RFC 6275 11.4.3: the router silently discards an advertisement that fails the checks.
#[test]
fn router_accepts_only_its_home_agents_answer_to_its_last_solicitation() {
    let mut world = DiscoveryWorld::new(true, true);
    let identifier = world.network_behaviour.solicitation_identifiers[0];
    world.send_advertisement("2001:db8:1::9", HOME_ADDRESS, identifier, 0, 0);
    world.send_advertisement(AGENT_ADDRESS, FIRST_CARE_OF_ADDRESS, identifier, 0, 0);
    world.send_advertisement(AGENT_ADDRESS, HOME_ADDRESS, identifier.wrapping_add(1), 0, 0);
    assert!(world.network_behaviour.warnings.is_empty());
    world.advance_seconds(4);
    let [before, last] = world.network_behaviour.solicitation_identifiers[..] else {
        panic!("{:?}", world.network_behaviour.solicitation_identifiers)
    };
    world.send_advertisement(AGENT_ADDRESS, HOME_ADDRESS, before, 0, 0);
    assert!(world.network_behaviour.warnings.is_empty());
    world.send_advertisement(AGENT_ADDRESS, HOME_ADDRESS, last, 0, 0);
    assert_eq!(world.network_behaviour.warnings.len(), 1);
    assert!(
        world.network_behaviour.warnings[0].contains("no longer advertises"),
        "{}",
        world.network_behaviour.warnings[0]
    );
    // A second copy of the answer belongs to no outstanding solicitation.
    world.send_advertisement(AGENT_ADDRESS, HOME_ADDRESS, last, 600, 600);
    assert_eq!(world.network_behaviour.warnings.len(), 1);
    assert!(
        world.stations[ROUTER_INDEX].mobile_router().expect("a router").registration().is_some(),
        "nothing is given up for it"
    );
}

#[test]
fn changed_home_prefix_is_reported_to_operator() {
    let mut world = DiscoveryWorld::new(true, true);
    for (valid, preferred) in [(600, 600), (600, 0), (600, 0), (0, 0), (600, 600)] {
        let identifier = *world.network_behaviour.solicitation_identifiers.last().expect("a question");
        world.send_advertisement(AGENT_ADDRESS, HOME_ADDRESS, identifier, valid, preferred);
        let asked = world.network_behaviour.solicitation_identifiers.len();
        world.advance_seconds(59);
        assert_eq!(world.network_behaviour.solicitation_identifiers.len(), asked, "not too soon");
        (0..300).for_each(|_| {
            if world.network_behaviour.solicitation_identifiers.len() == asked {
                world.advance_seconds(1)
            }
        });
        assert_eq!(world.network_behaviour.solicitation_identifiers.len(), asked + 1);
    }
    let told: Vec<bool> = ["has deprecated", "no longer", "again"]
        .iter()
        .zip(&world.network_behaviour.warnings)
        .map(|(word, warning)| warning.contains(word))
        .collect();
    assert_eq!(
        (told, world.network_behaviour.warnings.len()),
        (vec![true; 3], 3),
        "{:?}",
        world.network_behaviour.warnings
    );
}
