//! Selects the tunnels that a fast path supports, and notes for each binding whether its packets need the
//! slow path.
//!
//! BPF programs know tunnels in IPv6, in IPv4 and in UDP in IPv4, and distribute packets among the tunnels of
//! a binding. Tunnel devices of the kernel know one tunnel in IPv6 for all packets of a binding. Bindings
//! that send in any other way, as in encrypted sessions, stay with the slow path. BPF programs may still
//! receive packets from the tunnels of such bindings. If a binding sends copies of each packet,
//! a received copy has an extension header, and the programs leave it to the slow path.

use std::collections::{BTreeMap, BTreeSet};

use carnet_base::Endpoint;
use carnet_nemo::forwarding::desired;
use carnet_nemo::forwarding::distribution::FlowDistributor;

use super::{BindingKey, TunnelEnds};

/// How a binding sends its packets.
#[derive(Debug, Default)]
struct BindingSelection {
    /// Tunnels that the fast path does not support, into which the station sends packets.
    unsupported_tunnels: BTreeSet<TunnelEnds>,
    distributor: Option<FlowDistributor>,
}

/// How each binding sends its packets.
#[derive(Debug, Default)]
pub(super) struct BindingSelections(BTreeMap<BindingKey, BindingSelection>);

/// Returns whether BPF programs support the tunnel.
pub(super) fn is_supported_by_programs(tunnel: &desired::Tunnel) -> bool {
    let is = |end: Endpoint| end.ipv6().is_some() || end.ipv4().is_some();
    is(tunnel.local) && is(tunnel.remote) && tunnel.session.is_none()
}

impl BindingSelections {
    /// Adds an unsupported tunnel. Returns whether the tunnel prevents the fast path from sending for the
    /// binding.
    pub(super) fn add_unsupported_tunnel(&mut self, tunnel: &desired::Tunnel) -> bool {
        self.change_binding((tunnel.end, tunnel.home_address), |known| {
            let ends = (tunnel.local, tunnel.remote);
            let _ = if tunnel.transmit {
                known.unsupported_tunnels.insert(ends)
            } else {
                known.unsupported_tunnels.remove(&ends)
            };
        })
    }

    /// Removes an unsupported tunnel. Returns whether another tunnel still prevents the fast path from
    /// sending for the binding.
    pub(super) fn remove_unsupported(&mut self, tunnel: &desired::Tunnel) -> bool {
        self.change_binding((tunnel.end, tunnel.home_address), |known| {
            known.unsupported_tunnels.remove(&(tunnel.local, tunnel.remote));
        })
    }

    /// Sets whether a binding's packets are distributed among its tunnels; `key` is the key of the hash.
    pub(super) fn set_distribution(&mut self, distribution: &desired::FlowDistribution, key: u64, is: bool) {
        self.change_binding((distribution.end, distribution.home_address), |known| {
            let before = known.distributor.take();
            known.distributor = is.then(|| FlowDistributor::new(distribution, before, key));
        });
    }

    /// Returns the distributor of a binding, if its packets are distributed.
    pub(super) fn distributor_of(&self, binding: BindingKey) -> Option<&FlowDistributor> {
        self.0.get(&binding)?.distributor.as_ref()
    }

    /// Returns all stored bindings. The flag says whether the slow path has to send the binding's packets,
    /// because one of its tunnels is unsupported.
    pub(super) fn stored_bindings(&self) -> impl Iterator<Item = (BindingKey, bool)> {
        self.0.iter().map(|(binding, known)| (*binding, !known.unsupported_tunnels.is_empty()))
    }

    fn change_binding(&mut self, binding: BindingKey, how: impl FnOnce(&mut BindingSelection)) -> bool {
        let known = self.0.entry(binding).or_default();
        how(known);
        let others = !known.unsupported_tunnels.is_empty();
        if !others && known.distributor.is_none() {
            self.0.remove(&binding);
        }
        others
    }
}
