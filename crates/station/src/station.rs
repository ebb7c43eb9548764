//! The station: who gets which input, and how the outputs of the parts become the station's.

mod access;
mod lan_mtu;
mod neighbours;
mod packets;
mod path_mtus;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::slice;

use carnet_base::{Endpoint, Interface, LinkMessage, Rng, Time, WallTime};
use carnet_geonet::ReceivedFrame;
use carnet_geonet::ipv6_adaptation::{Adaptation, HostFrame, Ipv6Config};
use carnet_geonet::multicast::{LanPacket, MulticastProxy};
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, StoredBinding};
use carnet_mobility::mobile_router::{Attachment, MobileRouterConfig, StoredSequence, StoredVolume};
use carnet_mobility::router_advertiser::{AdvertiserConfig, RouterAdvertiser};
use carnet_mobility::{HomeAgent, Mnpp, MobileRouter, MobilityDrop};
use carnet_wire::geonet::GnAddress;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::HEADER_LEN;
use serde::{Deserialize, Serialize};

use crate::forwarding::desired::{Change, DesiredState, Entry, TunnelEnd};
use crate::forwarding::forwarder::{Caused, Forwarder, Verdict};
use crate::forwarding::fragments::Reassembler;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::PathMtus;
use crate::forwarding::{agent_entries, lan_prefixes, node_entries, setting_entries};
use crate::geonet::fast_path::SequenceNumbers;
use crate::geonet::{GeoDestination, Geonet, GeonetSettings};
use crate::io::{Command, Frame, Input, Output, VirtualFrame};
use access::Access;
use lan_mtu::LanMtu;
pub use neighbours::MnppSettings;
use neighbours::Neighbours;

const NO_GEONET: &str = "this station does no GeoNetworking";

/// What a station is to be. A role that is absent is a job not done.
#[derive(Debug, Clone, Default)]
pub struct StationConfig {
    /// The home agent.
    pub home_agent: Option<HomeAgentConfig>,
    /// The mobile router.
    pub mobile_router: Option<MobileRouterSettings>,
    /// The GeoNetworking router.
    pub geonet: Option<GeonetSettings>,
    /// Ways to the mobile networks of neighbouring vehicles, for a mobile router with IPv6 over GeoNetworking.
    pub mnpp: Option<MnppSettings>,
}

/// A mobile router and the interfaces of its mobile network.
#[derive(Debug, Clone)]
pub struct MobileRouterSettings {
    /// The router.
    pub router: MobileRouterConfig,
    /// Interfaces of the mobile network.
    pub lan: Vec<String>,
    /// Whether the prefixes are advertised there, and `PREFIX::1` is put on them.
    pub advertise: bool,
}

/// What has to survive a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentState {
    /// The home agent's bindings and replay protection.
    #[serde(default)]
    pub home_agent: Vec<StoredBinding>,
    /// How often the home agent has started without the bindings that it had (RFC 5847 3.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_counter: Option<u32>,
    /// The mobile router's sequence number.
    #[serde(default)]
    pub mobile_router: Option<StoredSequence>,
    /// What has gone over the mobile router's uplinks, by interface.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, StoredVolume>,
}

/// Who wants which part of the forwarding state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// The mobile router's interface switches, in this order.
    Settings(usize),
    /// The home agent as such.
    HomeAgent,
    /// One node of the home agent, by home address.
    Node(Ipv6Addr),
    /// The mobile router.
    MobileRouter,
    /// Its ways to neighbouring mobile networks.
    Neighbours,
}

#[derive(Debug)]
struct Router {
    machine: MobileRouter,
    lan: Vec<String>,
    advertisers: Vec<RouterAdvertiser>,
    lan_mtu: LanMtu,
}

#[derive(Debug)]
struct Agent {
    machine: HomeAgent,
    nodes: BTreeMap<Ipv6Addr, AuthorizedNode>,
}

