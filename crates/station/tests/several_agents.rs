//! A mobile router and two home agents of the same home prefix, connected in virtual time. The tests cover
//! discovery, failover, home agent switch, drain and revocation, while a correspondent and a host exchange
//! packets.

mod common;

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_mobility::agents::{HomeAgentAddress, HomeAgentSelectionConfig};
use carnet_mobility::home_agent::{MultipleCareOfAddresses, OtherAgents, PeerHomeAgent};
use carnet_mobility::{Authentication, HomeAgent};
use carnet_station::io::{Command, Event, Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::discovery::{HomeAgentDiscoveryReply, HomeAgentDiscoveryRequest, home_agents_anycast};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::{ControlPacket, MobilityHeaderBuilder, MobilityOption};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{
    AGENT_ADDRESS, CORRESPONDENT_ADDRESS, FIRST_CARE_OF_ADDRESS, HOME_ADDRESS, HOST_ADDRESS,
    SECOND_CARE_OF_ADDRESS, WALL_TIME, address, agent_config, data_packet_between, interface, per_agent,
    router_config,
};

const OTHER_HOME_AGENT_ADDRESS: &str = "2001:db8:1::2";
const MOBILE_NETWORK_PREFIX: &str = "2001:db8:a::/64";

/// Returns the config of the home agent with the address `own`, with `other` as its peer.
fn agent_config_for(own: &str, other: &str) -> StationConfig {
    let mut config = agent_config(&[MOBILE_NETWORK_PREFIX]);
    if let Some(agent) = &mut config.home_agent {
        agent.address = address(own);
        agent.other_agents = OtherAgents {
            answers_dhaad: true,
            preference: u16::from(own == AGENT_ADDRESS),
            peers: vec![PeerHomeAgent {
                address: address(other),
                preference: u16::from(other == AGENT_ADDRESS),
            }],
        };
    }
    config
}

/// Returns the config of a router with these candidate home agents.
fn router_config_for(agents: &[&str], discover: bool) -> StationConfig {
    let mut config = router_config(&[MOBILE_NETWORK_PREFIX]);
    if let Some(router) = &mut config.mobile_router {
        router.agents = HomeAgentSelectionConfig {
            agents: agents
                .iter()
                .map(|agent| HomeAgentAddress { address: address(agent), ipv4_address: None })
                .collect(),
            discovers_agents: discover,
            ..HomeAgentSelectionConfig::default()
        };
    }
    config
}

fn config_without_key(mut config: StationConfig) -> StationConfig {
    if let Some(agent) = &mut config.home_agent {
        agent.nodes[0].authentication = Authentication::None;
    }
    if let Some(router) = &mut config.mobile_router {
        router.router.authentication = Authentication::None;
    }
    config
}

/// Index of the mobile router's station; the two home agents have the indices before it.
const ROUTER_INDEX: usize = 2;

/// The Internet between the stations, their kernels, and what the test records.
struct AgentsInternet {
    /// Whether each of the two home agents is unreachable.
    unreachable_agents: [bool; 2],
    events: Vec<Event>,
    /// Packets that the host and the correspondent have received.
    arrived_packets: Vec<Vec<u8>>,
    /// Index of the home agent to which the Internet routes the mobile network.
    routed_agent: usize,
    /// Messages of the router to home agents, which an attacker on the visited link records.
    recorded_messages: Vec<Vec<u8>>,
    /// Selects messages of the router to home agents that the network loses.
    loses_message: fn(&Header) -> bool,
}

impl NetworkBehaviour for AgentsInternet {
    fn handle_output(world: &mut AgentsWorld, from: usize, output: Output) {
        match output {
            Output::Nemo(NemoOutput::Packet(_)) if world.is_unreachable(from) => {}
            Output::Nemo(NemoOutput::Packet(packet)) => world.forward_packet(packet, from),
            Output::Nemo(NemoOutput::Event(event)) => world.network_behaviour.events.push(event),
            _ => {}
        }
    }
}

type AgentsWorld = common::world::TestNetwork<AgentsInternet>;

impl AgentsWorld {
    fn new(agents: [StationConfig; 2], router: StationConfig) -> AgentsWorld {
        AgentsWorld::new_unchanged(agents.map(per_agent), per_agent(router))
    }

    fn new_unchanged([first, second]: [StationConfig; 2], router: StationConfig) -> AgentsWorld {
        let internet = AgentsInternet {
            unreachable_agents: [false, false],
            events: Vec::new(),
            arrived_packets: Vec::new(),
            routed_agent: 0,
            recorded_messages: Vec::new(),
            loses_message: |_| false,
        };
        let mut world = AgentsWorld::with_stations(
            [first, second, router].map(|config| station_at_time_zero(config, 7)),
            internet,
        );
        world.start_and_register();
        world
    }

    fn world_with_router(router: StationConfig) -> AgentsWorld {
        AgentsWorld::new(
            [
                agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS),
                agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS),
            ],
            router,
        )
    }

    fn start_and_register(&mut self) {
        self.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, true)),
        );
        self.pass_recorded_input(
            ROUTER_INDEX,
            Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, true)),
        );
    }

    fn is_unreachable(&self, station: usize) -> bool {
        self.network_behaviour.unreachable_agents.get(station) == Some(&true)
    }

    /// Simulates the kernels and the Internet for a packet that a station has written.
    fn forward_packet(&mut self, packet: Vec<u8>, from: usize) {
        let header = Header::parse(&packet).expect("an IPv6 packet");
        let agent = [AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS]
            .iter()
            .position(|agent| header.destination == address(agent));
        let anycast = home_agents_anycast(address(AGENT_ADDRESS)) == header.destination;
        let to_router = [FIRST_CARE_OF_ADDRESS, SECOND_CARE_OF_ADDRESS]
            .iter()
            .position(|own| header.destination == address(own));
        if from == ROUTER_INDEX && agent.is_some() && header.next_header != protocol::IPV6 {
            self.network_behaviour.recorded_messages.push(packet.clone());
            if (self.network_behaviour.loses_message)(&header) {
                return;
            }
        }
        if let Some(agent) = agent.or(anycast.then_some(self.network_behaviour.routed_agent)) {
            if !self.network_behaviour.unreachable_agents[agent] {
                self.send_now(agent, Input::Packet(packet));
            }
        } else if let Some(uplink) = to_router {
            let heard = header.next_header == protocol::ICMPV6;
            let input = if heard {
                packet_received_on_uplink(uplink, &header, &packet)
            } else {
                Input::Packet(packet)
            };
            self.send_now(ROUTER_INDEX, input);
        } else if header.destination == address(HOME_ADDRESS) {
            match (from, icmpv6::answer_echo_request(&packet)) {
                (ROUTER_INDEX, Some(reply)) => self.send_now(ROUTER_INDEX, Input::Packet(reply)),
                (ROUTER_INDEX, None) => self.network_behaviour.arrived_packets.push(packet),
                (agent, _) => self.send_now(agent, Input::Packet(packet)),
            }
        } else {
            self.network_behaviour.arrived_packets.push(packet);
        }
    }

    /// Sends a packet from the host on board; returns how many times it arrives.
    fn send_up_packet(&mut self) -> usize {
        self.network_behaviour.arrived_packets.clear();
        self.pass_recorded_input(
            ROUTER_INDEX,
            Input::Packet(data_packet_between(HOST_ADDRESS, CORRESPONDENT_ADDRESS)),
        );
        self.network_behaviour
            .arrived_packets
            .iter()
            .filter(|packet| **packet == data_packet_between(HOST_ADDRESS, CORRESPONDENT_ADDRESS))
            .count()
    }

    /// Sends a packet to the host on board; returns how many times it arrives.
    fn send_down_packet(&mut self) -> usize {
        self.network_behaviour.arrived_packets.clear();
        self.pass_recorded_input(
            self.network_behaviour.routed_agent,
            Input::Packet(data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS)),
        );
        self.network_behaviour
            .arrived_packets
            .iter()
            .filter(|packet| **packet == data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS))
            .count()
    }

    #[track_caller]
    fn assert_packets_pass(&mut self) {
        assert_eq!(
            (self.send_up_packet(), self.send_down_packet()),
            (1, 1),
            "{:?}",
            self.network_behaviour.events
        );
    }

    /// Runs the world for `seconds`, and calls `look` after each step.
    fn advance_and_look(&mut self, seconds: f64, mut look: impl FnMut(&mut AgentsWorld)) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.advance_to_next_event(end) {
            look(self);
        }
        self.now = end;
    }

    fn advance_seconds(&mut self, seconds: f64) {
        self.run_for(Duration::from_secs_f64(seconds));
    }

    fn home_agent_of(&self, agent: usize) -> &HomeAgent {
        self.stations[agent].home_agent().expect("a home agent")
    }

    fn has_binding(&self) -> [bool; 2] {
        [0, 1].map(|agent| {
            self.home_agent_of(agent).bindings().best_valid_binding(address(HOME_ADDRESS)).is_some()
        })
    }

    fn router_home_agent(&self) -> Ipv6Addr {
        self.stations[ROUTER_INDEX].mobile_router().expect("a router").config().home_agent
    }

    fn command_agent(&mut self, agent: usize, command: Command) -> Result<(), String> {
        self.try_recorded_input(agent, Input::Command(command))
    }

    fn drain_first_agent(&mut self) -> Result<(), String> {
        self.command_agent(0, Command::Drain { to: Vec::new(), within_s: 60 })
    }
}

