//! A home agent without a network: the test delivers packets to it, reads the answers and sets the clock.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Address, Endpoint, Interface, LinkMessage, Time, WallTime};
use carnet_mobility::home_agent::{
    AuthorizedNode, Binding, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents,
};
use carnet_mobility::{Authentication, Event, HomeAgent, MobilityDrop, Output};
use carnet_virtual::configured_address;
use carnet_wire::{icmpv6, nd};

use crate::test_messages::*;

/// The link-layer address of the home agent on its home link.
pub const AGENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Maximum number of outputs that one input may cause; more would be a flood. The end of duplicate address
/// detection may accept sixteen registrations at once.
const MAX_OUTPUTS: usize = 120;
/// Time of day at the start of a test: 2025-01-01.
pub const WALL_START: WallTime = WallTime::from_unix_nanos(1_735_689_600_000_000_000);

/// Returns the config of a home agent for one router, [`HOME_ADDRESS`] with [`MOBILE_NETWORK_PREFIX`],
/// without authentication, on a virtual home link.
pub fn config() -> HomeAgentConfig {
    HomeAgentConfig {
        other_agents: OtherAgents::default(),
        address: addr(HOME_AGENT_ADDRESS),
        home_prefix: net(HOME_PREFIX),
        home_network: None,
        home_link: None,
        ndp_proxy: None,
        nat: Default::default(),
        max_lifetime: Duration::from_secs(600),
        force_udp: false,
        ipv4_address: None,
        multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
        nodes: vec![authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX])],
    }
}

pub fn parse_endpoint(text: &str) -> Endpoint {
    text.parse().expect("an end of a tunnel")
}

pub fn authorized_node(home_address: &str, prefixes: &[&str]) -> AuthorizedNode {
    AuthorizedNode {
        nat: true,
        care_of_test: false,
        home_address: addr(home_address),
        prefixes: prefixes.iter().map(|prefix| net(prefix)).collect(),
        authentication: Authentication::None,
    }
}

/// Returns the config of a home agent for one router with the key of [`test_association`].
pub fn authenticated_config() -> HomeAgentConfig {
    let mut config = config();
    config.nodes[0].authentication = Authentication::SharedKey(test_association());
    config
}

pub struct TestAgent {
    pub home_agent: HomeAgent,
    pub now: Time,
    /// Reason for which the home agent dropped the last input; `None` if it accepted the input.
    pub last_drop_reason: Option<MobilityDrop>,
    /// Messages that the home agent sent on the home link since the test last cleared this list.
    pub link_messages: Vec<LinkMessage>,
    /// Packets that the home agent sent inside IPv4 or UDP: local end, remote end, packet.
    pub encapsulated_packets: Vec<(Endpoint, Endpoint, ReceivedPacket)>,
    /// Inner packets that the home agent itself sent into a tunnel: local end, remote end, octets.
    pub tunnelled_packets: Vec<(Endpoint, Endpoint, Vec<u8>)>,
    pub events: Vec<Event>,
    pub forwarding_changes: usize,
    pub persisted_count: usize,
}

impl TestAgent {
    pub fn new(config: HomeAgentConfig) -> TestAgent {
        TestAgent {
            home_agent: HomeAgent::new(config),
            now: Time::from_secs(1000),
            last_drop_reason: None,
            link_messages: Vec::new(),
            encapsulated_packets: Vec::new(),
            tunnelled_packets: Vec::new(),
            events: Vec::new(),
            forwarding_changes: 0,
            persisted_count: 0,
        }
    }

    /// Returns the warnings for the operator.
    pub fn warnings(&self) -> Vec<&str> {
        let warnings = self.events.iter().filter_map(|event| match event {
            Event::Warning { message } => Some(message.as_str()),
            _ => None,
        });
        warnings.collect()
    }

    /// Creates a home agent on a real home link that is up. Removes the messages of its start from the
    /// records.
    pub fn on_home_link(mut config: HomeAgentConfig) -> TestAgent {
        config.home_link = Some("h0".into());
        let mut agent = TestAgent::new(config);
        agent.set_home_link_running(true);
        agent.advance_time(10.0);
        agent.link_messages.clear();
        agent
    }

    /// Creates a home agent whose home link has only just come up, so that its own address is still
    /// tentative.
    pub fn on_fresh_home_link(mut config: HomeAgentConfig) -> TestAgent {
        config.home_link = Some("h0".into());
        let mut agent = TestAgent::new(config);
        agent.set_home_link_state(true, true);
        agent.link_messages.clear();
        agent
    }

