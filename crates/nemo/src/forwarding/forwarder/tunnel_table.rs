//! The tunnels, and the tunnel of each prefix.
//!
//! Without a distribution, one tunnel of a home address takes all packets: the tunnel that was last set as
//! transmitting. The prefix tables hold this tunnel, so a packet costs one lookup of its prefix. All entries
//! share one tunnel value, because a home agent has very many entries.

use std::net::Ipv6Addr;
use std::sync::Arc;

use carnet_base::SmallList;
use carnet_mobility::SessionPeer;
use carnet_wire::ipv6::MIN_MTU;
use ipnet::Ipv6Net;

use super::{DuplicationState, Forwarder};
use crate::forwarding::desired::{FlowDistribution, Tunnel, TunnelEnd};
use crate::forwarding::distribution::FlowDistributor;
use crate::forwarding::duplicates::ReceiveWindow;
use crate::forwarding::path_mtu::TunnelEnds;
use crate::forwarding::prefix_table::{PrefixTable, prefix_contains};

/// Counters of the inner packets of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TunnelTraffic {
    /// Number of inner packets that came out of the tunnel.
    pub packets_received: u64,
    /// Octets of the inner packets that came out of the tunnel.
    pub octets_received: u64,
    /// Inner packets that entered the tunnel.
    pub packets_sent: u64,
    /// Octets of the packets that entered the tunnel.
    pub octets_sent: u64,
}

impl TunnelTraffic {
    pub(super) fn count_sent(&mut self, octets: usize) {
        self.packets_sent += 1;
        self.octets_sent += octets as u64;
    }

    pub(super) fn count_received(&mut self, octets: usize) {
        self.packets_received += 1;
        self.octets_received += octets as u64;
    }
}

/// Path between two tunnel ends. All bindings with this care-of address share it.
#[derive(Debug)]
pub(super) struct TunnelPath {
    pub(super) tunnels_of_bindings: SmallList<Arc<Tunnel>>,
    /// Smallest MTU of the bindings on the path.
    pub(super) mtu: usize,
    /// Whether the forwarder reports the next packet that enters the path.
    pub(super) is_watched: bool,
    /// Fragment identification of the last packet that was fragmented on this path; `None` before the first
    /// one.
    pub(super) last_fragment_identification: Option<u32>,
    pub(super) traffic: TunnelTraffic,
}

impl TunnelPath {
    fn new() -> TunnelPath {
        TunnelPath {
            tunnels_of_bindings: SmallList::new(),
            mtu: MIN_MTU,
            is_watched: false,
            last_fragment_identification: None,
            traffic: TunnelTraffic::default(),
        }
    }

    /// Returns the home agent's address, for a path in IPv6; `None` for another path and for a direct route.
    pub(super) fn home_agent(&self, ends: TunnelEnds) -> Option<Ipv6Addr> {
        self.tunnels_of_bindings.as_slice().first().and_then(|tunnel| match tunnel.end {
            TunnelEnd::Direct => None,
            TunnelEnd::HomeAgent => ends.0.ipv6(),
            TunnelEnd::MobileRouter => ends.1.ipv6(),
        })
    }

    fn update_mtu(&mut self) {
        let mtu = self.tunnels_of_bindings.as_slice().iter().map(|tunnel| tunnel.mtu).min();
        self.mtu = mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(MIN_MTU);
    }

    /// Returns the session of the binding of this home address; `None` for a binding in the clear.
    pub(super) fn session_of(&self, home_address: Ipv6Addr) -> Option<SessionPeer> {
        let mut tunnels = self.tunnels_of_bindings.as_slice().iter();
        tunnels.find(|tunnel| tunnel.home_address == home_address)?.session
    }

    /// Returns the encrypted session for a packet of this station itself to `destination`; `None` in the
    /// clear. At a mobile router, all bindings of the path have the same session.
    pub(super) fn session_towards(&self, destination: Option<Ipv6Addr>) -> Option<SessionPeer> {
        let binding = destination.and_then(|destination| self.binding_of(destination));
        binding.or_else(|| self.tunnels_of_bindings.as_slice().first().map(|tunnel| &**tunnel))?.session
    }