/// Returns the input for an ICMPv6 message to a care-of address. The platform receives such messages on the
/// uplink, beside the kernel.
fn packet_received_on_uplink(uplink: usize, header: &Header, packet: &[u8]) -> Input {
    Input::Icmpv6(LinkMessage {
        interface: ["w0", "w1"][uplink].into(),
        source: header.source,
        destination: header.destination,
        hop_limit: header.hop_limit,
        peer: None,
        message: packet[40..].to_vec(),
    })
}

#[test]
fn router_uses_first_home_agent_and_second_after_failure() {
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    assert_eq!((world.router_home_agent(), world.has_binding()), (address(AGENT_ADDRESS), [true, false]));
    world.network_behaviour.unreachable_agents[0] = true;
    world.network_behaviour.routed_agent = 1;
    // Without heartbeats the router notices the failure only when it renews the binding after 45 s: three
    // Binding Updates stay unanswered.
    world.advance_seconds(75.0);
    assert_eq!(
        world.router_home_agent(),
        address(OTHER_HOME_AGENT_ADDRESS),
        "{:?}",
        world.network_behaviour.events
    );
    world.assert_packets_pass();
    // When the first home agent is reachable again, the router stays with the second one.
    world.network_behaviour.unreachable_agents[0] = false;
    world.advance_seconds(600.0);
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(OTHER_HOME_AGENT_ADDRESS), [false, true])
    );
    world.assert_packets_pass();
}