    pub fn set_home_link_running(&mut self, running: bool) -> Vec<ReceivedPacket> {
        self.set_home_link_state(running, false)
    }

    fn set_home_link_state(&mut self, running: bool, tentative: bool) -> Vec<ReceivedPacket> {
        let own = Address { tentative, ..configured_address(addr("fe80::1")) };
        let interface =
            Interface { running, ..carnet_virtual::running_interface("h0", AGENT_MAC, vec![own]) };
        self.home_agent.handle_interface(&interface, self.now);
        self.take_answers()
    }

    pub fn wall_time(&self) -> WallTime {
        WALL_START + self.now.saturating_since(Time::ZERO)
    }

    /// Delivers a packet to the home agent in the form that it has on the wire, and returns the answers.
    pub fn receive_packet(&mut self, packet: &[u8]) -> Vec<ReceivedPacket> {
        self.last_drop_reason = None;
        let message = parse_mobility_message(packet).expect("a mobility message");
        self.last_drop_reason = self.home_agent.handle_message(self.now, self.wall_time(), message).err();
        self.take_answers()
    }

    /// Delivers a packet inside IPv4 or UDP to the home agent, and returns the answers that leave inside IPv4
    /// or UDP.
    pub fn receive_inside_tunnel(&mut self, local: &str, remote: &str, packet: &[u8]) -> Vec<ReceivedPacket> {
        self.last_drop_reason = None;
        self.encapsulated_packets.clear();
        let message = parse_mobility_message(packet)
            .expect("a mobility message")
            .inside_tunnel(parse_endpoint(local), parse_endpoint(remote));
        self.last_drop_reason = self.home_agent.handle_message(self.now, self.wall_time(), message).err();
        assert!(self.take_answers().is_empty(), "what comes inside IPv4 is answered inside IPv4");
        let answers = std::mem::take(&mut self.encapsulated_packets);
        answers
            .into_iter()
            .map(|(from, to, seen)| {
                assert_eq!(
                    (from, to),
                    (parse_endpoint(local), parse_endpoint(remote)),
                    "the way back is the way it came"
                );
                seen
            })
            .collect()
    }

    pub fn send_update(&mut self, update: &TestUpdate) -> Vec<ReceivedPacket> {
        self.receive_packet(&update.to_packet())
    }

    /// Sends an update and returns the answer, which must be exactly one acknowledgement.
    #[track_caller]
    pub fn send_and_get_acknowledgement(&mut self, update: &TestUpdate) -> ReceivedPacket {
        let mut answers = self.send_update(update);
        assert_eq!(answers.len(), 1, "answers: {answers:?}, dropped: {:?}", self.last_drop_reason);
        let answer = answers.remove(0);
        answer.status();
        answer
    }

    /// Sends an update that the home agent must accept.
    #[track_caller]
    pub fn expect_acceptance(&mut self, update: &TestUpdate) -> ReceivedPacket {
        let answer = self.send_and_get_acknowledgement(update);
        assert_eq!(answer.status(), 0, "{answer:?}");
        answer
    }

    /// Sends an update that the home agent must refuse with `status`, without a change of its bindings.
    #[track_caller]
    pub fn expect_refusal(&mut self, update: &TestUpdate, status: u8) -> ReceivedPacket {
        let before = self.describe_bindings();
        let answer = self.send_and_get_acknowledgement(update);
        assert_eq!(answer.status(), status, "{answer:?}");
        assert_eq!(self.describe_bindings(), before, "a refused update changed a binding");
        answer
    }

    /// Sends a packet that the home agent must drop without an answer and without a change of its bindings.
    #[track_caller]
    pub fn expect_drop(&mut self, packet: &[u8]) -> MobilityDrop {
        let before = self.describe_bindings();
        let answers = self.receive_packet(packet);
        assert!(answers.is_empty(), "{answers:?}");
        assert_eq!(self.describe_bindings(), before, "an ignored update changed a binding");
        self.last_drop_reason.expect("a reason for the drop")
    }

    /// Returns all bindings as text, for comparison.
    pub fn describe_bindings(&self) -> String {
        format!("{:?}", self.home_agent.bindings())
    }

    pub fn home_binding(&self) -> Option<Binding> {
        self.binding_of(HOME_ADDRESS)
    }

    pub fn binding_of(&self, home_address: &str) -> Option<Binding> {
        self.home_agent.bindings().best_valid_binding(addr(home_address))
    }

    pub fn registered_care_of_address(&self) -> Option<Ipv6Addr> {
        self.home_binding().and_then(|binding| binding.care_of_address.ipv6())
    }

