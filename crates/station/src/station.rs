//! The station: its parts, and what can be asked of it.

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

use crate::forwarding::desired::{DesiredState, Entry};
use crate::forwarding::forwarder::Forwarder;
use crate::forwarding::fragments::Reassembler;
use crate::forwarding::path_mtu::PathMtus;
use crate::geonet::dcc::Held;
use crate::geonet::facilities::Facilities;
use crate::geonet::fast_path::SequenceNumbers;
use crate::geonet::security::{Secured, SecurityEntity, SecurityState};
use crate::geonet::{GeoDestination, Geonet, GeonetSettings};
use crate::io::{Output, TunnelTraffic};
use access::Access;
pub use configuration::{MobileRouterSettings, PersistentState, StationConfig};
use lan_mtu::LanMtu;
pub use neighbours::MnppSettings;
use neighbours::Neighbours;
use protection::Protection;

/// Owner of a part of the forwarding state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// Its direct routes.
    Direct,
}

#[derive(Debug)]
struct Router {
    machine: MobileRouter,
    /// Which home agent that is registered with, and the routers beside it while that changes.
    agents: Agents,
    lan: Vec<String>,
    advertisers: Vec<RouterAdvertiser>,
    /// Interfaces and prefixes that have got `PREFIX::1` from an earlier config with `advertise`: the
    /// operator's router needs an address there as well.
    assigned: Vec<(String, ipnet::Ipv6Net)>,
    lan_mtu: LanMtu,
    nesting: Nesting,
}

#[derive(Debug)]
struct Agent {
    machine: HomeAgent,
    /// Tells a real home link of the home agent, where it is to be discovered.
    advertiser: Option<RouterAdvertiser>,
}

/// One ITS station without I/O; see the crate's documentation.
#[derive(Debug)]
pub struct Station {
    agent: Option<Agent>,
    router: Option<Router>,
    /// State of an absent role, stored until the role returns.
    dormant: PersistentState,
    geonet: Option<Geonet>,
    /// The GeoNetworking router to be, as long as its address is not known.
    awaited: Option<(GeonetSettings, Rng)>,
    /// Security of GeoNetworking when it starts.
    awaited_security: Option<Secured>,
    /// The ways to neighbouring mobile networks, where they are sought.
    neighbours: Option<Neighbours>,
    /// The direct routes to other mobile networks, where they are wanted.
    direct: Option<Direct>,
    /// The roadside units, where the interface to other stations is an uplink.
    access: Option<Access>,
    /// Addresses of the mobile network's interfaces until then.
    lan_addresses: SmallMap<String, Vec<(Ipv6Addr, u8)>>,
    interfaces: SmallMap<String, Interface>,
    /// Those of IPv6 over GeoNetworking that there are or may be.
    virtual_interfaces: Vec<String>,
    desired: DesiredState<Scope>,
    forwarder: Forwarder,
    path_mtus: PathMtus,
    reassembler: Reassembler,
    /// Where messages go and come from that are under IPsec, where any are.
    protection: Option<Box<Protection>>,
    outputs: VecDeque<Output>,
    received: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<MobilityDrop, u64>,
    /// Counts of a fast path, as last reported.
    fast_traffic: Vec<TunnelTraffic>,
    rng: Rng,
}

impl Station {
    /// A station that has seen nothing yet. `persistent` is what an earlier run left; `rng` decides all its
    /// randomness, and is the source of its secrets. The outputs of the start wait in [`Self::poll_output`].
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

    /// The home agent, if the station is one.
    pub fn home_agent(&self) -> Option<&HomeAgent> {
        self.agent.as_ref().map(|agent| &agent.machine)
    }

    /// The choice among home agents of the mobile router, if the station is one.
    pub fn agents(&self) -> Option<&Agents> {
        self.router.as_ref().map(|router| &router.agents)
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
        Geonet::of(&self.geonet).map(Geonet::router)
    }

