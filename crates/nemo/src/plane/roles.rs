//! The roles of the plane: their creation from a config, and the change to another config.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::{Rng, Time, WallTime, mapped};
use carnet_mobility::agents::{HomeAgentSelection, HomeAgentSelectionConfig};
use carnet_mobility::home_agent::{AuthorizedNode, Binding, HomeAgentConfig, OtherAgents};
use carnet_mobility::mobile_router::{Attachment, StoredSequence};
use carnet_mobility::nesting::NestingConfig;
use carnet_mobility::router_advertiser::{
    AdvertiserConfig, HomeAgentAdvertisement, HostConfiguration, RouterAdvertiser,
};
use carnet_mobility::{Event, HomeAgent, MobileRouter, Nesting};
use carnet_wire::ipv6::HEADER_LEN;

use super::config_changes::ConfigChanges;
use super::direct_routes::DirectSettings;
use super::home_agent_absence::HomeAgentAbsence;
use super::ipsec_protection::IpsecProtection;
use super::lan_mtu::AdvertisedMtu;
use super::neighbours::NeighbourRoutes;
use super::roadside_units::RoadsideUnits;
use super::{HomeAgentRole, Nemo, RouterRole, StateOwner, neighbours};
use crate::config::{MobileRouterSettings, NemoConfig};
use crate::forwarding::desired::TunnelEnd;
use crate::forwarding::{first_host_address, home_agent_entries, lan_ipv4_prefixes, lan_prefixes};
use crate::input::OptionalStations;
use crate::output::Output;
use crate::persistent_state::{PersistentState, take_inactive_state};

/// The roles of the plane, and the stored state of the inactive ones.
#[derive(Debug, Default)]
pub(crate) struct StationRoles {
    pub(crate) agent_role: Option<HomeAgentRole>,
    pub(crate) router_role: Option<RouterRole>,
    /// Stored state of a role that is inactive now, for a later config with that role.
    pub(super) inactive_role_state: PersistentState,
}

impl StationRoles {
    /// Returns the home agent, if the station has this role.
    pub(super) fn home_agent(&self) -> Option<&HomeAgent> {
        self.agent_role.as_ref().map(|agent| &agent.state_machine)
    }

    /// Returns an event with the differences between the new config and the previous one; `None` without
    /// differences.
    fn config_changes(
        &self,
        old_agent: Option<&HomeAgentRole>,
        old_router: Option<&RouterRole>,
    ) -> Option<Event> {
        let mut changes = ConfigChanges::default();
        let agents =
            [old_agent, self.agent_role.as_ref()].map(|agent| agent.map(|it| it.state_machine.config()));
        changes.compare_home_agents(agents[0], agents[1]);
        let routers = [old_router, self.router_role.as_ref()];
        let routers = routers.map(|router| router.map(|it| (it.state_machine.config(), &*it.lan_settings)));
        changes.compare_mobile_routers(routers[0], routers[1]);
        changes.into_event()
    }

    /// Returns an event for each binding that the new config no longer permits.
    fn ended_bindings(&self, old: Option<&HomeAgentRole>) -> Vec<Event> {
        let new = self.agent_role.as_ref().map(|agent| &agent.state_machine);
        let bindings = old.into_iter().flat_map(|old| old.state_machine.bindings().iter());
        let ended = bindings.filter_map(|Binding { home_address, bid, .. }| {
            if new.is_some_and(|new| new.bindings().get(home_address, bid).is_some()) {
                return None;
            }
            let is_known = new.is_some_and(|new| new.node(home_address).is_some());
            let reason = match is_known {
                true => "the new config does not permit this binding",
                false => "the new config does not have its node",
            };
            Some(Event::BindingRemoved { home_address, bid, reason: reason.into() })
        });
        ended.collect()
    }
}