    /// Lets the clock run, and returns the answers that timers cause.
    pub fn advance_time(&mut self, seconds: f64) -> Vec<ReceivedPacket> {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut answers = Vec::new();
        while let Some(at) = self.home_agent.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.home_agent.handle_timeout(self.now);
            answers.extend(self.take_answers());
        }
        self.now = end;
        answers
    }

    pub fn take_answers(&mut self) -> Vec<ReceivedPacket> {
        let mut packets = Vec::new();
        let mut count = 0;
        while let Some(output) = self.home_agent.poll_output() {
            count += 1;
            assert!(count <= MAX_OUTPUTS, "too many outputs for one input");
            match output {
                Output::Packet(packet) => packets.push(ReceivedPacket::parse_packet(&packet)),
                Output::Encapsulated { local, remote, packet } => {
                    self.encapsulated_packets.push((local, remote, ReceivedPacket::parse_packet(&packet)));
                }
                Output::Tunnelled { local, remote, packet } => {
                    self.tunnelled_packets.push((local, remote, packet))
                }
                Output::Link(message) => self.link_messages.push(message),
                Output::Event(event) => self.events.push(event),
                Output::Forwarding(_) => self.forwarding_changes += 1,
                Output::Persist(_) => self.persisted_count += 1,
                Output::ProbePortal { .. } => panic!("a home agent has no uplinks"),
            }
        }
        packets
    }

    /// Sends a Neighbor Solicitation on the home link, and returns the answers.
    pub fn send_solicitation(&mut self, target: &str, source: &str) -> Vec<nd::NeighborAdvertisement> {
        self.link_messages.clear();
        let solicitation = nd::NeighborSolicitation {
            target: addr(target),
            source_link_address: (source != "::").then_some([2, 0, 0, 0, 0, 9]),
        };
        self.receive_link_message(
            source,
            &nd::solicited_node_address(addr(target)).to_string(),
            solicitation.emit(),
        );
        self.take_advertisements()
    }

    /// Sends a Neighbor Advertisement of another node on the home link.
    pub fn send_foreign_advertisement(&mut self, target: &str) -> Vec<ReceivedPacket> {
        let advertisement = nd::NeighborAdvertisement {
            target: addr(target),
            router: false,
            solicited: false,
            override_: true,
            target_link_address: Some([2, 0, 0, 0, 0, 9]),
        };
        self.receive_link_message(target, "ff02::1", advertisement.emit())
    }

    pub fn receive_link_message(
        &mut self,
        source: &str,
        destination: &str,
        mut message: Vec<u8>,
    ) -> Vec<ReceivedPacket> {
        icmpv6::set_checksum(&mut message, addr(source), addr(destination));
        let message = LinkMessage {
            interface: "h0".into(),
            source: addr(source),
            destination: addr(destination),
            hop_limit: 255,
            peer: Some([2, 0, 0, 0, 0, 9]),
            message,
        };
        self.last_drop_reason = self.home_agent.handle_link_message(self.now, &message).err();
        self.take_answers()
    }

    /// Takes and checks the Neighbor Advertisements that the home agent sent on the home link.
    pub fn take_advertisements(&mut self) -> Vec<nd::NeighborAdvertisement> {
        let advertisements = self.take_link_messages_of_type(icmpv6::message_type::NEIGHBOR_ADVERTISEMENT);
        advertisements.iter().map(|m| nd::NeighborAdvertisement::parse(m).expect("advertisement")).collect()
    }

    /// Takes the targets of the Neighbor Solicitations that the home agent sent on the home link.
    pub fn take_dad_targets(&mut self) -> Vec<Ipv6Addr> {
        let solicitations = self.take_link_messages_of_type(icmpv6::message_type::NEIGHBOR_SOLICITATION);
        solicitations
            .iter()
            .map(|m| nd::NeighborSolicitation::parse(m).expect("solicitation").target)
            .collect()
    }

    fn take_link_messages_of_type(&mut self, kind: u8) -> Vec<Vec<u8>> {
        let (these, others) = std::mem::take(&mut self.link_messages)
            .into_iter()
            .partition::<Vec<_>, _>(|message| message.message.first() == Some(&kind));
        self.link_messages = others;
        these
            .into_iter()
            .map(|message| {
                assert_eq!(message.interface, "h0");
                assert_eq!(message.hop_limit, 255, "RFC 4861 7.1");
                icmpv6::verify_checksum(message.source, message.destination, &message.message)
                    .expect("checksum");
                message.message
            })
            .collect()
    }
}