#[test]
fn silent_home_agent_costs_five_seconds() {
    let mut world = AgentsWorld::world_with_router(router_config_for(
        &["2001:db8:1::99", OTHER_HOME_AGENT_ADDRESS],
        false,
    ));
    world.network_behaviour.routed_agent = 1;
    world.advance_seconds(4.0);
    assert_eq!(world.has_binding(), [false, false]);
    world.advance_seconds(2.0);
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(OTHER_HOME_AGENT_ADDRESS), [false, true])
    );
    world.assert_packets_pass();
}

#[test]
fn router_leaves_refusing_home_agent_at_once() {
    let mut strict = agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS);
    if let Some(agent) = &mut strict.home_agent {
        agent.nodes[0].prefixes = ["2001:db8:b::/64".parse().expect("a prefix")].into();
    }
    let mut world = AgentsWorld::new(
        [strict, agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS)],
        router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false),
    );
    world.network_behaviour.routed_agent = 1;
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(OTHER_HOME_AGENT_ADDRESS), [false, true]),
        "{:?}",
        world.network_behaviour.events
    );
    world.assert_packets_pass();
}

#[test]
fn refusing_home_agents_are_tried_at_growing_intervals() {
    let strict = |own, other| {
        let mut config = agent_config_for(own, other);
        if let Some(agent) = &mut config.home_agent {
            agent.nodes[0].prefixes = ["2001:db8:b::/64".parse().expect("a prefix")].into();
        }
        config
    };
    let mut world = AgentsWorld::new(
        [strict(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS), strict(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS)],
        router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false),
    );
    world.advance_seconds(600.0);
    let refused = world
        .network_behaviour
        .events
        .iter()
        .filter(|event| matches!(event, Event::BindingRefused { .. }))
        .count();
    // After a refusal the router pauses between its rounds of attempts for 4, 8, 16, 32, 64, 64 s and so on.
    assert!((5..=20).contains(&refused), "{refused}");
}

#[test]
fn router_tries_last_home_agent_first_after_restart() {
    let mut world = AgentsWorld::world_with_router(router_config_for(
        &["2001:db8:1::99", OTHER_HOME_AGENT_ADDRESS],
        false,
    ));
    world.network_behaviour.routed_agent = 1;
    world.advance_seconds(6.0);
    let state = world.stations[ROUTER_INDEX].nemo().persistent_state(world.now, world.wall_time());
    let text = serde_json::to_string(&state).expect("serialises");
    let state: PersistentState = serde_json::from_str(&text).expect("deserialises");
    let config = per_agent(router_config_for(&["2001:db8:1::99", OTHER_HOME_AGENT_ADDRESS], false));
    world.restart_station(ROUTER_INDEX, config, state, 8);
    world.start_and_register();
    assert_eq!(world.router_home_agent(), address(OTHER_HOME_AGENT_ADDRESS));
    world.assert_packets_pass();
}

#[test]
fn router_discovers_home_agents() {
    let mut world = AgentsWorld::world_with_router(router_config_for(&[], true));
    // RFC 6275 10.5.1: the router first tries the home agent with the higher preference.
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(AGENT_ADDRESS), [true, false]),
        "{:?}",
        world.network_behaviour.events
    );
    world.assert_packets_pass();
    world.network_behaviour.unreachable_agents[0] = true;
    world.network_behaviour.routed_agent = 1;
    world.advance_seconds(75.0);
    assert_eq!(
        world.router_home_agent(),
        address(OTHER_HOME_AGENT_ADDRESS),
        "{:?}",
        world.network_behaviour.events
    );
    world.assert_packets_pass();
}

#[test]
fn unsolicited_discovery_reply_or_reply_without_r_flag_is_ignored() {
    let mut world = AgentsWorld::world_with_router(router_config_for(&[], true));
    world.network_behaviour.unreachable_agents = [true, true];
    let config = per_agent(router_config_for(&[], true));
    world.restart_station(ROUTER_INDEX, config, PersistentState::default(), 9);
    world.start_and_register();
    assert!(world.router_home_agent().is_unspecified());
    let mut forged = carnet_wire::discovery::emit_discovery_reply(1, true, &[address("2001:db8:bad::1")]);
    icmpv6::set_checksum(&mut forged, address(OTHER_HOME_AGENT_ADDRESS), address(FIRST_CARE_OF_ADDRESS));
    let packet =
        icmpv6::emit_packet(address(OTHER_HOME_AGENT_ADDRESS), address(FIRST_CARE_OF_ADDRESS), 64, forged);
    let header = Header::parse(&packet).expect("a packet");
    world.pass_recorded_input(ROUTER_INDEX, packet_received_on_uplink(0, &header, &packet));
    assert!(world.router_home_agent().is_unspecified());
    // The router sends four discovery requests in the first minute, and then pauses (RFC 6275 12).
    world.advance_seconds(60.0);
    world.network_behaviour.unreachable_agents = [false, false];
    world.advance_seconds(60.0);
    assert_eq!(world.router_home_agent(), address(AGENT_ADDRESS), "it is asked again");
}