impl Nemo {
    /// Applies `config` to the running plane. Bindings, the registration and all unchanged entries of the
    /// forwarding state stay; the outputs are the differences. Then the caller runs the timers.
    pub fn reconfigure(
        &mut self,
        now: Time,
        wall: WallTime,
        config: NemoConfig,
        in_range: OptionalStations<'_>,
    ) {
        self.assert_no_pending_output();
        let persistent = self.persistent_state(now, wall);
        let old_nodes: Vec<Ipv6Addr> = self
            .roles
            .agent_role
            .iter()
            .flat_map(HomeAgentRole::authorized_nodes)
            .map(|node| node.home_address)
            .collect();
        let mut old_router = self.roles.router_role.take();
        let old_agent = self.roles.agent_role.take();
        let mut withdrawals = Vec::new();
        self.configure_router(now, wall, config, persistent);
        let changes = self.roles.config_changes(old_agent.as_ref(), old_router.as_ref());
        let ended = self.roles.ended_bindings(old_agent.as_ref());
        if let (Some(agent), Some(old)) = (&mut self.roles.agent_role, old_agent) {
            agent.state_machine.adopt_state(now, old.state_machine);
        }
        if let (Some(router), Some(old)) = (&mut self.roles.router_role, &mut old_router) {
            router.state_machine.adopt_state_of(now, wall, &old.state_machine);
            router.home_agent_absence.take_over_state(old.home_agent_absence);
            if router.nesting.config() == old.nesting.config() {
                std::mem::swap(&mut router.nesting, &mut old.nesting);
            }
            let mut assigned = old.lan_addresses();
            let wanted = lan_prefixes(&router.state_machine.config().prefixes, &router.lan_settings);
            // Keep only IPv6 addresses of `wanted`: the new router itself assigns IPv4 addresses.
            assigned.retain(|address| wanted.contains(address) && !router.advertises_prefixes_on(&address.0));
            router.stored_lan_addresses = assigned;
            for advertiser in &mut old.advertisers_by_lan {
                let mut successors = router.advertisers_by_lan.iter_mut();
                let successor = successors.find(|new| new.interface() == advertiser.interface());
                advertiser.handle_withdrawal(now, successor);
                withdrawals.extend(std::iter::from_fn(|| advertiser.poll_output()));
            }
        }
        // Pass all interfaces to the mobile router before computing its entries, so that no entry is removed
        // in between.
        let mut wanted = self.take_mobility_outputs(now, wall);
        for (_, interface) in self.interfaces.clone() {
            self.pass_interface_to_roles(now, wall, &interface, in_range);
            wanted.extend(self.take_mobility_outputs(now, wall));
        }
        if self.roles.agent_role.is_none() {
            self.data_path.desired_state.replace_scope(StateOwner::HomeAgent, []);
        }
        for home_address in old_nodes {
            if self
                .roles
                .agent_role
                .as_ref()
                .is_none_or(|agent| agent.state_machine.node(home_address).is_none())
            {
                self.data_path.desired_state.replace_scope(StateOwner::Node(home_address), []);
            }
        }
        if self.roles.router_role.is_none() {
            self.data_path.desired_state.replace_scope(StateOwner::MobileRouter, []);
            for order in (0..3).rev() {
                self.data_path.desired_state.replace_scope(StateOwner::Settings(order), []);
            }
        }
        self.update_router_entries(now);
        for (output, from_router) in wanted {
            self.translate_output(now, output, from_router);
        }
        self.data_path.outputs.extend(withdrawals.into_iter().map(Output::Icmpv6));
        self.data_path.outputs.extend(changes.into_iter().chain(ended).map(Output::Event));
    }

    pub(super) fn configure_router(
        &mut self,
        now: Time,
        wall: WallTime,
        config: NemoConfig,
        mut persistent: PersistentState,
    ) {
        self.roles.inactive_role_state = take_inactive_state(&config, &mut persistent);
        self.data_path.forwarder.clear_own_mobile_networks();
        let direct = config.mobile_router.as_ref().map(|settings| DirectSettings {
            networks: settings.direct_networks.clone(),
            requires_sessions: settings.requires_direct_encryption,
        });
        let last = persistent.mobile_router.and_then(|stored| stored.home_agent);
        self.roles.router_role =
            config.mobile_router.map(|settings| RouterRole::new(settings, last, &mut self.rng));
        // Install the rules of the packet filter first, so that they apply before any packet passes.
        self.update_packet_filter_entries();
        if let Some(router) = &mut self.roles.router_role {
            let config = router.state_machine.config();
            let home_address = config.home_address.into();
            self.data_path.path_mtus.set_home_agent(TunnelEnd::MobileRouter, config.home_agent);
            let ipv4 = config.ipv4_prefixes.iter().copied().map(mapped::from_ipv4);
            let networks = config.prefixes.iter().copied().chain(ipv4).chain([home_address]);
            let with_source = networks.map(|prefix| (prefix, config.home_address));
            self.data_path.forwarder.add_own_mobile_networks(with_source);
            if let Some(stored) = persistent.mobile_router {
                router.state_machine.restore(stored);
            }
            for (interface, volume) in persistent.volumes {
                router.state_machine.restore_volume(&interface, volume);
            }
        }
        // Set the sysctls of the mobile router's interfaces first, and then the sysctls by which the home
        // agent turns forwarding on. The kernel needs this order.
        self.update_sysctl_entries();
        self.roles.agent_role = config
            .home_agent
            .map(|config| HomeAgentRole::new(config, &mut self.rng, self.token_rng.fork_generator()));
        if let Some(agent) = &mut self.roles.agent_role {
            let address = agent.state_machine.config().address;
            self.data_path.path_mtus.set_home_agent(TunnelEnd::HomeAgent, address);
            let networks = agent
                .authorized_nodes()
                .flat_map(|node| node.prefixes.iter().copied().chain([node.home_address.into()]));
            // The home agent need not have an IPv4 address, so its ICMP errors about IPv4 packets come from
            // the address of the router on board.
            let with_source = networks.map(|prefix| match mapped::to_ipv4(prefix) {
                Some(_) => (prefix, first_host_address(prefix)),
                None => (prefix, address),
            });
            self.data_path.forwarder.add_own_mobile_networks(with_source);
            // Without stored state, the home agent has lost its bindings. Use the date as the restart
            // counter: it increases without being stored.
            let restart_counter = persistent.restart_counter.unwrap_or_else(|| unix_seconds(wall));
            agent.state_machine.set_restart_counter(restart_counter);
            agent.state_machine.restore(now, wall, persistent.home_agent);
            self.data_path
                .desired_state
                .replace_scope(StateOwner::HomeAgent, home_agent_entries(&agent.state_machine));
            let home_addresses: Vec<Ipv6Addr> =
                agent.authorized_nodes().map(|node| node.home_address).collect();
            for home_address in home_addresses {
                self.data_path.set_binding_entries(now, &agent.state_machine, home_address);
            }
        }
        self.ipsec_protection =
            IpsecProtection::configured_protection(self.ipsec_protection.take(), &self.roles);
        let router = self.roles.router_role.as_ref();
        self.neighbour_routes = NeighbourRoutes::configured_neighbour_routes(
            self.neighbour_routes.take(),
            config.mnpp,
            router,
            &mut self.rng,
        );
        self.roadside_units = RoadsideUnits::configured_roadside_units(
            self.roadside_units.take(),
            self.virtual_interfaces.first(),
            router,
        );
        neighbours::update_desired_routes(self.neighbour_routes.as_ref(), router, &mut self.data_path);
        let direct = direct.unwrap_or_default();
        self.direct_routes.configure(now, direct, &self.roles, &mut self.data_path, &mut self.rng);
    }
}

