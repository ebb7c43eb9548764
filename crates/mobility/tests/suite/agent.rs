//! A home agent without a network: the test hands in packets, reads the answers and sets the clock.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Address, Endpoint, Interface, LinkMessage, Time, WallTime};
use carnet_mobility::home_agent::{
    AuthorizedNode, Binding, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents,
};
use carnet_mobility::{Authentication, Event, HomeAgent, MobilityDrop, Output};
use carnet_virtual::configured_address;
use carnet_wire::{icmpv6, nd};

use crate::craft::*;

/// The link-layer address of the home agent on its home link.
pub const AGENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Maximum number of outputs that one input may cause; more would be a flood. The end of duplicate address
/// detection may accept sixteen registrations at once.
const MAX_OUTPUTS: usize = 120;
/// Time of day at the start of a test: 2025-01-01.
pub const WALL_START: WallTime = WallTime::from_unix_nanos(1_735_689_600_000_000_000);

/// Returns the config of a home agent for one router, [`HOME`] with [`PREFIX`], without authentication, on a
/// virtual home link.
pub fn config() -> HomeAgentConfig {
    HomeAgentConfig {
        others: OtherAgents::default(),
        address: addr(AGENT),
        home_prefix: net(HOME_PREFIX),
        home_network: None,
        home_link: None,
        ndp_proxy: None,
        nat: Default::default(),
        max_lifetime: Duration::from_secs(600),
        force_udp: false,
        ipv4_address: None,
        multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
        nodes: vec![node(HOME, &[PREFIX])],
    }
}

pub fn end(text: &str) -> Endpoint {
    text.parse().expect("an end of a tunnel")
}

pub fn node(home_address: &str, prefixes: &[&str]) -> AuthorizedNode {
    AuthorizedNode {
        nat: true,
        care_of_test: false,
        home_address: addr(home_address),
        prefixes: prefixes.iter().map(|prefix| net(prefix)).collect(),
        authentication: Authentication::None,
    }
}

/// Returns the config of a home agent for one router with the key of [`association`].
pub fn authenticated() -> HomeAgentConfig {
    let mut config = config();
    config.nodes[0].authentication = Authentication::SharedKey(association());
    config
}

pub struct Agent {
    pub machine: HomeAgent,
    pub now: Time,
    /// Reason for which the home agent dropped the last input.
    pub dropped: Option<MobilityDrop>,
    /// Messages that the home agent sent on the home link since the test last cleared this list.
    pub link: Vec<LinkMessage>,
    /// Packets that the home agent sent inside IPv4 or UDP: local end, remote end, packet.
    pub encapsulated: Vec<(Endpoint, Endpoint, Seen)>,
    /// Inner packets that the home agent itself sent into a tunnel: local end, remote end, octets.
    pub tunnelled: Vec<(Endpoint, Endpoint, Vec<u8>)>,
    pub events: Vec<Event>,
    pub forwarding_changes: usize,
    pub persisted: usize,
}

