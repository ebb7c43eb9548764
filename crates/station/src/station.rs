//! The station: its parts, and the queries about its state.

mod access;
mod config_changes;
mod configuration;
mod direct;
mod inputs;
mod lan_mtu;
mod neighbours;
mod nesting;
mod outputs;
mod packets;
mod path_mtus;
mod protection;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;

use carnet_base::{Interface, Rng, SmallMap, Time, WallTime, next_of, parts};
use carnet_geonet::dcc::Gate;
use carnet_geonet::ipv6_adaptation::{Adaptation, Ipv6Config};
use carnet_geonet::multicast::MulticastProxy;
use carnet_mobility::agents::Agents;
use carnet_mobility::router_advertiser::RouterAdvertiser;
use carnet_mobility::{Direct, HomeAgent, Mnpp, MobileRouter, MobilityDrop, Nesting};

use crate::acceleration::SequenceNumbers;
use crate::geonet::dcc::Held;
use crate::geonet::facilities::Facilities;
use crate::geonet::security::{Secured, SecurityEntity, SecurityState};
use crate::geonet::{GeoDestination, Geonet, GeonetSettings};
use crate::io::{Output, TunnelTraffic};
use access::Access;
use carnet_nemo::forwarding::LanSettings;
use carnet_nemo::forwarding::desired::{DesiredState, Entry};
use carnet_nemo::forwarding::forwarder::Forwarder;
use carnet_nemo::forwarding::fragments::Reassembler;
use carnet_nemo::forwarding::path_mtu::PathMtus;
pub use configuration::{MobileRouterSettings, PersistentState, StationConfig};
use lan_mtu::LanMtu;
pub use neighbours::MnppSettings;
use neighbours::Neighbours;
use protection::Protection;

/// Owner of a part of the desired forwarding state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Scope {
    /// One group of the mobile router's interface settings; the groups have this order.
    Settings(usize),
    /// Entries of the home agent that do not depend on a node.
    HomeAgent,
    /// One node of the home agent, named by its home address.
    Node(Ipv6Addr),
    /// The mobile router's entries.
    MobileRouter,
    /// Routes of the mobile router to neighbouring mobile networks.
    Neighbours,
    /// Entries of direct routes of the mobile router.
    Direct,
}

#[derive(Debug)]
struct Router {
    machine: MobileRouter,
    /// Selection of the home agent, with the further mobile routers that exist while the home agent changes.
    agents: Agents,
    /// Names of the interfaces of the mobile network.
    lan: Vec<String>,
    lan_settings: Vec<LanSettings>,
    advertisers: Vec<RouterAdvertiser>,
    /// Interfaces and prefixes that have the address `PREFIX::1` from an earlier config with `advertise`.
    /// They keep this address, because an operator's own router needs an address there as well.
    assigned: Vec<(String, ipnet::Ipv6Net)>,
    lan_mtu: LanMtu,
    nesting: Nesting,
}

#[derive(Debug)]
struct Agent {
    machine: HomeAgent,
    /// Sends Router Advertisements for the home agent on a real home link, so that mobile nodes can discover
    /// the home agent; `None` if they shall not.
    advertiser: Option<RouterAdvertiser>,
}

/// Number of the generator's stream from which the home agent's tokens come.
const TOKENS: u64 = 2;

/// An ITS station without I/O; see the crate's documentation.
#[derive(Debug)]
pub struct Station {
    agent: Option<Agent>,
    router: Option<Router>,
    /// Stored state of a role that is inactive now, for a later config with that role.
    dormant: PersistentState,
    geonet: Option<Geonet>,
    /// Settings of the GeoNetworking router, which waits for its address; `None` once the router exists.
    awaited: Option<(GeonetSettings, Rng)>,
    /// Security entity for the GeoNetworking router that waits for its address.
    awaited_security: Option<Secured>,
    /// Routes to neighbouring mobile networks, if configured.
    neighbours: Option<Neighbours>,
    /// Direct routes to other mobile networks, if configured.
    direct: Option<Direct>,
    /// Roadside units, if the interface to other stations is an uplink.
    access: Option<Access>,
    /// Addresses of the mobile network's interfaces. A multicast proxy that starts later needs them.
    lan_addresses: SmallMap<String, Vec<(Ipv6Addr, u8)>>,
    interfaces: SmallMap<String, Interface>,
    /// Names of the interfaces of IPv6 over GeoNetworking that exist or may appear.
    virtual_interfaces: Vec<String>,
    desired: DesiredState<Scope>,
    forwarder: Forwarder,
    path_mtus: PathMtus,
    reassembler: Reassembler,
    /// State of messages under IPsec, if a node uses IPsec.
    protection: Option<Box<Protection>>,
    outputs: VecDeque<Output>,
    received: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<MobilityDrop, u64>,
    /// Last packet counts that a fast path has reported.
    fast_traffic: Vec<TunnelTraffic>,
    rng: Rng,
    /// Source of the home agent's tokens. After a change of config the new home agent gets other tokens.
    tokens: Rng,
}

