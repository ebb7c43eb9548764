//! The NEMO plane of a station: its roles, their shared data path, and the queries about their state.

mod config_changes;
mod data_path;
mod direct_routes;
mod home_agent_absence;
mod inputs;
mod ipsec_protection;
mod lan_mtu;
mod neighbours;
mod nesting;
mod outputs;
mod packets;
mod path_mtus;
mod persistence;
mod portal_access;
mod roadside_units;
mod roles;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::{Interface, Rng, Time, WallTime, pop_and_shrink};
use carnet_mobility::agents::HomeAgentSelection;
use carnet_mobility::home_agent::StoredBinding;
use carnet_mobility::router_advertiser::RouterAdvertiser;
use carnet_mobility::{DirectRouteState, HomeAgent, Mnpp, MobileRouter, MobilityDrop, Nesting};

use crate::config::NemoConfig;
use crate::forwarding::desired::ForwardingEntry;
use crate::forwarding::forwarder::Forwarder;
use crate::forwarding::path_mtu::PathMtus;
use crate::forwarding::{BreakoutPolicy, LanSettings, OwnTraffic};
use crate::output::Output;
use crate::persistent_state::PersistentState;
use data_path::SlowDataPath;
use direct_routes::DirectRoutes;
use home_agent_absence::HomeAgentAbsence;
use ipsec_protection::IpsecProtection;
use lan_mtu::AdvertisedMtu;
pub use neighbours::GeonetCommand;
use neighbours::NeighbourRoutes;
use packets::MessageCounters;
pub(crate) use portal_access::PortalAccess;
use roadside_units::RoadsideUnits;
pub(crate) use roles::StationRoles;

/// Owner of a part of the desired forwarding state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StateOwner {
    /// Rules of the packet filter for packets from outside to the mobile network.
    Doors,
    /// Routing rules for interfaces on board whose rules of the packet filter the kernel cannot install.
    ClosedDoors,
    /// Settings of the mobile router's interfaces, in groups that are installed in this order.
    Settings(usize),
    /// Entries of the home agent that do not depend on a node.
    HomeAgent,
    /// A node of the home agent, with its home address.
    Node(Ipv6Addr),
    /// The mobile router's entries.
    MobileRouter,
    /// Routes of the mobile router to neighbouring mobile networks.
    Neighbours,
    /// Entries of direct routes of the mobile router.
    Direct,
    /// Routes to routers on board that have a prefix of the mobile network.
    Delegations,
}

#[derive(Debug)]
pub(crate) struct RouterRole {
    pub(crate) state_machine: MobileRouter,
    /// Selection of the home agent, with the further mobile routers that exist while the home agent changes.
    pub(crate) home_agent_selection: HomeAgentSelection,
    /// Names of the interfaces of the mobile network.
    pub(crate) lan_interfaces: Vec<String>,
    pub(crate) lan_settings: Vec<LanSettings>,
    own_traffic: OwnTraffic,
    /// Policies of the config; [`RouterRole::configured_breakouts`] returns those that apply now.
    configured_breakouts: Vec<BreakoutPolicy>,
    home_agent_absence: HomeAgentAbsence,
    pub(crate) advertisers_by_lan: Vec<RouterAdvertiser>,
    /// Interfaces that got `PREFIX::1` from an earlier config with `advertise`, with the prefix. They keep
    /// the address, because an operator's own router needs an address there as well.
    stored_lan_addresses: Vec<(String, ipnet::Ipv6Net)>,
    lan_mtu: AdvertisedMtu,
    pub(crate) nesting: Nesting,
}

#[derive(Debug)]
pub(crate) struct HomeAgentRole {
    pub(crate) state_machine: HomeAgent,
    /// Sends Router Advertisements on a real home link, by which mobile nodes discover the home agent; `None`
    /// if the config turns them off.
    pub(crate) home_link_advertiser: Option<RouterAdvertiser>,
}

/// Stream number of the random generator for the tokens of the home agent.
const TOKEN_RNG_STREAM: u64 = 2;