/// One ITS station without I/O; see the crate's documentation.
#[derive(Debug)]
pub struct Station {
    agent: Option<Agent>,
    router: Option<Router>,
    geonet: Option<Geonet>,
    /// The GeoNetworking router to be, as long as its address is not known.
    awaited: Option<(GeonetSettings, Rng)>,
    /// The ways to neighbouring mobile networks, where they are sought.
    neighbours: Option<Neighbours>,
    /// The roadside units, where the interface to other stations is an uplink.
    access: Option<Access>,
    /// What was told of the mobile network's interfaces before that.
    lan_addresses: BTreeMap<String, Vec<(Ipv6Addr, u8)>>,
    interfaces: BTreeMap<String, Interface>,
    /// Those of IPv6 over GeoNetworking that there are or may be.
    virtual_interfaces: Vec<String>,
    desired: DesiredState<Scope>,
    forwarder: Forwarder,
    path_mtus: PathMtus,
    reassembler: Reassembler,
    outputs: VecDeque<Output>,
    received: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<MobilityDrop, u64>,
    rng: Rng,
}

impl Station {
    /// A station that has seen nothing yet. `persistent` is what an earlier run left; `seed` decides all its
    /// randomness. The outputs of the start wait in [`Self::poll_output`].
    pub fn new(
        config: StationConfig,
        persistent: PersistentState,
        seed: u64,
        now: Time,
        wall: WallTime,
    ) -> Station {
        let mut rng = Rng::new(seed);
        let mut station = Station {
            agent: None,
            router: None,
            geonet: None,
            awaited: None,
            neighbours: None,
            access: None,
            lan_addresses: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            virtual_interfaces: Vec::new(),
            desired: DesiredState::new(),
            forwarder: Forwarder::new(&mut rng),
            path_mtus: PathMtus::new(Rng::new(rng.u64())),
            reassembler: Reassembler::default(),
            outputs: VecDeque::new(),
            received: BTreeMap::new(),
            dropped: BTreeMap::new(),
            rng,
        };
        if let Some(settings) = config.geonet.clone() {
            station.virtual_interfaces =
                settings.ipv6.as_ref().map(Ipv6Config::interfaces).unwrap_or_default();
            let rng = Rng::new(station.rng.u64());
            match settings.address {
                Some(address) => station.geonet = Some(Geonet::new(settings, address, rng)),
                None => station.awaited = Some((settings, rng)),
            }
        }
        station.configure(now, wall, config, persistent);
        station.forward_router(now);
        station.flush(now);
        station
    }

    /// Becomes what `config` says. Bindings, the registration and whatever of the forwarding state is wanted
    /// before and after stay in place; the outputs are the difference. The GeoNetworking router stays as it is.
    pub fn reconfigure(&mut self, now: Time, wall: WallTime, config: StationConfig) {
        self.assert_drained();
        let persistent = self.persistent_state(now, wall);
        let old_nodes: Vec<Ipv6Addr> =
            self.agent.iter().flat_map(|agent| agent.nodes.keys().copied()).collect();
        let mut old_router = self.router.take();
        let mut withdrawals = Vec::new();
        self.configure(now, wall, config, persistent);
        if let (Some(router), Some(old)) = (&mut self.router, &mut old_router) {
            router.machine.adopt(now, wall, &old.machine);
            for advertiser in &mut old.advertisers {
                let kept: Vec<ipnet::Ipv6Net> = router
                    .advertisers
                    .iter()
                    .filter(|new| new.interface() == advertiser.interface())
                    .flat_map(|new| new.prefixes().iter().copied())
                    .collect();
                advertiser.handle_withdrawal(now, &kept);
                withdrawals.extend(std::iter::from_fn(|| advertiser.poll_output()));
            }
        }
        // All of them before anything is computed from them, so that nothing is torn down in between.
        let mut wanted = self.take_mobility_outputs();
        for interface in self.interfaces.clone().into_values() {
            self.tell_interface(now, wall, &interface);
            wanted.extend(self.take_mobility_outputs());
        }
        if self.agent.is_none() {
            self.desired.replace(Scope::HomeAgent, []);
        }
        for home_address in old_nodes {
            if !self.agent.as_ref().is_some_and(|agent| agent.nodes.contains_key(&home_address)) {
                self.desired.replace(Scope::Node(home_address), []);
            }
        }
        if self.router.is_none() {
            self.desired.replace(Scope::MobileRouter, []);
            for order in (0..3).rev() {
                self.desired.replace(Scope::Settings(order), []);
            }
        }
        self.forward_router(now);
        for (output, from_router) in wanted {
            self.translate(now, output, from_router);
        }
        self.outputs.extend(withdrawals.into_iter().map(Output::Icmpv6));
        self.handle_timeout(now, wall);
        self.flush(now);
    }