    /// Returns the binding on this path to whose home address or prefixes `address` belongs; `None`
    /// without such a binding.
    pub(super) fn binding_of(&self, address: Ipv6Addr) -> Option<&Tunnel> {
        let mut tunnels = self.tunnels_of_bindings.as_slice().iter().map(|tunnel| &**tunnel);
        tunnels.find(|tunnel| tunnel.inner.iter().any(|prefix| prefix_contains(*prefix, address)))
    }

    fn remove_binding(&mut self, home_address: Ipv6Addr) {
        self.tunnels_of_bindings.retain(|known| known.home_address != home_address);
        self.update_mtu();
    }

    fn add_tunnel(&mut self, tunnel: Arc<Tunnel>) {
        self.remove_binding(tunnel.home_address);
        self.tunnels_of_bindings.push(tunnel);
        self.update_mtu();
    }
}

/// Tunnel and binding to which a prefix leads.
#[derive(Debug)]
pub(super) struct PrefixTunnel {
    /// Tunnel for all packets to the prefix. With a distribution: tunnel for packets whose rule has no
    /// working tunnel.
    pub(super) tunnel: Arc<Tunnel>,
    pub(super) has_flow_distribution: bool,
}

impl PrefixTunnel {
    pub(super) fn to_packet_sender(&self) -> PacketSender {
        let PrefixTunnel { tunnel, has_flow_distribution: distributed } = self;
        PacketSender {
            home_address: tunnel.home_address,
            ends: tunnel_ends(tunnel),
            has_flow_distribution: *distributed,
        }
    }
}

/// Binding from which a packet came, and the tunnel that carried it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketSender {
    pub(super) home_address: Ipv6Addr,
    pub(super) ends: TunnelEnds,
    pub(super) has_flow_distribution: bool,
}

/// Key of a binding: the role of this end, and the home address.
pub(super) type BindingKey = (TunnelEnd, Ipv6Addr);

/// Tunnels of one home address.
#[derive(Debug)]
pub(super) enum BindingTunnels {
    /// One tunnel for all packets, if it transmits. Most bindings of a home agent are of this kind.
    Plain(Arc<Tunnel>),
    /// A binding with several tunnels, a distribution or a window.
    Full(Box<FullBinding>),
}

impl BindingTunnels {
    /// Returns the home agent's address of the distribution; the unspecified address without a distribution.
    pub(super) fn home_agent(&self) -> Ipv6Addr {
        match self {
            BindingTunnels::Plain(_) => Ipv6Addr::UNSPECIFIED,
            BindingTunnels::Full(full) => full.home_agent,
        }
    }

    pub(super) fn distributor(&self) -> Option<&FlowDistributor> {
        match self {
            BindingTunnels::Plain(_) => None,
            BindingTunnels::Full(full) => full.distributor.as_ref(),
        }
    }

    pub(super) fn distributor_mut(&mut self) -> Option<&mut FlowDistributor> {
        match self {
            BindingTunnels::Plain(_) => None,
            BindingTunnels::Full(full) => full.distributor.as_mut(),
        }
    }

    /// Returns the window of received numbers; `None` if the binding receives no numbered packets.
    pub(super) fn receive_window_mut(&mut self) -> Option<&mut ReceiveWindow> {
        match self {
            BindingTunnels::Plain(_) => None,
            BindingTunnels::Full(full) => full.receive_window.as_mut(),
        }
    }

    /// Begins to remember the received numbers in `window`.
    pub(super) fn start_receive_window(&mut self, window: ReceiveWindow) {
        if let BindingTunnels::Plain(tunnel) = self {
            *self = BindingTunnels::Full(Box::new(FullBinding::from_single_tunnel(tunnel.clone())));
        }
        if let BindingTunnels::Full(full) = self {
            full.receive_window = Some(window);
        }
    }

    fn into_full_form(self) -> Box<FullBinding> {
        match self {
            BindingTunnels::Plain(tunnel) => Box::new(FullBinding::from_single_tunnel(tunnel)),
            BindingTunnels::Full(full) => full,
        }
    }
}