#[test]
fn a_flood_of_discovery_requests_draws_few_answers_and_leaves_nothing() {
    let mut agent = Station::new(
        agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS),
        PersistentState::default(),
        Rng::new(1),
        Time::ZERO,
        WALL_TIME,
    );
    while agent.poll_output().is_some() {}
    let anycast = home_agents_anycast(address(AGENT_ADDRESS));
    let mut flood = |from: u64, to: u64, networks: u128| {
        let mut answers = 0;
        for n in from..to {
            let network = (u128::from(n) % networks) << 64;
            let source = Ipv6Addr::from(u128::from(address("2001:db8:f1::")) | u128::from(n) | network);
            let request =
                HomeAgentDiscoveryRequest { identifier: n as u16, mobile_router: n % 2 == 0 }.emit();
            let packet = icmpv6::emit_packet(source, anycast, 64, request);
            // Sources send 10,000 requests within a second.
            let now = Time::from_nanos(n * 100_000);
            agent.handle_input(now, WALL_TIME, Input::Packet(packet)).expect("taken");
            while let Some(output) = agent.poll_output() {
                let Output::Nemo(NemoOutput::Packet(reply)) = output else { panic!("{output:?}") };
                let header = Header::parse(&reply).expect("a packet");
                assert_eq!((header.source, header.destination), (address(AGENT_ADDRESS), source));
                assert!(reply.len() <= 1280);
                let read = HomeAgentDiscoveryReply::parse(&reply[40..]).expect("a reply");
                assert_eq!(read.mobile_router, n % 2 == 0);
                assert_eq!(
                    read.addresses().collect::<Vec<_>>(),
                    [address(AGENT_ADDRESS), address(OTHER_HOME_AGENT_ADDRESS)]
                );
                answers += 1;
            }
        }
        (answers, format!("{:?}", agent.home_agent()).len())
    };
    // One network that sends a flood of requests gets five answers at once, then one a second.
    let (answers, before) = flood(0, 10_000, 1);
    assert!((5..=6).contains(&answers), "{answers} answers");
    // The limit of a network does not affect other networks. All sources together get fifty answers, then
    // fifty a second.
    let (answers, _) = flood(10_000, 20_000, 1000);
    assert!((50..=105).contains(&answers), "{answers} answers");
    // Further sources do not increase the memory of the home agent.
    let (_, after) = flood(20_000, 30_000, 60_000);
    let (_, last) = flood(30_000, 60_000, 60_000);
    assert!(
        after < before + 64 * 1024 && last.abs_diff(after) < 4096,
        "{before}, {after}, {last} octets of state"
    );
}

/// RFC 4887 6: the home prefix contains the mobile networks, and the home link is a part of it.
#[test]
fn home_agent_of_aggregated_home_network_is_discovered() {
    let requests = |prefixes: &[&str], home: &str| -> Vec<Ipv6Addr> {
        let mut config = per_agent(agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS));
        let agent = config.home_agent.as_mut().expect("one");
        agent.home_prefix = "2001:db8::/44".parse().expect("a prefix");
        agent.nodes[0].home_address = address(home);
        agent.nodes[0].prefixes = prefixes.iter().map(|it| it.parse().expect("a prefix")).collect();
        let mut agent = Station::new(config, PersistentState::default(), Rng::new(1), Time::ZERO, WALL_TIME);
        while agent.poll_output().is_some() {}
        let ask = |agent: &mut Station, of: &str| {
            let request = HomeAgentDiscoveryRequest { identifier: 7, mobile_router: true }.emit();
            let packet = icmpv6::emit_packet(
                address(FIRST_CARE_OF_ADDRESS),
                home_agents_anycast(address(of)),
                64,
                request,
            );
            agent.handle_input(Time::from_secs(10), WALL_TIME, Input::Packet(packet)).expect("taken");
            let mut answered = false;
            while let Some(output) = agent.poll_output() {
                answered |= matches!(output, Output::Nemo(NemoOutput::Packet(packet)) if packet[40] == 145);
            }
            answered
        };
        let asked = ["2001:db8::", "2001:db8:1::", "2001:db8:7::", "2001:db8:a::"];
        asked.into_iter().filter(|of| ask(&mut agent, of)).map(address).collect()
    };
    let [first, own, home] = ["2001:db8::", "2001:db8:1::", "2001:db8:7::"].map(address);
    assert_eq!(requests(&[MOBILE_NETWORK_PREFIX], "2001:db8:7::5"), [first, own, home]);
    assert_eq!(requests(&[MOBILE_NETWORK_PREFIX], "2001:db8:a::1"), [first, own], "on board");
    assert_eq!(requests(&["2001:db8::/64"], "2001:db8:7::5"), [own, home], "somebody's network");
}

