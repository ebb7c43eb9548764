//! The tunnels, and the tunnel of each prefix.
//!
//! Without a distribution, one tunnel of a home address takes all packets: the tunnel that was last set as
//! transmitting. The prefix tables hold this tunnel, so a packet costs one lookup of its prefix. All entries
//! share one tunnel value, because a home agent has very many entries.

use std::net::Ipv6Addr;
use std::sync::Arc;

use carnet_base::Few;
use carnet_mobility::SessionPeer;
use carnet_wire::ipv6::MIN_MTU;
use ipnet::Ipv6Net;

use super::{Copies, Forwarder};
use crate::forwarding::desired::{Distribution, Tunnel, TunnelEnd};
use crate::forwarding::distribution::Distributor;
use crate::forwarding::duplicates::Window;
use crate::forwarding::path_mtu::Ends;
use crate::forwarding::prefix_table::{PrefixTable, contains};

/// Counters of the inner packets of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Number of inner packets that came out of the tunnel.
    pub packets_in: u64,
    /// Number of octets in these packets.
    pub octets_in: u64,
    /// Inner packets that entered the tunnel.
    pub packets_out: u64,
    /// Octets of the packets that entered the tunnel.
    pub octets_out: u64,
}

impl Traffic {
    pub(super) fn sent(&mut self, octets: usize) {
        self.packets_out += 1;
        self.octets_out += octets as u64;
    }

    pub(super) fn received(&mut self, octets: usize) {
        self.packets_in += 1;
        self.octets_in += octets as u64;
    }
}

/// Path between two tunnel ends. All bindings with this care-of address share it.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) bindings: Few<Arc<Tunnel>>,
    /// Smallest MTU of the bindings on the path.
    pub(super) mtu: usize,
    /// Whether the forwarder reports the next packet that enters the path.
    pub(super) watched: bool,
    /// Fragment identification of the last packet that was fragmented on this path.
    pub(super) cut: Option<u32>,
    pub(super) traffic: Traffic,
}

impl Path {
    fn new() -> Path {
        Path { bindings: Few::new(), mtu: MIN_MTU, watched: false, cut: None, traffic: Traffic::default() }
    }

    /// Returns the home agent's address, for a path in IPv6; `None` for another path and for a direct route.
    pub(super) fn home_agent(&self, ends: Ends) -> Option<Ipv6Addr> {
        self.bindings.as_slice().first().and_then(|tunnel| match tunnel.end {
            TunnelEnd::Direct => None,
            TunnelEnd::HomeAgent => ends.0.ipv6(),
            TunnelEnd::MobileRouter => ends.1.ipv6(),
        })
    }

    fn set_mtu(&mut self) {
        let mtu = self.bindings.as_slice().iter().map(|tunnel| tunnel.mtu).min();
        self.mtu = mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(MIN_MTU);
    }

    /// Returns the session of the binding of this home address; `None` for a binding in the clear.
    pub(super) fn session_of(&self, home_address: Ipv6Addr) -> Option<SessionPeer> {
        let mut tunnels = self.bindings.as_slice().iter();
        tunnels.find(|tunnel| tunnel.home_address == home_address)?.session
    }

    /// Returns the session for a packet of this station itself to `destination`. At a mobile router, all
    /// bindings of the path have the same session.
    pub(super) fn session_towards(&self, destination: Option<Ipv6Addr>) -> Option<SessionPeer> {
        let binding = destination.and_then(|destination| self.binding_of(destination));
        binding.or_else(|| self.bindings.as_slice().first().map(|tunnel| &**tunnel))?.session
    }

    /// Returns the binding of `address`.
    pub(super) fn binding_of(&self, address: Ipv6Addr) -> Option<&Tunnel> {
        let mut tunnels = self.bindings.as_slice().iter().map(|tunnel| &**tunnel);
        tunnels.find(|tunnel| tunnel.inner.iter().any(|prefix| contains(*prefix, address)))
    }

    fn take(&mut self, home_address: Ipv6Addr) {
        self.bindings.retain(|known| known.home_address != home_address);
        self.set_mtu();
    }

    fn add(&mut self, tunnel: Arc<Tunnel>) {
        self.take(tunnel.home_address);
        self.bindings.push(tunnel);
        self.set_mtu();
    }
}

/// Tunnel and binding to which a prefix leads.
#[derive(Debug)]
pub(super) struct Leading {
    /// Tunnel for all packets to the prefix. With a distribution: tunnel for packets whose rule has no
    /// working tunnel.
    pub(super) tunnel: Arc<Tunnel>,
    pub(super) distributed: bool,
}