    /// The facilities above it, if the station has any.
    pub fn facilities(&self) -> Option<&Facilities> {
        Geonet::of(&self.geonet).and_then(Geonet::facilities)
    }

    /// The multicast proxy, if the station has one.
    pub fn multicast(&self) -> Option<&MulticastProxy> {
        Geonet::of(&self.geonet).and_then(Geonet::multicast)
    }

    /// The adaptation sublayer of IPv6 over GeoNetworking, if the station has one.
    pub fn ipv6_adaptation(&self) -> Option<&Adaptation> {
        Geonet::of(&self.geonet).and_then(Geonet::ipv6)
    }

    /// The GeoNetworking router draws its sequence numbers from here from now on, as a fast path does. In a
    /// recording it has numbers of its own, which the reports correct.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        if let Some(geonet) = &mut self.geonet {
            geonet.share_sequence_numbers(numbers);
        }
    }

    /// GeoNetworking packets are signed and verified from now on; told at the start, before any input.
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

    /// Returns its state for operators.
    pub fn security_state(&self, now: Time) -> Option<SecurityState> {
        self.secured().map(|secured| secured.state(now))
    }

    fn secured(&self) -> Option<&Secured> {
        Geonet::of(&self.geonet).and_then(Geonet::secured).or(self.awaited_security.as_ref())
    }

    /// The areas that were set at run time: name, what it is, when it ends, where it is now.
    pub fn geo_destinations(&self, now: Time) -> impl Iterator<Item = GeoDestination<'_>> {
        Geonet::of(&self.geonet).into_iter().flat_map(move |geonet| geonet.geo_destinations(now))
    }

    pub(crate) fn ipv6_reordered(&self) -> Option<(u64, u64)> {
        Geonet::of(&self.geonet).and_then(Geonet::reordered)
    }

    /// The gate in front of the radio, where there is one.
    pub fn congestion(&self) -> Option<&Gate<Held>> {
        Geonet::of(&self.geonet).and_then(Geonet::gate)
    }

    pub(crate) fn ipv6_acknowledgements(&self) -> Option<(u64, u64)> {
        Geonet::of(&self.geonet).and_then(Geonet::acknowledgements)
    }

    /// Gives back the octets of an [`Output::Frame`] or [`Output::Ipv6`] that has been carried out, to be
    /// used again.
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

    /// The same of a station that will be made with this randomness: for a fast path that is there before it.
    pub fn flow_label_key_of(mut rng: Rng) -> u64 {
        // The first thing that `new` makes of it.
        Forwarder::new(&mut rng).flow_label_key()
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

    /// True once nothing more is to be waited for after [`crate::io::Command::Shutdown`].
    pub fn is_quiescent(&self) -> bool {
        let quiescent = |router: &Router| router.machine.is_quiescent() && router.agents.is_quiescent();
        self.router.as_ref().is_none_or(quiescent)
    }

    /// The next thing to be done; see the drain rule in [`crate::io`].
    pub fn poll_output(&mut self) -> Option<Output> {
        next_of(&mut self.outputs)
    }

    /// When [`crate::io::Input::Timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let geonet = Geonet::of(&self.geonet).and_then(Geonet::poll_timeout);
        let neighbours = self.neighbours().and_then(Mnpp::poll_timeout);
        self.mobility_timeout().into_iter().chain(geonet).chain(neighbours).min()
    }

    /// When the home agent or the mobile router has something to do next.
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
        // A packet woke a tunnel whose MTU is to be looked after.
        let used = self.forwarder.has_used().then_some(Time::ZERO);
        let path_mtus = self.path_mtus.poll_timeout().into_iter().chain(used);
        let path_mtus = path_mtus.chain(self.access.as_ref().and_then(Access::poll_timeout));
        agent.into_iter().chain(router).chain(path_mtus).min()
    }

    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not drained: {:?}", self.outputs);
    }
}