#[test]
fn drain_loses_no_packet_and_relays_late_packets() {
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    world.assert_packets_pass();
    world.drain_first_agent().expect("there is another");
    // In this test messages arrive without delay. So the router has already registered at the other home
    // agent, and de-registered at the home agent that is drained.
    world.assert_packets_pass();
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(OTHER_HOME_AGENT_ADDRESS), [false, true]),
        "{:?}",
        world.network_behaviour.events
    );
    let other_agent = address(OTHER_HOME_AGENT_ADDRESS);
    let is_registered =
        |e: &Event| matches!(e, Event::Registered { home_agent, .. } if *home_agent == other_agent);
    let registered = world.network_behaviour.events.iter().position(is_registered);
    let left = world.network_behaviour.events.iter().position(|e| matches!(e, Event::BindingRemoved { .. }));
    assert!(
        registered < left && registered.is_some(),
        "make before break: {:?}",
        world.network_behaviour.events
    );
    world.advance_and_look(120.0, AgentsWorld::assert_packets_pass);
    let drain = world.home_agent_of(0).drain().expect("a drain");
    assert_eq!((drain.state.as_str(), drain.routers, drain.left.len()), ("done", 1, 0));
    // From now on, the Internet routes the mobile network to the other home agent.
    world.network_behaviour.routed_agent = 1;
    world.assert_packets_pass();
    // Until the drain ends, no router may register at this home agent again.
    assert_eq!(world.command_agent(0, Command::EndDrain), Ok(()));
    assert!(world.command_agent(0, Command::EndDrain).is_err());
}

#[test]
fn returning_router_is_no_longer_relayed() {
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    world.drain_first_agent().expect("there is another");
    world.advance_seconds(10.0);
    world.command_agent(0, Command::EndDrain).expect("there is one");
    world
        .command_agent(1, Command::Drain { to: vec![address(AGENT_ADDRESS)], within_s: 60 })
        .expect("the way back");
    world.advance_and_look(60.0, AgentsWorld::assert_packets_pass);
    assert_eq!((world.router_home_agent(), world.has_binding()), (address(AGENT_ADDRESS), [true, false]));
    assert!(world.home_agent_of(0).relay_of_node(address(HOME_ADDRESS)).is_none());
    world.network_behaviour.routed_agent = 1;
    world.assert_packets_pass();
}

#[test]
fn relay_continues_after_restart() {
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    world.drain_first_agent().expect("there is another");
    world.advance_seconds(1.0);
    let state = world.stations[0].nemo().persistent_state(world.now, world.wall_time());
    let text = serde_json::to_string(&state).expect("serialises");
    let state: PersistentState = serde_json::from_str(&text).expect("deserialises");
    world.restart_station(0, per_agent(agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS)), state, 8);
    world.assert_packets_pass();
}

#[test]
fn a_reload_of_the_config_ends_neither_a_drain_nor_a_revocation() {
    let agents = [
        agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS),
        agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS),
    ];
    let mut world =
        AgentsWorld::new(agents, router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    world.network_behaviour.unreachable_agents[1] = true;
    world.drain_first_agent().expect("there is another, as far as anybody knows");
    world.advance_seconds(20.0);
    let before = world.home_agent_of(0).drain().expect("a drain");
    let mut config = per_agent(agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS));
    if let Some(agent) = &mut config.home_agent {
        agent.max_lifetime = Duration::from_secs(300);
    }
    world.reconfigure_station(0, config.clone());
    assert_eq!(world.home_agent_of(0).drain().as_ref(), Some(&before));
    world.assert_packets_pass();
    // When the second home agent is reachable again, the drain goes on, and the first home agent sends the
    // router a Home Agent Switch.
    world.network_behaviour.unreachable_agents[1] = false;
    world.advance_seconds(30.0);
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(OTHER_HOME_AGENT_ADDRESS), [false, true]),
        "{:?}",
        world.network_behaviour.events
    );
    world.advance_seconds(1.0);
    let after = world.home_agent_of(0).drain().expect("a drain");
    assert_eq!((after.state.as_str(), after.routers), ("done", 1));
    world.reconfigure_station(0, config.clone());
    assert_eq!(world.home_agent_of(0).drain(), Some(after));
    assert_eq!(world.command_agent(0, Command::EndDrain), Ok(()));

    // The home agent sends a revocation and waits for the router's answer.
    let mut world = AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS], false));
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, false)));
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, false)));
    world
        .command_agent(0, Command::Revoke { home_address: address(HOME_ADDRESS), bids: Vec::new() })
        .expect("bound");
    world.reconfigure_station(0, config);
    assert_eq!(world.has_binding(), [true, false]);
    world.advance_seconds(6.0);
    assert_eq!(world.has_binding(), [false, false], "{:?}", world.network_behaviour.events);
}

#[test]
fn only_peers_may_relay_to_registered_nodes() {
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    let relayed = |source: &str, destination: &str| {
        let inner = data_packet_between(CORRESPONDENT_ADDRESS, destination);
        Input::Packet(carnet_virtual::packet(address(source), address(AGENT_ADDRESS), protocol::IPV6, &inner))
    };
    let mut arrives = |source, destination| {
        world.network_behaviour.arrived_packets.clear();
        world.pass_recorded_input(0, relayed(source, destination));
        world
            .network_behaviour
            .arrived_packets
            .iter()
            .filter(|packet| **packet == data_packet_between(CORRESPONDENT_ADDRESS, destination))
            .count()
    };
    assert_eq!(arrives(OTHER_HOME_AGENT_ADDRESS, HOST_ADDRESS), 1);
    assert_eq!(arrives("2001:db8:66::1", HOST_ADDRESS), 0, "a stranger");
    assert_eq!(arrives(OTHER_HOME_AGENT_ADDRESS, "2001:db8:77::1"), 0, "not of a node that is here");
}