impl Station {
    /// Creates a station that has received no input. `persistent` is the stored state of an earlier run.
    /// `rng` is the source of all random numbers and secrets of the station. [`Self::poll_output`] returns
    /// the outputs of the start.
    pub fn new(
        config: StationConfig,
        persistent: PersistentState,
        mut rng: Rng,
        now: Time,
        wall: WallTime,
    ) -> Station {
        let mut station = Station {
            agent: None,
            dormant: PersistentState::default(),
            router: None,
            geonet: None,
            awaited_security: None,
            awaited: None,
            neighbours: None,
            direct: None,
            access: None,
            lan_addresses: SmallMap::new(),
            interfaces: SmallMap::new(),
            virtual_interfaces: Vec::new(),
            desired: DesiredState::new(),
            forwarder: Forwarder::new(&mut rng),
            path_mtus: PathMtus::new(Rng::new(rng.u64())),
            reassembler: Reassembler::default(),
            protection: None,
            outputs: VecDeque::new(),
            received: BTreeMap::new(),
            dropped: BTreeMap::new(),
            fast_traffic: Vec::new(),
            // The tokens have a stream of their own, so that older recordings replay with the same random
            // numbers.
            tokens: rng.stream(TOKENS),
            rng,
        };
        if let (Some(part), Some(settings)) = (parts::geonet(), config.geonet.clone()) {
            station.virtual_interfaces =
                settings.ipv6.as_ref().map(Ipv6Config::interfaces).unwrap_or_default();
            let rng = Rng::new(station.rng.u64());
            match settings.address {
                Some(address) => station.geonet = Some(Geonet::new(part, settings, address, rng)),
                None => station.awaited = Some((settings, rng)),
            }
        }
        station.configure(now, wall, config, persistent);
        station.forward_router(now);
        station.flush(now, wall);
        station
    }

    /// Returns the home agent, if the station has this role.
    pub fn home_agent(&self) -> Option<&HomeAgent> {
        self.agent.as_ref().map(|agent| &agent.machine)
    }

    /// Returns the mobile router's selection of home agents, if the station is a mobile router.
    pub fn agents(&self) -> Option<&Agents> {
        self.router.as_ref().map(|router| &router.agents)
    }

    /// Returns the mobile router, if the station has this role.
    pub fn mobile_router(&self) -> Option<&MobileRouter> {
        self.router.as_ref().map(|router| &router.machine)
    }

    /// Returns the interfaces of the mobile network.
    pub(crate) fn lan(&self) -> &[String] {
        self.router.as_ref().map_or(&[], |router| &router.lan)
    }