/// Tunnels of one home address, their distribution and their window.
#[derive(Debug)]
pub(super) struct FullBinding {
    /// Address of the home agent, as the distribution names it.
    home_agent: Ipv6Addr,
    tunnels: SmallList<Arc<Tunnel>>,
    /// Tunnel that was last set as transmitting; `None` if no tunnel transmits.
    last_transmitting_tunnel: Option<Arc<Tunnel>>,
    /// Tunnel that the prefix tables have for the prefixes of the binding; `None` if they have none.
    tunnel_in_prefix_table: Option<Arc<Tunnel>>,
    distributor: Option<FlowDistributor>,
    /// Window of received numbers; `None` if the binding receives no numbered packets.
    receive_window: Option<ReceiveWindow>,
}

impl Default for FullBinding {
    fn default() -> FullBinding {
        FullBinding {
            home_agent: Ipv6Addr::UNSPECIFIED,
            tunnels: SmallList::new(),
            last_transmitting_tunnel: None,
            tunnel_in_prefix_table: None,
            distributor: None,
            receive_window: None,
        }
    }
}

impl FullBinding {
    /// Converts a [`BindingTunnels::Plain`] into the full form.
    fn from_single_tunnel(tunnel: Arc<Tunnel>) -> FullBinding {
        let sending = tunnel.transmit.then(|| tunnel.clone());
        let tunnels = vec![tunnel].into();
        FullBinding {
            tunnels,
            last_transmitting_tunnel: sending.clone(),
            tunnel_in_prefix_table: sending,
            ..FullBinding::default()
        }
    }

    /// Returns the form of the binding that needs the least memory; `None` if the binding has no tunnel and
    /// no other state.
    fn into_smallest_form(self: Box<FullBinding>) -> Option<BindingTunnels> {
        let plain = self.distributor.is_none() && self.receive_window.is_none();
        match self.tunnels.as_slice() {
            [] if self.distributor.is_none() => None,
            [tunnel] if plain && self.last_transmitting_tunnel.is_some() == tunnel.transmit => {
                Some(BindingTunnels::Plain(tunnel.clone()))
            }
            _ => Some(BindingTunnels::Full(self)),
        }
    }

    fn set_tunnel(&mut self, tunnel: &Arc<Tunnel>) {
        match self.tunnels.as_mut_slice().iter_mut().find(|known| tunnel_ends(known) == tunnel_ends(tunnel)) {
            Some(known) => *known = tunnel.clone(),
            None => self.tunnels.push(tunnel.clone()),
        }
        if tunnel.transmit {
            self.last_transmitting_tunnel = Some(tunnel.clone());
        } else {
            self.last_transmitting_tunnel.take_if(|latest| tunnel_ends(latest) == tunnel_ends(tunnel));
        }
    }

    /// Returns the tunnel into which all packets go; `None` if no tunnel transmits.
    fn transmitting_tunnel(&self) -> Option<Arc<Tunnel>> {
        self.last_transmitting_tunnel
            .clone()
            .or_else(|| self.tunnels.as_slice().iter().find(|tunnel| tunnel.transmit).cloned())
    }
}

fn tunnel_ends(tunnel: &Tunnel) -> TunnelEnds {
    (tunnel.local, tunnel.remote)
}

impl Forwarder {
    /// Adds a tunnel; replaces a tunnel with the same ends and home address.
    pub fn set_tunnel(&mut self, tunnel: impl Into<Arc<Tunnel>>) {
        let tunnel = tunnel.into();
        let name = (tunnel.end, tunnel.home_address);
        let mut binding = self.remove_binding(name);
        binding.set_tunnel(&tunnel);
        self.paths_by_ends.entry(tunnel_ends(&tunnel)).or_insert_with(TunnelPath::new).add_tunnel(tunnel);
        self.insert_binding(name, binding);
    }