#[test]
fn relayed_packet_never_returns_to_an_earlier_home_agent() {
    const THIRD_HOME_AGENT: &str = "2001:db8:1::3";
    let to_third = |source: &str, hop_limit| {
        let mut config = per_agent(agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS));
        let peer = PeerHomeAgent { address: address(THIRD_HOME_AGENT), preference: 0 };
        config.home_agent.as_mut().expect("one").other_agents.peers.push(peer);
        let mut world = AgentsWorld::world_with_router(router_config_for(
            &[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS],
            false,
        ));
        world.drain_first_agent().expect("there is another");
        world.advance_seconds(1.0);
        // The test changes the stored state as if the node had gone to a third home agent.
        let mut state = world.stations[0].nemo().persistent_state(world.now, world.wall_time());
        state.home_agent[0].relay.as_mut().expect("a relay").to = address(THIRD_HOME_AGENT);
        world.restart_station(0, config, state, 8);
        world.network_behaviour.arrived_packets.clear();
        let mut inner = data_packet_between(CORRESPONDENT_ADDRESS, HOST_ADDRESS);
        inner[7] = hop_limit;
        let outer = carnet_virtual::packet(address(source), address(AGENT_ADDRESS), protocol::IPV6, &inner);
        world.pass_recorded_input(0, Input::Packet(outer));
        std::mem::take(&mut world.network_behaviour.arrived_packets)
    };
    let passed = to_third(OTHER_HOME_AGENT_ADDRESS, 9);
    assert_eq!(passed.len(), 1, "to the third");
    let outer = Header::parse(&passed[0]).expect("a packet");
    assert_eq!((outer.source, outer.destination), (address(AGENT_ADDRESS), address(THIRD_HOME_AGENT)));
    assert_eq!(passed[0][47], 8, "each home agent is a hop");
    assert!(to_third(THIRD_HOME_AGENT, 9).is_empty(), "back where it came from");
    assert!(to_third(OTHER_HOME_AGENT_ADDRESS, 1).is_empty(), "round and round");
}

#[test]
fn drain_without_other_home_agent_is_refused() {
    let mut config = agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS);
    if let Some(agent) = &mut config.home_agent {
        agent.other_agents.peers.clear();
    }
    let mut world = AgentsWorld::new(
        [config, agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS)],
        router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false),
    );
    let reason = world.drain_first_agent().expect_err("nobody");
    assert!(reason.contains("no other home agent"), "{reason}");
    assert!(
        world.command_agent(0, Command::Drain { to: vec![address(AGENT_ADDRESS)], within_s: 9 }).is_err(),
        "itself"
    );
    world.assert_packets_pass();
    assert_eq!(world.has_binding(), [true, false]);
}

#[test]
fn drain_to_unreachable_home_agent_changes_nothing() {
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    world.network_behaviour.unreachable_agents[1] = true;
    world.drain_first_agent().expect("there is another, as far as anybody knows");
    world.advance_and_look(58.0, AgentsWorld::assert_packets_pass);
    assert_eq!((world.router_home_agent(), world.has_binding()), (address(AGENT_ADDRESS), [true, false]));
    world.advance_seconds(3.0);
    let drain = world.home_agent_of(0).drain().expect("a drain");
    assert_eq!((drain.state.as_str(), drain.left), ("expired", vec![address(HOME_ADDRESS)]));
}

#[test]
fn unauthenticated_switch_leads_only_to_configured_home_agents() {
    let agents = || {
        [
            config_without_key(agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS)),
            config_without_key(agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS)),
        ]
    };
    let mut world = AgentsWorld::new(
        agents(),
        config_without_key(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false)),
    );
    world.drain_first_agent().expect("there is another");
    world.advance_seconds(1.0);
    assert_eq!(world.has_binding(), [false, true]);

    let mut world = AgentsWorld::new(agents(), config_without_key(router_config(&[MOBILE_NETWORK_PREFIX])));
    world.drain_first_agent().expect("there is another");
    world.advance_seconds(1.0);
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(AGENT_ADDRESS), [true, false]),
        "said by anybody"
    );
    assert!(world.network_behaviour.events.iter().any(
        |event| matches!(event, Event::Warning { message } if message.contains("names no home agent of the \
                                                                                config"))
    ));

    // If a key authenticates the messages, a router with a single home agent in its config
    // accepts any new home agent.
    let mut world = AgentsWorld::world_with_router(router_config(&[MOBILE_NETWORK_PREFIX]));
    world.drain_first_agent().expect("there is another");
    world.advance_seconds(1.0);
    assert_eq!(
        (world.router_home_agent(), world.has_binding()),
        (address(OTHER_HOME_AGENT_ADDRESS), [false, true]),
        "{:?}",
        world.network_behaviour.events
    );
    world.assert_packets_pass();

    // If both home agents share one plain key, the router ignores the request to move.
    let agents = [
        agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS),
        agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS),
    ];
    let mut world = AgentsWorld::new_unchanged(agents, router_config(&[MOBILE_NETWORK_PREFIX]));
    world.drain_first_agent().expect("there is another");
    world.advance_seconds(1.0);
    assert_eq!((world.router_home_agent(), world.has_binding()), (address(AGENT_ADDRESS), [true, false]));
    assert!(world.network_behaviour.events.iter().any(
        |event| matches!(event, Event::Warning { message } if message.contains("expected per_agent = true"))
    ));
}