    fn configure(&mut self, now: Time, wall: WallTime, config: StationConfig, persistent: PersistentState) {
        self.forwarder.serve_nobody();
        self.router = config.mobile_router.map(|settings| Router::new(settings, &mut self.rng));
        if let Some(router) = &mut self.router {
            let config = router.machine.config();
            let home_address = config.home_address.into();
            self.path_mtus.set_home_agent(TunnelEnd::MobileRouter, config.home_agent);
            for prefix in config.prefixes.iter().copied().chain([home_address]) {
                self.forwarder.serve(prefix, config.home_address);
            }
            // Before the home agent turns forwarding on: the order of these matters to the kernel.
            for (order, entries) in setting_entries(&router.machine, &router.lan).into_iter().enumerate() {
                self.desired.replace(Scope::Settings(order), entries);
            }
            if let Some(stored) = persistent.mobile_router {
                router.machine.restore(stored);
            }
            for (interface, volume) in persistent.volumes {
                router.machine.restore_volume(&interface, volume);
            }
        }
        self.agent = config.home_agent.map(|config| Agent {
            nodes: config.nodes.iter().map(|n| (n.home_address, n.clone())).collect(),
            machine: HomeAgent::new(config),
        });
        if let Some(agent) = &mut self.agent {
            let address = agent.machine.config().address;
            self.path_mtus.set_home_agent(TunnelEnd::HomeAgent, address);
            for node in agent.nodes.values() {
                let home_address = node.home_address.into();
                for prefix in node.prefixes.iter().copied().chain([home_address]) {
                    self.forwarder.serve(prefix, address);
                }
            }
            // What nothing is known of has lost what it had. The date counts such starts without being stored: it
            // only ever grows.
            let restart_counter = persistent.restart_counter.unwrap_or_else(|| seconds(wall));
            agent.machine.set_restart_counter(restart_counter);
            agent.machine.restore(now, wall, persistent.home_agent);
            self.desired.replace(Scope::HomeAgent, agent_entries(&agent.machine));
            let nodes = agent.nodes.iter();
            let entries: Vec<_> =
                nodes.map(|(home, node)| (*home, node_entries(&agent.machine, node))).collect();
            for (home_address, entries) in entries {
                self.want(now, Scope::Node(home_address), entries);
            }
        }
        self.configure_neighbours(config.mnpp);
    }

    /// The home agent, if the station is one.
    pub fn home_agent(&self) -> Option<&HomeAgent> {
        self.agent.as_ref().map(|agent| &agent.machine)
    }

    /// The mobile router, if the station is one.
    pub fn mobile_router(&self) -> Option<&MobileRouter> {
        self.router.as_ref().map(|router| &router.machine)
    }

    /// The interfaces of the mobile network.
    pub(crate) fn lan(&self) -> &[String] {
        self.router.as_ref().map_or(&[], |router| &router.lan)
    }