impl Leading {
    pub(super) fn sender(&self) -> Sender {
        let Leading { tunnel, distributed } = self;
        Sender { home_address: tunnel.home_address, ends: ends(tunnel), distributed: *distributed }
    }
}

/// Binding from which a packet came, and the tunnel that carried it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    pub(super) home_address: Ipv6Addr,
    pub(super) ends: Ends,
    pub(super) distributed: bool,
}

/// Name of a binding: the role of this end, and the home address.
pub(super) type Name = (TunnelEnd, Ipv6Addr);

/// Tunnels of one home address.
#[derive(Debug)]
pub(super) enum Binding {
    /// One tunnel for all packets, if it transmits. Most bindings of a home agent are of this kind.
    Plain(Arc<Tunnel>),
    /// A binding with several tunnels, a distribution or a window.
    Full(Box<Full>),
}

impl Binding {
    /// Returns the home agent's address of the distribution; the unspecified address without a distribution.
    pub(super) fn home_agent(&self) -> Ipv6Addr {
        match self {
            Binding::Plain(_) => Ipv6Addr::UNSPECIFIED,
            Binding::Full(full) => full.home_agent,
        }
    }

    pub(super) fn distributor(&self) -> Option<&Distributor> {
        match self {
            Binding::Plain(_) => None,
            Binding::Full(full) => full.distributor.as_ref(),
        }
    }

    pub(super) fn distributor_mut(&mut self) -> Option<&mut Distributor> {
        match self {
            Binding::Plain(_) => None,
            Binding::Full(full) => full.distributor.as_mut(),
        }
    }

    /// Returns the window of received numbers; `None` if the binding receives no numbered packets.
    pub(super) fn received_mut(&mut self) -> Option<&mut Window> {
        match self {
            Binding::Plain(_) => None,
            Binding::Full(full) => full.received.as_mut(),
        }
    }

    /// Begins to remember the received numbers in `window`.
    pub(super) fn receive(&mut self, window: Window) {
        if let Binding::Plain(tunnel) = self {
            *self = Binding::Full(Box::new(Full::of(tunnel.clone())));
        }
        if let Binding::Full(full) = self {
            full.received = Some(window);
        }
    }

    fn into_full(self) -> Box<Full> {
        match self {
            Binding::Plain(tunnel) => Box::new(Full::of(tunnel)),
            Binding::Full(full) => full,
        }
    }
}

/// Tunnels of one home address, their distribution and their window.
#[derive(Debug)]
pub(super) struct Full {
    /// Home agent's address of the distribution.
    home_agent: Ipv6Addr,
    tunnels: Few<Arc<Tunnel>>,
    /// Tunnel that was last set as transmitting.
    latest: Option<Arc<Tunnel>>,
    /// Tunnel to which the prefix tables lead now.
    leading: Option<Arc<Tunnel>>,
    distributor: Option<Distributor>,
    /// Window of received numbers.
    received: Option<Window>,
}

impl Default for Full {
    fn default() -> Full {
        Full {
            home_agent: Ipv6Addr::UNSPECIFIED,
            tunnels: Few::new(),
            latest: None,
            leading: None,
            distributor: None,
            received: None,
        }
    }
}

impl Full {
    /// Converts a [`Binding::Plain`] into the full form.
    fn of(tunnel: Arc<Tunnel>) -> Full {
        let sending = tunnel.transmit.then(|| tunnel.clone());
        let tunnels = vec![tunnel].into();
        Full { tunnels, latest: sending.clone(), leading: sending, ..Full::default() }
    }

    /// Returns the smallest form of the binding; `None` if the binding has no tunnel and no other state.
    fn pack(self: Box<Full>) -> Option<Binding> {
        let plain = self.distributor.is_none() && self.received.is_none();
        match self.tunnels.as_slice() {
            [] if self.distributor.is_none() => None,
            [tunnel] if plain && self.latest.is_some() == tunnel.transmit => {
                Some(Binding::Plain(tunnel.clone()))
            }
            _ => Some(Binding::Full(self)),
        }
    }

    fn set(&mut self, tunnel: &Arc<Tunnel>) {
        match self.tunnels.as_mut_slice().iter_mut().find(|known| ends(known) == ends(tunnel)) {
            Some(known) => *known = tunnel.clone(),
            None => self.tunnels.push(tunnel.clone()),
        }
        if tunnel.transmit {
            self.latest = Some(tunnel.clone());
        } else {
            self.latest.take_if(|latest| ends(latest) == ends(tunnel));
        }
    }

    /// Returns the tunnel into which all packets go; `None` if no tunnel transmits.
    fn sends_into(&self) -> Option<Arc<Tunnel>> {
        self.latest.clone().or_else(|| self.tunnels.as_slice().iter().find(|tunnel| tunnel.transmit).cloned())
    }
}

