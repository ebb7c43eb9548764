//! Tunnels that a fast path does not get, and data of bindings that it needs beside their tunnels.
//!
//! BPF programs know tunnels in IPv6, in IPv4 and in UDP in IPv4, and distribute packets among those of a
//! binding. Tunnel devices of the kernel know one tunnel in IPv6 for all packets of a binding. Other ways to
//! send stay with the slow path. A fast path that inspects each packet may still receive from such tunnels.
//! One of several copies has an extension header, and the programs leave such packets alone.

use std::collections::{BTreeMap, BTreeSet};

use carnet_base::Endpoint;
use carnet_station::forwarding::desired;
use carnet_station::forwarding::distribution::Distributor;

use super::{Binding, TunnelEnds};

/// Data of a binding.
#[derive(Debug, Default)]
struct Known {
    /// Tunnels that the fast path cannot do, into which packets are sent.
    others: BTreeSet<TunnelEnds>,
    distributor: Option<Distributor>,
}

/// By binding.
#[derive(Debug, Default)]
pub(super) struct Selection(BTreeMap<Binding, Known>);

/// Whether BPF programs can do it.
pub(super) fn is_for_programs(tunnel: &desired::Tunnel) -> bool {
    let is = |end: Endpoint| end.ipv6().is_some() || end.ipv4().is_some();
    is(tunnel.local) && is(tunnel.remote)
}

impl Selection {
    /// A tunnel of another kind is there; whether it stands in the way of the binding's sending.
    pub(super) fn set_other(&mut self, tunnel: &desired::Tunnel) -> bool {
        self.change((tunnel.end, tunnel.home_address), |known| {
            let ends = (tunnel.local, tunnel.remote);
            let _ = if tunnel.transmit { known.others.insert(ends) } else { known.others.remove(&ends) };
        })
    }

    /// It is gone.
    pub(super) fn remove_other(&mut self, tunnel: &desired::Tunnel) -> bool {
        self.change((tunnel.end, tunnel.home_address), |known| {
            known.others.remove(&(tunnel.local, tunnel.remote));
        })
    }

    /// A binding's packets are distributed, with this key, or no longer.
    pub(super) fn distribute(&mut self, distribution: &desired::Distribution, key: u64, is: bool) {
        self.change((distribution.end, distribution.home_address), |known| {
            let before = known.distributor.take();
            known.distributor = is.then(|| Distributor::new(distribution, before, key));
        });
    }

    /// How they are.
    pub(super) fn distributor(&self, binding: Binding) -> Option<&Distributor> {
        self.0.get(&binding)?.distributor.as_ref()
    }

    /// All bindings of which there is something to know, and whether a tunnel of another kind stands in their
    /// way.
    pub(super) fn bindings(&self) -> impl Iterator<Item = (Binding, bool)> {
        self.0.iter().map(|(binding, known)| (*binding, !known.others.is_empty()))
    }

    fn change(&mut self, binding: Binding, how: impl FnOnce(&mut Known)) -> bool {
        let known = self.0.entry(binding).or_default();
        how(known);
        let others = !known.others.is_empty();
        if !others && known.distributor.is_none() {
            self.0.remove(&binding);
        }
        others
    }
}