    /// Returns the last known state of an interface.
    pub(crate) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.get(name)
    }

    /// Returns the GeoNetworking router, if the station has one.
    pub fn geonet(&self) -> Option<&carnet_geonet::Router> {
        Geonet::of(&self.geonet).map(Geonet::router)
    }

    /// Returns the facilities above GeoNetworking, if the station has them.
    pub fn facilities(&self) -> Option<&Facilities> {
        Geonet::of(&self.geonet).and_then(Geonet::facilities)
    }

    /// Returns the multicast proxy, if the station has one.
    pub fn multicast(&self) -> Option<&MulticastProxy> {
        Geonet::of(&self.geonet).and_then(Geonet::multicast)
    }

    /// Returns the adaptation sublayer of IPv6 over GeoNetworking, if the station has it.
    pub fn ipv6_adaptation(&self) -> Option<&Adaptation> {
        Geonet::of(&self.geonet).and_then(Geonet::ipv6)
    }

    /// Sets the source from which the GeoNetworking router and a fast path draw sequence numbers. In the
    /// replay of a recording the router has its own numbers, which the fast path's reports correct.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        if let Some(geonet) = &mut self.geonet {
            geonet.share_sequence_numbers(numbers);
        }
    }

    /// Starts to sign and verify GeoNetworking packets. The caller calls this at the start, before any input.
    pub fn secure(&mut self, now: Time, wall: WallTime, entity: Box<dyn SecurityEntity>) {
        let secured = Secured::new(entity, now, wall);
        match &mut self.geonet {
            Some(geonet) => geonet.secure(now, secured),
            None => self.awaited_security = Some(secured),
        }
    }

    /// Returns the security entity, if the station has one.
    pub fn security(&self) -> Option<&dyn SecurityEntity> {
        self.secured().map(Secured::entity)
    }

    /// Returns the state of the security entity, for operators.
    pub fn security_state(&self, now: Time) -> Option<SecurityState> {
        self.secured().map(|secured| secured.state(now))
    }

    fn secured(&self) -> Option<&Secured> {
        Geonet::of(&self.geonet).and_then(Geonet::secured).or(self.awaited_security.as_ref())
    }

    /// Returns the areas that operators have set at run time.
    pub fn geo_destinations(&self, now: Time) -> impl Iterator<Item = GeoDestination<'_>> {
        Geonet::of(&self.geonet).into_iter().flat_map(move |geonet| geonet.geo_destinations(now))
    }

    pub(crate) fn ipv6_reordered(&self) -> Option<(u64, u64)> {
        Geonet::of(&self.geonet).and_then(Geonet::reordered)
    }

    /// Returns the congestion gate in front of the radio, if the station has one.
    pub fn congestion(&self) -> Option<&Gate<Held>> {
        Geonet::of(&self.geonet).and_then(Geonet::gate)
    }

    pub(crate) fn ipv6_acknowledgements(&self) -> Option<(u64, u64)> {
        Geonet::of(&self.geonet).and_then(Geonet::acknowledgements)
    }

    /// Takes back the buffer of an executed [`Output::Frame`] or [`Output::Ipv6`], so that the station can
    /// use it again.
    pub fn recycle(&mut self, octets: Vec<u8>) {
        if let Some(geonet) = &mut self.geonet {
            geonet.recycle(octets);
        }
    }

    /// Returns the slow path's forwarder.
    pub fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// Returns the key of the outer flow labels' hash; see [`Forwarder::flow_label_key`].
    pub fn flow_label_key(&self) -> u64 {
        self.forwarder.flow_label_key()
    }

    /// Returns the flow label key that a station created with this `rng` will have. A fast path that starts
    /// before the station needs it.
    pub fn flow_label_key_of(mut rng: Rng) -> u64 {
        // `new` draws the random numbers of the forwarder first, so this function draws the same ones.
        Forwarder::new(&mut rng).flow_label_key()
    }

    /// Returns all entries of the desired state.
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

    /// Returns whether the station has finished its work after [`crate::io::Command::Shutdown`].
    pub fn is_quiescent(&self) -> bool {
        let quiescent = |router: &Router| router.machine.is_quiescent() && router.agents.is_quiescent();
        self.router.as_ref().is_none_or(quiescent)
    }

    /// Returns the next output; see the drain rule in [`crate::io`].
    pub fn poll_output(&mut self) -> Option<Output> {
        next_of(&mut self.outputs)
    }

    /// Returns when [`crate::io::Input::Timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let geonet = Geonet::of(&self.geonet).and_then(Geonet::poll_timeout);
        let neighbours = self.neighbours().and_then(Mnpp::poll_timeout);
        self.mobility_timeout().into_iter().chain(geonet).chain(neighbours).min()
    }

    /// Returns when the timers of the home agent or the mobile router are due next.
    fn mobility_timeout(&self) -> Option<Time> {
        let agent = self.agent.as_ref().and_then(|agent| {
            let advertiser = agent.advertiser.as_ref().and_then(RouterAdvertiser::poll_timeout);
            agent.machine.poll_timeout().into_iter().chain(advertiser).min()
        });
        let router = self.router.as_ref().and_then(|router| {
            let advertisers = router.advertisers.iter().filter_map(RouterAdvertiser::poll_timeout);
            let lan_mtu = router.lan_mtu.poll_timeout().into_iter().chain(router.nesting.poll_timeout());
            let agents = router.agents.poll_timeout();
            router.machine.poll_timeout().into_iter().chain(agents).chain(advertisers).chain(lan_mtu).min()
        });
        let router = router.into_iter().chain(self.direct.as_ref().and_then(Direct::poll_timeout)).min();
        // A packet has used a watched tunnel, so path MTU discovery is due.
        let used = self.forwarder.has_used().then_some(Time::ZERO);
        let path_mtus = self.path_mtus.poll_timeout().into_iter().chain(used);
        let path_mtus = path_mtus.chain(self.access.as_ref().and_then(Access::poll_timeout));
        agent.into_iter().chain(router).chain(path_mtus).min()
    }

    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not drained: {:?}", self.outputs);
    }
}