fn ends(tunnel: &Tunnel) -> Ends {
    (tunnel.local, tunnel.remote)
}

impl Forwarder {
    /// Adds a tunnel; replaces a tunnel with the same ends and home address.
    pub fn set_tunnel(&mut self, tunnel: impl Into<Arc<Tunnel>>) {
        let tunnel = tunnel.into();
        let name = (tunnel.end, tunnel.home_address);
        let mut binding = self.take(name);
        binding.set(&tunnel);
        self.paths.entry(ends(&tunnel)).or_insert_with(Path::new).add(tunnel);
        self.lead(name, binding);
    }

    /// Removes a tunnel.
    pub fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        let gone = ends(tunnel);
        let name = (tunnel.end, tunnel.home_address);
        if let Some(path) = self.paths.get_mut(&gone) {
            path.take(tunnel.home_address);
            if path.bindings.as_slice().is_empty() {
                self.paths.remove(&gone);
            }
        }
        let mut binding = self.take(name);
        binding.tunnels.retain(|known| ends(known) != gone);
        binding.latest.take_if(|latest| ends(latest) == gone);
        self.lead(name, binding);
    }

    /// Sets the rules that select the tunnel of each packet.
    pub fn set_distribution(&mut self, distribution: &Distribution) {
        let name = (distribution.end, distribution.home_address);
        let sequence = self.rng.u64() as u32;
        // Continue the sequence of numbers although all other state of the binding is new: the other end
        // still has the last numbers in its window.
        self.copies.entry(name).or_insert_with(|| Copies { sequence, ..Copies::default() });
        let mut binding = self.take(name);
        let before = binding.distributor.take();
        binding.home_agent = distribution.home_agent;
        binding.distributor = Some(Distributor::new(distribution, before, self.secret));
        self.lead(name, binding);
    }

    /// Removes the rules; all packets then go into one tunnel.
    pub fn remove_distribution(&mut self, distribution: &Distribution) {
        let name = (distribution.end, distribution.home_address);
        let mut binding = self.take(name);
        binding.distributor = None;
        self.lead(name, binding);
    }

    /// Removes a binding from the table, so that the caller can change it and insert it again by
    /// [`Self::lead`].
    fn take(&mut self, name: Name) -> Box<Full> {
        self.bindings.remove(&name).map(Binding::into_full).unwrap_or_default()
    }

    /// Inserts a binding, and updates the prefix tables to its tunnel.
    fn lead(&mut self, name: Name, mut binding: Box<Full>) {
        let (end, home_address) = name;
        let leading = binding.sends_into();
        let distributed = binding.distributor.is_some();
        let before = std::mem::replace(&mut binding.leading, leading.clone());
        let numbered = binding.received.is_some();
        match binding.pack() {
            Some(binding) => drop(self.bindings.insert(name, binding)),
            None => self.windows -= usize::from(numbered),
        }
        let table = table_of(&mut self.towards, &mut self.from, end);
        if let Some(tunnel) = &leading {
            for prefix in &tunnel.inner {
                table.insert(*prefix, Leading { tunnel: tunnel.clone(), distributed });
            }
        }
        let lost =
            |prefix: &&Ipv6Net| !leading.as_ref().is_some_and(|leading| leading.inner.contains(prefix));
        for prefix in before.iter().flat_map(|before| &before.inner).filter(lost) {
            // Keep the entry of a prefix that leads to the tunnel of another home address.
            let held = table.get(*prefix).filter(|held| held.tunnel.home_address == home_address);
            let Some(ends) = held.map(|held| held.sender().ends) else { continue };
            table.remove(*prefix);
            // Another home address may share the prefix and the care-of address; in this case that home
            // address owns the prefix from now on.
            let others = self.paths.get(&ends).into_iter().flat_map(|path| path.bindings.as_slice());
            let heir = others
                .filter(|other| other.home_address != home_address && other.transmit)
                .find(|other| other.inner.contains(prefix));
            if let Some(heir) = heir {
                let of_heir = self.bindings.get(&(end, heir.home_address));
                let distributed = of_heir.is_some_and(|binding| binding.distributor().is_some());
                table.insert(*prefix, Leading { tunnel: heir.clone(), distributed });
            }
        }
    }
}

fn table_of<'a>(
    towards: &'a mut PrefixTable<Leading>,
    from: &'a mut PrefixTable<Leading>,
    end: TunnelEnd,
) -> &'a mut PrefixTable<Leading> {
    match end {
        TunnelEnd::HomeAgent | TunnelEnd::Direct => towards,
        TunnelEnd::MobileRouter => from,
    }
}