impl Agent {
    pub fn new(config: HomeAgentConfig) -> Agent {
        Agent {
            machine: HomeAgent::new(config),
            now: Time::from_secs(1000),
            dropped: None,
            link: Vec::new(),
            encapsulated: Vec::new(),
            tunnelled: Vec::new(),
            events: Vec::new(),
            forwarding_changes: 0,
            persisted: 0,
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

    /// A home agent on a real home link that is up. The messages of its start are cleared.
    pub fn on_home_link(mut config: HomeAgentConfig) -> Agent {
        config.home_link = Some("h0".into());
        let mut agent = Agent::new(config);
        agent.home_link(true);
        agent.wait(10.0);
        agent.link.clear();
        agent
    }

    /// A home agent whose home link has only just come up, so that its own address is still tentative.
    pub fn on_fresh_home_link(mut config: HomeAgentConfig) -> Agent {
        config.home_link = Some("h0".into());
        let mut agent = Agent::new(config);
        agent.home_link_with(true, true);
        agent.link.clear();
        agent
    }

    pub fn home_link(&mut self, running: bool) -> Vec<Seen> {
        self.home_link_with(running, false)
    }

    fn home_link_with(&mut self, running: bool, tentative: bool) -> Vec<Seen> {
        let own = Address { tentative, ..configured_address(addr("fe80::1")) };
        let interface =
            Interface { running, ..carnet_virtual::running_interface("h0", AGENT_MAC, vec![own]) };
        self.machine.handle_interface(&interface, self.now);
        self.drain()
    }

    pub fn wall(&self) -> WallTime {
        WALL_START + self.now.saturating_since(Time::ZERO)
    }

    /// Hands in a packet as it came from the wire, and returns the answers.
    pub fn receive(&mut self, packet: &[u8]) -> Vec<Seen> {
        self.dropped = None;
        let message = mobility_message(packet).expect("a mobility message");
        self.dropped = self.machine.handle_message(self.now, self.wall(), message).err();
        self.drain()
    }

    /// Hands in a packet that came inside IPv4 or UDP, and returns the answers that leave inside IPv4 or UDP.
    pub fn receive_inside(&mut self, local: &str, remote: &str, packet: &[u8]) -> Vec<Seen> {
        self.dropped = None;
        self.encapsulated.clear();
        let message = mobility_message(packet).expect("a mobility message").inside(end(local), end(remote));
        self.dropped = self.machine.handle_message(self.now, self.wall(), message).err();
        assert!(self.drain().is_empty(), "what comes inside IPv4 is answered inside IPv4");
        let answers = std::mem::take(&mut self.encapsulated);
        answers
            .into_iter()
            .map(|(from, to, seen)| {
                assert_eq!((from, to), (end(local), end(remote)), "the way back is the way it came");
                seen
            })
            .collect()
    }

    pub fn send(&mut self, update: &Update) -> Vec<Seen> {
        self.receive(&update.packet())
    }

    /// Sends an update and returns the answer, which must be exactly one acknowledgement.
    #[track_caller]
    pub fn ask(&mut self, update: &Update) -> Seen {
        let mut answers = self.send(update);
        assert_eq!(answers.len(), 1, "answers: {answers:?}, dropped: {:?}", self.dropped);
        let answer = answers.remove(0);
        answer.status();
        answer
    }

    /// Sends an update that the home agent must accept.
    #[track_caller]
    pub fn accept(&mut self, update: &Update) -> Seen {
        let answer = self.ask(update);
        assert_eq!(answer.status(), 0, "{answer:?}");
        answer
    }

    /// Sends an update that the home agent must refuse with `status`, without a change of its bindings.
    #[track_caller]
    pub fn refuse(&mut self, update: &Update, status: u8) -> Seen {
        let before = self.snapshot();
        let answer = self.ask(update);
        assert_eq!(answer.status(), status, "{answer:?}");
        assert_eq!(self.snapshot(), before, "a refused update changed a binding");
        answer
    }

    /// Sends a packet that the home agent must drop without an answer and without a change of its bindings.
    #[track_caller]
    pub fn ignore(&mut self, packet: &[u8]) -> MobilityDrop {
        let before = self.snapshot();
        let answers = self.receive(packet);
        assert!(answers.is_empty(), "{answers:?}");
        assert_eq!(self.snapshot(), before, "an ignored update changed a binding");
        self.dropped.expect("a reason for the drop")
    }

    /// Returns all bindings as text, for comparison.
    pub fn snapshot(&self) -> String {
        format!("{:?}", self.machine.bindings())
    }

    pub fn binding(&self) -> Option<Binding> {
        self.binding_of(HOME)
    }

    pub fn binding_of(&self, home_address: &str) -> Option<Binding> {
        self.machine.bindings().valid(addr(home_address))
    }

    pub fn care_of(&self) -> Option<Ipv6Addr> {
        self.binding().and_then(|binding| binding.care_of_address.ipv6())
    }

    /// Lets the clock run, and returns the answers that timers cause.
    pub fn wait(&mut self, seconds: f64) -> Vec<Seen> {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut answers = Vec::new();
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            answers.extend(self.drain());
        }
        self.now = end;
        answers
    }

    pub fn drain(&mut self) -> Vec<Seen> {
        let mut packets = Vec::new();
        let mut count = 0;
        while let Some(output) = self.machine.poll_output() {
            count += 1;
            assert!(count <= MAX_OUTPUTS, "too many outputs for one input");
            match output {
                Output::Packet(packet) => packets.push(Seen::read(&packet)),
                Output::Encapsulated { local, remote, packet } => {
                    self.encapsulated.push((local, remote, Seen::read(&packet)));
                }
                Output::Tunnelled { local, remote, packet } => self.tunnelled.push((local, remote, packet)),
                Output::Link(message) => self.link.push(message),
                Output::Event(event) => self.events.push(event),
                Output::Forwarding(_) => self.forwarding_changes += 1,
                Output::Persist(_) => self.persisted += 1,
                Output::ProbePortal { .. } => panic!("a home agent has no uplinks"),
            }
        }
        packets
    }

    /// Sends a Neighbor Solicitation on the home link, and returns the answers.
    pub fn solicit(&mut self, target: &str, source: &str) -> Vec<nd::NeighborAdvertisement> {
        self.link.clear();
        let solicitation = nd::NeighborSolicitation {
            target: addr(target),
            source_link_address: (source != "::").then_some([2, 0, 0, 0, 0, 9]),
        };
        self.hear(source, &nd::solicited_node(addr(target)).to_string(), solicitation.emit());
        self.advertisements()
    }

    /// Sends a Neighbor Advertisement of another node on the home link.
    pub fn claim(&mut self, target: &str) -> Vec<Seen> {
        let advertisement = nd::NeighborAdvertisement {
            target: addr(target),
            router: false,
            solicited: false,
            override_: true,
            target_link_address: Some([2, 0, 0, 0, 0, 9]),
        };
        self.hear(target, "ff02::1", advertisement.emit())
    }

    pub fn hear(&mut self, source: &str, destination: &str, mut message: Vec<u8>) -> Vec<Seen> {
        icmpv6::set_checksum(&mut message, addr(source), addr(destination));
        let message = LinkMessage {
            interface: "h0".into(),
            source: addr(source),
            destination: addr(destination),
            hop_limit: 255,
            peer: Some([2, 0, 0, 0, 0, 9]),
            message,
        };
        self.dropped = self.machine.handle_link_message(self.now, &message).err();
        self.drain()
    }

    /// Takes and checks the Neighbor Advertisements that the home agent sent on the home link.
    pub fn advertisements(&mut self) -> Vec<nd::NeighborAdvertisement> {
        let advertisements = self.said(icmpv6::types::NEIGHBOR_ADVERTISEMENT);
        advertisements.iter().map(|m| nd::NeighborAdvertisement::parse(m).expect("advertisement")).collect()
    }

    /// Takes the targets of the Neighbor Solicitations that the home agent sent on the home link.
    pub fn probes(&mut self) -> Vec<Ipv6Addr> {
        let solicitations = self.said(icmpv6::types::NEIGHBOR_SOLICITATION);
        solicitations
            .iter()
            .map(|m| nd::NeighborSolicitation::parse(m).expect("solicitation").target)
            .collect()
    }

    fn said(&mut self, kind: u8) -> Vec<Vec<u8>> {
        let (these, others) = std::mem::take(&mut self.link)
            .into_iter()
            .partition::<Vec<_>, _>(|message| message.message.first() == Some(&kind));
        self.link = others;
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