/// Returns the input that replays a recorded packet to another home agent, from its original source.
fn packet_replayed_to(agent: &str, packet: &[u8]) -> Input {
    let header = Header::parse(packet).expect("a packet");
    let extensions = ExtensionHeaders::parse(packet).expect("extension headers");
    let mut mobility_header = packet[extensions.upper_layer_offset..].to_vec();
    let packet = ControlPacket {
        source: header.source,
        destination: address(agent),
        hop_limit: 64,
        home_address: extensions.home_address,
        routing_home_address: None,
        mobility_header: &mut mobility_header,
    };
    Input::Packet(packet.emit())
}

/// The MAC of RFC 4285 does not cover the home agent's address, and home agents do not share sequence
/// numbers. A recorded message must not be valid at another home agent.
#[test]
fn message_recorded_at_one_home_agent_is_rejected_by_another() {
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    let play = |world: &mut AgentsWorld, expected: [bool; 2]| {
        let recorded = std::mem::take(&mut world.network_behaviour.recorded_messages);
        assert!(!recorded.is_empty());
        let to = if expected[0] { (1, OTHER_HOME_AGENT_ADDRESS) } else { (0, AGENT_ADDRESS) };
        for packet in recorded {
            world.pass_recorded_input(to.0, packet_replayed_to(to.1, &packet));
            assert_eq!(world.has_binding(), expected, "{:?}", world.network_behaviour.events);
        }
        world.network_behaviour.recorded_messages.clear();
    };
    // The other home agent has never received a message of the node before.
    play(&mut world, [true, false]);
    world.drain_first_agent().expect("there is another");
    world.advance_seconds(2.0);
    world.network_behaviour.recorded_messages.clear();
    // The sequence numbers at the new home agent are greater than those at the previous one.
    world.advance_seconds(100.0);
    play(&mut world, [false, true]);
    world.command_agent(0, Command::EndDrain).expect("there is one");
    world.advance_seconds(100.0);
    play(&mut world, [false, true]);
    world.network_behaviour.routed_agent = 1;
    world.assert_packets_pass();
    // The operator moves the router back to the first home agent by a drain.
    world
        .command_agent(1, Command::Drain { to: vec![address(AGENT_ADDRESS)], within_s: 60 })
        .expect("the way back");
    world.advance_seconds(10.0);
    world.command_agent(1, Command::EndDrain).expect("there is one");
    world.network_behaviour.recorded_messages.clear();
    world.advance_seconds(100.0);
    play(&mut world, [true, false]);
}

#[test]
fn revoked_router_registers_again_after_ten_minutes() {
    let mut world = AgentsWorld::world_with_router(router_config(&[MOBILE_NETWORK_PREFIX]));
    let revoke = |bids| Command::Revoke { home_address: address(HOME_ADDRESS), bids };
    assert!(world.command_agent(0, revoke(vec![7])).is_err(), "no such binding");
    world.command_agent(0, revoke(Vec::new())).expect("bound");
    assert_eq!(world.has_binding(), [false, false], "{:?}", world.network_behaviour.events);
    assert_eq!((world.send_up_packet(), world.send_down_packet()), (0, 0));
    assert!(world.command_agent(0, revoke(Vec::new())).is_err(), "not bound");
    world.advance_seconds(590.0);
    assert_eq!(world.has_binding(), [false, false]);
    world.advance_seconds(20.0);
    assert_eq!(world.has_binding(), [true, false]);
    world.assert_packets_pass();
}

/// While the router tries to register at a home agent, that home agent revokes the registration and restarts.
/// The router must then start to wait for its answer anew. Otherwise the router would measure its wait from
/// the lost registration, and stop waiting at once.
#[test]
fn router_restarts_its_wait_for_home_agent_that_revoked_and_restarted() {
    let mut router = router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false);
    if let Some(router) = &mut router.mobile_router {
        for (bid, uplink) in (1..).zip(&mut router.router.uplinks) {
            uplink.bid = Some(bid);
        }
    }
    let other_with = |how| {
        let mut config = per_agent(agent_config_for(OTHER_HOME_AGENT_ADDRESS, AGENT_ADDRESS));
        config.home_agent.as_mut().expect("one").multiple_care_of_addresses = how;
        config
    };
    let other = other_with(MultipleCareOfAddresses::Single);
    let mut world =
        AgentsWorld::new([agent_config_for(AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS), other], router);
    world.advance_seconds(1.0);
    world.network_behaviour.loses_message = |header| {
        (header.source, header.destination)
            == (address(SECOND_CARE_OF_ADDRESS), address(OTHER_HOME_AGENT_ADDRESS))
    };
    world.drain_first_agent().expect("there is another");
    while !world.has_binding()[1] {
        world.advance_seconds(0.1);
    }
    assert_eq!(world.router_home_agent(), address(AGENT_ADDRESS), "the second uplink has time to follow");
    // From now on the home agent refuses Binding Identifiers, and the network loses the router's Binding
    // Update without identifier.
    world.reconfigure_station(1, other_with(MultipleCareOfAddresses::Prohibited));
    world.network_behaviour.loses_message = |header| {
        (header.source, header.destination)
            == (address(FIRST_CARE_OF_ADDRESS), address(OTHER_HOME_AGENT_ADDRESS))
    };
    world.advance_seconds(4.0);
    assert_eq!(world.router_home_agent(), address(AGENT_ADDRESS), "{:?}", world.network_behaviour.events);
    world.network_behaviour.loses_message = |_| false;
    world.advance_seconds(30.0);
    assert_eq!(
        world.router_home_agent(),
        address(OTHER_HOME_AGENT_ADDRESS),
        "{:?}",
        world.network_behaviour.events
    );
    world.network_behaviour.routed_agent = 1;
    world.assert_packets_pass();
}