    /// An interface as it was seen last.
    pub(crate) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.get(name)
    }

    /// The GeoNetworking router, if the station is one.
    pub fn geonet(&self) -> Option<&carnet_geonet::Router> {
        self.geonet.as_ref().map(Geonet::router)
    }

    /// Takes a frame of EtherType 0x8947 without copying it first.
    pub fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        self.assert_drained();
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_frame(now, frame);
        }
        self.flush_geonet(now);
    }

    /// Takes a frame of the virtual interface `link` without copying it first.
    pub fn handle_host_frame(&mut self, now: Time, link: u32, frame: HostFrame<'_>) {
        self.assert_drained();
        if !self.was_diverted(now, frame.destination, frame.payload)
            && let Some(geonet) = &mut self.geonet
        {
            geonet.handle_host_frame(now, link, frame);
        }
        self.flush_geonet(now);
    }

    /// Takes an IPv6 packet to a group from an interface of the mobile network without copying it first.
    pub fn handle_lan_packet(&mut self, now: Time, packet: LanPacket<'_>) {
        self.assert_drained();
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_lan_packet(now, packet);
        }
        self.flush_geonet(now);
    }

    /// The multicast proxy, if the station has one.
    pub fn multicast(&self) -> Option<&MulticastProxy> {
        self.geonet.as_ref().and_then(Geonet::multicast)
    }

    /// The adaptation sublayer of IPv6 over GeoNetworking, if the station has one.
    pub fn ipv6_adaptation(&self) -> Option<&Adaptation> {
        self.geonet.as_ref().and_then(Geonet::ipv6)
    }

    /// The GeoNetworking router draws its sequence numbers from here from now on, as a fast path does. In a recording it
    /// has numbers of its own, which the reports correct.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        if let Some(geonet) = &mut self.geonet {
            geonet.share_sequence_numbers(numbers);
        }
    }

    /// The areas that were set at run time: name, what it is, when it ends, where it is now.
    pub fn geo_destinations(&self, now: Time) -> impl Iterator<Item = GeoDestination<'_>> {
        self.geonet.iter().flat_map(move |geonet| geonet.geo_destinations(now))
    }

    pub(crate) fn ipv6_reordered(&self) -> Option<(u64, u64)> {
        self.geonet.as_ref().and_then(Geonet::reordered)
    }

    /// Gives back the octets of an [`Output::Frame`] or [`Output::Ipv6`] that has been carried out, to be used again.
    pub fn recycle(&mut self, octets: Vec<u8>) {
        if let Some(geonet) = &mut self.geonet {
            geonet.recycle(octets);
        }
    }

    /// The slow path.
    pub fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// The key of the hash that makes outer flow labels; see [`Forwarder::flow_label_key`].
    pub fn flow_label_key(&self) -> u64 {
        self.forwarder.flow_label_key()
    }

    /// All that is wanted from the data path now.
    pub fn desired_entries(&self) -> impl Iterator<Item = &Entry> {
        self.desired.entries()
    }

    pub(crate) fn path_mtus(&self) -> &PathMtus {
        &self.path_mtus
    }

    pub(crate) fn messages_received(&self) -> &BTreeMap<&'static str, u64> {
        &self.received
    }

    pub(crate) fn messages_dropped(&self) -> &BTreeMap<MobilityDrop, u64> {
        &self.dropped
    }

    /// What has to survive a restart, as of now.
    pub fn persistent_state(&self, now: Time, wall: WallTime) -> PersistentState {
        PersistentState {
            home_agent: self.home_agent().map(|agent| agent.stored(now, wall)).unwrap_or_default(),
            restart_counter: self.home_agent().map(HomeAgent::restart_counter),
            mobile_router: self.mobile_router().map(MobileRouter::stored),
            volumes: self
                .mobile_router()
                .into_iter()
                .flat_map(MobileRouter::volumes)
                .map(|(interface, volume)| (interface.to_owned(), volume))
                .collect(),
        }
    }

    /// True once nothing more is to be waited for after [`Command::Shutdown`].
    pub fn is_quiescent(&self) -> bool {
        self.mobile_router().is_none_or(MobileRouter::is_quiescent)
    }

    /// The next thing to be done; see the drain rule in [`crate::io`].
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let geonet = self.geonet.as_ref().and_then(Geonet::poll_timeout);
        let neighbours = self.neighbours().and_then(Mnpp::poll_timeout);
        self.mobility_timeout().into_iter().chain(geonet).chain(neighbours).min()
    }

    /// When the home agent or the mobile router has something to do next.
    fn mobility_timeout(&self) -> Option<Time> {
        let agent = self.agent.as_ref().and_then(|agent| agent.machine.poll_timeout());
        let router = self.router.as_ref().and_then(|router| {
            let advertisers = router.advertisers.iter().filter_map(RouterAdvertiser::poll_timeout);
            let lan_mtu = router.lan_mtu.poll_timeout();
            router.machine.poll_timeout().into_iter().chain(advertisers).chain(lan_mtu).min()
        });
        // A packet woke a tunnel whose MTU is to be looked after.
        let used = self.forwarder.has_used().then_some(Time::ZERO);
        let path_mtus = self.path_mtus.poll_timeout().into_iter().chain(used);
        let path_mtus = path_mtus.chain(self.access.as_ref().and_then(Access::poll_timeout));
        agent.into_iter().chain(router).chain(path_mtus).min()
    }

    /// Takes an input.
    ///
    /// # Errors
    /// Only for [`Input::Command`] and [`Input::Signal`]: why it was refused, in words for the operator.
    pub fn handle_input(&mut self, now: Time, wall: WallTime, input: Input) -> Result<(), String> {
        self.assert_drained();
        // What concerns GeoNetworking alone comes often, and leaves everything else as it is.
        let geonet_alone = match &input {
            Input::Frame(_)
            | Input::Unacknowledged(_)
            | Input::Position(_)
            | Input::Geonet(_)
            | Input::VirtualFrame(_)
            | Input::VirtualAddresses { .. }
            | Input::LanPacket { .. }
            | Input::LanAddresses { .. }
            | Input::GeonetMtu(_)
            | Input::GeonetFastPath(_)
            | Input::GeonetReport(_)
            | Input::GeonetAddress(_) => true,
            Input::Timeout => self.mobility_timeout().is_none_or(|due| due > now),
            _ => false,
        };
        let result = match input {
            Input::Timeout if geonet_alone => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_timeout(now);
                }
                self.look_at_neighbours(now);
                Ok(())
            }
            Input::Timeout => {
                self.handle_timeout(now, wall);
                Ok(())
            }
            Input::Packet(packet) => {
                let mut buffer = PacketBuffer::new();
                buffer.copy_from(&packet);
                let verdict = self.process(now, wall, &mut buffer);
                self.carry_out(verdict, &buffer);
                Ok(())
            }
            Input::Datagram { local, remote, traffic_class, packet } => {
                let mut buffer = PacketBuffer::new();
                buffer.copy_from(&packet);
                let verdict = self.process_datagram(now, wall, (local, remote), traffic_class, &mut buffer);
                self.carry_out(verdict, &buffer);
                Ok(())
            }
            Input::DatagramTooBig { local, remote, mtu } => {
                self.path_mtus.handle_hint(now, (local, remote), mtu);
                Ok(())
            }
            Input::TunnelUsed { local, remote } => {
                self.path_mtus.handle_traffic(now, (local, remote));
                Ok(())
            }
            Input::Icmpv6(message) => {
                self.handle_link_message(now, wall, &message);
                Ok(())
            }
            Input::Interface(interface) => {
                self.handle_interface(now, wall, interface);
                Ok(())
            }
            Input::InterfaceGone { name } => {
                self.handle_interface_gone(now, wall, &name);
                Ok(())
            }
            Input::Signal { interface, dbm } => match &mut self.router {
                Some(router) => {
                    let found = router.machine.uplink_called(&interface).map(|_| ());
                    router.machine.handle_signal(now, wall, &interface, Some(dbm));
                    found
                }
                None => Err("this station has no uplinks".into()),
            },
            Input::Octets { interface, octets } => {
                if let Some(router) = &mut self.router {
                    router.machine.handle_octets(now, wall, &interface, octets);
                }
                Ok(())
            }
            Input::Frame(frame) => {
                if let Some(geonet) = &mut self.geonet {
                    let Frame { source, destination, packet } = &frame;
                    geonet.handle_frame(
                        now,
                        ReceivedFrame { source: *source, destination: *destination, packet },
                    );
                }
                Ok(())
            }
            Input::Unacknowledged(frame) => {
                if !self.is_unreachable(now, &frame)
                    && let Some(geonet) = &mut self.geonet
                {
                    geonet.handle_unacknowledged(now, frame.destination, &frame.packet);
                }
                Ok(())
            }
            Input::VirtualFrame(frame) => {
                let VirtualFrame { link, destination, source, ether_type, payload } = frame;
                if !self.was_diverted(now, destination, &payload)
                    && let Some(geonet) = &mut self.geonet
                {
                    let frame = HostFrame { destination, source, ether_type, payload: &payload };
                    geonet.handle_host_frame(now, link, frame);
                }
                Ok(())
            }
            Input::VirtualAddresses { link, addresses } => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_addresses(link, addresses);
                }
                Ok(())
            }
            Input::LanPacket { interface, source, packet } => {
                if let Some(geonet) = &mut self.geonet {
                    let lan = LanPacket { interface: &interface, source, packet: &packet };
                    geonet.handle_lan_packet(now, lan);
                }
                Ok(())
            }
            Input::LanAddresses { interface, addresses } => {
                match &mut self.geonet {
                    Some(geonet) => geonet.handle_lan_addresses(now, &interface, &addresses),
                    None => drop(self.lan_addresses.insert(interface, addresses)),
                }
                Ok(())
            }
            Input::GeonetMtu(mtu) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_link_mtu(now, mtu);
                }
                Ok(())
            }
            Input::GeonetFastPath(is) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_fast_path(now, is);
                }
                Ok(())
            }
            Input::GeonetReport(report) => {
                self.use_neighbours(now, &report.ways);
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_report(now, &report);
                }
                Ok(())
            }
            Input::GeonetAddress(address) => self.handle_geonet_address(now, GnAddress(address)),
            Input::Position(position) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_position(now, position);
                }
                Ok(())
            }
            Input::Geonet(request) => match &mut self.geonet {
                Some(geonet) => geonet.handle_request(now, &request),
                None => Err(NO_GEONET.into()),
            },
            Input::Command(command) => self.handle_command(now, wall, command),
        };
        if geonet_alone {
            self.flush_geonet(now);
        } else {
            self.flush(now);
        }
        result
    }

    /// Takes a packet from the tunnel device, without allocating for the common ones. On
    /// [`Verdict::Forward`] the buffer holds what is to be written back, on [`Verdict::Encapsulate`] what is to be sent
    /// by a socket; other outputs may wait as well.
    pub fn handle_packet(&mut self, now: Time, wall: WallTime, buffer: &mut PacketBuffer) -> Verdict {
        self.assert_drained();
        let verdict = self.process(now, wall, buffer);
        if matches!(verdict, Verdict::Consumed | Verdict::Dropped(_)) {
            self.flush(now);
        }
        verdict
    }

    /// The same for an IPv6 packet that came to `ends.0` from `ends.1` inside IPv4 or UDP; `traffic_class` is the
    /// outer header's octet with DSCP and ECN.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        wall: WallTime,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> Verdict {
        self.assert_drained();
        let verdict = self.process_datagram(now, wall, ends, traffic_class, buffer);
        if matches!(verdict, Verdict::Consumed | Verdict::Dropped(_)) {
            self.flush(now);
        }
        verdict
    }

    /// As outputs, what is in the buffer.
    fn carry_out(&mut self, verdict: Verdict, buffer: &PacketBuffer) {
        let packet = || buffer.as_slice().to_vec();
        match verdict {
            Verdict::Forward => self.outputs.push_back(Output::Packet(packet())),
            Verdict::Encapsulate { local, remote, may_fragment } => {
                self.outputs.push_back(Output::Encapsulated {
                    local,
                    remote,
                    packet: packet(),
                    may_fragment,
                });
            }
            Verdict::Consumed | Verdict::Dropped(_) => {}
        }
    }

    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not drained: {:?}", self.outputs);
    }

    fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_timeout(now);
        }
        if let Some(router) = &mut self.router {
            router.machine.handle_timeout(now, wall);
            for advertiser in &mut router.advertisers {
                advertiser.handle_timeout(now);
            }
        }
        self.path_mtus.handle_timeout(now);
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_timeout(now);
        }
        self.look_at_neighbours(now);
        self.look_at_access(now, wall);
    }

    fn handle_interface(&mut self, now: Time, wall: WallTime, interface: Interface) {
        self.tell_interface(now, wall, &interface);
        self.interfaces.insert(interface.name.clone(), interface);
        self.forward_router(now);
    }

    fn tell_interface(&mut self, now: Time, wall: WallTime, interface: &Interface) {
        let seen = self.seen_by_access(now, interface);
        let interface = seen.as_ref().unwrap_or(interface);
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_interface(interface, now);
        }
        if let Some(router) = &mut self.router {
            for advertiser in &mut router.advertisers {
                advertiser.handle_interface(now, interface);
            }
            router.machine.handle_interface(now, wall, interface);
        }
    }

    fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.interfaces.remove(name);
        if let Some(access) = self.access.as_mut().filter(|access| access.interface == name) {
            access.handle_gone();
        }
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_interface_gone(name);
        }
        if let Some(router) = &mut self.router {
            for advertiser in &mut router.advertisers {
                advertiser.handle_interface_gone(name);
            }
            router.machine.handle_interface_gone(now, wall, name);
        }
        self.forward_router(now);
    }

    fn handle_command(&mut self, now: Time, wall: WallTime, command: Command) -> Result<(), String> {
        match command {
            Command::Handover { uplink, policy } => match (&mut self.router, policy) {
                (Some(router), None) => router.machine.handle_handover(now, wall, uplink.as_deref()),
                (Some(router), Some(policy)) => router.machine.handle_policy_uplinks(
                    now,
                    wall,
                    &policy,
                    uplink.as_ref().map(slice::from_ref),
                ),
                (None, _) => Err("this station is no mobile router".into()),
            },
            Command::ResetGeonet => {
                let geonet = self.geonet.as_mut().ok_or(NO_GEONET)?;
                geonet.handle_reset(now);
                Ok(())
            }
            Command::SetArea(order) => self.geonet.as_mut().ok_or(NO_GEONET)?.handle_area_order(now, &order),
            Command::RemoveArea { name } => {
                self.geonet.as_mut().ok_or(NO_GEONET)?.handle_area_removal(now, &name)
            }
            Command::Shutdown => {
                if let Some(router) = &mut self.router {
                    for advertiser in &mut router.advertisers {
                        advertiser.handle_shutdown(now);
                    }
                    router.machine.handle_shutdown(now, wall);
                }
                if let Some(neighbours) = &mut self.neighbours {
                    neighbours.machine.handle_shutdown(now);
                }
                Ok(())
            }
        }
    }

    fn handle_geonet_address(&mut self, now: Time, address: GnAddress) -> Result<(), String> {
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_address(now, address);
        } else if let Some((settings, rng)) = self.awaited.take() {
            let mut geonet = Geonet::new(settings, address, rng);
            for (interface, addresses) in std::mem::take(&mut self.lan_addresses) {
                geonet.handle_lan_addresses(now, &interface, &addresses);
            }
            self.geonet = Some(geonet);
            self.listen_to_neighbours();
        } else {
            return Err(NO_GEONET.into());
        }
        Ok(())
    }

    fn handle_link_message(&mut self, now: Time, wall: WallTime, message: &LinkMessage) {
        if message.message.first().is_some_and(|kind| *kind < icmpv6::types::ECHO_REQUEST) {
            // An error about something that a care-of address sent.
            if icmpv6::verify(message.source, message.destination, &message.message).is_ok()
                && let Ok((error, invoking)) = icmpv6::parse_error(&message.message)
            {
                self.handle_error(now, message.destination, error, invoking);
            }
            return;
        }
        let mut results = Vec::new();
        if let Some(agent) = &mut self.agent {
            results.push(agent.machine.handle_link_message(now, message));
        }
        if let Some(router) = &mut self.router {
            results.push(router.machine.handle_link_message(now, wall, message));
            for advertiser in &mut router.advertisers {
                results.push(advertiser.handle_link_message(now, message));
            }
        }
        for reason in results.into_iter().filter_map(Result::err) {
            *self.dropped.entry(reason).or_default() += 1;
        }
    }

    /// Turns changes of the desired state into outputs; the slow path follows them at once.
    fn take_changes(&mut self) {
        while let Some(change) = self.desired.poll_change() {
            match &change {
                Change::Set(Entry::Tunnel(tunnel)) => self.forwarder.set_tunnel(tunnel.clone()),
                Change::Remove(Entry::Tunnel(tunnel)) => {
                    self.forwarder.remove_tunnel(tunnel);
                    self.path_mtus.remove((tunnel.local, tunnel.remote), tunnel.home_address);
                }
                Change::Set(Entry::Distribution(distribution)) => {
                    self.forwarder.set_distribution(distribution);
                }
                Change::Remove(Entry::Distribution(distribution)) => {
                    self.forwarder.remove_distribution(distribution);
                }
                _ => {}
            }
            self.outputs.push_back(Output::Forwarding(change));
        }
    }

    /// Collects the outputs of the parts, in order.
    fn flush(&mut self, now: Time) {
        self.take_changes();
        for (output, from_router) in self.take_mobility_outputs() {
            self.translate(now, output, from_router);
        }
        self.follow_path_mtus(now);
        if let Some(router) = &mut self.router {
            let ends = TunnelEnd::MobileRouter;
            let in_use = self.forwarder.tunnels().filter(|(tunnel, _)| tunnel.end == ends && tunnel.transmit);
            // Hosts shall not have to learn a smaller one when a vehicle is met.
            let straight = self.neighbours.as_ref().and(self.geonet.as_ref()).and_then(Geonet::ipv6);
            let straight = straight.map(Adaptation::mtu);
            let in_use = in_use.map(|(tunnel, _)| tunnel.mtu).min();
            router.inform_advertisers(now, in_use, straight);
            for advertiser in &mut router.advertisers {
                while let Some(message) = advertiser.poll_output() {
                    self.outputs.push_back(Output::Icmpv6(message));
                }
            }
        }
        self.collect_caused();
        self.flush_geonet(now);
    }

    /// Collects what the forwarder has to say by itself.
    fn collect_caused(&mut self) {
        while let Some(caused) = self.forwarder.poll_output() {
            self.outputs.push_back(match caused {
                Caused::Packet(packet) => Output::Packet(packet),
                Caused::Encapsulated { ends: (local, remote), packet, may_fragment } => {
                    Output::Encapsulated { local, remote, packet, may_fragment }
                }
            });
        }
    }

    /// Collects the outputs of GeoNetworking, where nothing else can have any.
    fn flush_geonet(&mut self, now: Time) {
        self.follow_neighbours(now);
        if let Some(geonet) = &mut self.geonet {
            geonet.move_outputs(&mut self.outputs);
        }
    }

    /// Drains the home agent and the mobile router; the flag tells whose an output is.
    fn take_mobility_outputs(&mut self) -> Vec<(carnet_mobility::Output, bool)> {
        let mut outputs = Vec::new();
        if let Some(agent) = &mut self.agent {
            outputs.extend(std::iter::from_fn(|| agent.machine.poll_output()).map(|o| (o, false)));
        }
        if let Some(router) = &mut self.router {
            outputs.extend(std::iter::from_fn(|| router.machine.poll_output()).map(|o| (o, true)));
        }
        outputs
    }

    fn translate(&mut self, now: Time, output: carnet_mobility::Output, from_router: bool) {
        use carnet_mobility::Output as Mobility;
        match output {
            Mobility::Forwarding(_) if from_router => self.forward_router(now),
            Mobility::Forwarding(home_address) => self.forward_node(now, home_address),
            Mobility::Persist => self.outputs.push_back(Output::Persist),
            Mobility::Packet(packet) => self.outputs.push_back(Output::Packet(packet)),
            Mobility::Encapsulated { local, remote, packet } => {
                let may_fragment = true;
                self.outputs.push_back(Output::Encapsulated { local, remote, packet, may_fragment });
            }
            Mobility::Link(message) => self.outputs.push_back(Output::Icmpv6(message)),
            Mobility::Event(event) => self.outputs.push_back(Output::Event(event)),
        }
    }
}

