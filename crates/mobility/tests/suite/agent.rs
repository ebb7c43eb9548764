//! A home agent on its own: packets in, answers out, the clock in the test's hand.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Address, Endpoint, Interface, LinkMessage, Time, WallTime};
use carnet_mobility::home_agent::{
    AuthorizedNode, Binding, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents,
};
use carnet_mobility::{Authentication, Event, HomeAgent, MobilityDrop, MobilityMessage, Output};
use carnet_wire::extension::Extensions;
use carnet_wire::ipv6::Header;
use carnet_wire::{icmpv6, nd};

use crate::craft::*;

/// The link-layer address of the home agent on its home link.
pub const AGENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// More outputs than this for one input would be a flood. The end of a test of an address may accept sixteen
/// registrations at once.
const MAX_OUTPUTS: usize = 120;
/// 2025-01-01.
pub const WALL_START: WallTime = WallTime::from_unix_nanos(1_735_689_600_000_000_000);

/// A home agent for one router, [`HOME`] with [`PREFIX`], without authentication, on a virtual home link.
pub fn config() -> HomeAgentConfig {
    HomeAgentConfig {
        others: OtherAgents::default(),
        address: addr(AGENT),
        home_prefix: net(HOME_PREFIX),
        home_network: None,
        home_link: None,
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

/// One router with the key of [`association`].
pub fn authenticated() -> HomeAgentConfig {
    let mut config = config();
    config.nodes[0].authentication = Authentication::SharedKey(association());
    config
}

pub struct Agent {
    pub machine: HomeAgent,
    pub now: Time,
    /// What the last input was dropped for.
    pub dropped: Option<MobilityDrop>,
    /// What was said on the home link since the last look.
    pub link: Vec<LinkMessage>,
    /// What was sent inside IPv4 or UDP, from which end to which.
    pub encapsulated: Vec<(Endpoint, Endpoint, Seen)>,
    /// Inner packets of its own that went into a tunnel, between which ends.
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

    /// What the operator was told of.
    pub fn warnings(&self) -> Vec<&str> {
        let warnings = self.events.iter().filter_map(|event| match event {
            Event::Warning { message } => Some(message.as_str()),
            _ => None,
        });
        warnings.collect()
    }

    /// One with a real home link that is up; what it says at the start is put aside.
    pub fn on_home_link(mut config: HomeAgentConfig) -> Agent {
        config.home_link = Some("h0".into());
        let mut agent = Agent::new(config);
        agent.home_link(true);
        agent.wait(10.0);
        agent.link.clear();
        agent
    }

    /// On a home link that has only just come up: its own address is not in use yet.
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
        let interface = Interface {
            name: "h0".into(),
            running,
            mtu: 1500,
            link_address: Some(AGENT_MAC),
            addresses: vec![Address {
                address: addr("fe80::1"),
                prefix_length: 64,
                tentative,
                duplicate: false,
                deprecated: false,
                temporary: false,
                permanent: true,
            }],
            routers: Vec::new(),
            ..Interface::default()
        };
        self.machine.handle_interface(&interface, self.now);
        self.drain()
    }

    pub fn wall(&self) -> WallTime {
        WALL_START + self.now.saturating_since(Time::ZERO)
    }

    /// Hands in a packet as it came from the wire.
    pub fn receive(&mut self, packet: &[u8]) -> Vec<Seen> {
        self.dropped = None;
        let header = Header::parse(packet).expect("an IPv6 header");
        let extensions = Extensions::parse(packet).expect("extension headers");
        let message = MobilityMessage::new(packet, &header, &extensions).expect("a mobility message");
        self.dropped = self.machine.handle_message(self.now, self.wall(), message).err();
        self.drain()
    }

    /// Hands in a packet that came inside IPv4 or UDP; the answers that go back inside.
    pub fn receive_inside(&mut self, local: &str, remote: &str, packet: &[u8]) -> Vec<Seen> {
        self.dropped = None;
        self.encapsulated.clear();
        let header = Header::parse(packet).expect("an IPv6 header");
        let extensions = Extensions::parse(packet).expect("extension headers");
        let message = MobilityMessage::new(packet, &header, &extensions)
            .expect("a mobility message")
            .inside(end(local), end(remote));
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

    /// Sends an update that draws exactly one answer, an acknowledgement.
    #[track_caller]
    pub fn ask(&mut self, update: &Update) -> Seen {
        let mut answers = self.send(update);
        assert_eq!(answers.len(), 1, "answers: {answers:?}, dropped: {:?}", self.dropped);
        let answer = answers.remove(0);
        answer.status();
        answer
    }

    /// Sends an update that is accepted.
    #[track_caller]
    pub fn accept(&mut self, update: &Update) -> Seen {
        let answer = self.ask(update);
        assert_eq!(answer.status(), 0, "{answer:?}");
        answer
    }

    /// Sends an update that is refused with a status and changes nothing.
    #[track_caller]
    pub fn refuse(&mut self, update: &Update, status: u8) -> Seen {
        let before = self.snapshot();
        let answer = self.ask(update);
        assert_eq!(answer.status(), status, "{answer:?}");
        assert_eq!(self.snapshot(), before, "a refused update changed a binding");
        answer
    }

    /// Sends something that is met with silence and changes nothing.
    #[track_caller]
    pub fn ignore(&mut self, packet: &[u8]) -> MobilityDrop {
        let before = self.snapshot();
        let answers = self.receive(packet);
        assert!(answers.is_empty(), "{answers:?}");
        assert_eq!(self.snapshot(), before, "an ignored update changed a binding");
        self.dropped.expect("a reason for the drop")
    }

    /// All bindings in words, for comparison.
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

    /// Lets the clock run; answers that timers cause are returned.
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

    /// A Neighbor Solicitation on the home link; the answers.
    pub fn solicit(&mut self, target: &str, source: &str) -> Vec<nd::NeighborAdvertisement> {
        self.link.clear();
        let solicitation = nd::NeighborSolicitation {
            target: addr(target),
            source_link_address: (source != "::").then_some([2, 0, 0, 0, 0, 9]),
        };
        self.hear(source, &nd::solicited_node(addr(target)).to_string(), solicitation.emit());
        self.advertisements()
    }

    /// A Neighbor Advertisement by somebody else on the home link.
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

    /// The Neighbor Advertisements on the home link since the last look, each of them checked.
    pub fn advertisements(&mut self) -> Vec<nd::NeighborAdvertisement> {
        let advertisements = self.said(icmpv6::types::NEIGHBOR_ADVERTISEMENT);
        advertisements.iter().map(|m| nd::NeighborAdvertisement::parse(m).expect("advertisement")).collect()
    }

    /// The targets of Neighbor Solicitations on the home link since the last look.
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
                icmpv6::verify(message.source, message.destination, &message.message).expect("checksum");
                message.message
            })
            .collect()
    }
}
