//! The tunnels, and which one takes the packets of a prefix.
//!
//! Of the tunnels of a home address that transmit, the one that was told last takes everything, unless there is a
//! distribution. The prefix tables hold the answer, so that a packet costs no more than looking its prefix up.

use std::net::Ipv6Addr;
use std::sync::Arc;

use carnet_wire::ipv6::MIN_MTU;
use ipnet::Ipv6Net;

use super::Forwarder;
use crate::forwarding::desired::{Distribution, Tunnel, TunnelEnd};
use crate::forwarding::distribution::Distributor;
use crate::forwarding::duplicates::Window;
use crate::forwarding::path_mtu::Ends;
use crate::forwarding::prefix_table::PrefixTable;

/// Inner packets of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Came out of it.
    pub packets_in: u64,
    /// Octets of these.
    pub octets_in: u64,
    /// Went into it.
    pub packets_out: u64,
    /// Octets of these.
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

/// What two ends carry: the bindings of all home addresses that share the care-of address.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) bindings: Vec<Arc<Tunnel>>,
    /// The least of their MTUs.
    pub(super) mtu: usize,
    /// Whether the next packet that goes in is to be reported.
    pub(super) watched: bool,
    /// The identification of the last packet that was cut on this path.
    pub(super) cut: Option<u32>,
    pub(super) traffic: Traffic,
}

impl Path {
    fn new() -> Path {
        Path { bindings: Vec::new(), mtu: MIN_MTU, watched: false, cut: None, traffic: Traffic::default() }
    }

    /// The home agent's address, for a path of IPv6.
    pub(super) fn home_agent(&self, ends: Ends) -> Option<Ipv6Addr> {
        self.bindings.first().and_then(|tunnel| match tunnel.end {
            TunnelEnd::Direct => None,
            TunnelEnd::HomeAgent => ends.0.ipv6(),
            TunnelEnd::MobileRouter => ends.1.ipv6(),
        })
    }

    fn set_mtu(&mut self) {
        let mtu = self.bindings.iter().map(|tunnel| tunnel.mtu).min();
        self.mtu = mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(MIN_MTU);
    }

    /// The binding that `address` belongs to.
    pub(super) fn binding_of(&self, address: Ipv6Addr) -> Option<&Tunnel> {
        let mut tunnels = self.bindings.iter().map(|tunnel| &**tunnel);
        tunnels.find(|tunnel| tunnel.inner.iter().any(|prefix| prefix.contains(&address)))
    }

    fn take(&mut self, home_address: Ipv6Addr) {
        if let Some(at) = self.bindings.iter().position(|known| known.home_address == home_address) {
            self.bindings.swap_remove(at);
        }
        self.set_mtu();
    }

    fn add(&mut self, tunnel: Arc<Tunnel>) {
        self.take(tunnel.home_address);
        // Most care-of addresses are one node's.
        if self.bindings.is_empty() {
            self.bindings.reserve_exact(1);
        }
        self.bindings.push(tunnel);
        self.set_mtu();
    }
}

/// Who sends the packets of a prefix, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    pub(super) home_address: Ipv6Addr,
    /// The tunnel that takes everything; with a distribution, what no rule has a tunnel for.
    pub(super) ends: Ends,
    pub(super) distributed: bool,
}

/// Which end, and whose.
pub(super) type Name = (TunnelEnd, Ipv6Addr);

/// The tunnels of one home address.
#[derive(Debug)]
pub(super) struct Binding {
    /// The home agent's address, where there is a distribution.
    pub(super) home_agent: Ipv6Addr,
    tunnels: Vec<Arc<Tunnel>>,
    /// The one that was told last to transmit.
    latest: Option<Arc<Tunnel>>,
    /// The one whose prefixes lead to it in the prefix table.
    leading: Option<Arc<Tunnel>>,
    pub(super) distributor: Option<Box<Distributor>>,
    /// What has come in several copies.
    pub(super) received: Option<Window>,
}

impl Default for Binding {
    fn default() -> Binding {
        Binding {
            home_agent: Ipv6Addr::UNSPECIFIED,
            tunnels: Vec::new(),
            latest: None,
            leading: None,
            distributor: None,
            received: None,
        }
    }
}

impl Binding {
    fn set(&mut self, tunnel: &Arc<Tunnel>) {
        match self.tunnels.iter_mut().find(|known| ends(known) == ends(tunnel)) {
            Some(known) => *known = tunnel.clone(),
            None => {
                // Most have one.
                if self.tunnels.is_empty() {
                    self.tunnels.reserve_exact(1);
                }
                self.tunnels.push(tunnel.clone());
            }
        }
        if tunnel.transmit {
            self.latest = Some(tunnel.clone());
        } else {
            self.latest.take_if(|latest| ends(latest) == ends(tunnel));
        }
    }