/// Returns a date in seconds, capped at 32 bits.
fn unix_seconds(wall: WallTime) -> u32 {
    u32::try_from(wall.as_unix_nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

impl HomeAgentRole {
    /// Creates the home agent. `tokens` is the source of the tokens with which the home agent tests care-of
    /// addresses.
    fn new(config: HomeAgentConfig, rng: &mut Rng, tokens: Rng) -> HomeAgentRole {
        // Take the secret from a copy of the generator: the further random numbers stay the same, so that
        // older recordings can be replayed.
        let secret = !rng.clone().random_u64();
        // A home agent that knows no other home agents sends no random numbers to other nodes, so it needs no
        // secret.
        if config.other_agents == OtherAgents::default() {
            let machine = HomeAgent::new(config).with_hash_secret(secret).with_token_rng(tokens);
            return HomeAgentRole { state_machine: machine, home_link_advertiser: None };
        }
        let interface = config.home_link.clone().filter(|_| config.other_agents.answers_dhaad);
        let advertiser = interface.map(|interface| {
            let home_agent = Some(home_link_offer(&config));
            let (prefixes, hosts) = (Vec::new(), HostConfiguration::default());
            let config = AdvertiserConfig { interface, prefixes, mtu: None, host_values: hosts, home_agent };
            RouterAdvertiser::new(config, Rng::new(rng.random_u64()))
        });
        let machine = HomeAgent::new(config).with_rng(Rng::new(rng.random_u64()));
        let machine = machine.with_hash_secret(secret).with_token_rng(tokens);
        HomeAgentRole { state_machine: machine, home_link_advertiser: advertiser }
    }

    fn authorized_nodes(&self) -> impl Iterator<Item = &AuthorizedNode> {
        self.state_machine.config().nodes.iter()
    }

    /// Updates what the advertiser announces. During a drain the home agent no longer announces itself.
    pub(crate) fn update_home_link_advertiser(&mut self, now: Time) {
        if let Some(advertiser) = &mut self.home_link_advertiser {
            let serves = self.state_machine.drain().is_none();
            advertiser.set_home_agent(now, serves.then(|| home_link_offer(self.state_machine.config())));
        }
    }
}

/// Returns the content of a home agent's advertisements on its home link.
fn home_link_offer(config: &HomeAgentConfig) -> HomeAgentAdvertisement {
    HomeAgentAdvertisement {
        address: config.address,
        home_prefix: config.home_prefix,
        preference: config.other_agents.preference,
        mobile_routers: config.serves_mobile_routers(),
    }
}

impl RouterRole {
    /// Returns the mobile router's state that survives a restart.
    pub(crate) fn stored_sequence(&self) -> StoredSequence {
        let home_agent = Some(self.state_machine.config().home_agent)
            .filter(|agent| self.home_agent_selection.has_several_agents() && !agent.is_unspecified());
        StoredSequence { home_agent, ..self.state_machine.stored_state() }
    }

    /// Returns the interfaces that shall have the address `PREFIX::1`, each with the prefix.
    pub(super) fn lan_addresses(&self) -> Vec<(String, ipnet::Ipv6Net)> {
        let mut addresses = lan_prefixes(&self.state_machine.config().prefixes, &self.lan_settings);
        addresses.retain(|(interface, _)| self.advertises_prefixes_on(interface));
        addresses.extend(self.stored_lan_addresses.iter().cloned());
        addresses.extend(lan_ipv4_prefixes(&self.state_machine.config().ipv4_prefixes, &self.lan_settings));
        addresses
    }

    /// Returns whether the router advertises the prefixes of an interface.
    fn advertises_prefixes_on(&self, interface: &str) -> bool {
        self.advertisers_by_lan.iter().any(|advertiser| advertiser.interface() == interface)
    }

    /// Returns whether `address` is the address of the router's home agent, or of a home agent that the
    /// router tries or leaves.
    pub(super) fn is_home_agent(&self, address: Ipv6Addr) -> bool {
        let mut machines =
            std::iter::once(&self.state_machine).chain(self.home_agent_selection.other_mobile_routers());
        machines.any(|machine| machine.config().home_agent == address)
    }

    pub(super) fn new(
        mut settings: MobileRouterSettings,
        last: Option<Ipv6Addr>,
        rng: &mut Rng,
    ) -> RouterRole {
        if let Some(first) = settings.agents.first_agent(last) {
            settings.router.home_agent = first.address;
            settings.router.home_agent_ipv4 = first.ipv4_address;
        } else if settings.agents.discovers_agents {
            settings.router.home_agent = Ipv6Addr::UNSPECIFIED;
        }
        let chance =
            if settings.agents == HomeAgentSelectionConfig::default() { 0 } else { rng.random_u64() };
        let mut prefixes: BTreeMap<String, Vec<ipnet::Ipv6Net>> = BTreeMap::new();
        for (interface, prefix) in lan_prefixes(&settings.router.prefixes, &settings.lan) {
            prefixes.entry(interface).or_default().push(prefix);
        }
        let advertisers = prefixes
            .into_iter()
            .filter_map(|(interface, prefixes)| {
                let lan = settings
                    .lan
                    .iter()
                    .find(|lan| lan.send_router_advertisements && lan.interface == interface)?;
                let (mtu, hosts) = (lan.mtu, lan.host_configuration.clone());
                let config =
                    AdvertiserConfig { interface, prefixes, mtu, host_values: hosts, home_agent: None };
                Some(RouterAdvertiser::new(config, Rng::new(rng.random_u64())))
            })
            .collect();
        let lan: Vec<String> = settings.lan.iter().map(|lan| lan.interface.clone()).collect();
        let nesting = NestingConfig {
            home_address: settings.router.home_address,
            home_prefix: settings.router.home_prefix,
            prefixes: settings.router.prefixes.clone(),
            lan: lan.clone(),
            uses_direct_addresses: settings.nesting_enabled,
            known_routers: settings.nested_routers,
        };
        let machine = MobileRouter::new(settings.router, rng);
        RouterRole {
            state_machine: machine,
            home_agent_selection: HomeAgentSelection::new(settings.agents, Rng::new(chance)),
            lan_interfaces: lan,
            lan_settings: settings.lan,
            own_traffic: settings.own_traffic,
            configured_breakouts: settings.breakouts,
            home_agent_absence: HomeAgentAbsence::new(settings.breaks_out_when_away),
            advertisers_by_lan: advertisers,
            stored_lan_addresses: Vec::new(),
            lan_mtu: AdvertisedMtu::default(),
            // Take the seed from a copy of the generator: the further random numbers stay the same, so that
            // older recordings can be replayed.
            nesting: Nesting::new(nesting, Rng::new(!rng.clone().random_u64())),
        }
    }

    /// Passes to the advertisers the MTU and whether the prefixes are valid. The MTU is the smallest of the
    /// paths in use; without such a path it fits every uplink.
    pub(crate) fn update_lan_advertisers(&mut self, now: Time, in_use: Option<u32>, straight: Option<u32>) {
        let uplinks = self.state_machine.uplinks().iter();
        let attached = uplinks.filter(|uplink| matches!(uplink.attachment, Attachment::Foreign { .. }));
        let any = attached.map(|uplink| uplink.mtu().saturating_sub(HEADER_LEN as u32)).min();
        let tunnel = in_use.or(any);
        let mtu = self.lan_mtu.update_path_mtu(now, tunnel.map(|mtu| mtu.min(straight.unwrap_or(mtu))));
        for advertiser in &mut self.advertisers_by_lan {
            advertiser.set_mtu_and_validity(now, mtu, self.state_machine.may_advertise());
        }
    }
}