/// The NEMO plane: a mobile router, a home agent, or both, with their data path.
#[derive(Debug)]
pub struct Nemo {
    pub(crate) roles: StationRoles,
    /// Routes to neighbouring mobile networks; `None` if the config has no such routes.
    pub(crate) neighbour_routes: Option<NeighbourRoutes>,
    /// Direct routes to other mobile networks, if configured.
    pub(crate) direct_routes: DirectRoutes,
    /// Roadside units, if the interface to other stations is an uplink.
    pub(crate) roadside_units: Option<RoadsideUnits>,
    pub(crate) interfaces: BTreeMap<String, Interface>,
    /// Names of the interfaces of IPv6 over GeoNetworking that exist or may appear.
    virtual_interfaces: Vec<String>,
    data_path: SlowDataPath,
    /// The host that has access to a captive portal; `None` if no host has access.
    pub(crate) portal_access: Option<PortalAccess>,
    /// Why the kernel has not installed the rules of the packet filter; `None` if it has.
    pub(crate) packet_rule_error: Option<String>,
    /// State of messages under IPsec; `None` if no node uses IPsec.
    ipsec_protection: Option<Box<IpsecProtection>>,
    message_counters: MessageCounters,
    rng: Rng,
    /// Random generator for the tokens of the home agent. After a change of the config, the new home agent
    /// uses other tokens.
    token_rng: Rng,
}

impl Nemo {
    /// Creates a plane that is neither mobile router nor home agent yet. `virtual_interfaces` names the
    /// interfaces of IPv6 over GeoNetworking. [`Self::start`] starts the roles.
    pub fn new(mut rng: Rng, virtual_interfaces: Vec<String>) -> Nemo {
        Nemo {
            roles: StationRoles::default(),
            neighbour_routes: None,
            direct_routes: DirectRoutes::default(),
            roadside_units: None,
            interfaces: BTreeMap::new(),
            virtual_interfaces,
            data_path: SlowDataPath::new(&mut rng),
            portal_access: None,
            packet_rule_error: None,
            ipsec_protection: None,
            message_counters: MessageCounters::default(),
            // The tokens have a random stream of their own, so that older recordings can still be replayed.
            token_rng: rng.separate_stream(TOKEN_RNG_STREAM),
            rng,
        }
    }

    /// Returns a random number generator for another plane of the station.
    pub fn next_rng(&mut self) -> Rng {
        Rng::new(self.rng.random_u64())
    }

    /// Starts the roles of `config`. `persistent` is the stored state of an earlier run.
    pub fn start(&mut self, now: Time, wall: WallTime, config: NemoConfig, persistent: PersistentState) {
        self.configure_router(now, wall, config, persistent);
        self.update_router_entries(now);
    }

    /// Returns the home agent, if the station has this role.
    pub fn home_agent(&self) -> Option<&HomeAgent> {
        self.roles.home_agent()
    }

    /// Returns the mobile router's selection of home agents, if the station is a mobile router.
    pub fn home_agent_selection(&self) -> Option<&HomeAgentSelection> {
        self.roles.router_role.as_ref().map(|router| &router.home_agent_selection)
    }

    /// Returns the mobile router, if the station has this role.
    pub fn mobile_router(&self) -> Option<&MobileRouter> {
        self.roles.router_role.as_ref().map(|router| &router.state_machine)
    }