#[test]
fn repeated_revocation_is_acknowledged_again() {
    let mut world = AgentsWorld::world_with_router(router_config(&[MOBILE_NETWORK_PREFIX]));
    world.network_behaviour.loses_message = |_| true;
    world
        .command_agent(0, Command::Revoke { home_address: address(HOME_ADDRESS), bids: Vec::new() })
        .expect("bound");
    assert_eq!(world.has_binding(), [true, false], "nobody has said anything");
    world.network_behaviour.loses_message = |_| false;
    world.advance_seconds(1.5);
    assert_eq!(world.has_binding(), [false, false], "{:?}", world.network_behaviour.events);
    let removed = world.network_behaviour.events.iter().find_map(|event| match event {
        Event::BindingRemoved { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(removed, Some("revoked"));
}

#[test]
fn unanswered_revocation_ends_the_binding() {
    let mut world = AgentsWorld::world_with_router(router_config(&[MOBILE_NETWORK_PREFIX]));
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface("w0", FIRST_CARE_OF_ADDRESS, false)));
    world.pass_recorded_input(ROUTER_INDEX, Input::Interface(interface("w1", SECOND_CARE_OF_ADDRESS, false)));
    world
        .command_agent(0, Command::Revoke { home_address: address(HOME_ADDRESS), bids: Vec::new() })
        .expect("bound");
    // The home agent does not know that the router's uplinks are down, so its requests stay unanswered.
    world.advance_seconds(6.0);
    assert_eq!(world.has_binding(), [false, false], "{:?}", world.network_behaviour.events);
}

#[test]
fn router_ignores_forged_or_replayed_home_agent_switch() {
    let key = || {
        let common = carnet_mobility::SecurityAssociation {
            spi: 300,
            key: [7; 16].into(),
            replay: carnet_mobility::ReplayProtection::Sequence,
        };
        Authentication::PerAgent(common)
            .for_home_agent(address(AGENT_ADDRESS))
            .signing_association()
            .expect("a key")
            .clone()
    };
    let order = |key: Option<carnet_mobility::SecurityAssociation>, time: u64| {
        let builder = MobilityHeaderBuilder::home_agent_switch(&[address(OTHER_HOME_AGENT_ADDRESS)]);
        let mut header = match &key {
            Some(key) => builder
                .option(&MobilityOption::MessageIdentifier(time))
                .option(&key.empty_authentication_option())
                .finish(),
            None => builder.finish(),
        };
        if let Some(key) = key {
            key.sign(&mut header, address(FIRST_CARE_OF_ADDRESS), address(HOME_ADDRESS));
        }
        let packet = ControlPacket {
            source: address(AGENT_ADDRESS),
            destination: address(FIRST_CARE_OF_ADDRESS),
            hop_limit: 64,
            home_address: None,
            routing_home_address: Some(address(HOME_ADDRESS)),
            mobility_header: &mut header,
        };
        Input::Packet(packet.emit())
    };
    let mut world =
        AgentsWorld::world_with_router(router_config_for(&[AGENT_ADDRESS, OTHER_HOME_AGENT_ADDRESS], false));
    let before = WALL_TIME.to_ntp() - 1000;
    let other_key = carnet_mobility::SecurityAssociation { key: [8; 16].into(), ..key() };
    for forged in [order(None, 0), order(Some(other_key), before)] {
        world.pass_recorded_input(ROUTER_INDEX, forged);
        assert_eq!((world.router_home_agent(), world.has_binding()), (address(AGENT_ADDRESS), [true, false]));
    }
    world.pass_recorded_input(ROUTER_INDEX, order(Some(key()), before));
    assert_eq!(world.router_home_agent(), address(OTHER_HOME_AGENT_ADDRESS), "the right one is followed");
    // While the operator moves the router back, the attacker replays the recorded messages.
    world.advance_seconds(10.0);
    world
        .command_agent(1, Command::Drain { to: vec![address(AGENT_ADDRESS)], within_s: 60 })
        .expect("the way back");
    world.advance_seconds(10.0);
    assert_eq!(world.router_home_agent(), address(AGENT_ADDRESS));
    world.pass_recorded_input(ROUTER_INDEX, order(Some(key()), before));
    assert_eq!((world.router_home_agent(), world.has_binding()), (address(AGENT_ADDRESS), [true, false]));
}