    /// Removes a tunnel.
    pub fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        let gone = tunnel_ends(tunnel);
        let name = (tunnel.end, tunnel.home_address);
        if let Some(path) = self.paths_by_ends.get_mut(&gone) {
            path.remove_binding(tunnel.home_address);
            if path.tunnels_of_bindings.as_slice().is_empty() {
                self.paths_by_ends.remove(&gone);
            }
        }
        let mut binding = self.remove_binding(name);
        binding.tunnels.retain(|known| tunnel_ends(known) != gone);
        binding.last_transmitting_tunnel.take_if(|latest| tunnel_ends(latest) == gone);
        self.insert_binding(name, binding);
    }

    /// Sets the rules that select the tunnel of each packet.
    pub fn set_distribution(&mut self, distribution: &FlowDistribution) {
        let name = (distribution.end, distribution.home_address);
        let sequence = self.rng.random_u64() as u32;
        // Continue the sequence of numbers although all other state of the binding is new: the other end
        // still has the last numbers in its window.
        self.duplication_states
            .entry(name)
            .or_insert_with(|| DuplicationState { sequence, ..DuplicationState::default() });
        let mut binding = self.remove_binding(name);
        let before = binding.distributor.take();
        binding.home_agent = distribution.home_agent;
        binding.distributor = Some(FlowDistributor::new(distribution, before, self.flow_label_key));
        self.insert_binding(name, binding);
    }

    /// Removes the rules; all packets then go into one tunnel.
    pub fn remove_distribution(&mut self, distribution: &FlowDistribution) {
        let name = (distribution.end, distribution.home_address);
        let mut binding = self.remove_binding(name);
        binding.distributor = None;
        self.insert_binding(name, binding);
    }

    /// Removes a binding from the table, so that the caller can change it and insert it again by
    /// [`Self::insert_binding`].
    fn remove_binding(&mut self, name: BindingKey) -> Box<FullBinding> {
        self.bindings.remove(&name).map(BindingTunnels::into_full_form).unwrap_or_default()
    }

    /// Inserts a binding, and makes its prefixes lead to its tunnel in the prefix table.
    fn insert_binding(&mut self, name: BindingKey, mut binding: Box<FullBinding>) {
        let (end, home_address) = name;
        let leading = binding.transmitting_tunnel();
        let distributed = binding.distributor.is_some();
        let before = std::mem::replace(&mut binding.tunnel_in_prefix_table, leading.clone());
        let numbered = binding.receive_window.is_some();
        match binding.into_smallest_form() {
            Some(binding) => drop(self.bindings.insert(name, binding)),
            None => self.receive_window_count -= usize::from(numbered),
        }
        let table = prefix_table_of(&mut self.tunnel_by_prefix, &mut self.tunnel_by_source_prefix, end);
        if let Some(tunnel) = &leading {
            for prefix in &tunnel.inner {
                table.insert(
                    *prefix,
                    PrefixTunnel { tunnel: tunnel.clone(), has_flow_distribution: distributed },
                );
            }
        }
        let lost =
            |prefix: &&Ipv6Net| !leading.as_ref().is_some_and(|leading| leading.inner.contains(prefix));
        for prefix in before.iter().flat_map(|before| &before.inner).filter(lost) {
            // Keep the entry of a prefix that leads to the tunnel of another home address.
            let held = table.get(*prefix).filter(|held| held.tunnel.home_address == home_address);
            let Some(ends) = held.map(|held| held.to_packet_sender().ends) else { continue };
            table.remove(*prefix);
            // A binding of another home address may have the same prefix and care-of address. The prefix then
            // leads to the tunnel of that binding.
            let others = self
                .paths_by_ends
                .get(&ends)
                .into_iter()
                .flat_map(|path| path.tunnels_of_bindings.as_slice());
            let heir = others
                .filter(|other| other.home_address != home_address && other.transmit)
                .find(|other| other.inner.contains(prefix));
            if let Some(heir) = heir {
                let of_heir = self.bindings.get(&(end, heir.home_address));
                let distributed = of_heir.is_some_and(|binding| binding.distributor().is_some());
                table.insert(
                    *prefix,
                    PrefixTunnel { tunnel: heir.clone(), has_flow_distribution: distributed },
                );
            }
        }
    }
}

fn prefix_table_of<'a>(
    towards: &'a mut PrefixTable<PrefixTunnel>,
    from: &'a mut PrefixTable<PrefixTunnel>,
    end: TunnelEnd,
) -> &'a mut PrefixTable<PrefixTunnel> {
    match end {
        TunnelEnd::HomeAgent | TunnelEnd::Direct => towards,
        TunnelEnd::MobileRouter => from,
    }
}