    /// Returns the last reported state of an interface; `None` if the interface does not exist.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.get(name)
    }

    /// Returns the slow path's forwarder.
    pub fn slow_path_forwarder(&self) -> &Forwarder {
        &self.data_path.forwarder
    }

    /// Returns the secret key of the outer flow labels; see [`Forwarder::flow_label_key`].
    pub fn flow_label_key(&self) -> u64 {
        self.data_path.forwarder.flow_label_key()
    }

    /// Returns the flow label key of a station that will be created with this `rng`, for a fast path that
    /// starts before the station.
    pub fn flow_label_key_of(mut rng: Rng) -> u64 {
        // `new` takes the forwarder's random numbers first, so the forwarder gets the same ones here.
        Forwarder::new(&mut rng).flow_label_key()
    }

    /// Returns all entries of the desired state.
    pub fn desired_entries(&self) -> impl Iterator<Item = &ForwardingEntry> {
        self.data_path.desired_state.entries()
    }

    pub(crate) fn path_mtus(&self) -> &PathMtus {
        &self.data_path.path_mtus
    }

    pub(crate) fn messages_received(&self) -> &BTreeMap<&'static str, u64> {
        &self.message_counters.received_by_name
    }

    pub(crate) fn messages_dropped(&self) -> &BTreeMap<MobilityDrop, u64> {
        &self.message_counters.dropped_messages
    }

    /// Returns whether the station has finished its work after [`Self::handle_shutdown`].
    pub fn is_quiescent(&self) -> bool {
        let quiescent = |router: &RouterRole| {
            router.state_machine.is_quiescent() && router.home_agent_selection.is_quiescent()
        };
        self.roles.router_role.as_ref().is_none_or(quiescent)
    }

    /// Returns the next output; the caller calls this until it returns `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        pop_and_shrink(&mut self.data_path.outputs)
    }

    /// Returns when the timers of the home agent or the mobile router are due next; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        let agent = self.roles.agent_role.as_ref().and_then(|agent| {
            let advertiser = agent.home_link_advertiser.as_ref().and_then(RouterAdvertiser::poll_timeout);
            agent.state_machine.poll_timeout().into_iter().chain(advertiser).min()
        });
        let router = self.roles.router_role.as_ref().and_then(|router| {
            let advertisers = router.advertisers_by_lan.iter().filter_map(RouterAdvertiser::poll_timeout);
            let lan_mtu = router.lan_mtu.poll_timeout().into_iter().chain(router.nesting.poll_timeout());
            let agents = router
                .home_agent_selection
                .poll_timeout()
                .into_iter()
                .chain(router.home_agent_absence.poll_timeout());
            router
                .state_machine
                .poll_timeout()
                .into_iter()
                .chain(agents)
                .chain(advertisers)
                .chain(lan_mtu)
                .min()
        });
        let router = router
            .into_iter()
            .chain(self.direct_routes.state_machine.as_ref().and_then(DirectRouteState::poll_timeout))
            .min();
        // If a packet has entered a watched tunnel, path MTU discovery acts at once, so the timer is due now.
        let used = self.data_path.forwarder.has_used_watched_tunnel().then_some(Time::ZERO);
        let path_mtus = self.data_path.path_mtus.poll_timeout().into_iter().chain(used);
        let path_mtus = path_mtus.chain(self.roadside_units.as_ref().and_then(RoadsideUnits::poll_timeout));
        let portal = self.portal_access.as_ref().map(|portal| portal.access_ends_at);
        agent.into_iter().chain(router).chain(path_mtus).chain(portal).min()
    }

    /// Returns when the timers of the routes to neighbouring mobile networks are due next; `None` if no timer
    /// runs.
    pub fn poll_neighbour_timeout(&self) -> Option<Time> {
        self.neighbour_routes().and_then(Mnpp::poll_timeout)
    }

    /// Asserts that the caller has taken all outputs before the next input.
    pub fn assert_no_pending_output(&self) {
        debug_assert!(
            self.data_path.outputs.is_empty(),
            "the caller must call poll_output until it returns None; \
             left: {:?}",
            self.data_path.outputs
        );
    }

    /// Returns the part of the present state that survives a restart.
    pub fn persistent_state(&self, now: Time, wall: WallTime) -> PersistentState {
        self.roles.persistent_state(now, wall)
    }

    /// Returns the state of one node of the home agent for stable storage; `None` if the node has no state.
    pub fn stored_binding(&self, now: Time, wall: WallTime, home_address: Ipv6Addr) -> Option<StoredBinding> {
        self.roles.stored_binding_of(now, wall, home_address)
    }

    /// Returns the state for stable storage, without the home agent's nodes.
    pub fn current_persistent_state(&self) -> PersistentState {
        self.roles.current_persistent_state()
    }

    /// Returns the direct routes; `None` if the config has no direct routes.
    pub fn direct_routes(&self) -> Option<&DirectRouteState> {
        self.direct_routes.state_machine.as_ref()
    }

    /// Returns the neighbouring mobile networks with their routes; `None` if the config does not use them.
    pub fn neighbour_routes(&self) -> Option<&Mnpp> {
        self.neighbour_routes.as_ref().map(|neighbours| &neighbours.state_machine)
    }

    pub(crate) fn neighbour_interface(&self) -> Option<&str> {
        self.neighbour_routes.as_ref().map(|neighbours| neighbours.interface.as_str())
    }

    pub(crate) fn diverted_packets(&self) -> u64 {
        self.neighbour_routes.as_ref().map_or(0, |neighbours| neighbours.diverted_packets)
    }

    /// Returns whether the plane needs the messages of neighbouring mobile routers and of access routers.
    pub fn listens_to_stations(&self) -> bool {
        self.neighbour_routes.is_some() || self.roadside_units.is_some()
    }

    /// Returns the state of nesting: the mobile routers behind this router, and the addresses from its parent
    /// router. `None` if the station is no mobile router.
    pub fn nesting_state(&self) -> Option<&Nesting> {
        self.roles.router_role.as_ref().map(|router| &router.nesting)
    }
}