    /// The tunnel that takes everything.
    fn sends_into(&self) -> Option<Arc<Tunnel>> {
        self.latest.clone().or_else(|| self.tunnels.iter().find(|tunnel| tunnel.transmit).cloned())
    }
}

fn ends(tunnel: &Tunnel) -> Ends {
    (tunnel.local, tunnel.remote)
}

impl Forwarder {
    /// Creates a tunnel, or replaces the one with the same ends and home address.
    pub fn set_tunnel(&mut self, tunnel: impl Into<Arc<Tunnel>>) {
        let tunnel = tunnel.into();
        let name = (tunnel.end, tunnel.home_address);
        self.bindings.entry(name).or_default().set(&tunnel);
        self.paths.entry(ends(&tunnel)).or_insert_with(Path::new).add(tunnel);
        self.lead(name);
    }

    /// Removes a tunnel.
    pub fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        let gone = ends(tunnel);
        let name = (tunnel.end, tunnel.home_address);
        if let Some(path) = self.paths.get_mut(&gone) {
            path.take(tunnel.home_address);
            if path.bindings.is_empty() {
                self.paths.remove(&gone);
            }
        }
        if let Some(binding) = self.bindings.get_mut(&name) {
            binding.tunnels.retain(|known| ends(known) != gone);
            binding.latest.take_if(|latest| ends(latest) == gone);
        }
        self.lead(name);
        self.forget_empty(name);
    }

    /// From now on these rules say which tunnel a packet takes.
    pub fn set_distribution(&mut self, distribution: &Distribution) {
        let name = (distribution.end, distribution.home_address);
        let sequence = self.rng.u64() as u32;
        // The other end still knows the last numbers when everything else here is forgotten.
        self.sequences.entry(name).or_insert(sequence);
        let binding = self.bindings.entry(name).or_default();
        let before = binding.distributor.take();
        let distributor = Distributor::new(distribution, before.map(|before| *before), self.secret);
        binding.home_agent = distribution.home_agent;
        binding.distributor = Some(Box::new(distributor));
        self.lead(name);
    }

    /// From now on one tunnel takes everything.
    pub fn remove_distribution(&mut self, distribution: &Distribution) {
        let name = (distribution.end, distribution.home_address);
        if let Some(binding) = self.bindings.get_mut(&name) {
            binding.distributor = None;
        }
        self.lead(name);
        self.forget_empty(name);
    }

    fn forget_empty(&mut self, name: Name) {
        if self.bindings.get(&name).is_some_and(|b| b.tunnels.is_empty() && b.distributor.is_none()) {
            let binding = self.bindings.remove(&name);
            self.windows -= usize::from(binding.is_some_and(|binding| binding.received.is_some()));
        }
    }

    /// Lets the prefixes of a binding lead where it sends now.
    fn lead(&mut self, name: Name) {
        let (end, home_address) = name;
        let Some(binding) = self.bindings.get_mut(&name) else { return };
        let leading = binding.sends_into();
        let distributed = binding.distributor.is_some();
        let before = std::mem::replace(&mut binding.leading, leading.clone());
        let table = table_of(&mut self.towards, &mut self.from, end);
        if let Some(tunnel) = &leading {
            let sender = Sender { home_address, ends: ends(tunnel), distributed };
            for prefix in &tunnel.inner {
                table.insert(*prefix, sender);
            }
        }
        let lost =
            |prefix: &&Ipv6Net| !leading.as_ref().is_some_and(|leading| leading.inner.contains(prefix));
        for prefix in before.iter().flat_map(|before| &before.inner).filter(lost) {
            // Another home address may have taken it over already.
            let Some(sender) = table.get(*prefix).filter(|sender| sender.home_address == home_address) else {
                continue;
            };
            let ends = sender.ends;
            table.remove(*prefix);
            // Or share it, with the same care-of address.
            let others = self.paths.get(&ends).into_iter().flat_map(|path| &path.bindings);
            let heir = others
                .filter(|other| other.home_address != home_address && other.transmit)
                .find(|other| other.inner.contains(prefix));
            if let Some(heir) = heir {
                let distributed =
                    self.bindings.get(&(end, heir.home_address)).is_some_and(|b| b.distributor.is_some());
                table.insert(*prefix, Sender { home_address: heir.home_address, ends, distributed });
            }
        }
    }
}

fn table_of<'a>(
    towards: &'a mut PrefixTable<Sender>,
    from: &'a mut PrefixTable<Sender>,
    end: TunnelEnd,
) -> &'a mut PrefixTable<Sender> {
    match end {
        TunnelEnd::HomeAgent | TunnelEnd::Direct => towards,
        TunnelEnd::MobileRouter => from,
    }
}