/// A date in seconds, as far as they go into 32 bits.
fn seconds(wall: WallTime) -> u32 {
    u32::try_from(wall.as_unix_nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

impl Router {
    fn new(settings: MobileRouterSettings, rng: &mut Rng) -> Router {
        let mut prefixes: BTreeMap<String, Vec<ipnet::Ipv6Net>> = BTreeMap::new();
        if settings.advertise {
            for (interface, prefix) in lan_prefixes(&settings.router.prefixes, &settings.lan) {
                prefixes.entry(interface).or_default().push(prefix);
            }
        }
        let advertisers = prefixes
            .into_iter()
            .map(|(interface, prefixes)| {
                RouterAdvertiser::new(AdvertiserConfig { interface, prefixes }, Rng::new(rng.u64()))
            })
            .collect();
        Router {
            machine: MobileRouter::new(settings.router, rng),
            lan: settings.lan,
            advertisers,
            lan_mtu: LanMtu::default(),
        }
    }

    /// The least MTU of the paths in use (until there is one, what fits every uplink), and whether the prefixes are
    /// good.
    fn inform_advertisers(&mut self, now: Time, in_use: Option<u32>, straight: Option<u32>) {
        let uplinks = self.machine.uplinks().iter();
        let attached = uplinks.filter(|uplink| matches!(uplink.attachment, Attachment::Foreign { .. }));
        let any = attached.map(|uplink| uplink.mtu().saturating_sub(HEADER_LEN as u32)).min();
        let tunnel = in_use.or(any);
        let mtu = self.lan_mtu.update(now, tunnel.map(|mtu| mtu.min(straight.unwrap_or(mtu))));
        for advertiser in &mut self.advertisers {
            advertiser.set(now, mtu, self.machine.may_advertise());
        }
    }
}
