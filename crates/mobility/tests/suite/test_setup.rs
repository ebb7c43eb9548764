//! The parts of a [`crate::agent_and_routers::AgentAndRouters`]: configurations, addresses, and the state of
//! the network.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Address, Interface, LinkMessage, Time};
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::mobile_router::{MobileRouterConfig, RegistrationMode, StoredSequence, UplinkConfig};
use carnet_mobility::{Authentication, MobileRouter};
pub use carnet_virtual::{Link, configured_addresses as addresses};
use carnet_wire::{icmpv6, nd};

use crate::agent;
use crate::test_messages::*;

/// Address of a router on its home link, besides the home address.
pub const ADDRESS_ON_HOME_LINK: &str = "2001:db8:1::99";

/// A mobile router with its interfaces.
pub struct TestRouter {
    pub mobile_router: MobileRouter,
    pub config: MobileRouterConfig,
    pub interfaces: BTreeMap<String, Interface>,
    /// State that the router last asked to store; `None` if it has asked for none yet.
    pub stored_sequence: Option<StoredSequence>,
    /// Time by which the router's clock is ahead of the true time.
    pub clock_lead: Duration,
    /// Times at which the router sent Binding Updates since its last start.
    pub sent_at: UpdateTimes,
}

/// Times of the Binding Updates of the last second.
#[derive(Default)]
pub struct UpdateTimes(Vec<Time>);

impl UpdateTimes {
    /// Notes a Binding Update, and checks the rate (RFC 6275 11.8).
    pub fn record_update(&mut self, now: Time) {
        self.0.retain(|at| now.saturating_since(*at) < Duration::from_secs(1));
        self.0.push(now);
        assert!(self.0.len() <= 3, "more than MAX_UPDATE_RATE Binding Updates in a second");
    }
}

impl TestRouter {
    pub fn has_address(&self, address: Ipv6Addr) -> bool {
        self.interfaces.values().any(|i| i.running && i.addresses.iter().any(|a| a.address == address))
    }

    pub fn is_at_home(&self) -> bool {
        self.has_address(addr(ADDRESS_ON_HOME_LINK))
    }
}

/// A packet as it was sent.
#[derive(Debug, Clone)]
pub struct SentPacket {
    pub sent_at: Time,
    /// Number of the sending router; `None` for the home agent.
    pub sending_router: Option<usize>,
    pub received_packet: ReceivedPacket,
}

/// A packet or message on its way.
pub enum MessageUnderway {
    Packet(Vec<u8>),
    /// A message to all nodes of the home link except its sender (router number; `None` for the home agent).
    Link(Option<usize>, LinkMessage),
}

/// Configuration from which a [`crate::agent_and_routers::AgentAndRouters`] is built.
#[derive(Clone)]
pub struct PairSetup {
    pub seed: u64,
    pub agent: HomeAgentConfig,
    pub routers: Vec<MobileRouterConfig>,
}

/// Returns the config of a router with the uplinks `wifi` (preferred) and `cell`.
pub fn router_config() -> MobileRouterConfig {
    MobileRouterConfig {
        home_address: addr(HOME_ADDRESS),
        home_prefix: net(HOME_PREFIX),
        home_agent: addr(HOME_AGENT_ADDRESS),
        home_agent_ipv4: None,
        force_udp: false,
        liveness: None,
        policies: Vec::new(),
        probes_portals: false,
        ipv4_prefixes: Vec::new(),
        prefixes: vec![net(MOBILE_NETWORK_PREFIX)],
        mode: RegistrationMode::Explicit,
        lifetime: Duration::from_secs(60),
        authentication: Authentication::None,
        uplinks: vec![
            UplinkConfig { interface: "wifi".into(), priority: 10, ..UplinkConfig::default() },
            UplinkConfig { interface: "cell".into(), priority: 20, ..UplinkConfig::default() },
        ],
    }
}

impl PairSetup {
    /// Returns the setup of one router without authentication, with a virtual home link, in explicit mode.
    pub fn plain_setup() -> PairSetup {
        PairSetup { seed: 1, agent: agent::config(), routers: vec![router_config()] }
    }

    /// Returns the setup of one router with the key of [`test_association`], with a virtual home link, in
    /// explicit mode.
    pub fn authenticated_setup() -> PairSetup {
        let mut setup = PairSetup::plain_setup();
        setup.agent = agent::authenticated_config();
        setup.routers[0].authentication = Authentication::SharedKey(test_association());
        setup
    }

    /// Replaces the virtual home link by a real one.
    pub fn with_home_link(mut self) -> PairSetup {
        self.agent.home_link = Some("h0".into());
        self
    }
}

/// Returns a Router Advertisement with these prefixes, as `source` multicasts it.
pub fn router_advertisement(interface: &str, source: &str, prefixes: &[&str]) -> LinkMessage {
    let mut message =
        vec![icmpv6::message_type::ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    for prefix in prefixes {
        let prefix = net(prefix);
        message.extend([3, 4, prefix.prefix_len(), 0xc0]);
        message.extend(3600_u32.to_be_bytes());
        message.extend(1800_u32.to_be_bytes());
        message.extend([0; 4]);
        message.extend(prefix.addr().octets());
    }
    icmpv6::set_checksum(&mut message, addr(source), nd::ALL_NODES);
    LinkMessage {
        interface: interface.into(),
        source: addr(source),
        destination: nd::ALL_NODES,
        hop_limit: 255,
        peer: Some(link_address_of(addr(source))),
        message,
    }
}

/// Returns the link-layer address of a neighbour.
pub fn link_address_of(neighbour: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c] = neighbour.octets();
    [2, 0, 0, a, b, c]
}

/// Returns addresses made by autoconfiguration.
pub fn autoconfigured_addresses(of: &[&str]) -> Vec<Address> {
    addresses(of).into_iter().map(|address| Address { permanent: false, ..address }).collect()
}
